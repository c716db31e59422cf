"""A worker or relay that makes no progress fails its health check, and one that waits, works or is idle does not."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from emulator import localstack
from sluice.clock import SystemClock, eventually
from sluice.declaration import metrics
from sluice.messaging.backoff import Backoff
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import Ack, Context, Outcome, Reject
from sluice.messaging.inbox.groups import Policy
from sluice.messaging.liveness import AliveFile, Liveness
from sluice.messaging.telemetry.metrics import WorkerMetrics
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.scale_in_protection import Protection
from sluice.messaging.worker.settings import WorkerSettings
from sluice.messaging.worker.signs import Promises, Signs
from sluice.messaging.worker.worker import Worker
from tests.integration.messaging.relay.test_signs import relay_process
from tests.support import worker_processes
from tests.support.messaging_process import MessagingProcess
from tests.support.project import PROJECT
from tests.support.worker_harness import Fault, Hands, World

PATIENCE_SECONDS = 30
PROMISED_SECONDS = 1.0
PARKS = Policy(consumer="billing", parks_poison=True, parks_gaps=True)
BACKOFF = Backoff(base_seconds=0.01, cap_seconds=0.01, floor_seconds=0.01)
SETTINGS = WorkerSettings(lanes=1, wait_seconds=0, drain_seconds=0.3, keep_inbox_seconds=86_400, backoff=BACKOFF)


class Checked:
    """A worker with threads, and the command that checks it."""

    def __init__(self, world: World, path: Path, promises: Promises) -> None:
        self.path, self.stop = path, Stop()
        self.signs = Signs(Liveness(SystemClock()), promises)
        alive = AliveFile(path, SystemClock())
        self.hands: Hands = world.worker(poll_seconds=0, backoff=BACKOFF, signs=self.signs, alive=alive)
        self.parts = replace(self.hands.parts, protection=Protection(None, SystemClock()))

    @contextmanager
    def running(self, drain_seconds: float = 0.3) -> Iterator[None]:
        """Run the worker meanwhile."""
        settings = replace(SETTINGS, drain_seconds=drain_seconds)
        worker = Worker(self.parts, settings=settings, stop=self.stop, clock=SystemClock())
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(worker.run)
            try:
                yield
            finally:
                self.stop.request()
                ended.result(PATIENCE_SECONDS)
        join_threads()

    def check(self) -> tuple[int, str]:
        """Run the command; return its exit code and its one line."""
        return check(self.path)

    def await_passed(self) -> None:
        """Wait until the command passes."""
        eventually(lambda: self.check()[0] == 0, timeout_seconds=PATIENCE_SECONDS, describe="the check to pass")

    def await_failed(self, text: str) -> None:
        """Wait until the command fails with that."""
        eventually(
            lambda: (found := self.check())[0] == 2 and text in found[1],
            timeout_seconds=PATIENCE_SECONDS,
            describe=f"the check to fail with {text!r}",
        )


def check(path: Path, *options: str) -> tuple[int, str]:
    """Run the health check as a container does; return its exit code and its one line."""
    command = [sys.executable, "-m", "sluice", "alive", str(path), *options]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=30, check=False)
    (line,) = (ended.stdout + ended.stderr).splitlines()
    return ended.returncode, line


def promising(**promised: float) -> Promises:
    """Return promises that a part which hangs breaks soon."""
    return replace(Promises(polling=60, working=60, beating=60), **promised)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the signs of life are."""
    return tmp_path / "alive"


@contextmanager
def hanging(world: World, place: tuple[str, int]) -> Iterator[threading.Event]:
    """Let the handler of a message hang; yield what is set when it does."""
    hangs, may_end = threading.Event(), threading.Event()

    def handler(_: Session, __: Event, ___: Context) -> Outcome:
        hangs.set()
        assert may_end.wait(PATIENCE_SECONDS)
        return Ack()

    world.says[place] = [handler]
    try:
        yield hangs
    finally:
        may_end.set()


