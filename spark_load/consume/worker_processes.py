"""Run the product as the load test's consumer: processes of `sluice worker`, or of `sluice lambda local`.

The load test does not import the code that it tests. It starts commands with `--record`, so that their journals are
beside those of Spark's tasks.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sluice.clock import Clock, SystemClock
from sluice.errors import EndpointError
from sluice.judge.folder.layout import WORKER_LOGS
from spark_load.consume.effects import make_table
from spark_load.consume.forked_worker import ForkedWorker, FunctionWorker, last_line
from spark_load.consume.slots import LOOK_SECONDS, Place, Places
from spark_load.faults.servers import DSN
from spark_load.faults.shapes import worker_names
from spark_load.plan.plan import silence_seconds
from spark_load.profiles.profile import RELAY_LEASE_SECONDS, Profile
from spark_load.runtime.coordinator import RunStep
from spark_load.runtime.task_context import LoadRun

HANDLERS = "sluice.testing.load.handlers"
_EFFECTS, _FAILING = "sluice.testing.load.effects", "sluice.testing.load.failing"
_ENTRY_POINT = "sluice.testing.load.function.handle"
POISON, THROTTLE, MISREPORT = "poison", "throttle", "misreport"
"""Folders in the run's folder, one for each kind of fault. A file named after a consumer turns the fault on for it."""
_STOP_SECONDS_MAX = 90
_START_SECONDS = 300  # of a function: one that is ended at its start begins anew, and on a busy machine never ends it
_SCALED_IDLE_SECONDS = 86_400.0
_TABLES_SECONDS_MAX = 120


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker that was started for a queue."""

    queue: str
    consumer: str
    process: ForkedWorker

    @property
    def title(self) -> str:
        """Return its name in a sentence."""
        return f"a worker of {self.consumer}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersResult:
    """The result of a run's workers.

    Args:
        recorders: the name of each worker's recorder to its queue.
        scaling: sentences about how the workers were scaled.
        unknowns: sentences about states that were not reached.
        killed: the recorders of processes that were killed, so that their journals have no end: workers that a fault
            ended, and all functions, because a poller kills its functions.
        crashed: sentences about workers that ended with an error under faults and were replaced.
        missed: sentences about faults that hit nothing, or were still to come when the run ended.
    """

    recorders: Mapping[str, str | None] = field(default_factory=dict)
    scaling: Sequence[str] = ()
    unknowns: Sequence[str] = ()
    killed: Sequence[str] = ()
    crashed: Sequence[str] = ()
    missed: Sequence[str] = ()


def idle_seconds(profile: Profile) -> float:
    """Return how long a worker waits for a message before it ends: longer than any pause of the plan.

    If a fault kills the leading relay, nothing is published until its lease has ended, so that time is added. A scaled
    worker is stopped by its policy. Its bound is a day, because only a worker with a bound polls for one second.
    """
    if profile.minute_seconds is not None:
        return _SCALED_IDLE_SECONDS
    has_lease = profile.destination == "outbox" and not profile.faults.is_calm
    lease_seconds = RELAY_LEASE_SECONDS if has_lease else 0
    return profile.drain_timeout_seconds + silence_seconds(profile) + lease_seconds


def work(run: LoadRun, take: Callable[[Places], None] = lambda _: None) -> WorkersResult:
    """Run the workers of every queue until no more messages arrive, or the driver announces the end or a stop.

    In a run with faults, a worker that ended by a fault or with an error is replaced by a new one.

    Args:
        run: the run of the workers.
        take: called with the places of the workers before these start; the fault injector needs them.

    Returns:
        The recorders of the workers; none if the driver announced a stop before they began.

    Raises:
        EndpointError: a worker did not start, or ended with an error; the message has the last line of its log.

    Runs on the driver, in a thread of its own. Safe to repeat: the inbox's database knows the handled messages.
    """
    clock = SystemClock()
    coordinator = run.coordinator(clock)
    begin_us = coordinator.wait_for(RunStep.START) + round(run.plan.profile.consume_after_seconds * 1_000_000)
    while clock.now_us() < begin_us and not coordinator.is_stopped():
        clock.sleep(LOOK_SECONDS)
    if coordinator.is_stopped():
        return WorkersResult()
    urls = databases(run)
    queues = {consumer: queue for queue, consumer in run.deployment.consumers.items()}

    def begin(place: Place, name: str) -> ForkedWorker:
        consumer = place.consumer
        dsn = run.near_databases.get(place.name, urls[consumer])
        return start(run, queues[consumer], consumer, name, dsn, place=place).process

    per_queue = run.plan.profile.consumers_per_queue
    names = {name: consumer for consumer in queues for name in worker_names([consumer], per_queue)}
    places = Places(names, begin, is_harmed=lambda: run.has_faults, clock=clock)
    take(places)
    try:
        places.run(lambda: coordinator.is_stopped() or coordinator.has_reached(RunStep.FINISH))
    finally:
        started = [WorkerProcess(queues[consumer], consumer, process) for consumer, process in places.processes]
        stop([worker.process for worker in started], clock)
    killed = {process.pid for place in places.all for process in place.killed}
    filled = {process.pid for place in places.all for process in place.filled}
    for worker in started:
        if worker.process.pid not in killed or any(worker.process is place.abandoned_worker for place in places.all):
            require_ended_well(worker.process, worker.title)
    recorders = {recorder(run, worker): worker.queue for worker in started}
    in_functions = function_recorders(run, recorders)
    return WorkersResult(
        recorders={**recorders, **in_functions},
        killed=[
            *(recorder(run, worker) for worker in started if worker.process.pid in killed - filled),
            *in_functions,
        ],
        crashed=[
            f"{place.name} ended with {process.poll()} ({process.last_words()})"
            for place in places.all
            for process in place.crashed
        ],
    )


def function_recorders(run: LoadRun, of_pollers: Collection[str]) -> dict[str, str]:
    """Return the queue of each recorder in a function's process; `of_pollers` are the recorders of the pollers."""
    queues = {consumer: queue for queue, consumer in run.deployment.consumers.items()}
    return {
        journal.stem: queues[consumer]
        for consumer in sorted(run.functions)
        for journal in sorted(run.journals.glob(f"worker-{consumer}-*"))
        if journal.stem not in of_pollers
    }


