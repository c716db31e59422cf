"""A recording replayed under faults, on LocalStack: the real worker stays valid, the same seed finds broken ones."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import numpy as np
import pytest
from pyspark.sql import SparkSession

from emulator import localstack
from sluice.declaration import Consumer, Environment, Topic, task_settings
from sluice.judge.checker.verdict import PropertyState, PropertyStatus, Verdict
from sluice.testing import deploy
from spark_load.consume import effects, worker_processes
from spark_load.faults import servers
from spark_load.faults.shapes import RELAYS, Targets, schedule_faults
from spark_load.profiles import profile, trace
from spark_load.publish.bodies import epoch_of
from spark_load.runtime import deployment
from tests.chaos.system import database
from tests.integration.spark_load.loads import run_load

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

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
BUNDLED = replace(ENVIRONMENT, topics=(Topic(bundle_events_max=5),))
BILLING, AUDIT = "sluice-faulty-billing.fifo", "sluice-faulty-audit.fifo"
MESSAGES, GROUPS, SECONDS = 132, 8, 11
LOAD = """
replay: {file: recorded.parquet}
warm_up_seconds: 1
consumer: worker
destination: outbox
consumers_per_queue: 2
handler_seconds: 0.2
publish_linger_seconds: 0.1
lateness_budget_seconds: 60
drain_timeout_seconds: 7
recovery_seconds_max: 60
faults: {shape: chaos, every_seconds: 0.8, after_seconds: 0.5}
"""
SEED = 228


@pytest.fixture
def environment() -> Environment:
    """Return the environment of the load."""
    return ENVIRONMENT


@pytest.fixture
def where(
    localstack_deployed: localstack.Emulator, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> Iterator[deployment.LoadDeployment]:
    """Yield the environment's queues and topic, new."""
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(environment))
    sqs, sns = (boto3.client(name, endpoint_url=localstack_deployed.endpoint_url) for name in ("sqs", "sns"))
    deploy(environment, sqs=sqs, sns=sns)
    found = deployment.find(environment, endpoint_url=localstack_deployed.endpoint_url)
    yield found
    for url in sqs.list_queues(QueueNamePrefix="sluice-faulty")["QueueUrls"]:
        sqs.delete_queue(QueueUrl=url)
    sns.delete_topic(TopicArn=found.topic_arn)


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL of a Postgres of the test's own, which is the workers' database and may be restarted."""
    with database.running() as server:
        url = server.engine.url.render_as_string(hide_password=False)
        monkeypatch.setenv("SLUICE_DSN", url)
        monkeypatch.setenv("SLUICE_RESTART_DATABASE", server.restart_command("immediate"))
        yield url


@pytest.fixture
def load(tmp_path: Path, environment: Environment) -> profile.NamedProfile:
    """Return a profile that replays a trace under faults, in bundles if the environment has them."""
    random = np.random.default_rng(7)
    instants = np.sort(random.integers(0, SECONDS * 1_000_000, MESSAGES))
    groups = np.concatenate((np.arange(GROUPS), random.integers(0, GROUPS, MESSAGES - GROUPS)))
    trace.write(trace.rank_arrivals(instants, groups, np.full(MESSAGES, 200)), tmp_path / "recorded.parquet")
    events_max = environment.topics[0].bundle_events_max
    (tmp_path / "faulty.yaml").write_text(f"{LOAD}bundle_events_max: {events_max}\n", encoding="utf-8")
    return profile.load(str(tmp_path / "faulty.yaml"))


def _run_under_faults(
    spark: SparkSession,
    where: deployment.LoadDeployment,
    runs: Path,
    load: profile.NamedProfile,
    environment: Environment = ENVIRONMENT,
) -> Verdict:
    targets = Targets.of(
        consumer="worker",
        consumers=("billing", "audit"),
        consumers_per_queue=load.profile.consumers_per_queue,
        publish_tasks=load.profile.publish_tasks,
        is_through_outbox=True,
        database=servers.database(),
        restarts=servers.restartable(),
    )
    schedule = schedule_faults(load.profile.faults, targets, seed=SEED, duration_seconds=SECONDS)
    verdict, _ = run_load(spark, where, runs, load, seed=SEED, environment=environment, faults=schedule)
    return verdict


@pytest.mark.slow  # two minutes each; the load test of the demo has faults, too
@pytest.mark.parametrize("environment", [ENVIRONMENT, BUNDLED], ids=["alone", "bundles"])
def test_the_worker_stays_valid_under_chaos(
    spark: SparkSession,
    where: deployment.LoadDeployment,
    environment: Environment,
    postgres: str,
    tmp_path: Path,
    load: profile.NamedProfile,
) -> None:
    """Every effect is there once and in order, by history and database, and every fault was recovered from."""
    verdict = _run_under_faults(spark, where, tmp_path, load, environment)

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    for consumer in ("billing", "audit"):
        done = Counter(
            effect.key for effect in effects.effects_in(postgres, consumer=consumer, epoch=epoch_of(verdict.run["run"]))
        )
        assert set(done.values()) == {1}
        assert len(done) == load.profile.message_count
    assert verdict.measures["replay"]["published"] == MESSAGES
    assert verdict.measures["replay"]["skew_error"] == 0
    faults = {(fault["kind"], fault["target"]) for fault in verdict.measures["faults"]}
    assert faults >= {("kill", "publish-0"), *(("terminate", relay) for relay in RELAYS), ("restart", "database")}
    assert len(verdict.measures["faults"]) + len(verdict.run.get("missed", ())) == len(verdict.run["faults"]) == 15
    (recovery,) = (prop for prop in verdict.properties if prop.anomaly == "H5")
    recovered = [of for fault in verdict.measures["faults"] for of in fault["recovered_in_seconds"].values() if of]
    assert recovered
    assert recovery.holding == PropertyState.HOLDS
    assert recovery.opportunities == len(recovered)
    assert recovery.violation_count == 0


@pytest.mark.slow  # a minute and a half; a sabotaged run is found in test_load
def test_broken_workers_are_found_by_the_same_faults(
    spark: SparkSession,
    where: deployment.LoadDeployment,
    tmp_path: Path,
    load: profile.NamedProfile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One worker keeps no inbox and handles repeats twice.

    The other deletes before it handles, and loses messages whose handler fails.
    """
    monkeypatch.setattr(worker_processes, "_EFFECTS", "tests.support.processes.broken_load_handlers")

    verdict = _run_under_faults(spark, where, tmp_path, load)

    assert verdict.status is PropertyStatus.INVALID
    found = {(violation.anomaly, violation.queue) for violation in verdict.violations}
    assert found >= {("R2", BILLING), ("R1", AUDIT)}
