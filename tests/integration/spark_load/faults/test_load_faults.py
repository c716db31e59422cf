"""The verdict tells of everything that broke a load test, the record is kept, and a broken run goes on."""

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.clock import SystemClock, eventually
from sluice.history.events import Kind
from sluice.judge.checker.verdict import EXIT_CROSSED, PropertyState, PropertyStatus, Verdict
from sluice.recorder.journal import Journal
from sluice.simulator.model import AwsRefusal
from spark_load.profiles import profile
from spark_load.publish import job
from spark_load.run import driver, resume
from spark_load.runtime import deployment
from spark_load.runtime.coordinator import RunStep, TaskProgress
from spark_load.runtime.task_context import LoadRun
from tests.integration.spark_load.loads import (
    LOCAL,
    anomalies_that,
    events_of_worker,
    published_count,
    received_counts,
    run_load,
    run_of,
    watch_nothing,
)
from tests.support.endpoints import fake_aws
from tests.support.project import PROJECT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

COMMAND_SECONDS_MAX = 600
PROFILE = """
messages_per_second: 100
duration_seconds: 8
group_count: 10
group_skew: 1.0
payload_bytes: 128
publish_tasks: 1
consumers_per_queue: 1
lateness_budget_seconds: 60
drain_timeout_seconds: 40
"""
BRIEF = profile.NamedProfile("brief", profile.parse(PROFILE, source="brief"))


# --- what a resumed run takes from the journals -----------------------------------------------------------------------


def _write_broken_journal(run: LoadRun, published: Mapping[int, tuple[str, int]]) -> None:
    """Write the journal of a publisher that died: number of a message to its last outcome, and seconds ago."""
    clock = SystemClock(run.clock_offset_us)
    now_us = clock.now_us()
    journal = Journal(run.journals, "publish-0-0", common={"run": run.id, "worker": "publish-0", "task_attempt": 0})
    for idx, (outcome, ago_seconds) in published.items():
        journal.add(
            kind=Kind.PUBLISHED.value,
            call_id=f"c/{idx}",
            message_run=run.id,
            message_group_id="g000000",
            idx=idx,
            outcome=outcome,
            invoked_at_us=now_us - ago_seconds * 1_000_000,
            responded_at_us=None if outcome == "info" else clock.now_us(),
        )
    journal.flush()


@pytest.mark.slow
def test_only_messages_that_stay_single_are_published_again(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """Acknowledged: not again. Refused: again. Never answered: again while it is remembered, and later never.

    Messages 3 and 4 were a bundle, which has an end as a whole.
    """
    text = (
        "messages_per_second: 5\nduration_seconds: 1\ngroup_count: 1\nduplicate_share: 1\nduplicate_after_seconds: 1\n"
    )
    run = replace(run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url), text), attempt=1)
    _write_broken_journal(run, {0: ("ok", 300), 1: ("fail", 300), 2: ("info", 230), 3: ("info", 280), 4: ("info", 280)})
    now_us = SystemClock(run.clock_offset_us).now_us()
    done = resume.read(spark, run)

    rows = resume.rows_left(spark, run, job.plan_rows(spark, run)).collect()
    next_us = resume.next_offset_us(spark, run, job.plan_rows(spark, run))
    begin_by_us = resume.begin_by_us(spark, replace(run, resumed_at_us=200_000), job.plan_rows(spark, run))

    twice = [(idx, publish_attempt) for idx in (1, 2, 3, 4) for publish_attempt in (1, 2)]
    assert sorted((row["idx"], row["publish_attempt"]) for row in rows) == [(-1, 1), *twice]
    assert next_us == 200_000
    # 265 s, of which 230 are over and 0.2 pass until the message's turn comes
    assert {idx: by_us - now_us for idx, by_us in begin_by_us.items()} == {
        2: pytest.approx(34_800_000, abs=2_000_000),
        3: pytest.approx(-15_600_000, abs=2_000_000),
        4: begin_by_us[3] - now_us,
    }
    assert done.deleted == {}
    assert done.phases == frozenset()
    assert done.published == 1


