"""What the report's charts show, aggregated in this process: for recordings that are judged in it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.history.events import Kind, Outcome
from sluice.judge.checker import Expectation
from sluice.judge.checker.verdict import Violation
from sluice.judge.folder.series_schema import Series
from sluice.judge.measures import PERCENTILES
from sluice.judge.reading.columns import hashes
from sluice.judge.screening.encode import WARM_UP
from sluice.judge.series import (
    ALL,
    DRAWN,
    EVENTS_MAX,
    OF_EVENT,
    RANKS_MAX,
    Bins,
    Row,
    assembled,
    rank_table,
)

_RECEIVES = (Kind.POLL.value, Kind.RECEIVED.value)
_CALLS = (Kind.PUBLISHED.value, Kind.RECEIVED.value)


def series(table: pa.Table, *, expectation: Expectation, violations: Sequence[Violation] = ()) -> Series:
    """Return the small tables of a history; groups with violations get a timeline."""
    return assembled(_Aggregates(table, expectation), expectation=expectation, violations=violations)


@dataclass(slots=True)
class _Message:
    """When a message was due, and for each queue when it was in it and first came from it."""

    group: str
    due_us: int | None = None
    is_warm_up: bool = False
    acked_us: dict[str, int] = field(default_factory=dict)
    received_us: dict[str, int] = field(default_factory=dict)

    def latency_us(self, queue: str) -> int | None:
        """Return how long after it was due it first came from the queue."""
        received_us = self.received_us.get(queue)
        return None if received_us is None or self.due_us is None else received_us - self.due_us


class _Aggregates:
    """What a history adds up to, see `series.Aggregates`."""

    def __init__(self, table: pa.Table, expectation: Expectation) -> None:
        self._table, self._expectation = table, expectation
        self._messages = _messages(table, expectation)

    def span(self) -> Row:
        """Return instants of publishes and receives."""
        calls = self._rows(
            _of_kinds(self._table, _CALLS), "phase", "intended_at_us", "invoked_at_us", "responded_at_us"
        )
        due: list[tuple[int, bool]] = []
        ended: list[tuple[int, bool]] = []
        for call in calls:
            is_warm_up = call["phase"] == WARM_UP
            instants = [at_us for at_us in (call["invoked_at_us"], call["responded_at_us"]) if at_us is not None]
            began = call["invoked_at_us"] if call["intended_at_us"] is None else call["intended_at_us"]
            due += [] if began is None else [(began, is_warm_up)]
            ended += [(max(instants), is_warm_up)] if instants else []
        return {
            "began": min((at_us for at_us, _ in due), default=None),
            "ended": max((at_us for at_us, _ in ended), default=None),
            "warm_from": min((at_us for at_us, is_warm_up in due if is_warm_up), default=None),
            "warm_to": max((at_us for at_us, is_warm_up in ended if is_warm_up), default=None),
        }

    def moments(self, bins: Bins) -> Iterable[Row]:
        """Return what happened to messages."""
        happened: Counter[tuple[str, str, int]] = Counter()
        latencies: dict[tuple[str, int], list[int]] = defaultdict(list)
        for message in self._messages:
            if message.acked_us:
                happened[ALL, "acked", _bin(min(message.acked_us.values()), bins)] += 1
            for queue in self._expectation.queues:
                for moment, at_us in (("acked", message.acked_us), ("received", message.received_us)):
                    if queue in at_us:
                        happened[queue, moment, _bin(at_us[queue], bins)] += 1
                latency_us = message.latency_us(queue)
                if latency_us is not None and message.due_us is not None:
                    latencies[queue, _bin(message.due_us, bins)].append(latency_us)
        for (queue, moment, number), count in happened.items():
            yield {"queue": queue, "moment": moment, "bin": number, "happened": count}
        for (queue, number), values in latencies.items():
            yield {"queue": queue, "moment": "due", "bin": number, **_distribution(values)}

    def failures(self, bins: Bins) -> Iterable[Row]:
        """Return how many calls or entries failed, or came again."""
        table, column = self._table, self._table.column
        is_again = pc.and_(pc.equal(column("kind"), Kind.RECEIVED.value), pc.greater(column("receive_count"), 1))
        is_again = is_again.fill_null(False)  # noqa: FBT003 (the value)
        is_counted = pc.and_(pc.or_(pc.is_valid(column("error")), is_again), pc.is_valid(column("invoked_at_us")))
        rows = table.append_column("is_again", is_again).filter(is_counted)
        counts = Counter(
            (row["error"], row["queue"] if row["is_again"] else None, _bin(row["invoked_at_us"], bins))
            for row in self._rows(rows, "error", "queue", "is_again", "invoked_at_us")
        )
        for (error, queue, number), count in counts.items():
            yield {"error": error, "queue": queue, "bin": number, "count": count}

    def tasks(self) -> Iterable[Row]:
        """Return for each recorder that received when it was at work."""
        instants = self._table.append_column(
            "last_us", pc.coalesce(self._table.column("responded_at_us"), self._table.column("invoked_at_us"))
        )
        polls = _of_kinds(self._table, _RECEIVES).group_by("worker").aggregate([("queue", "min")])
        known = instants.group_by("worker").aggregate([("invoked_at_us", "min"), ("last_us", "max")])
        for row in polls.join(known, "worker").to_pylist():
            if row["queue_min"] is not None and row["invoked_at_us_min"] is not None:
                yield {"queue": row["queue_min"], "began": row["invoked_at_us_min"], "ended": row["last_us_max"]}

    def ranks(self) -> Mapping[int, Row]:
        """Return the latencies by how hot the message's group is; groups of one size are put in a row by hash."""
        measured = [message for message in self._messages if not message.is_warm_up]
        if not measured or not self._expectation.queues:
            return {}
        sizes = Counter(message.group for message in measured)
        table = {size: (hotter, alike) for size, hotter, alike in rank_table(Counter(sizes.values()))}
        hashed = dict(zip(sizes, hashes(pa.array(list(sizes), pa.string())).tolist(), strict=True))
        part = min(RANKS_MAX, len(sizes)) / len(sizes)
        rank_of = {
            group: int((table[size][0] + hashed[group] % table[size][1]) * part) for group, size in sizes.items()
        }
        latencies: dict[tuple[int, str], list[int]] = defaultdict(list)
        for message in measured:
            for queue in self._expectation.queues:
                latency_us = message.latency_us(queue)
                latencies[rank_of[message.group], queue] += [] if latency_us is None else [latency_us]
        groups, messages = Counter(rank_of.values()), Counter(rank_of[message.group] for message in measured)
        return {
            rank: {
                "groups": groups[rank],
                "messages": messages[rank],
                "latency_us": {queue: _distribution(latencies[rank, queue]) for queue in self._expectation.queues},
            }
            for rank in groups
        }

    def nearest(self, spans: Mapping[str, tuple[int, int]]) -> Iterable[Row]:
        """Return the events nearest to the time of each group's span."""
        names = pa.array(list(spans), pa.string())
        drawn = _of_kinds(self._table, tuple(kind.value for kind in DRAWN))
        drawn = drawn.filter(pc.is_in(drawn.column("message_group_id"), names))
        of_group: dict[str, list[Row]] = defaultdict(list)
        for row in self._rows(drawn.filter(pc.is_valid(drawn.column("invoked_at_us"))), "message_group_id", *OF_EVENT):
            of_group[row["message_group_id"]].append(row)
        for group, rows in sorted(of_group.items()):
            from_us, to_us = spans[group]
            away = sorted(
                rows, key=lambda row: (max(from_us - _invoked_us(row), _invoked_us(row) - to_us, 0), _in_order(row))
            )
            yield from sorted(away[:EVENTS_MAX], key=_in_order)

    def _rows(self, table: pa.Table, *names: str) -> list[Row]:
        rows: list[Row] = table.select(list(names)).to_pylist()
        return rows


