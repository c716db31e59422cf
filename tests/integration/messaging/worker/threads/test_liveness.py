"""A worker that makes no progress fails its health check, and one that waits, works or is idle does not."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from sluice.clock import SystemClock, clock_id, eventually
from sluice.declaration import metrics
from sluice.messaging import alive
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import Ack, Context, Outcome
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.liveness import AliveFile, Liveness
from sluice.messaging.telemetry.metrics import WorkerMetrics
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.signs import Deadlines, Signs
from sluice.messaging.worker.worker import Worker
from tests.support.messaging.faulty_calls import Fault
from tests.support.messaging.recorded_metrics import RecordedMetrics
from tests.support.messaging.worker_threads import BACKOFF, PATIENCE_SECONDS, SETTINGS, hanging, join_threads, running
from tests.support.messaging.world import WorkerParts, World

DEADLINE_SECONDS = 1.0
PARKS = InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True)


class CheckedWorker:
    """A worker with the file that its health check reads, and with deadlines for its parts' signs of life."""

    def __init__(self, world: World, path: Path, deadlines: Deadlines) -> None:
        self.path, self.signs = path, Signs(Liveness(SystemClock()), deadlines)
        file = AliveFile(path, SystemClock())
        self.worker_parts: WorkerParts = world.worker(poll_seconds=0, backoff=BACKOFF, signs=self.signs, alive=file)

    def problem(self, *, within_seconds: float | None = None) -> str | None:
        """Return what the check of signs of life says about the worker now; None if it is alive."""
        return alive.problem(
            alive.read(self.path),
            now_seconds=SystemClock().monotonic(),
            clock_id=clock_id(),
            within_seconds=within_seconds,
        )

    def await_passed(self) -> None:
        """Wait until the health check passes."""
        eventually(lambda: self.problem() is None, timeout_seconds=PATIENCE_SECONDS, describe="the check to pass")

    def await_failed(self, text: str) -> None:
        """Wait until the health check fails with this text."""
        eventually(
            lambda: text in (self.problem() or ""),
            timeout_seconds=PATIENCE_SECONDS,
            describe=f"the check to fail with {text!r}",
        )


