"""The checker's findings in suspect groups: computed part by part, as rows of a table, and then gathered."""

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.history.events import HistoryEvent
from sluice.judge.checker import Expectation, Finding, QueueContext, check_group
from sluice.judge.checker.anomalies import ANOMALIES, Severity
from sluice.judge.checker.verdict import Violation
from sluice.judge.reading.columns import Events
from sluice.judge.screening.stretches import NeededEvents, needed_events
from sluice.recorder.journal import SCHEMA, events_of, take_rows

WITNESSED_MAX = 8
"""Violations shown of each anomaly; all are counted."""
UNKNOWNS_MAX = 20
"""The most sentences about open questions that are shown."""
_CHECKED_EVENTS = 20_000  # converted from columns at once: converting one group at a time takes ten times as long
_KEPT_MAX = 10_000  # findings of a part that are kept before all but the first of each anomaly are dropped
UNKNOWN = ""
"""In the column `anomaly` of FOUND, it marks an open question."""
_SHOWN = {anomaly.id for anomaly in ANOMALIES.values() if anomaly.severity is not Severity.INFORMATION}
FOUND = pa.schema([(name, pa.string()) for name in ("anomaly", "sort_key", "finding")])
"""The columns of a violation or open question; of each anomaly, those with the smallest keys are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Findings of the checker in all groups.

    Args:
        shown: the first violations of each anomaly that is not lawful.
        counts: anomaly to its count, lawful ones included.
        unknowns: open questions, as sentences.
    """

    shown: tuple[Violation, ...] = ()
    counts: Mapping[str, int]
    unknowns: tuple[str, ...] = ()


def finding_in(
    events: Iterable[HistoryEvent], expectation: Expectation, around: QueueContext, idxs: frozenset[int] | None = None
) -> Finding:
    """Return the checker's finding in one group, for the messages that count (`stretches.NeededEvents`)."""
    finding = check_group(events, expectation, around)
    if idxs is None:
        return finding
    violations, seen = (
        tuple(violation for violation in found if not idxs.isdisjoint(violation.idxs))
        for found in (finding.violations, finding.seen)
    )
    return replace(finding, violations=violations, seen=seen)


def rows_found(
    events: Iterable[HistoryEvent], expectation: Expectation, around: QueueContext, idxs: frozenset[int] | None = None
) -> list[dict[str, str]]:
    """Return `finding_in` as rows of FOUND."""
    finding = finding_in(events, expectation, around, idxs)
    return [
        {
            "anomaly": violation.anomaly,
            "sort_key": f"{violation.message_group_id} {violation.idxs[:1]}",
            "finding": json.dumps(violation.as_json()),
        }
        for violation in (*finding.violations, *finding.seen)
    ] + [{"anomaly": UNKNOWN, "sort_key": text, "finding": text} for text in finding.unknowns]


_COUNTED = pa.schema({"anomaly": pa.string(), "count": pa.int64()})


def find_in_part(part: Iterable[Events], *, expectation: Expectation, around: QueueContext) -> list[pa.Table]:
    """Return the checker's findings in suspect groups: counts by anomaly, and the first of each as rows of FOUND."""
    whole = groups_of(pa.concat_tables([SCHEMA.empty_table(), *(events.table for events in part)]))
    counts: Counter[str] = Counter()
    first: list[dict[str, str]] = []
    while whole:
        for events, idxs in _events_of_groups(whole, expectation, around):
            rows = rows_found(events, expectation, around, idxs)
            counts.update(row["anomaly"] for row in rows)
            first += rows
            if len(first) > _KEPT_MAX:
                first = least_rows(first)
    counted = [{"anomaly": anomaly, "count": count} for anomaly, count in counts.items()]
    return [pa.Table.from_pylist(counted, _COUNTED), pa.Table.from_pylist(least_rows(first), FOUND)]


def _events_of_groups(
    whole: list[pa.Table], expectation: Expectation, around: QueueContext
) -> Iterator[tuple[list[HistoryEvent], frozenset[int] | None]]:
    """Remove some groups from `whole`; yield the needed events of each, and the messages whose findings count."""
    together: list[NeededEvents] = []
    while whole and sum(len(group.events) for group in together) < _CHECKED_EVENTS:
        together.append(needed_events(whole.pop(), expectation, around))
    events = iter(events_of(pa.concat_tables([group.events for group in together])))
    for group in together:
        yield [next(events) for _ in range(len(group.events))], group.idxs


def least_rows(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of FOUND that are shown for each anomaly: those with the smallest keys."""
    of_anomaly: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        of_anomaly[row["anomaly"]].append(row)
    return [
        row
        for anomaly, found in sorted(of_anomaly.items())
        for row in heapq.nsmallest(
            UNKNOWNS_MAX if anomaly == UNKNOWN else WITNESSED_MAX, found, key=itemgetter("sort_key", "finding")
        )
    ]


def gather(counts: Mapping[str, int], first: Iterable[Mapping[str, Any]]) -> Findings:
    """Return the findings of all groups from the counts of FOUND by anomaly, and the rows to show."""
    listed = list(first)
    unknowns = [row["finding"] for row in listed if row["anomaly"] == UNKNOWN]
    if counts.get(UNKNOWN, 0) > len(unknowns):
        unknowns.append(f"… and {counts[UNKNOWN] - len(unknowns)} more of this kind")
    return Findings(
        shown=tuple(_violation(json.loads(row["finding"])) for row in listed if row["anomaly"] in _SHOWN),
        counts={anomaly: count for anomaly, count in counts.items() if anomaly != UNKNOWN},
        unknowns=tuple(unknowns),
    )


def groups_of(events: pa.Table) -> list[pa.Table]:
    """Return the events by group; every event must have a group."""
    group = events.column("message_group_id").combine_chunks().dictionary_encode().indices.to_numpy()
    ordered = take_rows(events, np.argsort(group, kind="stable"))
    counts = np.bincount(group)
    return [
        ordered.slice(end - count, count)
        for end, count in zip(np.cumsum(counts).tolist(), counts.tolist(), strict=True)
    ]


def _violation(fields: Mapping[str, Any]) -> Violation:
    return Violation(
        anomaly=fields["anomaly"],
        message_group_id=fields["message_group_id"],
        queue=fields["queue"],
        idxs=tuple(fields["idxs"]),
        sentence=fields["sentence"],
        witness=tuple(HistoryEvent(**event) for event in fields["witness"]),
    )
