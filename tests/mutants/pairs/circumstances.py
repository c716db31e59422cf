"""The columns of the table: where another rule has acted on a message, so that the rule of the row meets it.

A circumstance is read off the model where it can be. What the model forgets (that a message came in a batch, from a
topic, or back from a DLQ) is noted meanwhile, on the queue itself, so that nothing outlives the simulator's account.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from sluice.simulator.model.mapping import EventSourceMapping
from sluice.simulator.model.message import QueuedMessage, content_id
from sluice.simulator.model.queues.fifo import FifoQueue
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.queues.receiving import Receiving
from sluice.simulator.model.queues.sending import Sending
from sluice.simulator.model.topics.delivery import Delivery
from sluice.simulator.model.topics.sns import Sns

type OfQueue = Callable[[SimulatedQueue, QueuedMessage, float], bool]
"""Whether a circumstance holds of a message in a queue at an instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """A publish that a rule meets: a subscription is there where the rule is about one."""

    topic: Any
    entry: Mapping[str, Any]
    subscription: Any = None
    queue: Any = None


type OfPublish = Callable[[Publish], bool]
_under_way: list[str] = []  # what the model is doing: the simulator answers one call at a time


@contextmanager
def _doing(name: str) -> Iterator[None]:
    _under_way.append(name)
    try:
        yield
    finally:
        _under_way.remove(name)


def _while(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def doing(*arguments: Any, **named: Any) -> Any:
        with _doing(name):
            return original(*arguments, **named)

    return doing


def _polling(original: Callable[..., Any]) -> Callable[..., Any]:
    def receive(self: Receiving, params: Mapping[str, Any], now: float) -> Any:
        if not params.get("WaitTimeSeconds"):
            return original(self, params, now)
        with _doing("poll"):
            return original(self, params, now)

    return receive


def _marking(original: Callable[..., QueuedMessage]) -> Callable[..., QueuedMessage]:
    def add(self: SimulatedQueue, message: QueuedMessage) -> QueuedMessage:
        self.__dict__.setdefault("marks", {})[message.id] = frozenset(_under_way)
        return original(self, message)

    return add


@contextmanager
def tracking() -> Iterator[None]:
    """Note what the model forgets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedQueue, "add", _marking(SimulatedQueue.add))
        patch.setattr(SimulatedQueue, "take_redriven", _while("redrive", SimulatedQueue.take_redriven))
        patch.setattr(Sending, "send_batch", _while("batch", Sending.send_batch))
        patch.setattr(Sns, "_publish_batch", _while("publish batch", Sns._publish_batch))
        patch.setattr(Delivery, "_deliver", _while("delivery", Delivery._deliver))
        patch.setattr(Delivery, "replay", _while("replay", Delivery.replay))
        patch.setattr(Receiving, "receive", _polling(Receiving.receive))
        for name in ("poll", "finish"):
            patch.setattr(EventSourceMapping, name, _while("mapping", getattr(EventSourceMapping, name)))
        yield


def _has_mark(name: str) -> OfQueue:
    def holds(queue: SimulatedQueue, message: QueuedMessage, _: float) -> bool:
        return name in queue.__dict__.get("marks", {}).get(message.id, _under_way)

    return holds


def _is_expired(_: SimulatedQueue, message: QueuedMessage, now: float) -> bool:
    return message.receives_here > 0 and message.is_visible(now) and not message.is_visibility_changed


OF_QUEUES: Mapping[str, OfQueue] = {
    "received": lambda _queue, message, _now: message.receives_here > 0,
    "released": lambda _queue, message, now: message.is_visibility_changed and message.is_visible(now),
    "extended": lambda _queue, message, now: message.is_visibility_changed and not message.is_visible(now),
    "expired": _is_expired,
    "delayed": lambda queue, _message, _now: queue.seconds("DelaySeconds") > 0,
    "dead": lambda _queue, message, _now: message.source_arn is not None,
    "redriven": _has_mark("redrive"),
    "content": lambda _queue, message, _now: message.deduplication_id == content_id(message.body),
    "scope": lambda queue, _message, _now: queue.attributes.get("DeduplicationScope") == "messageGroup",
    "attributes": lambda _queue, message, _now: bool(message.attributes),
    "batch": _has_mark("batch"),
    "delivered": _has_mark("delivery"),
    "purged": lambda queue, _message, _now: queue._purged_at is not None,
    "changed": lambda queue, _message, _now: queue.modified_at > queue.created_at and "Policy" not in queue.attributes,
    "polled": lambda _queue, _message, _now: "poll" in _under_way,
    "mapped": lambda _queue, _message, _now: "mapping" in _under_way,
    "later": lambda queue, message, _now: isinstance(queue, FifoQueue) and _is_later(queue, message),
}
"""What may have happened to a message before a rule meets it."""


def _is_later(queue: FifoQueue, message: QueuedMessage) -> bool:
    return any(each.group == message.group and each.number < message.number for each in queue.messages.values())


OF_PUBLISHES: Mapping[str, OfPublish] = {
    "batch": lambda _publish: "publish batch" in _under_way,
    "content": lambda publish: publish.topic.is_fifo and "MessageDeduplicationId" not in publish.entry,
    "scope": lambda publish: publish.topic.attributes.get("FifoThroughputScope") == "MessageGroup",
    "attributes": lambda publish: bool(publish.entry.get("MessageAttributes")),
    "subject": lambda publish: "Subject" in publish.entry,
    "structure": lambda publish: publish.entry.get("MessageStructure") == "json",
    "replayed": lambda _publish: "replay" in _under_way,
    "enveloped": lambda publish: publish.subscription is not None and not publish.subscription.is_raw(),
    "filtered": lambda publish: (
        publish.subscription is not None and bool(publish.subscription.attributes.get("FilterPolicy"))
    ),
    "undelivered": lambda publish: publish.subscription is not None and publish.queue is None,
    "standard": lambda publish: publish.queue is not None and not publish.queue.is_fifo,
    "delayed": lambda publish: publish.queue is not None and publish.queue.seconds("DelaySeconds") > 0,
}
"""What may be special about a publish, its subscription, or the queue it goes to."""
