"""Automatic redrive decides about a message by the message's records; tested without a database."""

import pytest

from sluice.messaging.inbox.redrive_guard import Death, Past, RedriveVerdict, judge

HERE, BEFORE = "in the DLQ now", "in the DLQ before"
DEAD = Death(state="dead", is_final=False)
HANDLED = Death(state="redriven", is_final=True)
NOW_US = 1_000_000_000
JUST_NOW, LONG_AGO = NOW_US - 100_000_000, NOW_US - 300_000_000
NEVER, ONCE = Past(), Past(times=1, begun={BEFORE: JUST_NOW})
NOTED = Past(times=1, begun={BEFORE: JUST_NOW}, noted=frozenset({HERE}))
BEGUN, BEGUN_LONG_AGO = Past(times=1, begun={HERE: JUST_NOW}), Past(times=1, begun={HERE: LONG_AGO})


@pytest.mark.parametrize(
    ("death", "past", "verdict"),
    [
        (DEAD, NEVER, RedriveVerdict.BRING_BACK),
        (Death(state="dead", is_final=True), NEVER, RedriveVerdict.POISON),
        (None, NEVER, RedriveVerdict.POISON),
        *((Death(state=state, is_final=True), NEVER, RedriveVerdict.POISON) for state in ("gap", "filled", "skipped")),
        (HANDLED, NEVER, RedriveVerdict.POISON),
        (DEAD, ONCE, RedriveVerdict.FAILED_AGAIN),
        (Death(state="dead", is_final=True), ONCE, RedriveVerdict.FAILED_AGAIN),
        (None, ONCE, RedriveVerdict.FAILED_AGAIN),
        (DEAD, NOTED, RedriveVerdict.BRING_BACK),
        (Death(state="dead", is_final=True), NOTED, RedriveVerdict.POISON),
        (DEAD, BEGUN, RedriveVerdict.BRING_BACK),
        (Death(state="dead", is_final=True), BEGUN, RedriveVerdict.POISON),
        *((HANDLED, past, RedriveVerdict.BRING_BACK) for past in (BEGUN, BEGUN_LONG_AGO, ONCE, NOTED)),
    ],
)
def test_only_messages_that_used_up_their_attempts_are_brought_back(
    death: Death | None, past: Past, verdict: RedriveVerdict
) -> None:
    """Each at most twice in this test. A return that a dead run began is finished, and not counted again."""
    assert judge(HERE, death, past, attempts_max=2, now_us=NOW_US) is verdict


def test_a_message_comes_back_no_more_often_than_is_declared() -> None:
    """Even after an operator has switched automatic redrive on again."""
    assert judge(HERE, DEAD, NOTED, attempts_max=1, now_us=NOW_US) is RedriveVerdict.USED_UP


@pytest.mark.parametrize(
    ("past", "attempts_max", "verdict"),
    [
        (BEGUN, 1, RedriveVerdict.BRING_BACK),
        (BEGUN_LONG_AGO, 1, RedriveVerdict.USED_UP),
        (BEGUN_LONG_AGO, 2, RedriveVerdict.BRING_BACK),
        (Past(times=2, begun={HERE: JUST_NOW}), 2, RedriveVerdict.BRING_BACK),
        (Past(times=2, begun={HERE: LONG_AGO}), 2, RedriveVerdict.USED_UP),
    ],
)
def test_another_copy_under_one_id_counts_after_the_deduplication_window(
    past: Past, attempts_max: int, verdict: RedriveVerdict
) -> None:
    """Within five minutes SQS drops the second copy as a repeat of the first."""
    assert judge(HERE, DEAD, past, attempts_max=attempts_max, now_us=NOW_US) is verdict