def join_threads() -> None:
    """Wait for the threads a worker has left behind."""
    for thread in threading.enumerate():
        if thread.name.startswith(("lane-", "drain", "heartbeat", "care")):
            thread.join(PATIENCE_SECONDS)


def test_a_lane_whose_handler_outlasts_its_deadline_fails_the_check(on_file: Engine, path: Path) -> None:
    """It is named; once it goes on, the check passes again."""
    world = World(on_file)
    world.send("a")
    checked = Checked(world, path, promising(working=PROMISED_SECONDS))
    with checked.running():
        with hanging(world, ("a", 1)) as hangs:
            assert hangs.wait(PATIENCE_SECONDS)
            checked.await_failed("no sign of life from lane-0 (")
        checked.await_passed()


def test_a_lane_whose_poll_never_ends_fails_the_check(
    on_file: Engine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that trickles keeps every timeout from passing."""
    checked = Checked(World(on_file), path, promising(polling=PROMISED_SECONDS))
    may_end = threading.Event()
    monkeypatch.setattr(checked.hands.queue, "receive", lambda **_: may_end.wait(PATIENCE_SECONDS) and None)
    with checked.running():
        checked.await_failed("no sign of life from lane-0 (")
        may_end.set()
        checked.await_passed()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_heartbeat_that_is_gone_fails_the_check(on_file: Engine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it every message that takes long is lost; the lanes know nothing of it."""
    checked = Checked(World(on_file), path, promising(beating=PROMISED_SECONDS))

    def exits() -> None:
        raise SystemExit

    monkeypatch.setattr(checked.hands.heartbeat, "beat", exits)
    with checked.running():
        checked.await_failed("no sign of life from heartbeat (")


def test_a_drainer_whose_handler_hangs_fails_the_check(
    on_file: Engine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, though lanes and heartbeat go on."""
    world = parking(World(on_file, policy=PARKS), following=1)
    checked = Checked(world, path, promising(working=4 * PROMISED_SECONDS))  # drainer looks every second
    pause = threading.Event()  # a lane that polls without a pause leaves the interpreter to nobody else
    monkeypatch.setattr(checked.hands.queue, "receive", lambda **_: pause.wait(0.05) or None)
    with capture_logs() as logged, checked.running(), hanging(world, ("a", 2)) as hangs:
        assert hangs.wait(PATIENCE_SECONDS)
        checked.await_failed("no sign of life from drain-")

    (part,) = [entry["part"] for entry in logged if str(entry["event"]).startswith("no sign of life")]
    assert part in ("drain-0", "drain-1")


def test_a_drainer_promises_anew_for_each_message(world: World, path: Path) -> None:
    """A single step may handle a thousand, each of which may take as long as a handler may."""
    parks = parking(World(world.engine, consumer="shipping", policy=replace(PARKS, consumer="shipping")), following=4)
    liveness = Liveness(parks.clock)
    signs = Signs(liveness, Promises(working=60))
    drainer = parks.worker(signs=signs).drainer
    overdue: list[dict[str, float]] = []

    def takes_long(_: Session, __: Event, ___: Context) -> Outcome:
        parks.simulator.advance(50)
        overdue.append(liveness.overdue())
        return Ack()

    for seq in (2, 3, 4, 5):
        parks.says["a", seq] = [takes_long]
    signs.working()
    assert drainer.step() == 4

    assert overdue == [{}] * 4
    parks.simulator.advance(61)
    assert list(liveness.overdue()) == ["MainThread"]


def test_lanes_that_are_idle_busy_or_cut_off_are_never_overdue(world: World) -> None:
    """By the promises of production, and looked at after every step: away are first the queue, then the database."""
    promises = Promises.of_worker(lanes=1, rest_seconds_max=20, timeout_seconds=30, handler_seconds_max=300)
    signs = Signs(Liveness(world.clock), promises)
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

    world.says["a", 1] = [takes_long]
    world.send("a")
    for turn in range(60):
        if turn == 20:
            worker.line.faults = [Fault(operation="ReceiveMessage", unreachable=True)] * 20
        if turn == 40:
            worker.processor.transactions.is_database_away = True
            event.listen(world.engine, "begin", answers_nothing)
        worker.lane.step()
        overdue.append(signs.liveness.overdue())
    event.remove(world.engine, "begin", answers_nothing)

    assert world.effects() == [("a", 1)]
    assert world.clock.monotonic() - began_at > 5 * promises.polling
    assert [found for found in overdue if found] == []


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_a_healthy_worker_passes_the_check_for_several_promises(on_file: Engine, path: Path, *, is_busy: bool) -> None:
    """Each part renews its promise in time, with nothing to do and with a handler that never waits."""
    world = World(on_file)
    checked = Checked(world, path, Promises(polling=2, working=2, beating=2))
    clock = SystemClock()

    def sends_the_next(*_: object) -> None:
        world.says[world.called[-1][0], world.called[-1][1] + 1] = [sends_the_next]
        world.send("a")

    if is_busy:
        world.says["a", 1] = [sends_the_next]
        world.send("a")
    with capture_logs() as logged, checked.running():
        until = clock.monotonic() + 9

        def has_passed() -> bool:
            found = check(path, "--within", "8")
            assert found[0] == 0, found
            return clock.monotonic() > until

        eventually(has_passed, timeout_seconds=PATIENCE_SECONDS, describe="three promises to be kept")
        ran = sorted(thread.name for thread in threading.enumerate() if thread.name in {"lane-0", "heartbeat"})

    assert ran == ["heartbeat", "lane-0"]
    assert (len(world.called) > 20) == is_busy
    assert [entry for entry in logged if "part" in entry] == []


def test_a_worker_that_stops_is_still_looked_after(on_file: Engine, path: Path) -> None:
    """What hangs while it drains is overdue as before."""
    world = World(on_file)
    world.send("a")
    checked = Checked(world, path, promising(working=PROMISED_SECONDS))
    with capture_logs() as logged, checked.running(drain_seconds=20), hanging(world, ("a", 1)) as hangs:
        assert hangs.wait(PATIENCE_SECONDS)
        checked.stop.request()
        overdue = eventually(
            lambda: [entry["part"] for entry in logged if str(entry["event"]).startswith("no sign of life")],
            timeout_seconds=PATIENCE_SECONDS,
            describe="what hangs to be logged",
        )

    assert overdue == ["lane-0"]


def test_a_worker_that_has_ended_is_expected_nothing_of(on_file: Engine, path: Path) -> None:
    """Its threads have taken their promises back, each at its end."""
    checked = Checked(World(on_file), path, promising())
    with checked.running():
        eventually(
            lambda: set(checked.signs.liveness._due_at) == {"lane-0", "drain-0", "drain-1", "drainer", "heartbeat"},
            timeout_seconds=PATIENCE_SECONDS,
            describe="every part to promise something",
        )

    assert checked.signs.liveness._due_at == {}


def test_how_many_parts_are_stuck_is_measured(world: World) -> None:
    """A gauge beside those of the inbox; zero when all is well."""
    put: list[float] = []

    class Sink:
        def put(self, values: Mapping[str, float]) -> None:
            put.append(values[metrics.STUCK_PARTS])

    signs = Signs(Liveness(world.clock))
    parts = world.worker(signs=signs, hooks=[WorkerMetrics(Sink(), world.clock)]).parts
    caring = Worker(parts, settings=SETTINGS, stop=Stop(), clock=world.clock)
    signs.liveness.expect("lane-0", 90)
    signs.liveness.expect("heartbeat", 100)
    for _ in range(2):
        world.simulator.advance(61)
        caring.care()

    assert put == [0, 2]


def parking(world: World, *, following: int) -> World:
    """Let a group's first message be dead and brought back; so many that follow it are set aside, and due."""
    worker = world.worker(poll_seconds=0)
    world.says["a", 1] = [Reject("no such customer")]
    world.send(*["a"] * (following + 1))
    world.work_off(worker)
    world.redrive()
    world.work_off(worker)
    assert world.parked() == [("a", seq) for seq in range(2, following + 2)]
    return world


# --- real processes ---------------------------------------------------------------------------------------------------


def await_check(path: Path, code: int, text: str, *options: str) -> None:
    """Wait until the command ends with that code and says that."""
    eventually(
        lambda: (found := check(path, *options))[0] == code and text in found[1],
        timeout_seconds=PATIENCE_SECONDS,
        describe=f"the check to end with {code}: {text}",
    )


def frozen_killed_and_ended(start: Callable[[], MessagingProcess], path: Path) -> None:
    """Check a process that runs, is frozen, goes on, ends as it should, and is killed."""
    with start() as process:
        await_check(path, 0, "is alive, its last sign of life is ")
        process.send(signal.SIGSTOP)
        await_check(path, 2, "gave no sign of life for ", "--within", "7")
        process.send(signal.SIGCONT)
        await_check(path, 0, "is alive, its last sign of life is ", "--within", "7")
        process.send(signal.SIGTERM)
        assert process.ended() == 0
        assert check(path)[1].endswith("(No such file or directory); is it what --alive names?")
    with start() as process:
        await_check(path, 0, "is alive, its last sign of life is ")
        process.send(signal.SIGKILL)
        assert process.ended() == -signal.SIGKILL
        await_check(path, 2, "gave no sign of life for ", "--within", "7")


@pytest.mark.xdist_group("localstack")
def test_a_worker_that_is_frozen_or_killed_fails_the_check(
    on_file: Engine, emulated: localstack.Running, path: Path, tmp_path: Path
) -> None:
    """One that goes on passes it again, and one that has ended has no file any more."""
    with worker_processes.opened(on_file, emulated, tmp_path, worker_processes.consumer()) as worker_fleet:
        frozen_killed_and_ended(lambda: worker_fleet.worker(SLUICE_ALIVE_FILE=str(path)), path)


def test_a_relay_that_is_frozen_or_killed_fails_the_check(path: Path, tmp_path: Path) -> None:
    """Its loop writes the file itself, so a step that never ends is a frozen process to the check."""
    frozen_killed_and_ended(lambda: relay_process(tmp_path, "--alive", str(path)), path)


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    """One line, exit code 3, and nothing is begun."""
    with relay_process(tmp_path, "--alive", str(tmp_path / "nowhere" / "alive")) as process:
        assert process.ended() == 3
        assert process.log.splitlines() == [
            f"sluice: alive file is '{tmp_path}/nowhere/alive' (No such file or directory), allowed is a file in a"
            " folder that can be written to; change --alive, for instance to /dev/shm/alive"
        ]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["{folder}"], 2, "sluice: no sign of life in '{folder}' (Is a directory); is it what --alive names?"),
        (["{folder}/pipe"], 2, "sluice: no sign of life in '{folder}/pipe' (0 bytes that no worker or relay has"),
        (
            ["{folder}/alive", "--within", "0"],
            3,
            "sluice: Invalid value for '--within': it is '0', allowed is a number of seconds from 0.001",
        ),
        ([], 3, "sluice: Missing argument 'FILE'"),
    ],
)
def test_the_check_of_what_is_no_file_of_signs_ends_at_once(
    tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    """A pipe nobody writes to is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    given = [argument.format(folder=tmp_path) for argument in arguments]
    command = [sys.executable, "-m", "sluice", "alive", *given]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=30, check=False)

    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.splitlines()[-1].startswith(text.format(folder=tmp_path))


def test_the_check_imports_the_standard_library_and_click_only(path: Path) -> None:
    """It runs every few seconds beside the worker: no database driver and no AWS client is loaded for it."""
    AliveFile(path, SystemClock())
    code = (
        "import json, sys; before = set(sys.modules); sys.argv = ['sluice', 'alive', sys.argv[1]];"
        "from sluice.cli.main import main; main();"
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=PROJECT, capture_output=True, text=True, timeout=30, check=True
    )
    printed, imported = ended.stdout.splitlines()

    assert printed.startswith(f"process {os.getpid()} is alive")
    assert set(json.loads(imported)) - sys.stdlib_module_names == {"click", "sluice"}
