"""The faults of a run: how they are recorded, and how the run is compared with its own databases."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session

from sluice.clock import SystemClock, eventually
from sluice.errors import EndpointError
from sluice.history import events
from sluice.history.events import Kind
from sluice.messaging import Context, Event
from sluice.messaging.inbox import tables
from sluice.recorder.journal import Journal, events_of, read_journal
from sluice.testing.load import effects as load_effects
from spark_load.consume import effects, worker_processes
from spark_load.consume.dead_letters import DeadLetters
from spark_load.consume.slots import Places
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.lines import Lines
from spark_load.faults.shapes import FaultKind
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.run.harm import RunHarm
from spark_load.runtime.task_context import LoadRun
from tests.support.deployments import ONE_QUEUE

_LOAD = "messages_per_second: 10\nduration_seconds: 1\ngroup_count: 1\nconsumer: worker\n"
_KILL = ScheduledFault(kind=FaultKind.KILL, target="billing-0", at_seconds=0.0, until_seconds=0.0)


def _run(folder: Path) -> LoadRun:
    plan = Plan(profile.parse(_LOAD, source="load"), 1)
    return LoadRun(id="r", folder=folder, deployment=ONE_QUEUE, plan=plan, clock_id="c", clock_offset_us=0)


def test_there_is_nothing_to_compare_where_no_worker_ever_began(tmp_path: Path) -> None:
    """Neither is a database made by the comparison."""
    journal = Journal(tmp_path, "journal", common={})

    with Lines() as lines:
        assert RunHarm(_run(tmp_path), [_KILL], lines).compare(journal, is_settled=True) == []

    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".db") == []


def test_an_effect_that_only_a_database_knows_goes_into_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only effects of this run and this consumer: the database may have others."""
    url = f"sqlite:///{tmp_path / 'somebody.db'}"
    monkeypatch.setenv("SLUICE_DSN", url)
    run, journal = replace(_run(tmp_path), id="epoch-7", has_faults=True), Journal(tmp_path, "journal", common={})
    assert set(worker_processes.databases(run).values()) == {url}
    engine, event = create_engine(url), Event(type="t", group="g", data={})
    tables.metadata.create_all(engine)
    written = [("billing", 7, 1), ("billing", 6, 1), ("audit", 7, 1), ("billing", 7, 2)]
    with Session(engine) as session:
        for consumer, epoch, seq in written:
            values = SimpleNamespace(consumer=consumer, epoch=epoch, seq=seq, is_late=False)
            load_effects.write(session, event, cast("Context", values))
        session.commit()
    engine.dispose()

    with Lines() as lines:
        harm = RunHarm(run, [_KILL], lines)
        harm.take(cast("Places", _Everybody()))
        assert harm.compare(journal, is_settled=True) == []

    found = [event for event in events_of(read_journal(journal.path)) if event.kind == Kind.HANDLED]
    assert [(event.message_run, event.idx) for event in found] == [("epoch-7", 1), ("epoch-7", 2)]


class _Everybody:
    """Workers' places; each has a running process."""

    def harm(self, _kind: FaultKind, _name: str, _detail: str) -> bool:
        return True

    def heal(self, _kind: FaultKind, _name: str) -> None:
        """Do nothing."""


@pytest.mark.parametrize("count", [0, 2])
def test_a_redrive_moves_dead_letters_and_without_any_hits_nothing(tmp_path: Path, count: int) -> None:
    """Without dead letters no move task is started: the judge would have to consider what it may have moved."""
    moved = list[list[str]]()

    class Letters:
        def read(self, *, keeps: bool, queues: list[str]) -> dict[str, int]:
            assert keeps
            return dict.fromkeys(queues, count)

        def bring_back(self, queues: list[str]) -> int:
            moved.append(queues)
            return count

    (queue,) = ONE_QUEUE.queue_urls
    run = replace(_run(tmp_path), deployment=replace(ONE_QUEUE, dead_letter_queues={queue: "dead.fifo"}))
    with Lines() as lines:
        harm = RunHarm(run, [_KILL], lines)
        harm._letters = cast("DeadLetters", Letters())

        assert harm.harm(FaultKind.REDRIVE, "billing", "") == bool(count)

    assert moved == ([["dead.fifo"]] if count else [])


def test_faults_that_hit_nothing_or_came_too_late_are_named(tmp_path: Path) -> None:
    """The database that is to be locked does not exist, and the last fault is due after the run's end."""
    done_fault, late_fault = _KILL, replace(_KILL, at_seconds=12345.67, until_seconds=12345.67)
    fault_without_target = ScheduledFault(
        kind=FaultKind.LOCK, target="billing:database", at_seconds=0.0, until_seconds=0.1
    )
    journal = Journal(tmp_path, "journal", common={})
    with Lines() as lines:
        harm = RunHarm(_run(tmp_path), [done_fault, fault_without_target, late_fault], lines)
        harm.take(cast("Places", _Everybody()))

        harm.begin(SystemClock().now_us(), journal, SystemClock())
        eventually(
            lambda: harm.missed_faults == [fault_without_target.brief, late_fault.brief],
            timeout_seconds=30,
            describe="the kill",
        )
        harm.end()

    assert harm.missed_faults == ["lock of billing:database at 0 s", "kill of billing-0 at 12345.67 s"]


