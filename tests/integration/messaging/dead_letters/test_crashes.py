"""Real processes that bring dead letters back die at each step: nothing is in neither queue, and a rerun finishes.

On LocalStack, whose FIFO queues deduplicate for five minutes as AWS's do, but per queue (GAP-06). What its DLQs do
otherwise than AWS's (GAP-02, GAP-46) plays no part: the messages here are sent to the DLQ.
"""

import json
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner
from sqlalchemy import Engine

from emulator import localstack
from sluice.cli.main import cli
from sluice.clock import eventually
from sluice.declaration import Consumer, Environment, Removal, naming, task_settings
from sluice.messaging import failpoints
from sluice.messaging.database.audit import acts
from sluice.messaging.inbox.tables import audit
from tests.support.messaging.dlq_harness import envelope
from tests.support.messaging.worker_harness import Place
from tests.support.processes.messaging_process import PATIENCE_SECONDS, MessagingProcess

DATABASES = [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
_HOLD_SECONDS = 3  # short: what a dead process held is there again after it


class DeadLetterProject:
    """Billing's queue and its DLQ on a LocalStack, in an environment of their own, with an inbox's database."""

    def __init__(self, emulated: localstack.Running, engine: Engine, folder: Path) -> None:
        self._emulated, self._engine, self._folder = emulated, engine, folder
        consumer = Consumer(name="billing")
        self.environment = Environment(
            name=f"d{uuid.uuid4().hex[:8]}", account="000000000000", removal=Removal.DESTROY, consumers=(consumer,)
        )
        self._sqs = boto3.client("sqs", endpoint_url=emulated.endpoint_url, region_name="us-east-1")
        self.queue, self.dead = (
            self._sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
            for name in (
                naming.queue_name(self.environment, consumer),
                naming.dead_letter_queue_name(self.environment, consumer),
            )
        )

    def close(self) -> None:
        for url in (self.queue, self.dead):
            self._sqs.delete_queue(QueueUrl=url)

    def set_policy(self) -> None:
        """Put the DLQ behind the queue: only then a move task takes anything from it."""
        arn = self._sqs.get_queue_attributes(QueueUrl=self.dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 5})
        self._sqs.set_queue_attributes(QueueUrl=self.queue, Attributes={"RedrivePolicy": policy})

    def dead_letter(self, *places: Place) -> None:
        for group, seq in places:
            sent = envelope(group, seq)
            self._sqs.send_message(
                QueueUrl=self.dead,
                MessageBody=sent.body,
                MessageGroupId=group,
                MessageDeduplicationId=sent.deduplication_id,
            )

    def arguments(self, command: str, *given: str) -> list[str]:
        dsn = self._engine.url.render_as_string(hide_password=False)
        options = ("--env", self.environment.name, "--consumer", "billing", "--dsn", dsn)
        endpoint = ("--endpoint-url", self._emulated.endpoint_url)
        return ["dlq", command, *options, *endpoint, "--hold", str(_HOLD_SECONDS), *given]

    def process(self, *given: str, failpoint: str | None = None) -> MessagingProcess:
        armed = {} if failpoint is None else {failpoints.VARIABLE: failpoint}
        return MessagingProcess(
            self.arguments(*given),
            environment=localstack.with_endpoint(self._emulated) | armed,
            log=self._folder / "dlq.log",
            declared=self.environment,
        )

    def finish(self, *given: str) -> Any:
        """Run a dlq command in this process, once nobody holds anything any more."""
        self._await_free()
        return CliRunner().invoke(cli, self.arguments(*given), catch_exceptions=False)

    def _await_free(self) -> None:
        eventually(
            lambda: self.in_flight(self.dead) == 0, timeout_seconds=PATIENCE_SECONDS, describe="the hold to be over"
        )

    def in_flight(self, url: str) -> int:
        name = "ApproximateNumberOfMessagesNotVisible"
        return int(self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])

    def seen(self, url: str) -> list[Place]:
        """Return what a queue holds, each group in order, and leave it there: for queues of at most ten messages."""
        received = self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=30)
        messages = received.get("Messages", [])
        for message in messages:
            self._sqs.change_message_visibility(
                QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
        bodies = [json.loads(message["Body"]) for message in messages]
        return sorted(((entry["group"], entry["seq"]) for entry in bodies), key=lambda place: place[0])

    def survivors(self) -> list[Place]:
        """Return what is in one of the queues at least, once nothing is held any more."""
        self._await_free()
        return sorted(set(self.seen(self.queue)) | set(self.seen(self.dead)))


@pytest.fixture
def dead_letter_project(
    emulated: localstack.Running, database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeadLetterProject]:
    """Yield queues of this test's own, declared in this process too."""
    made = DeadLetterProject(emulated, database, tmp_path)
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(made.environment))
    yield made
    made.close()


