"""What breaks during a load test: the verdict says so, what was recorded is kept, and a broken run goes on."""

import itertools
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from sluice.clock import SystemClock, clock_id, eventually, wall_minus_monotonic_us
from sluice.errors import ConfigError, HistoryError
from sluice.history.checker.verdict import EXIT_CROSSED, Holding, Status, Verdict
from sluice.history.events import Event, Kind
from sluice.recorder.journal import Journal, events_of, read_journal
from sluice.simulator.model import Refusal
from spark_load.judge import judge
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.publish import job
from spark_load.run import driver, resume
from spark_load.runtime import deployment
from spark_load.runtime.coordinator import Progress
from spark_load.runtime.task_context import Run
from tests.support import fake_aws
from tests.support.declaration import environment
from tests.support.project import PROJECT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

LOCAL = environment("local")
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


@pytest.fixture
def endpoint() -> Iterator[fake_aws.Endpoint]:
    """Yield queues that can be made to fail."""
    with fake_aws.running() as entry:
        entry.deploy(LOCAL)
        yield entry


# --- one task of each kind, without Spark ----------------------------------------------------------------------------

QUICK = """
messages_per_second: 200
duration_seconds: 1.5
group_count: 20
publish_tasks: 1
consumers_per_queue: 1
payload_bytes: 64
"""
MESSAGES = 300 + 20  # with the end markers


def _run_of(folder: Path, where: deployment.Deployment, text: str = QUICK) -> Run:
    return Run(
        id="r",
        folder=folder,
        deployment=where,
        plan=Plan(profile.parse(text, source="quick"), seed=7),
        clock_id=clock_id(),
        clock_offset_us=wall_minus_monotonic_us(),
    )


def _publish(run: Run) -> Progress:
    """Publish the whole plan from now on, as a task does."""
    run.coordinator(SystemClock(run.clock_offset_us)).start(SystemClock(run.clock_offset_us).now_us())
    rows = run.plan.batch(np.arange(run.plan.row_count)).sort_by([("offset_us", "ascending")])
    return job.publish_share(run, iter([rows]))


def printed_lines(value: int | None) -> int:
    """Return what an event says, which it has to."""
    assert value is not None
    return value


def _events(run: Run, name: str) -> list[Event]:
    return events_of(read_journal(run.journals / f"{name}-{run.attempt}.arrows"))


def _published(run: Run) -> list[Event]:
    return [event for event in _events(run, "publish-0") if event.kind == Kind.PUBLISHED]


def test_half_the_calls_throttled_costs_time_and_nothing_else(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """Each refusal is an event of its own and counted apart; everything is published once, each group in order."""
    calls = itertools.count()
    endpoint.fault = lambda name: fake_aws.THROTTLED if name == "PublishBatch" and next(calls) % 2 else None
    run = _run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url))

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
        idxs = [printed_lines(event.idx) for event in in_order if event.message_group_id == group]
        sent = [idx for idx in idxs if idx >= 0]
        assert sent == sorted(sent)


def test_a_stall_is_seen_by_every_message_that_was_due_in_it(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """An open loop: who waits for an answer before the next message would have seen one slow call."""
    begun, go_on = threading.Event(), threading.Event()
    run = _run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url))

    def stall(name: str) -> Refusal | None:
        if name == "PublishBatch" and begun.is_set():
            go_on.wait(10)
        return None

    endpoint.fault = stall
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(_publish, run)
        coordinator = run.coordinator(SystemClock())
        eventually(
            lambda: any(task.done > 50 for task in coordinator.all_progress()),
            timeout_seconds=20,
            describe="a beginning",
        )
        began_us = SystemClock(run.clock_offset_us).now_us()
        begun.set()
        eventually(
            lambda: SystemClock(run.clock_offset_us).now_us() - began_us > 600_000,
            timeout_seconds=5,
            describe="0.6 s of stall",
        )
        go_on.set()
        publishing.result(timeout=20)

    waited_us = [
        printed_lines(event.responded_at_us) - printed_lines(event.intended_at_us) for event in _published(run)
    ]
    assert sum(waited > 300_000 for waited in waited_us) >= 40
    assert max(waited_us) > 550_000


