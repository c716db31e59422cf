"""Real workers, each a process, under faults: valid by history and by their databases. Without Spark."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sluice.clock import SystemClock, clock_id, eventually, wall_minus_monotonic_us
from sluice.declaration import Consumer, Environment, task_settings
from sluice.history.checker import Expectation, Thresholds
from sluice.history.checker.verdict import Status, Verdict
from sluice.history.events import Kind, detail_of
from sluice.recorder.journal import read_journal
from spark_load.consume import effects
from spark_load.consume.dead_letters import DeadLetters
from spark_load.consume.worker_processes import Worked, database_files, work
from spark_load.faults.shapes import FaultKind, Faults, Targets, scheduled
from spark_load.judge.judge import Planned, judge
from spark_load.judge.local_engine import opened
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.publish.bodies import run_of
from spark_load.publish.job import publish_share
from spark_load.publish.transport import SOCKETS
from spark_load.run.harm import harmed
from spark_load.runtime import deployment
from spark_load.runtime.task_context import DRIVER, Run, task_context
from tests.support.endpoints import fake_aws

ENVIRONMENT = Environment(
    name="faulty",
    account="000000000000",
    consumers=(
        Consumer(
            name="billing",
            visibility_timeout_seconds=5,
            stop_timeout_seconds=4,
            processing_seconds=0.5,
            max_attempts=20,
        ),
    ),
)
LOAD = """
messages_per_second: 12
duration_seconds: 14
group_count: 8
payload_bytes: 32
consumer: worker
consumers_per_queue: 2
publish_linger_seconds: 0.1
lateness_budget_seconds: 60
drain_timeout_seconds: 9
"""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield SQS and SNS over HTTP, where the environment is deployed."""
    for name, value in (("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(ENVIRONMENT))
    with fake_aws.running() as running:
        running.deploy(ENVIRONMENT, visibility_timeout_seconds=None)
        yield running


def _run(folder: Path, url: str, faults: Faults, seed: int) -> tuple[Run, Any]:
    plan = Plan(replace(profile.parse(LOAD, source="faulty"), faults=faults), seed)
    targets = Targets.of(consumer="worker", consumers=("billing",), consumers_per_queue=2)
    schedule = scheduled(faults, targets, seed=seed, duration_seconds=plan.profile.duration_seconds)
    return (
        Run(
            id=run_of(SystemClock().now_us()),
            transport=SOCKETS,
            folder=folder,
            deployment=deployment.find(ENVIRONMENT, endpoint_url=url),
            plan=plan,
            clock_id=clock_id(),
            clock_offset_us=wall_minus_monotonic_us(),
            has_faults=True,
        ),
        schedule,
    )


def loaded(folder: Path, url: str, faults: Faults, seed: int) -> tuple[Verdict, Run, Sequence[str]]:
    """Offer the load under faults, and judge it as the load test does; return the databases' objections, too."""
    run, schedule = _run(folder, url, faults, seed)
    rows = run.plan.batch(np.arange(run.plan.row_count))
    rows = pa.RecordBatch.from_arrays(
        rows.take(pa.array(np.argsort(rows.column("offset_us").to_numpy(), kind="stable"))).columns, schema=rows.schema
    )
    with harmed(run, schedule) as harm, task_context(run, DRIVER) as context, ThreadPoolExecutor(2) as pool:
        working = pool.submit(work, harm.run, harm.take)
        publishing = pool.submit(publish_share, harm.run, iter([rows]))
        begin_us = context.clock.now_us() + 1_500_000
        context.coordinator.start(begin_us)
        context.coordinator.measure(begin_us)
        harm.begin(begin_us, context.journal, context.clock)
        eventually(publishing.done, timeout_seconds=120, describe="everything to be published")
        publishing.result()
        context.coordinator.published()
        eventually(working.done, timeout_seconds=240, describe="the workers to be idle")
        worked: Worked = working.result()
        harm.end()
        objections = harm.compare(context.journal)
        DeadLetters(context, run).probe()
        context.coordinator.stop()
    return _judged(run, worked), run, objections


def _judged(run: Run, worked: Worked) -> Verdict:
    queues = tuple(run.deployment.queue_urls)
    engine = opened(run.folder)
    assert engine is not None
    return judge(
        engine,
        plan=Planned(message_count=run.plan.row_count, lateness_budget_seconds=60),
        expectation=Expectation(
            run=run.id,
            queues=queues,
            visibility_timeout_seconds=dict(run.deployment.visibility_timeout_seconds),
            dead_letter_queues=dict(run.deployment.dead_letter_queues),
            effects_recorded=queues,
        ),
        run={
            "run": run.id,
            "target": "endpoint",
            "recorders": run.recorders() | dict(worked.recorders),
            "killed": worked.killed,
            "max_receive_count": dict(run.deployment.max_receive_count),
        },
        thresholds=Thresholds(recovery_seconds_max=60),
    )


def _faults_of(run: Run) -> dict[str, list[int]]:
    """Return when each fault began, by its kind; one that concerns several queues several times."""
    rows = [row for path in run.journals.glob("driver-*.arrows") for row in read_journal(path).to_pylist()]
    found: dict[str, list[int]] = {}
    for row in rows:
        if row["kind"] == Kind.FAULT:
            found.setdefault(str(detail_of(row["detail"])["kind"]), []).append(row["invoked_at_us"])
    return found


@pytest.mark.parametrize("seed", [1])
def test_workers_with_an_inbox_stay_valid_under_chaos(endpoint: Any, tmp_path: Path, seed: int) -> None:
    """Every effect is there once and in order, by the history and by the database."""
    verdict, run, objections = loaded(tmp_path, endpoint.url, Faults(shape="chaos", every_seconds=1.2), seed)

    assert (verdict.violations, objections) == ((), [])
    assert verdict.status is Status.VALID, verdict.unknowns
    found = effects.effects_in(database_files(run)["billing"])
    done = Counter(effect.key for effect in found)
    assert len(done) == run.plan.profile.message_count
    assert max(done.values()) == 1
    faults = _faults_of(run)
    assert set(faults) == {kind.value for kind in FaultKind}
    (recovery,) = (prop for prop in verdict.properties if prop.anomaly == "H5")
    assert (recovery.opportunities, recovery.violation_count) == (sum(map(len, faults.values())), 0)
    assert Counter(fault["kind"] for fault in verdict.measures["faults"]) == {
        kind: len(set(began)) for kind, began in faults.items()
    }
