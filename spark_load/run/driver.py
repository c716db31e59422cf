"""Run one load test: prepare it, offer the load, drain the queues, judge the history and write the verdict."""

import os
import platform
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.clock import Clock, SystemClock, clock_id, wall_minus_monotonic_us
from sluice.declaration import Environment
from sluice.errors import HistoryError, InterruptedWorkError, unwritable
from sluice.judge import engine, report
from sluice.judge.checker import Expectation
from sluice.judge.checker.verdict import Verdict
from sluice.judge.folder.layout import HISTORY, JOURNALS, RUN_FILE, TRACE_FILE
from sluice.judge.folder.series_schema import RunSeries
from sluice.judge.judge import judge
from sluice.judge.reading.damage import readable, reason
from spark_load.consume import job as consume_job
from spark_load.consume.scaling.observation import rehearsed_services
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind
from spark_load.judge import compaction, parts
from spark_load.judge.replay import compare_replay
from spark_load.plan.plan import Plan
from spark_load.profiles.profile import NamedProfile, Profile
from spark_load.publish import job as publish_job
from spark_load.publish.bodies import run_of
from spark_load.run import resume
from spark_load.run.phases import TaskWatcher, run_phases, slots
from spark_load.run.run_file import StoredRun, find_stored, store
from spark_load.runtime.deployment import LoadDeployment
from spark_load.runtime.task_context import LoadRun

__all__ = ["StoredRun", "TaskWatcher", "find_stored", "slots"]

TASK_MODULES = tuple(module_type.__name__ for module_type in (consume_job, publish_job, compaction, parts, engine))
"""The modules whose functions run in Spark's tasks; a session imports them before it starts tasks."""
_UNFINISHED = "the driver ended before the load did"
_STOPPED = "it was stopped before its end"


class InterruptedRunError(InterruptedWorkError):
    """Raised when Ctrl-C ended a run; what was recorded until then can be judged."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"stopped; what was recorded is in {folder}; judge it: sluice check {folder}, or go on:"
            f" sluice load resume {folder}"
        )
        self.folder = folder


def make_folder(runs: Path, environment: Environment, profile: str, clock: Clock) -> Path:
    """Make the folder of a new run, `<utc>-<environment>-<profile>`."""
    started_at = datetime.fromtimestamp(clock.now_us() / 1e6, tz=UTC)
    folder = runs.resolve() / f"{started_at:%Y%m%dT%H%M%S}-{environment.name}-{profile}"
    try:
        folder.mkdir(parents=True)
        (folder / RUN_FILE).touch()
    except OSError as error:
        raise unwritable(runs, error, "name a folder you can write to with --runs-dir") from error
    return folder


def run_load(
    spark: SparkSession,
    *,
    folder: Path,
    environment: Environment,
    deployment: LoadDeployment,
    named: NamedProfile,
    seed: int,
    target: str,
    saboteur: str | None,
    watch: TaskWatcher,
    transport: str,
    clock_bound_us: int = 0,
    faults: Sequence[ScheduledFault[FaultKind]] = (),
) -> Verdict:
    """Run one load test and write its verdict; return it.

    Spark needs `slots(profile, deployment)` slots; the folder is from `make_folder`. The same seed makes the same
    messages. The target is a key of `sluice.deviations`, whose deviations are allowed. `clock_bound_us` is the declared
    bound of the difference between two machines' clocks, or 0. The faults are those of the profile's schedule.

    Raises:
        HistoryError: the history cannot be written or read.
        Stopped: Ctrl-C ended it.

    Runs on the driver, and blocks for the duration of the load and the drain.
    """
    profile = named.profile
    run = LoadRun(
        id=_new_id(folder, profile),
        folder=folder,
        deployment=deployment,
        plan=Plan(profile, seed, _copy_trace(named, folder)),
        clock_id=clock_id(),
        clock_offset_us=wall_minus_monotonic_us(),
        transport=transport,
        saboteur=saboteur,
        services={} if profile.minute_seconds is None else rehearsed_services(environment),
        has_faults=bool(faults),
    )
    expectation = Expectation(
        run=run.id,
        queues=tuple(deployment.queue_urls),
        visibility_timeout_seconds=dict(deployment.visibility_timeout_seconds),
        dead_letter_queues=dict(deployment.dead_letter_queues),
        subscription_dead_letter_queues=dict(deployment.undelivered_queues),
        effects_recorded=tuple(deployment.queue_urls),
        gapless=run.gapless_queues,
        clock_bound_us=clock_bound_us,
        retention_seconds=dict(deployment.retention_seconds),
        fan_out_skew_seconds_max=profile.fan_out_skew_seconds_max,
        passed_over_seconds_max=profile.passed_over_seconds_max,
        stuck_seconds_max=profile.stuck_seconds_max,
    )
    described = {
        "run": run.id,
        "environment": environment.name,
        "target": target,
        "endpoint_url": deployment.endpoint_url,
        "profile_name": named.name,
        "profile": profile.as_json(),
        "seed": seed,
        "transport": transport,
        "saboteur": saboteur,
        "faults": [asdict(fault) for fault in faults],
        "attempts": 1,
        "clock": {"id": run.clock_id, "offset_us": run.clock_offset_us},
        "topic_arn": deployment.topic_arn,
        "recorders": run.recorders(),
        "max_receive_count": dict(deployment.max_receive_count),
        "versions": {name: version(name) for name in ("pyspark", "boto3", "pyarrow")}
        | {"python": platform.python_version()},
        "machine": {
            "system": platform.platform(terse=True),
            "processor": platform.machine(),
            "model": _processor_model(),
            "cores": os.cpu_count(),
        },
    }
    with resume.run_lock(folder):
        return _run_and_judge(spark, run, described, expectation, watch, faults)


def _processor_model() -> str | None:
    """Return the name of the processor; None if Linux does not tell it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return None if found is None else found[1].strip()


