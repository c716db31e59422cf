"""A history as this process reads it: a recording of up to some hundred thousand events, judged without Spark.

All events are held in memory as Arrow columns. The pass over them, the checker and the judge are those that Spark's
tasks and its driver run.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import eq, itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.history.events import Event, Kind, Outcome
from sluice.judge import recording
from sluice.judge.checker import Expectation, QueueContext
from sluice.judge.checker.verdict import Violation
from sluice.judge.counts import AROUND, CALLS, count
from sluice.judge.folder.series_schema import Series
from sluice.judge.groups import UNKNOWN, UNKNOWNS_MAX, WITNESSED_MAX, Findings, found_in, gathered, groups_of
from sluice.judge.judge import Recovery
from sluice.judge.local_series import series
from sluice.judge.reading.columns import NONE, Events
from sluice.judge.reading.damage import UNREADABLE, readable, undamaged
from sluice.judge.reading.parquet_files import Piece, pieces
from sluice.judge.screening.buckets import MAYBE, Cleared, cleared, concluded, group_names
from sluice.judge.screening.encode import encode_events
from sluice.judge.screening.rollup import Messages
from sluice.judge.screening.stretches import needed
from sluice.judge.timing import SETTLED, TIMED, Timed, least
from sluice.recorder.journal import SCHEMA, SUFFIX, events_of, read_parts

EVENTS_MAX = 300_000
"""Events up to which a recording is judged in this process unless somebody says otherwise."""
_PART_EVENTS = 10_000  # of a journal, read and settled together: batches of few events take ten times their size
_CHECKED_EVENTS = 20_000  # made of columns together: one group at a time takes ten times as long
_KEPT_MAX = 1_000  # findings of one anomaly, of which those with the least keys are kept
_NEVER_US = 2**62


def opened(root: Path, *, events_max: int | None = None) -> "LocalEngine | None":
    """Read the folder of a recording into memory; None when it has more than `events_max` events."""
    folder = recording.folder_of(root)
    with readable(folder, *UNREADABLE):
        table = _read(folder, events_max)
    return None if table is None else LocalEngine(table)


def _read(folder: Path, events_max: int | None) -> pa.Table | None:
    tables, event_count = [SCHEMA.empty_table()], 0
    for part in _parts(folder):
        event_count += part.events if isinstance(part, Piece) else len(part)
        if events_max is not None and event_count > events_max:
            return None
        tables += undamaged(part) if isinstance(part, Piece) else [part]
    return pa.concat_tables(tables).combine_chunks()


def _parts(folder: Path) -> Iterator[pa.Table | Piece]:
    """Yield parts of journals, or pieces of Parquet, which say how many events they have before they are read."""
    if not recording.is_journals(folder):
        yield from pieces(folder)[0]
        return
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        yield from read_parts(path, events_max=_PART_EVENTS)


class LocalEngine:
    """Reads a history of settled events that is in memory."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._events = Events(table)

    def screen(self, expectation: Expectation) -> Cleared:
        """Return what one pass over the whole history finds."""
        messages = Messages(expectation)
        messages.add(encode_events(self._events, expectation))
        maybe, seen = MAYBE.empty_table(), []
        if len(messages):
            maybe, observed = cleared(messages, group_names(self._events), expectation)
            seen.append(observed)
        return concluded(count(self._events, expectation), maybe, seen, expectation)

    def around(self) -> Iterable[Event]:
        """Return the events of the kinds `counts.AROUND`."""
        return self._of_kind(*AROUND)

    def may_have_moved(self, expectation: Expectation, surrounded: QueueContext) -> Collection[str]:
        """Return the groups with a receive during which a move task to its queue began."""
        events = self._events
        bound_us = expectation.clock_bound_us
        invoked_us = events.numbers("invoked_at_us", 0) - bound_us
        answered_us = events.numbers("responded_at_us", _NEVER_US)
        is_ours = events.decoded("kind", lambda kind: kind == Kind.RECEIVED, bool)
        is_ours &= events.decoded("message_run", lambda run: run == expectation.run, bool)
        during = np.zeros(len(events), dtype=bool)
        for move in surrounded.moves:
            is_there = events.decoded("queue", partial(eq, move.destination), bool)
            during |= is_there & (invoked_us <= move.began_at_us) & (answered_us >= move.began_at_us - bound_us)
        groups = self.table.column("message_group_id").filter(pa.array(is_ours & during))
        return [group for group in groups.unique().to_pylist() if group is not None]

    def timed(self, expectation: Expectation) -> Timed:
        """Return what the history says of the clocks that timed it."""
        column = self.table.column
        is_timed = pc.and_(pc.is_in(column("kind"), pa.array(TIMED)), pc.is_valid(column("message_group_id")))
        events = self.table.filter(is_timed)
        events = events.set_column(
            events.schema.get_field_index("clock_id"), "clock_id", pc.fill_null(events.column("clock_id"), "")
        )
        clocks = events.group_by("message_group_id").aggregate([("clock_id", "min"), ("clock_id", "max")])
        several = clocks.filter(pc.not_equal(clocks.column("clock_id_min"), clocks.column("clock_id_max")))
        instants = [end for name in ("invoked_at_us", "responded_at_us") for end in _ends(events.column(name))]
        return Timed(
            groups=several.column("message_group_id").to_pylist(),
            ahead_us=least([*_by_publishes(events, expectation), *_by_handles(events)]),
            span_us=max(instants, default=0) - min(instants, default=0),
        )

    def findings(self, suspects: Collection[str], expectation: Expectation, surrounded: QueueContext) -> Findings:
        """Run the checker on every suspect group."""
        counts: Counter[str] = Counter()
        first: dict[str, list[dict[str, str]]] = defaultdict(list)
        for events, idxs in self._groups(suspects, expectation, surrounded):
            for row in found_in(events, expectation, surrounded, idxs):
                counts[row["anomaly"]] += 1
                first[row["anomaly"]].append(row)
                if len(first[row["anomaly"]]) > _KEPT_MAX:
                    first[row["anomaly"]] = _least(row["anomaly"], first[row["anomaly"]])
        return gathered(counts, (row for anomaly in sorted(first) for row in _least(anomaly, first[anomaly])))

    def _groups(
        self, names: Collection[str], expectation: Expectation, surrounded: QueueContext
    ) -> Iterator[tuple[list[Event], frozenset[int] | None]]:
        """Yield what is needed of each of these groups, and of which messages the findings count."""
        wanted = pa.array(sorted(names), pa.string())
        whole = groups_of(self.table.filter(pc.is_in(self.table.column("message_group_id"), wanted)))
        groups = [needed(group, expectation, surrounded) for group in whole]
        while groups:
            together = [groups.pop()]
            while groups and sum(len(group.events) for group in together) < _CHECKED_EVENTS:
                together.append(groups.pop())
            events = iter(events_of(pa.concat_tables([group.events for group in together])))
            for group in together:
                yield [next(events) for _ in range(len(group.events))], group.idxs

    def recoveries(self) -> Iterator[Recovery]:
        """Yield the faults that ended, of each queue or topic they concern."""
        codes, queues = self._events.codes("queue")
        is_answered = self._events.decoded("kind", lambda kind: kind in CALLS, bool)
        is_answered &= self._events.decoded("outcome", lambda outcome: outcome == Outcome.OK, bool)
        responded_us = self._events.numbers("responded_at_us")
        is_answered &= responded_us != NONE
        faults = [fault for fault in self._of_kind(Kind.FAULT.value) if fault.outcome == Outcome.OK]
        in_order = {
            queue: np.sort(responded_us[is_answered & (codes == queues.index(queue))])
            for queue in {fault.queue for fault in faults}
        }
        for fault in faults:
            if fault.queue is not None and fault.responded_at_us is not None:
                after = in_order[fault.queue][np.searchsorted(in_order[fault.queue], fault.responded_at_us) :]
                yield Recovery(
                    queue=fault.queue,
                    began_us=fault.invoked_at_us,
                    ended_us=fault.responded_at_us,
                    detail=fault.detail,
                    answered_us=int(after[0]) if len(after) else None,
                )

    def series(self, expectation: Expectation, violations: Sequence[Violation]) -> Series:
        """Return what the report's charts show."""
        return series(self.table, expectation=expectation, violations=violations)

    def overview(self) -> Sequence[Mapping[str, Any]]:
        """Return what the history says of itself, see `recording.OVERVIEW`."""
        column = self.table.column
        kind, none = column("kind"), pa.scalar(None, pa.string())
        is_framed = pc.is_in(kind, pa.array(recording.FRAMED))
        is_consumed = pc.is_in(kind, pa.array(recording.CONSUMED))
        is_of_message = pc.is_in(kind, pa.array(recording.OF_MESSAGES))
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
        rows = pa.table(counted).group_by(list(recording.OVERVIEW), use_threads=False).aggregate([([], "count_all")])
        return rows.rename_columns([*recording.OVERVIEW, "count"]).to_pylist()  # type: ignore[no-any-return]

    def _of_kind(self, *kinds: str) -> list[Event]:
        return events_of(self.table.filter(pc.is_in(self.table.column("kind"), pa.array(kinds))))


