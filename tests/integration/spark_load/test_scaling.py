"""Real workers, started and stopped by the deployed policy: what scaling does to messages, and to whom."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.clock import SystemClock, eventually
from sluice.declaration import Consumer, backlog, load_declaration, task_settings
from sluice.judge.checker.verdict import PropertyState, PropertyStatus
from sluice.recorder.journal import read_journal
from sluice.rehearse.model.control_loop import USUAL, ControlLoop
from sluice.rehearse.model.policies import ScaledService, TargetTracking
from sluice.rehearse.model.simulation import KnownMetrics
from spark_load.consume import worker_processes
from spark_load.consume.scaling import control, prediction
from spark_load.consume.scaling.ecs_agent import EcsAgent
from spark_load.consume.scaling.observation import Observation, ObservedPace, read_records
from spark_load.consume.scaling.task_pool import TaskPool
from spark_load.profiles import profile
from spark_load.runtime import deployment
from spark_load.runtime.task_context import LoadRun
from tests.integration.spark_load.loads import anomalies_that, run_load
from tests.integration.spark_load.scaled_workers import (
    PATIENCE_SECONDS,
    counts,
    publish,
    rehearse,
    run_on_queue,
)
from tests.support.endpoints import fake_aws
from tests.support.project import PROJECT

pytestmark = pytest.mark.xdist_group("scaling")

SLOW = load_declaration(PROJECT / "examples" / "scaling" / "environments.py").environment("local")
ALWAYS_ONE = Consumer(name="billing", processing_seconds=20, lanes=2, max_tasks=3)
SOON_AGAIN = Consumer(name="billing", visibility_timeout_seconds=6, stop_timeout_seconds=4, lanes=1)


@pytest.mark.slow
@pytest.mark.spark
def test_a_burst_scales_workers_from_none_and_back_and_keeps_every_promise(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make demo` runs the same profile on LocalStack.

    This test also checks how many workers started and stopped at which time.
    """
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(SLOW))
    with fake_aws.running() as endpoint:
        endpoint.deploy(SLOW, visibility_timeout_seconds=None)
        where = deployment.find(SLOW, endpoint_url=endpoint.url)
        verdict, folder = run_load(spark, where, tmp_path, profile.load("scale"), target="endpoint", environment=SLOW)
    found = json.loads((folder / "rehearsal.json").read_text("utf-8"))["services"]["billing"]
    tasks = [0, *(after for _, _, after, _ in found["decisions"])]

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert anomalies_that(verdict, PropertyState.HOLDS) >= {"A1", "A2", "C1", "D1", "R1", "R2", "R3", "R4"}
    assert tasks[:2] == [0, 1]
    assert max(tasks) == 3
    assert tasks[-1] == 0
    assert found["is_back"]
    assert [stop["held_messages"] for stop in found["stopped"]] == [0, 0, 0]
    assert not any(stop["is_killed"] or stop["was_protected"] for stop in found["stopped"])
    predicted = [0, *(after for _, _, after, _ in found["predicted_decisions"])]
    assert predicted[:2] == [0, 1]
    assert max(predicted) == 3
    assert predicted[-1] == 0
    assert "## Scaling" in (folder / "summary.md").read_text("utf-8")


@pytest.mark.slow
def test_a_hot_group_scales_out_only_without_the_clamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One group is one lane's work however many tasks there are; without the clamp its backlog starts them all."""
    with run_on_queue(ALWAYS_ONE, tmp_path, monkeypatch, minute_seconds=1.5, handler_seconds=0.5) as run:
        worked, found = rehearse(run, ["hot"] * 24)
    (rehearsed,) = run.services.values()

    assert worked.unknowns == []
    assert found["decisions"] == []
    assert found["predicted_decisions"] == []
    assert max(found["measured"]["visible"]) > 2 * ALWAYS_ONE.target_backlog
    assert max(_desired_counts(_without_clamp(rehearsed.service), found["measured"])) == ALWAYS_ONE.max_tasks