def test_a_publisher_with_nothing_left_keeps_a_journal_too(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """All was published when the run broke: without a journal nobody would know that it published nothing more."""
    text = "messages_per_second: 2\nduration_seconds: 1\ngroup_count: 1\n"
    run = replace(run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url), text), attempt=1)
    _write_broken_journal(run, {0: ("ok", 10), 1: ("ok", 10), -1: ("ok", 10)})
    clock = SystemClock(run.clock_offset_us)
    run.coordinator(clock).reach(RunStep.START, clock.now_us())
    resume.read(spark, run)

    ended = job.publish(spark, run, resume.rows_left(spark, run, job.plan_rows(spark, run))).collect()

    assert [row.asDict() for row in ended] == [{"worker": "publish-0", "done": 0, "abandoned": 0}]
    assert [event.kind for event in events_of_worker(run, "publish-0")] == [Kind.OPENED, Kind.CLOSED]


# --- the driver is killed --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shell:
    """Commands of spark_load in a folder of their own."""

    folder: Path
    endpoint_url: str

    def begin(self, *arguments: str, prepare: Callable[[], None] | None = None) -> "subprocess.Popen[str]":
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, str(PROJECT / "load.py"), *arguments],
            env=os.environ | {"AWS_ENDPOINT_URL": self.endpoint_url},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=prepare,  # noqa: PLW1509 (a limit has to be set between fork and exec)
        )

    def end(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and what it said."""
        with self.begin(*arguments) as running:
            output, _ = running.communicate(timeout=COMMAND_SECONDS_MAX)
        return running.returncode, output

    def judge(self, folder: Path) -> "subprocess.CompletedProcess[str]":
        """Judge the run in a folder again."""
        command = [sys.executable, "-m", "sluice", "check", str(folder)]
        return subprocess.run(
            command, cwd=PROJECT, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
        )

    @property
    def run(self) -> Path:
        """Return the folder of the only run."""
        (only,) = (path for path in (self.folder / "runs").iterdir() if path.is_dir())
        return only

    def verdict(self) -> dict[str, Any]:
        """Return what was written of it."""
        found: dict[str, Any] = json.loads((self.run / "verdict.json").read_text(encoding="utf-8"))
        return found

    def published_count(self) -> int:
        """Return how many publishes its first attempt says were acknowledged."""
        found = list((self.folder / "runs").glob("*/board-0/task-publish-0.json"))
        return int(json.loads(found[0].read_text(encoding="utf-8"))["done"]) if found else 0


@pytest.fixture
def shell(tmp_path: Path, endpoint: fake_aws.Endpoint) -> Shell:
    (tmp_path / "brief.yaml").write_text(PROFILE, encoding="utf-8")
    return Shell(tmp_path, endpoint.url)


@pytest.mark.slow
def test_a_killed_driver_leaves_an_unknown_run_that_resumes_and_ends_valid(shell: Shell) -> None:
    """A run that ended valid cannot be resumed once more; a copy of the broken run is judged as it was left."""
    with shell.begin("run", "brief.yaml") as running:
        eventually(lambda: shell.published_count() > 100, timeout_seconds=300, describe="some messages to be published")
        running.kill()
    broken = shutil.copytree(shell.run, shell.folder / "broken")
    resumed = shell.end("resume", str(shell.run))  # at once: what was on its way is not remembered for long
    verdict = shell.verdict()
    again = shell.end("resume", str(shell.run))
    judged = shell.judge(broken)

    assert judged.returncode == 2
    assert "the driver did not live to see the end of the load" in judged.stdout + judged.stderr
    assert resumed[0] == 0, resumed[1]
    assert verdict["run"]["attempts"] == 2
    assert verdict["measures"]["published"]["count"] == 800
    assert {queue["received"]["count"] for queue in verdict["measures"]["queues"].values()} == {800}
    assert again[0] == 3
    assert "was finished and is valid, allowed is a run that broke" in again[1]


# --- a task is killed, the endpoint is away: whole runs --------------------------------------------------------------


def _go_on(spark: SparkSession, folder: Path, where: deployment.LoadDeployment) -> Verdict:
    stored = driver.find_stored(folder)
    return driver.resume_load(spark, stored, environment=LOCAL, deployment=where, watch=watch_nothing)


def _assert_unknown(verdict: Verdict, *words: str) -> None:
    assert verdict.status == PropertyStatus.UNKNOWN
    assert verdict.violations == ()
    assert any(all(word in reason for word in words) for reason in verdict.unknowns)


def _assert_whole(verdict: Verdict) -> None:
    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert received_counts(verdict) == {800}


def _writer_of(journal: Path) -> int:
    """Return the process that has a journal open."""
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdecimal() and any(fd.readlink() == journal for fd in (process / "fd").iterdir()):
                return int(process.name)
    raise AssertionError(f"nobody writes {journal}")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["publish-0", "consume-1"])
def test_a_killed_task_is_unknown_and_its_run_ends_valid(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path, task: str
) -> None:
    """Messages that the task received and could not write down come again; none is called lost or doubled.

    Its journal counts: without it the run is unknown, and still nothing is called lost.
    """
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)
    killed: list[int] = []

    def kill(_phase: str, values: list[TaskProgress]) -> None:
        if not killed and published_count(values) > 150:
            (journal,) = tmp_path.glob(f"*/journals/{task}-0.arrows")
            killed.append(_writer_of(journal))
            os.kill(killed[0], signal.SIGKILL)

    broken, folder = run_load(spark, where, tmp_path, BRIEF, target="endpoint", watch=kill)
    whole = _go_on(spark, folder, where)
    (folder / "journals" / f"{task}-0.arrows").unlink()
    without = driver.rejudge(spark, driver.find_stored(folder))

    assert killed
    _assert_unknown(broken, "recorder(s) did not finish", task)
    _assert_whole(whole)
    _assert_unknown(without, "recorder(s) did not finish", task)


@pytest.mark.slow
def test_a_bundle_without_an_answer_is_published_again_as_it_was(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """While a call takes a second, more events wait for the next than for any call of the resumed run.

    That next call is carried out, and its publisher is dead before the answer.
    """
    where, calls = deployment.find(LOCAL, endpoint_url=endpoint.url), itertools.count()
    bundled = replace(BRIEF.profile, bundle_events_max=50, publish_linger_seconds=0.1)

    def delay_and_kill(called: str) -> None:
        number = next(calls) if called == "PublishBatch" else None
        if number == 20:
            SystemClock().sleep(1)
        elif number == 21:
            (journal,) = tmp_path.glob("*/journals/publish-0-0.arrows")
            os.kill(_writer_of(journal), signal.SIGKILL)

    endpoint.fault = delay_and_kill
    broken, folder = run_load(spark, where, tmp_path, replace(BRIEF, profile=bundled), target="endpoint")
    whole = _go_on(spark, folder, where)

    _assert_unknown(broken, "recorder(s) did not finish", "publish-0")
    _assert_whole(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "is_done"),
    [
        pytest.param("ReceiveMessage", True, id="a receive nobody heard of"),
        pytest.param("DeleteMessageBatch", True, id="a delete nobody heard of"),
        pytest.param("DeleteMessageBatch", False, id="a delete that never arrived"),
    ],
)
def test_a_call_of_a_killed_consumer_is_unknown_and_the_run_valid(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path, operation: str, *, is_done: bool
) -> None:
    """Messages that the consumer held come again, and deleted ones do not: neither is called lost or doubled."""
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)
    doomed: list[str] = []  # the consumer's queue, once it is to die
    held: list[str] = []  # what it received or deleted in its last call
    answer = endpoint.answer

    def answer_and_kill(
        region: str, service: str, called: str, params: dict[str, Any]
    ) -> Mapping[str, Any] | AwsRefusal:
        is_last = called == operation and params["QueueUrl"] in doomed and not held
        answered = answer(region, service, called, params) if is_done or not is_last else {}
        found = [] if isinstance(answered, AwsRefusal) else answered.get("Messages", [])
        held_now = [message["MessageId"] for message in found]
        held_now = held_now or [entry["ReceiptHandle"] for entry in params.get("Entries", [])]
        if is_last and held_now:
            held.extend(held_now)
            (journal,) = tmp_path.glob("*/journals/consume-1-0.arrows")
            os.kill(_writer_of(journal), signal.SIGKILL)
        return answered

    def doom(_phase: str, values: list[TaskProgress]) -> None:
        if not doomed and published_count(values) > 150:
            doomed.extend(where.queue_urls[task.queue] for task in values if task.worker == "consume-1" and task.queue)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endpoint, "answer", answer_and_kill)
        broken, folder = run_load(spark, where, tmp_path, BRIEF, target="endpoint", watch=doom)
    whole = _go_on(spark, folder, where)

    assert held
    _assert_unknown(broken, "recorder(s) did not finish", "consume-1")
    _assert_whole(whole)


@pytest.mark.slow
def test_calls_to_an_absent_endpoint_are_unknown_and_the_run_valid(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """The endpoint stops after 150 messages; the run goes on when it is back."""
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)

    def leave(_phase: str, values: list[TaskProgress]) -> None:
        if published_count(values) > 150:
            endpoint.stop()

    broken, folder = run_load(spark, where, tmp_path, BRIEF, target="endpoint", watch=leave)
    endpoint.start()
    whole = _go_on(spark, folder, where)

    _assert_unknown(broken, "planned message(s) were not published")
    _assert_whole(whole)


@pytest.mark.slow
def test_half_the_calls_throttled_is_valid_and_crosses_its_threshold(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """No message is lost or out of order, so the run is valid. Exit code 99 tells of the many refused calls."""
    calls = itertools.count()
    endpoint.fault = lambda name: fake_aws.THROTTLED if name == "PublishBatch" and next(calls) % 2 else None
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)
    strict = replace(BRIEF, profile=replace(BRIEF.profile, duration_seconds=4, throttled_share_max=0.01))

    verdict, _ = run_load(spark, where, tmp_path, strict, target="endpoint")

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.exit_code == EXIT_CROSSED
    assert anomalies_that(verdict, PropertyState.CROSSED) == {"H6"}
    assert received_counts(verdict) == {400}


@pytest.mark.slow
def test_a_stalled_endpoint_is_in_the_percentiles_and_unknown_beyond_its_budget(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """Publishing calls wait three seconds: latencies are from the planned times, so they show it.

    With a budget of one second for lateness the same recording is UNKNOWN.
    """
    clock, over = SystemClock(), threading.Event()
    began: list[float] = []

    def stall(name: str) -> AwsRefusal | None:
        if name == "PublishBatch" and began:
            over.wait(30)
        return None

    def watch(_phase: str, values: list[TaskProgress]) -> None:
        if not began and published_count(values) > 150:
            began.append(clock.monotonic())
        elif began and clock.monotonic() - began[0] >= 3:
            over.set()

    endpoint.fault = stall
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)
    verdict, folder = run_load(spark, where, tmp_path, BRIEF, target="endpoint", watch=watch)
    stored = driver.find_stored(folder)
    hurried = replace(stored.plan, profile=replace(stored.plan.profile, lateness_budget_seconds=1))
    late = driver.rejudge(spark, replace(stored, plan=hurried))

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    for of in verdict.measures["queues"].values():
        assert of["received"]["count"] == 800
        assert of["latency_us"]["p95"] > 2_000_000
    assert verdict.measures["publish_latency_us"]["p95"] < 1_000_000
    assert late.status == PropertyStatus.UNKNOWN
    assert late.violations == ()
    assert anomalies_that(late, PropertyState.UNKNOWN) == {"H7"}
    assert "the generator was late: 99 % of publishes within" in late.unknowns[0]


@pytest.mark.slow
def test_a_full_disk_ends_a_run_unknown(shell: Shell) -> None:
    """No file of the run may grow beyond 300,000 bytes, which its journals would."""

    def shrink() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))

    with shell.begin("run", "brief.yaml", prepare=shrink) as running:
        printed, _ = running.communicate(timeout=COMMAND_SECONDS_MAX)

    assert running.returncode == 2, printed
    assert "File too large" in printed
    assert shell.verdict()["status"] == "unknown"
    assert shell.verdict()["violations"] == []
