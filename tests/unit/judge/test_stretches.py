"""The checker finds the same in the needed events of a suspect group as in all events of the group."""

import os
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sluice.history.events import HistoryEvent, Kind, answer_detail, pad_sequence_number, settle
from sluice.judge.checker import Activity, Expectation, Finding, Loss, Move, QueueContext, check_group
from sluice.judge.groups import finding_in
from sluice.judge.screening import stretches as under_test
from sluice.recorder.journal import events_of
from tests.support.anomalies import CASES
from tests.support.histories.builders import (
    END,
    EXPECTATION,
    QUEUES,
    delete_event,
    effect_event,
    publish_event,
    receive_event,
)
from tests.support.histories.mutations import mutate
from tests.support.histories.recordings import table_of
from tests.support.oracle.tiny_histories import make_lawful_history
from tests.support.oracle.tiny_histories import mutate_history as mutated_tiny


def sane_group(rng: random.Random, message_count: int) -> list[HistoryEvent]:
    """Return a lawful group of messages and an end marker, published one after the other and handled in order."""
    at_ms, events = 0, list[HistoryEvent]()
    idxs = [*range(message_count), END]
    for idx in idxs:
        took_ms = rng.randint(1, 8)
        events.append(
            publish_event(idx, at_ms, took_ms=took_ms, attributes_hash="attributes", sns_message_id=f"sns {idx}")
        )
        at_ms += took_ms + rng.choice([1, 5, 20, 400])
    sent_us = {event.idx or 0: event.invoked_at_us or 0 for event in events}
    answered_max, overlapping = rng.choice([1, 1, 2, 4]), rng.choice([0, 0.1, 0.5])
    for queue in QUEUES:
        events += _work_until_idle(rng, queue, sent_us, answered_max, overlapping)
    return events


def _work_until_idle(
    rng: random.Random, queue: str, sent_us: dict[int, int], answered_max: int, overlapping: float
) -> Iterator[HistoryEvent]:
    """Yield the events with which a queue's messages are handled, in answers of up to `answered_max` messages.

    A share `overlapping` of the receives is requested before the last delete.
    """
    has_numbers, idxs = rng.random() < 0.7, [*sent_us]
    free_ms = rng.choice([0, 0, 4_000])
    while idxs:
        answer, idxs = idxs[: (count := rng.randint(1, answered_max))], idxs[count:]
        answered_ms = max(free_ms, max(sent_us[idx] for idx in answer) // 1_000 + 10) + rng.choice([1, 2, 30])
        invoked_ms = (
            max(0, free_ms - 5) if rng.random() < overlapping else max(free_ms, answered_ms - rng.choice([1, 40]))
        )
        worker = f"consume-{queue}-{rng.randrange(3)}"
        begin_ms = answered_ms
        for position, idx in enumerate(answer):
            receive = replace(
                receive_event(queue, idx, invoked_ms, took_ms=answered_ms - invoked_ms),
                worker=worker,
                call_id=f"receive/{queue}/{answered_ms}",
                batch_position=position,
                receipt_handle_hash=f"{queue} {idx} {answered_ms}",
                attributes_hash="attributes",
                md5_ok=True,
                sqs_sequence_number=pad_sequence_number(str(answered_ms * 10 + position)) if has_numbers else None,
                sent_at_us=sent_us[idx] + 2_000,
                max_number_of_messages=10,
                detail=answer_detail(len(answer)),
            )
            yield receive
            if queue == QUEUES[0] and idx != END:
                effect_us = (begin_ms + 1) * 1_000
                yield replace(effect_event(receive), invoked_at_us=effect_us, responded_at_us=effect_us + 500)
            begin_ms += 2
        for position, idx in enumerate(answer):
            receive = replace(
                receive_event(queue, idx, answered_ms),
                receipt_handle_hash=f"{queue} {idx} {answered_ms}",
                worker=worker,
            )
            yield delete_event(receive, begin_ms, took_ms=rng.choice([1, 6]), batch_position=position)
        free_ms = begin_ms + rng.choice([1, 7])


_STRICT = replace(
    EXPECTATION,
    effects_recorded=("billing",),
    max_receive_count={"billing": 3},
    fan_out_skew_seconds_max=5,
    passed_over_seconds_max=10,
    stuck_seconds_max=20,
)
_BUSY = QueueContext(
    activity={
        "billing": [
            Activity(second=second, served_count=4, empty_count=second % 7, answered_by_us=second * 1_000_000 + 900_000)
            for second in range(50)
        ]
    }
)
_KINDS_OF_ANOMALIES_MIN = 12
"""In what is cut, of thousands of groups. Of 60 there were 4 kinds or more, 8 or more cut, in 20,000 draws."""
_ONE_AT_A_TIME_SHARE = 0.7  # of groups: where answers have room for more, D5 mostly keeps the group whole


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "WHOLE_MAX", 0)


