"""The rules of a message group hold for each message, whatever way it came into the queue.

`_exercise_both_messages` does everything with two messages that a consumer can do, and returns what it received;
`_EXPECTED_RECEIVES` is what it has to return. Messages come by a batch, by a topic, by the DLQ of another queue, or by
a move task, into queues with unusual attributes.
"""

import contextlib
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contract_tests.resources import (
    Message,
    QueueUnderTest,
    Resources,
    TopicUnderTest,
    arranging,
    bodies,
    entry,
    require_accepted,
)
from contract_tests.targets.binding import Target
from sluice.clock import eventually

_ATTRIBUTES: dict[str, Any] = {"kind": {"DataType": "String", "StringValue": "order"}}
_STEPS = ("at first", "after a release", "after a shortened timeout", "after a timeout", "after a delete")
_EXPECTED_RECEIVES = [f"{body} {step}" for body, step in zip(["m1"] * 4 + ["m2"], _STEPS, strict=True)]
_UNUSUAL_ATTRIBUTES: dict[str, Any] = {
    "DelaySeconds": "1",
    "DeduplicationScope": "messageGroup",
    "ContentBasedDeduplication": "true",
}
_COUNTERS_SETTLE_SECONDS = 120  # how far the approximate counts of AWS may lag behind
_EMPTY_COUNTS = {f"ApproximateNumberOfMessages{name}": "0" for name in ("", "NotVisible", "Delayed")}


def _after_purge_and_change(queue: QueueUnderTest) -> QueueUnderTest:
    """Return the queue after a send, a purge and a change of its attributes."""
    queue.send("before", id="before")
    queue.purge()
    queue.set_attributes(VisibilityTimeout="31")
    return queue


def _send_in_a_batch(queue: QueueUnderTest, body: str) -> str:
    """Send a message in a batch, with attributes and without a deduplication id; return its message id."""
    sent = queue.send_batch(entry(body, MessageDeduplicationId=None, MessageAttributes=_ATTRIBUTES))
    (answered,) = sent["Successful"]
    return str(answered["MessageId"])


def _publish(topic: TopicUnderTest, body: str) -> None:
    """Publish a message in a batch, with attributes and without a deduplication id."""
    topic.publish_batch({"Message": body, "MessageDeduplicationId": None, "MessageAttributes": _ATTRIBUTES})


def _exercise_both_messages(queue: QueueUnderTest, *, settling_seconds: float = 0) -> list[str]:
    """Receive, release, extend, let expire and delete m1, then receive and delete m2 of the same group.

    The queue has no other messages. Counts and attributes are checked on the way.

    Returns:
        Each receive as `BODY STEP`; see `_EXPECTED_RECEIVES`.
    """
    seen: list[Message] = []

    def receive(visibility: int = 600) -> Message:
        seen.append(queue.await_message(visibility=visibility))
        assert queue.receive(most=10) == [], "a message in flight does not block its group"
        return seen[-1]

    def count(*, visible: int, in_flight: int) -> None:
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        counted = dict(zip(names, (str(visible), str(in_flight)), strict=True))
        queue.await_attributes(counted, settling_seconds=settling_seconds)

    first = receive()
    count(visible=1, in_flight=1)
    queue.change_visibility(first, 0)
    count(visible=2, in_flight=0)
    released = receive()
    queue.change_visibility(released, 300)
    count(visible=1, in_flight=1)
    queue.change_visibility(released, 2)
    assert queue.receive(most=10) == [], "a shortened timeout ended at once"
    shortened = receive(visibility=2)
    count(visible=2, in_flight=0)
    with contextlib.suppress(ClientError):
        queue.delete(shortened)  # after the timeout: VIS-01 and VIS-33 say whether this is refused; it deletes nothing
    expired = receive()
    require_accepted(queue.delete, expired)
    second = receive()
    require_accepted(queue.delete, second)
    assert queue.receive(most=10, wait=1) == [], "a delete left something"

    base = int(first["Attributes"]["ApproximateReceiveCount"])
    counts = [int(message["Attributes"]["ApproximateReceiveCount"]) for message in seen]
    assert counts == [base, base + 1, base + 2, base + 3, 1]
    assert len({message["Attributes"]["ApproximateFirstReceiveTimestamp"] for message in seen[:4]}) == 1
    assert {message["Attributes"]["MessageGroupId"] for message in seen} == {"g1"}
    return [f"{message['Body']} {step}" for message, step in zip(seen, _STEPS, strict=True)]


