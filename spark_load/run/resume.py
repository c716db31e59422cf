"""Resume a broken run: what its journals record as done, what is left of the plan, and whether it is too late.

A message that was acknowledged is not published again, and neither are its repeats. A message whose last publish was
never answered may be in the topic. While the service remembers its deduplication id, it is published again, which is
safe; a bundle is published as it was. Later it is not, because it would be a second message.
"""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sluice import limits
from sluice.clock import Clock, NotReachedError, clock_id, eventually
from sluice.declaration import Environment
from sluice.errors import ConfigError, HistoryError, unwritable
from sluice.history.events import CallOutcome, Kind
from sluice.judge import report
from sluice.judge.checker.verdict import PropertyStatus
from sluice.judge.folder.layout import EARLIER_HISTORY, JOURNALS, LOCK_FILE
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind
from spark_load.judge.compaction import compact
from spark_load.publish.pacing import RESENT_WITHIN_SECONDS
from spark_load.runtime.coordinator import EARLIER, RunCoordinator, RunStep, TaskProgress
from spark_load.runtime.deployment import LoadDeployment
from spark_load.runtime.task_context import LoadRun

_QUIET_SECONDS = 3
_ENDED_SECONDS = 60
_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class FinishedWork:
    """The work that was done before: deletes and ended groups are counted by queue, publishes are those acknowledged.

    Faults are those that ended, in a few words each.
    """

    began_at_us: int
    phases: frozenset[str]
    deleted: Mapping[str, int]
    ended: Mapping[str, int]
    published: int = 0
    faults: frozenset[str] = frozenset()


def check_broken(described: Mapping[str, Any], folder: Path, deployment: LoadDeployment) -> None:
    """Require that a run broke off, that its consumers were raw, and that its topic and its clock are the same now."""
    if missing := sorted({"clock", "transport", "attempts"} - described.keys()):
        raise ConfigError(f"{folder.name} was recorded by an older version, without {missing[0]!r}; run it again")
    if described["clock"]["id"] != clock_id():
        raise ConfigError(
            f"{folder.name} began on another machine, or before this one was started again: two clocks cannot be"
            " judged; run it again"
        )
    if (status := report.read_status(folder)) not in (None, PropertyStatus.UNKNOWN):
        raise ConfigError(f"{folder.name} was finished and is {status}, allowed is a run that broke; run it again")
    if described["profile"]["consumer"] != "raw":
        raise ConfigError(
            f"the consumer of {folder.name} is {described['profile']['consumer']!r}, allowed is 'raw': workers keep"
            " their own record of what they handled; run it again"
        )
    if described["topic_arn"] != deployment.topic_arn:
        raise ConfigError(
            f"{folder.name} loaded {described['topic_arn']}, and here is {deployment.topic_arn}; use the credentials"
            " and the endpoint of the run"
        )


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Lock a run's folder against other processes that would resume the run."""
    try:
        lock = (folder / LOCK_FILE).open("w")
    except OSError as error:
        raise unwritable(folder, error, "make room there, or copy it") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another process is at work on {folder}; wait for its end, or end it") from None
        yield


def end_tasks(run: LoadRun, clock: Clock) -> None:
    """Tell the tasks that a dead driver left behind to end, and wait until none of them writes any more."""
    if not run.journals.is_dir():
        raise ConfigError(f"{run.folder.name} broke before anything was recorded; run it again")
    replace(run, attempt=run.attempt - 1).coordinator(clock).reach(RunStep.STOP)

    seen, since = _sizes(run.journals), clock.monotonic()

    def are_quiet() -> bool:
        nonlocal seen, since
        if (found := _sizes(run.journals)) != seen:
            seen, since = found, clock.monotonic()
        return clock.monotonic() - since > _QUIET_SECONDS

    try:
        eventually(are_quiet, timeout_seconds=_ENDED_SECONDS, describe="the tasks to end", clock=clock)
    except NotReachedError:
        raise ConfigError(f"tasks of {run.folder.name} are still at work; end them, then resume it") from None


def _sizes(folder: Path) -> dict[str, int]:
    """Return the size of every journal.

    Journals only grow, so unchanged sizes mean that nobody writes; a file's time proves less.
    """
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def read(spark: SparkSession, run: LoadRun) -> FinishedWork:
    """Read the journals of a run's earlier attempts, and keep their events where `rows_left` finds them."""
    compact(spark, run.folder / JOURNALS, run.folder / EARLIER_HISTORY)
    history = _earlier(spark, run)
    began = history.agg(F.min("invoked_at_us").alias("at")).first()
    is_ok = F.col("outcome") == CallOutcome.OK.value

    def details(of: Column, field: str) -> frozenset[str]:
        found = history.where(of).select(F.get_json_object("detail", f"$.{field}").alias("detail")).collect()
        return frozenset(row["detail"] for row in found)

    deletes = (
        history.where((F.col("kind") == Kind.DELETED.value) & is_ok & (F.col("message_run") == run.id))
        .groupBy("queue")
        .agg(
            F.count_distinct("message_group_id", "idx").alias("deleted"),
            F.count_distinct(F.when(F.col("idx") < 0, F.col("message_group_id"))).alias("ended"),
        )
        .collect()
    )
    is_acked = (F.col("kind") == Kind.PUBLISHED.value) & is_ok
    if began is None or began["at"] is None:
        raise HistoryError(f"the journals of {run.folder.name} are empty: nothing was begun; run it again")
    return FinishedWork(
        began_at_us=began["at"],
        phases=details(F.col("kind") == Kind.PHASE.value, "phase"),
        deleted={row["queue"]: row["deleted"] for row in deletes},
        ended={row["queue"]: row["ended"] for row in deletes},
        published=history.where(is_acked & (F.col("message_run") == run.id)).count(),
        faults=details((F.col("kind") == Kind.FAULT.value) & is_ok, "fault"),
    )