def _of_kinds(table: pa.Table, kinds: Sequence[str]) -> pa.Table:
    return table.filter(pc.is_in(table.column("kind"), pa.array(kinds)))


def _invoked_us(row: Row) -> int:
    return int(row["invoked_at_us"])


def _in_order(row: Row) -> tuple[Any, ...]:
    idx = row["idx"]
    return row["invoked_at_us"], row["kind"], idx is not None, idx or 0  # Spark's order: nothing comes first


def _bin(at_us: int, bins: Bins) -> int:
    return max(0, min(bins.count - 1, (at_us - bins.started_at_us) // bins.width_us))


def _distribution(values: list[int]) -> dict[str, Any]:
    ordered = sorted(values)
    ranks = [ceil(of * len(ordered)) - 1 for of in PERCENTILES.values()]
    return {
        "count": len(ordered),
        "percentiles": [ordered[rank] for rank in ranks] if ordered else None,
        "max": ordered[-1] if ordered else None,
    }


def _messages(table: pa.Table, expectation: Expectation) -> list[_Message]:
    """Return every message of this run that was published or received, end markers left out."""
    names = ("message_group_id", "idx", "kind", "outcome", "queue", "phase", "intended_at_us", "responded_at_us")
    table = _of_kinds(table, _CALLS)
    found: dict[tuple[str, int], _Message] = {}
    for row in table.select([*names, "message_run"]).to_pylist():
        group, idx, queue, responded_us = (
            row[name] for name in ("message_group_id", "idx", "queue", "responded_at_us")
        )
        is_received = row["kind"] == Kind.RECEIVED
        if group is None or idx is None or idx < 0 or (is_received and row["message_run"] != expectation.run):
            continue
        message = found.setdefault((group, idx), _Message(group))
        message.is_warm_up |= row["phase"] == WARM_UP
        due_us = row["intended_at_us"]
        if due_us is not None:
            message.due_us = due_us if message.due_us is None else min(due_us, message.due_us)
        if responded_us is None:
            continue
        if is_received:
            _put(message.received_us, [queue] if queue in expectation.queues else [], responded_us)
        elif row["outcome"] == Outcome.OK:
            _put(message.acked_us, [queue] if queue in expectation.queues else expectation.queues, responded_us)
    return list(found.values())


def _put(first_us: dict[str, int], queues: Iterable[str], at_us: int) -> None:
    for queue in queues:
        first_us[queue] = min(at_us, first_us.get(queue, at_us))