def _settling_seconds(target: Target) -> float:
    """Return how long the target's message counts may lag."""
    return _COUNTERS_SETTLE_SECONDS if target.name == "aws" else 0


@pytest.mark.promise("SLU-59")
def test_a_message_sent_with_every_option_follows_its_groups_rules(resources: Resources, target: Target) -> None:
    queue = _after_purge_and_change(resources.fifo_queue(**_UNUSUAL_ATTRIBUTES))
    first = _send_in_a_batch(queue, "m1")
    queue.send("m2", id="m2")

    received = _exercise_both_messages(queue, settling_seconds=_settling_seconds(target))
    again = _send_in_a_batch(queue, "m1")

    assert received == _EXPECTED_RECEIVES
    assert again == first
    assert queue.receive(most=10, wait=2) == []


@pytest.mark.promise("SLU-60")
def test_a_message_of_a_topic_follows_its_groups_rules(resources: Resources, target: Target) -> None:
    queue = _after_purge_and_change(resources.fifo_queue(**_UNUSUAL_ATTRIBUTES))
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")
    _publish(topic, "m1")
    queue.await_attributes({"ApproximateNumberOfMessages": "1"}, settling_seconds=_settling_seconds(target))
    queue.send("m2", id="m2")

    received = _exercise_both_messages(queue, settling_seconds=_settling_seconds(target))
    _publish(topic, "m1")

    assert received == _EXPECTED_RECEIVES
    assert queue.receive(most=10, wait=2) == []


@pytest.mark.promise("SLU-61")
def test_a_dead_letter_follows_its_groups_rules(resources: Resources, target: Target) -> None:
    dead_letters = _after_purge_and_change(resources.fifo_queue(hint="dlq", DeduplicationScope="messageGroup"))
    queue = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1, ContentBasedDeduplication="true")
    _send_in_a_batch(queue, "m1")
    queue.await_message(visibility=0)
    assert queue.receive(wait=1) == []
    dead_letters.send("m2", id="m2")

    assert _exercise_both_messages(dead_letters, settling_seconds=_settling_seconds(target)) == _EXPECTED_RECEIVES


@pytest.mark.promise("SLU-62")
def test_a_redriven_message_follows_its_groups_rules(resources: Resources, target: Target) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    other = _after_purge_and_change(resources.fifo_queue(**_UNUSUAL_ATTRIBUTES))
    queue.dead_letter("m1")
    dead_letters.redrive(DestinationArn=other.arn)
    other.send("m2", id="m2")

    assert _exercise_both_messages(other, settling_seconds=_settling_seconds(target)) == _EXPECTED_RECEIVES


def _let_both_die(queue: QueueUnderTest, dead_letters: QueueUnderTest) -> list[tuple[str, str, str]]:
    """Receive m1 and m2 twice each, which is all that their queue allows, so that they go to the DLQ.

    Returns:
        Body, group and message id of each dead letter, in the order of the DLQ.
    """
    received = []
    for _ in range(4):
        message = queue.await_message(visibility=60)
        received.append(message["Body"])
        queue.change_visibility(message, 0)
    assert received == ["m1", "m1", "m2", "m2"]
    assert queue.receive(most=10, wait=1) == []
    dead = dead_letters.drain(2)
    numbers = [int(message["Attributes"]["SequenceNumber"]) for message in dead]
    assert numbers == sorted(numbers), "sequence numbers of dead letters fall"
    assert [message["Attributes"]["ApproximateReceiveCount"] for message in dead] == ["3", "3"]
    return [(message["Body"], message["Attributes"]["MessageGroupId"], message["MessageId"]) for message in dead]


def _two_receive_queue_and_dlq(resources: Resources) -> tuple[QueueUnderTest, QueueUnderTest]:
    """Return a queue with unusual attributes that allows two receives, and its DLQ."""
    dead_letters = _after_purge_and_change(
        resources.fifo_queue(hint="dlq", DelaySeconds="1", DeduplicationScope="messageGroup")
    )
    queue = _after_purge_and_change(
        resources.fifo_queue(dead_letters=dead_letters, max_receive_count=2, **_UNUSUAL_ATTRIBUTES)
    )
    return queue, dead_letters


@pytest.mark.promise("SLU-63")
def test_a_message_sent_with_every_option_is_dead_lettered_in_order(resources: Resources) -> None:
    queue, dead_letters = _two_receive_queue_and_dlq(resources)
    sent = [_send_in_a_batch(queue, "m1"), _send_in_a_batch(queue, "m2")]

    dead = _let_both_die(queue, dead_letters)

    assert dead == [("m1", "g1", sent[0]), ("m2", "g1", sent[1])]


