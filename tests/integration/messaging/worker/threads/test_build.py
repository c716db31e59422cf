"""A program that embeds a worker gives four things, and gets what the command line runs."""

from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sluice.declaration import Consumer
from sluice.errors import ConfigError
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import ANY, Ack, Context, Handlers, Outcome
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.worker.build import build_worker
from tests.support.messaging.world import World

URL = "https://sqs.eu-north-1.amazonaws.com/123456789012/billing.fifo"
HANDLERS = Handlers({ANY: lambda *_: Ack()})


def test_a_worker_needs_a_consumer_a_queue_a_database_and_handlers(on_file: Engine) -> None:
    """From these four, `build_worker` returns a worker that handles a message, deletes it and marks it in the inbox."""
    world = World(on_file)
    world.send("a")
    handled: list[tuple[str, int]] = []

    def handle(_: Session, event: Event, context: Context) -> Outcome:
        handled.append((event.group, context.seq))
        worker.stop()
        return Ack()

    consumer = Consumer(name="billing", lanes=1)
    queue = Queue(world.simulator.client("sqs"), world.url)
    worker = build_worker(consumer, queue=queue, database=on_file, handlers=Handlers({ANY: handle}))
    worker.run()

    assert handled == [("a", 1)]
    assert world.bodies_in_queue() == []
    assert world.last_numbers() == {"a": 1}


def test_a_worker_built_from_urls_has_two_clients_with_different_timeouts(tmp_path: Path) -> None:
    """One client polls for each lane.

    The other renews leases and deletes, so its calls must not wait as long as a poll.
    """
    consumer = Consumer(name="billing", lanes=3)

    parts = build_worker(consumer, queue=URL, database=f"sqlite:///{tmp_path / 'inbox.db'}", handlers=HANDLERS).parts

    polls, prompt = parts.lanes[0]._queue._sqs.meta, parts.queue._sqs.meta
    assert polls.region_name == "eu-north-1"
    assert prompt.region_name == "eu-north-1"
    assert polls.config.max_pool_connections == 3
    assert len(parts.lanes) == 3
    assert prompt.config.max_pool_connections == 3  # to extend, to give back, to delete
    assert prompt.config.read_timeout == 5
    assert parts.processor._settings.hold_seconds_max == 600
    assert parts.processor._settings.is_ordered


def test_a_queue_url_without_a_region_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL of AWS contains its region; for another one, it has to be configured."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")

    with pytest.raises(ConfigError, match=r"^queue URL http://localhost:9/q\.fifo names no region, and"):
        build_worker(Consumer(name="b"), queue="http://localhost:9/q.fifo", database="sqlite://", handlers=HANDLERS)
