"""The checker against the oracle: what no run of the queues can produce is a violation, what some run can is none."""

from collections import Counter
from dataclasses import replace

import pytest

from sluice.history.checker import check_group
from sluice.history.checker.anomalies import ANOMALIES, Severity
from sluice.history.checker.group import NEVER_US
from tests.support.oracle.search import is_possible
from tests.support.oracle.tiny_histories import TinyHistory, honest, mutated, shifted

_HONEST, _MUTATED, _SKEWED = 800, 1_500, 300
_NOT_PROVEN = {201}
"""Seeds of impossible histories that the checker does not call so: see docs/architecture.md."""


def _violations(history: TinyHistory) -> set[str]:
    """Return what the checker calls a violation of the queues' promises."""
    finding = check_group(history.events, history.expectation)
    return {
        violation.anomaly
        for violation in finding.violations
        if ANOMALIES[violation.anomaly].severity is Severity.SAFETY
    }


def test_whatever_the_model_does_is_possible_and_no_violation() -> None:
    """Model, oracle and checker were written apart, and agree."""
    for seed in range(_HONEST):
        history = honest(seed)
        assert is_possible(history.events, history.expectation), seed
        assert _violations(history) == set(), seed


def test_a_changed_history_is_a_violation_where_no_run_produces_it() -> None:
    """Not one possible history is called a violation; of the impossible ones, those not proven are named above."""
    missed, impossible = set(), 0
    for seed in range(_MUTATED):
        history = mutated(honest(seed), seed)
        found = _violations(history)
        if is_possible(history.events, history.expectation):
            assert found == set(), seed
        else:
            impossible += 1
            if not found:
                missed.add(seed)

    assert impossible > _MUTATED / 5
    assert missed == _NOT_PROVEN & set(range(_MUTATED))


@pytest.mark.parametrize("bound_us", [50_000, 5_000_000, NEVER_US])
def test_clocks_within_the_bound_prove_nothing_wrong(bound_us: int) -> None:
    """One consumer has a clock of its own, as far ahead or behind as the bound allows, or anywhere without one."""
    for seed in range(_SKEWED):
        history = honest(seed)
        by_us = min(bound_us, 400_000_000) * (1 if seed % 2 else -1)
        apart = replace(
            history,
            events=tuple(shifted(event, by_us) if event.worker == "consume-2" else event for event in history.events),
            expectation=replace(history.expectation, clock_bound_us=bound_us),
        )
        assert _violations(apart) == set(), seed


@pytest.mark.deep
def test_the_checker_agrees_with_the_oracle_on_many_more() -> None:
    """A hundred thousand histories: no false alarm, and at most one in a hundred impossible ones not proven."""
    counts: Counter[str] = Counter()
    for seed in range(1_000_000, 1_100_000):
        history = mutated(honest(seed), seed)
        found = _violations(history)
        if is_possible(history.events, history.expectation):
            assert found == set(), seed
        else:
            counts["found" if found else "missed"] += 1

    assert counts["missed"] < counts["found"] / 100
