"""Checks of the run as a whole rather than of one group."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sluice.judge.checker.clocks import NEVER_US


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """Counts of the run as a whole rather than of one group.

    Args:
        published_count: publishes that were acknowledged.
        received_count: messages of this run that were received.
        foreign_count: received messages of another run, or of none.
        lateness_p99_us: 99th percentile of invoked minus intended publish time; None if nothing was published.
        lateness_budget_us: the largest value that the profile allows.
        unclosed_journals: names of recorders that never finished, or whose journal is missing.
        unpublished_count: planned messages without a publish, or whose last publish failed.
        failed_calls: error code to how many calls failed or went unanswered with it.
    """

    published_count: int
    received_count: int
    foreign_count: int
    lateness_p99_us: int | None
    lateness_budget_us: int
    unclosed_journals: tuple[str, ...] = ()
    unpublished_count: int = 0
    failed_calls: Mapping[str, int] = field(default_factory=dict)


def check_run(counts: RunCounts) -> dict[str | None, str]:
    """Return why the run as a whole cannot vouch for its result: anomaly id (None for no anomaly) to sentence."""
    reasons: dict[str | None, str] = {}
    found = []
    if not counts.published_count or not counts.received_count:
        found.append(
            f"{counts.published_count} message(s) acknowledged and {counts.received_count} received: nothing to judge"
        )
    if counts.unclosed_journals:
        found.append(
            f"{len(counts.unclosed_journals)} recorder(s) did not finish: {', '.join(counts.unclosed_journals[:4])}"
        )
    if counts.unpublished_count and not found:
        found.append(f"{counts.unpublished_count} planned message(s) were not published")
    if found:
        reasons[None] = "; ".join(found)
    if None in reasons and counts.failed_calls:
        worst = max(counts.failed_calls, key=lambda code: counts.failed_calls[code])
        reasons[None] += f" ({counts.failed_calls[worst]} calls failed with {worst})"
    if counts.foreign_count:
        reasons["A6"] = f"{counts.foreign_count} message(s) of another run were received: the run was not isolated"
    if counts.lateness_p99_us is not None and counts.lateness_p99_us > counts.lateness_budget_us:
        reasons["H7"] = (
            f"the generator was late: 99 % of publishes within {counts.lateness_p99_us / 1e6:.2f} s of their time,"
            f" allowed are {counts.lateness_budget_us / 1e6:.2f} s; offer a lower rate"
        )
    return reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredValues:
    """Values that are compared with thresholds. A value that was not measured is None or missing.

    Args:
        latency_us: queue to the judged percentile of the latency from intended publish to first receive.
        drained_in_seconds: queue to the time from the last publish to its last end marker.
        recovered_in_seconds: fault to the time from its end to the first successful call.
        call_count: calls made.
        throttled_count: how many of them were throttled.
        clock_bound_us: the largest difference between the clocks that measured latency, drain and recovery.
    """

    latency_us: Mapping[str, int] = field(default_factory=dict)
    drained_in_seconds: Mapping[str, float] = field(default_factory=dict)
    recovered_in_seconds: Mapping[str, float] = field(default_factory=dict)
    call_count: int = 0
    throttled_count: int = 0
    clock_bound_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Limits for the measured values; None does not judge a value.

    Args:
        latency_seconds_max: for H3, in every queue.
        drain_seconds_max: for H4, of every queue.
        recovery_seconds_max: for H5, after every fault.
        throttled_share_max: for H6, of all calls.
    """

    latency_seconds_max: float | None = None
    drain_seconds_max: float | None = None
    recovery_seconds_max: float | None = None
    throttled_share_max: float | None = None


def check_thresholds(measured: MeasuredValues, thresholds: Thresholds) -> dict[str, tuple[str, ...]]:
    """Return the crossed thresholds of H3 to H6: anomaly id to a sentence for each place."""
    share, bound_seconds = measured.throttled_count / max(1, measured.call_count), measured.clock_bound_us / 1e6
    crossed: dict[str, tuple[str, ...]] = {}
    for anomaly, what, seconds, allowed in _times_with_threshold(measured, thresholds):
        if seconds > allowed + bound_seconds:
            sentence = f"{what} was {seconds:.2f} s, allowed are {allowed:g} s"
            crossed[anomaly] = (*crossed.get(anomaly, ()), sentence)
    if thresholds.throttled_share_max is not None and share > thresholds.throttled_share_max:
        crossed["H6"] = (
            f"{measured.throttled_count} of {measured.call_count} calls were throttled ({share:.1%}),"
            f" allowed are {thresholds.throttled_share_max:.1%}",
        )
    return crossed


def open_thresholds(measured: MeasuredValues, thresholds: Thresholds) -> dict[str | None, str]:
    """Return the values that may or may not cross their thresholds, given the clocks: anomaly id to sentence."""
    bound_seconds, found = measured.clock_bound_us / 1e6, dict[str | None, str]()
    for anomaly, what, seconds, allowed in _times_with_threshold(measured, thresholds):
        if -bound_seconds < seconds - allowed <= bound_seconds:
            apart = f"the clocks that measured it may be {_apart(measured.clock_bound_us)} apart"
            found.setdefault(anomaly, f"{what} was {seconds:.2f} s, allowed are {allowed:g} s, and {apart}")
    return found


def _apart(bound_us: int) -> str:
    return f"{bound_us / 1_000:g} ms" if bound_us < NEVER_US else "nobody knows how far"


def _times_with_threshold(measured: MeasuredValues, thresholds: Thresholds) -> Iterator[tuple[str, str, float, float]]:
    """Yield each time that has a threshold: its anomaly, a name for people, its seconds, and the allowed seconds."""
    latency = {queue: us / 1e6 for queue, us in measured.latency_us.items()}
    for anomaly, what, of, allowed in (
        ("H3", "latency in", latency, thresholds.latency_seconds_max),
        ("H4", "drain of", measured.drained_in_seconds, thresholds.drain_seconds_max),
        ("H5", "recovery from", measured.recovered_in_seconds, thresholds.recovery_seconds_max),
    ):
        if allowed is not None:
            yield from ((anomaly, f"{what} {name}", seconds, allowed) for name, seconds in sorted(of.items()))