def _deaths(*quick: str) -> list[Any]:
    """Return every failpoint; what the quick ones show the others show again, and the simulator's tests show all."""
    slow = pytest.mark.slow
    return [pytest.param(name, marks=() if name in quick else slow) for name in failpoints.DEAD_LETTERS]


@pytest.mark.parametrize("failpoint", _deaths("after_send"))
def test_d3_a_redrive_killed_anywhere_is_finished_by_a_rerun(
    dead_letter_project: DeadLetterProject, failpoint: str
) -> None:
    """Killed at its second message: everything is somewhere; the same --run then makes one message of each (D4)."""
    dead_letter_project.dead_letter(*DATABASES)

    with dead_letter_project.process("redrive", "--run", "r1", "--yes", failpoint=f"{failpoint}:2") as killed:
        assert killed.ended() == -signal.SIGKILL
    assert dead_letter_project.survivors() == DATABASES
    ended = dead_letter_project.finish("redrive", "--run", "r1", "--yes")

    assert ended.exit_code == 0, ended.output
    assert dead_letter_project.seen(dead_letter_project.queue) == DATABASES
    assert dead_letter_project.seen(dead_letter_project.dead) == []


@pytest.mark.parametrize("failpoint", _deaths("after_send"))
def test_d3_a_replace_killed_anywhere_is_finished_by_a_rerun(
    dead_letter_project: DeadLetterProject, database: Engine, tmp_path: Path, failpoint: str
) -> None:
    """What it replaces is there or replaced, or both; again with the same data makes one message of it (D4)."""
    dead_letter_project.dead_letter(*DATABASES)
    data = tmp_path / "right.json"
    data.write_text('{"n": "right"}', encoding="utf-8")
    act = ("replace", "a", "1", "--data", str(data), "--reason", "it was wrong", "--yes")

    with dead_letter_project.process(*act, failpoint=failpoint) as killed:
        assert killed.ended() == -signal.SIGKILL
    assert dead_letter_project.survivors() == DATABASES
    if failpoint != "after_delete":
        assert dead_letter_project.finish(*act).exit_code == 0

    assert dead_letter_project.seen(dead_letter_project.queue) == [("a", 1)]
    assert dead_letter_project.seen(dead_letter_project.dead) == DATABASES[1:]
    with database.connect() as connection:
        rows = acts(connection, audit.c.consumer, "billing", most=10)
    assert {json.loads(row["detail"])["body"] for row in rows} == {envelope("a", 1).body}


def test_d10_a_terminated_redrive_gives_back_what_it_holds(dead_letter_project: DeadLetterProject) -> None:
    """SIGTERM between two messages of a slow run: exit code 1, nothing in flight though its hold is not over."""
    dead_letter_project.dead_letter(*DATABASES)

    with dead_letter_project.process("redrive", "--rate", "0.5", "--yes", "--hold", "600") as slow:
        eventually(
            lambda: dead_letter_project.seen(dead_letter_project.queue),
            timeout_seconds=PATIENCE_SECONDS,
            describe="the first message",
        )
        slow.send(signal.SIGTERM)
        assert slow.ended() == 1

    assert dead_letter_project.in_flight(dead_letter_project.dead) == 0
    assert (
        sorted(dead_letter_project.seen(dead_letter_project.queue) + dead_letter_project.seen(dead_letter_project.dead))
        == DATABASES
    )


def test_a_native_redrive_on_localstack(dead_letter_project: DeadLetterProject) -> None:
    """Of messages the queue never saw: inside five minutes of their first send it would lose them (GAP-01, MOV-17)."""
    dead_letter_project.dead_letter(*DATABASES)
    dead_letter_project.set_policy()

    ended = dead_letter_project.finish("redrive", "--engine", "native", "--yes")

    assert (ended.exit_code, ended.stdout) == (0, "completed, about 4 moved\n")
    assert dead_letter_project.seen(dead_letter_project.queue) == DATABASES
    assert dead_letter_project.seen(dead_letter_project.dead) == []
