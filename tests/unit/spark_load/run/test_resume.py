"""A resumed run reads from its journals what it needs to know of the attempt before; tested without Spark."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, override

import pyarrow as pa
import pytest

from sluice.clock import VirtualClock, clock_id
from sluice.errors import ConfigError
from sluice.judge import judge
from sluice.judge.judge import RunFacts
from spark_load.cli.watching import ProgressTable
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.publish.job import rows_to_publish
from spark_load.run import resume
from spark_load.runtime.coordinator import RunStep
from spark_load.runtime.task_context import LoadRun
from tests.support.declaration import environment
from tests.support.deployments import ONE_QUEUE
from tests.support.histories.builders import EXPECTATION

_DAY_US = 86_400 * 1_000_000
QUICK = "messages_per_second: 10\nduration_seconds: 1\ngroup_count: 1\n"


def _resume(folder: Path) -> LoadRun:
    """Return the second attempt of a run that has one journal."""
    run = LoadRun(
        id="r",
        folder=folder,
        deployment=ONE_QUEUE,
        plan=Plan(profile.parse(QUICK, source="quick"), 1),
        clock_id="c",
        clock_offset_us=0,
        attempt=1,
    )
    run.journals.mkdir()
    (run.journals / "publish-0-0.arrows").write_bytes(b"events")
    return run


def test_tasks_that_write_are_found_by_sizes_and_not_by_times(tmp_path: Path) -> None:
    """A journal's time may be a day ahead, because the clock was set back."""
    run, clock = _resume(tmp_path), VirtualClock()
    tomorrow = 86_400 * 10**9 + run.journals.stat().st_mtime_ns
    os.utime(run.journals / "publish-0-0.arrows", ns=(tomorrow, tomorrow))

    resume.end_tasks(run, clock)

    assert 3 <= clock.monotonic() < 4
    assert replace(run, attempt=0).coordinator(clock).is_stopped()  # the tasks that a dead driver left behind
    assert not run.coordinator(clock).is_stopped()


class _Growing(VirtualClock):
    """A clock that lets a journal grow whenever it sleeps."""

    def __init__(self, journal: Path) -> None:
        super().__init__()
        self._journal = journal

    @override
    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        with self._journal.open("ab") as written:
            written.write(b"more")


def test_a_resumed_runs_progress_contains_its_first_attempt(tmp_path: Path) -> None:
    """Eight of eleven messages were published and five deleted. The rates are of the second attempt only."""
    clock = VirtualClock()
    run = _resume(tmp_path)
    coordinator = run.coordinator(clock)
    done = resume.FinishedWork(
        began_at_us=0, phases=frozenset(), deleted={"billing.fifo": 5}, ended={"billing.fifo": 0}, published=8
    )

    resume.report_resumed_progress(coordinator, done)
    published, billing = ProgressTable(run.plan.profile, list(ONE_QUEUE.queue_urls), clock).rows(
        coordinator.all_progress()
    )

    assert published.done == 8
    assert published.expected == 11
    assert published.per_second == 0
    assert billing.sent == 8
    assert billing.done == 5
    assert billing.waiting == 3
    assert billing.per_second == 0


def test_a_resumed_run_publishes_everything_but_expired_messages(tmp_path: Path) -> None:
    """Driver and tasks know which messages have expired, and the run names them.

    Later ones of the group are published.
    """
    clock = VirtualClock()
    run = replace(_resume(tmp_path), resumed_at_us=2_000_000, begin_by_us={3: 1_000, 4: 999, -1: 998})
    coordinator = run.coordinator(clock)
    coordinator.reach(RunStep.START, 1_000 - run.resumed_at_us)
    batches = [pa.RecordBatch.from_pydict({"idx": idx}) for idx in ([3, 4], [5, 4], [-1])]

    sent = [batch.column("idx").to_pylist() for batch in rows_to_publish(run, coordinator, iter(batches))]

    assert sent == [[3], [5], []]
    assert run.expired_messages(1_000 - run.resumed_at_us) == [-1, 4]
    assert run.expired_messages(999 - run.resumed_at_us) == [-1]
    assert resume.expired_sentence(range(12)) == (
        "12 message(s) whose publish was never answered were not published again: after 300 s a repeat can be"
        " a second message (idx 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …); run the load test again"
    )


def test_a_publisher_asks_for_its_share_before_it_waits_for_the_beginning(tmp_path: Path) -> None:
    """Spark sorts the rows when they are requested, and they have to be sorted when the load begins."""
    run = replace(_resume(tmp_path), begin_by_us={1: 0})
    clock = VirtualClock()
    requests = []

    def rows() -> Iterator[pa.RecordBatch]:
        requests.append(clock.monotonic())
        run.coordinator(clock).reach(RunStep.START, 1)
        yield pa.RecordBatch.from_pydict({"idx": [1]})

    may_go = rows_to_publish(run, run.coordinator(clock), rows())

    assert requests == []  # the publisher says first that it is there, or the driver would wait for it, and it for him
    assert sum(map(len, may_go)) == 0
    assert requests == [0]