def test_a_service_that_does_not_come_back_in_time_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is 60 minutes of the policy; here it is none."""
    monkeypatch.setattr(control, "seconds_max", lambda _: 0.0)
    with run_on_queue(ALWAYS_ONE, tmp_path, monkeypatch, minute_seconds=0.5, handler_seconds=0.2) as run:
        worked, found = rehearse(run, ["some"] * 8)

    assert not found["is_back"]
    assert worked.unknowns == [
        "billing did not come back to its fewest tasks (1) with an empty queue within 0 s of the last publish; see"
        " rehearsal.json"
    ]


def _without_clamp(service: ScaledService) -> ScaledService:
    (tracking,) = service.policies
    assert isinstance(tracking, TargetTracking)
    watched = replace(tracking.watched, term=backlog.backlog_per_task())
    return replace(service, policies=(replace(tracking, watched=watched),))


def _desired_counts(service: ScaledService, series: dict[str, list[float | None]]) -> list[int]:
    """Return how many tasks a service of one would have asked for in each of those minutes."""
    loop = ControlLoop(service, USUAL)
    minutes = range(len(series["visible"]))
    past = [{name: series[name][: minute + 1] for name in ("visible", "inflight", "running")} for minute in minutes]
    return [
        loop.decide(minute, 1, KnownMetrics(service, past[minute], USUAL.lag_minutes)).desired for minute in minutes
    ]


@contextmanager
def _pool(
    run: LoadRun, *, is_protected: bool, stop_timeout_seconds: float
) -> Iterator[tuple[TaskPool, Callable[[], Any]]]:
    """Yield a pool of real workers, and what tells how they were stopped when all of them have ended."""
    ((queue, _),) = run.services.items()
    urls, clock, workers = worker_processes.databases(run), SystemClock(), dict[str, worker_processes.WorkerProcess]()

    def begin(name: str) -> Any:
        uri = agent.uri(name) if is_protected else None
        workers[name] = worker_processes.start(run, queue, "billing", name, urls["billing"], uri)
        return workers[name].process

    def stop_facts() -> list[dict[str, Any]]:
        events = [event for path in sorted(run.journals.iterdir()) for event in read_journal(path).to_pylist()]
        seen = Observation(rehearsed=run.services[queue])
        seen.tasks = pool.tasks
        seen.recorders = {name: worker_processes.recorder(run, worker) for name, worker in workers.items()}
        pace = ObservedPace(begun_us=pool.tasks[0].started_us, minute_seconds=60, poll_seconds=1, handler_seconds=2)
        return prediction.stops(seen, read_records(events, addresses=(queue,), queue=queue), pace)

    with EcsAgent(clock) as agent:
        pool = TaskPool("billing", begin, agent=agent, stop_timeout_seconds=stop_timeout_seconds, clock=clock)
        try:
            yield pool, stop_facts
        finally:
            worker_processes.stop([worker.process for worker in workers.values()], clock)


def _await(pool: TaskPool, condition: Callable[[], bool], describe: str) -> None:
    def look() -> bool:
        pool.tend()
        return condition()

    eventually(look, timeout_seconds=PATIENCE_SECONDS, describe=describe)


def test_a_worker_at_work_is_protected_and_stopped_when_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scaling in comes while the worker handles a message of three seconds."""
    with (
        run_on_queue(SOON_AGAIN, tmp_path, monkeypatch, minute_seconds=1, handler_seconds=3) as run,
        _pool(run, is_protected=True, stop_timeout_seconds=4) as (pool, stopped),
    ):
        pool.scale(1)
        publish(run, ["some"])
        _await(pool, lambda: pool.is_protected("billing-0"), "the worker to be protected")
        pool.scale(0)
        assert counts(run) == (0, 1)
        _await(pool, lambda: not pool.alive, "the worker to end")

        assert counts(run) == (0, 0)
    (stop,) = stopped()
    assert stop["held_messages"] == 0
    assert stop["was_protected"] is False
    assert stop["is_killed"] is False


def test_a_worker_killed_without_protection_is_named_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scaling in kills the worker at once: its message is received a second time, by the next worker."""
    with (
        run_on_queue(SOON_AGAIN, tmp_path, monkeypatch, minute_seconds=1, handler_seconds=3) as run,
        _pool(run, is_protected=False, stop_timeout_seconds=0) as (pool, stopped),
    ):
        pool.scale(1)
        publish(run, ["some"])
        _await(pool, lambda: counts(run) == (0, 1), "the message to be received")
        pool.scale(0)
        _await(pool, lambda: not pool.alive, "the worker to be killed")
        pool.scale(1)
        _await(pool, lambda: counts(run) == (0, 0), "the message to be handled by the next worker")
    killed, *_ = found = stopped()
    journals = [event for path in run.journals.iterdir() for event in read_journal(path).to_pylist()]

    assert killed["held_messages"] == 1
    assert killed["is_killed"] is True
    assert "at work: billing-0 (1 messages), killed: billing-0" in prediction.stops_sentence(found)
    assert [event["receive_count"] for event in journals if event["kind"] == "handled"] == [2]