def databases(run: LoadRun) -> dict[str, str]:
    """Return the URL of each consumer's inbox: $SLUICE_DSN, or an SQLite file in the run's folder."""
    dsn = os.environ.get(DSN)
    if dsn is not None:
        if run.writes_effects:
            make_table(dsn)
        return dict.fromkeys(run.deployment.consumers.values(), dsn)
    files = database_files(run)
    missing = [file for file in files.values() if not file.exists()]
    if missing:
        make_tables(missing[0], run, "inbox")
        for file in missing[1:]:
            shutil.copyfile(missing[0], file)
    return {consumer: f"sqlite:///{file}" for consumer, file in files.items()}


def used_databases(run: LoadRun) -> dict[str, str]:
    """Return the URL of each consumer's inbox that a worker may have used; none is created."""
    dsn = os.environ.get(DSN)
    files = database_files(run)
    return {
        consumer: dsn or f"sqlite:///{file}" for consumer, file in files.items() if dsn is not None or file.exists()
    }


def database_files(run: LoadRun) -> dict[str, Path]:
    """Return the SQLite file of each consumer's inbox; used unless SLUICE_DSN names another database."""
    return {consumer: run.folder / f"inbox-{consumer}.db" for consumer in run.deployment.consumers.values()}


def start(
    run: LoadRun,
    queue: str,
    consumer: str,
    name: str,
    dsn: str,
    agent_uri: str | None = None,
    *,
    place: Place | None = None,
) -> WorkerProcess:
    """Start a worker of a queue, with recording on.

    Args:
        run: the run.
        queue: the name of the queue.
        consumer: the consumer of the queue.
        name: the name of the worker's log; it begins with the name of the place.
        dsn: the URL of the consumer's inbox.
        agent_uri: the worker's ECS_AGENT_URI.
        place: says whether the worker's handlers fail and how far its clock is ahead; None means neither.
    """
    profile, logs = run.plan.profile, run.folder / WORKER_LOGS
    logs.mkdir(exist_ok=True)
    # A worker that a fault ended may hold a message. Others get it after the visibility timeout, and wait as long.
    held_seconds = run.deployment.visibility_timeout_seconds[queue] if run.writes_effects else 0
    handlers = _EFFECTS if run.writes_effects else HANDLERS
    is_function = consumer in run.functions
    options = {
        "--env": run.deployment.environment,
        "--consumer": consumer,
        "--handlers": _FAILING if place is not None and place.is_bad else handlers,
        "--dsn": dsn,
        "--until-idle": f"{idle_seconds(profile) + held_seconds:g}",
        "--record": str(run.journals),
    }
    if is_function:
        options |= {
            "--entry-point": _ENTRY_POINT,
            "--throttled-while": str(run.folder / THROTTLE / consumer),
            "--start-timeout": f"{_START_SECONDS:g}",
        }
    arguments = [part for option in options.items() for part in option]
    agent = {} if agent_uri is None else {"ECS_AGENT_URI": agent_uri}
    # The handler's time passes at a failpoint before the transaction: in SQLite a transaction blocks all other writers.
    pause = {"SLUICE_FAILPOINT": f"after_receive={profile.handler_seconds:f}"} if profile.handler_seconds else {}
    harm = {
        "SLUICE_LOAD_POISON": str(run.folder / POISON / consumer),
        "SLUICE_LOAD_MISREPORT": str(run.folder / MISREPORT / consumer),
    }
    offset = {"SLUICE_LOAD_CLOCK": str(run.clock_offset_us)}
    environment = {**offset, **harm, **environment_at(run, name.partition(".")[0]), **agent, **pause}
    process = (FunctionWorker if is_function else ForkedWorker)(
        [*(["lambda", "local"] if is_function else ["worker"]), *arguments],
        environment=environment,
        log=logs / f"{name}.log",
        ahead_seconds=0 if place is None else place.ahead_seconds,
    )
    return WorkerProcess(queue, consumer, process)


