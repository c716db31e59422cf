"""Verdicts and series made by hand, and the series of a history recomputed without Spark."""

import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sluice.history.events import HistoryEvent, Kind
from sluice.judge.checker import Expectation
from sluice.judge.checker.anomalies import JUDGED
from sluice.judge.checker.verdict import Property, Verdict, Violation
from sluice.judge.folder.series_schema import RunSeries
from tests.support.anomalies import CASES
from tests.support.histories.builders import EXPECTATION, RUN, delete_event, publish_event, receive_event

GROUPS = 12
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_WARM_UP_MESSAGES, _MEASURED_FROM_MS = 40, 4_000
_TELLING = ("A1", "B1", "C1", "D1", "D2", "F4", "G1")


def history(message_count: int = 640, *, gap_ms: int = 90) -> list[HistoryEvent]:
    """Return a run: a warm-up, hot and cold groups, a stall, a failed call, a redelivered message.

    Each message is received from billing soon; from shipping later, depending on how hot its group is.
    """
    events: list[HistoryEvent] = []
    for idx in range(message_count):
        group, hotness = _group(idx)
        is_warm_up = idx < _WARM_UP_MESSAGES
        due_ms = idx * gap_ms + (0 if is_warm_up else _MEASURED_FROM_MS)
        stall_ms = 2_000 if 300 <= idx < 330 else 0
        phase: dict[str, Any] = {"phase": "warm_up" if is_warm_up else "measure", "message_group_id": group}
        took_ms = 5 + idx % 7
        events.append(publish_event(idx, due_ms + stall_ms, took_ms=took_ms, call_id=f"publish/{idx}", **phase))
        events[-1] = replace(events[-1], intended_at_us=due_ms * 1_000)
        for queue, wait_ms in (("billing", 20 + idx % 60), ("shipping", 40 + 25 * hotness + idx % 31)):
            receive = receive_event(queue, idx, due_ms + stall_ms + wait_ms, call_id=f"{queue}/{idx}", **phase)
            events += [receive, delete_event(receive, due_ms + stall_ms + wait_ms + 9, phase=phase["phase"])]
    events.append(publish_event(700, 9_000, outcome="fail", error="ThrottlingException", call_id="throttled"))
    events[-1] = replace(events[-1], idx=5, message_group_id=_group(5)[0], sns_sequence_number=None)
    events.append(
        receive_event("billing", 50, 20_000, receive_count=2, call_id="again", message_group_id=_group(50)[0])
    )
    return events


def _group(idx: int) -> tuple[str, int]:
    """Return a message's group and its heat: of 78 consecutive messages 12 are of the hottest group, 1 of the last."""
    place, group = idx * 31 % 78, 0
    while place >= GROUPS - group:
        place -= GROUPS - group
        group += 1
    return f"g{group}", GROUPS - group


