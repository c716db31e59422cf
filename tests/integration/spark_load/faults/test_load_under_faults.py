"""Load tests under faults, on LocalStack: the real worker stays valid, broken ones are found by the same seed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from pyspark.sql import SparkSession

from emulator import localstack
from sluice.declaration import Consumer, Environment, task_settings
from sluice.history.checker.verdict import Holding, Status, Verdict
from sluice.history.events import Kind, detail_of
from sluice.recorder.journal import read_journal
from sluice.testing import deploy
from spark_load.consume import effects, worker_processes
from spark_load.faults.shapes import Targets, scheduled
from spark_load.profiles import profile
from spark_load.runtime import deployment
from tests.integration.spark_load.loads import run_load

pytestmark = pytest.mark.spark

ENVIRONMENT = Environment(
    name="faulty",
    account="000000000000",
    consumers=tuple(
        Consumer(
            name=name,
            visibility_timeout_seconds=4,
            stop_timeout_seconds=3,
            processing_seconds=0.5,
            max_attempts=20,
        )
        for name in ("billing", "audit")
    ),
)
BILLING, AUDIT = "sluice-faulty-billing.fifo", "sluice-faulty-audit.fifo"
LOAD = profile.NamedProfile(
    "faulty",
    profile.parse(
        """
messages_per_second: 12
duration_seconds: 11
warm_up_seconds: 1
group_count: 8
payload_bytes: 32
consumer: worker
consumers_per_queue: 2
handler_seconds: 0.2
publish_linger_seconds: 0.1
lateness_budget_seconds: 60
drain_timeout_seconds: 7
recovery_seconds_max: 60
faults: {shape: chaos, every_seconds: 0.8, after_seconds: 0.5}
""",
        source="faulty",
    ),
)
SEED = 707


@pytest.fixture
def where(deployed: localstack.Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[deployment.Deployment]:
    """Yield the environment's queues and topic, new."""
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(ENVIRONMENT))
    sqs, sns = (boto3.client(name, endpoint_url=deployed.endpoint_url) for name in ("sqs", "sns"))
    deploy(ENVIRONMENT, sqs=sqs, sns=sns)
    found = deployment.find(ENVIRONMENT, endpoint_url=deployed.endpoint_url)
    yield found
    for url in sqs.list_queues(QueueNamePrefix="sluice-faulty")["QueueUrls"]:
        sqs.delete_queue(QueueUrl=url)
    sns.delete_topic(TopicArn=found.topic_arn)


def _harmed(spark: SparkSession, where: deployment.Deployment, runs: Path) -> tuple[Verdict, Path]:
    load = LOAD.profile
    targets = Targets.of(
        consumer="worker", consumers=("billing", "audit"), consumers_per_queue=load.consumers_per_queue
    )
    schedule = scheduled(load.faults, targets, seed=SEED, duration_seconds=load.duration_seconds)
    return run_load(spark, where, runs, LOAD, seed=SEED, environment=ENVIRONMENT, faults=schedule)


def test_the_worker_stays_valid_under_chaos(spark: SparkSession, where: deployment.Deployment, tmp_path: Path) -> None:
    """Every effect is there once and in order, by history and database, and every fault was recovered from."""
    verdict, folder = _harmed(spark, where, tmp_path)

    assert (verdict.status, verdict.unknowns, verdict.violations) == (Status.VALID, (), ())
    for consumer in ("billing", "audit"):
        done = Counter(effect.key for effect in effects.effects_in(folder / f"inbox-{consumer}.db"))
        assert set(done.values()) == {1}
        assert len(done) == LOAD.profile.message_count
    rows = [row for path in folder.glob("journals/driver-*.arrows") for row in read_journal(path).to_pylist()]
    faults = Counter(
        detail_of(row["detail"])["kind"] for row in rows if row["kind"] == Kind.FAULT and row["outcome"] == "ok"
    )
    assert set(faults) >= {"kill", "terminate", "freeze", "deploy", "cut"}
    assert len(verdict.run["faults"]) == 15
    (recovery,) = (prop for prop in verdict.properties if prop.anomaly == "H5")
    assert (recovery.holding, recovery.opportunities, recovery.violation_count) == (Holding.HOLDS, faults.total(), 0)
    assert len(verdict.measures["faults"]) == faults.total()


def test_broken_workers_are_found_by_the_same_faults(
    spark: SparkSession, where: deployment.Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One keeps no inbox, and does twice what comes twice; one deletes first, and loses what it fails to do then."""
    monkeypatch.setattr(worker_processes, "_EFFECTS", "tests.support.processes.broken_load_handlers")

    verdict, _ = _harmed(spark, where, tmp_path)

    assert verdict.status is Status.INVALID
    found = {(violation.anomaly, violation.queue) for violation in verdict.violations}
    assert found >= {("R2", BILLING), ("R1", AUDIT)}