def test_a_run_whose_tasks_still_write_is_not_resumed(tmp_path: Path) -> None:
    """They were told to end, and still write a minute later: their next records would be missing."""
    run = _resume(tmp_path)

    with pytest.raises(ConfigError, match="are still at work; end them, then resume it"):
        resume.end_tasks(run, _Growing(run.journals / "publish-0-0.arrows"))


def test_a_run_that_broke_before_any_record_is_not_resumed(tmp_path: Path) -> None:
    run = _resume(tmp_path)
    (run.journals / "publish-0-0.arrows").unlink()
    run.journals.rmdir()

    with pytest.raises(ConfigError, match="broke before anything was recorded; run it again"):
        resume.end_tasks(run, VirtualClock())


@pytest.mark.parametrize(
    ("phases", "days", "message"),
    [
        ({"warming up"}, 0, "the run broke before its load began, so there is nothing to resume; run it again"),
        (
            {"publishing", "redrive"},
            0,
            "the run broke while dead letters were being moved back, and which ones is unknown",
        ),
        ({"publishing"}, 5, r"the run began 5.0 days ago, and its queues keep messages for 4.0: what it left there"),
    ],
)
def test_a_run_is_not_resumed_where_its_judgement_would_be_unknown(phases: set[str], days: int, message: str) -> None:
    """It had not begun, or broke during a redrive, or its queues have dropped messages meanwhile."""
    done = resume.FinishedWork(began_at_us=0, phases=frozenset(phases), deleted={}, ended={})

    with pytest.raises(ConfigError, match=message):
        resume.check_time(done, environment("local"), days * _DAY_US)


_DESCRIBED = {
    "profile": {"consumer": "raw"},
    "topic_arn": ONE_QUEUE.topic_arn,
    "clock": {"id": clock_id(), "offset_us": 0},
    "transport": "boto3",
    "attempts": 1,
}


@pytest.mark.parametrize(
    ("described", "status", "message"),
    [
        ({}, "valid", "was finished and is valid, allowed is a run that broke; run it again"),
        ({}, "invalid", "was finished and is invalid, allowed is a run that broke; run it again"),
        ({"profile": {"consumer": "worker"}}, "unknown", "the consumer of .* is 'worker', allowed is 'raw'"),
        ({"clock": {"id": "another", "offset_us": 0}}, "unknown", "began on another machine, or before this one was"),
        ({"topic_arn": "arn:aws:sns:us-east-1:1:t"}, "unknown", r"loaded arn:aws:sns:us-east-1:1:t, and here is arn"),
    ],
)
def test_an_unbroken_or_foreign_run_is_not_resumed(
    tmp_path: Path, described: dict[str, Any], status: str, message: str
) -> None:
    """The result of the one would be lost, and the messages of the other are on another machine."""
    (tmp_path / "verdict.json").write_text(json.dumps({"status": status}), encoding="utf-8")

    with pytest.raises(ConfigError, match=message):
        resume.check_broken(_DESCRIBED | described, tmp_path, ONE_QUEUE)


def test_a_run_that_another_process_works_on_is_left_alone(tmp_path: Path) -> None:
    """Two drivers would publish each message twice."""
    with (
        resume.run_lock(tmp_path),
        pytest.raises(ConfigError, match="another process is at work on"),
        resume.run_lock(tmp_path),
    ):
        raise AssertionError("both work")


@pytest.mark.parametrize(
    ("recorded", "attempts", "unfinished"),
    [
        ({"publish-0": {0: True}, "consume-0": {0: True}}, 1, []),
        ({"publish-0": {0: False}, "consume-0": {0: True}}, 1, ["publish-0"]),
        ({"publish-0": {0: False, 1: True}, "consume-0": {0: False, 1: True}}, 2, []),
        ({"publish-0": {0: True, 1: False}, "consume-0": {0: False, 1: True}}, 2, ["publish-0"]),
        ({"publish-0": {0: False, 1: True}, "consume-0": {1: True}}, 2, ["consume-0"]),
    ],
)
def test_a_later_attempt_mends_a_broken_one_but_no_missing_journal(
    recorded: dict[str, dict[int, bool]], attempts: int, unfinished: list[str]
) -> None:
    """A dead recorder's journal lacks at most its last receive; the records of a missing journal are unknown."""
    recorders = {"publish-0": None, "consume-0": "q"}
    facts = RunFacts(expectation=EXPECTATION, target="endpoint", recorders=recorders, attempts=attempts)

    assert judge._unfinished_recorders(recorded, facts) == unfinished


def test_a_resumed_run_does_the_faults_ahead_and_names_the_missed() -> None:
    """A fault that was under way when its driver died has ended with the driver, and has no record."""
    begun = {"billing-0": 1.0, "billing-1": 2.0, "audit-0": 3.0}
    stored = [
        ScheduledFault(kind=FaultKind.KILL, target=name, at_seconds=seconds, until_seconds=seconds)
        for name, seconds in begun.items()
    ]
    done = resume.FinishedWork(0, frozenset(), {}, {}, faults=frozenset({"kill of billing-0 at 1 s"}))

    ahead, missed = resume.left_faults(stored, 2_500_000, done)

    assert [fault.target for fault in ahead] == ["audit-0"]
    assert resume.left_faults(stored, 500_000, done)[0][0].target == "billing-1"  # nothing is done twice
    assert missed == ["kill of billing-1 at 2 s"]
