"""A consumer's queue and DLQ on a simulator, faults between them and a tool, and broken tools.

The broken tools are kept because a check that never fails proves nothing: the check of its pitfall catches each.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, override

from botocore.awsrequest import AWSResponse

from sluice.declaration import naming
from sluice.messaging.envelope import Envelope, any_event
from sluice.messaging.errors import TransientError
from sluice.messaging.failpoints import Failpoint, do_nothing
from sluice.messaging.sqs.dead_letter_queue import DeadLetterQueue, Destination, Reading, StoredDeadLetter
from sluice.messaging.sqs.rate_limit import Pace
from sluice.messaging.sqs.redrive import Redrive
from sluice.saboteurs.base import Hook
from sluice.simulator.hook import Simulator
from tests.support.declaration import environment
from tests.support.messaging.faulty_calls import Fault, FaultyCalls, GroupPlace

LOCAL = environment("local")
BILLING = LOCAL.consumers[0]
QUEUE, DEAD = naming.queue_name(LOCAL, BILLING), naming.dead_letter_queue_name(LOCAL, BILLING)
UNDELIVERED = naming.undelivered_queue_name(LOCAL, BILLING)
ATTEMPTS = 2
_FIFO = {"FifoQueue": "true"}


def envelope(group: str, seq: int, **more: Any) -> Envelope:
    """Return an event with its number in its group, as a producer's outbox would send it."""
    event = any_event(**{"type": "order.placed", "group": group, "data": {"n": seq}, "id": f"{group}-{seq}", **more})
    return Envelope(event=event, seq=seq, epoch=1)


def make_queues(sqs: Any) -> None:
    """Create billing's queue, its DLQ behind it, and the DLQ of its subscription."""
    made = {name: sqs.create_queue(QueueName=name, Attributes=_FIFO)["QueueUrl"] for name in (DEAD, UNDELIVERED, QUEUE)}
    arn = sqs.get_queue_attributes(QueueUrl=made[DEAD], AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": ATTEMPTS})
    sqs.set_queue_attributes(QueueUrl=made[QUEUE], Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "30"})


class ToolCalls(FaultyCalls):
    """The calls of a tool to SQS: a log, and the faults of the next ones."""

    operations = ("sqs.SendMessage", "sqs.DeleteMessage", "sqs.ReceiveMessage")

    @property
    def send_calls(self) -> list[dict[str, Any]]:
        return self.of("SendMessage")

    def refuse(self, code: str, count: int = 1, *, operation: str = "SendMessage") -> None:
        """Let the next calls of this operation be refused with this error code."""
        self.faults += [Fault(operation=operation, refused=code)] * count


class Renaming(Hook):
    """Gives received messages other message ids, always the same for a message; other attributes stay."""

    operations = ("sqs.ReceiveMessage",)

    def __init__(self) -> None:
        super().__init__(1)

    @override
    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            message["MessageId"] = message["MessageId"][::-1]


class DlqHarness:
    """Billing's queues on a simulator. Calls of tools go through `sqs_calls`; calls of the test do not."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator, self.clock, self.sqs_calls = simulator, simulator.clock, ToolCalls()
        self._sqs, self.tools_sqs = simulator.client("sqs"), simulator.client("sqs")
        make_queues(self._sqs)
        self.sqs_calls.attach(self.tools_sqs)

    def url(self, name: str) -> str:
        return str(self._sqs.get_queue_url(QueueName=name)["QueueUrl"])

    def send(self, name: str, sent: Envelope, **more: Any) -> str:
        """Send a message to a queue, as the topic does, and return its SQS message id."""
        answer = self._sqs.send_message(
            **{
                "QueueUrl": self.url(name),
                "MessageBody": sent.body,
                "MessageGroupId": sent.event.group,
                "MessageDeduplicationId": sent.deduplication_id,
                **more,
            }
        )
        return str(answer["MessageId"])

    def record_dead(self, *places: GroupPlace) -> None:
        """Send a message for each place, and receive it until SQS moves it to the DLQ."""
        for group, seq in places:
            self.send(QUEUE, envelope(group, seq))
        self.kill()

    def kill(self) -> None:
        """Receive the messages of the queue until all have moved to the DLQ."""
        while received := self._receive(QUEUE, hidden_seconds=0):
            assert all(int(entry["Attributes"]["ApproximateReceiveCount"]) <= ATTEMPTS for entry in received)

    def counts(self, name: str) -> tuple[int, int]:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._sqs.get_queue_attributes(QueueUrl=self.url(name), AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def drain(self, name: str) -> list[dict[str, Any]]:
        found = []
        while received := self._receive(name, hidden_seconds=30):
            for message in received:
                self._sqs.delete_message(QueueUrl=self.url(name), ReceiptHandle=message["ReceiptHandle"])
            found += received
        return found

    def places(self, name: str) -> list[GroupPlace]:
        """Receive and delete all messages; return their places, group by group, each in the order received."""
        found = [json.loads(message["Body"]) for message in self.drain(name)]
        return sorted(((fields["group"], fields["seq"]) for fields in found), key=lambda place: place[0])

    def dead_letters(self, **more: Any) -> DeadLetterQueue:
        return DeadLetterQueue(self.tools_sqs, DEAD, **more)

    def redrive(self, **more: Any) -> Redrive:
        given = {"run": "r1", "pace": Pace(None, clock=self.clock), "clock": self.clock, **more}
        source = given.pop("source", None) or self.dead_letters()
        return Redrive(source, Destination(self.tools_sqs, QUEUE), **given)

    def _receive(self, name: str, *, hidden_seconds: int) -> list[dict[str, Any]]:
        answer = self._sqs.receive_message(
            QueueUrl=self.url(name),
            MaxNumberOfMessages=10,
            VisibilityTimeout=hidden_seconds,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return list(answer.get("Messages", []))


def move_deleting_first(
    reading: Reading,
    dead_letter: StoredDeadLetter,
    send: Callable[[StoredDeadLetter], object],
    *,
    failpoint: Failpoint = do_nothing,
) -> None:
    """Be broken: delete before the send (D3)."""
    failpoint("before_delete")
    reading.delete(dead_letter)
    failpoint("after_delete")
    failpoint("before_send")
    send(dead_letter)
    failpoint("after_send")


def move_ignoring_failures(
    reading: Reading,
    dead_letter: StoredDeadLetter,
    send: Callable[[StoredDeadLetter], object],
    *,
    failpoint: Failpoint = do_nothing,
) -> None:
    """Broken: delete the original even if the send failed (D3, D16)."""
    failpoint("before_send")
    with suppress(TransientError):
        send(dead_letter)
    failpoint("after_send")
    reading.delete(dead_letter)


class Forgetful(set[str]):
    """Broken: forget the ids of the run's own copies (D8)."""

    def add(self, _: str, /) -> None:
        """Do nothing."""


def in_groups(places: list[GroupPlace]) -> Iterator[tuple[str, list[int]]]:
    """Yield each group with its numbers, in order."""
    found: dict[str, list[int]] = {}
    for group, seq in places:
        found.setdefault(group, []).append(seq)
    yield from sorted(found.items())
