"""The messages that a relay puts into one PublishBatch call."""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.messaging.outbox.store import Head
from sluice.messaging.relay.publisher import batches
from tests.support.messaging.outbox.simulated_relays import head

LIMIT = 262_144
ATTRIBUTE_BYTES = len("type" + "String" + "t")


def head_of_size(number: int, size_bytes: int) -> Head:
    """Return a message of this size, with its attribute."""
    return head(number, body="x" * (size_bytes - ATTRIBUTE_BYTES), attributes={"type": "t"})


def test_without_messages_there_is_no_batch() -> None:
    """SNS refuses an empty batch."""
    assert batches([], LIMIT) == []


def test_a_batch_has_ten_entries_at_most() -> None:
    """SNS refuses more."""
    heads = [head_of_size(number, 100) for number in range(21)]

    assert batches(heads, LIMIT) == [heads[:10], heads[10:20], heads[20:]]


def test_the_entries_of_a_batch_together_obey_the_size_limit() -> None:
    """256 KiB together fit; one byte more makes two batches."""
    fitting = [head_of_size(1, LIMIT - 100), head_of_size(2, 100)]
    too_large = [head_of_size(1, LIMIT - 100), head_of_size(2, 101)]

    assert batches(fitting, LIMIT) == [fitting]
    assert batches(too_large, LIMIT) == [too_large[:1], too_large[1:]]


def test_bytes_are_counted_and_not_characters() -> None:
    """70,000 times `ä` are 140,000 bytes, so two of these messages do not fit."""
    wide = [replace(head_of_size(number, 100), body="ä" * 70_000) for number in range(2)]

    assert [len(batch) for batch in batches(wide, LIMIT)] == [1, 1]


@settings(max_examples=40, deadline=None, database=None, print_blob=True)
@given(sizes=st.lists(st.integers(ATTRIBUTE_BYTES + 1, LIMIT) | st.integers(ATTRIBUTE_BYTES + 1, 30_000), max_size=40))
def test_each_message_is_in_one_batch_and_their_order_stays(sizes: list[int]) -> None:
    """And no batch is closed while its next message would have fitted."""
    heads = [head_of_size(number, size) for number, size in enumerate(sizes)]

    made = batches(heads, LIMIT)

    assert [head for batch in made for head in batch] == heads
    assert all(len(batch) <= 10 for batch in made)
    counted = [[len(head.body) + ATTRIBUTE_BYTES for head in batch] for batch in made]
    assert all(sum(batch) <= LIMIT for batch in counted)
    for batch, following in itertools.pairwise(counted):
        assert len(batch) == 10 or sum(batch) + following[0] > LIMIT, "closed though the next would have fitted"
