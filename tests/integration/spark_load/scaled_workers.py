"""Real workers on a simulated queue, where the test is the publisher and the driver of the run: no Spark."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.clock import SystemClock, clock_id, eventually, wall_minus_monotonic_us
from sluice.declaration import Consumer, Environment, Removal, task_settings
from sluice.messaging import Event
from sluice.messaging.envelope import Envelope
from sluice.recorder.journal import Journal
from sluice.recorder.recorder import Recorder, host_name
from spark_load.consume.scaling import control
from spark_load.consume.scaling.observation import rehearsed_services
from spark_load.consume.worker_processes import WorkersResult
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.runtime import deployment
from spark_load.runtime.coordinator import RunStep
from spark_load.runtime.task_context import LoadRun
from tests.support.endpoints import fake_aws

PATIENCE_SECONDS = 120
_END_SECONDS = 240


def environment_of(consumer: Consumer) -> Environment:
    """Return an environment with that consumer only."""
    return Environment(name="scaled", account="000000000000", removal=Removal.DESTROY, consumers=(consumer,))


@contextmanager
def run_on_queue(
    consumer: Consumer, folder: Path, monkeypatch: pytest.MonkeyPatch, *, minute_seconds: float, handler_seconds: float
) -> Iterator[LoadRun]:
    """Yield a run whose only queue is the consumer's; workers that are started find it declared."""
    environment = environment_of(consumer)
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(environment))
    text = (
        "messages_per_second: 1\nduration_seconds: 10\ngroup_count: 1\ndestination: queue\nconsumer: worker\n"
        f"drain_timeout_seconds: 30\nminute_seconds: {minute_seconds}\nhandler_seconds: {handler_seconds}\n"
    )
    with fake_aws.running() as endpoint:
        endpoint.deploy(environment, visibility_timeout_seconds=None)
        yield LoadRun(
            id="epoch-1",
            folder=folder,
            deployment=deployment.find(environment, endpoint_url=endpoint.url),
            plan=Plan(profile.parse(text, source="scaled"), seed=7),
            clock_id=clock_id(),
            clock_offset_us=wall_minus_monotonic_us(),
            services=rehearsed_services(environment),
        )


def rehearse(run: LoadRun, groups: Sequence[str]) -> tuple[WorkersResult, dict[str, Any]]:
    """Publish a message to each of the groups, in that order and at once; return what became of the run's service."""
    clock = SystemClock()
    coordinator = run.coordinator(clock)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(control.work, run)
        try:
            eventually(
                lambda: coordinator.all_progress() or working.done(),
                timeout_seconds=PATIENCE_SECONDS,
                describe="the first workers to receive",
            )
            coordinator.reach(RunStep.START, clock.now_us())
            publish(run, groups)
            coordinator.reach(RunStep.PUBLISHED)
            worked = working.result(_END_SECONDS)
        finally:
            coordinator.reach(RunStep.STOP)
    document = json.loads((run.folder / "rehearsal.json").read_text("utf-8"))
    (found,) = document["services"].values()
    return worked, found


def publish(run: LoadRun, groups: Sequence[str]) -> None:
    """Publish a message to each of the groups, in that order."""
    common = {"run": run.id, "worker": "publish-0", "host": host_name(), "clock_id": clock_id()}
    numbers: dict[str, int] = {}
    sqs = run.deployment.client("sqs")
    with Journal(run.journals, "publish-0-0", common=common) as journal:
        Recorder(journal, names=run.deployment.names()).attach(sqs)
        for group in groups:
            numbers[group] = numbers.get(group, 0) + 1
            envelope = Envelope(event=Event(type="load.message", group=group, data={}), seq=numbers[group], epoch=1)
            sqs.send_message(
                QueueUrl=url_of(run),
                MessageBody=envelope.body,
                MessageGroupId=group,
                MessageDeduplicationId=envelope.deduplication_id,
            )


def url_of(run: LoadRun) -> str:
    """Return the URL of the run's queue."""
    (url,) = run.deployment.queue_urls.values()
    return url


def counts(run: LoadRun) -> tuple[int, int]:
    """Return how many messages are visible and in flight."""
    names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    answer = run.deployment.client("sqs").get_queue_attributes(QueueUrl=url_of(run), AttributeNames=list(names))
    visible, in_flight = (int(answer["Attributes"][name]) for name in names)
    return visible, in_flight