@pytest.mark.promise("SLU-64")
def test_a_message_of_a_topic_is_dead_lettered_in_order(resources: Resources) -> None:
    queue, dead_letters = _two_receive_queue_and_dlq(resources)
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")
    _publish(topic, "m1")
    _publish(topic, "m2")

    dead = _let_both_die(queue, dead_letters)

    assert [(body, group) for body, group, _ in dead] == [("m1", "g1"), ("m2", "g1")]


@pytest.mark.promise("SLU-65")
def test_a_redriven_message_is_dead_lettered_again(resources: Resources) -> None:
    first_dlq = resources.fifo_queue(hint="dlq")
    source = resources.fifo_queue(dead_letters=first_dlq, max_receive_count=1)
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=2)
    source.dead_letter("m1", "m2")
    first_dlq.redrive(DestinationArn=queue.arn)

    received = [queue.await_message(visibility=0)["Body"] for _ in range(4)]
    assert queue.receive(most=10, wait=1) == []

    assert received == ["m1", "m1", "m2", "m2"]
    assert bodies(dead_letters.drain(2)) == ["m1", "m2"]


@pytest.mark.promise("SLU-66")
def test_a_purge_removes_every_message_however_it_came_and_is_held(resources: Resources, target: Target) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    source = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    queue = resources.fifo_queue(DeduplicationScope="messageGroup", ContentBasedDeduplication="true")
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")
    source.dead_letter("redriven", group="redriven")
    dead_letters.redrive(DestinationArn=queue.arn)
    _publish(topic, "published")
    _hold_message_of(queue, "g1", 0)  # it has arrived
    _send_in_a_batch(queue, "sent")
    for group, seconds in (("extended", 300), ("released", 0)):
        queue.send(group, group=group)
        _hold_message_of(queue, group, seconds)
    changed = resources.fifo_queue()
    changed.send_each("m1")
    changed.set_attributes(VisibilityTimeout="31")
    source.dead_letter("dead", group="dead")
    dead_letters.await_message(visibility=1)
    target.await_age(2, since=target.clock.monotonic())

    for purged in (queue, changed, dead_letters):
        purged.purge()

    for purged in (queue, changed, dead_letters):
        assert purged.receive(most=10, wait=1) == []
        purged.await_attributes(_EMPTY_COUNTS, settling_seconds=_settling_seconds(target))


def _hold_message_of(queue: QueueUnderTest, group: str, seconds: int) -> None:
    """Receive until a message of the group comes; give it this visibility timeout, and release the others."""

    def take() -> bool:
        groups = set()
        for message in queue.await_batch(most=10, visibility=60):
            message_group = message["Attributes"]["MessageGroupId"]
            groups.add(message_group)
            queue.change_visibility(message, seconds if message_group == group else 0)
        return group in groups

    with arranging():
        eventually(take, timeout_seconds=queue.patience_seconds, describe=f"the message of {group}")


@pytest.mark.promise("DED-18")
def test_a_repeat_is_dropped_whatever_became_of_the_first(resources: Resources) -> None:
    queue = resources.fifo_queue()
    first = [queue.send(body, group="g1", id=body)["MessageId"] for body in ("m1", "m2")]

    def repeat() -> list[str]:
        return [queue.send("again", group="g1", id=body)["MessageId"] for body in ("m1", "m2")]

    waiting = repeat()
    held = queue.await_message(visibility=600)
    in_flight = repeat()
    queue.change_visibility(held, 300)
    extended = repeat()
    queue.change_visibility(held, 0)
    released = repeat()
    expired_soon = queue.await_message(visibility=1)
    queue.await_message(visibility=0)  # delivered again, so the timeout has ended
    expired = repeat()

    assert expired_soon["Body"] == "m1"
    assert [waiting, in_flight, extended, released, expired] == [first] * 5
    assert bodies(queue.drain(2)) == ["m1", "m2"]


