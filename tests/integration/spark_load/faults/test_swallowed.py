"""Messages that were acknowledged and lost in a fault: found, and excused only by a fault that says it loses them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sluice.clock import eventually
from sluice.history.checker import Expectation
from sluice.history.checker.verdict import Status, Verdict
from spark_load.consume.dead_letters import DeadLetters
from spark_load.consume.job import Consumer
from spark_load.faults import shapes
from spark_load.faults.shapes import Targets, scheduled
from spark_load.judge.judge import Planned, judge
from spark_load.judge.local_engine import opened
from spark_load.publish.job import publish_share
from spark_load.run.harm import harmed
from spark_load.runtime import deployment
from spark_load.runtime.task_context import DRIVER, Run, task_context
from tests.integration.spark_load.loads import run_of
from tests.support.declaration import environment
from tests.support.endpoints import fake_aws

LOAD = """
messages_per_second: 40
duration_seconds: 4
group_count: 6
payload_bytes: 32
faults: {given: [{kind: swallow, target: "publish:endpoint", at_seconds: 1, until_seconds: 2}]}
"""
QUEUES = ("billing", "shipping", "audit")


def _consume(run: Run, queue: str) -> None:
    with task_context(run, f"consume-{queue}") as context:
        Consumer(context, run, f"sluice-local-{queue}.fifo").consume()


def _loaded(run: Run) -> Verdict:
    """Offer the load and consume it, in threads of this process, and judge what became of it."""
    load = run.plan.profile
    targets = Targets.of(consumer="raw", consumers=QUEUES, consumers_per_queue=1)
    schedule = scheduled(load.faults, targets, seed=1, duration_seconds=load.duration_seconds)
    rows = run.plan.batch(np.arange(run.plan.row_count))
    with harmed(run, schedule) as harm, task_context(run, DRIVER) as context, ThreadPoolExecutor(4) as pool:
        publishing = pool.submit(publish_share, harm.run, iter([rows.sort_by("offset_us")]))
        consuming = [pool.submit(_consume, run, queue) for queue in QUEUES]
        begin_us = context.clock.now_us() + 500_000
        context.coordinator.start(begin_us)
        context.coordinator.measure(begin_us)
        harm.begin(begin_us, context.journal, context.clock)
        eventually(publishing.done, timeout_seconds=120, describe="everything to be published")
        publishing.result()

        def is_drained() -> bool:
            ended = sum(task.ended for task in context.coordinator.all_progress() if task.role == "consume")
            return ended == load.group_count * len(QUEUES)

        eventually(is_drained, timeout_seconds=120, describe="every group to have ended in every queue")
        context.coordinator.finish()
        for task in consuming:
            task.result(120)
        harm.end()
        DeadLetters(context, run).probe()
    return _judged(run)


def _judged(run: Run) -> Verdict:
    engine = opened(run.folder)
    assert engine is not None
    where = run.deployment
    expectation = Expectation(
        run=run.id,
        queues=tuple(where.queue_urls),
        visibility_timeout_seconds=dict(where.visibility_timeout_seconds),
        dead_letter_queues=dict(where.dead_letter_queues),
    )
    recorders = {f"consume-{queue}-0": f"sluice-local-{queue}.fifo" for queue in QUEUES}
    return judge(
        engine,
        plan=Planned(message_count=run.plan.row_count, lateness_budget_seconds=60),
        expectation=expectation,
        run={
            "run": run.id,
            "target": "endpoint",
            "recorders": {**recorders, "publish-0": None, "driver-0": None},
            "max_receive_count": dict(where.max_receive_count),
        },
        allowed=dict(run.plan.profile.allowed()),
    )


@pytest.fixture
def run(endpoint: fake_aws.Endpoint, tmp_path: Path) -> Run:
    return run_of(tmp_path, deployment.find(environment("local"), endpoint_url=endpoint.url), LOAD)


def test_what_a_fault_swallowed_is_found_and_excused(run: Run) -> None:
    verdict = _loaded(run)

    (dropped,) = (prop for prop in verdict.properties if prop.anomaly == "E5")
    assert (verdict.status, verdict.unknowns) == (Status.VALID, ())
    assert dropped.violation_count >= len(QUEUES)
    assert dropped.opportunities > 0


def test_what_was_swallowed_without_a_word_is_lost(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plant, and a history that does not say that the fault loses anything."""
    monkeypatch.setattr(shapes, "LOSSY", ())

    verdict = _loaded(run)

    assert verdict.status is Status.INVALID
    assert {violation.anomaly for violation in verdict.violations} == {"A1"}