def environment_at(run: LoadRun, place: str) -> Mapping[str, str]:
    """Return the environment variables of a process at a place, with the run's endpoint and region.

    If the place has a line (see `spark_load.faults.lines`), the endpoint is the near end of the line.
    """
    url = run.endpoint_url(place)
    endpoint = {} if url is None else {"AWS_ENDPOINT_URL": url}
    return {**os.environ, **endpoint, "AWS_REGION": run.deployment.region}


def make_tables(file: Path, run: LoadRun, part: str) -> None:
    """Create the tables of the inbox or outbox in an SQLite file; also the table of effects, if handlers write them.

    Raises:
        EndpointError: they were not made, and why.
    """
    draft = file.with_name(f".{file.name}")
    run_command(run, ["schema", "apply", part], draft, fails=f"the tables of the {part} were not made in {draft}")
    if run.writes_effects and part == "inbox":
        make_table(f"sqlite:///{draft}")
    draft.replace(file)


def run_command(run: LoadRun, command: Sequence[str], database: Path, *, fails: str) -> None:
    """Run a command of `sluice` on an SQLite file of the run's environment.

    Raises:
        EndpointError: it failed, and why; `fails` begins the sentence.
    """
    options = ["--env", run.deployment.environment, "--dsn", f"sqlite:///{database}"]
    try:
        made = subprocess.run(
            [sys.executable, "-m", "sluice", *command, *options],
            capture_output=True,
            text=True,
            timeout=_TABLES_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EndpointError(f"{fails} within {_TABLES_SECONDS_MAX} s") from error
    if made.returncode:
        raise EndpointError(f"{fails}: {last_line(made.stderr)}")


def stop(started: Sequence[ForkedWorker], clock: Clock) -> None:
    """Tell the running processes to finish their messages; kill those that do not end."""
    deadline = clock.monotonic() + _STOP_SECONDS_MAX
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        if not process.wait(max(0.0, deadline - clock.monotonic())):
            process.kill()
            process.wait(_STOP_SECONDS_MAX)


def require_ended_well(process: ForkedWorker, who: str) -> None:
    """Raise EndpointError, with the last line of the process's log, if it ended with an error."""
    code = process.poll()
    if code:
        raise EndpointError(f"{who} ended with {code}: {process.last_words()}; see {process.log}")


def recorder(run: LoadRun, worker: WorkerProcess) -> str:
    """Return the name of a worker's recorder; it has no journal if the worker never began to write one."""
    named = f"worker-{worker.consumer}-{worker.process.pid}"
    found = sorted(run.journals.glob(f"{named}-*"))
    return found[-1].stem if found else named