def short_deadlines(**seconds: float) -> Deadlines:
    """Return deadlines of a minute, except those given here, which a part that hangs soon misses."""
    return replace(Deadlines(polling=60, working=60, beating=60), **seconds)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the file with the signs of life."""
    return tmp_path / "alive"


def test_a_lane_whose_handler_outlasts_its_deadline_fails_the_check(on_file: Engine, path: Path) -> None:
    """The check passes again when the handler ends."""
    world = World(on_file)
    world.send("a")
    checked = CheckedWorker(world, path, short_deadlines(working=DEADLINE_SECONDS))
    with hanging(world, ("a", 1)) as hang, running(checked.worker_parts) as worker:
        checked.await_failed("no sign of life from lane-0 (")
        hang.may_end.set()
        checked.await_passed()
    worker.wait_for_end()


def test_a_lane_whose_poll_never_ends_fails_the_check(
    on_file: Engine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection over which one byte arrives at a time keeps every timeout of the client from passing."""
    checked = CheckedWorker(World(on_file), path, short_deadlines(polling=DEADLINE_SECONDS))
    may_end = threading.Event()
    monkeypatch.setattr(checked.worker_parts.queue, "receive", lambda **_: may_end.wait(PATIENCE_SECONDS) and None)
    with running(checked.worker_parts) as worker:
        checked.await_failed("no sign of life from lane-0 (")
        may_end.set()
        checked.await_passed()
    worker.wait_for_end()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_whose_heartbeat_has_died_fails_the_check(
    on_file: Engine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat extends the leases.

    Without it every message that takes long is lost, and its lane does not notice.
    """
    checked = CheckedWorker(World(on_file), path, short_deadlines(beating=DEADLINE_SECONDS))

    def exits() -> None:
        raise SystemExit

    monkeypatch.setattr(checked.worker_parts.heartbeat, "beat", exits)
    with running(checked.worker_parts) as worker:
        checked.await_failed("no sign of life from heartbeat (")
    worker.wait_for_end()


def test_a_drainer_whose_handler_hangs_fails_the_check(on_file: Engine, path: Path) -> None:
    """A drainer is the thread that handles parked messages. The log names the thread."""
    world = World(on_file, policy=PARKS)
    world.park("a")
    checked = CheckedWorker(world, path, short_deadlines(working=4 * DEADLINE_SECONDS))  # drainer looks every second
    with capture_logs() as logged, hanging(world, ("a", 2)) as hang, running(checked.worker_parts) as worker:
        checked.await_failed("no sign of life from drain-")
        hang.may_end.set()
    worker.wait_for_end()

    (part,) = [entry["part"] for entry in logged if str(entry["event"]).startswith("no sign of life")]
    assert part in ("drain-0", "drain-1")


def test_a_drainer_gives_a_sign_of_life_for_each_message(world: World, path: Path) -> None:
    """One step may handle a thousand parked messages, each for as long as a handler may take.

    Here each takes 50 s of allowed 60.
    """
    parks = World(world.engine, consumer="shipping", policy=replace(PARKS, consumer="shipping"))
    parks.park("a", behind=4)
    liveness = Liveness(parks.clock)
    signs = Signs(liveness, Deadlines(working=60))
    drainer = parks.worker(signs=signs).drainer
    overdue: list[dict[str, float]] = []

    def takes_long(_: Session, __: Event, ___: Context) -> Outcome:
        parks.simulator.advance(50)
        overdue.append(liveness.overdue())
        return Ack()

    for seq in (2, 3, 4, 5):
        parks.handler_steps["a", seq] = [takes_long]
    signs.expect_end_of_work()
    assert drainer.step() == 4

    assert overdue == [{}] * 4
    parks.simulator.advance(61)  # past the deadline of 60 s
    assert list(liveness.overdue()) == ["MainThread"]


def test_lanes_that_are_idle_busy_or_cut_off_are_never_overdue(world: World) -> None:
    """A healthy worker never fails its health check, even while its services do not answer.

    The deadlines are those of production, and are checked after each of 60 steps. After 20 steps the queue cannot be
    reached; after 40 the database does not answer.
    """
    deadlines = Deadlines.of_worker(lanes=1, rest_seconds_max=20, timeout_seconds=30, handler_seconds_max=300)
    signs = Signs(Liveness(world.clock), deadlines)
    worker = world.worker(signs=signs)
    began_at, overdue = world.clock.monotonic(), list[dict[str, float]]()
    worker.wait.meanwhile = lambda: overdue.append(signs.liveness.overdue())

    def takes_long(_: Session, __: Event, ___: Context) -> Outcome:
        for _second in range(250):
            world.simulator.advance(1)
            worker.heartbeat.beat()
        overdue.append(signs.liveness.overdue())
        return Ack()

    def answers_nothing(_: object) -> None:
        world.simulator.advance(300)  # as long as a handler may take: then the connection is closed
        overdue.append(signs.liveness.overdue())
        raise OperationalError("BEGIN", None, Exception("the database gave no answer for 300 s"))

    world.handler_steps["a", 1] = [takes_long]
    world.send("a")
    for turn in range(60):
        if turn == 20:
            worker.sqs_calls.faults = [Fault(operation="ReceiveMessage", unreachable=True)] * 20
        if turn == 40:
            worker.processor.transactions.is_database_away = True
            event.listen(world.engine, "begin", answers_nothing)
        worker.lane.step()
        overdue.append(signs.liveness.overdue())
    event.remove(world.engine, "begin", answers_nothing)

    assert world.committed_effects() == [("a", 1)]
    assert world.clock.monotonic() - began_at > 5 * deadlines.polling
    assert [found for found in overdue if found] == []


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_a_healthy_worker_keeps_and_renews_its_deadlines(on_file: Engine, path: Path, *, is_busy: bool) -> None:
    """Each thread's deadlines are counted, not checked: on a busy machine a healthy thread may miss one."""
    world = World(on_file)
    checked = CheckedWorker(world, path, short_deadlines())
    liveness = checked.signs.liveness
    deadlines: dict[str, set[float]] = {"lane-0": set(), "heartbeat": set()}

    def sends_the_next(*_: object) -> None:
        world.handler_steps[world.called_places[-1][0], world.called_places[-1][1] + 1] = [sends_the_next]
        world.send("a")

    if is_busy:
        world.handler_steps["a", 1] = [sends_the_next]
        world.send("a")
    with capture_logs() as logged, running(checked.worker_parts) as worker:

        def have_renewed() -> bool:
            assert checked.problem() is None
            for name in deadlines.keys() & liveness._due_at.keys():
                deadlines[name].add(liveness._due_at[name])
            return all(len(dues) > 3 for dues in deadlines.values()) and (not is_busy or len(world.called_places) > 20)

        eventually(
            have_renewed, timeout_seconds=PATIENCE_SECONDS, describe="lane and heartbeat to renew their deadlines"
        )

    worker.wait_for_end()

    assert [entry for entry in logged if "part" in entry] == []


def test_a_part_that_hangs_while_its_worker_stops_is_logged(on_file: Engine, path: Path) -> None:
    """Other parts may be logged too, because a busy machine keeps them waiting."""
    world = World(on_file)
    world.send("a")
    checked = CheckedWorker(world, path, short_deadlines(working=DEADLINE_SECONDS))
    drains = replace(SETTINGS, drain_seconds=20)
    with (
        capture_logs() as logged,
        hanging(world, ("a", 1)) as hang,
        running(checked.worker_parts, settings=drains) as worker,
    ):
        assert hang.has_begun.wait(PATIENCE_SECONDS)
        worker.stop.request()
        eventually(
            lambda: "lane-0" in [entry["part"] for entry in logged if entry["event"].startswith("no sign of life")],
            timeout_seconds=PATIENCE_SECONDS,
            describe="what hangs to be logged",
        )
        hang.may_end.set()


def test_a_worker_that_has_ended_leaves_no_deadline_behind(on_file: Engine, path: Path) -> None:
    """Otherwise the health check would fail after an orderly end."""
    checked = CheckedWorker(World(on_file), path, short_deadlines())
    with running(checked.worker_parts) as worker:
        eventually(
            lambda: (
                set(checked.signs.liveness._due_at)
                == {"lane-0", "deleter-0", "drain-0", "drain-1", "drainer", "heartbeat"}
            ),
            timeout_seconds=PATIENCE_SECONDS,
            describe="every part to have a deadline",
        )
    worker.wait_for_end()
    join_threads()

    assert checked.signs.liveness._due_at == {}


def test_parts_past_their_deadline_are_counted_in_a_metric(world: World) -> None:
    """After 61 s no part is past its deadline of 90 or 100 s, after 122 s both are."""
    recorded = RecordedMetrics()
    signs = Signs(Liveness(world.clock))
    parts = world.worker(signs=signs, hooks=[WorkerMetrics(recorded, world.clock)]).parts
    whole_worker = Worker(parts, settings=SETTINGS, stop=Stop(), clock=world.clock)
    signs.liveness.expect("lane-0", 90)
    signs.liveness.expect("heartbeat", 100)
    for _ in range(2):
        world.simulator.advance(61)
        whole_worker.maintain()

    assert [put[metrics.STUCK_PARTS] for put in recorded] == [0, 2]
