"""A publisher that is killed and run again, as Spark does it: it is valid, and one that goes on wrongly is found."""

import re
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from sluice.clock import SystemClock
from sluice.judge.checker.verdict import PropertyStatus
from sluice.recorder.journal import read_journal
from sluice.simulator.model import AwsRefusal
from spark_load.faults.shapes import FaultKind
from spark_load.publish import job
from spark_load.publish.processes import Publishers
from spark_load.publish.publisher import LoadPublisher
from spark_load.publish.transport.opening import choose_transport
from spark_load.runtime import deployment, task_context
from spark_load.runtime.task_context import LoadRun, TaskContext
from tests.integration.spark_load.faults.raw_loads import planned_rows, run_load
from tests.integration.spark_load.loads import run_of
from tests.support.declaration import environment
from tests.support.endpoints import fake_aws
from tests.support.processes.forking import forking

LOAD = """
messages_per_second: 40
duration_seconds: 2
group_count: 6
payload_bytes: 32
publish_tasks: 1
lateness_budget_seconds: 60
"""
BUNDLED = f"""{LOAD.replace("group_count: 6", "group_count: 2")}
bundle_events_max: 8
publish_linger_seconds: 0.08
catch_up_ratio: 100  # a publisher that is run again has much to bundle at once
"""
_CALLS, _KILLS = 3, 2


def _sound() -> None:
    """Break nothing."""


def _sends_everything_anew() -> None:
    """Ignore the journals of the processes before, and have the service take every message for a new one."""

    class Anew(LoadPublisher):
        def __init__(self, *given: object, **named: object) -> None:
            super().__init__(*given, **named)  # type: ignore[arg-type]
            self._run += "-anew"

    vars(job)["LoadPublisher"] = Anew
    vars(job)["messages_sent_before"] = lambda *_: pa.array([], pa.int64())


def _takes_unanswered_for_published() -> None:
    """Send nothing again that was sent once, whatever became of it."""

    def idxs_sent_before(run: LoadRun, _context: TaskContext) -> pa.Array:
        journals = sorted(run.journals.glob("publish-0-*.arrows"))
        return pa.concat_tables(read_journal(path) for path in journals).column("idx").drop_null().combine_chunks()

    vars(job)["messages_sent_before"] = idxs_sent_before


def _task(run: LoadRun, again: int, breaks: Callable[[], None]) -> None:
    """Publish as a task of Spark, in a process of its own."""
    context = SimpleNamespace(partitionId=lambda: 0, attemptNumber=lambda: again)
    vars(task_context)["SparkTaskContext"] = SimpleNamespace(get=lambda: context)
    if again:
        breaks()
    job.publish_share(run, iter([planned_rows(run)]))


def _publish_until_done(run: LoadRun, breaks: Callable[[], None]) -> None:
    """Run the task, and again where it was killed, as Spark does."""
    codes = list[int | None]()
    while not codes or codes[-1] == -signal.SIGKILL:
        process = forking("spark_load.publish.job").Process(target=_task, args=(run, len(codes), breaks))
        process.start()
        process.join(120)
        codes.append(process.exitcode)
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]


@pytest.mark.parametrize(
    ("breaks", "load", "status", "found"),
    ids=["right", "right with bundles", "sends everything anew", "takes unanswered for published"],
    argvalues=[
        (_sound, LOAD, PropertyStatus.VALID, ""),
        (_sound, BUNDLED, PropertyStatus.VALID, ""),
        (
            *(_sends_everything_anew, LOAD, PropertyStatus.INVALID),
            "2 messages of what is one message under 2 deduplication ids",
        ),
        pytest.param(
            *(_takes_unanswered_for_published, LOAD, PropertyStatus.UNKNOWN),
            r"\d+ planned message\(s\) were not published",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_publisher_that_is_killed_twice_loses_and_repeats_nothing(
    endpoint: fake_aws.Endpoint,
    tmp_path: Path,
    breaks: Callable[[], None],
    load: str,
    status: PropertyStatus,
    found: str,
) -> None:
    """The publisher is killed while it waits for an answer: to a call that is carried out, and to one that never is.

    The first must be repeated as it was, bundles too. Two publishers that go on wrongly are found; `found` is what the
    verdict says of them.
    """
    run = run_of(tmp_path, deployment.find(environment("local"), endpoint_url=endpoint.url), load)
    run = replace(run, transport=choose_transport(None, endpoint.url, None, has_bundles=load == BUNDLED))
    coordinator, calls, one_by_one = run.coordinator(SystemClock()), Counter[int](), threading.Lock()
    publishers = Publishers(coordinator)

    def kill(called: str) -> AwsRefusal | None:
        with one_by_one:
            kills = coordinator.again_count("publish-0")
            calls[kills] += called == "PublishBatch"
            if called != "PublishBatch" or kills == _KILLS or calls[kills] < _CALLS:
                return None
            publishers.harm(FaultKind.KILL, "publish-0")
            return fake_aws.THROTTLED if kills else None

    endpoint.fault = kill
    verdict = run_load(run, partial(_publish_until_done, breaks=breaks))

    sentences = [*(violation.sentence for violation in verdict.violations), *verdict.unknowns]
    assert verdict.status is status
    assert bool(sentences) == bool(found)
    assert any(re.search(found, sentence) for sentence in sentences) == bool(found)
