"""What the profile allows beside what was seen."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.history.checker.verdict import Holding, Property, Verdict
from spark_load.report import units

_WAITS = {
    "E3": ("fan_out_skew_seconds_max", "between a message's first queue and its last"),
    "D3": ("passed_over_seconds_max", "a group waiting while its queue serves others"),
    "H1": ("stuck_seconds_max", "a group waiting while its queue is polled"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One measure against its threshold.

    Args:
        anomaly: which a crossing is.
        what: was measured, and where.
        seen: with its unit.
        allowed: with its unit.
        is_kept: whether it is within.
    """

    anomaly: str
    what: str
    seen: str
    allowed: str
    is_kept: bool


def held(verdict: Verdict) -> list[Held]:
    """Return every threshold of the run's profile, in the order of the anomalies' families; none were set: none."""
    profile, measures = verdict.run.get("profile", {}), verdict.measures
    properties = {one.anomaly: one for one in verdict.properties}
    return [
        *_lateness(profile, measures),
        *_latencies(profile, measures),
        *_drains(profile, measures),
        *_recoveries(profile, measures),
        *_throttles(profile, measures),
        *(row for anomaly in _WAITS for row in _wait(anomaly, profile, properties.get(anomaly))),
    ]


def _of_seconds(anomaly: str, what: str, seen: float, allowed: float) -> Held:
    return Held(
        anomaly=anomaly,
        what=what,
        seen=units.seconds(seen),
        allowed=f"at most {units.seconds(allowed)}",
        is_kept=seen <= allowed,
    )


def _lateness(profile: Mapping[str, Any], measures: Mapping[str, Any]) -> Iterator[Held]:
    budget, late = profile.get("lateness_budget_seconds"), measures.get("lateness_us")
    if budget is not None and late:
        yield _of_seconds("H7", "lateness of the generator, p99", late["p99"] / 1e6, budget)


def _latencies(profile: Mapping[str, Any], measures: Mapping[str, Any]) -> Iterator[Held]:
    allowed = profile.get("latency_seconds_max")
    for queue, of in measures.get("queues", {}).items():
        if allowed is not None and of["latency_us"]:
            yield _of_seconds("H3", f"latency of {queue}, p99", of["latency_us"]["p99"] / 1e6, allowed)


def _drains(profile: Mapping[str, Any], measures: Mapping[str, Any]) -> Iterator[Held]:
    allowed = profile.get("drain_seconds_max")
    for queue, of in measures.get("queues", {}).items():
        if allowed is not None and of.get("drain_seconds") is not None:
            yield _of_seconds("H4", f"drain of {queue} after the last publish", of["drain_seconds"], allowed)


def _recoveries(profile: Mapping[str, Any], measures: Mapping[str, Any]) -> Iterator[Held]:
    allowed = profile.get("recovery_seconds_max")
    for fault, took in measures.get("recovered_in_seconds", {}).items():
        if allowed is not None:
            yield _of_seconds("H5", f"recovery from {fault}", took, allowed)


def _throttles(profile: Mapping[str, Any], measures: Mapping[str, Any]) -> Iterator[Held]:
    allowed, calls = profile.get("throttled_share_max"), measures.get("calls")
    if allowed is not None and calls and calls["count"]:
        share = calls["throttled"] / calls["count"]
        yield Held(
            anomaly="H6",
            what=f"throttled of {calls['count']:,} calls",
            seen=f"{share:.2%}",
            allowed=f"at most {allowed:.2%}",
            is_kept=share <= allowed,
        )


def _wait(anomaly: str, profile: Mapping[str, Any], one: Property | None) -> Iterator[Held]:
    field, what = _WAITS[anomaly]
    if profile.get(field) is not None and one is not None:
        yield Held(
            anomaly=anomaly,
            what=what,
            seen=f"{units.times(one.violation_count)} longer" if one.violation_count else "never longer",
            allowed=f"at most {units.seconds(profile[field])}",
            is_kept=one.holding is not Holding.CROSSED,
        )
