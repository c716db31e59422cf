"""The rules, a module for each family of anomalies; each anomaly is one function."""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps

from sluice.history.events import HistoryEvent
from sluice.judge.checker.group import Group
from sluice.judge.checker.verdict import Violation

type FoundViolation = tuple[str | None, Iterable[int | None], str, Iterable[HistoryEvent]]
"""A violation's queue, messages, sentence and witness: the arguments of `Group.violation`."""
type AnomalyRule = Callable[[Group], Iterator[Violation]]
registry: dict[str, AnomalyRule] = {}
"""Anomaly id to the rule that finds it in a group. The other anomalies concern the run: see `checker.run`."""


def rule(anomaly: str) -> Callable[[Callable[[Group], Iterator[FoundViolation]]], AnomalyRule]:
    """Register the decorated function as the rule of an anomaly."""

    def register(look: Callable[[Group], Iterator[FoundViolation]]) -> AnomalyRule:
        @wraps(look)
        def violations(group: Group) -> Iterator[Violation]:
            return (group.violation(anomaly, *found) for found in look(group))

        registry[anomaly] = violations
        return violations

    return register
