"""Whether a look stays quick while one group has a hundred thousand messages waiting beside ten small groups."""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

from sqlalchemy import Engine, text, update

from benchmarks import databases
from benchmarks.charts import Line, lines
from benchmarks.databases import POSTGRES, TOPIC
from benchmarks.report import Section, table
from benchmarks.rounds import Measured, interleaved
from sluice.clock import SystemClock
from sluice.messaging.envelope import Event
from sluice.messaging.outbox.store import Store
from sluice.messaging.outbox.tables import SENT, messages

_SIZES = (1_000, 10_000, 100_000)
_SMALL_GROUPS = 10
_LOOKS = 30
SETTLED = "settled"
_clock = SystemClock()
type _Cell = tuple[str, int, str]


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return milliseconds of a look, and of the count for the metrics, by database and by what waits."""
    found: dict[_Cell, Measured] = {}
    for database, url in urls.items():
        with databases.fresh(url) as engine:
            small = [Event(type="a.b", group=f"small{n}", data={}) for n in range(_SMALL_GROUPS)]
            databases.fill(engine, small)
            store = Store(engine, TOPIC)
            look = partial(store.heads, "")
            _milliseconds(look)  # a plan made now must not be kept
            have = 0
            for size in _SIZES:
                databases.fill(engine, [Event(type="a.b", group="hot", data={"n": n}) for n in range(have, size)])
                have = size
                found |= _timed(database, size, "as filled", {"look": look}, rounds)
                databases.settle(engine)
                found |= _timed(database, size, SETTLED, {"look": look, "count": store.lag}, rounds)
            if database == POSTGRES:
                found |= _while_others_read(engine, store, rounds)
    return _section(found)


def _while_others_read(engine: Engine, store: Store, rounds: int) -> dict[_Cell, Measured]:
    """Send most of what waits while an older transaction may still want to see it waiting."""
    most, looks = _SIZES[-1], {"look": partial(store.heads, "")}
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as old:
        old.execute(text("SELECT count(*) FROM sluice_outbox"))
        with engine.begin() as connection:
            sent = (messages.c.group_id == "hot", messages.c.group_seq <= most // 2)
            connection.execute(update(messages).where(*sent).values(status=SENT, sent_at_us=0))
        found = _timed(POSTGRES, most, "half sent, an old transaction open", looks, rounds)
    return found | _timed(POSTGRES, most, "half sent, the old transaction ended", looks, rounds)


def _timed(
    database: str, size: int, state: str, measured_calls: Mapping[str, Callable[[], object]], rounds: int
) -> dict[_Cell, Measured]:
    cells = {name: partial(_milliseconds, call) for name, call in measured_calls.items()}
    return {
        (database, size, f"{state}: {name}" if name == "count" else state): item
        for name, item in interleaved(cells, rounds).items()
    }


def _milliseconds(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_LOOKS):
        began = _clock.monotonic()
        call()
        seconds.append(_clock.monotonic() - began)
    return 1_000 * median(seconds)


def _section(found: Mapping[_Cell, Measured]) -> Section:
    rows = []
    for (database, size, state), measured in found.items():
        least = found.get((database, _SIZES[0], state))
        rows.append(
            (
                database,
                state,
                f"{size:,}",
                f"{measured.median:.1f}",
                measured.noise,
                "" if least is None else measured.over(least).ratio,
            )
        )
    rows.sort(key=lambda row: (row[0], row[1]))
    head = ("database", "state", "waiting in the hot group", "ms", "noise", "to 1,000")
    given = [
        Line(
            database,
            [
                (size, entry.median, "")
                for (of, size, state), entry in found.items()
                if (of, state) == (database, SETTLED)
            ],
        )
        for database in dict.fromkeys(database for database, _, _ in found)
    ]
    plot = lines("A look at the heads beside a backlog", "messages waiting in one group", "ms a look", given)
    return Section(tables={"backlog": table(head, rows, text_columns=2)}, plots={"backlog": plot})
