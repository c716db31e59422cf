"""Load tests of raw consumers under faults, without Spark: all in threads, or the publisher in processes of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from sluice.clock import eventually
from sluice.judge.checker import Expectation
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import open_in_memory
from sluice.judge.judge import PlannedMessages, RunFacts, judge
from spark_load.consume.dead_letters import DeadLetters
from spark_load.consume.job import ConsumerTask
from spark_load.faults import servers
from spark_load.faults.shapes import Targets, schedule_faults
from spark_load.publish.job import publish_share
from spark_load.run.harm import harm_run
from spark_load.runtime.coordinator import RunStep
from spark_load.runtime.task_context import DRIVER, LoadRun, task_context

QUEUES = ("billing", "shipping", "audit")


def _consume(run: LoadRun, queue: str) -> None:
    with task_context(run, f"consume-{queue}") as context:
        ConsumerTask(context, run, f"sluice-local-{queue}.fifo").consume()


def _publish(run: LoadRun) -> None:
    publish_share(run, iter([planned_rows(run)]))


def planned_rows(run: LoadRun) -> pa.RecordBatch:
    """Return the rows of the plan, in the order in which they are published."""
    return run.plan.batch(np.arange(run.plan.row_count)).sort_by("offset_us")


def run_load(run: LoadRun, publish: Callable[[LoadRun], None] = _publish) -> Verdict:
    """Offer the load under its faults and consume it, in threads of this process, and judge what became of it."""
    load = run.plan.profile
    targets = Targets.of(consumer="raw", consumers=QUEUES, consumers_per_queue=1, restarts=servers.restartable())
    schedule = schedule_faults(load.faults, targets, seed=1, duration_seconds=load.duration_seconds)
    with harm_run(run, schedule) as harm, task_context(run, DRIVER) as context, ThreadPoolExecutor(4) as pool:
        publishing = pool.submit(publish, harm.run)
        consuming = [pool.submit(_consume, run, queue) for queue in QUEUES]
        eventually(
            lambda: publishing.done() or len(context.coordinator.all_progress()) == 1 + len(QUEUES),
            timeout_seconds=120,
            describe="publisher and consumers to be ready",  # the schedule does not wait for who comes late
        )
        begin_us = context.clock.now_us() + 500_000
        context.coordinator.reach(RunStep.START, begin_us)
        context.coordinator.reach(RunStep.MEASURE, begin_us)
        harm.begin(begin_us, context.journal, context.clock)
        eventually(publishing.done, timeout_seconds=120, describe="everything to be published")
        publishing.result()

        def is_drained() -> bool:
            ended = sum(task.ended for task in context.coordinator.all_progress() if task.role == "consume")
            return ended == load.group_count * len(QUEUES)

        eventually(is_drained, timeout_seconds=120, describe="every group to have ended in every queue")
        context.coordinator.reach(RunStep.FINISH)
        for task in consuming:
            task.result(120)
        harm.end()
        DeadLetters(context, run).probe()
    return _judge(run)


def _judge(run: LoadRun) -> Verdict:
    engine = open_in_memory(run.folder)
    assert engine is not None
    where = run.deployment
    expectation = Expectation(
        run=run.id,
        queues=tuple(where.queue_urls),
        visibility_timeout_seconds=dict(where.visibility_timeout_seconds),
        dead_letter_queues=dict(where.dead_letter_queues),
        max_receive_count=dict(where.max_receive_count),
    )
    recorders = {f"consume-{queue}-0": f"sluice-local-{queue}.fifo" for queue in QUEUES}
    facts = RunFacts(
        plan=PlannedMessages(message_count=run.plan.row_count, lateness_budget_seconds=60),
        expectation=expectation,
        target="endpoint",
        recorders={**recorders, "publish-0": None, "driver-0": None},
        allowed=run.plan.profile.allowed_anomalies(),
    )
    return judge(engine, facts)
