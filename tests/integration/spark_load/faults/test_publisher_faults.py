"""What breaks while a task publishes: each refusal, each wait and each write that fails is on record."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sluice.clock import SystemClock, eventually
from sluice.errors import HistoryError
from sluice.history.events import Event, Kind
from sluice.simulator.model import Refusal
from spark_load.publish import job
from spark_load.runtime import deployment
from spark_load.runtime.coordinator import Progress
from spark_load.runtime.task_context import Run
from tests.integration.spark_load.loads import LOCAL, events_of_worker, published_count, run_of
from tests.support.endpoints import fake_aws
from tests.support.full_disk import files_limited_to

PROFILE = """
messages_per_second: 200
duration_seconds: 1.5
group_count: 20
publish_tasks: 1
consumers_per_queue: 1
payload_bytes: 64
"""
MESSAGES = 300 + 20  # with the end markers


@pytest.fixture
def run(endpoint: fake_aws.Endpoint, tmp_path: Path) -> Run:
    return run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url), PROFILE)


def _publish(run: Run) -> Progress:
    """Publish the whole plan from now on, as a task does."""
    clock = SystemClock(run.clock_offset_us)
    run.coordinator(clock).start(clock.now_us())
    rows = run.plan.batch(np.arange(run.plan.row_count)).sort_by([("offset_us", "ascending")])
    return job.publish_share(run, iter([rows]))


def _published(run: Run) -> list[Event]:
    return [event for event in events_of_worker(run, "publish-0") if event.kind == Kind.PUBLISHED]


def test_half_the_calls_throttled_costs_time_and_nothing_else(endpoint: fake_aws.Endpoint, run: Run) -> None:
    calls = itertools.count()
    endpoint.fault = lambda name: fake_aws.THROTTLED if name == "PublishBatch" and next(calls) % 2 else None

    progress = _publish(run)

    published = _published(run)
    acknowledged = [event for event in published if event.outcome == "ok"]
    refused = [event for event in published if event.outcome == "fail"]
    assert (progress.done, progress.failed, progress.abandoned) == (MESSAGES, 0, 0)
    assert len({(event.message_group_id, event.idx) for event in acknowledged}) == len(acknowledged) == MESSAGES
    assert progress.throttled == len(refused) > 50
    assert {event.error for event in refused} == {"ThrottlingException"}
    in_order = sorted(acknowledged, key=lambda event: event.invoked_at_us or 0)
    for group in {event.message_group_id for event in in_order}:
        sent = [event.idx or 0 for event in in_order if event.message_group_id == group and (event.idx or 0) >= 0]
        assert sent == sorted(sent)


def test_a_stall_is_seen_by_every_message_that_was_due_in_it(endpoint: fake_aws.Endpoint, run: Run) -> None:
    """An open loop: who waits for an answer before the next message would have seen one slow call."""
    begun, go_on, clock = threading.Event(), threading.Event(), SystemClock(run.clock_offset_us)

    def stall(name: str) -> Refusal | None:
        if name == "PublishBatch" and begun.is_set():
            go_on.wait(10)
        return None

    endpoint.fault = stall
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(_publish, run)
        coordinator = run.coordinator(SystemClock())
        eventually(lambda: published_count(coordinator.all_progress()) > 50, timeout_seconds=20, describe="a beginning")
        began_us = clock.now_us()
        begun.set()
        eventually(lambda: clock.now_us() - began_us > 600_000, timeout_seconds=5, describe="0.6 s of stall")
        go_on.set()
        publishing.result(timeout=20)

    waited_us = [(event.responded_at_us or 0) - (event.intended_at_us or 0) for event in _published(run)]
    assert sum(waited > 300_000 for waited in waited_us) >= 40
    assert max(waited_us) > 550_000


def test_a_full_disk_ends_a_publisher_and_keeps_what_was_written(run: Run) -> None:
    """Nothing is sent that could not be written down."""
    with (
        files_limited_to(100_000),
        pytest.raises(HistoryError, match=r"cannot write .*/publish-0-0\.arrows \(File too large\); what was written"),
    ):
        _publish(run)

    events = events_of_worker(run, "publish-0")
    url = next(iter(run.deployment.queue_urls.values()))
    sqs, wanted = run.deployment.client("sqs"), "ApproximateNumberOfMessages"
    arrived = int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[wanted])["Attributes"][wanted])
    assert 0 < len(_published(run)) < MESSAGES
    assert Kind.CLOSED not in {event.kind for event in events}
    assert 0 < arrived <= len({(event.message_group_id, event.idx) for event in _published(run)})
