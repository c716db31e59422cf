"""Small load tests one after the other, on the simulator's model: the load test's own parts, from publisher to judge.

Spark is left out, which would take longer to start than a run lasts: publisher and consumers are processes. So is
LocalStack, whose own times vary more than what is to be found.
"""

import itertools
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from sluice.clock import SystemClock, clock_id, eventually, wall_minus_monotonic_us
from sluice.declaration import Environment, load_declaration
from sluice.judge import engine as local_engine
from sluice.judge.checker import Expectation
from sluice.judge.checker.verdict import Verdict
from sluice.judge.judge import Planned, judge
from spark_load.baselines.results import Result, result_of
from spark_load.consume.job import Consumer
from spark_load.plan.plan import Plan
from spark_load.profiles.profile import Profile
from spark_load.publish.job import publish_share
from spark_load.runtime import deployment
from spark_load.runtime.deployment import Deployment
from spark_load.runtime.task_context import CONSUMER, Run, task_context
from tests.support.endpoints import fake_aws

PROFILE = Profile(
    messages_per_second=40,
    duration_seconds=2,
    group_count=20,
    group_skew=1,
    payload_bytes=128,
    publish_linger_seconds=0.1,
    poll_pause_seconds=0.15,
    lateness_budget_seconds=30,
)
_LEAD_US = 500_000
_SECONDS_MAX = 120
_clock = SystemClock()
_fork = multiprocessing.get_context("fork")


def slower(factor: float) -> Profile:
    """Return the load with longer waits of publisher and consumers, of which its latencies are made."""
    return replace(
        PROFILE,
        publish_linger_seconds=PROFILE.publish_linger_seconds * factor,
        poll_pause_seconds=PROFILE.poll_pause_seconds * factor,
    )


@contextmanager
def deployed() -> Iterator[Deployment]:
    """Serve the queues of the environment `local` by the simulator's model, in a process that ends with the block."""
    declared = load_declaration(Path(__file__).resolve().parents[2] / "environments.py").environment("local")
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    here, there = _fork.Pipe()
    server = _fork.Process(target=_serve, args=(declared, there), daemon=True)
    server.start()
    try:
        yield deployment.find(declared, endpoint_url=here.recv())
    finally:
        server.kill()


def _serve(declared: Environment, url: Connection) -> None:
    with fake_aws.running() as endpoint:
        endpoint.deploy(declared, visibility_timeout_seconds=None)
        url.send(endpoint.url)
        threading.Event().wait()


def results(where: Deployment, kinds: dict[str, Profile], seconds: float) -> Iterator[Result]:
    """Yield runs, the kinds by turns, for so long; ids are KIND-NUMBER, and all say that they ran the same profile."""
    until = _clock.monotonic() + seconds
    for number in itertools.count():
        for kind, load in kinds.items():
            if _clock.monotonic() > until:
                return
            with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
                yield result_of(_judged(where, load, Path(folder), f"{kind}-{number:03}"))


def _judged(where: Deployment, load: Profile, folder: Path, name: str) -> Verdict:
    """Run one load test, and judge it."""
    run = Run(
        id=f"{name}-{_clock.now_us()}",
        folder=folder,
        deployment=where,
        plan=Plan(load, 1),
        clock_id=clock_id(),
        clock_offset_us=wall_minus_monotonic_us(),
    )
    consumers = [
        _fork.Process(target=_consume, args=(run, queue, number)) for number, queue in enumerate(where.queue_urls)
    ]
    publisher = _fork.Process(target=_publish, args=(run,))
    coordinator, tasks = run.coordinator(_clock), [publisher, *consumers]
    for task in tasks:
        task.start()
    try:
        _await(lambda: len(coordinator.all_progress()) == len(tasks), "the tasks to be ready")
        coordinator.start(_clock.now_us() + _LEAD_US)
        coordinator.measure(_clock.now_us() + _LEAD_US)
        publisher.join(_SECONDS_MAX)
        coordinator.published()
        ends = load.group_count * len(consumers)
        _await(lambda: sum(task.ended for task in coordinator.all_progress()) >= ends, "the queues to be drained")
        coordinator.finish()
        for task in consumers:
            task.join(_SECONDS_MAX)
    finally:
        for task in tasks:
            task.kill()
    engine = local_engine.opened(run.journals)
    assert engine is not None, "without a bound it is read"
    recorders = ["publish-0", *(f"{CONSUMER}{number}-0" for number in range(len(consumers)))]
    return judge(
        engine,
        plan=Planned(message_count=run.plan.row_count, lateness_budget_seconds=load.lateness_budget_seconds),
        expectation=Expectation(
            run=run.id,
            queues=tuple(where.queue_urls),
            visibility_timeout_seconds=dict(where.visibility_timeout_seconds),
            dead_letter_queues=dict(where.dead_letter_queues),
            effects_recorded=tuple(where.queue_urls),
            retention_seconds=dict(where.retention_seconds),
        ),
        run={
            "run": name,
            "target": "endpoint",
            "profile": PROFILE.as_json(),
            "profile_name": "benchmark",
            "recorders": dict.fromkeys(recorders),
            "max_receive_count": dict(where.max_receive_count),
        },
        unknowns=(),
        thresholds=load.thresholds(),
        allowed=dict(load.allowed()),
    )


def _await(condition: Callable[[], bool], describe: str) -> None:
    eventually(condition, timeout_seconds=_SECONDS_MAX, describe=describe, clock=_clock)


def _publish(run: Run) -> None:
    publish_share(run, iter([run.plan.batch(np.arange(run.plan.row_count)).sort_by("offset_us")]))


def _consume(run: Run, queue: str, number: int) -> None:
    with task_context(run, f"{CONSUMER}{number}") as context:
        Consumer(context, run, queue).consume()
