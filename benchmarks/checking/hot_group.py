"""What one lost message of a hot group costs the checker: the whole group, and the part of it that is needed."""

import gc
import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from benchmarks import charts
from benchmarks.checking import histories
from benchmarks.checking.histories import EXPECTATION
from benchmarks.report import table
from benchmarks.rounds import interleaved
from sluice.judge.checker import Finding, QueueContext
from sluice.judge.groups import finding_in
from sluice.judge.screening.stretches import Needed, needed
from sluice.recorder.journal import events_of

_SIZES = (10_000, 100_000, 1_000_000)
_LARGE_SIZE = 10_000_000
_WHOLE_MAX = 10_000  # the checker takes some 700 bytes and 70 microseconds an event
_AROUND = QueueContext()


def measure(rounds: int, *, is_large: bool) -> tuple[str, str]:
    """Return table and plot: processor time of both ways, and how much is needed. 10 M events need 12 GB."""
    rows: list[Sequence[object]] = []
    points: dict[str, list[tuple[float, float, str]]] = {"needed": [], "whole": []}
    for size in (_LARGE_SIZE,) if is_large else _SIZES:
        group = histories.hot_group(size)
        cells = {"needed": _timed(_needed, group)}
        if size <= _WHOLE_MAX:
            assert _found(Needed(group)) == _needed(group), "both find the same"
            cells["whole"] = _timed(lambda group: _found(Needed(group)), group)
        took = interleaved(cells, rounds)
        part = len(needed(group, EXPECTATION, _AROUND).events)
        for way, seconds in took.items():
            per_event_us = seconds.median / len(group) * 1e6
            points[way].append((len(group), per_event_us, ""))
            kept = f"{part if way == 'needed' else len(group):,}"
            rows.append((f"{len(group):,}", way, kept, f"{seconds.median:.2f}", seconds.noise, f"{per_event_us:.2f}"))
    head = ["events of the group", "checked", "events checked", "processor s", "noise", "microseconds an event"]
    lines = [charts.Line(way, given) for way, given in points.items()]
    return table(head, rows, text_columns=2), charts.lines(
        "One lost message in a hot group", "events of the group", "microseconds of processor an event", lines
    )


def _timed(check: Callable[[pa.Table], Finding], group: pa.Table) -> Callable[[], float]:
    def timed() -> float:
        gc.collect()
        began = time.process_time()
        check(group)
        return time.process_time() - began

    return timed


def _needed(group: pa.Table) -> Finding:
    return _found(needed(group, EXPECTATION, _AROUND))


def _found(part: Needed) -> Finding:
    return finding_in(events_of(part.events), EXPECTATION, _AROUND, part.idxs)
