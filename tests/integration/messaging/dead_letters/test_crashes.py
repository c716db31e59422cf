"""Real processes that bring dead letters back die at each step: nothing is in neither queue, and a rerun finishes.

On LocalStack, whose FIFO queues deduplicate for five minutes as AWS's do, but per queue (GAP-06). What its DLQs do
otherwise than AWS's (GAP-02, GAP-46) plays no part: the messages here are sent to the DLQ.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from emulator import localstack
from sluice.clock import eventually
from sluice.declaration import task_settings
from sluice.messaging import failpoints
from sluice.messaging.database.audit import acts
from sluice.messaging.inbox.tables import audit
from tests.support.messaging.dlq_harness import envelope
from tests.support.processes.dead_letter_project import DeadLetterProject
from tests.support.processes.messaging_process import PATIENCE_SECONDS

DATABASES = [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


@pytest.fixture
def dead_letter_project(
    localstack_shared: localstack.Emulator, database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeadLetterProject]:
    """Yield queues of this test's own, declared in this process too."""
    made = DeadLetterProject(localstack_shared, database, tmp_path)
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(made.environment))
    yield made
    made.close()


def _failpoints(*quick: str) -> list[Any]:
    """Return every failpoint as a parameter.

    Those not in `quick` are slow: they show on real processes what the simulator's tests already show for each.
    """
    slow = pytest.mark.slow
    return [pytest.param(name, marks=() if name in quick else slow) for name in failpoints.DEAD_LETTERS]


@pytest.mark.parametrize("failpoint", _failpoints("after_send"))
def test_d3_a_redrive_killed_anywhere_is_finished_by_a_rerun(
    dead_letter_project: DeadLetterProject, failpoint: str
) -> None:
    """The process is killed at its second message: each message is in one of the queues.

    A rerun with the same --run then makes one message of each (D4).
    """
    dead_letter_project.dead_letter(*DATABASES)

    with dead_letter_project.process("redrive", "--run", "r1", "--yes", failpoint=f"{failpoint}:2") as killed:
        assert killed.wait_for_exit() == -signal.SIGKILL
    assert dead_letter_project.survivors() == DATABASES
    ended = dead_letter_project.finish("redrive", "--run", "r1", "--yes")

    assert ended.exit_code == 0, ended.output
    assert dead_letter_project.peek(dead_letter_project.queue) == DATABASES
    assert dead_letter_project.peek(dead_letter_project.dead) == []


@pytest.mark.parametrize("failpoint", _failpoints("after_send"))
def test_d3_a_replace_killed_anywhere_is_finished_by_a_rerun(
    dead_letter_project: DeadLetterProject, database: Engine, tmp_path: Path, failpoint: str
) -> None:
    """The old message is there, or its replacement, or both; the same data again makes one message of it (D4)."""
    dead_letter_project.dead_letter(*DATABASES)
    data = tmp_path / "right.json"
    data.write_text('{"n": "right"}', encoding="utf-8")
    act = ("replace", "a", "1", "--data", str(data), "--reason", "it was wrong", "--yes")

    with dead_letter_project.process(*act, failpoint=failpoint) as killed:
        assert killed.wait_for_exit() == -signal.SIGKILL
    assert dead_letter_project.survivors() == DATABASES
    if failpoint != "after_delete":
        assert dead_letter_project.finish(*act).exit_code == 0

    assert dead_letter_project.peek(dead_letter_project.queue) == [("a", 1)]
    assert dead_letter_project.peek(dead_letter_project.dead) == DATABASES[1:]
    with database.connect() as connection:
        rows = acts(connection, audit.c.consumer, "billing", most=10)
    assert {json.loads(row["detail"])["body"] for row in rows} == {envelope("a", 1).body}


def test_d10_a_terminated_redrive_releases_the_messages_that_it_holds(dead_letter_project: DeadLetterProject) -> None:
    """SIGTERM between two messages of a slow run: exit code 1, nothing in flight though its hold is not over."""
    dead_letter_project.dead_letter(*DATABASES)

    with dead_letter_project.process("redrive", "--rate", "0.5", "--yes", "--hold", "600") as slow:
        eventually(
            lambda: dead_letter_project.peek(dead_letter_project.queue),
            timeout_seconds=PATIENCE_SECONDS,
            describe="the first message",
        )
        slow.send(signal.SIGTERM)
        assert slow.wait_for_exit() == 1

    assert dead_letter_project.in_flight(dead_letter_project.dead) == 0
    assert (
        sorted(dead_letter_project.peek(dead_letter_project.queue) + dead_letter_project.peek(dead_letter_project.dead))
        == DATABASES
    )


def test_a_native_redrive_on_localstack(dead_letter_project: DeadLetterProject) -> None:
    """The messages here were never in the queue itself.

    LocalStack loses a message that returns within five minutes of its first send (GAP-01, MOV-17).
    """
    dead_letter_project.dead_letter(*DATABASES)
    dead_letter_project.set_policy()

    ended = dead_letter_project.finish("redrive", "--engine", "native", "--yes")

    assert ended.exit_code == 0
    assert ended.stdout == "completed, about 4 moved\n"
    assert dead_letter_project.peek(dead_letter_project.queue) == DATABASES
    assert dead_letter_project.peek(dead_letter_project.dead) == []
