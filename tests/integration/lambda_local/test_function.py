"""The product's function in a real process of `awslambdaric`: what a freeze does to its database and its telemetry."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from sqlalchemy import Engine, text

from sluice.clock import SystemClock
from sluice.declaration import load_declaration
from sluice.lambda_local.process import FunctionProcess
from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.inbox import tables
from sluice.simulator.model.mapping import NoAnswer, to_record
from sluice.simulator.server import SimulatorServer
from sluice.topology import deploy

_ENVIRONMENTS = """
from sluice.declaration import Consumer, Environment, Lambda

billing = Consumer(name="billing", handlers="bills", processing_seconds=0.1, runtime=Lambda(timeout_seconds=10))
ENVIRONMENTS = (Environment(name="local", consumers=(billing,)),)
"""
_HANDLERS = """
import os
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from sqlalchemy import text
from sluice.messaging import handler

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(), schedule_delay_millis=600_000))
trace.set_tracer_provider(provider)
reader = PeriodicExportingMetricReader(ConsoleMetricExporter(), export_interval_millis=600_000)
metrics.set_meter_provider(MeterProvider([reader]))

@handler("order.placed")
def bill(session, event, context):
    insert = text("INSERT INTO bill SELECT :name, :attempt, pg_backend_pid(), :trace")
    found = {"name": event.data, "attempt": context.attempt, "trace": os.environ.get("_X_AMZN_TRACE_ID")}
    session.execute(insert, found)
"""
_MADE_IN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class WarmFunction:
    """A Lambda function whose process lives on between invocations; a test invokes it with events of its queue."""

    def __init__(self, process: FunctionProcess, queue_arn: str) -> None:
        self.process, self._queue_arn = process, queue_arn

    def handle(self, number: int) -> object:
        """Invoke the function with a batch of one event, which has this number in its group; return the answer."""
        event = Event(
            type="order.placed", group="order-7", data=f"a{number}", id=f"e{number}", trace={"traceparent": _MADE_IN}
        )
        attributes = {"MessageGroupId": "order-7", "ApproximateReceiveCount": "1"}
        message = {
            "MessageId": f"m{number}",
            "ReceiptHandle": f"r{number}",
            "Body": Envelope(event=event, seq=number, epoch=1, first=1).body,
            "Attributes": attributes,
            "MD5OfBody": "",
        }
        return self.process.invoke({"Records": [to_record(message, self._queue_arn)]})


@pytest.fixture
def function(tmp_path: Path, postgres: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[WarmFunction]:
    """Yield a function on a Postgres, whose queue is a simulator's."""
    (tmp_path / "environments.py").write_text(_ENVIRONMENTS, encoding="utf-8")
    (tmp_path / "bills.py").write_text(_HANDLERS, encoding="utf-8")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    tables.metadata.create_all(postgres)
    with postgres.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE bill (name TEXT, attempt INTEGER, server INTEGER, trace TEXT)")
    with SimulatorServer(port=0) as server:
        sqs, sns = (boto3.client(name, endpoint_url=server.url, region_name="us-east-1") for name in ("sqs", "sns"))
        environment = load_declaration(tmp_path / "environments.py").environment("local")
        url = deploy(environment, sqs=sqs, sns=sns).queues["billing"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": server.url,
            "SLUICE_DECLARATION": str(tmp_path / "environments.py"),
            "SLUICE_ENV": "local",
            "SLUICE_CONSUMER": "billing",
            "SLUICE_DSN": postgres.url.render_as_string(hide_password=False),
        }
        process = FunctionProcess(
            "sluice.cli.services.function.handle", variables, timeout_seconds=10.0, memory_mb=1_024
        )
        yield WarmFunction(process, arn)
        process.close()


def rows_of(engine: Engine, query: str) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def end_connections(engine: Engine) -> int:
    """End every connection of other processes to this database, as a server does that is restarted."""
    query = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE pid IN (SELECT server FROM bill)"
    ((count,),) = rows_of(engine, query)
    return int(count)


def test_a_connection_that_ended_during_a_freeze_costs_no_attempt(function: WarmFunction, postgres: Engine) -> None:
    """The next invocation works on another connection of the same process, by the message's first attempt.

    A connection that was idle for less than a second is used without a question, and fails at its first statement.
    """
    answers, ended = [function.handle(1)], []
    for number, frozen_seconds in ((2, 0.0), (3, 1.2)):
        ended.append(end_connections(postgres))
        SystemClock().sleep(frozen_seconds)
        answers.append(function.handle(number))

    bills = rows_of(postgres, "SELECT name, attempt FROM bill ORDER BY name")
    servers = rows_of(postgres, "SELECT DISTINCT server FROM bill")
    assert ended == [1, 1]
    assert answers == [{"batchItemFailures": []}] * 3
    assert bills == [("a1", 1), ("a2", 1), ("a3", 1)]
    assert len(servers) == 3
    assert rows_of(postgres, "SELECT * FROM sluice_inbox_attempt") == []
    assert function.process.starts == 1


def test_a_function_does_not_start_where_its_tables_may_lose_a_row(
    function: WarmFunction, postgres: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    """A failed start is no attempt; the line in the log names the table and the step."""
    with postgres.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE sluice_inbox_attempt SET UNLOGGED")

    refused = function.handle(1)
    printed = "".join(capfd.readouterr())
    with postgres.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE sluice_inbox_attempt SET LOGGED")
    answer = function.handle(1)

    assert refused is NoAnswer.ERROR
    assert "table sluice_inbox_attempt is UNLOGGED or temporary, allowed is a permanent one" in printed
    assert answer == {"batchItemFailures": []}
    assert rows_of(postgres, "SELECT name, attempt FROM bill") == [("a1", 1)]


@pytest.mark.slow
def test_spans_and_metrics_of_an_invocation_are_out_before_the_freeze(
    function: WarmFunction, postgres: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    """The span is linked to the producer's, and X-Ray's header is that of each invocation."""
    function.handle(1)
    printed = capfd.readouterr().out
    function.handle(2)

    assert '"trace_id": "0x0af7651916cd43dd8448eb211c80319c"' in printed
    assert '"span_id": "0xb7ad6b7169203331"' in printed
    measured = [json.loads(line) for line in printed.splitlines() if line.startswith('{"_aws"')]
    assert [entry["InboxHandled"] for entry in measured] == [1.0]
    assert '"name": "sluice.inbox.handled"' in printed
    traces = [trace for (trace,) in rows_of(postgres, "SELECT trace FROM bill ORDER BY name")]
    assert len(set(traces)) == 2
    assert [trace.split("=")[0] for trace in traces] == ["Root", "Root"]
