"""Mutants as emulators are known to be.

Those with a GAP id are deviations of LocalStack 4.14.0 found by experiment; the others are mistakes an implementation
can make.
"""

# ruff: noqa: E501 (a table: one row per mutant)
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sluice import limits
from sluice.simulator.hook import Simulator
from sluice.simulator.model import batches, message, refusal
from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues import fifo, moving, queue, sending, settings, sqs
from sluice.simulator.model.queues.fifo import FifoQueue
from sluice.simulator.model.queues.moving import MoveTaskState, SimulatedMoveTasks
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.queues.receiving import Receiving
from sluice.simulator.model.queues.sqs import Sqs
from sluice.simulator.model.topics import delivery, publishing, sns
from sluice.simulator.model.topics.delivery import Delivery
from sluice.simulator.model.topics.sns import Sns
from sluice.simulator.model.topics.topic import SimulatedTopic, Subscription
from tests.mutants.mutant import Mutant, after, nothing, returning

# The rules as they are.
_DEAD_LETTER_MOVE = FifoQueue.take_dead_letter
_DELIVERABLE = FifoQueue.deliverable
_REMEMBER = FifoQueue.remember
_DELETE = SimulatedQueue.delete
_REDRIVE = SimulatedQueue.take_redriven
_CANCEL = SimulatedMoveTasks.cancel
_DELIVER = SimulatedQueue._deliver
_SUBSCRIPTIONS = Sns.subscriptions_of
_PURGE = FifoQueue.purge
_CANDIDATES = FifoQueue._candidates
_KEY = FifoQueue.deduplication_key
_DELIVER_COPY = Delivery._deliver
_POLICY = settings.redrive_policy
_EXHAUSTED = SimulatedQueue.is_exhausted
_EACH = batches.handle_each
_CHECK_BATCH = batches.check


def _lose_what_is_remembered(self: FifoQueue, moved: QueuedMessage, now: float, *, id_: str) -> None:
    if all(first.message_id != moved.id for first in self._remembered.values()):
        SimulatedQueue.take_redriven(self, moved, now, id_=id_)


def _dead_letter_with_own_id(self: FifoQueue, dead: QueuedMessage, now: float, *, source_arn: str) -> None:
    SimulatedQueue.take_dead_letter(self, replace(dead, sent_at=now, retained_from=now), now, source_arn=source_arn)


def _lose_second_dead_letter(self: FifoQueue, dead: QueuedMessage, now: float, *, source_arn: str) -> None:
    ids = self.__dict__.setdefault("buried", set())
    if dead.deduplication_id not in ids:
        ids.add(dead.deduplication_id)
        _DEAD_LETTER_MOVE(self, dead, now, source_arn=source_arn)


def _dead_letter_made_of(**changes: Callable[[QueuedMessage], Any]) -> Callable[..., None]:
    """Return a `take_dead_letter` that is given a message with these fields changed."""

    def take(self: FifoQueue, dead: QueuedMessage, now: float, *, source_arn: str) -> None:
        _DEAD_LETTER_MOVE(
            self, replace(dead, **{name: value(dead) for name, value in changes.items()}), now, source_arn=source_arn
        )

    return take


def _dead_letter_with(**changes: Any) -> Callable[..., None]:
    """Return a `take_dead_letter` that changes these fields of the copy in the DLQ."""

    def take(self: FifoQueue, dead: QueuedMessage, now: float, *, source_arn: str) -> None:
        _DEAD_LETTER_MOVE(self, dead, now, source_arn=source_arn)
        for name, value in changes.items():
            setattr(self.messages[dead.id], name, value(dead) if callable(value) else value)

    return take


