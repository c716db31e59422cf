"""`sluice lambda local`: the product's function in real processes, behind the simulator and a model of the mapping."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest

from sluice.declaration import load_declaration
from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.inbox import tables
from sluice.simulator.server import SimulatorServer
from sluice.topology import Topology, deploy
from tests.support.processes import judged_function
from tests.support.project import PROJECT

_JUDGED = ("--entry-point", judged_function.ENTRY_POINT)
_ENVIRONMENTS = """
from sluice.declaration import Consumer, Environment, Lambda

ENVIRONMENTS = (
    Environment(
        name="local",
        consumers=(
            Consumer(
                name="billing",
                handlers="bills",
                processing_seconds=0.1,
                visibility_timeout_seconds=12,
                stop_timeout_seconds=1,
                max_attempts=2,
                runtime=Lambda(batch_size=10, timeout_seconds=2, memory_mb=512),
            ),
        ),
    ),
)
"""
_HANDLERS = """
import os, pathlib, time
from sqlalchemy import text
from sluice.messaging import Ack, PermanentError, Retry, handler

def is_first(name):
    mark = pathlib.Path(f"{name}.mark")
    if mark.exists():
        return False
    mark.write_text("")
    return True

@handler("order.placed")
def bill(session, event, context):
    session.execute(text("INSERT INTO bill VALUES (:name, :attempt)"), {"name": event.data, "attempt": context.attempt})
    if event.data == "kill1" and is_first(event.data):
        os._exit(1)
    if event.data == "slow1" and is_first(event.data):
        time.sleep(60)
    if event.data == "retry1" and is_first(event.data):
        return Retry(delay_seconds=1)
    if event.data == "bad1":
        raise PermanentError("not ours")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SimulatorServer, Topology, Any]]:
    """Yield a simulator with the consumer's queues, in a project's folder with its database."""
    (tmp_path / "environments.py").write_text(_ENVIRONMENTS, encoding="utf-8")
    (tmp_path / "bills.py").write_text(_HANDLERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("SLUICE_DECLARATION", str(tmp_path / "environments.py"))
    engine = engines.engine(f"sqlite:///{tmp_path}/shop.db")
    tables.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE bill (name TEXT, attempt INTEGER)")
    engine.dispose()
    with SimulatorServer(port=0) as server:
        sqs, sns = (
            boto3.client(service, endpoint_url=server.url, region_name="us-east-1") for service in ("sqs", "sns")
        )
        environment = load_declaration(tmp_path / "environments.py").environment("local")
        yield server, deploy(environment, sqs=sqs, sns=sns), sqs


def work_until_idle(shop: tuple[SimulatorServer, Topology, Any], folder: Path, *options: str) -> list[str]:
    """Run the function on three events of each group until nothing comes; return the names of its effects, in order."""
    server, topology, sqs = shop
    for number in (1, 2, 3):
        for group in ("kill", "slow", "retry", "bad", "good"):
            event = Event(type="order.placed", group=group, data=f"{group}{number}")
            body = Envelope(event=event, seq=number, epoch=1, first=1).body
            sqs.send_message(
                QueueUrl=topology.queues["billing"],
                MessageBody=body,
                MessageGroupId=group,
                MessageDeduplicationId=event.id,
            )

    command = [sys.executable, "-m", "sluice", "lambda", "local", "--consumer", "billing", "--until-idle", "15"]
    command += ["--start-timeout", "60"]
    command += ["--dsn", f"sqlite:///{folder}/shop.db", "--endpoint-url", server.url, *options]
    ended = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=170, check=False)

    assert ended.returncode == 0, ended.stderr[-3_000:]
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM bill ORDER BY rowid")]


@pytest.fixture
def answers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which a judged function writes down its answers."""
    folder = tmp_path / "invocations"
    folder.mkdir()
    monkeypatch.setenv(judged_function.INVOCATIONS, str(folder))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    return folder


@pytest.mark.slow
def test_effects_are_once_and_in_order_whatever_ends_the_process(
    shop: tuple[SimulatorServer, Topology, Any], tmp_path: Path, answers_folder: Path
) -> None:
    """A process that ends in its handler, one that takes too long, a retry, a refusal, in batches of mixed groups."""
    bills = work_until_idle(shop, tmp_path, *_JUDGED)

    _, topology, sqs = shop
    dead = sqs.receive_message(QueueUrl=topology.dead_letter_queues["billing"], MaxNumberOfMessages=10)
    for group in ("kill", "slow", "retry", "good"):
        assert [name for name in bills if name.startswith(group)] == [f"{group}{number}" for number in (1, 2, 3)]
    assert [name for name in bills if name.startswith("bad")] == ["bad2", "bad3"]
    assert ["bad1" in message["Body"] for message in dead["Messages"]] == [True]
    assert judged_function.wrong_answers(answers_folder) == []


@pytest.mark.slow  # every example of the page on a simulator
def test_the_example_handles_each_effect_once_with_a_function_beside_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands are those of docs/guides/examples.md; the last of them compares the services with the orders."""
    monkeypatch.setenv("SLUICE_DECLARATION", "examples/functions/environments.py")
    monkeypatch.setenv("SLUICE_DSN", f"sqlite:///{tmp_path}/functions.db")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    command = ["sluice", "simulator", "run", "--", "sh", "examples/functions/run.sh"]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=170, check=False)

    assert ended.returncode == 0, ended.stderr[-3_000:]
    assert ended.stdout.splitlines()[-1] == "each effect was once, in order, and none is missing"
    assert '"failed": 0' in ended.stderr
