"""The real worker as the load test's consumer: `sluice worker`, a process for each slot, recording.

The load test imports nothing of what it loads. It starts the command a service would be started with, with its
recorder on, and the worker's journals lie beside those of the tasks.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sluice.clock import Clock, SystemClock
from sluice.errors import EndpointError
from spark_load.consume.forked_worker import ForkedWorker, last_line
from spark_load.folder.layout import WORKER_LOGS
from spark_load.plan.plan import silence_seconds
from spark_load.profiles.profile import Profile
from spark_load.runtime.task_context import Run

HANDLERS = "examples.load_handlers"
_LOOK_SECONDS = 0.2
_STOP_SECONDS_MAX = 90
_SCALED_IDLE_SECONDS = 86_400.0
_TABLES_SECONDS_MAX = 120


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that was started for a queue."""

    queue: str
    consumer: str
    process: ForkedWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What came of the workers of a run.

    Args:
        recorders: the name of each worker's recorder to its queue.
        scaling: how they were scaled, as sentences.
        unknowns: what was not reached, as sentences.
    """

    recorders: Mapping[str, str | None] = field(default_factory=dict)
    scaling: Sequence[str] = ()
    unknowns: Sequence[str] = ()


def idle_seconds(profile: Profile) -> float:
    """Return how long a worker waits for a message before it ends: longer than any pause of the plan.

    One that is scaled ends when it is told to. It has a bound all the same, and so polls for a second only.
    """
    if profile.minute_seconds is not None:
        return _SCALED_IDLE_SECONDS
    return profile.drain_timeout_seconds + silence_seconds(profile)


def work(run: Run) -> Worked:
    """Run the workers of every queue until no more messages arrive, or the driver stops them.

    Returns:
        Their recorders; none where the driver said stop before they were to begin.

    Raises:
        EndpointError: a worker did not start, or ended with an error; the message has its last words.

    Runs on the driver, in a thread of its own. May be run again: what was handled is in the inbox's database.
    """
    clock = SystemClock()
    coordinator = run.coordinator(clock)
    begin_us = coordinator.await_start() + round(run.plan.profile.consume_after_seconds * 1_000_000)
    while clock.now_us() < begin_us and not coordinator.is_stopped():
        clock.sleep(_LOOK_SECONDS)
    if coordinator.is_stopped():
        return Worked()
    urls = databases(run)
    started: list[Worker] = []
    try:
        started.extend(  # one by one: where one cannot be started, those before it are known
            start(run, queue, consumer, f"{consumer}-{number}", urls[consumer])
            for queue, consumer in run.deployment.consumers.items()
            for number in range(run.plan.profile.consumers_per_queue)
        )
        while any(worker.process.poll() is None for worker in started) and not coordinator.is_stopped():
            clock.sleep(_LOOK_SECONDS)
    finally:
        stop(started, clock)
    for worker in started:
        require_ended_well(worker)
    return Worked(recorders={recorder(run, worker): worker.queue for worker in started})


def databases(run: Run) -> dict[str, str]:
    """Return the URL of each consumer's inbox: $SLUICE_DSN, or an SQLite file of its own in the run's folder."""
    dsn = os.environ.get("SLUICE_DSN")
    if dsn is not None:
        return dict.fromkeys(run.deployment.consumers.values(), dsn)
    files = {consumer: run.folder / f"inbox-{consumer}.db" for consumer in run.deployment.consumers.values()}
    missing = [file for file in files.values() if not file.exists()]
    if missing:
        _make_tables(missing[0], run.deployment.environment)
        for file in missing[1:]:
            shutil.copyfile(missing[0], file)
    return {consumer: f"sqlite:///{file}" for consumer, file in files.items()}


def start(run: Run, queue: str, consumer: str, name: str, dsn: str, agent_uri: str | None = None) -> Worker:
    """Start a worker of a queue, which records; `name` is that of its log, `agent_uri` its ECS_AGENT_URI."""
    profile, logs = run.plan.profile, run.folder / WORKER_LOGS
    logs.mkdir(exist_ok=True)
    options = {
        "--env": run.deployment.environment,
        "--consumer": consumer,
        "--handlers": HANDLERS,
        "--dsn": dsn,
        "--until-idle": f"{idle_seconds(profile):g}",
        "--record": str(run.journals),
    }
    arguments = [part for option in options.items() for part in option]
    agent = {} if agent_uri is None else {"ECS_AGENT_URI": agent_uri}
    # Before the transaction, which in SQLite would keep every other message waiting: there is one writer.
    pause = {"SLUICE_FAILPOINT": f"after_receive={profile.handler_seconds:f}"} if profile.handler_seconds else {}
    environment = {**_environment(run), **agent, **pause}
    return Worker(
        queue, consumer, ForkedWorker(["worker", *arguments], environment=environment, log=logs / f"{name}.log")
    )


def _sluice(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sluice", *arguments]


def _environment(run: Run) -> Mapping[str, str]:
    """Return the caller's environment, pointed to where the run is."""
    endpoint = {} if run.deployment.endpoint_url is None else {"AWS_ENDPOINT_URL": run.deployment.endpoint_url}
    return {**os.environ, **endpoint, "AWS_REGION": run.deployment.region}


def _make_tables(file: Path, environment: str) -> None:
    draft = file.with_name(f".{file.name}")
    try:
        made = subprocess.run(
            _sluice("schema", "apply", "inbox", "--env", environment, "--dsn", f"sqlite:///{draft}"),
            capture_output=True,
            text=True,
            timeout=_TABLES_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EndpointError(f"the inbox's tables were not made in {draft} within {_TABLES_SECONDS_MAX} s") from error
    if made.returncode:
        raise EndpointError(f"the inbox's tables were not made in {draft}: {last_line(made.stderr)}")
    draft.replace(file)


def stop(started: Sequence[Worker], clock: Clock) -> None:
    """Tell those that still run to finish what they have; end those that do not."""
    deadline = clock.monotonic() + _STOP_SECONDS_MAX
    for worker in started:
        if worker.process.poll() is None:
            worker.process.terminate()
    for worker in started:
        if not worker.process.wait(max(0.0, deadline - clock.monotonic())):
            worker.process.kill()
            worker.process.wait(_STOP_SECONDS_MAX)


def require_ended_well(worker: Worker) -> None:
    """Raise EndpointError, with its last words, where a worker ended with an error."""
    code = worker.process.poll()
    if code:
        raise EndpointError(
            f"a worker of {worker.consumer} ended with {code}: {worker.process.last_words()}; see {worker.process.log}"
        )


def recorder(run: Run, worker: Worker) -> str:
    """Return the name of a worker's recorder; one that no journal has when it never came to write one."""
    named = f"worker-{worker.consumer}-{worker.process.pid}"
    found = sorted(run.journals.glob(f"{named}-*"))
    return found[-1].stem if found else named
