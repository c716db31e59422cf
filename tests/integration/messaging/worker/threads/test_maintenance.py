"""A worker writes its metrics once a minute, and keeps its inbox from growing for ever."""

import pytest
from sqlalchemy import event, insert, select
from sqlalchemy.exc import OperationalError

from sluice.declaration import metrics
from sluice.messaging.handlers import Reject
from sluice.messaging.inbox.tables import attempts, bundles, groups
from sluice.messaging.telemetry.metrics import WorkerMetrics
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.hooks import WorkerHooks
from sluice.messaging.worker.settings import WorkerSettings
from sluice.messaging.worker.worker import Worker
from tests.support.messaging.recorded_metrics import RecordedMetrics
from tests.support.messaging.world import WorkerParts, World

SETTINGS = WorkerSettings(lanes=1, wait_seconds=0, drain_seconds=1, keep_inbox_seconds=86_400)
NOTHING = dict.fromkeys(metrics.INBOX, 0.0)


@pytest.fixture
def recorded_metrics() -> RecordedMetrics:
    """Return a list that takes the metrics, one dictionary for each minute."""
    return RecordedMetrics()


@pytest.fixture
def worker_parts(world: World, recorded_metrics: RecordedMetrics) -> WorkerParts:
    """Return a worker after some work: of three messages one was delivered twice, and one is dead."""
    first, *_ = world.send("a", "a", "a")
    world.handler_steps["a", 2] = [Reject("never")]
    world.handler_steps["a", 3] = [RuntimeError("once")]
    worker_parts = world.worker(hooks=[WorkerMetrics(recorded_metrics, world.clock)])
    world.work_until_idle(worker_parts)
    world.put(first)
    world.work_until_idle(worker_parts)
    return worker_parts


@pytest.fixture
def worker(world: World, worker_parts: WorkerParts) -> Worker:
    """Return the worker of `worker_parts` on which tests call `maintain`; it has no thread here."""
    return Worker(worker_parts.parts, settings=SETTINGS, stop=Stop(), clock=world.clock)


def test_metrics_are_written_each_minute_with_the_counts_since_the_last(
    world: World, worker: Worker, recorded_metrics: RecordedMetrics
) -> None:
    """Metrics are written even if nothing happened: an alarm on a missing metric would tell nothing."""
    for seconds in (60, 0, 59, 2, 61):  # at 0 and 59 s the next minute is not over
        world.simulator.advance(seconds)
        worker.maintain()

    happened = {metrics.HANDLED: 2, metrics.DEAD: 1, metrics.RETRIED: 1, metrics.DUPLICATES: 1}
    is_open = {metrics.OPEN_EXCEPTIONS: 1}
    assert recorded_metrics == [NOTHING | happened | is_open, NOTHING | is_open, NOTHING | is_open]


def test_the_last_counts_are_written_at_the_end(
    world: World,
    worker_parts: WorkerParts,
    worker: Worker,
    recorded_metrics: RecordedMetrics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At its end a worker writes the counts that no minute has written, each once.

    It does not ask the database for more.
    """
    world.simulator.advance(61)
    worker.maintain()
    world.send("b", "b")
    world.work_until_idle(worker_parts)
    monkeypatch.setattr(world.inbox, "counts", None)  # so that a query of the database would fail

    worker._end([], [], [])

    is_open = {metrics.OPEN_EXCEPTIONS: 1}
    happened = {metrics.HANDLED: 2, metrics.DEAD: 1, metrics.RETRIED: 1, metrics.DUPLICATES: 1}
    last = dict.fromkeys(metrics.EVENTS, 0.0) | {metrics.HANDLED: 2}
    assert recorded_metrics == [NOTHING | happened | is_open, last]
    worker.parts.hooks.call(WorkerHooks.after_end)
    assert recorded_metrics[-1] == dict.fromkeys(metrics.EVENTS, 0.0)


def test_w15_the_inbox_forgets_an_idle_group_without_open_messages(world: World, worker: Worker) -> None:
    """After a day (`keep_inbox_seconds`) without a message.

    A group with a dead message stays, and so do other consumers'.
    """
    other = World(world.engine, consumer="shipping", simulator=world.simulator)
    other.send("a")
    other.work_until_idle(other.worker())
    world.send("b")
    world.work_until_idle(world.worker())

    world.simulator.advance(86_000)  # less than a day
    worker.maintain()
    before = world.last_numbers()
    world.simulator.advance(3_700)  # more than a day, and an hour after the last look for idle groups
    worker.maintain()

    assert before == {"a": 3, "b": 1}
    assert world.last_numbers() == {"a": 3}  # its second message is dead, and may come back
    assert other.last_numbers() == {"a": 1}


def test_metrics_are_written_when_the_database_is_back(
    world: World, worker: Worker, recorded_metrics: RecordedMetrics
) -> None:
    """While the database is away none are written; the next minute's have the counts of both."""

    def is_away(*_: object) -> None:
        raise OperationalError("SELECT 1", {}, RuntimeError("database is locked"))

    world.simulator.advance(61)
    event.listen(world.engine, "before_cursor_execute", is_away)
    worker.maintain()
    event.remove(world.engine, "before_cursor_execute", is_away)
    world.simulator.advance(61)
    worker.maintain()

    (found,) = recorded_metrics
    assert found[metrics.HANDLED] == 2


def test_w15_the_inbox_forgets_any_number_of_idle_groups(world: World, worker: Worker) -> None:
    """Idle groups are deleted in several statements, so 2,500 are more than one deletes."""
    old = {"consumer": "billing", "epoch": 1, "first_seq": 1, "last_seq": 1, "updated_at_us": 0}
    with world.engine.begin() as connection:
        connection.execute(insert(groups), [{**old, "group_id": f"order-{number}"} for number in range(2_500)])

    world.simulator.advance(3_601)  # idle groups are looked for once an hour
    worker.maintain()

    with world.engine.begin() as connection:
        left = connection.execute(select(groups.c.group_id)).scalars().all()
    assert left == ["a"]


def test_a_worker_whose_queue_is_not_for_bundles_forgets_old_attempts(world: World, worker: Worker) -> None:
    """The rows are of bundles that came before; so are attempts that a Lambda function counted."""
    old = {"consumer": "billing", "sqs_message_id": "1.0", "receive_count": 2, "updated_at_us": 0}
    with world.engine.begin() as connection:
        connection.execute(insert(attempts).values(**old, group_id="a", failed_count=1, unfinished_count=0))
        connection.execute(insert(bundles).values(**old, settled_count=1))

    world.simulator.advance(3_601)
    worker.maintain()

    with world.engine.begin() as connection:
        assert connection.execute(select(attempts)).all() == []
        assert connection.execute(select(bundles)).all() == []
