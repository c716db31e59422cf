"""The rows of the table: rules of the model, each broken where a circumstance holds and kept everywhere else."""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues.fifo import FIRST_SEQUENCE_NUMBER, FifoQueue
from sluice.simulator.model.queues.moving import SimulatedMoveTasks
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.topics.delivery import Delivery
from sluice.simulator.model.topics.topic import PublishResult, SimulatedTopic, Subscription
from tests.mutants.pairs.circumstances import OfPublish, OfQueue, Publish

type ModelRule = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One rule.

    Args:
        name: of the row.
        does: what is wrong where a circumstance holds, one clause.
        owner: class whose method it is.
        rule: name of the method.
        broken: makes of the method, and of the circumstance, the method that is wrong there.
    """

    name: str
    does: str
    owner: Any
    rule: str
    broken: Callable[[ModelRule, Any], ModelRule]


def _blocks_nothing(original: ModelRule, when: OfQueue) -> ModelRule:
    def deliverable(self: FifoQueue, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
        left = [each for each in messages if each.is_visible(now) or not when(self, each, now)]
        return iter(original(self, left, now))

    return deliverable


def _comes_last(original: ModelRule, when: OfQueue) -> ModelRule:
    def deliverable(self: FifoQueue, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
        return iter(original(self, sorted(messages, key=lambda each: (when(self, each, now), each.number)), now))

    return deliverable


def _after_delivery(
    change: Callable[[QueuedMessage, QueuedMessage, float], None],
) -> Callable[[ModelRule, OfQueue], ModelRule]:
    """Break what a receive does to a message; `change` is given the message, its copy from before, and the instant."""

    def break_rule(original: ModelRule, when: OfQueue) -> ModelRule:
        def deliver(self: SimulatedQueue, message: QueuedMessage, *, visibility_seconds: int, now: float) -> None:
            holds, before = when(self, message, now), copy.copy(message)
            original(self, message, visibility_seconds=visibility_seconds, now=now)
            if holds:
                change(message, before, now)

        return deliver

    return break_rule


def _shows(message: QueuedMessage, _before: QueuedMessage, now: float) -> None:
    message.visible_at = now


def _does_not_count(message: QueuedMessage, before: QueuedMessage, _now: float) -> None:
    message.receives = max(1, before.receives)


def _moves_first_time(message: QueuedMessage, before: QueuedMessage, now: float) -> None:
    message.first_received_at = now if before.receives else message.first_received_at


def _by_handle(original: ModelRule, when: OfQueue) -> ModelRule:
    """Confirm a call by handle and do nothing."""

    def call(self: SimulatedQueue, handle: str, *more: Any) -> None:
        message = self.message_of(handle)
        if message is None or not when(self, message, more[-1]):
            original(self, handle, *more)

    return call


def _change_by(applies: Callable[[int], bool]) -> Callable[[ModelRule, OfQueue], ModelRule]:
    def break_rule(original: ModelRule, when: OfQueue) -> ModelRule:
        def change_visibility(self: SimulatedQueue, handle: str, seconds: int, now: float) -> None:
            message = self.message_of(handle)
            if message is None or not applies(seconds) or not when(self, message, now):
                original(self, handle, seconds, now)

        return change_visibility

    return break_rule


def _deletes_if(applies: Callable[[QueuedMessage, str, float], bool]) -> Callable[[ModelRule, OfQueue], ModelRule]:
    def break_rule(original: ModelRule, when: OfQueue) -> ModelRule:
        def check_delete(self: FifoQueue, message: QueuedMessage, handle: str, now: float) -> None:
            if not (applies(message, handle, now) and when(self, message, now)):
                original(self, message, handle, now)

        return check_delete

    return break_rule


def _break_exhaustion(change: Callable[[QueuedMessage], bool | int]) -> Callable[[ModelRule, OfQueue], ModelRule]:
    def break_rule(original: ModelRule, when: OfQueue) -> ModelRule:
        def is_exhausted(self: SimulatedQueue, message: QueuedMessage) -> bool:
            if not when(self, message, message.visible_at):  # what may be received is visible
                return bool(original(self, message))
            changed = change(message)
            return (
                changed if isinstance(changed, bool) else bool(original(self, replace(message, receives_here=changed)))
            )

        return is_exhausted

    return break_rule


def _spares(original: ModelRule, when: OfQueue) -> ModelRule:
    def empty(self: SimulatedQueue, now: float) -> None:
        spared = {id_: message for id_, message in self.messages.items() if when(self, message, now)}
        original(self, now)
        self.messages.update(spared)

    return empty


def _repeat(
    original: ModelRule,
    when: OfQueue,
    change: Callable[[FifoQueue, QueuedMessage, QueuedMessage], QueuedMessage],
    *,
    forgets: bool = False,
) -> ModelRule:
    def send(self: FifoQueue, message: QueuedMessage, now: float, **named: Any) -> QueuedMessage:
        key = self.deduplication_key(message)
        first = self._remembered.get(key)
        if first is None or not when(self, self.messages.get(first.message_id, message), now):
            sent: QueuedMessage = original(self, message, now, **named)
            return sent
        if forgets:
            del self._remembered[key]
        return change(self, message, original(self, message, now, **named))

    return send


def _takes_repeat(original: ModelRule, when: OfQueue) -> ModelRule:
    return _repeat(original, when, lambda _queue, _message, sent: sent, forgets=True)


def _renames_repeat(original: ModelRule, when: OfQueue) -> ModelRule:
    return _repeat(original, when, lambda _queue, message, sent: replace(sent, id=message.id))


def _forgets_no_id(original: ModelRule, when: OfQueue) -> ModelRule:
    """Keep an id for ever, if the message is still there and the circumstance holds of it."""

    def settle(self: FifoQueue, now: float) -> None:
        kept = {
            key: first
            for key, first in self._remembered.items()
            if first.message_id in self.messages and when(self, self.messages[first.message_id], now)
        }
        original(self, now)
        self._remembered.update(kept)

    return settle


def _numbers_fall(original: ModelRule, when: OfQueue) -> ModelRule:
    def add(self: FifoQueue, message: QueuedMessage) -> QueuedMessage:
        added: QueuedMessage = original(self, message)
        if when(self, added, added.sent_at):
            added.sequence_number = str(FIRST_SEQUENCE_NUMBER - self._numbers)
        return added

    return add


def _moves_all_but(original: ModelRule, when: OfQueue) -> ModelRule:
    def movable(self: SimulatedMoveTasks, source: SimulatedQueue, now: float) -> list[QueuedMessage]:
        return [each for each in original(self, source, now) if not when(source, each, now)]

    return movable


def _bury_in_one_group(original: ModelRule, when: OfQueue) -> ModelRule:
    def take_dead_letter(self: FifoQueue, message: QueuedMessage, now: float, *, source_arn: str) -> None:
        holds = when(self, message, now)
        original(self, message, now, source_arn=source_arn)
        if holds:
            self.messages[message.id].group = "dead"

    return take_dead_letter


def _is_not_counted(original: ModelRule, when: OfQueue) -> ModelRule:
    def counts(self: SimulatedQueue, now: float) -> dict[str, str]:
        other = copy.copy(self)
        other.messages = {id_: message for id_, message in self.messages.items() if not when(self, message, now)}
        counted: dict[str, str] = original(other, now)
        return counted

    return counts


def _tries_anew(original: ModelRule, when: OfQueue) -> ModelRule:
    def retry(self: FifoQueue, attempt_id: str, now: float, **named: Any) -> list[QueuedMessage] | None:
        again: list[QueuedMessage] | None = original(self, attempt_id, now, **named)
        return None if again and when(self, again[0], now) else again

    return retry


QUEUE_ROWS = (
    Row("blocking", "a message in flight blocks nothing", FifoQueue, "deliverable", _blocks_nothing),
    Row("order", "a message comes after later ones", FifoQueue, "deliverable", _comes_last),
    Row("hiding", "a received message is not hidden", SimulatedQueue, "_deliver", _after_delivery(_shows)),
    Row("receive count", "a receive does not count", SimulatedQueue, "_deliver", _after_delivery(_does_not_count)),
    Row("first receive", "the time of the first receive moves",
        SimulatedQueue, "_deliver", _after_delivery(_moves_first_time)),
    Row("delete", "a delete does nothing", SimulatedQueue, "delete", _by_handle),
    Row("expired handle", "an expired handle deletes", FifoQueue, "check_delete", _deletes_if(lambda message, _, now: message.is_visible(now))),  # noqa: E501
    Row("replaced handle", "an older handle deletes what is held", FifoQueue, "check_delete", _deletes_if(lambda message, handle, now: not message.is_visible(now) and handle != message.handle)),  # noqa: E501
    Row("release", "a release does nothing",
        SimulatedQueue, "change_visibility", _change_by(lambda seconds: seconds == 0)),
    Row("extension", "an extension does nothing",
        SimulatedQueue, "change_visibility", _change_by(lambda seconds: seconds > 0)),
    Row("dying", "a message never dies", SimulatedQueue, "is_exhausted", _break_exhaustion(lambda _: False)),
    Row("living", "a message dies a receive early", SimulatedQueue, "is_exhausted", _break_exhaustion(lambda message: message.receives_here + 1)),  # noqa: E501
    Row("purge", "a purge spares a message", FifoQueue, "purge", _spares),
    Row("retention", "a message is kept for ever", SimulatedQueue, "settle", _spares),
    Row("deduplication", "a repeat is a new message", FifoQueue, "send", _takes_repeat),
    Row("repeat's answer", "a repeat's answer has a new message id", FifoQueue, "send", _renames_repeat),
    Row("window", "an id is never forgotten", FifoQueue, "settle", _forgets_no_id),
    Row("sequence numbers", "a sequence number is below the one before", FifoQueue, "add", _numbers_fall),
    Row("move task", "a move task leaves a message behind", SimulatedMoveTasks, "_movable", _moves_all_but),
    Row("dead letter's group", "a dead letter changes its group", FifoQueue, "take_dead_letter", _bury_in_one_group),
    Row("counters", "a message is not counted", SimulatedQueue, "counts", _is_not_counted),
    Row("attempts", "a repeated attempt is a new receive", FifoQueue, "retry", _tries_anew),
)  # fmt: skip


def _publish_of(
    delivery: Delivery, topic: SimulatedTopic, entry: Mapping[str, Any], to: Subscription | None
) -> Publish:
    queue = None if to is None else delivery._queues.get(to.endpoint)
    return Publish(topic=topic, entry=entry, subscription=to, queue=queue)


def _topic_forgets(original: ModelRule, when: OfPublish) -> ModelRule:
    def fan_out(self: Delivery, topic: SimulatedTopic, entry: Mapping[str, Any], now: float) -> Any:
        if topic.is_fifo and when(_publish_of(self, topic, entry, None)):
            id_ = topic.deduplication_id(entry["Message"], entry.get("MessageDeduplicationId"))
            topic._published.pop(topic.deduplication_key(id_, entry["MessageGroupId"]), None)
        return original(self, topic, entry, now)

    return fan_out


def _answer(name: str) -> Callable[[ModelRule, OfPublish], ModelRule]:
    """Break a part of the answer to a publish."""

    def break_rule(original: ModelRule, when: OfPublish) -> ModelRule:
        def fan_out(self: Delivery, topic: SimulatedTopic, entry: Mapping[str, Any], now: float) -> Any:
            answer = original(self, topic, entry, now)
            if name in answer and when(_publish_of(self, topic, entry, None)):
                answer[name] = answer[name][::-1]
            return answer

        return fan_out

    return break_rule


def _copies(
    change: Callable[[SimulatedTopic, Subscription, dict[str, Any], PublishResult, str | None], tuple[Any, ...] | None],
) -> Callable[[ModelRule, OfPublish], ModelRule]:
    """Break how a copy is delivered; `change` returns what is delivered instead, None for nothing."""

    def break_rule(original: ModelRule, when: OfPublish) -> ModelRule:
        def deliver(self: Delivery, topic: SimulatedTopic, to: Subscription, entry: Any, *more: Any) -> None:
            published, id_, now = more
            if not when(_publish_of(self, topic, entry, to)):
                original(self, topic, to, entry, *more)
            elif (changed := change(topic, to, dict(entry), published, id_)) is not None:
                original(self, topic, *changed, now)

        return deliver

    return break_rule


def _other_way(_topic: SimulatedTopic, to: Subscription, entry: dict[str, Any], *more: Any) -> tuple[Any, ...]:
    raw = "false" if to.is_raw() else "true"
    return replace(to, attributes={**to.attributes, "RawMessageDelivery": raw}), entry, *more


def _without_dlq(_topic: SimulatedTopic, to: Subscription, entry: dict[str, Any], *more: Any) -> tuple[Any, ...]:
    return replace(to, attributes={**to.attributes, "RedrivePolicy": ""}), entry, *more


def _other_group(_topic: SimulatedTopic, to: Subscription, entry: dict[str, Any], *more: Any) -> tuple[Any, ...]:
    return to, {**entry, "MessageGroupId": "other"}, *more


def _without_attributes(_topic: SimulatedTopic, to: Subscription, entry: dict[str, Any], *more: Any) -> tuple[Any, ...]:
    return to, {**entry, "MessageAttributes": {}}, *more


def _other_id(
    _topic: SimulatedTopic, to: Subscription, entry: dict[str, Any], published: PublishResult, id_: str | None
) -> tuple[Any, ...]:
    return to, entry, published, None if id_ is None else f"other-{id_}"


def _whole(_topic: SimulatedTopic, to: Subscription, entry: dict[str, Any], *more: Any) -> tuple[Any, ...]:
    return to, {**entry, "Message": json.dumps(entry["Message"])}, *more


def _unwanted_too(original: ModelRule, when: OfPublish) -> ModelRule:
    def deliver_to_all(self: Delivery, topic: SimulatedTopic, entry: Mapping[str, Any], *more: Any) -> None:
        original(self, topic, entry, *more)
        for to in self._subscriptions_of(topic):
            wanted = to.wants(entry["Message"], entry.get("MessageAttributes", {}))
            if not wanted and when(_publish_of(self, topic, entry, to)):
                self._deliver(topic, to, entry, *more)

    return deliver_to_all


TOPIC_ROWS = (
    Row("deduplication", "a repeat is delivered again", Delivery, "fan_out", _topic_forgets),
    Row("answered id", "the answer has another message id", Delivery, "fan_out", _answer("MessageId")),
    Row("answered number", "the answer has another sequence number", Delivery, "fan_out", _answer("SequenceNumber")),
    Row("delivery", "nothing is delivered", Delivery, "_deliver", _copies(lambda *_: None)),
    Row("body", "another body is delivered", Delivery, "_deliver", _copies(_whole)),
    Row("envelope", "the envelope is there or not the other way round", Delivery, "_deliver", _copies(_other_way)),
    Row("group", "the copy has another group", Delivery, "_deliver", _copies(_other_group)),
    Row("copy's id", "the copy has another deduplication id", Delivery, "_deliver", _copies(_other_id)),
    Row("message attributes", "the copy has no message attributes", Delivery, "_deliver", _copies(_without_attributes)),
    Row("subscription's DLQ", "what cannot be delivered is lost", Delivery, "_deliver", _copies(_without_dlq)),
    Row("filter policy", "what nobody wants is delivered", Delivery, "_deliver_to_all", _unwanted_too),
)  # fmt: skip
