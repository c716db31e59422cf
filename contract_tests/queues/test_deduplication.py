"""One deduplication id inside the window is one message, by id or by content, in the queue's declared scope."""

import hashlib

import pytest

from contract_tests.resources import QueueUnderTest, Resources, bodies
from contract_tests.targets.binding import Target
from sluice.clock import eventually


@pytest.mark.promise("DED-01")
def test_a_repeat_inside_the_window_is_not_delivered_even_after_a_delete(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send("first", id="same")
    first = queue.drain(1)

    repeated = queue.send("again", id="same")

    assert bodies(first) == ["first"]
    assert repeated["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert queue.receive(most=10, wait=2) == []


@pytest.mark.timeout(900)  # where the window is 300 s
@pytest.mark.promise("DED-08")
def test_the_window_ends_a_fixed_time_after_the_first_send(resources: Resources, target: Target) -> None:
    """The window is 300 s, and 3 s on a target where it was shortened (reported as modified)."""
    window_seconds = 3 if target.has_short_window else 300
    queue = resources.fifo_queue(hint="window3")
    started = target.clock.monotonic()
    first = queue.send("first", id="same")
    repeats = 0

    def send_again() -> str:
        nonlocal repeats
        repeats += 1
        return str(queue.send("again", id="same")["MessageId"])

    eventually(
        send_again,
        until=lambda id_: id_ != str(first["MessageId"]),
        timeout_seconds=window_seconds * 2,
        describe="the id to be a new message",
        interval_seconds=window_seconds / 30,
    )
    elapsed = target.clock.monotonic() - started

    assert repeats >= 5, "repeats inside the window were not seen to be dropped"
    assert window_seconds * 0.9 <= elapsed <= window_seconds * 1.6
    assert bodies(queue.drain(2)) == ["first", "again"]


@pytest.mark.promise("RCV-05")
def test_content_based_deduplication_uses_the_sha256_of_the_body(resources: Resources) -> None:
    queue = resources.fifo_queue(ContentBasedDeduplication="true")
    queue.send("same body")
    queue.send("same body")

    drained = queue.drain(1)

    ids = [(message["Body"], message["Attributes"]["MessageDeduplicationId"]) for message in drained]
    assert ids == [("same body", hashlib.sha256(b"same body").hexdigest())]


@pytest.mark.promise("DED-10")
def test_content_based_deduplication_ignores_attributes(resources: Resources) -> None:
    queue = resources.fifo_queue(ContentBasedDeduplication="true")
    queue.send("same body", MessageAttributes={"try": {"DataType": "String", "StringValue": "1"}})
    queue.send("same body", MessageAttributes={"try": {"DataType": "String", "StringValue": "2"}})

    drained = queue.drain(1)

    assert [message["MessageAttributes"]["try"]["StringValue"] for message in drained] == ["1"]


@pytest.mark.promise("DED-11")
def test_an_explicit_id_overrides_the_content(resources: Resources) -> None:
    queue = resources.fifo_queue(ContentBasedDeduplication="true")
    queue.send("same body", id="one")
    queue.send("same body", id="two")

    drained = queue.drain(2)

    ids = [message["Attributes"]["MessageDeduplicationId"] for message in drained]
    assert ids == ["one", "two"]


def _send_same_id(queue: QueueUnderTest, *groups: str) -> None:
    """Send a message to each of the groups, all with one deduplication id."""
    for number, group in enumerate(groups, 1):
        queue.send(f"m{number} in {group}", group=group, id="same")


@pytest.mark.promise("SLU-02")
def test_queue_scope_makes_one_message_of_one_id_in_two_groups(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="queue")
    _send_same_id(queue, "g1", "g2")

    assert bodies(queue.drain(1)) == ["m1 in g1"]


@pytest.mark.promise("DED-04")
def test_group_scope_makes_two_messages_of_one_id_in_two_groups(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="messageGroup")
    _send_same_id(queue, "g1", "g2", "g2")

    assert sorted(bodies(queue.drain(2))) == ["m1 in g1", "m2 in g2"]


@pytest.mark.promise("SLU-03")
def test_group_scope_remembers_the_first_group_after_the_second(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="messageGroup")
    _send_same_id(queue, "g1", "g2", "g1")

    assert sorted(bodies(queue.drain(2))) == ["m1 in g1", "m2 in g2"]


@pytest.mark.promise("DED-09")
def test_a_repeat_returns_the_first_message_id_and_delivers_the_first_body(resources: Resources) -> None:
    queue = resources.fifo_queue()
    first = queue.send("first", id="same")

    repeated = queue.send("again", id="same")

    assert repeated["MessageId"] == first["MessageId"]
    assert bodies(queue.drain(1)) == ["first"]


@pytest.mark.promise("DED-14")
def test_a_purge_forgets_deduplication_ids(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send("before", id="same")
    queue.purge()

    queue.send("after", id="same")

    assert bodies(queue.drain(1)) == ["after"]


@pytest.mark.promise("DED-05")
def test_group_scope_does_not_need_throughput_per_group(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="messageGroup", FifoThroughputLimit="perQueue")
    _send_same_id(queue, "g1", "g2")

    assert sorted(bodies(queue.drain(2))) == ["m1 in g1", "m2 in g2"]


@pytest.mark.promise("DED-06")
def test_a_scope_changed_to_group_after_creation_is_shown_but_not_applied(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="queue")
    changed = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}

    queue.set_attributes(**changed)
    _send_same_id(queue, "g1", "g2")

    assert queue.attributes(*changed) == changed
    assert bodies(queue.drain(1)) == ["m1 in g1"]


@pytest.mark.promise("DED-07")
def test_a_scope_changed_to_queue_after_creation_is_shown_but_not_applied(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    changed = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}

    queue.set_attributes(**changed)
    _send_same_id(queue, "g1", "g2", "g2")

    assert queue.attributes(*changed) == changed
    assert sorted(bodies(queue.drain(2))) == ["m1 in g1", "m2 in g2"]


@pytest.mark.promise("DED-12")
def test_an_explicit_id_equal_to_a_sent_bodys_sha256_is_a_repeat(resources: Resources) -> None:
    queue = resources.fifo_queue(ContentBasedDeduplication="true")
    queue.send("first")

    queue.send("second", id=hashlib.sha256(b"first").hexdigest())

    assert bodies(queue.drain(1)) == ["first"]


@pytest.mark.promise("DED-13")
def test_the_window_outlasts_the_move_to_the_dlq(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    first = queue.send("first", id="same")
    queue.await_message(visibility=0)
    assert queue.receive(wait=1) == []
    assert dead_letters.await_message()["MessageId"] == first["MessageId"]

    queue.send("again", id="same")
    queue.send("other", id="other")

    assert bodies(queue.drain(1)) == ["other"]


@pytest.mark.promise("DED-15")
def test_a_deleted_message_still_answers_for_its_id(resources: Resources) -> None:
    queue = resources.fifo_queue()
    first = queue.send("first", id="same")
    queue.drain(1)

    repeated = queue.send("again", id="same")
    other = queue.send("other", id="other")

    assert repeated["MessageId"] == first["MessageId"]
    assert other["MessageId"] != first["MessageId"]
    assert bodies(queue.drain(1)) == ["other"]


@pytest.mark.promise("DED-16")
def test_a_dead_letter_sent_again_by_hand_needs_a_fresh_id(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    queue.send("poison", id="original")
    queue.await_message(visibility=0)
    assert queue.receive(wait=1) == []
    dead = dead_letters.await_message()

    queue.send("with the old id", id="original")
    queue.send(dead["Body"], id="fresh")

    assert bodies(queue.drain(1)) == ["poison"]


@pytest.mark.promise("SLU-45")
def test_a_repeat_returns_the_first_sequence_number(resources: Resources) -> None:
    queue = resources.fifo_queue()
    first = queue.send("first", id="same")

    repeated = queue.send("again", id="same")
    others = [queue.send(f"other {message}", id=f"other-{message}") for message in range(7)]

    assert repeated["SequenceNumber"] == first["SequenceNumber"]
    numbers = [int(sent["SequenceNumber"]) for sent in (first, *others)]
    assert numbers == sorted(set(numbers))


@pytest.mark.promise("DED-17")
def test_group_scope_makes_two_messages_of_one_body_in_two_groups(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="messageGroup", ContentBasedDeduplication="true")
    queue.send("same body", group="g1")
    queue.send("same body", group="g2")
    queue.send("same body", group="g2")

    drained = queue.drain(2)

    assert sorted(message["Attributes"]["MessageGroupId"] for message in drained) == ["g1", "g2"]