def plain_series(
    events: Sequence[HistoryEvent],
    *,
    bin_us: int,
    expectation: Expectation = EXPECTATION,
    groups: dict[str, list[HistoryEvent]] | None = None,
) -> RunSeries:
    """Return the series of a history whose groups all have different sizes, message by message.

    Args:
        events: settled.
        bin_us: width of the bins.
        expectation: what the run was set up to be.
        groups: those that get a timeline.
    """
    messages = _messages(events, expectation)
    began = min(e.intended_at_us or e.invoked_at_us or 0 for e in events if e.kind in (Kind.PUBLISHED, Kind.RECEIVED))
    ended = max(e.responded_at_us or 0 for e in events if e.kind in (Kind.PUBLISHED, Kind.RECEIVED))
    count = (ended - began) // bin_us + 1

    def count_in_bins(instants: Iterable[int | None]) -> list[int]:
        counts = Counter((instant - began) // bin_us for instant in instants if instant is not None)
        return [counts[number] for number in range(count)]

    def latencies(queue: str) -> dict[str, list[int | None]]:
        bins: dict[int, list[int]] = defaultdict(list)
        for message in messages.values():
            if queue in message["received"]:
                bins[(message["due"] - began) // bin_us].append(message["received"][queue] - message["due"])
        values = [_quantiles(bins[number]) for number in range(count)]
        return {name: [item[name] for item in values] for name in ("count", *_PERCENTILES, "max")}

    def alive(queue: str) -> list[int]:
        found = [0] * count
        for recorder in {
            event.worker for event in events if event.kind in (Kind.POLL, Kind.RECEIVED) and event.queue == queue
        }:
            of = [event for event in events if event.worker == recorder]
            first, last = (
                min(event.invoked_at_us or 0 for event in of),
                max(event.responded_at_us or event.invoked_at_us or 0 for event in of),
            )
            for number in range(count):
                found[number] += first <= began + (number + 0.5) * bin_us <= last
        return found

    warm = [e for e in events if e.phase == "warm_up" and e.kind in (Kind.PUBLISHED, Kind.RECEIVED)]
    acked = count_in_bins(message["acked"] for message in messages.values())
    return {
        "schema_version": 3,
        "run": expectation.run,
        "accuracy": 4_096,
        "started_at_us": began,
        "bin_seconds": bin_us / 1e6,
        "bin_count": count,
        "warm_up": [0.0, (max(e.responded_at_us or 0 for e in warm) - began) / 1e6] if warm else None,
        "published": acked,
        "queues": {
            queue: {
                "received": (got := count_in_bins(message["received"].get(queue) for message in messages.values())),
                "waiting": [
                    max(0, a - r) for a, r in zip(itertools.accumulate(acked), itertools.accumulate(got), strict=True)
                ],
                "again": count_in_bins(
                    e.invoked_at_us
                    for e in events
                    if e.queue == queue and e.receive_count is not None and e.receive_count > 1
                ),
                "tasks": alive(queue),
                "latency_us": latencies(queue),
            }
            for queue in expectation.queues
        },
        "ranks": list(_ranks(messages, expectation)),
        "failed": {
            code: count_in_bins(e.invoked_at_us for e in events if e.error == code)
            for code in dict.fromkeys(e.error for e in events if e.error is not None)
        },
        "visibility": dict(expectation.visibility_timeout_seconds),
        "groups": {group: [e.as_dict() for e in of] for group, of in (groups or {}).items()},
    }


def _messages(events: Sequence[HistoryEvent], expectation: Expectation) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"group": "", "due": 0, "acked": None, "received": {}, "warm": False}
    )
    for event in sorted(events, key=lambda e: e.responded_at_us or 0):
        if event.idx is None or event.idx < 0:
            continue
        entry = found[event.idx]
        entry["group"] = event.message_group_id
        entry["warm"] |= event.phase == "warm_up"
        if event.kind == Kind.PUBLISHED and event.outcome == "ok" and entry["acked"] is None:
            entry["due"], entry["acked"] = event.intended_at_us, event.responded_at_us
        elif event.kind == Kind.RECEIVED and event.queue in expectation.queues:
            entry["received"].setdefault(event.queue, event.responded_at_us)
    return found


def _ranks(messages: dict[int, dict[str, Any]], expectation: Expectation) -> Iterator[dict[str, Any]]:
    measured = [message for message in messages.values() if not message["warm"]]
    for group, size in Counter(entry["group"] for entry in measured).most_common():
        of_group = [entry for entry in measured if entry["group"] == group]
        yield {
            "groups": 1,
            "messages": size,
            "latency_us": {
                queue: _quantiles(
                    [entry["received"][queue] - entry["due"] for entry in of_group if queue in entry["received"]]
                )
                for queue in expectation.queues
            },
        }


def _quantiles(values: list[int]) -> dict[str, int | None]:
    ordered = sorted(values)
    quantiles = {
        name: ordered[math.ceil(of * len(ordered)) - 1] if ordered else None for name, of in _PERCENTILES.items()
    }
    return {"count": len(ordered), **quantiles, "max": ordered[-1] if ordered else None}


MEASURES: dict[str, Any] = {
    "published": {"count": 640, "seconds": 61.6, "per_second": 10.39},
    "lateness_us": {"p50": 400, "p95": 1_200, "p99": 2_000_000, "max": 2_000_100},
    "publish_latency_us": {"p50": 8_000, "p95": 11_000, "p99": 11_000, "max": 11_000},
    "queues": {
        "billing": {
            "received": {"count": 640, "seconds": 61.6, "per_second": 10.4},
            "drain_seconds": 0.1,
            "latency_us": {"p50": 55_000, "p95": 85_000, "p99": 2_070_000, "max": 2_084_000},
        },
        "shipping": {
            "received": {"count": 640, "seconds": 61.9, "per_second": 10.3},
            "drain_seconds": 0.4,
            "latency_us": {"p50": 280_000, "p95": 370_000, "p99": 2_330_000, "max": 2_375_000},
        },
    },
    "groups": 12,
    "suspect_groups": 2,
    "events": 3_202,
}
DESCRIBED: dict[str, Any] = {
    "run": RUN,
    "environment": "local",
    "target": "localstack",
    "endpoint_url": "http://127.0.0.1:4566",
    "profile_name": "hand-made",
    "profile": {
        "messages_per_second": 10.0,
        "duration_seconds": 60.0,
        "group_count": 12,
        "lateness_budget_seconds": 3.0,
        "latency_seconds_max": 2.5,
    },
    "seed": 7,
    "transport": "boto3",
    "saboteur": None,
    "recorders": {"publish-0": None, "consume-0": "billing", "consume-1": "shipping"},
    "max_receive_count": {"billing": 5, "shipping": 5},
    "versions": {"pyspark": "4.3.0", "python": "3.13.0"},
    "machine": {"system": "Linux", "processor": "x86_64", "cores": 2},
    "known_deviations": {"B5": "GAP-36: topics do not deduplicate: a repeat gets new ids"},
}
NOT_EXERCISED = ("E4", "F8", "F9", "F10", "F11", "H4", "H5")


