"""`sluice relay` and `sluice worker` without an `environments.py`: options name the topic and the queue."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from sluice.messaging import Event, Outbox
from sluice.messaging.bundle import write_bundle
from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope
from sluice.simulator.server import SimulatorServer
from tests.support.command_line import Run, command_line

_HANDLERS = """
from sqlalchemy import text
from sluice.messaging import Ack, handler

@handler("order.placed")
def bill(session, event, context):
    session.execute(text("INSERT INTO bills VALUES (:id)"), {"id": event.data["order"]})
    return Ack()
"""


@pytest.fixture
def sluice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Run]:
    """Yield the command line, in a folder with handlers and without a declaration."""
    (tmp_path / "undeclared_handlers.py").write_text(_HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("SLUICE_DECLARATION", raising=False)
    monkeypatch.setenv("SLUICE_DSN", f"sqlite:///{tmp_path}/shop.db")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with command_line(monkeypatch, capsys) as run:
        monkeypatch.setenv("SLUICE_DSN", f"sqlite:///{tmp_path}/shop.db")
        yield run


@pytest.fixture
def server(sluice: Run) -> Iterator[SimulatorServer]:
    with SimulatorServer(port=0) as server:
        yield server


def _client(service: str, server: SimulatorServer) -> Any:
    return boto3.client(service, endpoint_url=server.url, region_name="us-east-1")


def _queue(sqs: Any, name: str, **attributes: str) -> tuple[str, str]:
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true", **attributes})["QueueUrl"]
    return url, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def _make_foreign_queue(server: SimulatorServer, receives_max: int = 3) -> tuple[str, str]:
    """Make a topic and a queue with a DLQ without Sluice; return the ARN of the topic and the URL of the queue."""
    sqs, sns = _client("sqs", server), _client("sns", server)
    topic_arn = sns.create_topic(Name="orders.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    _, dead_arn = _queue(sqs, "theirs-dlq.fifo")
    redrive = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": receives_max})
    allow = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
    policy = json.dumps({"Statement": [allow]})
    url, arn = _queue(sqs, "theirs.fifo", RedrivePolicy=redrive, VisibilityTimeout="45", Policy=policy)
    sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
    return topic_arn, url


def test_an_event_is_handled_without_a_declaration(sluice: Run, server: SimulatorServer, tmp_path: Path) -> None:
    """Topic and queue were made by somebody else, and options name them."""
    topic_arn, queue_url = _make_foreign_queue(server)
    engine = engines.engine(f"sqlite:///{tmp_path}/shop.db")
    assert sluice("schema", "apply")[0] == 0
    with Session(engine) as session:
        session.execute(text("CREATE TABLE bills (id INTEGER)"))
        Outbox("orders.fifo").add(session, Event(type="order.placed", group="g", data={"order": 7}))
        session.commit()

    published = sluice("relay", "--topic-arn", topic_arn, "--endpoint-url", server.url, "--until-empty")
    worked = sluice(
        *("worker", "--queue-url", queue_url, "--consumer", "billing", "--handlers", "undeclared_handlers"),
        *("--endpoint-url", server.url, "--until-idle", "0.5"),
    )

    assert published[0] == 0, (published, worked)
    assert worked[0] == 0, (published, worked)
    with engine.connect() as connection:
        assert list(connection.scalars(text("SELECT id FROM bills"))) == [7]
        assert list(connection.scalars(text("SELECT consumer FROM sluice_inbox_group"))) == ["billing"]
    engine.dispose()


def test_attempts_at_events_of_a_foreign_bundle_are_given_and_no_receives(
    sluice: Run, server: SimulatorServer, tmp_path: Path
) -> None:
    """Its queue has 1,000 receives; one event of two fails, and is dead after the one attempt that it has."""
    topic_arn, queue_url = _make_foreign_queue(server, receives_max=1_000)
    assert sluice("schema", "apply")[0] == 0
    engine = engines.engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bills (id INTEGER)"))
    events = [Event(type="order.placed", group="g", data=data) for data in ({}, {"order": 7})]
    body = write_bundle([Envelope(event=event, seq=seq, epoch=1).body for seq, event in enumerate(events, 1)])
    _client("sns", server).publish(
        TopicArn=topic_arn, Message=body, MessageGroupId="g", MessageDeduplicationId="bundle"
    )
    worker = (
        *("worker", "--queue-url", queue_url, "--consumer", "billing", "--handlers", "undeclared_handlers"),
        *("--endpoint-url", server.url, "--until-idle", "0.5"),
    )

    code, _, complaint = sluice(*worker)
    assert code == 3
    assert "1000, which is that of bundles" in complaint
    assert sluice(*worker, "--max-attempts", "1")[0] == 0

    with engine.connect() as connection:
        assert list(connection.scalars(text("SELECT id FROM bills"))) == [7]
        assert list(connection.scalars(text("SELECT state FROM sluice_inbox_exception"))) == ["dead"]
    engine.dispose()


def test_options_that_name_too_little_are_refused_in_a_line(sluice: Run, server: SimulatorServer) -> None:
    """The text beside each command is in the one line that is printed."""
    sqs = _client("sqs", server)
    bare, _ = _queue(sqs, "bare.fifo")
    endpoint = ("--endpoint-url", server.url)
    worker = ("worker", "--handlers", "undeclared_handlers", *endpoint)
    refused = {
        ("relay", *endpoint): "environments.py",
        ("relay", "--topic-arn", "orders", *endpoint): "ARN of an SNS FIFO topic",
        worker: "environments.py",
        (*worker, "--queue-url", bare): "give --consumer",
        (*worker, "--queue-url", bare, "--consumer", "billing"): "has no RedrivePolicy",
        (*worker, "--queue-url", f"{server.url}/000000000000/none", "--consumer", "billing"): "does not exist",
    }

    for arguments, expected in refused.items():
        code, _, complaint = sluice(*arguments)
        assert code in (2, 3), (arguments, complaint)
        assert complaint.count("\n") == 1, (arguments, complaint)
        assert expected in complaint, (arguments, complaint)
