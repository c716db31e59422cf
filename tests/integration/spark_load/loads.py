"""Load tests as the driver runs them, in the session and against the queues of a test."""

from collections.abc import Sequence
from pathlib import Path

import boto3
from pyspark.sql import SparkSession

from emulator import localstack
from sluice.clock import SystemClock, clock_id, wall_minus_monotonic_us
from sluice.declaration import Environment
from sluice.history.events import HistoryEvent
from sluice.judge.checker.verdict import PropertyState, Verdict
from sluice.recorder.journal import events_of, read_journal
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.publish.transport.opening import choose_transport
from spark_load.run import driver
from spark_load.runtime import deployment
from spark_load.runtime.coordinator import TaskProgress
from spark_load.runtime.task_context import LoadRun
from tests.support.declaration import environment

LOCAL = environment("local")


def watch_nothing(_phase: str, _progress: list[TaskProgress]) -> None:
    """Watch nothing."""


def published_count(progress: list[TaskProgress]) -> int:
    return sum(task.done for task in progress if task.role == "publish")


def received_counts(verdict: Verdict) -> set[int]:
    return {of["received"]["count"] for of in verdict.measures["queues"].values()}


def anomalies_that(verdict: Verdict, *holdings: PropertyState) -> set[str]:
    return {prop.anomaly for prop in verdict.properties if prop.holding in holdings}


def empty_queues(deployed: localstack.Emulator) -> deployment.LoadDeployment:
    """Return the deployed local environment, its queues purged."""
    sqs = boto3.client("sqs", endpoint_url=deployed.endpoint_url)
    for url in sqs.list_queues(QueueNamePrefix="sluice-local")["QueueUrls"]:
        sqs.purge_queue(QueueUrl=url)
    return deployment.find(LOCAL, endpoint_url=deployed.endpoint_url)


def run_of(folder: Path, where: deployment.LoadDeployment, text: str) -> LoadRun:
    """Return a run of a profile whose driver is the test."""
    return LoadRun(
        id="r",
        folder=folder,
        deployment=where,
        plan=Plan(profile.parse(text, source="quick"), seed=7),
        clock_id=clock_id(),
        clock_offset_us=wall_minus_monotonic_us(),
    )


def events_of_worker(run: LoadRun, worker: str) -> list[HistoryEvent]:
    return events_of(read_journal(run.journals / f"{worker}-{run.attempt}.arrows"))


def run_load(
    spark: SparkSession,
    where: deployment.LoadDeployment,
    runs: Path,
    named: profile.NamedProfile,
    *,
    target: str = "localstack",
    saboteur: str | None = None,
    watch: driver.TaskWatcher = watch_nothing,
    seed: int = 7,
    environment: Environment = LOCAL,
    faults: Sequence[ScheduledFault[FaultKind]] = (),
) -> tuple[Verdict, Path]:
    """Run a load test; return its verdict and its folder."""
    folder = driver.make_folder(runs, environment, named.name, SystemClock())
    verdict = driver.run_load(
        spark,
        folder=folder,
        environment=environment,
        deployment=where,
        named=named,
        seed=seed,
        target=target,
        saboteur=saboteur,
        transport=choose_transport(
            None,
            where.client("sns").meta.endpoint_url,
            saboteur,
            destination=named.profile.destination,
            has_bundles=named.profile.bundle_events_max > 1,
        ),
        watch=watch,
        faults=faults,
    )
    return verdict, folder
