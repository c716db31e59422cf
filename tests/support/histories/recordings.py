"""Events as a recording has them: how they are written, damaged, and given to another group or clock."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.history.events import HistoryEvent, Kind, recording_detail
from sluice.judge.engine import JudgeEngine
from sluice.judge.parts import InMemory
from sluice.judge.recording import RecordedQueue
from sluice.recorder.journal import SCHEMA, Journal
from tests.support.histories.builders import QUEUES, RUN, shift_event

KNOWN: Mapping[str, RecordedQueue] = {
    name: RecordedQueue(visibility_timeout_seconds=30, dead_letter_queue=f"{name}-dlq", max_receive_count=3)
    for name in QUEUES
}
_OF_JOURNAL = ("run", "worker", "task_attempt")


def table_of(events: Sequence[HistoryEvent]) -> pa.Table:
    return pa.table({name: [getattr(event, name) for event in events] for name in SCHEMA.names}, SCHEMA)


def engine_of(events: Sequence[HistoryEvent]) -> JudgeEngine:
    return JudgeEngine(InMemory(table_of(events)))


def write_journal(
    folder: Path, events: Sequence[HistoryEvent], *, one_group_in: int = 1, name: str = "recorded-1"
) -> Path:
    """Write the events as the flight recorder does: without a plan and without end markers."""
    with Journal(folder, f"_{name}", common={"run": RUN, "worker": name, "task_attempt": 0}) as journal:
        journal.add(kind=Kind.TOPOLOGY.value, detail=recording_detail(one_group_in))
        for event in events:
            if (event.idx or 0) >= 0:
                journal.add(**{name: value for name, value in asdict(event).items() if name not in _OF_JOURNAL})
    return folder


def write_parquet(folder: Path, events: Sequence[HistoryEvent], *, name: str = "events", **how: Any) -> Path:
    """Write the events as another program might: one file without buckets."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table_of(events), folder / f"{name}.parquet", **how)
    return folder


def _chunk(path: Path, column: str) -> pq.ColumnChunkMetaData:
    group = pq.read_metadata(path).row_group(0)
    return next(of for of in map(group.column, range(group.num_columns)) if of.path_in_schema == column)


def flip_in(path: Path, column: str) -> None:
    """Flip a bit of a column's last page; the file remains valid Parquet."""
    chunk = _chunk(path, column)
    begin = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
    found = bytearray(path.read_bytes())
    found[begin + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(found)


def write_zeros(path: Path) -> None:
    """Write zeros over a page of a column, as a bad disk may."""
    with path.open("r+b") as file:
        file.seek(_chunk(path, "idx").data_page_offset)
        file.write(bytes(20))


def cut(path: Path) -> None:
    """Leave bytes out in the middle, as a broken copy may: the end is there, and says that there is more."""
    found = path.read_bytes()
    path.write_bytes(found[:1_000] + found[-9_000:])


def in_group(events: Sequence[HistoryEvent], group: str) -> list[HistoryEvent]:
    """Return the events as those of another group, with call ids of its own."""
    return [
        replace(event, message_group_id=group, call_id=None if event.call_id is None else f"{group}/{event.call_id}")
        for event in events
    ]


def by_two_clocks(
    events: Sequence[HistoryEvent], *, ahead_us: int, consumers: Sequence[str] = QUEUES
) -> list[HistoryEvent]:
    """Return the events; those of consumers of these queues are timed by a second clock, which is ahead."""
    return [
        replace(shift_event(event, ahead_us), clock_id="d") if event.queue in consumers else event for event in events
    ]
