"""The move tasks of a DLQ as the native engine follows them, by the simulator's clock."""

import pytest

from sluice.messaging.errors import TransientError
from sluice.messaging.sqs.dead_letter_queue import Destination
from sluice.messaging.sqs.redrive import MoveTask, MoveTasks
from tests.support.messaging.dlq_harness import DEAD, QUEUE, DlqHarness


@pytest.fixture
def tasks(harness: DlqHarness) -> MoveTasks:
    """Return the move tasks of a DLQ with three messages."""
    harness.record_dead(("a", 1), ("a", 2), ("a", 3))
    return MoveTasks(harness.tools_sqs, harness.dead_letters().arn)


@pytest.fixture
def queue_arn(harness: DlqHarness) -> str:
    """Return the ARN of the queue to which they are moved."""
    return Destination(harness.tools_sqs, QUEUE).arn


def _follow(harness: DlqHarness, tasks: MoveTasks) -> list[MoveTask]:
    """Return each report of the running move task, until it has ended."""
    return list(tasks.follow(clock=harness.clock, every_seconds=1))


def test_a_task_is_followed_to_its_end_at_its_rate(harness: DlqHarness, tasks: MoveTasks, queue_arn: str) -> None:
    """One message a second: each look brings the count of moved messages."""
    tasks.start(queue_arn, rate=1)

    seen = _follow(harness, tasks)

    assert [(task.status, task.moved) for task in seen] == [("RUNNING", 1), ("RUNNING", 2), ("COMPLETED", 3)]
    assert {(task.rate, task.to_move, task.destination_arn) for task in seen} == {(1, 3, queue_arn)}
    assert harness.places(QUEUE) == [("a", 1), ("a", 2), ("a", 3)]


def test_the_end_of_an_earlier_task_does_not_end_this_task(
    harness: DlqHarness, tasks: MoveTasks, queue_arn: str
) -> None:
    """SQS lists ended tasks too."""
    tasks.start(queue_arn, rate=None)
    assert [task.status for task in _follow(harness, tasks)] == ["COMPLETED"]
    harness.kill()

    tasks.start(queue_arn, rate=1)

    assert [task.status for task in _follow(harness, tasks)] == ["RUNNING", "RUNNING", "COMPLETED"]


def test_a_task_that_is_never_listed_is_not_waited_for_for_ever(harness: DlqHarness, tasks: MoveTasks) -> None:
    """The move task may run although SQS does not list it, so the error says where to look."""
    started = harness.clock.monotonic()

    with pytest.raises(TransientError, match="tells of no such task; see `dlq status`"):
        _follow(harness, tasks)
    assert harness.clock.monotonic() - started < 20


def test_a_task_that_is_being_cancelled_cannot_be_cancelled_again(
    harness: DlqHarness, tasks: MoveTasks, queue_arn: str
) -> None:
    """SQS lists a task that is being cancelled without a handle. Messages that it has moved stay moved."""
    tasks.start(queue_arn, rate=1)
    running = tasks.running()
    assert running is not None
    assert tasks.cancel(running) == 1

    assert tasks.running() is None
    assert [task.status for task in _follow(harness, tasks)][-1] == "CANCELLED"
    assert harness.counts(QUEUE) == (1, 0)
    assert harness.counts(DEAD) == (2, 0)


def test_a_second_task_is_refused_while_one_runs(tasks: MoveTasks, queue_arn: str) -> None:
    """SQS itself refuses it; that error passes when the first task ends."""
    tasks.start(queue_arn, rate=1)

    with pytest.raises(TransientError, match="There is already a task running"):
        tasks.start(queue_arn, rate=1)
