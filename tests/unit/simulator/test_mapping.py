"""The model of Lambda's event source mapping: which messages it deletes, and which come again, and when."""

from typing import Any

import pytest

from sluice.simulator.model import Account
from sluice.simulator.model.mapping import EventSourceMapping, Invocation, NoAnswer, failed_message_ids

_VISIBILITY_SECONDS = 30


class PolledQueue:
    """A FIFO queue of the simulator with a mapping, on a clock that a test sets."""

    def __init__(self, *, batch_size: int = 10, concurrency_max: int = 1) -> None:
        self.now, self._account = 0.0, Account()
        attributes = {"FifoQueue": "true", "VisibilityTimeout": str(_VISIBILITY_SECONDS)}
        created = self._call("CreateQueue", {"QueueName": "q.fifo", "Attributes": attributes})
        self.url = str(created["QueueUrl"])
        self.mapping = EventSourceMapping(
            call=self._call,
            queue_url=self.url,
            queue_arn="arn:aws:sqs:us-east-1:000000000000:q.fifo",
            batch_size=batch_size,
            visibility_seconds=_VISIBILITY_SECONDS,
            concurrency_max=concurrency_max,
        )

    def _call(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = self._account.call("sqs", operation, params, self.now)
        assert isinstance(answer, dict), f"{operation} was refused: {answer}"
        return answer

    def send(self, *names: str) -> None:
        """Send messages with these bodies; the first letter of a body is its group."""
        for name in names:
            ids = {"MessageGroupId": name[0], "MessageDeduplicationId": name}
            self._call("SendMessage", {"QueueUrl": self.url, "MessageBody": name, **ids})

    def poll(self) -> Invocation | None:
        return self.mapping.poll(self.now)

    def invoke(self) -> Invocation:
        """Return the next invocation; fail if there is none."""
        invocation = self.poll()
        assert invocation is not None, "nothing was received"
        return invocation

    def finish(self, invocation: Invocation, answer: object) -> None:
        self.mapping.finish(invocation, answer, self.now)


def bodies(invocation: Invocation | None) -> list[str]:
    """Return the bodies of the messages in an invocation's event."""
    return [] if invocation is None else [record["body"] for record in invocation.event["Records"]]


def reporting(invocation: Invocation, *names: str) -> dict[str, Any]:
    """Return the function's answer that reports the messages with these bodies as failed."""
    ids = [record["messageId"] for record in invocation.event["Records"] if record["body"] in names]
    return {"batchItemFailures": [{"itemIdentifier": id_} for id_ in ids]}


def test_a_batch_mixes_groups_and_keeps_each_in_order() -> None:
    queue = PolledQueue()
    queue.send("a1", "b1", "a2", "b2")

    assert bodies(queue.invoke()) == ["a1", "a2", "b1", "b2"]


def test_a_group_in_flight_is_in_no_other_invocation() -> None:
    queue = PolledQueue(batch_size=1, concurrency_max=3)
    queue.send("a1", "a2", "b1")

    first, second, third = queue.invoke(), queue.invoke(), queue.poll()
    queue.finish(first, None)

    assert bodies(first) == ["a1"]
    assert bodies(second) == ["b1"]
    assert third is None
    assert bodies(queue.poll()) == ["a2"]


def test_a_message_that_an_answer_does_not_report_is_deleted() -> None:
    queue = PolledQueue()
    queue.send("a1", "b1", "b2")
    first = queue.invoke()
    queue.finish(first, reporting(first, "b1", "b2"))

    assert queue.poll() is None
    queue.now += _VISIBILITY_SECONDS
    again = queue.invoke()

    assert bodies(again) == ["b1", "b2"]
    assert [record["attributes"]["ApproximateReceiveCount"] for record in again.event["Records"]] == ["2", "2"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(NoAnswer.ERROR, id="error"),
        pytest.param("ok", id="text"),
        pytest.param([], id="list"),
        pytest.param({"batchItemFailures": "m1"}, id="no-list"),
        pytest.param({"batchItemFailures": [{"itemIdentifier": ""}]}, id="empty-id"),
        pytest.param({"batchItemFailures": [{"itemIdentifier": None}]}, id="null-id"),
        pytest.param({"batchItemFailures": [{"ItemIdentifier": "m1"}]}, id="wrong-key"),
        pytest.param({"batchItemFailures": [{"itemIdentifier": "unknown"}]}, id="unknown-id"),
    ],
)
def test_the_whole_batch_comes_again_after_an_error_or_wrong_answer(answer: object) -> None:
    queue = PolledQueue()
    queue.send("a1", "b1")
    queue.finish(queue.invoke(), answer)

    assert queue.poll() is None
    queue.now += _VISIBILITY_SECONDS
    assert bodies(queue.poll()) == ["a1", "b1"]


@pytest.mark.parametrize("answer", [None, "", {}, {"batchItemFailures": None}, {"batchItemFailures": []}])
def test_an_answer_without_failures_is_a_success(answer: object) -> None:
    queue = PolledQueue()
    queue.send("a1")
    queue.finish(queue.invoke(), answer)

    queue.now += _VISIBILITY_SECONDS
    assert queue.poll() is None


def test_a_throttled_batch_is_tried_again_until_its_visibility_ends() -> None:
    """The mapping tries the batch again each second until the visibility timeout ends; then SQS delivers it again."""
    queue = PolledQueue()
    queue.send("a1", "a2")
    invocation = queue.invoke()
    queue.finish(invocation, NoAnswer.THROTTLED)

    assert queue.poll() is None
    assert queue.mapping.next_change_at() == 1
    queue.now = 1
    assert queue.poll() is invocation
    queue.finish(invocation, NoAnswer.THROTTLED)
    queue.now = _VISIBILITY_SECONDS
    again = queue.invoke()

    assert again is not invocation
    assert [record["attributes"]["ApproximateReceiveCount"] for record in again.event["Records"]] == ["2", "2"]


def test_the_ids_of_failed_messages_are_read_from_an_answer() -> None:
    assert failed_message_ids({"batchItemFailures": [{"itemIdentifier": "m1"}]}) == frozenset({"m1"})
