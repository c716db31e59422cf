"""Reading a DLQ: what is held meanwhile, and where a look ends."""

from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_queue import Reading
from tests.support.dlq_harness import DEAD, DlqHarness


def test_a_look_ends_when_what_was_seen_is_there_again(harness: DlqHarness) -> None:
    """The hold was too short for the look: each message is shown once, and nobody looks for ever."""
    harness.record_dead(("a", 1), ("b", 1))
    looks = iter(range(20))

    with Reading(harness.dead_letters(hold_seconds=0), clock=harness.clock) as reading:
        seen = dead_letter_queue.peek(reading, 5, is_stopped=lambda: next(looks) >= 10)

    assert sorted(dead_letter.message_group_id for dead_letter in seen) == ["a", "b"]
    assert next(looks) < 5
    assert harness.counts(DEAD) == (2, 0)
