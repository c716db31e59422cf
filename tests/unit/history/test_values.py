"""The small values that other code consists of: clock, history, verdict, saboteurs by name."""

import time

import pytest

from sluice.clock import NotReachedError, SystemClock, VirtualClock, eventually, utc
from sluice.errors import ConfigError
from sluice.history.events import (
    HistoryEvent,
    Identity,
    detail_of,
    identity_of,
    is_end_marker,
    pad_sequence_number,
    settle,
)
from sluice.judge.checker import OF_THE_RUN, RULES
from sluice.judge.checker.anomalies import ANOMALIES, JUDGED
from sluice.judge.checker.verdict import Property, PropertyState, PropertyStatus, Verdict, compose
from sluice.saboteurs import sabotage

IDENTITY = Identity(run="r", message_group_id="g1", idx=7)


def test_eventually_returns_the_first_true_answer() -> None:
    answers = iter([0, "", "found"])

    assert eventually(lambda: next(answers), timeout_seconds=5, describe="an answer", clock=VirtualClock()) == "found"


def test_eventually_gives_up_at_its_bound_and_says_what_it_waited_for() -> None:
    clock = VirtualClock()

    with pytest.raises(NotReachedError, match=r"waited 2 s for a miracle; the last answer was None"):
        eventually(lambda: None, timeout_seconds=2, describe="a miracle", clock=clock)

    assert 2 <= clock.monotonic() < 2.2


def test_eventually_shows_the_last_answer_in_its_error() -> None:
    """An answer False is left out of the error, and a long one is cut."""
    clock, received = VirtualClock(), ["m1"]

    with pytest.raises(NotReachedError) as of_a_list:
        eventually(
            lambda: received, until=lambda seen: len(seen) == 2, timeout_seconds=2, describe="2 messages", clock=clock
        )
    with pytest.raises(NotReachedError) as of_false:
        eventually(lambda: False, timeout_seconds=2, describe="2 messages", clock=clock)
    with pytest.raises(NotReachedError) as of_long_text:
        eventually(lambda: "x" * 1_000_000, until=lambda _: False, timeout_seconds=2, describe="less", clock=clock)

    assert str(of_a_list.value) == "waited 2 s for 2 messages; the last answer was ['m1']"
    assert str(of_false.value) == "waited 2 s for 2 messages"
    assert len(str(of_long_text.value)) < 600


def test_eventually_returns_the_awaited_answer_even_if_it_is_empty() -> None:
    answers = iter([["m1"], []])

    assert eventually(lambda: next(answers), until=lambda left: not left, timeout_seconds=5, describe="nothing") == []


def test_eventually_tries_once_more_after_the_bound() -> None:
    """A try that takes longer than the bound is followed by another one."""
    clock = VirtualClock()

    def slow() -> bool:
        clock.sleep(3)
        return clock.monotonic() >= 6

    assert eventually(slow, timeout_seconds=2, describe="a slow condition", clock=clock)


def test_the_first_and_the_last_microsecond_become_dates() -> None:
    """Floats have 53 bits, and would round the last microsecond of the year 9999 up."""
    first, last = (utc(at_us).isoformat() for at_us in (-62_135_596_800_000_000, 253_402_300_799_999_999))

    assert first == "0001-01-01T00:00:00+00:00"
    assert last == "9999-12-31T23:59:59.999999+00:00"


