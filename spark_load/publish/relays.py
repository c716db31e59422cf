"""The relays of a load test with `destination: outbox`: two processes of `sluice relay`, of which one leads."""

from collections.abc import Callable
from pathlib import Path

from sluice.clock import SystemClock
from sluice.judge.folder.layout import WORKER_LOGS
from spark_load.consume.forked_worker import ForkedWorker
from spark_load.consume.slots import Place, Places
from spark_load.consume.worker_processes import environment_at, make_tables, require_ended_well, run_command, stop
from spark_load.faults.shapes import RELAY, RELAYS
from spark_load.profiles.profile import RELAY_LEASE_SECONDS
from spark_load.runtime.task_context import LoadRun

_MODULE = "sluice"


def outbox_file(run: LoadRun) -> Path:
    """Return the SQLite file of the outbox."""
    return run.folder / "outbox.db"


def make_outbox(run: LoadRun) -> None:
    """Create the outbox's tables, unless they exist, and switch bundles on if the profile has them.

    Raises:
        EndpointError: that failed; so it does if the environment's topic declares no bundles.
    """
    if not outbox_file(run).exists():
        make_tables(outbox_file(run), run, "outbox")
    if run.plan.profile.bundle_events_max > 1:
        endpoint = [] if run.deployment.endpoint_url is None else ["--endpoint-url", run.deployment.endpoint_url]
        switch = ["outbox", "bundles", "on", "--reason", "a load test", "--yes", *endpoint]
        run_command(run, switch, outbox_file(run), fails="bundles were not switched on")


def run_relays(run: LoadRun, take: Callable[[Places], None]) -> None:
    """Run the relays until the driver stops them; a relay that a fault ends is replaced.

    Args:
        run: the run, whose outbox has its tables.
        take: called with the places of the relays before these start; the fault injector needs them.

    Raises:
        EndpointError: a relay did not start, or ended with an error; the message has the last line of its log.

    Runs on the driver, in a thread of its own. Safe to repeat: published messages are marked in the outbox.
    """
    clock, coordinator = SystemClock(), run.coordinator(SystemClock())
    logs = run.folder / WORKER_LOGS
    logs.mkdir(exist_ok=True)
    options = ("--env", run.deployment.environment, "--dsn", f"sqlite:///{outbox_file(run)}")

    def begin(place: Place, name: str) -> ForkedWorker:
        arguments = ["relay", *options, "--topic-arn", run.deployment.topic_arn, "--lease", f"{RELAY_LEASE_SECONDS}"]
        environment, log = environment_at(run, place.name), logs / f"{name}.log"
        return ForkedWorker(arguments, environment=environment, log=log, module=_MODULE)

    places = Places(dict.fromkeys(RELAYS, RELAY), begin, is_harmed=lambda: run.has_faults, clock=clock)
    take(places)
    try:
        places.run(coordinator.is_stopped)
    finally:
        stop([process for _, process in places.processes], clock)
    for place in places.all:
        if place.worked[-1] not in place.killed or place.abandoned_worker:
            require_ended_well(place.worked[-1], "a relay")
