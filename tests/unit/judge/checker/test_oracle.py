"""The checker compared with the oracle, which searches for a run of the queues that explains a history.

A history that no run explains is a violation; every other history is none.
"""

from collections import Counter

import pytest

from sluice.history.events import CallOutcome, Kind
from sluice.judge.checker import check_group
from sluice.judge.checker.anomalies import ANOMALIES, Severity
from sluice.judge.checker.clocks import NEVER_US
from tests.support.oracle.search import is_possible, possible_offsets
from tests.support.oracle.tiny_histories import TinyHistory, make_lawful_history, mutate_history, of_two_clocks

_CALLS = (Kind.PUBLISHED, Kind.DELETED, Kind.VISIBILITY_CHANGED)
_LAWFUL_COUNT, _CHANGED_COUNT, _SKEWED_COUNT, _TWO_CLOCKS_COUNT, _PURGED_COUNT = 400, 600, 100, 200, 200
_NOT_PROVEN = {False: {353}, True: {133, 174, 219}}
"""Seeds of impossible histories, plain and full ones, that the checker calls VALID: see docs/architecture.md."""
_NOT_PROVEN_OF_TWO_CLOCKS = set[int]()
_NOT_PROVEN_OF_PURGED: set[int] = set()
_KINDS = pytest.mark.parametrize("is_full", [False, True], ids=["plain", "full"])


def _violations(history: TinyHistory) -> set[str]:
    """Return the checker's violations of the promises of queues."""
    finding = check_group(history.events, history.expectation, history.around)
    return {
        violation.anomaly
        for violation in finding.violations
        if ANOMALIES[violation.anomaly].severity is Severity.SAFETY
    }


def _is_possible(history: TinyHistory) -> bool:
    return is_possible(history.events, history.expectation, history.around)


def _is_left_open(history: TinyHistory) -> bool:
    """Return whether the checker says that it cannot decide a question about a move task."""
    unknowns = check_group(history.events, history.expectation, history.around).unknowns
    return any("with a move task" in why for why in unknowns)


def _traits(history: TinyHistory) -> set[str]:
    """Return the names of everything that happens in a history and that the checker's rules depend on."""
    traits = {f"{event.kind} {event.outcome}" for event in history.events}
    answers = Counter(event.receipt_handle_hash for event in history.events if event.kind == Kind.RECEIVED)
    traits |= {"repeated"} if max(answers.values(), default=0) > 1 else set()
    ids = {event.sqs_message_id or "" for event in history.events}
    traits |= {"dead"} if any((event.queue or "").endswith("-dlq") for event in history.events) else set()
    traits |= {"moved"} if any(".moved" in id_ for id_ in ids) else set()
    return traits | ({"receive lost"} if history.expectation.lost_receives else set())


@_KINDS
def test_random_histories_have_every_trait_the_rules_depend_on(*, is_full: bool) -> None:
    """The random histories must contain every trait; the tests below prove nothing about a trait that none has."""
    found = Counter(
        trait for seed in range(_LAWFUL_COUNT) for trait in _traits(make_lawful_history(seed, is_full=is_full))
    )

    outcomes = {f"{kind} {outcome}" for kind in _CALLS for outcome in CallOutcome}
    expected = outcomes | {"received ok", "dead", "receive lost"} | ({"repeated", "moved"} if is_full else set())
    assert {trait for trait in expected if found[trait] < _LAWFUL_COUNT / 200} == set()


@_KINDS
def test_every_lawful_history_is_possible_and_no_violation(*, is_full: bool) -> None:
    """Model, oracle and checker have no code in common, and agree."""
    for seed in range(_LAWFUL_COUNT):
        history = make_lawful_history(seed, is_full=is_full)
        assert _is_possible(history), seed
        assert _violations(history) == set(), seed


@_KINDS
def test_a_changed_history_is_a_violation_where_no_run_produces_it(*, is_full: bool) -> None:
    """No possible history is called a violation; of the impossible ones, all are except those of `_NOT_PROVEN`.

    Histories about which the checker leaves a question open are not counted.
    """
    missed, impossible = set(), 0
    for seed in range(_CHANGED_COUNT):
        history = mutate_history(make_lawful_history(seed, is_full=is_full), seed, is_full=is_full)
        found = _violations(history)
        if _is_possible(history):
            assert found == set(), seed
        else:
            impossible += 1
            if not found and not _is_left_open(history):
                missed.add(seed)

    assert impossible > _CHANGED_COUNT / 5
    assert missed == _NOT_PROVEN[is_full]


