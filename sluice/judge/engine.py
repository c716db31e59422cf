"""What the judge asks a history, part by part: the same in this process and in Spark's tasks.

Each question is a partial, a function of one part of the history (`parts`), and what the partials of all parts add up
to. A recording of up to some hundred thousand events is one part, in memory, as Arrow columns.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.history.events import Event, Kind, Outcome
from sluice.judge.checker import Expectation, Move, QueueContext
from sluice.judge.checker.verdict import Violation
from sluice.judge.counts import AROUND, CALLS
from sluice.judge.folder.series_schema import Series
from sluice.judge.groups import Findings, find_in_part, gathered, least_rows
from sluice.judge.parts import History, InMemory
from sluice.judge.reading import folders
from sluice.judge.reading.columns import NONE, Events
from sluice.judge.reading.damage import UNREADABLE, readable, undamaged
from sluice.judge.reading.parquet_files import Piece, Rows, pieces
from sluice.judge.screening.buckets import Cleared, cleared_part, concluded
from sluice.judge.series import series
from sluice.judge.timing import TIMED, TIMED_COLUMNS, Timed, timed_part, timings
from sluice.recorder.journal import SCHEMA, SUFFIX, events_of, read_parts

EVENTS_MAX = 300_000
"""Events up to which a recording is judged in this process unless somebody says otherwise."""
_PART_EVENTS = 10_000  # of a journal, read and settled together: batches of few events take ten times their size
_NEVER_US = 2**62
FRAMED = (Kind.OPENED.value, Kind.CLOSED.value, Kind.TOPOLOGY.value)
"""Kinds of events by which recorders say who they are."""
_CONSUMED = (Kind.POLL.value, Kind.RECEIVED.value, Kind.DELETED.value)  # name a queue messages come from
_OF_MESSAGES = (Kind.RECEIVED.value, Kind.DELETED.value, Kind.VISIBILITY_CHANGED.value)
"""Kinds of events that need their message group to be judged, unless they failed: then the handle never was one."""
_OVERVIEW = ("schema_version", "run", "kind", "worker", "queue", "detail", "is_of_no_group")
_OVERVIEW_COLUMNS = (*_OVERVIEW[:-1], "message_group_id", "outcome")
_MOVED_COLUMNS = ("message_group_id", "queue", "message_run", "invoked_at_us", "responded_at_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A fault of a queue or topic, and when the first call there was answered ok after its end; None where none was."""

    queue: str
    began_us: int | None
    ended_us: int
    detail: str | None
    answered_us: int | None


