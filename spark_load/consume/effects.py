"""What the consumers' databases say was done, held against the history: a worker that is killed cannot tell.

A worker writes down that an effect was committed after the commit. One that dies in between leaves the effect and no
word of it. The database has the effect, in the row of its own that the handler wrote in the same transaction.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.history.events import Kind, is_end_marker
from sluice.recorder.journal import read_journal

_TABLE = """CREATE TABLE IF NOT EXISTS load_effect (id INTEGER PRIMARY KEY AUTOINCREMENT, group_id TEXT NOT NULL,
epoch INTEGER NOT NULL, seq INTEGER NOT NULL, is_late INTEGER NOT NULL,
written_at_us INTEGER NOT NULL)"""
_ROWS = "SELECT group_id, epoch, seq, is_late, written_at_us FROM load_effect ORDER BY id"
_READ = ["kind", "queue", "message_group_id", "idx", "message_run"]

type _Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One row that a handler wrote.

    Args:
        message_run: the run as the history names it.
        idx: as the history numbers it.
        written_at_us: by the worker's clock, before the commit.
    """

    message_group_id: str
    message_run: str
    idx: int
    is_late: bool
    written_at_us: int

    @property
    def key(self) -> _Key:
        """Return which message it is of."""
        return self.message_run, self.message_group_id, self.idx


def make_table(file: Path) -> None:
    """Make the table in which handlers write, in the database of an inbox."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(_TABLE)
        connection.commit()


def effects_in(file: Path) -> list[Effect]:
    """Return the effects in the order of their commits, which SQLite makes one after the other."""
    with closing(sqlite3.connect(file)) as connection:
        return [
            Effect(
                message_group_id=group_id,
                message_run=f"epoch-{epoch}",
                idx=seq,
                is_late=bool(is_late),
                written_at_us=written_at_us,
            )
            for group_id, epoch, seq, is_late, written_at_us in connection.execute(_ROWS)
        ]


def recorded(journals: Iterable[Path], queue: str) -> Counter[_Key]:
    """Return how often the history says that a message's effect was committed."""
    counts: Counter[_Key] = Counter()
    for journal in journals:
        for row in read_journal(journal).select(_READ).to_pylist():
            if row["kind"] == Kind.HANDLED and row["queue"] == queue:
                counts[row["message_run"], row["message_group_id"], row["idx"]] += 1
    return counts


def compared(effects: Iterable[Effect], known: Counter[_Key], queue: str) -> Iterator[Mapping[str, Any]]:
    """Yield an event for each effect that the history says nothing of, as fields of `sluice.history.events.Event`."""
    left = Counter(known)
    for effect in effects:
        if left[effect.key]:
            left[effect.key] -= 1
            continue
        yield {
            "kind": Kind.HANDLED.value,
            "queue": queue,
            "message_group_id": effect.message_group_id,
            "message_run": effect.message_run,
            "idx": effect.idx,
            "invoked_at_us": effect.written_at_us,
            "responded_at_us": effect.written_at_us,
            "detail": json.dumps({"state": "late" if effect.is_late else "contiguous", "source": "database"}),
        }


def undone(effects: Iterable[Effect], known: Counter[_Key]) -> list[_Key]:
    """Return the effects that the history says were committed, and the database does not have.

    An end marker has none: no handler is called for it.
    """
    missing = known - Counter(effect.key for effect in effects)
    return sorted(key for key in missing if not is_end_marker(key[2]))


def out_of_order(effects: Iterable[Effect]) -> list[tuple[Effect, Effect]]:
    """Return each effect that was committed after a later one of its group, though not as a late one, and that one."""
    last: dict[tuple[str, str], Effect] = {}
    found = []
    for effect in effects:
        place = effect.message_run, effect.message_group_id
        before = last.get(place)
        if before is not None and effect.idx < before.idx and not effect.is_late:
            found.append((effect, before))
        elif before is None or effect.idx > before.idx:
            last[place] = effect
    return found
