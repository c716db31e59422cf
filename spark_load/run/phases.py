"""The phases of a load test: warm up, publish, drain, handle dead letters.

Publishers and consumers are two jobs at the same time. The driver announces each step, and watches the tasks' reports
to know when to go on and to show progress. Only journals count for the verdict.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.clock import NotReachedError, eventually
from sluice.errors import HistoryError, MessagingError
from sluice.history.events import Kind
from sluice.judge.reading.damage import reason
from spark_load.consume.dead_letters import FAILURES, DeadLetters
from spark_load.consume.job import consume
from spark_load.consume.scaling import control
from spark_load.consume.worker_processes import WorkersResult, work
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind
from spark_load.profiles.profile import Profile
from spark_load.publish.job import plan_rows, publish
from spark_load.publish.relays import make_outbox, run_relays
from spark_load.publish.transport import OUTBOX
from spark_load.run import resume
from spark_load.run.harm import RunHarm, harm_run
from spark_load.runtime.coordinator import EARLIER, RunStep, TaskProgress
from spark_load.runtime.deployment import LoadDeployment
from spark_load.runtime.task_context import DRIVER, LoadRun, TaskContext, task_context

_READY_SECONDS = 180
_LEAD_US = 500_000
_WATCH_SECONDS = 0.5
_SLACK, _SLACK_SECONDS = 2, 120  # a step may take so many times its planned time, and so many seconds more
_DRAIN_FACTOR_MAX = 10
_REDRIVE_PATIENCE_SECONDS = 15  # the move task has ended before, so its messages are in the queue
_SETTLE_SECONDS = 120  # a job may take to end after it was told to

type TaskWatcher = Callable[[str, list[TaskProgress]], None]
"""Called about twice a second with the phase and the last report of every task."""


def slots(profile: Profile, deployment: LoadDeployment) -> int:
    """Return how many Spark tasks of a load test run at once."""
    consumers = 0 if profile.has_services else profile.consumers_per_queue * len(deployment.queue_urls)
    return profile.publish_tasks + consumers


def run_phases(
    spark: SparkSession, run: LoadRun, watch: TaskWatcher, faults: Sequence[ScheduledFault[FaultKind]] = ()
) -> tuple[list[str], WorkersResult]:
    """Run all phases; return sentences about what failed, and the result of the workers.

    After a failed phase the others still run and are recorded. Raises EndpointError if the outbox cannot be created.

    Runs on the driver, for the duration of the load and the drain. Ctrl-C ends both jobs first, and then this.
    """
    late: list[str] = []
    load_phases: LoadPhases | None = None
    if run.transport == OUTBOX:
        make_outbox(run)
    try:
        with (
            harm_run(run, faults) as harm,
            task_context(run, DRIVER) as context,
            ThreadPoolExecutor(3) as pool,
        ):
            load_phases = LoadPhases(spark, harm, context, watch, pool)
            late += load_phases.carry_out()
    except HistoryError as error:
        late.append(str(error))
    if load_phases is None:
        return late, WorkersResult()
    return [*late, *load_phases.failures()], load_phases.workers_result()


class LoadPhases:
    """The phases of one run, on the driver."""

    def __init__(
        self, spark: SparkSession, harm: RunHarm, context: TaskContext, watch: TaskWatcher, pool: ThreadPoolExecutor
    ) -> None:
        run, self._harm = harm.run, harm
        self._run, self._profile, self._context, self._coordinator = run, run.plan.profile, context, context.coordinator
        self._spark, self._watch, self._clock = spark, watch, context.clock
        self._workers: list[Future[WorkersResult]] = []
        if self._profile.has_services:
            self._workers = [pool.submit(control.work, run) if run.services else pool.submit(work, run, harm.take)]
            self._consuming: Future[Any] = self._workers[0]
        else:
            self._consuming = pool.submit(consume(spark, run).collect)
        self._relaying: list[Future[Any]] = []
        if run.transport == OUTBOX:
            self._relaying = [pool.submit(run_relays, run, harm.take_relays)]
        left = resume.rows_left(spark, run, plan_rows(spark, run)) if run.attempt else None
        self._publishing: Future[Any] = pool.submit(publish(spark, run, left).collect)
        self._letters = DeadLetters(context, run)
        self._expired_idxs: Sequence[int] = ()

    def carry_out(self) -> list[str]:
        """Go through all phases, and return what failed, as sentences; after a failed phase the others still follow."""
        late: list[str] = []
        try:
            try:
                self.start()
                self.publish()
                self.drain()
            except FAILURES as error:
                late.append(reason(error))
            return late + self.handle_dead_letters(is_drained=not late)
        finally:
            self.end()

    def start(self) -> None:
        """Announce the start when all tasks are ready; with a warm-up, also wait until its messages are consumed."""
        expected = slots(self._profile, self._run.deployment) + bool(
            self._run.services
        )  # all scaled workers report as one task

        def ready() -> int:
            return len([task for task in self._coordinator.all_progress() if task.role != EARLIER])

        eventually(
            ready,
            until=lambda count: self._is_any_over() or count >= expected,
            timeout_seconds=_READY_SECONDS,
            describe=f"{expected} tasks to be ready",
            clock=self._clock,
        )
        begin_us = self._begin_us()
        self._coordinator.reach(RunStep.START, begin_us)
        self._expired_idxs = self._run.expired_messages(begin_us)
        if self._profile.warm_up_count and not self._run.attempt:
            self._enter("warming up")
            self._await(
                self._is_warm, self._profile.warm_up_seconds * _SLACK + _SLACK_SECONDS, "the warm-up to be consumed"
            )
        measured_us = self._begin_us()
        self._coordinator.reach(RunStep.MEASURE, measured_us)
        self._harm.begin(measured_us, self._context.journal, self._clock, self._letters)

    def _begin_us(self) -> int:
        """Return the instant at which the plan begins; in the past if a run is resumed in the middle of it."""
        return self._clock.now_us() + _LEAD_US - self._run.resumed_at_us

    def _is_warm(self) -> bool:
        if self._is_any_over():
            return True
        if self._workers:
            published = sum(task.done for task in self._coordinator.all_progress() if task.role == "publish")
            return published >= self._profile.warm_up_count and self._letters.are_queues_empty()
        return self._consumed_count("done") >= self._profile.warm_up_count * self._queues_per_message

    def publish(self) -> None:
        """Wait until all is published; raise NotReachedError if it takes too long, or the consumers end first."""
        self._enter("publishing")
        self._await(self._is_any_over, self._profile.publish_seconds * _SLACK + _SLACK_SECONDS, "publishing to finish")
        if not self._publishing.done():
            raise NotReachedError("the consumers or the relays ended before everything was published")
        self._coordinator.reach(RunStep.PUBLISHED)

    def drain(self) -> None:
        """Wait until every group has ended in every queue, while consumers make progress: slow is not stuck."""
        self._enter("draining")
        if self._workers:  # workers report nothing, and end when no message has come for long
            self._await(
                self._is_consumed,
                self._profile.publish_seconds * _DRAIN_FACTOR_MAX + control.seconds_max(self._profile) + _SLACK_SECONDS,
                "the workers to be idle",
            )
        else:
            self._await_progress(
                lambda: self._consumed_count("ended") >= self._profile.group_count * self._queues_per_message,
                self._profile.drain_timeout_seconds,
            )

    def _is_consumed(self) -> bool:
        if not self._coordinator.has_reached(RunStep.FINISH) and self._harm.is_all_done(self._letters):
            self._coordinator.reach(RunStep.FINISH)
        return self._consuming.done()

    def handle_dead_letters(self, *, is_drained: bool) -> list[str]:
        """Read every DLQ, move dead letters back if the profile says so, and let the consumers end.

        Return what failed.
        """
        self._enter("dead letters")
        keeps = self._profile.redrive and is_drained and not self._consuming.done()
        try:
            found = self._letters.read(keeps=keeps)
            if keeps:
                self._bring_back(found)
            self._coordinator.reach(RunStep.FINISH)
            eventually(
                self._consuming.done,
                timeout_seconds=_SETTLE_SECONDS,
                describe="the consumers to end",
                clock=self._clock,
            )
            contradicted = self._harm.compare(self._context.journal, is_settled=is_drained and not any(found.values()))
            if not self._letters.probe() and is_drained:
                return [*contradicted, "the queues were not empty at the end: see who else uses them"]
        except FAILURES as error:
            return [f"the dead letters were not seen to: {reason(error)}"]
        return contradicted

    def _bring_back(self, found: Mapping[str, int]) -> None:
        """Move dead letters back, and wait until they were handled, or no more progress is made."""
        self._enter("redrive")
        self._coordinator.reach(RunStep.REDRIVEN)
        before = self._consumed_count("done")
        moved = self._letters.bring_back([queue for queue, count in found.items() if count])
        with suppress(NotReachedError):  # the judge finds messages that were lost
            self._await_progress(lambda: self._consumed_count("done") >= before + moved, _REDRIVE_PATIENCE_SECONDS)
        self._letters.read(keeps=False)

    def end(self) -> None:
        """Let every task end; if that cannot be announced, cancel the tasks and raise HistoryError."""
        self._harm.end()
        try:
            self._coordinator.reach(RunStep.STOP)
        except HistoryError:
            self._spark.interruptAll()
            raise
        if not self._publishing.done() or not self._consuming.done():
            self._watch("stopping", self._coordinator.all_progress())

    def failures(self) -> Iterator[str]:
        """Yield sentences about messages that were not published again, and about a failed job, after both ended."""
        if self._expired_idxs:
            yield resume.expired_sentence(self._expired_idxs)
        jobs = [("consumers", self._consuming), ("publishers", self._publishing)]
        for name, job in [*jobs, *(("relays", job) for job in self._relaying)]:
            try:
                job.result()
            except (PySparkException, Py4JError, NotReachedError, OSError, MessagingError) as error:
                yield f"the {name} failed: {reason(error)}"
        yield from self.workers_result().unknowns

    def workers_result(self) -> WorkersResult:
        """Return the result of the workers; an empty one if there were none, or they failed."""
        ended = [future.result() for future in self._workers if future.exception() is None]
        return replace(ended[0] if ended else WorkersResult(), missed=self._harm.missed_faults)

    def _is_any_over(self) -> bool:
        return any(job.done() for job in (self._publishing, self._consuming, *self._relaying))

    @property
    def _queues_per_message(self) -> int:
        """Return in how many queues each message arrives."""
        return len(self._run.deployment.queue_urls) if self._profile.has_topic else 1

    def _consumed_count(self, field: str) -> int:
        """Return the sum of a counter, `done` or `ended`, in the consumers' reports."""
        return sum(getattr(task, field) for task in self._coordinator.all_progress() if task.queue is not None)

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._context.journal.add(
            kind=Kind.PHASE.value, invoked_at_us=self._clock.now_us(), detail=json.dumps({"phase": phase})
        )
        self._context.journal.flush()
        self._watch(phase, self._coordinator.all_progress())

    def _await(self, condition: Callable[[], bool], timeout_seconds: float, describe: str) -> None:
        def look() -> bool:
            self._watch(self._phase, self._coordinator.all_progress())
            return condition()

        eventually(
            look,
            timeout_seconds=timeout_seconds,
            describe=describe,
            interval_seconds=_WATCH_SECONDS,
            clock=self._clock,
        )

    def _await_progress(self, is_done: Callable[[], bool], patience_seconds: float) -> None:
        """Wait while the consumers make progress; raise NotReachedError after a time without any."""
        consumed, since = -1, self._clock.monotonic()
        while not is_done() and not self._consuming.done():
            self._watch(self._phase, self._coordinator.all_progress())
            count = self._consumed_count("done")
            if count > consumed:
                consumed, since = count, self._clock.monotonic()
            elif self._clock.monotonic() - since >= patience_seconds:
                raise NotReachedError(
                    f"the queues were not drained, and for {patience_seconds:g} s nothing more was consumed"
                )
            self._clock.sleep(_WATCH_SECONDS)