@pytest.mark.parametrize("command", ["true", "false"])
def test_any_restart_may_empty_the_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Also one whose command failed at its last step; otherwise its losses would be blamed on the service."""
    monkeypatch.setenv("SLUICE_RESTART_ENDPOINT", command)
    run, journal = _run(tmp_path), Journal(tmp_path, "journal", common={})
    restart = ScheduledFault(kind=FaultKind.RESTART, target="endpoint", at_seconds=0.0, until_seconds=0.1)

    def written_rows() -> list[events.HistoryEvent]:
        return events_of(read_journal(journal.path))

    with Lines() as lines:
        harm = RunHarm(run, [restart], lines)
        harm.begin(SystemClock().now_us(), journal, SystemClock())
        eventually(lambda: len(written_rows()) > 1, timeout_seconds=30, describe="the restart")
        harm.end()

    assert {event.queue for event in written_rows() if event.kind == Kind.PURGED} == set(run.deployment.urls)
    outcome = "ok" if command == "true" else "fail"
    assert {event.outcome for event in written_rows() if event.kind == Kind.FAULT} == {outcome}


def test_a_restart_of_the_endpoint_is_recorded_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the driver is killed during the restart, a resumed run must know of it, or it is INVALID for the losses."""
    run, journal = _run(tmp_path), Journal(tmp_path, "journal", common={})
    monkeypatch.setenv("SLUICE_RESTART_ENDPOINT", f"cp {journal.path} {tmp_path}/then && echo > {tmp_path}/done")
    restart = ScheduledFault(kind=FaultKind.RESTART, target="endpoint", at_seconds=0.0, until_seconds=0.1)
    with Lines() as lines:
        harm = RunHarm(run, [restart], lines)
        harm.begin(SystemClock().now_us(), journal, SystemClock())
        eventually((tmp_path / "done").exists, timeout_seconds=30, describe="the restart")
        harm.end()

    then = events_of(read_journal(tmp_path / "then"))
    purged = [event for event in then if event.kind == Kind.PURGED]
    assert {(event.queue, event.outcome) for event in purged} == {(url, "info") for url in run.deployment.urls}


def test_a_worker_of_a_consumer_called_publish_is_no_publisher(tmp_path: Path) -> None:
    """Otherwise the end of a publisher's fault would also end the worker's."""
    run = _run(tmp_path)
    consumers = dict.fromkeys(run.deployment.consumers, "publish")
    with Lines() as lines:
        harm = RunHarm(replace(run, deployment=replace(run.deployment, consumers=consumers)), [_KILL], lines)
        harm.take(cast("Places", _Everybody()))

        assert harm.harm(FaultKind.KILL, "publish-0", "")
        assert not RunHarm(run, [_KILL], lines).harm(FaultKind.KILL, "publish-0", "")


def test_effects_that_cannot_be_read_are_reported_without_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EndpointError, match=r"the effects in postgresql://nobody:\*\*\*@127.0.0.1:1/none cannot be"):
        effects.make_table("postgresql://nobody:secret@127.0.0.1:1/none")


class _Queues:
    """Queues whose counts a test sets."""

    is_empty = True

    def are_queues_empty(self) -> bool:
        return self.is_empty


@pytest.mark.parametrize("missing", ["nothing", "one number", "a message in flight", "a gap", "a consumer's inbox"])
def test_all_is_done_when_consumers_are_past_every_number_and_queues_empty(tmp_path: Path, missing: str) -> None:
    """Otherwise the workers would end before a message comes again, and the violation would not be seen."""
    run = replace(_run(tmp_path), id="epoch-7", deployment=replace(ONE_QUEUE, endpoint_url="http://localhost:1"))
    letters, count = _Queues(), run.plan.row_count
    letters.is_empty = missing != "a message in flight"
    if missing != "a consumer's inbox":
        engine = create_engine(f"sqlite:///{worker_processes.database_files(run)['billing']}")
        tables.metadata.create_all(engine)
        mine = {"consumer": "billing", "group_id": "g", "epoch": 7}
        gap = {**mine, "seq": 2, "through": 2, "state": "gap", "seen_at_us": 0}
        last_seq = count - (missing == "one number")
        with engine.begin() as connection:
            connection.execute(insert(tables.groups).values(**mine, first_seq=1, last_seq=last_seq, updated_at_us=0))
            if missing == "a gap":
                connection.execute(insert(tables.exceptions).values(**gap))
        engine.dispose()

    with Lines() as lines:
        is_done = RunHarm(run, [], lines).is_all_done(cast("DeadLetters", letters))
        on_aws = RunHarm(replace(run, deployment=ONE_QUEUE), [], lines).is_all_done(cast("DeadLetters", letters))

    assert is_done == (missing == "nothing")
    assert on_aws is False


def test_a_run_is_not_done_while_a_fault_is_to_come(tmp_path: Path) -> None:
    """Queues are empty and the inbox is past every number, but the fault at 1,000 s is still ahead."""
    run = replace(_run(tmp_path), id="epoch-7", deployment=replace(ONE_QUEUE, endpoint_url="http://localhost:1"))
    letters, late_fault = cast("DeadLetters", _Queues()), replace(_KILL, at_seconds=1_000.0, until_seconds=1_000.0)
    engine = create_engine(f"sqlite:///{worker_processes.database_files(run)['billing']}")
    tables.metadata.create_all(engine)
    row = {"consumer": "billing", "group_id": "g", "epoch": 7, "first_seq": 1, "last_seq": run.plan.row_count}
    with engine.begin() as connection:
        connection.execute(insert(tables.groups).values(**row, updated_at_us=0))
    engine.dispose()
    with Lines() as lines:
        harm = RunHarm(run, [late_fault], lines)
        harm.begin(SystemClock().now_us(), Journal(tmp_path, "journal", common={}), SystemClock(), letters)
        during = harm.is_all_done(letters)
        harm.end()

        assert during is False
        assert harm.is_all_done(letters) is True
