"""A publishing task puts each refusal, each wait and each write that fails on record."""

import itertools
import threading
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sluice.clock import SystemClock, eventually
from sluice.errors import HistoryError
from sluice.history.events import HistoryEvent, Kind
from sluice.recorder.journal import events_of, read_journal
from sluice.simulator.model import AwsRefusal
from spark_load.publish import job
from spark_load.runtime import deployment, task_context
from spark_load.runtime.coordinator import RunStep, TaskProgress
from spark_load.runtime.task_context import LoadRun
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
def run(endpoint: fake_aws.Endpoint, tmp_path: Path) -> LoadRun:
    return run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url), PROFILE)


def _publish(run: LoadRun) -> TaskProgress:
    """Publish the whole plan from now on, as a task does."""
    clock = SystemClock(run.clock_offset_us)
    run.coordinator(clock).reach(RunStep.START, clock.now_us())
    rows = run.plan.batch(np.arange(run.plan.row_count)).sort_by([("offset_us", "ascending")])
    return job.publish_share(run, iter([rows]))


def _publish_events(run: LoadRun) -> list[HistoryEvent]:
    return [event for event in events_of_worker(run, "publish-0") if event.kind == Kind.PUBLISHED]


def test_throttling_half_the_calls_loses_and_repeats_no_message(endpoint: fake_aws.Endpoint, run: LoadRun) -> None:
    """Every other call is refused; what is refused is sent again, and each group stays in order."""
    calls = itertools.count()
    endpoint.fault = lambda name: fake_aws.THROTTLED if name == "PublishBatch" and next(calls) % 2 else None

    progress = _publish(run)

    published = _publish_events(run)
    acknowledged = [event for event in published if event.outcome == "ok"]
    refused = [event for event in published if event.outcome == "fail"]
    assert progress.done == MESSAGES
    assert progress.failed == 0
    assert progress.abandoned == 0
    assert len({(event.message_group_id, event.idx) for event in acknowledged}) == len(acknowledged) == MESSAGES
    assert progress.throttled == len(refused) > 50
    assert {event.error for event in refused} == {"ThrottlingException"}
    in_order = sorted(acknowledged, key=lambda event: event.invoked_at_us or 0)
    for group in {event.message_group_id for event in in_order}:
        sent = [event.idx or 0 for event in in_order if event.message_group_id == group and (event.idx or 0) >= 0]
        assert sent == sorted(sent)


def test_a_stall_is_seen_by_every_message_that_was_due_in_it(endpoint: fake_aws.Endpoint, run: LoadRun) -> None:
    """The publishers are an open loop.

    One that waits for each answer before the next message would have seen one slow call only.
    """
    begun, go_on, clock = threading.Event(), threading.Event(), SystemClock(run.clock_offset_us)

    def stall(name: str) -> AwsRefusal | None:
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

    waited_us = [(event.responded_at_us or 0) - (event.intended_at_us or 0) for event in _publish_events(run)]
    assert sum(waited > 300_000 for waited in waited_us) >= 40
    assert max(waited_us) > 550_000


