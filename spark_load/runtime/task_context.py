"""The context that all Spark tasks of a run share: their names, and their clients with a recorder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext as SparkTaskContext

from sluice.clock import Clock, SystemClock, clock_id
from sluice.errors import HistoryError
from sluice.judge.folder.layout import JOURNALS
from sluice.recorder.journal import Journal
from sluice.recorder.recorder import Recorder, host_name
from sluice.saboteurs import sabotage
from spark_load.plan.plan import Plan
from spark_load.runtime.coordinator import RunCoordinator, TaskProgress
from spark_load.runtime.deployment import LoadDeployment

SUMMARY_SCHEMA = "worker string, done bigint, abandoned bigint"
"""The schema of `summary`."""
PUBLISHER, CONSUMER, DRIVER = "publish", "consume", "driver"
_SABOTAGE_EVERY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """Everything a task needs; pickled into it.

    Args:
        id: the run's id, a part of every body and deduplication id.
        folder: the run's folder, shared by driver and tasks.
        clock_id: identifies the driver's machine and its start.
        clock_offset_us: wall clock minus monotonic clock, used by every task on that machine.
        saboteur: the name of a saboteur to install, for a run that must be found invalid.
        attempt: 0, and one more each time the run is resumed.
        resumed_at_us: the offset along the plan at which this attempt begins.
        begin_by_us: the instant by which this attempt has to begin, for each message whose publish was not answered;
            after it, the message must not be published again.
        services: the scaled service of each queue; empty if a fixed number of workers runs.
        near: the URL of each line's near end to the endpoint, by the name of the line.
        near_databases: the URL of each line's near end to the database, by the place of the worker.
        has_faults: whether the run has faults.
    """

    id: str
    folder: Path
    deployment: LoadDeployment
    plan: Plan
    clock_id: str
    clock_offset_us: int
    transport: str = "sockets"
    saboteur: str | None = None
    attempt: int = 0
    resumed_at_us: int = 0
    begin_by_us: Mapping[int, int] = field(default_factory=dict)
    services: Mapping[str, Any] = field(default_factory=dict)
    near: Mapping[str, str] = field(default_factory=dict)
    near_databases: Mapping[str, str] = field(default_factory=dict)
    has_faults: bool = False

    @property
    def functions(self) -> frozenset[str]:
        """Return the consumers whose Lambda functions consume in this run."""
        return self.deployment.functions if self.plan.profile.consumer == "lambda" else frozenset()

    @property
    def gapless_queues(self) -> tuple[str, ...]:
        """Return the queues whose messages are never dead-lettered before their function was called."""
        return tuple(queue for queue, consumer in self.deployment.consumers.items() if consumer in self.functions)

    @property
    def writes_effects(self) -> bool:
        """Return whether handlers write a row for each effect: a process may die before it records the effect."""
        return self.has_faults or bool(self.functions)

    @property
    def journals(self) -> Path:
        """Return the folder of the journals."""
        return self.folder / JOURNALS

    def endpoint_url(self, line: str) -> str | None:
        """Return the endpoint URL for a name; that of its line, if the run has a line of that name."""
        return self.near.get(line, self.deployment.endpoint_url)

    def queue_of(self, consumer: int) -> str:
        """Return the name of the queue that a consumer's task works on."""
        queues = list(self.deployment.queue_urls)
        return queues[consumer % len(queues)]

    def expired_messages(self, begun_us: int) -> list[int]:
        """Return the messages that must not be published again, if the plan begins at that instant."""
        return sorted(idx for idx, by_us in self.begin_by_us.items() if begun_us + self.resumed_at_us > by_us)

    def recorders(self) -> dict[str, str | None]:
        """Return the queue that each recorder consumes, by the recorder's name.

        The history is whole when all recorders have finished. Workers are missing here: they get their names when they
        start.
        """
        profile = self.plan.profile
        publishers: dict[str, str | None] = {f"{PUBLISHER}-{number}": None for number in range(profile.publish_tasks)}
        if profile.has_services:
            return publishers | {f"{DRIVER}-0": None}
        consumers = range(profile.consumers_per_queue * len(self.deployment.queue_urls))
        return (
            publishers | {f"{CONSUMER}-{number}": self.queue_of(number) for number in consumers} | {f"{DRIVER}-0": None}
        )

    def coordinator(self, clock: Clock) -> RunCoordinator:
        """Return the coordinator of this run."""
        return RunCoordinator(self.folder / f"board-{self.attempt}", clock)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The context of one task: its clients, recorder and clock.

    `again` is how many earlier processes of it a fault ended.
    """

    sns: Any
    sqs: Any
    recorder: Recorder
    journal: Journal
    coordinator: RunCoordinator
    clock: Clock
    name: str
    again: int = 0


def summary(progress: TaskProgress) -> pa.RecordBatch:
    """Return the result of a task, one row; everything else is in its journal."""
    return pa.RecordBatch.from_pydict(
        {"worker": [progress.worker], "done": [progress.done], "abandoned": [progress.abandoned]}
    )


@contextmanager
def task_context(run: LoadRun, role: str) -> Iterator[TaskContext]:
    """Yield recorded clients for the task in which this code runs; close its journal when the block ends well.

    Runs inside a Spark task, or on the driver. Every attempt of the run, and every further process of a task, writes a
    journal of its own. Raises HistoryError if Spark runs a task again more often than faults have ended it.
    """
    context = SparkTaskContext.get()
    name = f"{role}-{0 if context is None else context.partitionId()}"
    here = clock_id()
    clock = SystemClock(run.clock_offset_us if here == run.clock_id else None)
    coordinator = run.coordinator(clock)
    again = 0 if context is None else context.attemptNumber()
    if again > coordinator.again_count(name):
        raise HistoryError(f"Spark runs {name} again, which would publish again; resume the run instead")
    common = {
        "run": run.id,
        "host": host_name(),
        "clock_id": here,
        "worker": name,
        "task_attempt": run.attempt,
    }
    deployment = replace(run.deployment, endpoint_url=run.endpoint_url(role))
    sns, sqs = deployment.client("sns"), deployment.client("sqs")
    if run.saboteur is not None:
        sabotage((sns, sqs), run.saboteur, every=_SABOTAGE_EVERY)
    journal_name = f"{name}-{run.attempt}{f'.{again}' if again else ''}"
    with Journal(run.journals, journal_name, common=common, clock=clock) as journal, coordinator.present(name):
        recorder = Recorder(journal, names=run.deployment.names(), clock=clock)
        recorder.attach(sns)
        recorder.attach(sqs)
        yield TaskContext(sns, sqs, recorder, journal, coordinator, clock, name, again)
