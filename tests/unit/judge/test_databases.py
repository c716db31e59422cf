"""The judge of a chaos run finds each violation, and nothing in a correct run."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sluice.judge.checker.verdict import PropertyStatus
from sluice.judge.databases import (
    AppliedEffect,
    CommittedEvent,
    DatabaseAnomaly,
    DatabaseEvidence,
    InboxNumbers,
    Judgement,
    OutboxMessage,
    judge,
)

_IDS = ("a1", "a2", "a3", "b1")


def _evidence() -> DatabaseEvidence:
    """Return the rows of a correct run: commits 1 to 3 of group a, those of group b, and two consumers."""
    return DatabaseEvidence(
        acknowledged=("a1", "a2", "a3"),  # the answer to b1 was lost
        rolled_back=("r1",),
        committed=tuple(
            CommittedEvent(event_id=id_, group=id_[0], payload=f"of {id_}", committed_at_us=at_us, position=0)
            for at_us, id_ in enumerate(_IDS, start=1)
        ),
        published=tuple(OutboxMessage(event_id=id_, group=id_[0], seq=int(id_[1])) for id_ in _IDS),
        done=tuple(_effect(consumer, id_) for consumer in ("audit", "ledger") for id_ in _IDS),
    )


def _effect(consumer: str, id_: str, *, at_us: int | None = None, **more: object) -> AppliedEffect:
    number = 10 * ("audit", "ledger").index(consumer) + _IDS.index(id_) if id_ in _IDS else 99
    done = AppliedEffect(
        consumer=consumer,
        event_id=id_,
        group=id_[0],
        epoch=1,
        seq=int(id_[1]),
        payload=f"of {id_}",
        is_doomed=False,
        committed_at_us=100 + number if at_us is None else at_us,
        id=number,
    )
    return replace(done, **more)  # type: ignore[arg-type]


def _judge(evidence: DatabaseEvidence) -> Judgement:
    return judge(evidence, {"audit": False, "ledger": True})


def _found_anomalies(evidence: DatabaseEvidence) -> set[tuple[DatabaseAnomaly, str | None, str]]:
    return {(violation.anomaly, violation.consumer, violation.event_id) for violation in _judge(evidence).violations}


def _without(evidence: DatabaseEvidence, consumer: str, id_: str) -> DatabaseEvidence:
    return replace(evidence, done=[done for done in evidence.done if (done.consumer, done.event_id) != (consumer, id_)])


def _with(evidence: DatabaseEvidence, *more: AppliedEffect) -> DatabaseEvidence:
    return replace(evidence, done=[*evidence.done, *more])


def _swap(evidence: DatabaseEvidence, consumer: str) -> DatabaseEvidence:
    """Let a consumer handle a2 after a3."""
    return _with(_without(evidence, consumer, "a2"), _effect(consumer, "a2", at_us=1_000))


def test_a_run_in_which_everything_is_right_is_valid() -> None:
    """Every event has one effect for each consumer, in order."""
    judgement = _judge(_evidence())

    assert judgement == Judgement(violations=(), unfinished=(), late_counts={"audit": 0, "ledger": 0})
    assert judgement.status is PropertyStatus.VALID


@pytest.mark.parametrize(
    ("falsify", "expected"),
    [
        pytest.param(
            lambda right: _without(right, "audit", "a2"), (DatabaseAnomaly.LOST, "audit", "a2"), id="an effect is lost"
        ),
        pytest.param(
            lambda right: _with(right, _effect("audit", "a3", id=50, at_us=999)),
            (DatabaseAnomaly.DOUBLE, "audit", "a3"),
            id="an effect is double",
        ),
        pytest.param(
            lambda right: _swap(right, "ledger"),
            (DatabaseAnomaly.REORDERED, "ledger", "a2"),
            id="order with PARK and HALT",
        ),
        pytest.param(
            lambda right: _swap(right, "audit"), (DatabaseAnomaly.REORDERED, "audit", "a2"), id="order with SKIP"
        ),
        pytest.param(
            lambda right: _with(right, _effect("audit", "x1")),
            (DatabaseAnomaly.INVENTED, "audit", "x1"),
            id="an effect of nothing",
        ),
        pytest.param(
            lambda right: _with(right, _effect("ledger", "r1")),
            (DatabaseAnomaly.ROLLED_BACK, "ledger", "r1"),
            id="an effect of what was rolled back",
        ),
        pytest.param(
            lambda right: replace(right, published=[*right.published, OutboxMessage(event_id="r1", group="b", seq=2)]),
            (DatabaseAnomaly.ROLLED_BACK, None, "r1"),
            id="what was rolled back is published",
        ),
        pytest.param(
            lambda right: replace(right, rolled_back=("a1",)),
            (DatabaseAnomaly.ROLLED_BACK, None, "a1"),
            id="what was rolled back is there",
        ),
        pytest.param(
            lambda right: replace(right, acknowledged=("gone",)),
            (DatabaseAnomaly.COMMIT_LOST, None, "gone"),
            id="what was acknowledged is not there",
        ),
        pytest.param(
            lambda right: replace(right, published=right.published[:-1]),
            (DatabaseAnomaly.UNPUBLISHED, None, "b1"),
            id="no message of a commit",
        ),
        pytest.param(
            lambda right: replace(
                right,
                published=[replace(publish, seq={1: 2, 2: 1}.get(publish.seq, 3)) for publish in right.published[:3]]
                + [right.published[3]],
            ),
            (DatabaseAnomaly.MISNUMBERED, None, "a2"),
            id="numbers against the order of commits",
        ),
        pytest.param(
            lambda right: replace(
                right,
                published=[
                    replace(publish, seq=publish.seq + 1) if publish.group == "b" else publish
                    for publish in right.published
                ],
            ),
            (DatabaseAnomaly.MISNUMBERED, None, "b1"),
            id="numbers with a hole",
        ),
        pytest.param(
            lambda right: _with(_without(right, "audit", "a1"), _effect("audit", "a1", is_doomed=True)),
            (DatabaseAnomaly.DOOMED, "audit", "a1"),
            id="an attempt that failed was committed",
        ),
        pytest.param(
            lambda right: _with(_without(right, "audit", "a1"), _effect("audit", "a1", payload="of a2")),
            (DatabaseAnomaly.CHANGED, "audit", "a1"),
            id="another payload",
        ),
    ],
)
def test_each_single_violation_is_found_and_nothing_else(
    falsify: Callable[[DatabaseEvidence], DatabaseEvidence], expected: tuple[DatabaseAnomaly, str | None, str]
) -> None:
    """Each case makes one thing wrong in the evidence of a right run; expected is (anomaly, consumer, event id)."""
    judgement = _judge(falsify(_evidence()))

    assert [(violation.anomaly, violation.consumer, violation.event_id) for violation in judgement.violations] == [
        expected
    ]
    assert judgement.status is PropertyStatus.INVALID


@pytest.mark.parametrize("state", ["filled", "redriven"])
def test_only_policies_that_hand_over_late_messages_excuse_disorder(state: str) -> None:
    """Only the late number itself is excused; another number of the group still has to be in order."""
    listed = [
        InboxNumbers(consumer=name, group="a", epoch=1, seq=2, through=2, state=state, reason=None)
        for name in ("audit", "ledger")
    ]

    late = replace(_swap(_evidence(), "audit"), listed=listed)
    assert _judge(late).violations == ()
    assert _judge(late).late_counts == {"audit": 1, "ledger": 0}
    assert _found_anomalies(replace(_swap(_evidence(), "ledger"), listed=listed)) == {
        (DatabaseAnomaly.REORDERED, "ledger", "a2")
    }
    others = [replace(item, seq=1, through=1) for item in listed]
    assert _found_anomalies(replace(_swap(_evidence(), "audit"), listed=others)) == {
        (DatabaseAnomaly.REORDERED, "audit", "a2")
    }


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({"dead": [("audit", "a2")]}, id="in the DLQ"),
        pytest.param({"parked": [("audit", "a2")]}, id="set aside"),
        pytest.param({"is_settled": False}, id="perhaps still in a queue"),
        pytest.param(
            {
                "listed": [
                    InboxNumbers(
                        consumer="audit", group="a", epoch=1, seq=2, through=2, state="skipped", reason="agreed"
                    )
                ]
            },
            id="given up by an operator",
        ),
    ],
)
def test_a_message_in_flight_makes_the_run_unknown(known: dict[str, object]) -> None:
    """It is neither a violation nor a proof that the run is correct."""
    judgement = _judge(replace(_without(_evidence(), "audit", "a2"), **known))  # type: ignore[arg-type]

    assert judgement.violations == ()
    assert judgement.unfinished == (("audit", "a2"),)
    assert judgement.status is PropertyStatus.UNKNOWN


@pytest.mark.parametrize("state", ["gap", "dead"])
def test_a_message_recorded_as_missing_or_dead_and_not_handled_is_lost(state: str) -> None:
    """When every queue and DLQ is empty, a row in the inbox does not bring the message back; it says why it died."""
    listed = [InboxNumbers(consumer="audit", group="a", epoch=1, seq=1, through=2, state=state, reason="no handler")]
    judgement = _judge(replace(_without(_evidence(), "audit", "a2"), listed=listed))

    (violation,) = judgement.violations
    assert violation.anomaly == DatabaseAnomaly.LOST
    assert violation.event_id == "a2"
    assert f"its inbox says {state} of number 2 (no handler)" in str(violation)


def test_events_of_one_transaction_are_in_the_order_they_were_added() -> None:
    """They have the same instant of commit."""
    right = _evidence()
    together = [replace(item, committed_at_us=1, position=place) for place, item in enumerate(right.committed)]

    assert _judge(replace(right, committed=together)).status is PropertyStatus.VALID