def _in_both(
    events: Sequence[HistoryEvent], expectation: Expectation = _STRICT, around: QueueContext = _BUSY
) -> tuple[Finding, Finding, float]:
    """Return the checker's finding in the whole group, that in the needed events, and the share of these events."""
    table = table_of(list(events))
    part = under_test.needed_events(table, expectation, around)
    whole = check_group(events_of(table), expectation, around)
    some = finding_in(events_of(part.events), expectation, around, part.idxs)
    return whole, some, len(part.events) / max(1, len(table))


@pytest.mark.parametrize("group_count", [30, pytest.param(3_000, marks=pytest.mark.deep)])
def test_the_checker_finds_the_same_in_the_needed_events_of_a_group(group_count: int) -> None:
    seed = int(os.environ.get("SLUICE_SEED", secrets.randbits(32)))
    anomalies, cut_count = Counter[str](), 0
    for number in range(group_count):
        rng = random.Random(seed + number)  # noqa: S311 (its seed is shown)
        events = mutate(settle(sane_group(rng, rng.choice([5, 40, 80]))), rng)
        if rng.random() < _ONE_AT_A_TIME_SHARE:
            events = [replace(event, max_number_of_messages=1) for event in events]
        whole, some, share = _in_both(events)
        assert some == whole, f"SLUICE_SEED={seed + number} shows it first"
        if share < 1:
            cut_count += 1
            anomalies.update({violation.anomaly for violation in (*whole.violations, *whole.seen)})
    assert cut_count > group_count / 10, f"SLUICE_SEED={seed} leaves out too little to prove anything: {cut_count}"
    assert len(anomalies) >= min(_KINDS_OF_ANOMALIES_MIN, group_count / 20), f"SLUICE_SEED={seed}: {anomalies}"


def test_the_checker_finds_the_same_in_stretches_of_hand_written_anomalies() -> None:
    for case in CASES.values():
        whole, some, _ = _in_both(case.events, case.expectation, case.around)
        assert some == whole, case.anomaly


@pytest.mark.parametrize("is_full", [False, True], ids=["plain", "full"])
def test_the_checker_finds_the_same_in_stretches_of_tiny_histories(*, is_full: bool) -> None:
    for seed in range(100):
        history = mutated_tiny(make_lawful_history(seed, is_full=is_full), seed, is_full=is_full)
        whole, some, _ = _in_both(history.events, history.expectation, history.around)
        assert some == whole, seed


def _long(message_count: int = 60) -> list[HistoryEvent]:
    """Return a lawful group: each message is published, received from billing and deleted before the next one."""
    events: list[HistoryEvent] = []
    for place, idx in enumerate([*range(message_count), END]):
        receive = receive_event("billing", idx, place * 100 + 20)
        events += [publish_event(idx, place * 100, queue="billing"), receive, delete_event(receive, place * 100 + 40)]
    return events


def _change_events(events: Sequence[HistoryEvent], kind: str, idx: int, **changes: Any) -> list[HistoryEvent]:
    return [replace(e, **changes) if (e.kind, e.idx) == (kind, idx) else e for e in events]


def test_a_long_group_with_one_lost_message_needs_few_events() -> None:
    lost = [e for e in _long() if e.idx != 30 or e.kind == Kind.PUBLISHED]

    whole, some, share = _in_both(lost, EXPECTATION, QueueContext())

    assert [violation.anomaly for violation in whole.violations] == ["A1"]
    assert some == whole
    assert share < 0.2


def test_a_group_with_an_acknowledgement_at_no_known_time_stays_whole() -> None:
    """Every later message may have been published before that acknowledgement (C7)."""
    untimed = _change_events(_long(), Kind.PUBLISHED, 10, responded_at_us=None)

    whole, some, share = _in_both(untimed, EXPECTATION, QueueContext())

    assert [violation.anomaly for violation in whole.violations] == ["C7"] * 50
    assert some == whole
    assert share == 1


@pytest.mark.parametrize(
    "around",
    [
        QueueContext(moves=(Move(source="billing-dlq", destination="billing", began_at_us=1, ended_at_us=2),)),
        QueueContext(purges=(Loss(queue="billing", began_at_us=1, ended_at_us=2),)),
        QueueContext(faults=(Loss(queue="billing", began_at_us=1, ended_at_us=2),)),
    ],
    ids=["moves", "purges", "faults"],
)
def test_a_group_needs_all_events_if_something_happened_to_its_queue(around: QueueContext) -> None:
    assert _in_both(_long(), EXPECTATION, around)[2] == 1
    assert _in_both(_long(), EXPECTATION, QueueContext())[2] < 1