def _copy_trace(named: NamedProfile, folder: Path) -> Path | None:
    """Copy the profile's trace into the run's folder, for the tasks; return the copy, or None without a trace."""
    if named.trace_file is None:
        return None
    try:
        return Path(shutil.copyfile(named.trace_file, folder / TRACE_FILE))
    except OSError as error:
        raise unwritable(folder, error, "make room there") from error


def resume_load(
    spark: SparkSession, stored: StoredRun, *, environment: Environment, deployment: LoadDeployment, watch: TaskWatcher
) -> Verdict:
    """Resume a run that broke off, judge all its attempts, and write and return the verdict. Runs as `run_load` does.

    Raises:
        ConfigError: the run cannot be resumed; the message has the reason, and nothing was changed.
        HistoryError: the history cannot be written or read.
        Stopped: Ctrl-C ended it.
    """
    described = dict(stored.described)
    with resume.run_lock(stored.folder):
        resume.check_broken(described, stored.folder, deployment)
        clock = SystemClock(described["clock"]["offset_us"])
        run = LoadRun(
            id=stored.expectation.run,
            folder=stored.folder,
            deployment=deployment,
            plan=stored.plan,
            clock_id=clock_id(),
            clock_offset_us=clock.offset_us,
            transport=described["transport"],
            saboteur=described["saboteur"],
            attempt=described["attempts"],
            has_faults=bool(described.get("faults")),
        )
        resume.end_tasks(run, clock)
        done = resume.read(spark, run)
        resume.check_time(done, environment, clock.now_us())
        run = replace(run, resumed_at_us=resume.next_offset_us(spark, run, publish_job.plan_rows(spark, run)))
        run = replace(run, begin_by_us=resume.begin_by_us(spark, run, publish_job.plan_rows(spark, run)))
        resume.report_resumed_progress(run.coordinator(clock), done)
        ahead, missed = resume.left_faults(stored.faults, run.resumed_at_us, done)
        described |= {"attempts": run.attempt + 1, "missed": missed}
        return _run_and_judge(spark, run, described, stored.expectation, watch, ahead)


def _run_and_judge(
    spark: SparkSession,
    run: LoadRun,
    described: dict[str, Any],
    expectation: Expectation,
    watch: TaskWatcher,
    faults: Sequence[ScheduledFault[FaultKind]] = (),
) -> Verdict:
    """Run all phases, store what is known of the run before and after them, and judge its history."""
    store(run.folder, described, expectation, [_UNFINISHED])  # replaced at the end, if the driver lives so long
    try:
        unknowns, worked = run_phases(spark, run, watch, faults)
    except KeyboardInterrupt:
        store(run.folder, described, expectation, [_STOPPED])
        raise InterruptedRunError(run.folder) from None
    described["recorders"] = run.recorders() | dict(worked.recorders)
    for name in ("killed", "crashed", "missed", "scaling"):
        if found := getattr(worked, name):
            described[name] = [*described.get(name, ()), *found]
    store(run.folder, described, expectation, unknowns)
    watch("judging", [])
    return rejudge(spark, find_stored(run.folder))


def _new_id(folder: Path, profile: Profile) -> str:
    """Return the id of a new run. For workers and functions it names an epoch later than that of any other run."""
    if profile.has_services:
        return run_of(SystemClock().now_us())
    return f"{folder.name}-{secrets.token_hex(2)}"


def rejudge(spark: SparkSession, stored: StoredRun) -> Verdict:
    """Judge the stored history of a run, and write its verdict; an earlier verdict is replaced."""
    compaction.compact(spark, stored.folder / JOURNALS, stored.folder / HISTORY)
    with readable(stored.folder / HISTORY, PySparkException, Py4JError):
        verdict = judge(engine.JudgeEngine(parts.HistoryOnSpark(spark, stored.folder / HISTORY)), stored.facts)
        if (replay := compare_replay(stored.folder / HISTORY, stored.plan)) is not None:
            verdict = replace(verdict, measures={**verdict.measures, "replay": replay})
    report.write(verdict, stored.folder)
    return verdict


def aggregate(spark: SparkSession, stored: StoredRun, verdict: Verdict) -> RunSeries:
    """Aggregate the data of the report's charts, store it with the run, and return it."""
    folder, again = stored.folder / HISTORY, f"make it again from its journals: sluice check {stored.folder}"
    if not any(folder.glob("*.parquet")):
        raise HistoryError(f"there is no history in {folder}; {again}")
    try:
        run_series = engine.JudgeEngine(parts.HistoryOnSpark(spark, folder)).series(
            stored.expectation, verdict.violations
        )
    except (PySparkException, Py4JError, pa.ArrowException, OSError) as error:
        raise HistoryError(f"the history in {folder} cannot be read ({reason(error)}); {again}") from error
    report.write_series(run_series, stored.folder)
    return run_series