def _properties(**counts: int) -> tuple[Property, ...]:
    return tuple(
        Property(
            anomaly=anomaly.id,
            opportunities=0 if anomaly.id in NOT_EXERCISED else 640,
            violation_count=counts.get(anomaly.id, 0),
            allowed_because="GAP-36: topics do not deduplicate: a repeat gets new ids" if anomaly.id == "B5" else None,
        )
        for anomaly in JUDGED
    )


def valid() -> Verdict:
    """Return a verdict on a run in which all is well; B5 is allowed, B6 lawful."""
    return Verdict(properties=_properties(B5=3, B6=1), measures=MEASURES, run=DESCRIBED)


def crossed_verdict() -> Verdict:
    """Return a valid verdict whose latency is above its threshold."""
    slow = {**DESCRIBED, "profile": {**DESCRIBED["profile"], "latency_seconds_max": 2.2}}
    properties = tuple(
        replace(prop, crossed=("latency in shipping was 2.33 s, allowed are 2.2 s",)) if prop.anomaly == "H3" else prop
        for prop in _properties(H3=1)
    )
    return Verdict(properties=properties, measures=MEASURES, run=slow)


FAULTS: list[dict[str, Any]] = [
    {
        "kind": kind,
        "target": target,
        "how": how,
        "began_at_us": began_ms * 1_000,
        "ended_at_us": ended_ms * 1_000,
        "recovered_in_seconds": recovered,
    }
    for kind, target, how, began_ms, ended_ms, recovered in (
        ("kill", "billing-0", "", 10_000, 10_020, {"billing": 1.2}),
        ("slow", "publish:endpoint", "0.15 s", 20_000, 26_000, {"events": 2.31}),
        ("answer", "all:endpoint", "after-500", 24_000, 27_000, {"billing": 0.004, "shipping": 2.5, "events": None}),
        ("kill", "shipping-1", "", 62_000, 62_010, {"shipping": None}),
    )
]


def faulty() -> Verdict:
    """Return a valid verdict of a run with five faults: four were done, one of them recovered too late, two never."""
    run = {**DESCRIBED, "profile": {**DESCRIBED["profile"], "recovery_seconds_max": 2.0}, "faults": [{}] * 5}
    return Verdict(properties=_properties(), measures={**MEASURES, "faults": FAULTS}, run=run)


def unknown() -> Verdict:
    """Return the verdict of a run with a dead recorder."""
    return Verdict(
        properties=_properties(),
        unknowns=("1 recorder(s) did not finish: consume-1",),
        measures=MEASURES,
        run=DESCRIBED,
    )


def invalid() -> Verdict:
    """Return a verdict with several anomalies, each in a group of its own."""
    violations = tuple(_in_group(CASES[anomaly].violation, anomaly) for anomaly in _TELLING)
    counts = dict.fromkeys(_TELLING, 1) | {"A1": 12, "B5": 3}
    return Verdict(properties=_properties(**counts), violations=violations, measures=MEASURES, run=DESCRIBED)


def _in_group(violation: Violation, group: str) -> Violation:
    witness = tuple(replace(event, message_group_id=group) for event in violation.witness)
    return replace(violation, message_group_id=group, witness=witness)


def series_of_one() -> RunSeries:
    """Return the series of a single publish, of which a page draws next to nothing."""
    return {**plain_series(history(1)[:1], bin_us=1_000_000), "ranks": []}


def series_of(verdict: Verdict) -> RunSeries:
    """Return the hand-made run's series, with the timelines of the verdict's violations."""
    return {**_series(tuple((violation.message_group_id, violation.anomaly) for violation in verdict.violations))}


@functools.cache
def _series(shown: tuple[tuple[str, str], ...]) -> RunSeries:
    groups = {group: list(CASES[anomaly].events) for group, anomaly in shown}
    return plain_series(history(), bin_us=1_000_000, groups=groups)
