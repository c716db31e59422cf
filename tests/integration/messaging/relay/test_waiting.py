"""A relay waits out errors that pass, and ends at others; after a failover no connection stays at the old primary."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog.testing
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from sluice.messaging.database import connections, engines
from sluice.messaging.errors import OutboxError
from sluice.messaging.outbox.store import Store
from sluice.messaging.relay.relay import run
from tests.support.messaging.faulty_calls import seeded_random
from tests.support.messaging.outbox.simulated_relays import Turns
from tests.support.messaging.world import SETTINGS, TOPIC, World

PASSING_SQLSTATES = [
    "08006",
    "25006",
    "25P03",
    "25P04",
    "40001",
    "40P01",
    "53100",
    "53200",
    "53300",
    "53400",
    "55000",
    "55006",
    "55P03",
]
PASSING_SQLSTATES += ["57014", "57P01", "57P02", "57P03", "58030", "XX000"]
LASTING_SQLSTATES = ["22012", "23505", "28000", "3D000", "3F000", "42P01", "42501", "42703", "0A000"]


class Standby:
    """A Postgres that only reads for connections that are made before it is the primary."""

    def __init__(self) -> None:
        self.is_primary = False
        self.connected_count = 0

    def connect(self, dialect: Any, record: Any, arguments: Any, named: Any) -> Any:
        """Open a connection, which can only read while this server is a standby."""
        self.connected_count += 1
        read_only = "" if self.is_primary else " -cdefault_transaction_read_only=on"
        options = {"options": f"{named['options']}{read_only}"}
        return connections.open_postgres(dialect, record, arguments, {**named, **options})


@pytest.fixture
def standby() -> Standby:
    """Return a server that becomes the primary when the test says so."""
    return Standby()


@pytest.fixture
def standby_engine(postgres: Engine, standby: Standby) -> Iterator[Engine]:
    """Yield an engine whose connections can only read until the standby is the primary."""
    made = engines.engine(postgres.url.render_as_string(hide_password=False), connect=standby.connect)
    yield made
    made.dispose()


class Failover(Turns):
    """Lets the standby become the primary at the fifth wait."""

    def __init__(self, clock: Any, standby: Standby) -> None:
        super().__init__(clock, 12)
        self._standby = standby

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        self._standby.is_primary = len(self.waited) >= 5


def test_a_relay_waits_for_a_primary_and_leaves_the_standby(
    postgres: Engine, standby_engine: Engine, standby: Standby
) -> None:
    """After a failover, connections that were made before still only read. The relay closes them, and publishes."""
    world = World(postgres)
    world.commit("a")
    world.engine, world.store = standby_engine, Store(standby_engine, TOPIC, clock=world.clock)

    with structlog.testing.capture_logs() as logged:
        run(world.relay(), Failover(world.clock, standby), SETTINGS, rng=seeded_random(3))

    assert world.statuses() == {("a", 1): "sent"}
    waited = [entry for entry in logged if entry["event"].startswith("the database only reads")]
    assert [entry["failures"] for entry in waited] == [1, 2, 3, 4, 5]


def test_a_producers_connections_to_a_standby_are_dropped(postgres: Engine, standby: Standby) -> None:
    """This holds for a producer's own engine too: its first commit after the failover succeeds."""
    own = create_engine(postgres.url)
    event.listen(own, "do_connect", standby.connect)
    world = World(postgres)
    world.engine = own
    with pytest.raises(DBAPIError, match="read-only"):
        world.commit("a")
    standby.is_primary = True

    world.commit("b")

    assert list(world.statuses()) == [("b", 1)]
    own.dispose()


@pytest.mark.parametrize(
    ("states", "is_awaited"), [(PASSING_SQLSTATES, True), (LASTING_SQLSTATES, False)], ids=["passing", "lasting"]
)
def test_a_relay_waits_out_passing_errors_and_ends_at_lasting_ones(
    postgres: Engine, states: list[str], *, is_awaited: bool
) -> None:
    """Every statement fails with the same SQLSTATE.

    A relay that ends names the error in one line.
    """
    world = World(postgres)
    current = ""

    @event.listens_for(postgres, "before_cursor_execute", retval=True)
    def refuse(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> tuple[str, Any]:
        if not current:
            return statement, parameters
        return f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{current}'; END $$", None

    ends = {}
    for current in states:
        wait = Turns(world.clock, 3)
        try:
            run(world.relay(), wait, SETTINGS, rng=seeded_random(3))
        except OutboxError as error:
            ends[current] = str(error)
    current = ""

    assert sorted(ends) == ([] if is_awaited else sorted(states))
    assert {state for state, line in ends.items() if "refuses the credentials" in line} <= {"28000"}
    assert all(line.startswith("the database refuses ") and "\n" not in line for line in ends.values())
