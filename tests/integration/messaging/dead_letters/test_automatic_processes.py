"""`sluice dlq automatic-redrive` as the process a task is, on LocalStack and either kind of database: it dies anywhere.

A copy that was brought back dies here as on AWS: it is received until the queue moves it to the DLQ.
"""

import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, update

from emulator import localstack
from sluice.declaration import task_settings
from sluice.messaging import failpoints
from sluice.messaging.database.audit import acts
from sluice.messaging.inbox.tables import audit, redrives
from tests.support.messaging.faulty_calls import GroupPlace
from tests.support.messaging.inbox_harness import InboxHarness, decoded_message
from tests.support.processes.dead_letter_project import DeadLetterProject

PLACES = [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


@pytest.fixture
def project(
    localstack_shared: localstack.Emulator, inbox: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeadLetterProject]:
    """Yield queues of this test's own, declared in this process too."""
    made = DeadLetterProject(localstack_shared, inbox, tmp_path)
    made.set_policy()
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(made.environment))
    yield made
    made.close()


def _record_dead(inbox: Engine, ids: Mapping[GroupPlace, str]) -> None:
    """Record deaths as a worker does whose attempts are used up."""
    with inbox.begin() as connection:
        for (group, seq), sqs_message_id in ids.items():
            came = replace(decoded_message(seq, group=group, id=f"{group}-{seq}"), sqs_message_id=sqs_message_id)
            assert InboxHarness(inbox).inbox.record_dead(connection, came, "the bank is away", is_permanent=False)


def _acts(inbox: Engine) -> list[tuple[str, Any, Any]]:
    """Return action, group and number of each entry of the inbox's audit, the oldest first."""
    with inbox.connect() as connection:
        rows = acts(connection, audit.c.consumer, "billing", most=100)
    return [(row["action"], row["group_id"], row["seq"]) for row in reversed(rows)]


def _deaths(*quick: str) -> list[Any]:
    """Return a parameter for each failpoint of automatic redrive; all but the named ones are slow tests."""
    slow = pytest.mark.slow
    return [pytest.param(name, marks=() if name in quick else slow) for name in failpoints.AUTOMATIC_REDRIVE]


@pytest.mark.parametrize("failpoint", _deaths("after_send"))
def test_a_run_killed_anywhere_loses_nothing_and_the_next_run_finishes(
    project: DeadLetterProject, inbox: Engine, failpoint: str
) -> None:
    """The process is killed at its second message.

    Then each message is in a queue; after the next run each is in the consumer's queue once, and is counted once.
    """
    _record_dead(inbox, project.dead_letter(*PLACES))

    number = "" if failpoint == "after_begin" else ":2"
    with project.process("automatic-redrive", failpoint=failpoint + number) as killed:
        assert killed.wait_for_exit() == -signal.SIGKILL
    assert project.survivors() == PLACES
    with inbox.begin() as connection:
        connection.execute(update(redrives).values(held_until_us=1))  # its lease is over
    ended = project.finish("automatic-redrive")

    assert ended.exit_code == 0, ended.output
    assert project.peek(project.queue) == PLACES
    assert project.peek(project.dead) == []
    assert _acts(inbox) == [("automatic-redrive", group, seq) for group, seq in PLACES]


def test_a_process_brings_back_and_the_next_one_sees_what_died_again(project: DeadLetterProject, inbox: Engine) -> None:
    """After that, neither this message nor another comes back, and a third process is refused."""
    _record_dead(inbox, project.dead_letter(("a", 1)))
    with project.process("automatic-redrive") as first:
        assert first.wait_for_exit() == 0
    _record_dead(inbox, project.die())
    _record_dead(inbox, project.dead_letter(("b", 1)))

    with project.process("automatic-redrive") as second:
        assert second.wait_for_exit() == 1
    with project.process("automatic-redrive") as third:
        assert third.wait_for_exit() == 2

    assert project.peek(project.queue) == []
    assert project.peek(project.dead) == [("a", 1), ("b", 1)]
    assert _acts(inbox) == [("automatic-redrive", "a", 1), ("automatic-off", "a", 1)]


def test_the_guard_ignores_messages_that_a_move_task_brought_back(project: DeadLetterProject, inbox: Engine) -> None:
    """An operator's `redrive --engine native` counts for nothing, and leaves nothing to do."""
    _record_dead(inbox, project.dead_letter(*PLACES))
    assert project.finish("redrive", "--engine", "native", "--yes").exit_code == 0

    ended = project.finish("automatic-redrive")

    assert ended.exit_code == 0
    assert json.loads(ended.stdout)["moved"] == 0
    assert project.peek(project.queue) == PLACES
    assert _acts(inbox) == [("redrive", None, None)]  # the operator's own
