"""What is known of a run before its history is judged: what it was set up to be, and what happened to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.judge.checker import Expectation, Thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What was to be published: end markers are counted as messages."""

    message_count: int
    lateness_budget_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run, or one recording, for the judge.

    Args:
        expectation: what the run was set up to be; its `clock_bound_us` is what was declared, 0 when nothing was.
        target: key into `sluice.deviations`.
        recorders: name to the queue it consumes; None of one that publishes, or where nobody says.
        attempts: how often the run was begun.
        killed: names of recorders that a fault killed.
        plan: what was to be published; None when nobody planned it.
        thresholds: of its measures.
        allowed: anomalies that are lawful for the shape of this load, and why; besides the target's deviations.
        unknowns: what already went wrong while it ran.
        described: what else the verdict repeats of the run.
    """

    expectation: Expectation
    target: str
    recorders: Mapping[str, str | None]
    attempts: int = 1
    killed: tuple[str, ...] = ()
    plan: Planned | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    allowed: Mapping[str, str] = field(default_factory=dict)
    unknowns: tuple[str, ...] = ()
    described: Mapping[str, Any] = field(default_factory=dict)

    @property
    def limits(self) -> dict[str, float | None]:
        """Return the threshold of each anomaly that is judged only against one; None where none is set."""
        return {
            "D3": self.expectation.passed_over_seconds_max,
            "E3": self.expectation.fan_out_skew_seconds_max,
            "H1": self.expectation.stuck_seconds_max,
            "H3": self.thresholds.latency_seconds_max,
            "H4": self.thresholds.drain_seconds_max,
            "H5": self.thresholds.recovery_seconds_max,
            "H6": self.thresholds.throttled_share_max,
        }
