"""What a relay's loop shows while it runs, and what it writes when it ends."""

import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from sluice.clock import VirtualClock, eventually
from sluice.declaration import metrics
from sluice.messaging import alive
from sluice.messaging.database import engines
from sluice.messaging.errors import OutboxError
from sluice.messaging.liveness import AliveFile, Liveness, Watch
from sluice.messaging.outbox import tables
from sluice.messaging.relay.relay import RelaySettings, run
from sluice.messaging.telemetry.metrics import RelayMetrics
from tests.support.messaging_process import MessagingProcess
from tests.support.simulated_relays import SETTINGS, World, in_memory_world, seeded

STEP_SECONDS = 72


@pytest.fixture
def world(engine: Engine) -> World:
    """Return a world, once on SQLite and once on Postgres."""
    return World(engine)


class RecordedLog:
    """Keeps what was measured."""

    def __init__(self) -> None:
        self.put_so_far: list[dict[str, float]] = []

    def put(self, values: Mapping[str, float]) -> None:
        """Take it."""
        self.put_so_far.append(dict(values))


class Turns:
    """A wait that moves the clock, and ends after so many turns; `meanwhile` looks at each."""

    def __init__(self, clock: VirtualClock, turns: int, path: Path | None = None) -> None:
        self._clock, self._turns, self._path = clock, turns, path
        self.left_seconds: list[float] = []

    def wait(self, seconds: float) -> None:
        """Let the time pass, and look how long the file is still good for."""
        self._clock.sleep(seconds)
        self._turns -= 1
        if self._path is not None:
            sign = alive.read(self._path)
            self.left_seconds.append(sign.monotonic_seconds + sign.within_seconds - self._clock.monotonic())

    def is_stopped(self) -> bool:
        """Return whether that was the last turn."""
        return self._turns <= 0


def refuse(_: object) -> None:
    """Be a database that is away."""
    raise OperationalError("BEGIN", None, Exception("the database is starting up"))


@pytest.mark.parametrize("poll_seconds", [0.1, 5])
@pytest.mark.parametrize("is_away", [False, True])
def test_after_every_wait_the_file_is_good_for_another_step(
    tmp_path: Path, *, is_away: bool, poll_seconds: float
) -> None:
    """Whatever it waits for: the next look, or a database that is away, longer each time."""
    path = tmp_path / "alive"
    settings = RelaySettings(poll_seconds=poll_seconds)
    with in_memory_world() as world:
        if is_away:
            event.listen(world.engine, "begin", refuse)
        wait = Turns(world.clock, 30, path)
        watch = Watch(
            Liveness(world.clock), AliveFile(path, world.clock), within_seconds=STEP_SECONDS, clock=world.clock
        )
        run(world.relay(settings=settings), wait, settings, rng=seeded(3), watch=watch)
        if is_away:
            event.remove(world.engine, "begin", refuse)

    assert len(wait.left_seconds) == 30
    assert min(wait.left_seconds) >= STEP_SECONDS
    assert max(wait.left_seconds) < STEP_SECONDS + 100


def test_what_was_published_since_the_last_measurement_is_written_at_the_end(world: World) -> None:
    """Once, and without asking the database for the rest."""
    world.commit("a", "b", "b")
    kept = RecordedLog()

    run(world.relay(hooks=[RelayMetrics(kept, world.clock)]), Turns(world.clock, 3), SETTINGS, rng=seeded(3))

    published = [put[metrics.OUTBOX_PUBLISHED] for put in kept.put_so_far]
    assert (published, list(kept.put_so_far[-1])) == ([0, 3], ["OutboxPublished"])


def test_it_is_written_when_the_relay_ends_by_an_error_too(world: World) -> None:
    """The credentials are refused after a message was published."""
    world.commit("a")
    kept = RecordedLog()
    relay = world.relay(hooks=[RelayMetrics(kept, world.clock)])
    relay.step()
    for _ in range(3):
        relay.step()

    def fails() -> bool:
        raise OutboxError("the database refuses the credentials")

    relay.step = fails  # type: ignore[method-assign]
    with pytest.raises(OutboxError):
        run(relay, Turns(world.clock, 3), SETTINGS, rng=seeded(3))

    assert [put[metrics.OUTBOX_PUBLISHED] for put in kept.put_so_far] == [0, 1]


def test_a_relay_that_has_published_nothing_writes_nothing_at_the_end(world: World) -> None:
    """Nor does one that stands by: what is written is of the leader."""
    kept, leader = RecordedLog(), world.relay()
    leader.step()

    run(world.relay(hooks=[RelayMetrics(kept, world.clock)]), Turns(world.clock, 3), SETTINGS, rng=seeded(3))

    assert kept.put_so_far == []


def relay_process(tmp_path: Path, *options: str) -> MessagingProcess:
    """Start a relay that has nothing to publish."""
    dsn = f"sqlite:///{tmp_path / 'outbox.db'}"
    engine = engines.engine(dsn)
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    engine.dispose()
    place = ("--dsn", dsn, "--topic-arn", "arn:aws:sns:us-east-1:000000000000:t.fifo")
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return MessagingProcess(
        ["relay", *place, "--endpoint-url", "http://127.0.0.1:9", *options],
        environment=keys,
        log=tmp_path / "relay.log",
    )


def test_a_relay_serves_its_metrics(tmp_path: Path) -> None:
    """On this machine only, unless it is given another address."""
    with relay_process(tmp_path, "--prometheus", "0") as process:
        serving = process.await_logged("serving metrics")
        process.await_logged("leading")

        def scraped() -> list[str]:
            with urlopen(f"http://127.0.0.1:{serving['port']}/metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
            found = [line for line in lines if not line.startswith("#")]
            return found if len(found) > 1 else []

        found = eventually(scraped, timeout_seconds=30, describe="the leader's first measurement")
        process.send(signal.SIGTERM)
        assert process.ended() == 0

    assert serving["host"] == "127.0.0.1"
    assert found == [
        f'sluice_outbox_{name}{{topic="sluice-local-events.fifo"}} 0.0'
        for name in ("published_total", "lag_seconds", "pending", "quarantined")
    ]


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("{port}", "sluice: --prometheus is 127.0.0.1:{port} (Address already in use), allowed is an address of"),
        (
            "no-port",
            "sluice: Invalid value for '--prometheus': 'no-port' is not an address, allowed is PORT or HOST:PORT,",
        ),
    ],
)
def test_an_address_where_nothing_can_be_served_is_refused(tmp_path: Path, address: str, line: str) -> None:
    """In one line, exit code 3."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with relay_process(tmp_path, "--prometheus", address.format(port=port)) as process:
            assert process.ended() == 3
            assert process.log.splitlines()[-1].startswith(line.format(port=port))
            assert "Traceback" not in process.log