class Engine:
    """Reads one settled history."""

    def __init__(self, history: History) -> None:
        self._history = history

    def screen(self, expectation: Expectation) -> Cleared:
        """Return what one pass over the whole history finds."""
        counted, maybe, seen = self._history.look(partial(cleared_part, expectation=expectation))
        return concluded(counted, maybe, seen, expectation)

    def around(self) -> list[Event]:
        """Return the events of no group that are needed one by one: of the kinds `counts.AROUND`."""
        (found,) = self._history.look(_rows_of_part, Rows("kind", AROUND, is_grouped=False))
        return events_of(found)

    def may_have_moved(self, expectation: Expectation, surrounded: QueueContext) -> list[str]:
        """Return the groups with a receive that was asked for before a move task to its queue began, answered after.

        What it brought may have come back with the task, and the checker leaves that open. Whatever else may have was
        received more than once, or from a DLQ, and its group is suspect for that.
        """
        look = partial(_moved_in_part, expectation=expectation, moves=tuple(surrounded.moves))
        (found,) = self._history.look(look, Rows("kind", (Kind.RECEIVED.value,), _MOVED_COLUMNS, is_grouped=False))
        return [group for group in found.column("message_group_id").unique().to_pylist() if group is not None]

    def timed(self, expectation: Expectation) -> Timed:
        """Return what the history says of the clocks that timed it, of which there are several.

        A publish is the cause of a receive with its idx and body, if one clock timed all its tries and all publishes
        are on record; a receive is the cause of what was done with its receipt handle.
        """
        return timings(
            *self._history.look(partial(timed_part, expectation=expectation), Rows("kind", TIMED, TIMED_COLUMNS))
        )

    def findings(self, suspects: Collection[str], expectation: Expectation, surrounded: QueueContext) -> Findings:
        """Run the checker on every suspect group."""
        if not suspects:
            return gathered({}, ())
        look = partial(find_in_part, expectation=expectation, around=surrounded)
        counted, first = self._history.look(look, Rows("message_group_id", suspects))
        counts: Counter[str] = Counter()
        for row in counted.to_pylist():
            counts[row["anomaly"]] += row["count"]
        return gathered(counts, least_rows(first.to_pylist()))

    def recoveries(self, around: Iterable[Event]) -> Iterator[Recovery]:
        """Yield the faults that ended, of each queue or topic they concern; `around` are the events of `around`."""
        faults = [
            (event, event.queue, event.responded_at_us)
            for event in around
            if event.kind == Kind.FAULT and event.outcome == Outcome.OK
        ]
        ended = tuple((queue, at_us) for _, queue, at_us in faults if queue is not None and at_us is not None)
        look = partial(_answered_in_part, ended=frozenset(ended))
        (found,) = self._history.look(
            look, Rows("kind", CALLS, ("queue", "outcome", "responded_at_us"), is_grouped=False)
        )
        answered: dict[tuple[str, int], int] = {}
        for row in found.to_pylist():
            key = row["queue"], row["ended_us"]
            answered[key] = min(row["answered_us"], answered.get(key, row["answered_us"]))
        for fault, queue, ended_us in faults:
            if queue is not None and ended_us is not None:
                yield Recovery(
                    queue=queue,
                    began_us=fault.invoked_at_us,
                    ended_us=ended_us,
                    detail=fault.detail,
                    answered_us=answered.get((queue, ended_us)),
                )

    def overview(self) -> list[Mapping[str, Any]]:
        """Return what events have in common that say what a history is, and how many they are, as `count`.

        `kind` is of FRAMED and of what names a queue messages come from, `queue` of those, `worker` of FRAMED, `detail`
        of topologies; `is_of_no_group` says that they need a message group to be judged, and have none.
        """
        (found,) = self._history.look(_overview_of_part, Rows(columns=_OVERVIEW_COLUMNS, is_grouped=False))
        rows = found.group_by(list(_OVERVIEW), use_threads=False).aggregate([("count", "sum")])
        return rows.rename_columns([*_OVERVIEW, "count"]).to_pylist()  # type: ignore[no-any-return]

    def series(self, expectation: Expectation, violations: Sequence[Violation] = ()) -> Series:
        """Return what the report's charts show; groups with violations get a timeline."""
        return series(self._history, expectation=expectation, violations=violations)


def opened(root: Path, *, events_max: int | None = None) -> Engine | None:
    """Read the folder of a recording into memory; None when it has more than `events_max` events."""
    history = read_into_memory(root, events_max=events_max)
    return None if history is None else Engine(history)


def read_into_memory(root: Path, *, events_max: int | None = None) -> InMemory | None:
    """Return the events of a recording; None when there are more than `events_max`."""
    folder = folders.folder_of(root)
    tables, event_count = [SCHEMA.empty_table()], 0
    with readable(folder, *UNREADABLE):
        for part in _parts_of(folder):
            event_count += part.events if isinstance(part, Piece) else len(part)
            if events_max is not None and event_count > events_max:
                return None
            tables += undamaged(part) if isinstance(part, Piece) else [part]
        return InMemory(pa.concat_tables(tables).combine_chunks())


