"""Runs whose consumers fail, crash and are poisoned, or are the real worker: valid where promises are kept."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.clock import eventually
from sluice.history.events import Kind
from sluice.judge.checker.verdict import PropertyState, PropertyStatus
from sluice.recorder.journal import Journal, read_journal
from spark_load.profiles import profile
from spark_load.run import driver
from spark_load.run.run_file import find_stored
from spark_load.runtime import deployment
from spark_load.runtime.coordinator import TaskProgress
from tests.integration.spark_load.loads import LOCAL, anomalies_that, run_load
from tests.support.endpoints import fake_aws
from tests.support.project import PROJECT

pytestmark = pytest.mark.spark

QUEUES = ("sluice-local-billing.fifo", "sluice-local-shipping.fifo", "sluice-local-audit.fifo")
ROUGH = profile.NamedProfile(
    "rough",
    profile.parse(
        """
messages_per_second: 40
duration_seconds: 3
warm_up_seconds: 0.5
group_count: 12
group_skew: 1.0
payload_bytes: 64
duplicate_share: 0.1
duplicate_after_seconds: 1
failure_share: 0.08
crash_share: 0.02
poison_share: 0.05
redrive: true
visibility_timeout_seconds: 3
lateness_budget_seconds: 60
drain_timeout_seconds: 30
latency_seconds_max: 300
drain_seconds_max: 300
throttled_share_max: 0.1
fan_out_skew_seconds_max: 300
passed_over_seconds_max: 300
stuck_seconds_max: 300
""",
        source="rough",
    ),
)
_POISONING_SEED = 3
OF_DEAD_LETTERS = {"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12", "F13"}


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((folder / "journals").iterdir()):
        yield from read_journal(path).to_pylist()


def test_failures_crashes_poison_and_their_way_back_are_exercised_and_valid(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """A move task brings back what it took, so nothing is allowed, and every rule about dead letters is tested.

    The same record without its move tasks is INVALID: dead letters came back, and nothing brought them (F13).

    The warm-up is in the history and drained before the load began; 120 messages are measured, and 20 are not. With
    this seed eight messages are poisoned, three of them in one group, two crash their consumers, and six fail.
    """
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)
    phases: list[str] = []

    def watch(phase: str, _progress: list[TaskProgress]) -> None:
        if phases[-1:] != [phase]:
            phases.append(phase)

    verdict, folder = run_load(spark, where, tmp_path, ROUGH, seed=_POISONING_SEED, target="endpoint", watch=watch)

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert phases == ["warming up", "publishing", "draining", "dead letters", "redrive", "judging"]
    exercised = anomalies_that(verdict, PropertyState.HOLDS)
    assert exercised >= OF_DEAD_LETTERS | {"A3", "B7", "B8", "C3", "D3", "D4", "H1", "H3", "H4", "H6", "R1", "R3", "R4"}
    assert anomalies_that(verdict, PropertyState.ALLOWED, PropertyState.CROSSED) == set()
    assert "B6" in anomalies_that(verdict, PropertyState.SEEN)
    counts = {queue: of["received"]["count"] for queue, of in verdict.measures["queues"].items()}
    assert counts == dict.fromkeys(QUEUES, 120)
    events = list(_events(folder))
    published = {event["phase"] for event in events if event["kind"] == "published"}
    began_us = min(event["intended_at_us"] for event in events if event["kind"] == "published" and event["idx"] == 20)
    warm = [event for event in events if event["kind"] == "deleted" and 0 <= event["idx"] < 20]
    assert published == {"warm_up", "measure"}
    assert len(warm) == 20 * len(QUEUES)
    assert max(event["responded_at_us"] for event in warm) < began_us

    _forget_move_tasks(folder)
    unrecorded = driver.rejudge(spark, find_stored(folder))

    assert unrecorded.status == PropertyStatus.INVALID
    assert {each.anomaly for each in unrecorded.violations} == {"F13"}


def _forget_move_tasks(folder: Path) -> None:
    """Leave the move tasks out of what the driver of a run recorded."""
    (path,) = (folder / "journals").glob("driver-*")
    opened, *rows = read_journal(path).to_pylist()
    path.unlink()
    common = {name: opened[name] for name in ("run", "worker", "task_attempt", "host", "clock_id")}
    with Journal(path.parent, path.stem, common=common) as journal:
        for row in rows:
            if row["kind"] not in (Kind.REDRIVEN, Kind.CLOSED):
                journal.add(**row)


@pytest.mark.slow
def test_on_localstack_exactly_its_known_gaps_show(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """Topics do not deduplicate, dead letters keep their ids, and a message that returns within the window is lost.

    Nothing else deviates.
    """
    verdict, _ = run_load(spark, empty, tmp_path, ROUGH, seed=_POISONING_SEED)

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert anomalies_that(verdict, PropertyState.ALLOWED) == {"B5", "F6", "F8"}
    assert anomalies_that(verdict, PropertyState.HOLDS) >= OF_DEAD_LETTERS - {"F6", "F8"} | {
        "D4",
        "E4",
        "R1",
        "R3",
        "R4",
    }


@pytest.mark.slow
def test_the_real_worker_consumes_a_load(spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path) -> None:
    """Workers of three queues handle 320 messages each; R1 to R4 are the promises of their inbox."""
    load = replace(profile.load("tiny").profile, consumer="worker", drain_timeout_seconds=20)

    verdict, folder = run_load(spark, empty, tmp_path, profile.NamedProfile("shape", load))

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert anomalies_that(verdict, PropertyState.HOLDS) >= {"A1", "A2", "B1", "C1", "D1", "E1", "R1", "R2", "R3", "R4"}
    workers = {name: queue for name, queue in verdict.run["recorders"].items() if name.startswith("worker-")}
    assert sorted(queue for queue in workers.values() if queue is not None) == sorted(QUEUES)
    handled = [event for event in _events(folder) if event["kind"] == "handled" and event["idx"] > 0]
    assert len(handled) == 3 * 320


@pytest.mark.slow
def test_a_backlog_is_drained_when_its_consumers_come(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """Consumers begin eight seconds after the publisher."""
    load = replace(
        profile.load("tiny").profile, consume_after_seconds=8, drain_seconds_max=300, drain_timeout_seconds=30
    )

    verdict, folder = run_load(spark, empty, tmp_path, profile.NamedProfile("shape", load))

    events = list(_events(folder))
    begun_us = min(event["intended_at_us"] for event in events if event["kind"] == "published")
    received_us = min(event["responded_at_us"] for event in events if event["kind"] == "received")
    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert received_us - begun_us > 8_000_000
    assert "H4" in anomalies_that(verdict, PropertyState.HOLDS)


@pytest.mark.slow
def test_a_hot_group_is_served_in_order_by_slow_consumers(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """One of three groups has most of the messages, and each message takes 10 ms."""
    load = replace(
        profile.load("tiny").profile,
        group_count=3,
        group_skew=2.0,
        messages_per_second=25,
        handler_seconds=0.01,
        passed_over_seconds_max=60,
        drain_timeout_seconds=30,
    )

    verdict, _ = run_load(spark, empty, tmp_path, profile.NamedProfile("shape", load))

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert anomalies_that(verdict, PropertyState.HOLDS) >= {"C1", "C2", "D1", "D3", "R3"}


@pytest.mark.slow
@pytest.mark.timeout(650)  # as long as its three waits may take
def test_ctrl_c_ends_the_tasks_and_says_how_to_judge(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """Every task closes its journal; only the driver's own has no end, so the run is UNKNOWN."""
    load = tmp_path / "long.yaml"
    load.write_text("messages_per_second: 20\nduration_seconds: 600\ngroup_count: 5\n", encoding="utf-8")
    command = [sys.executable, "-m", "sluice"]
    options = [str(load), "--endpoint-url", endpoint.url, "--target", "endpoint", "--runs-dir", str(tmp_path / "runs")]
    running = subprocess.Popen(
        [*command, "load", "run", *options],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stderr=subprocess.PIPE,
        text=True,
    )

    def folder() -> Path | None:
        found = sorted((tmp_path / "runs").glob("*/board-0/measure.json"))
        return found[0].parents[1] if found else None

    try:
        where = eventually(folder, timeout_seconds=240, describe="the load to begin")
        assert where is not None
        running.send_signal(signal.SIGINT)
        _, printed = running.communicate(timeout=120)
    finally:
        running.kill()
    judged = subprocess.run(
        [*command, "check", str(where)], cwd=PROJECT, capture_output=True, text=True, timeout=240, check=False
    )

    assert running.returncode == 130
    assert f"sluice check {where}" in printed
    kinds = {path.name: read_journal(path).column("kind").to_pylist() for path in (where / "journals").iterdir()}
    assert {name for name, of in kinds.items() if of[-1] != "closed"} == {"driver-0-0.arrows"}
    assert judged.returncode == 2
    assert "it was stopped before its end" in judged.stderr