def _hold_back_for_any(self: FifoQueue, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
    in_flight = [held.received_at for held in self.messages.values() if held.is_in_flight(now)]
    for each in messages:
        if not each.is_visible(now) or (
            each.receives_here and any(received_at < each.received_at for received_at in in_flight)
        ):
            return
        yield each


def _free_by_a_release(self: FifoQueue, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
    of_group = list(messages)
    is_freed = any(each.receives_here and each.is_visible(now) for each in of_group[1:])
    for each in of_group:
        if each.is_visible(now):
            yield each
        elif not is_freed:
            return


def _free_by_its_head(self: FifoQueue, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
    of_group = list(messages)
    is_freed = bool(of_group) and of_group[0].receives_here > 0 and of_group[0].is_visible(now)
    for each in of_group:
        if each.is_visible(now):
            yield each
        elif not is_freed:
            return


def _whatever_is_visible(self: FifoQueue, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
    yield from (each for each in messages if each.is_visible(now))


def _free_by_a_new_message(self: FifoQueue, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
    of_group = list(messages)
    held = [each.received_at for each in of_group if each.is_in_flight(now)]
    for each in of_group:
        if each.is_visible(now) and (not held or each.sent_at > max(held)):
            yield each
        elif each.is_visible(now):
            return


def _one_per_receive(self: FifoQueue, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
    first = next(iter(messages), None)
    if first is not None and first.is_visible(now):
        yield first


def _only_while_nothing_is_in_flight(
    self: FifoQueue, messages: Iterable[QueuedMessage], now: float
) -> Iterator[QueuedMessage]:
    if not any(each.is_in_flight(now) for each in self.messages.values()):
        yield from _DELIVERABLE(self, messages, now)


def _forget_other_groups(self: FifoQueue, key: fifo.DeduplicationKey, sent: QueuedMessage, now: float) -> None:
    for other in [other for other in self._remembered if other[1] == key[1]]:
        del self._remembered[other]
    _REMEMBER(self, key, sent, now)


def _delete_and_forget(self: SimulatedQueue, handle: str, now: float) -> None:
    held = self.message_of(handle)
    _DELETE(self, handle, now)
    if isinstance(self, FifoQueue) and held is not None:
        self._remembered.pop(self.deduplication_key(held), None)


def _extend_on_repeat(
    result: QueuedMessage, self: FifoQueue, sent: QueuedMessage, now: float, **_: Any
) -> QueuedMessage:
    key = self.deduplication_key(sent)
    if result.id != sent.id:
        self._remembered[key] = replace(self._remembered[key], sent_at=now)
    return result


def _renumber(result: QueuedMessage, self: FifoQueue, sent: QueuedMessage, *_: Any, **__: Any) -> QueuedMessage:
    if result.id == sent.id:
        return result
    self._numbers += 1
    return replace(result, sequence_number=str(fifo.FIRST_SEQUENCE_NUMBER + self._numbers * fifo.SEQUENCE_STEP))


def _rename(result: QueuedMessage, self: FifoQueue, sent: QueuedMessage, *_: Any, **__: Any) -> QueuedMessage:
    return result if result.id == sent.id else replace(result, id=sent.id)


def _keep_last_body(result: QueuedMessage, self: FifoQueue, sent: QueuedMessage, *_: Any, **__: Any) -> QueuedMessage:
    if result.id in self.messages:
        self.messages[result.id].body = sent.body
    return result


def _hide_again(self: SimulatedQueue, handle: str, seconds: int, now: float) -> None:
    held = self.message_of(handle)
    if held is None:
        raise self._not_available(handle)
    held.visible_at = now + seconds


def _check_expiry_only(self: FifoQueue, held: QueuedMessage, handle: str, now: float) -> None:
    if held.is_visible(now):
        raise refusal.invalid_parameter("ReceiptHandle", handle, "The receipt handle has expired.")


def _redrive_keeping_retention(self: SimulatedQueue, moved: QueuedMessage, now: float, *, id_: str) -> None:
    _REDRIVE(self, moved, now, id_=id_)
    if id_ in self.messages:
        self.messages[id_].retained_from = moved.retained_from


def _redrive_as_it_is(self: SimulatedQueue, moved: QueuedMessage, now: float, *, id_: str) -> None:
    self.add(replace(moved, receives_here=0, visible_at=now, handle=None, source_arn=None))


def _redrive_changed(**changed: Any) -> Callable[..., None]:
    def redrive(self: SimulatedQueue, moved: QueuedMessage, now: float, *, id_: str) -> None:
        _REDRIVE(self, replace(moved, **changed), now, id_=id_)

    return redrive


def _cancel_for_ever(self: SimulatedMoveTasks, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    for task in self._tasks:
        if task.handle() == params["TaskHandle"]:
            task.status, task.next_at = "CANCELLING", float("inf")
            return {"ApproximateNumberOfMessagesMoved": task.moved}
    return _CANCEL(self, params, now)


def _fail_as(reason: str, *, of: str) -> Callable[..., None]:
    def change_reason(_: None, self: SimulatedMoveTasks, task: MoveTaskState) -> None:
        if task.failure == of:
            task.failure = reason

    return change_reason


def _list_move_tasks_oldest_first(result: dict[str, Any], *_: Any) -> dict[str, Any]:
    return {"Results": result["Results"][::-1]}


def _handle_for_ended(result: dict[str, Any], task: MoveTaskState) -> dict[str, Any]:
    return {"TaskHandle": task.handle()} | result


def _unlike_exception(result: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
    for failed in result.get("Failed", []):
        failed["Code"] += "Exception"
    return result


def _nobodys_fault(result: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
    for failed in result.get("Failed", []):
        failed["SenderFault"] = False
    return result


def _all_or_nothing(result: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
    if "Failed" in result:
        raise refusal.invalid_value(result["Failed"][0]["Message"])
    return result


def _deliver_with(**changed: Callable[[QueuedMessage, float], Any]) -> Callable[..., None]:
    def deliver(self: SimulatedQueue, given: QueuedMessage, *, visibility_seconds: int, now: float) -> None:
        before = {name: value(given, now) for name, value in changed.items()}
        _DELIVER(self, given, visibility_seconds=visibility_seconds, now=now)
        for name, value in before.items():
            setattr(given, name, value)

    return deliver


def _sticky(self: SimulatedQueue, given: QueuedMessage, *, visibility_seconds: int, now: float) -> None:
    kept: dict[str, int] = self.__dict__.setdefault("kept", {})
    longest = max(visibility_seconds, kept.get(given.id, 0))
    kept[given.id] = longest
    _DELIVER(self, given, visibility_seconds=longest, now=now)


def _deliver_only_to_first(self: Sns, of: SimulatedTopic) -> list[Subscription]:
    return _SUBSCRIPTIONS(self, of)[:1]


def _undercount(result: dict[str, str], self: SimulatedQueue, now: float) -> dict[str, str]:
    if not isinstance(self, FifoQueue):
        return result
    groups = self._groups().values()
    free = sum(len(list(self.deliverable(group, now))) for group in groups)
    return result | {"ApproximateNumberOfMessages": str(free)}


def _purge_waiting(self: FifoQueue, now: float) -> None:
    in_flight = {id_: held for id_, held in self.messages.items() if held.is_in_flight(now)}
    _PURGE(self, now)
    self.messages.update(in_flight)


def _purge_and_remember(self: FifoQueue, now: float) -> None:
    remembered = dict(self._remembered)
    _PURGE(self, now)
    self._remembered = remembered


def _interleave(self: FifoQueue, now: float) -> Iterator[QueuedMessage]:
    yield from sorted(_CANDIDATES(self, now), key=lambda each: each.number)


def _youngest_first(self: SimulatedQueue) -> list[QueuedMessage]:
    return sorted(self.messages.values(), key=lambda each: -each.number)


def _redelivered_last(self: SimulatedQueue) -> list[QueuedMessage]:
    return sorted(self.messages.values(), key=lambda each: (each.receives_here > 0, each.number))


def _with_attributes(self: FifoQueue, sent: QueuedMessage) -> fifo.DeduplicationKey:
    scope, id_ = _KEY(self, sent)
    return scope, id_ + json.dumps(dict(sent.attributes), sort_keys=True)


def _by_content_always(self: FifoQueue, sent: QueuedMessage) -> fifo.DeduplicationKey:
    is_by_content = self.attributes["ContentBasedDeduplication"] == "true"
    scope, id_ = _KEY(self, sent)
    return scope, message.content_id(sent.body) if is_by_content else id_


def _by_scope_of_today(self: FifoQueue, sent: QueuedMessage) -> fifo.DeduplicationKey:
    return (str(sent.group) if self.attributes["DeduplicationScope"] == "messageGroup" else "", _KEY(self, sent)[1])


def _publish_changed(**changed: Any) -> Callable[..., Any]:
    def deliver(self: Delivery, of: SimulatedTopic, to: Subscription, entry: Mapping[str, Any], *more: Any) -> None:
        _DELIVER_COPY(self, of, to, {**entry, **changed}, *more)

    return deliver


def _numbers_falling(added: QueuedMessage, self: FifoQueue, *_: Any) -> QueuedMessage:
    added.sequence_number = str(fifo.FIRST_SEQUENCE_NUMBER - self._numbers)
    return added


def _with_dlq_of_any_type(given: str, *, find_queue: settings.FindQueue, **more: Any) -> str:
    found = find_queue(json.loads(given).get("deadLetterTargetArn"))
    return _POLICY(given, find_queue=find_queue, **more | {"is_fifo": found is not None and "FifoQueue" in found})


def _with_any_dlq(given: str, *, is_fifo: bool, find_queue: settings.FindQueue, **more: Any) -> str:
    def find(target: str) -> Mapping[str, str]:
        return find_queue(target) or settings.defaults(is_fifo=is_fifo)

    return _POLICY(given, is_fifo=is_fifo, find_queue=find, **more)


def _silently(entries: list[Any], kind: str) -> None:
    try:
        _CHECK_BATCH(entries, kind)
    except refusal.AwsRefusal as refused:
        raise refusal.AwsRefusal(refused.code, "") from None


MUTANTS = (
    # Deviations of LocalStack 4.14.0.
    Mutant("redrive-loses-remembered", "a move task to the source loses what the source remembers", FifoQueue, "take_redriven", _lose_what_is_remembered, "GAP-01"),
    Mutant("dlq-keeps-id", "the DLQ copy keeps the deduplication id", FifoQueue, "take_dead_letter", _dead_letter_with_own_id, "GAP-02"),
    Mutant("dlq-deduplicates", "a FIFO DLQ drops a second dead letter with the same deduplication id", FifoQueue, "take_dead_letter", _lose_second_dead_letter, "GAP-02"),
    Mutant("held-back-by-any-group", "an invisible message holds back what was received after it, of all groups", FifoQueue, "deliverable", _hold_back_for_any, "GAP-03"),
    Mutant("given-back-frees-group", "a later message given back frees its group", FifoQueue, "deliverable", _free_by_a_release, "GAP-04"),
    Mutant("head-given-back-frees-group", "the first message given back frees what is behind the second", FifoQueue, "deliverable", _free_by_its_head, "GAP-05"),
    Mutant("one-message-per-id", "a queue remembers one message per id, not one per group", FifoQueue, "remember", _forget_other_groups, "GAP-06"),
    Mutant("repeat-new-number", "a repeat's answer has a new sequence number", FifoQueue, "send", after(FifoQueue, "send", _renumber), "GAP-07"),
    Mutant("attempts-ignored", "ReceiveRequestAttemptId has no effect", FifoQueue, "retry", returning(None), "GAP-08"),
    Mutant("expired-hides-again", "a visibility change with an expired handle hides the message again", SimulatedQueue, "change_visibility", _hide_again, "GAP-09"),
    Mutant("old-handle-deletes", "an older handle deletes what another consumer holds", FifoQueue, "check_delete", _check_expiry_only, "GAP-10"),
    Mutant("redrive-keeps-all", "a redriven message keeps id, time and receive count", SimulatedQueue, "take_redriven", _redrive_as_it_is, "GAP-11"),
    Mutant("redrive-keeps-retention", "a redriven message ends with its retention in the DLQ", SimulatedQueue, "take_redriven", _redrive_keeping_retention),
    Mutant("no-replay", "a replay policy has no effect", SimulatedTopic, "messages_to_replay", returning([])),
    Mutant("any-subject", "a subject may be anything", publishing, "_is_subject", returning(value=True), "GAP-64"),
    Mutant("any-attribute-name", "a message attribute may have any name", message, "_check_attribute_name", nothing, "GAP-62"),
    Mutant("any-destination", "a move task takes any destination that exists", SimulatedMoveTasks, "_check_destination", lambda self, _source, arn: self._find("DestinationArn", arn), "GAP-12"),
    Mutant("any-rate", "a move task takes any rate", moving, "RATE_MAX", 10**9, "GAP-12", (SimulatedMoveTasks, "start")),
    Mutant("any-list-length", "any number of move tasks can be asked for", moving, "RESULTS_MAX", 10**9, "GAP-12", (SimulatedMoveTasks, "list")),
    Mutant("cancel-for-ever", "a finished task can be cancelled and never ends", SimulatedMoveTasks, "cancel", _cancel_for_ever, "GAP-14"),
    Mutant("moves-in-flight", "a move task takes what a consumer holds", SimulatedMoveTasks, "_movable", lambda _self, source, _now: source.in_order(), "GAP-15"),
    Mutant("deleted-other-reason", "a task whose destination is gone fails for another reason", SimulatedMoveTasks, "_step", after(SimulatedMoveTasks, "_step", _fail_as("QueueDoesNotExist", of="AWS.SimpleQueueService.NonExistentQueue")), "GAP-18"),
    Mutant("any-attribute-value", "CreateQueue takes any value", settings, "_is_allowed", returning(value=True), "GAP-19"),
    Mutant("any-redrive-policy", "a redrive policy is not read", settings, "redrive_policy", lambda given, **_: given, "GAP-20"),
    Mutant("any-receive-count", "maxReceiveCount may be anything that is a number", limits, "MAX_RECEIVE_COUNT_MAX", 10**9, "GAP-20", (settings, "redrive_policy")),
    Mutant("dlq-of-any-type", "a FIFO queue may have a standard DLQ", settings, "redrive_policy", _with_dlq_of_any_type, "GAP-22"),
    Mutant("dlq-need-not-exist", "a DLQ need not exist", settings, "redrive_policy", _with_any_dlq, "GAP-22"),
    Mutant("allow-policy-not-enforced", "RedriveAllowPolicy has no effect", settings, "_allows", returning(value=True), "GAP-23"),
    Mutant("any-allow-policy", "RedriveAllowPolicy is not read", settings, "_check_allow_policy", nothing, "GAP-23"),
    Mutant("any-visibility", "receives and changes take any visibility timeout", limits, "VISIBILITY_TIMEOUT_SECONDS_MAX", 10**9, "GAP-25", (Receiving, "receive")),
    Mutant("any-number-of-attributes", "a message may have any number of attributes", limits, "MESSAGE_ATTRIBUTES_MAX", 10**9, "GAP-26", (message, "check_attributes")),
    Mutant("batch-refused-silently", "a batch that is refused as a whole gets no text", batches, "check", _silently, "GAP-27"),
    Mutant("failed-exception-code", "failed entries have the error's name as code", batches, "handle_each", after(batches, "handle_each", _unlike_exception), "GAP-28"),
    Mutant("failed-nobodys-fault", "failed entries are nobody's fault", batches, "handle_each", after(batches, "handle_each", _nobodys_fault), "GAP-28"),
    Mutant("any-id", "group and deduplication ids may be anything", sending, "check_id", nothing, "GAP-29"),
    Mutant("kept-for-ever", "retention has no effect", SimulatedQueue, "settle", nothing, "GAP-30"),
    Mutant("name-free-at-once", "a queue's name can be used again at once", sqs, "_NAME_FREE_AFTER_SECONDS", 0, "GAP-31", (Sqs, "_delete_queue")),
    Mutant("purge-at-will", "a queue can be purged twice in a minute", queue, "PURGE_INTERVAL_SECONDS", 0, "GAP-32", (SimulatedQueue, "purge")),
    Mutant("topic-forgets", "topics do not deduplicate", SimulatedTopic, "earlier_publish", returning(None), "GAP-36"),
    Mutant("any-protocol", "a FIFO topic takes any subscriber", Sns, "_check_endpoint", nothing, "GAP-38"),
    Mutant("publish-any-id", "publishes take any id", publishing, "check_id", nothing, "GAP-39"),
    Mutant("throughput-scope-ignored", "FifoThroughputScope has no effect", SimulatedTopic, "deduplication_key", lambda _self, id_, _group: ("", id_), "GAP-40"),
    Mutant("any-topic-attribute", "topic attributes are not read", sns, "check_attribute", nothing, "GAP-41"),
    Mutant("topic-size-fixed", "a topic's MaximumMessageSize has no effect", SimulatedTopic, "bytes_max", returning(262_144), "GAP-42"),
    Mutant("subscriptions-not-counted", "SubscriptionsConfirmed is always 0", Sns, "_get_topic_attributes", after(Sns, "_get_topic_attributes", lambda result, *_: {"Attributes": result["Attributes"] | {"SubscriptionsConfirmed": "0"}}), "GAP-43"),
    Mutant("dlq-keeps-time", "a FIFO DLQ keeps the time of sending", FifoQueue, "take_dead_letter", _dead_letter_with(sent_at=lambda dead: dead.sent_at), "GAP-46"),
    Mutant("any-name", "queue names may have any character", settings, "check_name", nothing, "GAP-48"),
    # Groups and order.
    Mutant("groups-do-not-block", "whatever is visible is delivered", FifoQueue, "deliverable", _whatever_is_visible),
    Mutant("any-group-blocks-all", "a message in flight blocks every group", FifoQueue, "deliverable", _only_while_nothing_is_in_flight),
    Mutant("new-message-frees-group", "a message sent to a blocked group is delivered", FifoQueue, "deliverable", _free_by_a_new_message),
    Mutant("one-of-a-group", "a receive brings one message of a group", FifoQueue, "deliverable", _one_per_receive),
    Mutant("groups-interleaved", "a receive mixes groups", FifoQueue, "_candidates", _interleave),
    Mutant("youngest-first", "the youngest message comes first", SimulatedQueue, "in_order", _youngest_first),
    Mutant("redelivered-last", "a redelivered message goes behind the others", SimulatedQueue, "in_order", _redelivered_last),
    Mutant("numbers-fall", "sequence numbers fall", FifoQueue, "add", after(FifoQueue, "add", _numbers_falling)),
    Mutant("poll-sleeps", "a long poll does not notice a delete", Simulator, "_another_thread_calls", returning(value=False)),
    # Deduplication.
    Mutant("window-extended", "a repeat extends the window", FifoQueue, "send", after(FifoQueue, "send", _extend_on_repeat)),
    Mutant("window-for-ever", "ids are never forgotten", FifoQueue, "is_remembered", returning(value=True)),
    Mutant("window-of-a-minute", "ids are forgotten after a minute", FifoQueue, "is_remembered", lambda _self, first, now: now < first.sent_at + 60),
    Mutant("delete-forgets", "a delete forgets the id", SimulatedQueue, "delete", _delete_and_forget),
    Mutant("purge-remembers", "a purge remembers ids", FifoQueue, "purge", _purge_and_remember),
    Mutant("scope-always-queue", "DeduplicationScope messageGroup has no effect", FifoQueue, "deduplication_key", lambda _self, sent: ("", str(sent.deduplication_id))),
    Mutant("scope-always-group", "every queue deduplicates per group", FifoQueue, "deduplication_key", lambda _self, sent: (str(sent.group), str(sent.deduplication_id))),
    Mutant("scope-changes-at-once", "a changed DeduplicationScope works at once", FifoQueue, "deduplication_key", _by_scope_of_today),
    Mutant("attributes-count", "attributes are part of the content", FifoQueue, "deduplication_key", _with_attributes),
    Mutant("content-beats-id", "content goes before an explicit id", FifoQueue, "deduplication_key", _by_content_always),
    Mutant("repeat-new-id", "a repeat's answer has a new message id", FifoQueue, "send", after(FifoQueue, "send", _rename)),
    Mutant("last-body-wins", "a repeat replaces the first body", FifoQueue, "send", after(FifoQueue, "send", _keep_last_body)),
    # Visibility.
    Mutant("late-delete-works", "an expired handle deletes", FifoQueue, "check_delete", nothing),
    Mutant("count-stays", "ApproximateReceiveCount stays 1", SimulatedQueue, "_deliver", _deliver_with(receives=lambda *_: 1)),
    Mutant("first-time-moves", "the time of the first receive moves", SimulatedQueue, "_deliver", _deliver_with(first_received_at=lambda _given, now: now)),
    Mutant("visibility-sticks", "a message keeps its longest visibility timeout", SimulatedQueue, "_deliver", _sticky),
    Mutant("delay-not-retroactive", "a FIFO queue's new delay is for later messages only", FifoQueue, "change_attributes", SimulatedQueue.change_attributes),
    Mutant("blocked-not-counted", "blocked messages are not counted as visible", SimulatedQueue, "counts", after(SimulatedQueue, "counts", _undercount)),
    Mutant("purge-spares-in-flight", "a purge spares what is in flight", FifoQueue, "purge", _purge_waiting),
    # Dead letters and move tasks.
    Mutant("one-receive-more", "a message gets one receive more than allowed", SimulatedQueue, "is_exhausted", lambda self, held: _EXHAUSTED(self, replace(held, receives_here=held.receives_here - 1))),
    Mutant("one-receive-less", "a message gets one receive less than allowed", SimulatedQueue, "is_exhausted", lambda self, held: _EXHAUSTED(self, replace(held, receives_here=held.receives_here + 1))),
    Mutant("never-dead", "nothing is dead-lettered", SimulatedQueue, "is_exhausted", returning(value=False)),
    Mutant("dlq-new-message-id", "the DLQ copy has a new message id", FifoQueue, "take_dead_letter", _dead_letter_made_of(id=lambda dead: "new-" + dead.id)),
    Mutant("dlq-one-group", "the DLQ puts everything into one group", FifoQueue, "take_dead_letter", _dead_letter_made_of(group=lambda _dead: "dead")),
    Mutant("dlq-loses-attributes", "the DLQ copy has no message attributes", FifoQueue, "take_dead_letter", _dead_letter_made_of(attributes=lambda _dead: {})),
    Mutant("dlq-counts-anew", "the DLQ copy's receive count begins again", FifoQueue, "take_dead_letter", _dead_letter_made_of(receives=lambda _dead: 0)),
    Mutant("dlq-forgets-source", "the DLQ copy does not say where it came from", FifoQueue, "take_dead_letter", _dead_letter_with(source_arn=None)),
    Mutant("moves-youngest-first", "a move task takes the youngest first", SimulatedMoveTasks, "_movable", lambda _self, source, now: [held for held in reversed(source.in_order()) if held.is_visible(now)]),
    Mutant("redrive-loses-group", "a redriven message changes its group", SimulatedQueue, "take_redriven", _redrive_changed(group="redriven")),
    Mutant("any-move-source", "anything can be moved from", SimulatedMoveTasks, "_check_source", nothing),
    Mutant("tasks-oldest-first", "move tasks are listed the oldest first", SimulatedMoveTasks, "list", after(SimulatedMoveTasks, "list", _list_move_tasks_oldest_first)),
    Mutant("ended-task-handle", "an ended task still shows its handle", MoveTaskState, "as_result", after(MoveTaskState, "as_result", _handle_for_ended)),
    # Batches.
    Mutant("batch-all-or-nothing", "one bad entry fails the batch", batches, "handle_each", after(batches, "handle_each", _all_or_nothing)),
    Mutant("batch-reversed", "a batch is taken backwards", batches, "handle_each", lambda entries, handle: _EACH(entries[::-1], handle)),
    Mutant("batch-unchecked", "a batch is not checked as a whole", batches, "check", nothing),
    # Fan-out.
    Mutant("first-subscriber-only", "only the first subscriber gets anything", Sns, "subscriptions_of", _deliver_only_to_first),
    Mutant("never-raw", "raw delivery has no effect", Subscription, "is_raw", returning(value=False)),
    Mutant("always-raw", "there is not an envelope", Subscription, "is_raw", returning(value=True)),
    Mutant("filter-ignored", "filter policies have no effect", Subscription, "wants", returning(value=True)),
    Mutant("undelivered-lost", "what cannot be delivered is lost", Subscription, "dead_letter_arn", returning(None)),
    Mutant("publish-one-group", "a topic delivers everything in one group", Delivery, "_deliver", _publish_changed(MessageGroupId="g")),
    Mutant("publish-loses-attributes", "raw delivery loses attributes", Delivery, "_deliver", _publish_changed(MessageAttributes={})),
    Mutant("policy-not-enforced", "a topic may send to every queue", delivery, "may_send", returning(value=True)),
    Mutant("topic-batch-unchecked", "a batch of publishes is not checked", sns, "check_batch", nothing),
)  # fmt: skip