def test_a_full_disk_ends_a_publisher_and_keeps_what_was_written(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """In a process whose files may not grow beyond 100,000 bytes: nothing is sent that could not be written down."""
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)
    run = _run_of(tmp_path, where)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        ended = pool.submit(_on_a_small_disk, run).result(timeout=60)

    events = _published(run)
    request = {"QueueUrl": next(iter(where.queue_urls.values())), "AttributeNames": ["ApproximateNumberOfMessages"]}
    arrived = int(where.client("sqs").get_queue_attributes(**request)["Attributes"]["ApproximateNumberOfMessages"])
    assert ended.startswith(f"cannot write {run.journals / 'publish-0-0.arrows'} (File too large); what was written")
    assert 0 < len(events) < MESSAGES
    assert [event for event in _events(run, "publish-0") if event.kind == Kind.CLOSED] == []
    assert 0 < arrived <= len({(event.message_group_id, event.idx) for event in events})


def _on_a_small_disk(run: Run) -> str:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        _publish(run)
    except HistoryError as error:
        return str(error)
    return "everything was published"


def test_the_wall_clock_steps_and_no_instant_of_a_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back, and a day on: what a task writes down follows the monotonic clock, also after a resume."""
    clock = SystemClock()
    offset_us = clock.offset_us
    instants = [clock.now_us()]
    for step_seconds in (-3_600, 86_400):
        stepped = time.time_ns() + step_seconds * 10**9
        monkeypatch.setattr("time.time_ns", lambda stepped=stepped: stepped)
        instants += [clock.now_us(), SystemClock(offset_us).now_us()]

    assert instants == sorted(instants)
    assert instants[-1] - instants[0] < 10_000_000


# --- what a resumed run takes from the journals -----------------------------------------------------------------------


def _broken(run: Run, published: Mapping[int, tuple[str, int]]) -> None:
    """Write the journal of a publisher that died: number of a message to its last outcome, and seconds ago."""
    clock = SystemClock(run.clock_offset_us)
    journal = Journal(run.journals, "publish-0-0", common={"run": run.id, "worker": "publish-0", "task_attempt": 0})
    for idx, (outcome, ago_seconds) in published.items():
        journal.add(
            kind=Kind.PUBLISHED.value,
            call_id=f"c/{idx}",
            message_run=run.id,
            message_group_id="g000000",
            idx=idx,
            outcome=outcome,
            invoked_at_us=clock.now_us() - ago_seconds * 1_000_000,
            responded_at_us=None if outcome == "info" else clock.now_us(),
        )
    journal.flush()


def test_only_what_cannot_become_a_second_message_is_published_again(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """Acknowledged: not again. Refused: again. Never answered: again while it is remembered, and later never."""
    text = (
        "messages_per_second: 5\nduration_seconds: 1\ngroup_count: 1\nduplicate_share: 1\nduplicate_after_seconds: 1\n"
    )
    run = replace(_run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url), text), attempt=1)
    _broken(run, {0: ("ok", 300), 1: ("fail", 300), 2: ("info", 230), 3: ("info", 280)})
    now_us = SystemClock(run.clock_offset_us).now_us()
    done = resume.read(spark, run)

    rows = resume.left(spark, run, job.plan_rows(spark, run)).collect()
    next_us = resume.next_offset_us(spark, run, job.plan_rows(spark, run))
    begin_by_us = resume.begin_by_us(spark, replace(run, resumed_at_us=200_000), job.plan_rows(spark, run))

    assert sorted((row["idx"], row["publish_attempt"]) for row in rows) == [
        (-1, 1),
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (3, 1),
        (3, 2),
        (4, 1),
        (4, 2),
    ]
    assert next_us == 200_000
    # 265 s, of which 230 are over and 0.2 pass until the message's turn comes
    assert {idx: by_us - now_us for idx, by_us in begin_by_us.items()} == {
        2: pytest.approx(34_800_000, abs=2_000_000),
        3: pytest.approx(-15_400_000, abs=2_000_000),
    }
    assert (done.deleted, done.phases, done.published) == ({}, frozenset(), 1)


def test_a_publisher_with_nothing_left_keeps_a_journal_too(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """All was published when the run broke: without a journal nobody would know that it published nothing more."""
    text = "messages_per_second: 2\nduration_seconds: 1\ngroup_count: 1\n"
    run = replace(_run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url), text), attempt=1)
    _broken(run, {0: ("ok", 10), 1: ("ok", 10), -1: ("ok", 10)})
    clock = SystemClock(run.clock_offset_us)
    run.coordinator(clock).start(clock.now_us())
    resume.read(spark, run)

    ended = job.publish(spark, run, resume.left(spark, run, job.plan_rows(spark, run))).collect()

    assert [row.asDict() for row in ended] == [{"worker": "publish-0", "done": 0, "abandoned": 0}]
    assert [event.kind for event in _events(run, "publish-0")] == [Kind.OPENED, Kind.CLOSED]


def test_a_run_that_broke_before_anything_was_recorded_is_not_gone_on_with(
    endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """There is nothing to go on with."""
    run = replace(_run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url)), attempt=1)

    with pytest.raises(ConfigError, match="broke before anything was recorded; run it again"):
        resume.end_tasks(run, SystemClock())


def test_tasks_a_dead_driver_left_behind_are_told_to_end(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """By the board they look at; when their journals rest, the run is gone on with."""
    broken = _run_of(tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url))
    _broken(broken, {0: ("ok", 10)})

    resume.end_tasks(replace(broken, attempt=1), SystemClock())

    assert broken.coordinator(SystemClock()).is_stopped()
    assert not replace(broken, attempt=1).coordinator(SystemClock()).is_stopped()


DAY_US = 86_400 * 1_000_000


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
def test_a_run_that_cannot_end_well_is_not_gone_on_with(phases: set[str], days: int, message: str) -> None:
    """It says why, before anything is sent."""
    done = resume.Done(began_at_us=0, phases=frozenset(phases), deleted={}, ended={})

    with pytest.raises(ConfigError, match=message):
        resume.check_time(done, LOCAL, days * DAY_US)


DESCRIBED = {
    "profile": {"consumer": "raw"},
    "topic_arn": "arn:aws:sns:us-east-1:000000000000:sluice-local-events.fifo",
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
def test_a_run_that_did_not_break_or_was_elsewhere_is_not_gone_on_with(
    endpoint: fake_aws.Endpoint, tmp_path: Path, described: dict[str, Any], status: str, message: str
) -> None:
    """Its result would be lost, or its messages are not here."""
    (tmp_path / "verdict.json").write_text(json.dumps({"status": status}), encoding="utf-8")

    with pytest.raises(ConfigError, match=message):
        resume.check_broken(DESCRIBED | described, tmp_path, deployment.find(LOCAL, endpoint_url=endpoint.url))


def test_a_run_somebody_is_at_work_on_is_left_alone(tmp_path: Path) -> None:
    """Two drivers would publish everything twice."""
    with (
        resume.held(tmp_path),
        pytest.raises(ConfigError, match="another process is at work on"),
        resume.held(tmp_path),
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
def test_a_broken_attempt_is_made_good_by_a_later_one_and_a_missing_journal_is_not(
    recorded: dict[str, dict[int, bool]], attempts: int, unfinished: list[str]
) -> None:
    """What a recorder wrote before it died is whole but for its last receive; what is not there is not known."""
    run = {"attempts": attempts, "recorders": {"publish-0": None, "consume-0": "q"}}

    assert judge._unfinished(recorded, run) == unfinished


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

    @property
    def run(self) -> Path:
        """Return the folder of the only run."""
        (only,) = (self.folder / "runs").iterdir()
        return only

    def verdict(self) -> dict[str, Any]:
        """Return what was written of it."""
        found: dict[str, Any] = json.loads((self.run / "verdict.json").read_text(encoding="utf-8"))
        return found

    def published(self) -> int:
        """Return how many publishes its first attempt says were acknowledged."""
        found = list((self.folder / "runs").glob("*/board-0/task-publish-0.json"))
        return int(json.loads(found[0].read_text(encoding="utf-8"))["done"]) if found else 0


@pytest.fixture
def shell(tmp_path: Path, endpoint: fake_aws.Endpoint) -> Shell:
    """Return a folder with the profile in it."""
    (tmp_path / "brief.yaml").write_text(PROFILE, encoding="utf-8")
    return Shell(tmp_path, endpoint.url)


@pytest.mark.slow
def test_a_killed_driver_leaves_an_unknown_run_that_goes_on_and_ends_valid(shell: Shell) -> None:
    """Nothing is published twice, everything arrives, and both attempts are judged as one."""
    with shell.begin("run", "brief.yaml") as running:
        eventually(lambda: shell.published() > 100, timeout_seconds=300, describe="some messages to be published")
        running.kill()
    broken = shutil.copytree(shell.run, shell.folder / "broken")
    resumed = shell.end("resume", str(shell.run))  # at once: what was on its way is not remembered for long
    verdict = shell.verdict()
    again = shell.end("resume", str(shell.run))
    judged = shell.end("check", str(broken))

    assert judged[0] == 2
    assert "the driver did not live to see the end of the load" in judged[1]
    assert resumed[0] == 0, resumed[1]
    assert (verdict["run"]["attempts"], verdict["measures"]["published"]["count"]) == (2, 800)
    assert {queue["received"]["count"] for queue in verdict["measures"]["queues"].values()} == {800}
    assert again[0] == 3
    assert "was finished and is valid, allowed is a run that broke" in again[1]


# --- a task is killed, the endpoint is away: whole runs --------------------------------------------------------------


def _load(
    spark: SparkSession,
    where: deployment.Deployment,
    runs: Path,
    watch: driver.Watch,
    named: profile.NamedProfile = BRIEF,
) -> tuple[Verdict, driver.Stored]:
    folder = driver.make_folder(runs, LOCAL, named.name, SystemClock())
    verdict = driver.run_load(
        spark,
        folder=folder,
        environment=LOCAL,
        deployment=where,
        named=named,
        seed=7,
        target="endpoint",
        saboteur=None,
        watch=watch,
    )
    return verdict, driver.find_stored(folder)


def _go_on(spark: SparkSession, stored: driver.Stored, where: deployment.Deployment) -> Verdict:
    return driver.resume_load(spark, stored, environment=LOCAL, deployment=where, watch=lambda _phase, _progress: None)


def _writer_of(journal: Path) -> int:
    """Return the process that has a journal open."""
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdecimal() and any(fd.readlink() == journal for fd in (process / "fd").iterdir()):
                return int(process.name)
    raise AssertionError(f"nobody writes {journal}")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["publish-0", "consume-1"])
def test_a_killed_task_is_unknown_and_the_run_goes_on_and_ends_valid(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path, task: str
) -> None:
    """What it had received and could not write down any more comes again; nothing of it is called lost or doubled.

    Its journal counts: without it the run is unknown, and still nothing is called lost.
    """
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)
    killed: list[int] = []

    def kill(_phase: str, values: list[Progress]) -> None:
        if not killed and sum(entry.done for entry in values if entry.role == "publish") > 150:
            (journal,) = tmp_path.glob(f"*/journals/{task}-0.arrows")
            killed.append(_writer_of(journal))
            os.kill(killed[0], signal.SIGKILL)

    broken, stored = _load(spark, where, tmp_path, kill)
    whole = _go_on(spark, stored, where)
    (stored.folder / "journals" / f"{task}-0.arrows").unlink()
    without = driver.rejudge(spark, driver.find_stored(stored.folder))

    assert killed
    assert (broken.status, broken.violations) == (Status.UNKNOWN, ())
    assert any("recorder(s) did not finish" in reason and task in reason for reason in broken.unknowns)
    assert (whole.status, whole.unknowns, whole.violations) == (Status.VALID, (), ())
    assert {of["received"]["count"] for of in whole.measures["queues"].values()} == {800}
    assert (without.status, without.violations) == (Status.UNKNOWN, ())
    assert any("recorder(s) did not finish" in reason and task in reason for reason in without.unknowns)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "is_done"),
    [
        pytest.param("ReceiveMessage", True, id="a receive nobody heard of"),
        pytest.param("DeleteMessageBatch", True, id="a delete nobody heard of"),
        pytest.param("DeleteMessageBatch", False, id="a delete that never arrived"),
    ],
)
def test_a_consumer_killed_in_the_midst_of_a_call_is_unknown_and_the_run_goes_on_and_ends_valid(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path, operation: str, *, is_done: bool
) -> None:
    """What it held comes again, and what was deleted for it does not: that is neither lost nor doubled."""
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)
    doomed: list[str] = []  # the consumer's queue, once it is to die
    held: list[str] = []  # what it received or deleted in its last call
    answer = endpoint.answer

    def answer_and_kill(service: str, called: str, params: dict[str, Any]) -> dict[str, Any] | Refusal:
        is_last = called == operation and params["QueueUrl"] in doomed and not held
        answered = answer(service, called, params) if is_done or not is_last else {}
        found = [] if isinstance(answered, Refusal) else answered.get("Messages", [])
        held_now = [entry["MessageId"] for entry in found] or [
            entry["ReceiptHandle"] for entry in params.get("Entries", [])
        ]
        if is_last and held_now:
            held.extend(held_now)
            (journal,) = tmp_path.glob("*/journals/consume-1-0.arrows")
            os.kill(_writer_of(journal), signal.SIGKILL)
        return answered

    def doom(_phase: str, values: list[Progress]) -> None:
        if not doomed and sum(task.done for task in values if task.role == "publish") > 150:
            doomed.extend(where.queue_urls[task.queue] for task in values if task.worker == "consume-1" and task.queue)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endpoint, "answer", answer_and_kill)
        broken, stored = _load(spark, where, tmp_path, doom)
    whole = _go_on(spark, stored, where)

    assert held
    assert (broken.status, broken.violations) == (Status.UNKNOWN, ())
    assert any("recorder(s) did not finish" in reason and "consume-1" in reason for reason in broken.unknowns)
    assert (whole.status, whole.unknowns, whole.violations) == (Status.VALID, (), ())
    assert {of["received"]["count"] for of in whole.measures["queues"].values()} == {800}


@pytest.mark.slow
def test_an_endpoint_that_is_away_is_unknown_and_the_run_goes_on_and_ends_valid(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """Nobody listens any more in the middle of the run; when it is back, the rest is published."""
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)

    def leave(_phase: str, values: list[Progress]) -> None:
        if sum(task.done for task in values if task.role == "publish") > 150:
            endpoint.die()

    broken, stored = _load(spark, where, tmp_path, leave)
    endpoint.come_back()
    whole = _go_on(spark, stored, where)

    assert (broken.status, broken.violations) == (Status.UNKNOWN, ())
    assert any("planned message(s) were not published" in reason for reason in broken.unknowns)
    assert (whole.status, whole.unknowns, whole.violations) == (Status.VALID, (), ())
    assert {of["received"]["count"] for of in whole.measures["queues"].values()} == {800}


@pytest.mark.slow
def test_half_the_calls_throttled_is_valid_and_crosses_its_threshold(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """Nothing is lost or out of order, so the run is valid; that so many were refused is what 99 is for."""
    calls = itertools.count()
    endpoint.fault = lambda name: fake_aws.THROTTLED if name == "PublishBatch" and next(calls) % 2 else None
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)
    strict = replace(BRIEF, profile=replace(BRIEF.profile, duration_seconds=4, throttled_share_max=0.01))

    verdict, _ = _load(spark, where, tmp_path, lambda _phase, _progress: None, strict)

    assert (verdict.status, verdict.unknowns) == (Status.VALID, ())
    assert verdict.exit_code == EXIT_CROSSED
    assert [prop.anomaly for prop in verdict.properties if prop.holding is Holding.CROSSED] == ["H6"]
    assert {of["received"]["count"] for of in verdict.measures["queues"].values()} == {400}


@pytest.mark.slow
def test_a_stalled_endpoint_is_in_the_percentiles_and_unknown_where_the_lateness_is_beyond_its_budget(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """For three of eight seconds no publish is answered: what was due then waited, although hardly a call did."""
    clock, over = SystemClock(), threading.Event()
    began: list[float] = []

    def stall(name: str) -> Refusal | None:
        if name == "PublishBatch" and began:
            over.wait(30)
        return None

    def watch(_phase: str, values: list[Progress]) -> None:
        if not began and sum(task.done for task in values if task.role == "publish") > 150:
            began.append(clock.monotonic())
        elif began and clock.monotonic() - began[0] >= 3:
            over.set()

    endpoint.fault = stall
    verdict, stored = _load(spark, deployment.find(LOCAL, endpoint_url=endpoint.url), tmp_path, watch)
    hurried = replace(stored.plan, profile=replace(stored.plan.profile, lateness_budget_seconds=1))
    late = driver.rejudge(spark, replace(stored, plan=hurried))

    assert (verdict.status, verdict.unknowns, verdict.violations) == (Status.VALID, (), ())
    for of in verdict.measures["queues"].values():
        assert of["received"]["count"] == 800
        assert of["latency_us"]["p95"] > 2_000_000
    assert verdict.measures["publish_latency_us"]["p95"] < 1_000_000
    assert (late.status, late.violations) == (Status.UNKNOWN, ())
    assert [prop.anomaly for prop in late.properties if prop.holding is Holding.UNKNOWN] == ["H7"]
    assert "the generator was late: 99 % of publishes within" in late.unknowns[0]


@pytest.mark.slow
def test_a_full_disk_ends_a_run_unknown(shell: Shell) -> None:
    """Files may not grow beyond 300,000 bytes, which is less than a task's journal needs."""

    def shrink() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))

    with shell.begin("run", "brief.yaml", prepare=shrink) as running:
        printed, _ = running.communicate(timeout=COMMAND_SECONDS_MAX)

    assert running.returncode == 2, printed
    assert "File too large" in printed
    assert shell.verdict()["status"] == "unknown"
    assert shell.verdict()["violations"] == []
