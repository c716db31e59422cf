"""Measure the cost of writing to the outbox: transactions a second against plain inserts of the same rows."""

import multiprocessing
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.synchronize import Barrier

from sqlalchemy import Connection, Engine, create_engine, insert, text

from benchmarks import databases
from benchmarks.charts import ResultBar, bars
from benchmarks.databases import POSTGRES, SQLITE, TOPIC
from benchmarks.report import Section, table
from benchmarks.rounds import Measurement, interleave
from sluice.clock import SystemClock
from sluice.messaging import database_engine
from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.outbox import Outbox

_WRITERS = (1, 8)
_SECONDS = 1.5
_GROUPS = 1_000
PLAIN, SINGLE, MANY = "plain insert", "one group", "many groups"
TRIGGER = "trigger by hand, many groups"
# An outbox as a service builds it by hand: a trigger copies each row into a table with a serial number. It does not
# count by group, so a reader may see number 8 before number 7 is committed.
_BY_HAND = (
    "DROP TABLE IF EXISTS by_hand, by_hand_outbox",
    "CREATE TABLE by_hand (id bigserial PRIMARY KEY, group_id text NOT NULL, body text NOT NULL)",
    "CREATE TABLE by_hand_outbox (id bigserial PRIMARY KEY, group_id text NOT NULL, body text NOT NULL,"
    " sent_at timestamptz)",
    "CREATE INDEX by_hand_unsent ON by_hand_outbox (id) WHERE sent_at IS NULL",
    "CREATE OR REPLACE FUNCTION by_hand_copy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " INSERT INTO by_hand_outbox (group_id, body) VALUES (NEW.group_id, NEW.body); RETURN NEW; END $$",
    "CREATE TRIGGER by_hand_copied AFTER INSERT ON by_hand FOR EACH ROW EXECUTE FUNCTION by_hand_copy()",
)
_INSERT_BY_HAND = text("INSERT INTO by_hand (group_id, body) VALUES (:group_id, :body)")
_clock = SystemClock()
_start_barriers: dict[int, Barrier] = {}


@dataclass(frozen=True, slots=True)
class _Cell:
    database: str
    writers: int
    kind: str
    is_notified: bool = False
    is_plain_engine: bool = False

    @property
    def name(self) -> str:
        """Return its name in the table of results."""
        return f"{self.kind}{', notify' * self.is_notified}{', engine of SQLAlchemy' * self.is_plain_engine}"


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return transactions a second of 1 and 8 writers, each a process of its own, with one event a transaction."""
    listed = [_Cell(SQLITE, 1, kind) for kind in (PLAIN, SINGLE, MANY)]
    for writers in _WRITERS:
        listed += [_Cell(POSTGRES, writers, kind) for kind in (PLAIN, TRIGGER, SINGLE, MANY)]
        listed += [_Cell(POSTGRES, writers, kind, is_notified=True) for kind in (SINGLE, MANY)]
        listed += [_Cell(POSTGRES, writers, kind, is_plain_engine=True) for kind in (PLAIN, MANY)]
    spawning = multiprocessing.get_context("spawn")
    barriers = {writers: spawning.Barrier(writers) for writers in _WRITERS}
    with ProcessPoolExecutor(max(_WRITERS), spawning, initializer=_keep_barriers, initargs=(barriers,)) as pool:
        cells: dict[_Cell, Callable[[], float]] = {
            cell: partial(_committed_per_second, pool, urls[cell.database], cell) for cell in listed
        }
        return _section(interleave(cells, rounds))


def _keep_barriers(barriers: dict[int, Barrier]) -> None:
    _start_barriers.update(barriers)


def _committed_per_second(pool: ProcessPoolExecutor, url: str, cell: _Cell) -> float:
    with databases.with_empty_tables(url) as engine:
        if cell.kind == TRIGGER:
            with engine.begin() as connection:
                for statement in _BY_HAND:
                    connection.exec_driver_sql(statement)
        databases.vacuum(engine)
        writing = [pool.submit(_run_writer, url, cell, number) for number in range(cell.writers)]
        return sum(future.result() for future in writing)


def _run_writer(url: str, cell: _Cell, number: int) -> float:
    """Wait for the other writers, then return this one's transactions a second. Runs in a process of the pool."""
    engine, rng = _engine(url, is_plain_engine=cell.is_plain_engine), random.Random(number)
    kinds = {PLAIN: _plain_insert(number), TRIGGER: _insert_by_hand}
    add = kinds.get(cell.kind, partial(_write_to_outbox, Outbox(TOPIC, notify=cell.is_notified)))
    engine.connect().close()
    _start_barriers[cell.writers].wait()
    began, count = _clock.monotonic(), 0
    while _clock.monotonic() - began < _SECONDS:
        group = "g" if cell.kind == SINGLE else f"g{rng.randrange(_GROUPS)}"
        with engine.begin() as connection:
            add(connection, Event(type="a.b", group=group, data={"n": count}))
        count += 1
    return count / (_clock.monotonic() - began)


@cache
def _engine(url: str, *, is_plain_engine: bool) -> Engine:
    return create_engine(url) if is_plain_engine else database_engine("", url)


def _write_to_outbox(outbox: Outbox, connection: Connection, event: Event) -> None:
    outbox.write(connection, [event])


def _insert_by_hand(connection: Connection, event: Event) -> None:
    body = Envelope(event=event, seq=1, epoch=1).body
    connection.execute(_INSERT_BY_HAND, {"group_id": event.group, "body": body})


def _plain_insert(number: int) -> Callable[[Connection, Event], None]:
    """Return a function that inserts the outbox's row without an outbox: a counter replaces the group's number."""
    last = number * 10**9

    def add(connection: Connection, event: Event) -> None:
        nonlocal last
        last += 1
        row = {
            "topic": TOPIC,
            "group_id": event.group,
            "group_seq": last,
            "event_id": event.id,
            "type": event.type,
            "body": Envelope(event=event, seq=last, epoch=1).body,
            "attributes": '{"type": "a.b"}',
            "deduplication_id": event.id,
            "created_at_us": _clock.now_us(),
        }
        connection.execute(insert(tables.messages), [row])

    return add


def _section(found: Mapping[_Cell, Measurement]) -> Section:
    rows, drawn = [], []
    for cell, rate in found.items():
        plain = found[_Cell(cell.database, cell.writers, PLAIN, is_plain_engine=cell.is_plain_engine)]
        silent = found[_Cell(cell.database, cell.writers, cell.kind, is_plain_engine=cell.is_plain_engine)]
        rows.append(
            (
                *(cell.database, cell.writers, cell.name, f"{rate.median:,.0f}", rate.noise),
                rate.over(plain).ratio if cell.kind != PLAIN else "",
                rate.over(silent).ratio if cell.is_notified else "",
            )
        )
        who = f"{cell.writers} writer{'s' * (cell.writers > 1)}"
        drawn.append(
            ResultBar(f"{cell.name}, {who}", int(cell.database == POSTGRES), rate.median, f"{rate.median:,.0f}"),
        )
    head = ("database", "writers", "what", "transactions/s", "noise", "to plain inserts", "to without notify")
    plot = bars("What writers commit", "transactions/s of one event each", (SQLITE, POSTGRES), drawn)
    return Section(tables={"writers": table(head, rows, text_columns=3)}, plots={"writers": plot})
