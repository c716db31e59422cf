"""A relay's loop gives signs of life and metrics while it runs, and writes its last counts when it ends."""

import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from sluice.clock import eventually
from sluice.declaration import metrics
from sluice.messaging import alive
from sluice.messaging.errors import OutboxError
from sluice.messaging.liveness import AliveFile, Liveness, LivenessWatch
from sluice.messaging.relay.relay import RelaySettings, run
from sluice.messaging.telemetry.metrics import RelayMetrics
from tests.support.messaging.faulty_calls import seeded_random
from tests.support.messaging.outbox.simulated_relays import Turns
from tests.support.messaging.recorded_metrics import RecordedMetrics
from tests.support.messaging.world import SETTINGS, World, in_memory_world
from tests.support.processes.messaging_process import relay_process

STEP_SECONDS = 72


def refuse_to_begin(_: object) -> None:
    """Fail as a database that is starting up."""
    raise OperationalError("BEGIN", None, Exception("the database is starting up"))


@pytest.mark.parametrize("poll_seconds", [0.1, 5])
@pytest.mark.parametrize("is_away", [False, True])
def test_each_sign_of_life_lasts_for_another_step(tmp_path: Path, *, is_away: bool, poll_seconds: float) -> None:
    """After every wait the file that the health check reads is valid for STEP_SECONDS, which a step may take.

    This holds while the database is away, too.
    """
    path = tmp_path / "alive"
    settings = RelaySettings(poll_seconds=poll_seconds)
    with in_memory_world() as world:
        if is_away:
            event.listen(world.engine, "begin", refuse_to_begin)
        left_seconds: list[float] = []

        def look() -> None:
            sign = alive.read(path)
            left_seconds.append(sign.monotonic_seconds + sign.within_seconds - world.clock.monotonic())

        wait = Turns(world.clock, 30, look)
        watch = LivenessWatch(
            Liveness(world.clock), AliveFile(path, world.clock), within_seconds=STEP_SECONDS, clock=world.clock
        )
        run(world.relay(settings=settings), wait, settings, rng=seeded_random(3), watch=watch)
        if is_away:
            event.remove(world.engine, "begin", refuse_to_begin)

    assert len(left_seconds) == 30
    assert min(left_seconds) >= STEP_SECONDS
    assert max(left_seconds) < STEP_SECONDS + 100


def test_the_metric_of_the_last_publishes_is_written_at_the_end(world: World) -> None:
    """The relay ends within its first minute; its lag is no news then."""
    world.commit("a", "b", "b")
    kept = RecordedMetrics()

    run(world.relay(hooks=[RelayMetrics(kept, world.clock)]), Turns(world.clock, 3), SETTINGS, rng=seeded_random(3))

    published = [put[metrics.OUTBOX_PUBLISHED] for put in kept]
    assert published == [0, 3]
    assert list(kept[-1]) == ["OutboxPublished"]


def test_the_metric_of_the_last_publishes_is_written_after_an_error(world: World) -> None:
    """The relay ends by an error after it has published a message."""
    world.commit("a")
    kept = RecordedMetrics()
    relay = world.relay(hooks=[RelayMetrics(kept, world.clock)])
    relay.step()
    for _ in range(3):
        relay.step()

    def fails() -> bool:
        raise OutboxError("the database refuses the credentials")

    relay.step = fails  # type: ignore[method-assign]
    with pytest.raises(OutboxError):
        run(relay, Turns(world.clock, 3), SETTINGS, rng=seeded_random(3))

    assert [put[metrics.OUTBOX_PUBLISHED] for put in kept] == [0, 1]


def test_a_relay_that_never_leads_writes_no_metric(world: World) -> None:
    """Its numbers would be those of the leader, a second time."""
    kept, leader = RecordedMetrics(), world.relay()
    leader.step()

    run(world.relay(hooks=[RelayMetrics(kept, world.clock)]), Turns(world.clock, 3), SETTINGS, rng=seeded_random(3))

    assert kept == []


def test_a_relay_serves_its_metrics_for_prometheus(tmp_path: Path) -> None:
    """With --prometheus 0 it chooses a free port and logs it."""
    with relay_process(tmp_path, "--prometheus", "0") as process:
        serving = process.await_logged("serving metrics")
        process.await_logged("leading")

        def scrape() -> list[str]:
            with urlopen(f"http://127.0.0.1:{serving['port']}/metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
            found = [line for line in lines if not line.startswith("#")]
            return found if len(found) > 1 else []

        found = eventually(scrape, timeout_seconds=30, describe="the leader's first measurement")
        process.stop()

    assert serving["host"] == "127.0.0.1"
    assert found == [
        f'sluice_outbox_{name}{{topic="sluice-local-events.fifo"}} 0.0'
        for name in ("published_total", "lag_seconds", "pending", "quarantined")
    ]


@pytest.mark.parametrize(
    ("address", "line"),
    ids=["in use", "no port"],
    argvalues=[
        ("{port}", "sluice: --prometheus is 127.0.0.1:{port} (Address already in use), allowed is an address of"),
        (
            "no-port",
            "sluice: Invalid value for '--prometheus': 'no-port' is not an address, allowed is PORT or HOST:PORT,",
        ),
    ],
)
def test_an_unusable_address_for_metrics_is_refused(tmp_path: Path, address: str, line: str) -> None:
    """The relay ends at its start with one line, and without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with relay_process(tmp_path, "--prometheus", address.format(port=port)) as process:
            assert process.wait_for_exit() == 3
            assert process.log.splitlines()[-1].startswith(line.format(port=port))
            assert "Traceback" not in process.log