def test_purges_and_shared_dlqs_are_judged_as_the_oracle_does() -> None:
    """Each random history has purges and, if it has two queues, one DLQ for both.

    Neither it nor a changed copy that some run produces is a violation; every other changed copy is one.
    """
    impossible, missed = 0, set()
    for seed in range(_PURGED_COUNT):
        lawful = make_lawful_history(seed, is_purged=True)
        assert _is_possible(lawful), seed
        assert _violations(lawful) == set(), seed
        changed = mutate_history(lawful, seed)
        found = _violations(changed)
        if _is_possible(changed):
            assert found == set(), seed
        else:
            impossible += 1
            missed |= set() if found else {seed}

    assert impossible > _PURGED_COUNT / 10
    assert missed == _NOT_PROVEN_OF_PURGED


@pytest.mark.parametrize("bound_us", [50_000, 5_000_000, NEVER_US])
def test_clocks_within_the_bound_prove_nothing_wrong(bound_us: int) -> None:
    """One consumer's clock is ahead or behind by the bound; without a bound, by any amount."""
    for seed in range(_SKEWED_COUNT):
        history = make_lawful_history(seed)
        by_us = min(bound_us, 400_000_000) * (1 if seed % 2 else -1)
        assert _violations(of_two_clocks(history, bound_us=bound_us, by_us=by_us)) == set(), seed


def _of_two_clocks(seed: int) -> TinyHistory:
    """Return a history in which one consumer's clock is off by the bound, by a third of it, or not at all.

    Four of five histories are changed, so that most of them are impossible.
    """
    bound_us = (50_000, 5_000_000)[seed % 2]
    by_us = (0, bound_us, -bound_us, bound_us // 3)[seed // 2 % 4]
    history = make_lawful_history(seed) if seed % 5 == 0 else mutate_history(make_lawful_history(seed), seed)
    return of_two_clocks(history, bound_us=bound_us, by_us=by_us)


def _checker_verdict(history: TinyHistory) -> str:
    if _violations(history):
        return "invalid"
    finding = check_group(history.events, history.expectation)
    return "unknown" if any("clocks timed it" in why for why in finding.unknowns) else "valid"


def _oracle_verdict(history: TinyHistory) -> str:
    """Return the oracle's judgement over all possible clock offsets."""
    possible, tried = possible_offsets(history.events, history.expectation)
    return "invalid" if not possible else "valid" if possible == tried else "unknown"


def test_verdicts_on_two_clocks_hold_for_every_offset_within_bound() -> None:
    """INVALID if no offset explains the history, UNKNOWN if some offsets do and others do not, otherwise neither."""
    counts: Counter[tuple[str, str]] = Counter()
    for seed in range(_TWO_CLOCKS_COUNT):
        history = _of_two_clocks(seed)
        expected, judged = _oracle_verdict(history), _checker_verdict(history)
        counts[expected, judged] += 1
        assert judged == expected or seed in _NOT_PROVEN_OF_TWO_CLOCKS, (seed, expected, judged)

    assert min(counts[status, status] for status in ("valid", "unknown", "invalid")) > _TWO_CLOCKS_COUNT / 200


@pytest.mark.deep
@pytest.mark.timeout(1_800)
@_KINDS
def test_the_checker_agrees_with_the_oracle_on_many_more(*, is_full: bool) -> None:
    """Many thousand histories: no false alarm, and at most 1 or 3 of 100 impossible ones are VALID."""
    counts: Counter[str] = Counter()
    for seed in range(1_000_000, 1_015_000 if is_full else 1_100_000):
        history = mutate_history(make_lawful_history(seed, is_full=is_full), seed, is_full=is_full)
        found = _violations(history)
        if _is_possible(history):
            assert found == set(), seed
        else:
            counts["found" if found else "open" if _is_left_open(history) else "missed"] += 1

    assert counts["missed"] < counts["found"] * (0.03 if is_full else 0.01)


@pytest.mark.deep
@pytest.mark.timeout(1_800)
def test_the_checker_agrees_with_the_oracle_on_many_more_purges() -> None:
    """20,000 histories: no false alarm, and at most 1 of 50 impossible ones is VALID."""
    counts: Counter[str] = Counter()
    for seed in range(20_000):
        history = mutate_history(make_lawful_history(seed, is_purged=True), seed)
        found = _violations(history)
        if _is_possible(history):
            assert found == set(), seed
        else:
            counts["found" if found else "missed"] += 1

    assert counts["missed"] < counts["found"] * 0.02


@pytest.mark.deep
@pytest.mark.timeout(1_800)
def test_the_checker_agrees_with_the_oracle_on_many_more_of_two_clocks() -> None:
    """20,000 histories: never INVALID if an offset explains it, and nearly always the oracle's verdict."""
    counts: Counter[tuple[str, str]] = Counter()
    for seed in range(2_000_000, 2_020_000):
        history = _of_two_clocks(seed)
        expected, judged = _oracle_verdict(history), _checker_verdict(history)
        counts[expected, judged] += 1
        assert judged != "invalid" or expected == "invalid", seed

    assert sum(n for (expected, judged), n in counts.items() if expected != judged) < counts.total() / 200, counts
