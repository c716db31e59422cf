"""Compute the facts that the judge needs of a history, part by part, in this process or in Spark's tasks.

Each fact is computed by a function of one part of the history (`parts`); the results of all parts are then joined. A
recording of up to some hundred thousand events is one part, in memory, as Arrow columns.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.history.events import CallOutcome, HistoryEvent, Kind
from sluice.judge.checker import Expectation, IdUse, QueueContext
from sluice.judge.checker.group import ENQUEUED_WITHIN_US, UNANSWERED_WITHIN_US
from sluice.judge.checker.verdict import Violation
from sluice.judge.conduct import conduct
from sluice.judge.counts import AROUND, CALLS
from sluice.judge.folder.series_schema import RunSeries
from sluice.judge.groups import Findings, find_in_part, gather, least_rows
from sluice.judge.parts import History, InMemory
from sluice.judge.reading import folders
from sluice.judge.reading.columns import NONE, Events, hash_numbers
from sluice.judge.reading.damage import UNREADABLE, read_whole, readable
from sluice.judge.reading.parquet_files import Piece, RowSelection, pieces
from sluice.judge.screening.buckets import ScreeningResult, conclude, screen_part
from sluice.judge.series import series
from sluice.judge.timing import TIMED, TIMED_COLUMNS, ClockTimings, timings, timings_of_part
from sluice.recorder.journal import SCHEMA, SUFFIX, events_of, read_parts

EVENTS_MAX = 300_000
"""The most events of a recording that is judged in this process, unless the command line says otherwise."""
_PART_EVENTS = 10_000  # of a journal that are read together: batches of few events take ten times their size in memory
_NEVER_US = 2**62
FRAMED = (Kind.OPENED.value, Kind.CLOSED.value, Kind.TOPOLOGY.value)
"""Kinds of events in which recorders identify themselves."""
_CONSUMED = (
    Kind.POLL.value,
    Kind.RECEIVED.value,
    Kind.DELETED.value,
)  # their `queue` is one from which messages are received
_DETAILED = (Kind.OPENED.value, Kind.TOPOLOGY.value)
_BEGUN = (*FRAMED, Kind.PUBLISHED.value, Kind.POLL.value, Kind.RECEIVED.value)
"""Kinds of events for which `overview` has the recorder and the first instant."""
_OF_MESSAGES = (Kind.RECEIVED.value, Kind.DELETED.value, Kind.VISIBILITY_CHANGED.value)
"""Kinds of events that are judged by message group, unless they failed: then the handle was invalid."""
_OVERVIEW = ("schema_version", "run", "kind", "worker", "queue", "detail", "is_of_no_group", "opened_us")
_OVERVIEW_COLUMNS = (*_OVERVIEW[:-2], "message_group_id", "outcome", "invoked_at_us")
_ANSWERED_KINDS = (Kind.PUBLISHED.value, Kind.RECEIVED.value)
_ANSWERED_COLUMNS = ("kind", "queue", "message_group_id", "sqs_message_id", "sqs_sequence_number")
_COUNTED_COLUMNS = (
    *("kind", "queue", "message_group_id", "sqs_message_id", "receive_count"),
    *("sent_at_us", "first_received_at_us"),
)
_ID_COLUMNS = (
    *("kind", "outcome", "queue", "message_group_id", "idx", "deduplication_id", "body_hash"),
    *("sns_message_id", "sqs_message_id"),
    *("invoked_at_us", "responded_at_us"),
)
_MOVED_COLUMNS = ("message_group_id", "queue", "message_run", "invoked_at_us", "responded_at_us", "sent_at_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A fault of a queue or topic, and the first successful call there after its end; None if there was none."""

    queue: str
    began_us: int | None
    ended_us: int
    detail: str | None
    answered_us: int | None


