"""What automatic redrive does with a message, by what is recorded of it; without a database."""

import pytest

from sluice.messaging.inbox.redrive_guard import Death, Past, Verdict, judge

HERE, BEFORE = "in the DLQ now", "in the DLQ before"
DEAD = Death(state="dead", is_final=False)
NEVER, ONCE = Past(), Past(begun=frozenset({BEFORE}))
NOTED = Past(begun=frozenset({BEFORE}), noted=frozenset({HERE}))


@pytest.mark.parametrize(
    ("death", "past", "verdict"),
    [
        (DEAD, NEVER, Verdict.BRING_BACK),
        (Death(state="dead", is_final=True), NEVER, Verdict.POISON),
        (None, NEVER, Verdict.POISON),
        *((Death(state=state, is_final=True), NEVER, Verdict.POISON) for state in ("gap", "filled", "skipped")),
        (Death(state="redriven", is_final=True), NEVER, Verdict.POISON),
        (DEAD, ONCE, Verdict.FAILED_AGAIN),
        (Death(state="dead", is_final=True), ONCE, Verdict.FAILED_AGAIN),
        (None, ONCE, Verdict.FAILED_AGAIN),
        (DEAD, NOTED, Verdict.BRING_BACK),
        (Death(state="dead", is_final=True), NOTED, Verdict.POISON),
        (DEAD, Past(begun=frozenset({HERE})), Verdict.BRING_BACK),
        (Death(state="redriven", is_final=True), Past(begun=frozenset({HERE})), Verdict.BRING_BACK),
        (Death(state="dead", is_final=True), Past(begun=frozenset({HERE})), Verdict.POISON),
    ],
)
def test_only_what_used_up_its_attempts_comes_back(death: Death | None, past: Past, verdict: Verdict) -> None:
    """A message is brought back twice at most here. What a dead run began is finished, and is no further time."""
    assert judge(HERE, death, past, attempts_max=2) is verdict


def test_a_message_comes_back_no_more_often_than_is_declared() -> None:
    """Also where an operator has switched automatic redrive on again."""
    assert judge(HERE, DEAD, NOTED, attempts_max=1) is Verdict.USED_UP