@pytest.mark.timeout(900)  # where the window is 300 s
@pytest.mark.promise("DED-19")
def test_the_window_ends_whatever_became_of_the_first(resources: Resources, target: Target) -> None:
    window_seconds = 3 if target.has_short_window else 300
    queue = _after_purge_and_change(resources.fifo_queue(hint="window3", **_UNUSUAL_ATTRIBUTES))
    changed = resources.fifo_queue(hint="window3")
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")
    states = ("released", "expired", "extended")
    changed.send_each("m1")
    changed.set_attributes(VisibilityTimeout="31")
    first = {name: queue.send(name, group=name)["MessageId"] for name in states[:2]}
    held = queue.hold(*states[:2], visibility=5)
    # The message that stays in flight is received last: that it does not delay later ones is another promise (GRP-13).
    first["extended"] = queue.send("extended", group="extended")["MessageId"]
    for message in held + queue.hold("extended", visibility=5):
        if message["Body"] != "expired":
            queue.change_visibility(message, 600 if message["Body"] == "extended" else 0)
    _publish(topic, "m1")
    first["m2"] = _send_in_a_batch(queue, "m2")
    target.await_age(window_seconds + 3, since=target.clock.monotonic())

    again = {name: queue.send(name, group=name)["MessageId"] for name in states}
    changed.send("m1 again", id="m1")
    queue.send("m1")  # not by the topic, because the topic's own window is not shortened
    again["m2"] = _send_in_a_batch(queue, "m2")

    assert {name for name in first if first[name] == again[name]} == set()
    visible = ["expired", "expired", "m1", "m1", "m2", "m2", "released", "released"]
    assert sorted(bodies(queue.drain(8))) == visible  # the second "extended" waits behind the first, in flight
    assert bodies(changed.drain(2)) == ["m1", "m1 again"]


@pytest.mark.promise("RCV-37")
def test_an_attempt_can_be_repeated_however_its_messages_came(resources: Resources) -> None:
    queue = _after_purge_and_change(resources.fifo_queue(**_UNUSUAL_ATTRIBUTES))
    _send_in_a_batch(queue, "m1")
    queue.await_message(visibility=0)
    attempt: dict[str, Any] = {"QueueUrl": queue.url, "ReceiveRequestAttemptId": "attempt-1", "WaitTimeSeconds": 1}

    first = queue.sqs.receive_message(**attempt).get("Messages", [])
    again = queue.sqs.receive_message(**attempt).get("Messages", [])

    assert bodies(first) == ["m1"]
    assert [message["ReceiptHandle"] for message in again] == [message["ReceiptHandle"] for message in first]


@pytest.mark.promise("RCV-38")
def test_an_attempt_can_be_repeated_in_a_dlq_and_after_a_move(resources: Resources) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    source = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    moved, delivered = resources.fifo_queue(), resources.fifo_queue()
    source.dead_letter("redriven")
    dead_letters.redrive(DestinationArn=moved.arn)
    source.dead_letter("dead")
    _publish(resources.fifo_topic(delivered, ContentBasedDeduplication="true"), "published")
    attempt: dict[str, Any] = {"ReceiveRequestAttemptId": "attempt-1", "WaitTimeSeconds": 5}

    for queue in (moved, dead_letters, delivered):
        first = queue.sqs.receive_message(QueueUrl=queue.url, **attempt).get("Messages", [])
        again = queue.sqs.receive_message(QueueUrl=queue.url, **attempt).get("Messages", [])
        assert len(first) == 1
        assert [message["ReceiptHandle"] for message in again] == [message["ReceiptHandle"] for message in first]


@pytest.mark.promise("SLU-67")
def test_an_older_handle_deletes_nothing_that_is_held_however_it_came(resources: Resources) -> None:
    dead_letters = _after_purge_and_change(resources.fifo_queue(hint="dlq", DeduplicationScope="messageGroup"))
    source = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    sent, published = (_after_purge_and_change(resources.fifo_queue(**_UNUSUAL_ATTRIBUTES)) for _ in range(2))
    moved = resources.fifo_queue()
    source.dead_letter("redriven")
    dead_letters.redrive(DestinationArn=moved.arn)
    source.dead_letter("dead")
    _send_in_a_batch(sent, "sent")
    _publish(resources.fifo_topic(published, ContentBasedDeduplication="true"), "published")

    left = []
    for queue in (sent, published, moved, dead_letters):
        older = queue.await_message(visibility=0)
        held = queue.await_message(visibility=60)
        queue.change_visibility(held, 120)
        with contextlib.suppress(ClientError):
            queue.delete(older)
        require_accepted(queue.change_visibility, held, 0)
        left += bodies(queue.receive(wait=2))

    assert left == ["sent", "published", "redriven", "dead"]


