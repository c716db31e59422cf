"""Billing's queue and its DLQ on a LocalStack, in an environment of their own, and `sluice dlq` as processes there."""

import json
import uuid
from pathlib import Path
from typing import Any

import boto3
from click.testing import CliRunner
from sqlalchemy import Engine

from emulator import localstack
from sluice.cli.main import cli
from sluice.clock import eventually
from sluice.declaration import AutomaticRedrive, Consumer, Environment, Removal, naming
from sluice.messaging import failpoints
from tests.support.messaging.dlq_harness import envelope
from tests.support.messaging.faulty_calls import GroupPlace
from tests.support.processes.messaging_process import PATIENCE_SECONDS, MessagingProcess

_HOLD_SECONDS = 3  # short: the messages of a dead process are visible again after it


class DeadLetterProject:
    """Billing's queue and its DLQ on a LocalStack, in an environment of their own, with an inbox's database."""

    def __init__(self, emulated: localstack.Emulator, engine: Engine, folder: Path) -> None:
        self._emulated, self._engine, self._folder = emulated, engine, folder
        consumer = Consumer(name="billing", handlers="examples.services.billing", automatic_redrive=AutomaticRedrive())
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

    def dead_letter(self, *places: GroupPlace) -> dict[GroupPlace, str]:
        """Put messages into the DLQ, and return their SQS message ids."""
        return {
            (group, seq): self._sqs.send_message(
                QueueUrl=self.dead,
                MessageBody=envelope(group, seq).body,
                MessageGroupId=group,
                MessageDeduplicationId=envelope(group, seq).deduplication_id,
            )["MessageId"]
            for group, seq in places
        }

    def die(self) -> dict[GroupPlace, str]:
        """Receive the messages of the queue until they have moved to the DLQ.

        Return their SQS message ids in the queue.
        """
        ids: dict[GroupPlace, str] = {}
        while received := self._sqs.receive_message(QueueUrl=self.queue, VisibilityTimeout=0).get("Messages", []):
            bodies = [json.loads(message["Body"]) for message in received]
            ids |= {(body["group"], body["seq"]): it["MessageId"] for body, it in zip(bodies, received, strict=True)}
        return ids

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
        """Run a dlq command in this process, after all holds have ended."""
        self._await_free()
        return CliRunner().invoke(cli, self.arguments(*given), catch_exceptions=False)

    def _await_free(self) -> None:
        eventually(
            lambda: self.in_flight(self.dead) == 0, timeout_seconds=PATIENCE_SECONDS, describe="the hold to be over"
        )

    def in_flight(self, url: str) -> int:
        name = "ApproximateNumberOfMessagesNotVisible"
        return int(self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])

    def peek(self, url: str) -> list[GroupPlace]:
        """Return the messages of a queue, each group in order, and leave them: for queues of at most ten messages."""
        received = self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=30)
        messages = received.get("Messages", [])
        for message in messages:
            self._sqs.change_message_visibility(
                QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
        bodies = [json.loads(message["Body"]) for message in messages]
        return sorted(((entry["group"], entry["seq"]) for entry in bodies), key=lambda place: place[0])

    def survivors(self) -> list[GroupPlace]:
        """Return the messages that are in at least one of the queues, after all holds have ended."""
        self._await_free()
        return sorted(set(self.peek(self.queue)) | set(self.peek(self.dead)))