class JudgeEngine:
    """Reads one settled history."""

    def __init__(self, history: History) -> None:
        self._history = history

    def screen(self, expectation: Expectation) -> ScreeningResult:
        """Return the results of one pass over the whole history."""
        counted, maybe, seen = self._history.look(partial(screen_part, expectation=expectation))
        return conclude(counted, maybe, seen, expectation)

    def around(self) -> list[HistoryEvent]:
        """Return the events without a group, of the kinds `counts.AROUND`, which the judge needs one by one."""
        (found,) = self._history.look(_select_in_part, RowSelection("kind", AROUND, is_grouped=False))
        return events_of(found)

    def around_moves_and_purges(self, expectation: Expectation, surrounded: QueueContext) -> list[str]:
        """Return the groups with a receive that may be affected by a move task or a purge.

        A receive that was called before a move task to its queue began, and answered after it, may have returned a
        moved message; the checker leaves that open. A receive that was called after a purge of its queue may have
        returned a message from before the purge. Other messages that a task may have moved were received more than
        once, or from a DLQ, so they are suspect anyway.
        """
        look = partial(_moves_in_part, expectation=expectation, surrounded=surrounded)
        (found,) = self._history.look(
            look, RowSelection("kind", (Kind.RECEIVED.value,), _MOVED_COLUMNS, is_grouped=False)
        )
        return [group for group in found.column("message_group_id").unique().to_pylist() if group is not None]

    def unseen_receives(self, expectation: Expectation) -> Counter[str]:
        """Return for each queue how many receives are missing in the history according to the receive counts.

        Not those of messages that may have been received before the recording of the queue began. Each receive whose
        answer was lost may have had each message.
        """
        look = partial(_unseen_in_part, expectation=expectation)
        (found,) = self._history.look(look, RowSelection("kind", (Kind.RECEIVED.value,), _COUNTED_COLUMNS))
        counts: Counter[str] = Counter()
        for row in found.to_pylist():
            counts[row["queue"]] += row["count"]
        return counts

    def shared_ids(self) -> Mapping[tuple[str, int], Sequence[IdUse]]:
        """Return every publish under a deduplication id that several messages have, by (group, idx) of each message.

        A deduplication id holds for a whole queue or topic, unless its scope is the message group (DED-01, SNS-19), so
        only one of these messages is delivered. If a message has no id, its body counts as the id. Messages with the
        same id share one list.
        """
        (found,) = self._history.look(_ids_of_part)
        keys = found.group_by("key", use_threads=False).aggregate([("message", "count_distinct")])
        keys = keys.filter(pc.greater(keys.column("message_count_distinct"), 1)).column("key")
        if not len(keys):
            return {}
        look = partial(_publishes_in_part, keys=keys.combine_chunks().to_pylist())
        (rows,) = self._history.look(look, RowSelection("kind", (Kind.PUBLISHED.value,), _ID_COLUMNS, is_grouped=False))
        of_key: dict[int, list[IdUse]] = defaultdict(list)
        of_message: dict[tuple[str, int], set[int]] = defaultdict(set)
        for row in rows.sort_by("invoked_at_us").to_pylist():
            message = row["message_group_id"] or "", row["idx"] or 0
            id_ = row["sns_message_id"] or row["sqs_message_id"]
            of_key[row["key"]].append(IdUse(row["invoked_at_us"], row["responded_at_us"], row["queue"], message, id_))
            of_message[message].add(row["key"])
        return {
            message: of_key[ids.pop()]
            if len(ids) == 1
            else sorted((use for key in ids for use in of_key[key]), key=lambda use: use.from_us)
            for message, ids in of_message.items()
        }

    def groups_with_unconfirmed_ids(self, expectation: Expectation) -> list[str]:
        """Return the groups in which a message id that a queue acknowledged was never received from it."""
        (found,) = self._history.look(
            partial(_unconfirmed_ids_in_part, expectation=expectation),
            RowSelection("kind", _ANSWERED_KINDS, _ANSWERED_COLUMNS),
        )
        return [group for group in found.column("message_group_id").to_pylist() if group is not None]

    def clock_timings(self, expectation: Expectation) -> ClockTimings:
        """Return what the history proves about the differences of its clocks.

        A publish is the cause of a receive with its idx and body, if one clock timed all its tries and all publishes
        are on record; a receive is the cause of what was done with its receipt handle.
        """
        return timings(
            *self._history.look(
                partial(timings_of_part, expectation=expectation), RowSelection("kind", TIMED, TIMED_COLUMNS)
            )
        )

    def findings(self, suspects: Collection[str], expectation: Expectation, surrounded: QueueContext) -> Findings:
        """Run the checker on every suspect group."""
        if not suspects:
            return gather({}, ())
        look = partial(find_in_part, expectation=expectation, around=surrounded)
        counted, first = self._history.look(look, RowSelection("message_group_id", suspects))
        counts: Counter[str] = Counter()
        for row in counted.to_pylist():
            counts[row["anomaly"]] += row["count"]
        return gather(counts, least_rows(first.to_pylist()))

    def recoveries(self, around: Iterable[HistoryEvent]) -> Iterator[Recovery]:
        """Yield the faults that ended, of each queue or topic they concern; `around` are the events of `around`."""
        faults = [
            (event, event.queue, event.responded_at_us)
            for event in around
            if event.kind == Kind.FAULT and event.outcome == CallOutcome.OK
        ]
        ended = tuple((queue, at_us) for _, queue, at_us in faults if queue is not None and at_us is not None)
        look = partial(_first_answers_in_part, ended=frozenset(ended))
        (found,) = self._history.look(
            look, RowSelection("kind", CALLS, ("queue", "outcome", "responded_at_us"), is_grouped=False)
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
        """Return counts of events by kind, queue, worker and detail, as far as they describe the recording itself.

        Each row has a `count`. `kind` is set for kinds in FRAMED, publishes, and events that name a queue; `queue` for
        publishes and these; `worker` for FRAMED, publishes, polls and receives; `detail` for openings and topologies.
        `is_of_no_group` says that an event needs a message group and has none.
        """
        (found,) = self._history.look(_overview_of_part, RowSelection(columns=_OVERVIEW_COLUMNS, is_grouped=False))
        rows = found.group_by(list(_OVERVIEW), use_threads=False).aggregate([("count", "sum"), ("least_us", "min")])
        return rows.rename_columns([*_OVERVIEW, "count", "least_us"]).to_pylist()  # type: ignore[no-any-return]

    def conduct(self, timeouts: Mapping[str, int]) -> dict[str, Any]:
        """Return how the consumers of a recording behaved, as `conduct.conduct`."""
        return conduct(self._history, timeouts)

    def series(self, expectation: Expectation, violations: Sequence[Violation] = ()) -> RunSeries:
        """Return the series for the report's charts; groups with violations get a timeline."""
        return series(self._history, expectation=expectation, violations=violations)


def open_in_memory(root: Path, *, events_max: int | None = None) -> JudgeEngine | None:
    """Read the folder of a recording into memory; None when it has more than `events_max` events."""
    history = read_into_memory(root, events_max=events_max)
    return None if history is None else JudgeEngine(history)


def read_into_memory(root: Path, *, events_max: int | None = None) -> InMemory | None:
    """Return the events of a recording; None when there are more than `events_max`."""
    folder = folders.folder_of(root)
    tables, event_count = [SCHEMA.empty_table()], 0
    with readable(folder, *UNREADABLE):
        for part in _parts_of(folder):
            event_count += part.events if isinstance(part, Piece) else len(part)
            if events_max is not None and event_count > events_max:
                return None
            tables += read_whole(part) if isinstance(part, Piece) else [part]
        return InMemory(pa.concat_tables(tables).combine_chunks())


def _parts_of(folder: Path) -> Iterator[pa.Table | Piece]:
    """Yield parts of journals, or pieces of Parquet, which know their number of events before they are read."""
    if not folders.is_journals(folder):
        yield from pieces(folder)[0]
        return
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        yield from read_parts(path, events_max=_PART_EVENTS)


def _select_in_part(part: Iterable[Events]) -> list[pa.Table]:
    return [pa.concat_tables([SCHEMA.empty_table(), *(events.table for events in part)])]


def _moves_in_part(part: Iterable[Events], *, expectation: Expectation, surrounded: QueueContext) -> list[pa.Table]:
    bound_us = expectation.clock_bound_us
    found = [pa.table({"message_group_id": pa.array([], pa.string())})]
    for events in part:
        invoked_us = events.numbers("invoked_at_us", 0) - bound_us
        answered_us = events.numbers("responded_at_us", _NEVER_US)
        during = np.zeros(len(events), dtype=bool)
        for move in surrounded.moves:
            is_there = events.is_equal("queue", move.destination)
            during |= is_there & (invoked_us <= move.began_at_us) & (answered_us >= move.began_at_us - bound_us)
        for purge in surrounded.purges:
            is_there = events.is_equal("queue", purge.queue) & (answered_us >= purge.ended_at_us)
            during |= is_there & (events.numbers("sent_at_us", 0) <= purge.began_at_us)
        during &= events.is_equal("message_run", expectation.run)
        found.append(events.table.select(["message_group_id"]).filter(pa.array(during)))
    return [pa.concat_tables(found).group_by("message_group_id", use_threads=False).aggregate([])]


def _unconfirmed_ids_in_part(part: Iterable[Events], *, expectation: Expectation) -> list[pa.Table]:
    none = SCHEMA.empty_table().select(_ANSWERED_COLUMNS)
    table = pa.concat_tables([none, *(events.table.select(_ANSWERED_COLUMNS) for events in part)])
    is_here = pc.is_in(table.column("queue"), pa.array(expectation.queues, pa.string()))
    is_sent = pc.and_(is_here, pc.equal(table.column("kind"), Kind.PUBLISHED.value))
    is_sent = pc.and_(is_sent, pc.is_valid(table.column("sqs_message_id")))
    keys = ["message_group_id", "queue", "sqs_message_id", "sqs_sequence_number"]
    sent = table.filter(is_sent).select(keys)
    if not len(sent):
        return [sent.select(keys[:1])]
    received = table.filter(pc.equal(table.column("kind"), Kind.RECEIVED.value)).select(keys)
    missing = sent.join(received, keys=keys, join_type="left anti", use_threads=False)
    return [missing.select(keys[:1]).group_by(keys[:1], use_threads=False).aggregate([])]


def _unseen_in_part(part: Iterable[Events], *, expectation: Expectation) -> list[pa.Table]:
    found = [pa.schema({"queue": pa.string(), "count": pa.int64()}).empty_table()]
    none = SCHEMA.empty_table().select(_COUNTED_COLUMNS)
    table = pa.concat_tables([none, *(events.table.select(_COUNTED_COLUMNS) for events in part)])
    for queue in expectation.queues:
        of_queue = table.filter(pc.equal(table.column("queue"), queue))
        since_us = pc.coalesce(of_queue.column("first_received_at_us"), of_queue.column("sent_at_us"))
        instances = (
            of_queue.append_column("since_us", since_us)
            .group_by("sqs_message_id", use_threads=False)
            .aggregate([("receive_count", "max"), ("receive_count", "count"), ("since_us", "min")])
        )
        began_us = expectation.receiving_began_us.get(queue, -_NEVER_US) + ENQUEUED_WITHIN_US
        is_known = pc.greater_equal(instances.column("since_us_min"), began_us)
        instances = instances.filter(pc.fill_null(is_known, queue not in expectation.receiving_began_us))
        recorded = pc.add(instances.column("receive_count_count"), expectation.lost_receives.get(queue, 0))
        missing = pc.subtract(instances.column("receive_count_max"), recorded)
        count = pc.sum(pc.max_element_wise(missing, 0)).as_py() or 0
        found.append(pa.table({"queue": [queue], "count": [count]}, found[0].schema))
    return [pa.concat_tables(found)]


_IDS = pa.schema({"key": pa.uint64(), "message": pa.uint64()})


def _ids_of_part(part: Iterable[Events]) -> list[pa.Table]:
    """Return the messages that were published under each deduplication id, both as hashes."""
    found = [_IDS.empty_table()]
    for events in part:
        message = hash_numbers(events.hashes("message_group_id"), events.numbers("idx", 0))
        where = _is_published(events)
        found.append(pa.table({"key": _id_hashes(events)[where], "message": message[where]}, _IDS))
    return [pa.concat_tables(found).group_by(_IDS.names, use_threads=False).aggregate([])]


def _publishes_in_part(part: Iterable[Events], *, keys: Sequence[int]) -> list[pa.Table]:
    """Return the publishes under some deduplication ids: their places, messages, and times of effect."""
    times = dict.fromkeys(("invoked_at_us", "responded_at_us"), pa.int64())
    texts = ("queue", "message_group_id", "sns_message_id", "sqs_message_id")
    names = {**dict.fromkeys(texts, pa.string()), "idx": pa.int64()}
    found = [pa.schema({**names, "key": pa.uint64(), **times}).empty_table()]
    for events in part:
        key = _id_hashes(events)
        where = np.flatnonzero(_is_published(events) & np.isin(key, np.array(keys, np.uint64)))
        invoked_us = events.numbers("invoked_at_us", 0)
        answered_us = events.numbers("responded_at_us", _NEVER_US)
        done_us = np.minimum(answered_us, invoked_us + UNANSWERED_WITHIN_US)
        rows = events.table.select(list(names)).take(pa.array(where))
        rows = rows.append_column("key", pa.array(key[where])).append_column(
            "invoked_at_us", pa.array(invoked_us[where])
        )
        found.append(rows.append_column("responded_at_us", pa.array(done_us[where])))
    return [pa.concat_tables(found)]


def _is_published(events: Events) -> np.ndarray:
    found: np.ndarray = events.is_equal("kind", Kind.PUBLISHED.value) & ~events.is_equal(
        "outcome", CallOutcome.FAIL.value
    )
    return found


def _id_hashes(events: Events) -> np.ndarray:
    ids = events.hashes("deduplication_id")
    return np.where(ids == 0, events.hashes("body_hash"), ids)


_ANSWERED = pa.schema({"queue": pa.string(), "ended_us": pa.int64(), "answered_us": pa.int64()})


def _first_answers_in_part(part: Iterable[Events], *, ended: frozenset[tuple[str, int]]) -> list[pa.Table]:
    """Return when the first call of a queue was answered at or after the end of each fault there."""
    first: dict[tuple[str, int], int] = {}
    for events in part:
        answered_us = events.numbers("responded_at_us")
        is_answered = events.is_equal("outcome", CallOutcome.OK) & (answered_us != NONE)
        for queue in {queue for queue, _ in ended}:
            in_order = np.sort(answered_us[is_answered & events.is_equal("queue", queue)])
            for key in (key for key in ended if key[0] == queue):
                for at_us in in_order[np.searchsorted(in_order, key[1]) :][:1].tolist():
                    first[key] = min(at_us, first.get(key, at_us))
    rows = [{"queue": queue, "ended_us": end_us, "answered_us": at_us} for (queue, end_us), at_us in first.items()]
    return [pa.Table.from_pylist(rows, _ANSWERED)]


def _overview_of_part(part: Iterable[Events]) -> list[pa.Table]:
    types = {name: SCHEMA.field(name).type for name in _OVERVIEW[:-2]}
    counts = {"is_of_no_group": pa.bool_(), **dict.fromkeys(("opened_us", "count", "least_us"), pa.int64())}
    found = [pa.schema({**types, **counts}).empty_table()]
    for events in part:
        column = events.table.column
        kind, none = column("kind"), pa.scalar(None, pa.string())
        is_begun, is_consumed = (pc.is_in(kind, pa.array(kinds)) for kinds in (_BEGUN, _CONSUMED))
        is_of_message = pc.is_in(kind, pa.array(_OF_MESSAGES))
        is_of_queue = pc.or_(is_consumed, pc.or_(is_of_message, pc.equal(kind, Kind.PUBLISHED.value)))
        is_of_no_group = pc.and_(pc.is_null(column("message_group_id")), pc.not_equal(column("outcome"), "fail"))
        counted = {
            "schema_version": column("schema_version"),
            "run": column("run"),
            "kind": pc.if_else(pc.or_(is_begun, is_of_queue), kind, none),
            "worker": pc.if_else(is_begun, column("worker"), none),
            "queue": pc.if_else(is_of_queue, column("queue"), none),
            "detail": pc.if_else(pc.is_in(kind, pa.array(_DETAILED)), column("detail"), none),
            "is_of_no_group": pc.and_(is_of_message, is_of_no_group),
        }
        invoked_us = column("invoked_at_us")
        counted["opened_us"] = pc.if_else(pc.equal(kind, Kind.OPENED.value), invoked_us, pa.scalar(None, pa.int64()))
        counted["invoked_at_us"] = invoked_us
        rows = pa.table(counted).group_by(list(_OVERVIEW), use_threads=False)
        rows = rows.aggregate([([], "count_all"), ("invoked_at_us", "min")])
        found.append(rows.rename_columns([*_OVERVIEW, "count", "least_us"]).cast(found[0].schema))
    return [pa.concat_tables(found)]