def _backlog(**changes: Any) -> list[HistoryEvent]:
    """Return a lawful group whose messages are received three seconds after they were published."""
    events: list[HistoryEvent] = []
    for place, idx in enumerate([*range(60), END]):
        receive = receive_event("billing", idx, place * 100 + 3_000, sent_at_us=place * 100_000, **changes)
        events += [
            publish_event(idx, place * 100, queue="billing"),
            receive,
            delete_event(receive, place * 100 + 3_040),
        ]
    return events


def _late(events: Sequence[HistoryEvent], idx: int, by_us: int) -> list[HistoryEvent]:
    """Return a backlog in which billing receives nothing for some time before one message."""

    def shift(event: HistoryEvent) -> HistoryEvent:
        is_later = event.kind != Kind.PUBLISHED and not 0 <= (event.idx or 0) < idx
        times = {name: getattr(event, name) + by_us for name in ("invoked_at_us", "responded_at_us")}
        return replace(event, **times) if is_later else event

    return [shift(event) for event in events]


def _history_given_back_as_another() -> list[HistoryEvent]:
    """Return a group in which a message is released before its delete, by a call that names another idx."""
    (first,) = (e for e in _long() if (e.kind, e.idx) == (Kind.RECEIVED, 10))
    back = delete_event(first, 1_030, took_ms=1, visibility_timeout_seconds=0)
    return [*_long(), replace(back, kind=Kind.VISIBILITY_CHANGED.value, idx=50)]


def _of_two_clocks() -> list[HistoryEvent]:
    lost = [e for e in _long() if e.idx != 30 or e.kind == Kind.PUBLISHED]
    return [replace(e, clock_id="other") if e.idx == 5 and e.kind == Kind.RECEIVED else e for e in lost]


def _random(seed: int) -> list[HistoryEvent]:
    rng = random.Random(seed)  # noqa: S311 (chosen by hand)
    return mutate(settle(sane_group(rng, rng.choice([5, 40, 80]))), rng)


def _no_ends(stretch: np.ndarray, is_off: np.ndarray, *_: object) -> np.ndarray:
    return np.unique(stretch[is_off])


def _all_counts(*_: object, **__: object) -> None:
    return None


def _next_to_each_other(until: np.ndarray, since: np.ndarray) -> np.ndarray:
    return np.concatenate(([-(2**63)], until[:-1])) < since


def _odd_alone(found: Any, _: Expectation) -> tuple[np.ndarray, np.ndarray]:
    return found["is_odd"], np.zeros(len(found["is_odd"]), dtype=np.int64)


_ALONE = {"max_number_of_messages": 10, "detail": '{"received": 1}'}
_BLINDED: dict[str, tuple[str, Callable[..., object], list[HistoryEvent]]] = {
    "holds of unusual messages": ("_extend_by_holds", lambda *_: None, _random(94)),
    "all before a cut": ("_is_over", _next_to_each_other, _random(80)),
    "the ends of the group": (
        "_wanted_stretches",
        _no_ends,
        [e for e in _long() if e.idx != 30 or e.kind == Kind.PUBLISHED],
    ),
    "of which messages findings count": ("frozenset", _all_counts, _late(_backlog(), 30, 30_000_000)),
    "comparisons of neighbours": ("mark_suspects", _odd_alone, _random(69)),
    "what was published before a phantom": (
        "_last_published_before",
        lambda *_: np.array([], dtype=int),
        [e for e in _backlog() if (e.kind, e.idx) != (Kind.PUBLISHED, 20)],
    ),
    "shared ids": ("_has_shared_ids", lambda *_: False, _history_given_back_as_another()),
    "underfilled answers": (
        "_may_be_underfilled",
        lambda *_: False,
        _change_events(_backlog(**_ALONE), Kind.RECEIVED, 30, body_hash="other"),
    ),
    "clocks": ("_is_simple", lambda *_: True, _of_two_clocks()),
}


@pytest.mark.parametrize(("name", "blind", "events"), _BLINDED.values(), ids=_BLINDED)
def test_without_one_of_its_parts_the_finding_differs(
    monkeypatch: pytest.MonkeyPatch, name: str, blind: Callable[..., object], events: list[HistoryEvent]
) -> None:
    has_effects = any(event.kind == Kind.HANDLED for event in events)
    expectation = _STRICT if has_effects else replace(_STRICT, effects_recorded=(), clock_bound_us=200_000)
    whole, some, _ = _in_both(events, expectation)
    assert some == whole

    monkeypatch.setattr(under_test, name, blind, raising=name != "frozenset")

    whole, some, _ = _in_both(events, expectation)
    assert some != whole