def test_a_publisher_that_is_run_again_goes_on_where_its_journal_ends(
    endpoint: fake_aws.Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run continues the worker's numbers, sends again what was never answered, and sends nothing else."""
    run = replace(
        run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url), f"{PROFILE}consumer: worker\n"),
        id="epoch-7",
    )
    coordinator, unheard = run.coordinator(SystemClock()), list[str]()
    answer = endpoint.answer

    def lose_one(region: str, service: str, called: str, params: dict[str, Any]) -> Mapping[str, Any] | AwsRefusal:
        answered = answer(region, service, called, params)
        if called == "PublishBatch" and not unheard and published_count(coordinator.all_progress()) > 50:
            unheard.extend(entry["MessageDeduplicationId"] for entry in params["PublishBatchRequestEntries"])
            endpoint.fault = lambda _: fake_aws.THROTTLED  # whatever its first process still sends
            coordinator.reach(RunStep.STOP)  # the last, as the end of that process takes the fault away
            raise ConnectionError
        return answered

    with monkeypatch.context() as patch:
        patch.setattr(endpoint, "answer", lose_one)
        _publish(run)
    endpoint.fault = lambda _: None
    (run.folder / "board-0" / "stop.json").unlink()
    patched = SimpleNamespace(get=lambda: SimpleNamespace(partitionId=lambda: 0, attemptNumber=lambda: 1))
    monkeypatch.setattr(task_context, "SparkTaskContext", patched)

    with pytest.raises(HistoryError, match="Spark runs publish-0 again, which would publish again"):
        _publish(run)
    coordinator.run_again("publish-0", 1)
    _publish(run)

    parts = [events_of(read_journal(run.journals / f"publish-0-0{part}.arrows")) for part in ("", ".1")]
    first, second = ({e.deduplication_id for e in part if e.outcome == "ok" and e.deduplication_id} for part in parts)
    assert unheard
    assert set(unheard) <= second
    assert not first & second
    assert len(first | second) == MESSAGES
    numbers = defaultdict[str | None, set[int]](set)
    for event in itertools.chain(*parts):
        if event.outcome == "ok" and event.idx is not None:
            numbers[event.message_group_id].add(abs(event.idx))
    assert [found for found in numbers.values() if found != set(range(1, len(found) + 1))] == []
    assert sum(map(len, numbers.values())) == MESSAGES


def test_a_resumed_run_sends_no_expired_unanswered_message_again(
    endpoint: fake_aws.Endpoint, run: LoadRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that starts again within the resumed run also reads the earlier journal.

    Sending an expired message would be a second message.
    """
    unheard, answer = list[str](), endpoint.answer

    def lose_one(region: str, service: str, called: str, params: dict[str, Any]) -> Mapping[str, Any] | AwsRefusal:
        answered = answer(region, service, called, params)
        if called == "PublishBatch" and not unheard:
            unheard.extend(entry["MessageDeduplicationId"] for entry in params["PublishBatchRequestEntries"])
            run.coordinator(SystemClock()).reach(RunStep.STOP)
            raise ConnectionError
        return answered

    with monkeypatch.context() as patch:
        patch.setattr(endpoint, "answer", lose_one)
        _publish(run)
    resumed = replace(run, attempt=1)
    resumed.coordinator(SystemClock()).run_again("publish-0", 1)
    patched = SimpleNamespace(get=lambda: SimpleNamespace(partitionId=lambda: 0, attemptNumber=lambda: 1))
    monkeypatch.setattr(task_context, "SparkTaskContext", patched)
    monkeypatch.setattr(job, "RESENT_WITHIN_SECONDS", 0)
    _publish(resumed)

    sent = {event.deduplication_id for event in events_of(read_journal(run.journals / "publish-0-1.1.arrows"))}
    assert unheard
    assert not sent & set(unheard)
    assert len(sent - {None}) > MESSAGES / 2


def test_a_full_disk_ends_a_publisher_and_keeps_what_was_written(run: LoadRun) -> None:
    """No message is sent whose publish could not be written down before."""
    with (
        files_limited_to(100_000),
        pytest.raises(HistoryError, match=r"cannot write .*/publish-0-0\.arrows \(File too large\); what was written"),
    ):
        _publish(run)

    events = events_of_worker(run, "publish-0")
    url = next(iter(run.deployment.queue_urls.values()))
    sqs, wanted = run.deployment.client("sqs"), "ApproximateNumberOfMessages"
    arrived = int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[wanted])["Attributes"][wanted])
    assert 0 < len(_publish_events(run)) < MESSAGES
    assert Kind.CLOSED not in {event.kind for event in events}
    assert 0 < arrived <= len({(event.message_group_id, event.idx) for event in _publish_events(run)})
