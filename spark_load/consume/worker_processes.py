"""The real worker as the load test's consumer: `sluice worker`, a process for each slot, recording.

The load test imports nothing of what it loads. It starts the command a service would be started with, with its
recorder on, and the worker's journals lie beside those of the tasks.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sluice.clock import Clock, SystemClock
from sluice.errors import EndpointError
from spark_load.folder.layout import WORKER_LOGS
from spark_load.plan.plan import silence_seconds
from spark_load.profiles.profile import Profile
from spark_load.runtime.task_context import Run

HANDLERS = "examples.load_handlers"
_LOOK_SECONDS = 0.2
_STOP_SECONDS_MAX = 90
_TABLES_SECONDS_MAX = 120


@dataclass(frozen=True, slots=True)
class _Worker:
    queue: str
    consumer: str
    process: subprocess.Popen[bytes]
    log: Path


def idle_seconds(profile: Profile) -> float:
    """Return how long a worker waits for a message before it ends: longer than any pause of the plan."""
    return profile.drain_timeout_seconds + silence_seconds(profile)


def work(run: Run) -> dict[str, str | None]:
    """Run the workers of every queue until no more messages arrive, or the driver stops them.

    Returns:
        The name of each worker's recorder to its queue; none where the driver said stop before they were to begin.

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
        return {}
    databases = _databases(run)
    started: list[_Worker] = []
    try:
        started.extend(  # one by one: where one cannot be started, those before it are known
            _start(run, queue, consumer, number, databases[consumer])
            for queue, consumer in run.deployment.consumers.items()
            for number in range(run.plan.profile.consumers_per_queue)
        )
        while any(worker.process.poll() is None for worker in started) and not coordinator.is_stopped():
            clock.sleep(_LOOK_SECONDS)
    finally:
        _stop(started, clock)
    for worker in started:
        _require_ended_well(worker)
    return {_recorder(run, worker): worker.queue for worker in started}


def _databases(run: Run) -> dict[str, str]:
    """Return the URL of each consumer's inbox: $SLUICE_DSN, or an SQLite file of its own in the run's folder."""
    dsn = os.environ.get("SLUICE_DSN")
    if dsn is not None:
        return dict.fromkeys(run.deployment.consumers.values(), dsn)
    files = {consumer: run.folder / f"inbox-{consumer}.db" for consumer in run.deployment.consumers.values()}
    missing = [file for file in files.values() if not file.exists()]
    if missing:
        _make_tables(missing[0])
        for file in missing[1:]:
            shutil.copyfile(missing[0], file)
    return {consumer: f"sqlite:///{file}" for consumer, file in files.items()}


def _start(run: Run, queue: str, consumer: str, number: int, dsn: str) -> _Worker:
    logs = run.folder / WORKER_LOGS
    logs.mkdir(exist_ok=True)
    log = logs / f"{consumer}-{number}.log"
    options = {
        "--env": run.deployment.environment,
        "--consumer": consumer,
        "--handlers": HANDLERS,
        "--dsn": dsn,
        "--until-idle": f"{idle_seconds(run.plan.profile):g}",
        "--record": str(run.journals),
    }
    arguments = [part for option in options.items() for part in option]
    with log.open("ab") as output:
        process = subprocess.Popen(_sluice("worker", *arguments), stdout=output, stderr=output, env=_environment(run))
    return _Worker(queue, consumer, process, log)


def _sluice(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sluice", *arguments]


def _environment(run: Run) -> Mapping[str, str]:
    """Return the caller's environment, pointed to where the run is."""
    endpoint = {} if run.deployment.endpoint_url is None else {"AWS_ENDPOINT_URL": run.deployment.endpoint_url}
    return {**os.environ, **endpoint, "AWS_REGION": run.deployment.region}


def _make_tables(file: Path) -> None:
    draft = file.with_name(f".{file.name}")
    try:
        made = subprocess.run(
            _sluice("schema", "apply", "inbox", "--dsn", f"sqlite:///{draft}"),
            capture_output=True,
            text=True,
            timeout=_TABLES_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EndpointError(f"the inbox's tables were not made in {draft} within {_TABLES_SECONDS_MAX} s") from error
    if made.returncode:
        raise EndpointError(f"the inbox's tables were not made in {draft}: {_last(made.stderr)}")
    draft.replace(file)


def _stop(started: Sequence[_Worker], clock: Clock) -> None:
    """Tell those that still run to finish what they have; end those that do not."""
    deadline = clock.monotonic() + _STOP_SECONDS_MAX
    for worker in started:
        if worker.process.poll() is None:
            worker.process.terminate()
    for worker in started:
        try:
            worker.process.wait(max(0.0, deadline - clock.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def _require_ended_well(worker: _Worker) -> None:
    if worker.process.returncode:
        output = worker.log.read_text(encoding="utf-8", errors="replace")
        raise EndpointError(
            f"a worker of {worker.consumer} ended with {worker.process.returncode}: {_last(output)}; see {worker.log}"
        )


def _recorder(run: Run, worker: _Worker) -> str:
    """Return the name of a worker's recorder; one that no journal has when it never came to write one."""
    named = f"worker-{worker.consumer}-{worker.process.pid}"
    found = sorted(run.journals.glob(f"{named}-*"))
    return found[-1].stem if found else named


def _last(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