@pytest.mark.promise("SLU-68")
def test_a_later_message_of_a_receive_is_held_as_the_first_is(resources: Resources, target: Target) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2")
    first = queue.hold("m1", "m2", visibility=600)
    for message in reversed(first):
        queue.change_visibility(message, 0)
    with contextlib.suppress(ClientError):
        queue.delete(first[1])  # too late
    queue.await_attributes({"ApproximateNumberOfMessages": "2"}, settling_seconds=_settling_seconds(target))
    second = queue.hold("m1", "m2", visibility=0)
    older = queue.hold("m1", "m2", visibility=600)[1]
    with contextlib.suppress(ClientError):
        queue.delete(second[1])  # of an earlier receive

    require_accepted(queue.change_visibility, older, 0)
    seen = [messages[1]["Attributes"] for messages in (first, second)]
    assert [attributes["ApproximateReceiveCount"] for attributes in seen] == ["1", "2"]
    assert len({attributes["ApproximateFirstReceiveTimestamp"] for attributes in seen}) == 1


@pytest.mark.promise("SLU-69")
def test_a_dead_letter_is_dead_lettered_again(resources: Resources) -> None:
    last = resources.fifo_queue(hint="dlq")
    middle = resources.fifo_queue(hint="dlq", dead_letters=last, max_receive_count=2)
    queue = resources.fifo_queue(dead_letters=middle, max_receive_count=1)
    queue.dead_letter("m1")

    received = [middle.await_message(visibility=0)["Body"] for _ in range(2)]
    assert middle.receive(most=10, wait=1) == []
    (dead,) = last.drain(1)

    assert received == ["m1", "m1"]
    assert dead["Body"] == "m1"
    assert dead["Attributes"]["MessageGroupId"] == "g1"


@pytest.mark.promise("SND-40")
def test_sequence_numbers_rise_however_the_messages_come(resources: Resources) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    source = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    queue = resources.fifo_queue(ContentBasedDeduplication="true")
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")
    source.dead_letter("m4", "m5")
    queue.send("m1")
    _send_in_a_batch(queue, "m2")
    _publish(topic, "m3")
    queue.hold("m1", "m2", "m3", visibility=0)
    dead_letters.redrive(DestinationArn=queue.arn)
    queue.send("m6", id="m6")

    drained = queue.drain(6)

    numbers = [int(message["Attributes"]["SequenceNumber"]) for message in drained]
    assert bodies(drained) == ["m1", "m2", "m3", "m4", "m5", "m6"]
    assert numbers == sorted(set(numbers))


@pytest.mark.promise("MOV-52")
def test_a_move_task_takes_every_message_however_it_came(resources: Resources) -> None:
    """One message died, one was published, one was sent in a batch; all were received and released before the move.

    The second move task takes them from a DLQ into which the first has moved them.
    """
    middle, last = resources.fifo_queue(hint="dlq"), resources.fifo_queue()
    resources.fifo_queue(dead_letters=middle)
    dead_letters = _after_purge_and_change(resources.fifo_queue(hint="dlq", **_UNUSUAL_ATTRIBUTES))
    source = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    source.dead_letter("dead", group="dead")
    _publish(resources.fifo_topic(dead_letters, ContentBasedDeduplication="true"), "published")
    _send_in_a_batch(dead_letters, "sent")
    for message in reversed(dead_letters.hold("dead", "published", "sent", visibility=60)):
        dead_letters.change_visibility(message, 0)

    dead_letters.redrive(DestinationArn=middle.arn)
    middle.redrive(DestinationArn=last.arn)

    assert sorted(bodies(last.drain(3))) == ["dead", "published", "sent"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.promise("CRE-50")
def test_retention_ends_for_every_message_however_it_came_and_is_held(resources: Resources, target: Target) -> None:
    dead_letters = resources.fifo_queue(hint="dlq", MessageRetentionPeriod="60")
    source = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    queue = _after_purge_and_change(resources.fifo_queue(MessageRetentionPeriod="60", **_UNUSUAL_ATTRIBUTES))
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")
    source.dead_letter("redriven", group="redriven")
    dead_letters.redrive(DestinationArn=queue.arn)
    source.dead_letter("dead", group="dead")
    dead_letters.await_message(visibility=1)
    _publish(topic, "published")
    _hold_message_of(queue, "g1", 0)  # it has arrived
    _send_in_a_batch(queue, "sent")
    for group, seconds in (("extended", 300), ("released", 0)):
        queue.send(group, group=group)
        _hold_message_of(queue, group, seconds)

    target.await_age(70, since=target.clock.monotonic())

    for each in (queue, dead_letters):
        each.await_attributes(_EMPTY_COUNTS, settling_seconds=_settling_seconds(target))
        assert each.receive(most=10, wait=2) == []