def _ends(column: pa.ChunkedArray) -> list[int]:
    ends = pc.min_max(column).as_py()
    return [end for end in ends.values() if end is not None]


def _by_publishes(events: pa.Table, expectation: Expectation) -> Iterator[tuple[str, str, int]]:
    if not expectation.is_publishing_recorded:
        return
    is_published = pc.equal(events.column("kind"), Kind.PUBLISHED.value)
    is_received = pc.and_(
        pc.equal(events.column("kind"), Kind.RECEIVED.value),
        pc.fill_null(pc.equal(events.column("message_run"), expectation.run), fill_value=False),
    )
    keys = ["message_group_id", "idx", "body_hash"]
    yield from _caused(
        events.filter(is_published), events.filter(is_received), keys, ("invoked_at_us", "responded_at_us")
    )


def _by_handles(events: pa.Table) -> Iterator[tuple[str, str, int]]:
    is_received = pc.equal(events.column("kind"), Kind.RECEIVED.value)
    is_settled = pc.is_in(events.column("kind"), pa.array(SETTLED))
    keys = ["queue", "receipt_handle_hash"]
    yield from _caused(
        events.filter(is_received), events.filter(is_settled), keys, ("responded_at_us", "invoked_at_us")
    )


def _caused(
    causes: pa.Table, effects: pa.Table, keys: list[str], instants: tuple[str, str]
) -> Iterator[tuple[str, str, int]]:
    """Yield (clock, other clock, the least time between) of causes by one clock with effects by another."""
    for name in keys:  # nothing equals what is not known
        causes, effects = (table.filter(pc.is_valid(table.column(name))) for table in (causes, effects))
    since, until = instants
    first = causes.group_by(keys).aggregate([("clock_id", "min"), ("clock_id", "max"), (since, "min")])
    of_one = first.filter(pc.equal(first.column("clock_id_min"), first.column("clock_id_max")))
    then = effects.group_by([*keys, "clock_id"]).aggregate([(until, "min")])
    both = of_one.join(then, keys, join_type="inner").filter(pc.field("clock_id_min") != pc.field("clock_id"))
    times = pc.subtract(both.column(f"{until}_min"), both.column(f"{since}_min"))
    found = pa.table({"clock": both.column("clock_id_min"), "other": both.column("clock_id"), "us": times})
    for row in found.group_by(["clock", "other"]).aggregate([("us", "min")]).to_pylist():
        if row["us_min"] is not None:
            yield row["clock"], row["other"], row["us_min"]


def _least(anomaly: str, rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    limit = UNKNOWNS_MAX if anomaly == UNKNOWN else WITNESSED_MAX
    return heapq.nsmallest(limit, rows, key=itemgetter("sort_key", "finding"))
