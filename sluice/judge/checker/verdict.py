"""Verdicts: VALID, INVALID with witnesses, or UNKNOWN with reasons. Nothing else, and never by default."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sluice.history.events import HistoryEvent
from sluice.judge.checker.anomalies import ANOMALIES, NOT_JUDGED, Severity

SCHEMA_VERSION = 1


class PropertyStatus(StrEnum):
    """Three values, worst first: a known violation outweighs an unknown, and an unknown outweighs a success."""

    INVALID = "invalid"
    UNKNOWN = "unknown"
    VALID = "valid"


EXIT_CODES: dict[PropertyStatus, int] = {PropertyStatus.VALID: 0, PropertyStatus.INVALID: 1, PropertyStatus.UNKNOWN: 2}
EXIT_CROSSED = 99
"""Valid, but a threshold was crossed."""


def compose(statuses: Iterable[PropertyStatus]) -> PropertyStatus:
    """Return the worst of the statuses; UNKNOWN if there is none, because nothing was checked."""
    listed = set(statuses)
    return next((status for status in PropertyStatus if status in listed), PropertyStatus.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One violation of a rule, with its witness.

    Args:
        anomaly: id in `anomalies`.
        message_group_id: the group of the messages.
        queue: the queue; None if it concerns no single queue.
        idxs: the messages concerned, in the group's order.
        sentence: what happened, for people.
        witness: the two to six events that prove it.
    """

    anomaly: str
    message_group_id: str
    queue: str | None
    idxs: tuple[int, ...]
    sentence: str
    witness: tuple[HistoryEvent, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the violation for verdict.json: of each witness only the fields that have a value."""
        return {
            "anomaly": self.anomaly,
            "name": ANOMALIES[self.anomaly].name,
            "message_group_id": self.message_group_id,
            "queue": self.queue,
            "idxs": list(self.idxs),
            "sentence": self.sentence,
            "witness": [event.as_dict() for event in self.witness],
        }


class PropertyState(StrEnum):
    """The result of one property. `not exercised` means that it had no opportunity to fail.

    CROSSED: a threshold was exceeded. NO_THRESHOLD: no threshold was set. SEEN: a lawful anomaly happened.
    """

    VIOLATED = "violated"
    CROSSED = "crossed"
    ALLOWED = "allowed"
    SEEN = "seen"
    UNKNOWN = "unknown"
    HOLDS = "holds"
    NO_THRESHOLD = "no threshold"
    NOT_EXERCISED = "not exercised"


_SHOWN = {
    Severity.SAFETY: PropertyState.VIOLATED,
    Severity.LIVENESS: PropertyState.CROSSED,
    Severity.HARNESS: PropertyState.UNKNOWN,
    Severity.INFORMATION: PropertyState.SEEN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """The absence of one anomaly, over a whole run.

    Args:
        anomaly: id in `anomalies`.
        opportunities: how often it could have happened.
        violation_count: how often it did.
        allowed_because: why this target may show it (`deviations`); None if it may not.
        is_unknown: whether the run does not show if it happened.
        has_threshold: whether a threshold is set, for an anomaly that is judged only against one.
        crossed: the values above their threshold, a sentence each; values of groups are violations instead.
    """

    anomaly: str
    opportunities: int
    violation_count: int = 0
    allowed_because: str | None = None
    is_unknown: bool = False
    has_threshold: bool = True
    crossed: tuple[str, ...] = ()

    @property
    def holding(self) -> PropertyState:
        """Return how the property fared."""
        if self.violation_count:
            return _SHOWN[ANOMALIES[self.anomaly].severity] if self.allowed_because is None else PropertyState.ALLOWED
        if self.is_unknown:
            return PropertyState.UNKNOWN
        if not self.has_threshold:
            return PropertyState.NO_THRESHOLD
        return PropertyState.HOLDS if self.opportunities else PropertyState.NOT_EXERCISED

    def as_json(self) -> dict[str, Any]:
        """Return the property for verdict.json."""
        known = ANOMALIES[self.anomaly]
        return {
            "anomaly": self.anomaly,
            "name": known.name,
            "severity": known.severity.value,
            "holding": self.holding.value,
            "opportunities": self.opportunities,
            "violations": self.violation_count,
            "allowed_because": self.allowed_because,
            "crossed": list(self.crossed),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one run.

    Args:
        properties: every judged anomaly, in the order of `anomalies`.
        violations: the most telling violations of each property; `Property.violation_count` has their number.
        unknowns: why parts of the run, or all of it, cannot be judged.
        measures: the measured values, JSON-ready.
        run: the facts of the run: id, profile, seed, environment, target, versions; JSON-ready.
    """

    properties: tuple[Property, ...] = ()
    violations: tuple[Violation, ...] = ()
    unknowns: tuple[str, ...] = ()
    measures: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> PropertyStatus:
        """Return the worst status of the properties and the unknowns; UNKNOWN if no property was exercised."""
        by_holding = {
            PropertyState.VIOLATED: PropertyStatus.INVALID,
            PropertyState.UNKNOWN: PropertyStatus.UNKNOWN,
            PropertyState.HOLDS: PropertyStatus.VALID,
            PropertyState.ALLOWED: PropertyStatus.VALID,
            PropertyState.CROSSED: PropertyStatus.VALID,
        }
        statuses = [by_holding[p.holding] for p in self.properties if p.holding in by_holding]
        return compose([*statuses, *([PropertyStatus.UNKNOWN] if self.unknowns else [])])

    @property
    def crossed_thresholds(self) -> list[str]:
        """Return the values above a threshold, a sentence each with its anomaly.

        For values of groups see `violations`.
        """
        crossed = [prop for prop in self.properties if prop.holding is PropertyState.CROSSED]
        return [
            f"{prop.anomaly} {ANOMALIES[prop.anomaly].name}: {sentence}"
            for prop in crossed
            for sentence in prop.crossed
        ]

    @property
    def conduct(self) -> tuple[str, ...]:
        """Return the acts of consumers that no promise of AWS allows for: late uses of handles, refused deletes."""
        return tuple(self.measures.get("consumer", {}).get("found", ()))

    @property
    def exit_code(self) -> int:
        """Return the exit code of a program that judged the run."""
        is_crossed = bool(self.conduct) or any(p.holding is PropertyState.CROSSED for p in self.properties)
        return EXIT_CROSSED if is_crossed and self.status is PropertyStatus.VALID else EXIT_CODES[self.status]

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for verdict.json, with the status first."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status.value,
            "unknowns": list(self.unknowns),
            "properties": [p.as_json() for p in self.properties],
            "violations": [v.as_json() for v in self.violations],
            "not_judged": [anomaly.id for anomaly in NOT_JUDGED],
            "measures": dict(self.measures),
            "run": dict(self.run),
        }