def check_time(done: FinishedWork, environment: Environment, now_us: int) -> None:
    """Require that a resumed run can still become valid.

    It cannot if it broke before anything was measured, in its redrive, or so long ago that messages are gone.
    """
    if "publishing" not in done.phases:
        raise ConfigError("the run broke before its load began, so there is nothing to resume; run it again")
    if "redrive" in done.phases:
        raise ConfigError(
            "the run broke while dead letters were being moved back, and which ones is unknown; run it again"
        )
    kept_seconds = min(consumer.message_retention_seconds for consumer in environment.consumers)
    seconds = (now_us - done.began_at_us) / 1e6
    if seconds > kept_seconds:
        raise ConfigError(
            f"the run began {seconds / 86_400:.1f} days ago, and its queues keep messages for"
            f" {kept_seconds / 86_400:.1f}: what it left there is gone; run it again"
        )


def rows_left(spark: SparkSession, run: LoadRun, rows: DataFrame) -> DataFrame:
    """Return the rows of the plan that were not acknowledged, without those that are too late to be published again."""
    acked = _messages_sent_before(spark, run).where("is_acked").select("idx")
    return rows.join(acked, "idx", "left_anti").select(rows.columns)


def _earlier(spark: SparkSession, run: LoadRun) -> DataFrame:
    """Return the history of a run's earlier attempts; its Parquet pages are checked, if they have a checksum."""
    reader = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    return reader.parquet(str(run.folder / EARLIER_HISTORY))


def _messages_sent_before(spark: SparkSession, run: LoadRun) -> DataFrame:
    """Return a row for each published message: whether it was acknowledged, and its first publish without an answer."""
    return (
        _earlier(spark, run)
        .where((F.col("kind") == Kind.PUBLISHED.value) & (F.col("message_run") == run.id))
        .groupBy("idx")
        .agg(
            F.bool_or(F.col("outcome") == CallOutcome.OK.value).alias("is_acked"),
            F.min(F.when(F.col("outcome") == CallOutcome.INFO.value, F.col("invoked_at_us"))).alias("unanswered_at_us"),
        )
    )


def begin_by_us(spark: SparkSession, run: LoadRun, rows: DataFrame) -> dict[int, int]:
    """Return the instant by which the run must continue, for each message that was never answered.

    After it, the message would be published at its planned time when the service has forgotten its deduplication id.
    The events of a bundle have the earliest of their instants: a part of a bundle would be another message.
    """
    unanswered = _messages_sent_before(spark, run).where(~F.col("is_acked") & F.col("unanswered_at_us").isNotNull())
    until_us = F.col("unanswered_at_us") + RESENT_WITHIN_SECONDS * 1_000_000
    waits_us = F.greatest(F.lit(0), F.col("offset_us") - run.resumed_at_us)
    bundle = Window.partitionBy("group_number", "unanswered_at_us")
    by_us = F.min(until_us - waits_us).over(bundle).alias("by_us")
    found = rows.where("publish_attempt = 1").join(unanswered, "idx").select("idx", by_us)
    return {row["idx"]: row["by_us"] for row in found.collect()}


def expired_sentence(idxs: Sequence[int]) -> str:
    """Return a sentence that says which messages are not published again, and why."""
    named = ", ".join(map(str, idxs[:_NAMED_MAX])) + (", …" if len(idxs) > _NAMED_MAX else "")
    return (
        f"{len(idxs)} message(s) whose publish was never answered were not published again: after"
        f" {limits.DEDUPLICATION_WINDOW_SECONDS} s a repeat can be a second message (idx {named}); run the load test"
        " again"
    )


def next_offset_us(spark: SparkSession, run: LoadRun, rows: DataFrame) -> int:
    """Return the offset of the first row that is left; the end of the plan if none is left."""
    first = rows_left(spark, run, rows).agg(F.min("offset_us").alias("at")).first()
    offset_us: int | None = None if first is None else first["at"]
    return round(run.plan.profile.publish_seconds * 1_000_000) if offset_us is None else offset_us


def left_faults(
    scheduled: Sequence[ScheduledFault[FaultKind]], resumed_at_us: int, done: FinishedWork
) -> tuple[list[ScheduledFault[FaultKind]], list[str]]:
    """Return (the faults that are still to come, in words those that nobody injected while the run was broken).

    Args:
        scheduled: the faults of the whole run.
        resumed_at_us: the offset along the plan at which the run continues.
        done: the work that was done before.
    """
    left = [fault for fault in scheduled if fault.brief not in done.faults]
    ahead = [fault for fault in left if fault.at_seconds * 1_000_000 >= resumed_at_us]
    return ahead, [fault.brief for fault in left if fault not in ahead]


def report_resumed_progress(coordinator: RunCoordinator, done: FinishedWork) -> None:
    """Report to a new attempt's coordinator what was published and consumed before."""
    coordinator.report(TaskProgress(worker=EARLIER, role=EARLIER, done=done.published), now=True)
    for queue in {*done.deleted, *done.ended}:
        progress = TaskProgress(
            worker=f"{EARLIER}-{queue}",
            role=EARLIER,
            queue=queue,
            done=done.deleted.get(queue, 0),
            ended=done.ended.get(queue, 0),
        )
        coordinator.report(progress, now=True)