def test_the_clock_counts_the_time_a_machine_was_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQS counts that time, too: after ten minutes of sleep a deduplication window has ended."""
    clock, read, boot_clock = (
        SystemClock(),
        time.clock_gettime_ns,
        getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC),
    )
    before_us = clock.now_us()

    monkeypatch.setattr("time.clock_gettime_ns", lambda which: read(which) + 600 * 10**9 * (which == boot_clock))

    assert 600 <= (clock.now_us() - before_us) / 1_000_000 < 610
    assert 600 <= (SystemClock(clock.offset_us).now_us() - before_us) / 1_000_000 < 610


def test_a_step_of_the_wall_clock_changes_no_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    offset_us = clock.offset_us
    instants = [clock.now_us()]
    for step_seconds in (-3_600, 86_400):
        stepped = time.time_ns() + step_seconds * 10**9
        monkeypatch.setattr("time.time_ns", lambda stepped=stepped: stepped)
        instants += [clock.now_us(), SystemClock(offset_us).now_us()]

    assert instants == sorted(instants)
    assert instants[-1] - instants[0] < 10_000_000


def test_the_identity_of_a_message_is_read_from_its_body() -> None:
    body = '{"run":"r","group":"g1","idx":7,"end":false,"payload":"x"}'

    assert identity_of(body=body, deduplication_id=None, message_group_id=None) == IDENTITY


@pytest.mark.parametrize("text", [None, "", "{", "[]", "7", '"x"', "[" * 100_000])
def test_a_detail_that_is_no_json_object_is_read_as_empty(text: str | None) -> None:
    assert detail_of(text) == {}
    assert detail_of('{"received": 3}') == {"received": 3}


def test_a_message_with_a_corrupted_body_is_identified_by_its_deduplication_id() -> None:
    identity = identity_of(body='{"run":"r","gr', deduplication_id="r.7", message_group_id="g1")

    assert identity == IDENTITY


@pytest.mark.parametrize(
    "body",
    [
        "",
        "7",
        "null",
        "[]",
        "{}",
        '{"run": "r", "group": "g", "idx": "x"}',
        "\x00",
        *(
            f'{{"sluice": 1, "epoch": 1, "group": "g", "type": "t", "seq": {seq}}}'
            for seq in (10**18, -(2**70), "1e999")
        ),
    ],
)
def test_a_body_of_somebody_else_has_no_identity(body: str) -> None:
    assert identity_of(body=body, deduplication_id="theirs", message_group_id="g1") is None


def test_sequence_numbers_sort_as_numbers() -> None:
    assert sorted(["10", "9"], key=lambda digits: pad_sequence_number(digits) or "") == ["9", "10"]


def test_end_markers_have_negative_numbers() -> None:
    assert [is_end_marker(idx) for idx in (-3, -1, 0, 5, None)] == [True, True, False, False, False]


def test_settling_keeps_the_answer_and_an_unanswered_intent() -> None:
    intent_a = HistoryEvent(kind="published", call_id="a", outcome="info", invoked_at_us=1)
    answer_a = HistoryEvent(kind="published", call_id="a", outcome="ok", invoked_at_us=1, responded_at_us=2)
    intent_b = HistoryEvent(kind="published", call_id="b", outcome="info", invoked_at_us=3)
    intent_c = HistoryEvent(kind="published", call_id="c", outcome="info", invoked_at_us=4)
    error_c = HistoryEvent(kind="published", call_id="c", outcome="info", invoked_at_us=4, error="ReadTimeoutError")
    opened = HistoryEvent(kind="opened")

    settled = settle([opened, intent_a, answer_a, intent_b, intent_c, error_c])

    assert settled == [opened, answer_a, intent_b, error_c]
    assert settle(settled) == settled


def test_entries_of_one_call_are_settled_separately() -> None:
    events = [
        HistoryEvent(kind="published", call_id="a", batch_position=0, responded_at_us=2),
        HistoryEvent(kind="published", call_id="a", batch_position=1, responded_at_us=2),
        HistoryEvent(kind="poll", call_id="b", responded_at_us=3),
        HistoryEvent(kind="received", call_id="b", batch_position=0, responded_at_us=3),
    ]

    assert settle(events) == events


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        ([], PropertyStatus.UNKNOWN),
        ([PropertyStatus.VALID], PropertyStatus.VALID),
        ([PropertyStatus.VALID, PropertyStatus.UNKNOWN], PropertyStatus.UNKNOWN),
        ([PropertyStatus.UNKNOWN, PropertyStatus.INVALID, PropertyStatus.VALID], PropertyStatus.INVALID),
    ],
)
def test_the_worst_of_several_statuses_wins(statuses: list[PropertyStatus], worst: PropertyStatus) -> None:
    assert compose(statuses) is worst


@pytest.mark.parametrize(
    ("given", "holding"),
    [
        (Property(anomaly="A1", opportunities=5), PropertyState.HOLDS),
        (Property(anomaly="A1", opportunities=0), PropertyState.NOT_EXERCISED),
        (Property(anomaly="A1", opportunities=5, violation_count=1), PropertyState.VIOLATED),
        (Property(anomaly="A1", opportunities=0, violation_count=1), PropertyState.VIOLATED),
        (Property(anomaly="A1", opportunities=5, violation_count=1, allowed_because="GAP"), PropertyState.ALLOWED),
        (Property(anomaly="A1", opportunities=5, allowed_because="GAP"), PropertyState.HOLDS),
        (Property(anomaly="H7", opportunities=5, is_unknown=True), PropertyState.UNKNOWN),
        (Property(anomaly="H3", opportunities=5, violation_count=1), PropertyState.CROSSED),
        (Property(anomaly="C7", opportunities=5, violation_count=1), PropertyState.UNKNOWN),
        (Property(anomaly="B6", opportunities=5, violation_count=1), PropertyState.SEEN),
    ],
)
def test_a_property_has_the_state_that_its_counts_imply(given: Property, holding: PropertyState) -> None:
    assert given.holding is holding


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict(), PropertyStatus.UNKNOWN),
        (Verdict(properties=(Property(anomaly="A1", opportunities=0),)), PropertyStatus.UNKNOWN),
        (Verdict(properties=(Property(anomaly="A1", opportunities=1),)), PropertyStatus.VALID),
        (
            Verdict(properties=(Property(anomaly="A1", opportunities=1),), unknowns=("a reason",)),
            PropertyStatus.UNKNOWN,
        ),
        (
            Verdict(properties=(Property(anomaly="A1", opportunities=1, violation_count=1),), unknowns=("a reason",)),
            PropertyStatus.INVALID,
        ),
    ],
)
def test_a_verdict_has_the_status_that_its_properties_imply(verdict: Verdict, status: PropertyStatus) -> None:
    assert verdict.status is status
    assert verdict.as_json()["status"] == status.value


@pytest.mark.parametrize(
    ("properties", "exit_code"),
    [
        ([Property(anomaly="A1", opportunities=1), Property(anomaly="B6", opportunities=1, violation_count=1)], 0),
        ([Property(anomaly="A1", opportunities=1, violation_count=1)], 1),
        ([Property(anomaly="C7", opportunities=1, violation_count=1)], 2),
        ([Property(anomaly="H3", opportunities=1, violation_count=1)], 99),
        ([Property(anomaly=id_, opportunities=1, violation_count=1) for id_ in ("H3", "A1")], 1),
        ([Property(anomaly=id_, opportunities=1, violation_count=1) for id_ in ("H3", "C7")], 2),
    ],
)
def test_a_verdict_has_the_exit_code_of_its_worst_property(properties: list[Property], exit_code: int) -> None:
    """A1 is a violation; B6 is information, C7 a fault of the harness (unknown: 2), H3 a crossed threshold (99)."""
    assert Verdict(properties=tuple(properties)).exit_code == exit_code


def test_the_taxonomy_is_whole() -> None:
    """The anomalies of each family are numbered without a hole, and each judged anomaly has a rule."""
    numbers = {family: [int(id_[1:]) for id_ in ANOMALIES if id_.startswith(family)] for family in "ABCDEFGHR"}

    assert sum(map(len, numbers.values())) == len(ANOMALIES)
    assert numbers == {family: [*range(1, len(found) + 1)] for family, found in numbers.items()}
    assert {anomaly.id for anomaly in JUDGED} == {*RULES, *OF_THE_RUN}
    assert Verdict().as_json()["not_judged"] == ["B4"]


def test_an_unknown_saboteur_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigError, match=r"saboteur 'gremlin' is unknown, allowed is one of leak-group, .*"):
        sabotage([], "gremlin")