def _parts_of(folder: Path) -> Iterator[pa.Table | Piece]:
    """Yield parts of journals, or pieces of Parquet, which say how many events they have before they are read."""
    if not folders.is_journals(folder):
        yield from pieces(folder)[0]
        return
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        yield from read_parts(path, events_max=_PART_EVENTS)


def _rows_of_part(part: Iterable[Events]) -> list[pa.Table]:
    return [pa.concat_tables([SCHEMA.empty_table(), *(events.table for events in part)])]


def _moved_in_part(part: Iterable[Events], *, expectation: Expectation, moves: Sequence[Move]) -> list[pa.Table]:
    bound_us = expectation.clock_bound_us
    found = [pa.table({"message_group_id": pa.array([], pa.string())})]
    for events in part:
        invoked_us = events.numbers("invoked_at_us", 0) - bound_us
        answered_us = events.numbers("responded_at_us", _NEVER_US)
        during = np.zeros(len(events), dtype=bool)
        for move in moves:
            is_there = events.is_equal("queue", move.destination)
            during |= is_there & (invoked_us <= move.began_at_us) & (answered_us >= move.began_at_us - bound_us)
        during &= events.is_equal("message_run", expectation.run)
        found.append(events.table.select(["message_group_id"]).filter(pa.array(during)))
    return [pa.concat_tables(found).group_by("message_group_id", use_threads=False).aggregate([])]


_ANSWERED = pa.schema({"queue": pa.string(), "ended_us": pa.int64(), "answered_us": pa.int64()})


def _answered_in_part(part: Iterable[Events], *, ended: frozenset[tuple[str, int]]) -> list[pa.Table]:
    """Return when the first call of a queue was answered at or after the end of each fault there."""
    first: dict[tuple[str, int], int] = {}
    for events in part:
        answered_us = events.numbers("responded_at_us")
        is_answered = events.is_equal("outcome", Outcome.OK) & (answered_us != NONE)
        for queue in {queue for queue, _ in ended}:
            in_order = np.sort(answered_us[is_answered & events.is_equal("queue", queue)])
            for key in (key for key in ended if key[0] == queue):
                for at_us in in_order[np.searchsorted(in_order, key[1]) :][:1].tolist():
                    first[key] = min(at_us, first.get(key, at_us))
    rows = [{"queue": queue, "ended_us": end_us, "answered_us": at_us} for (queue, end_us), at_us in first.items()]
    return [pa.Table.from_pylist(rows, _ANSWERED)]


def _overview_of_part(part: Iterable[Events]) -> list[pa.Table]:
    types = {name: SCHEMA.field(name).type for name in _OVERVIEW[:-1]}
    found = [pa.schema({**types, "is_of_no_group": pa.bool_(), "count": pa.int64()}).empty_table()]
    for events in part:
        column = events.table.column
        kind, none = column("kind"), pa.scalar(None, pa.string())
        is_framed, is_consumed = (pc.is_in(kind, pa.array(kinds)) for kinds in (FRAMED, _CONSUMED))
        is_of_message = pc.is_in(kind, pa.array(_OF_MESSAGES))
        is_of_no_group = pc.and_(pc.is_null(column("message_group_id")), pc.not_equal(column("outcome"), "fail"))
        counted = {
            "schema_version": column("schema_version"),
            "run": column("run"),
            "kind": pc.if_else(pc.or_(is_framed, is_consumed), kind, none),
            "worker": pc.if_else(is_framed, column("worker"), none),
            "queue": pc.if_else(is_consumed, column("queue"), none),
            "detail": pc.if_else(pc.equal(kind, Kind.TOPOLOGY.value), column("detail"), none),
            "is_of_no_group": pc.and_(is_of_message, is_of_no_group),
        }
        rows = pa.table(counted).group_by(list(_OVERVIEW), use_threads=False).aggregate([([], "count_all")])
        found.append(rows.rename_columns([*_OVERVIEW, "count"]).cast(found[0].schema))
    return [pa.concat_tables(found)]
