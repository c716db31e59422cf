"""Mutants of every rule of a queue: its attributes, its groups, its window, visibility, counters and tags."""

# ruff: noqa: E501 (a table: one row per mutant)
from collections.abc import Callable, Mapping
from typing import Any

from sluice import limits
from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues import settings, sqs
from sluice.simulator.model.queues.fifo import FifoQueue
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.queues.sqs import Sqs
from tests.mutants.mutant import Mutant, after, nothing, returning, without

_SECONDS = SimulatedQueue.seconds
_CHANGE = SimulatedQueue.change_visibility
_CHANGE_ATTRIBUTES = SimulatedQueue.change_attributes
_SETTLE = SimulatedQueue.settle
_DELETE = SimulatedQueue.delete
_HELD = SimulatedQueue.message_of
_CHECK = settings.check
_CREATE = Sqs._create_queue
_LIST = Sqs._list_queues


def _always(**seconds: int) -> Callable[[SimulatedQueue, str], int]:
    return lambda self, attribute: seconds.get(attribute, _SECONDS(self, attribute))


def _only_longer(self: SimulatedQueue, handle: str, seconds: int, now: float) -> None:
    if seconds:
        _CHANGE(self, handle, seconds, now)


def _only_to_zero(self: SimulatedQueue, handle: str, seconds: int, now: float) -> None:
    if not seconds:
        _CHANGE(self, handle, seconds, now)


def _add_seconds(self: SimulatedQueue, handle: str, seconds: int, now: float) -> None:
    """Add the seconds to what is left."""
    held = self.message_of(handle)
    before = None if held is None else held.visible_at
    _CHANGE(self, handle, seconds, now)
    if held is not None and before is not None and seconds:
        held.visible_at = before + seconds


def _not_below(self: SimulatedQueue, handle: str, seconds: int, now: float) -> None:
    held = self.message_of(handle)
    before = now if held is None else held.visible_at
    _CHANGE(self, handle, seconds, now)
    if held is not None and held.is_in_flight(now):
        held.visible_at = max(before, held.visible_at) if seconds else now


def _settle_sparing_in_flight(self: SimulatedQueue, now: float) -> None:
    in_flight = {id_: held for id_, held in self.messages.items() if held.is_in_flight(now)}
    _SETTLE(self, now)
    self.messages.update(in_flight)


def _settle_by_first_receive(self: SimulatedQueue, now: float) -> None:
    for held in self.messages.values():
        if held.first_received_at is not None:
            held.retained_from = held.first_received_at
    _SETTLE(self, now)


def _silent_delete(self: SimulatedQueue, handle: str, now: float) -> None:
    held = self.message_of(handle)
    if held is not None and not held.is_in_flight(now):
        return
    _DELETE(self, handle, now)


def _any_handle(self: SimulatedQueue, handle: str) -> QueuedMessage | None:
    try:
        return _HELD(self, handle)
    except Exception:
        return None


def _keeping(*names: str) -> Callable[..., None]:
    """Return a change of attributes that leaves these as they were."""

    def change(self: SimulatedQueue, attributes: dict[str, str], now: float) -> None:
        before = {name: self.attributes[name] for name in names if name in self.attributes}
        _CHANGE_ATTRIBUTES(self, {**attributes, **before}, now)

    return change


def _same_modified_at(self: SimulatedQueue, attributes: dict[str, str], now: float) -> None:
    before = self.modified_at
    _CHANGE_ATTRIBUTES(self, attributes, now)
    self.modified_at = before


def _onto_defaults(wanted: Mapping[str, str], *, current: Mapping[str, str], **more: Any) -> dict[str, str]:
    return _CHECK(wanted, current=settings.defaults(is_fifo="FifoQueue" in current), **more)


def _create_changed(**changed: Any) -> Callable[..., Any]:
    def create(self: Sqs, params: Mapping[str, Any], now: float) -> dict[str, Any]:
        return _CREATE(self, {**params, **changed}, now)

    return create


def _without_prefix(self: Sqs, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    return _LIST(self, {name: value for name, value in params.items() if name != "QueueNamePrefix"}, now)


def _one_page(self: Sqs, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    return {name: value for name, value in _LIST(self, params, now).items() if name != "NextToken"}


def _counting(**counters: Callable[[dict[str, str]], str]) -> Callable[..., dict[str, str]]:
    def change(result: dict[str, str], *_: Any) -> dict[str, str]:
        return result | {f"ApproximateNumberOfMessages{name}": count(result) for name, count in counters.items()}

    return change


def _sum_of(*names: str) -> Callable[[dict[str, str]], str]:
    return lambda counts: str(sum(int(counts[f"ApproximateNumberOfMessages{name}"]) for name in names))


def _default(**changed: str) -> Callable[..., dict[str, str]]:
    return lambda result, *_, **__: {name: changed.get(name, value) for name, value in result.items()}


def _replacing_tags(self: Sqs, params: Mapping[str, Any], _now: float) -> dict[str, Any]:
    self._named_queue(params).tags = dict(params["Tags"])
    return {}


def _removing_all_tags(self: Sqs, params: Mapping[str, Any], _now: float) -> dict[str, Any]:
    self._named_queue(params).tags = {}
    return {}


def _keep_tags(self: Sqs, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Give a new queue the tags of a deleted one of its name."""
    kept: dict[str, dict[str, str]] = self.__dict__.setdefault("kept_tags", {})
    answer = _CREATE(self, params, now)
    tags = self._queue_by_name(params["QueueName"]).tags
    kept.setdefault(params["QueueName"], tags)
    tags.update(kept[params["QueueName"]])
    return answer


class _Everything(set[str]):
    """Has every name."""

    def __contains__(self, _: object) -> bool:
        return True


_NONE: Callable[..., str] = returning("0")
_ADD_PERMISSION = (Sqs, "_add_permission")
_REMOVE_PERMISSION = (Sqs, "_remove_permission")
MUTANTS = (
    # Attributes that have no effect.
    Mutant("default-visibility-fixed", "a queue's VisibilityTimeout has no effect", SimulatedQueue, "seconds", _always(VisibilityTimeout=30)),
    Mutant("retention-fixed", "MessageRetentionPeriod has no effect", SimulatedQueue, "seconds", _always(MessageRetentionPeriod=345_600)),
    Mutant("size-fixed", "MaximumMessageSize has no effect", SimulatedQueue, "seconds", _always(MaximumMessageSize=limits.MESSAGE_BYTES_MAX)),
    Mutant("delay-fixed", "DelaySeconds has no effect", SimulatedQueue, "seconds", _always(DelaySeconds=0)),
    Mutant("wait-fixed", "ReceiveMessageWaitTimeSeconds has no effect", Sqs, "wait_seconds", lambda _self, params: int(params.get("WaitTimeSeconds", 0))),
    Mutant("wait-of-the-queue", "a receive's own WaitTimeSeconds has no effect", Sqs, "wait_seconds", lambda self, params: self._named_queue(params).seconds("ReceiveMessageWaitTimeSeconds")),
    Mutant("never-waits", "no receive waits", Sqs, "wait_seconds", returning(0)),
    Mutant("set-visibility-ignored", "a changed VisibilityTimeout has no effect", SimulatedQueue, "change_attributes", _keeping("VisibilityTimeout")),
    Mutant("set-retention-ignored", "a changed MessageRetentionPeriod has no effect", SimulatedQueue, "change_attributes", _keeping("MessageRetentionPeriod")),
    Mutant("set-size-ignored", "a changed MaximumMessageSize has no effect", SimulatedQueue, "change_attributes", _keeping("MaximumMessageSize")),
    Mutant("set-wait-ignored", "a changed ReceiveMessageWaitTimeSeconds has no effect", SimulatedQueue, "change_attributes", _keeping("ReceiveMessageWaitTimeSeconds")),
    Mutant("set-delay-ignored", "a changed DelaySeconds has no effect", SimulatedQueue, "change_attributes", _keeping("DelaySeconds")),
    Mutant("set-content-based-ignored", "a changed ContentBasedDeduplication has no effect", SimulatedQueue, "change_attributes", _keeping("ContentBasedDeduplication")),
    Mutant("set-redrive-ignored", "a changed RedrivePolicy has no effect", SimulatedQueue, "change_attributes", _keeping("RedrivePolicy")),
    Mutant("set-attributes-ignored", "changed attributes have no effect", FifoQueue, "change_attributes", nothing),
    Mutant("set-attributes-resets", "attributes that are not named go back to their defaults", settings, "check", _onto_defaults),
    Mutant("modified-time-stays", "LastModifiedTimestamp does not move", SimulatedQueue, "change_attributes", _same_modified_at, "GAP-83"),
    Mutant("default-visibility-60", "the default VisibilityTimeout is a minute", settings, "defaults", after(settings, "defaults", _default(VisibilityTimeout="60"))),
    Mutant("default-retention-14-days", "the default MessageRetentionPeriod is fourteen days", settings, "defaults", after(settings, "defaults", _default(MessageRetentionPeriod="1209600"))),
    Mutant("default-by-content", "ContentBasedDeduplication is on by default", settings, "defaults", after(settings, "defaults", _default(ContentBasedDeduplication="true"))),
    Mutant("default-scope-group", "DeduplicationScope is messageGroup by default", settings, "defaults", after(settings, "defaults", _default(DeduplicationScope="messageGroup"))),
    Mutant("default-unencrypted", "a queue is not encrypted by default", settings, "defaults", after(settings, "defaults", _default(SqsManagedSseEnabled="false"))),
    # Attributes that are not checked.
    Mutant("throughput-of-any-scope", "perMessageGroupId needs no scope", settings, "check", without(settings, "check", "FifoThroughputLimit perMessageGroupId", instead=settings.defaults(is_fifo=True))),
    Mutant("two-encryptions", "SQS's key and one's own go together", settings, "check", without(settings, "check", "one type of server-side encryption", instead=settings.defaults(is_fifo=True))),
    Mutant("unknown-attribute-set", "an unknown attribute is taken", settings, "_check_attribute", without(settings, "_check_attribute", "Unknown Attribute")),
    Mutant("fifo-attribute-of-standard", "a standard queue takes the attributes of FIFO queues", settings, "_check_attribute", without(settings, "_check_attribute", "only when FifoQueue")),
    Mutant("fifo-becomes-standard", "a FIFO queue can become a standard one", settings, "_check_attribute", without(settings, "_check_attribute", "Modifying queue type")),
    Mutant("unknown-attribute-read", "an unknown attribute can be read", sqs, "_GETTABLE", _Everything(), read_by=(Sqs, "_get_queue_attributes")),
    Mutant("suffix-not-needed", "a FIFO queue's name needs no suffix", settings, "check_name", without(settings, "check_name", "must end with")),
    # Queues.
    Mutant("created-again", "a queue can be made again with other attributes", Sqs, "_repeat_creation", staticmethod(lambda existing, _requested: {"QueueUrl": existing.url})),
    Mutant("created-without-tags", "tags given at the creation are lost", Sqs, "_create_queue", _create_changed(tags={})),
    Mutant("unknown-queue-made", "GetQueueAttributes of an unknown queue is empty", Sqs, "_get_queue_attributes", without(Sqs, "_get_queue_attributes", "NonExistentQueue", instead={})),
    Mutant("prefix-ignored", "queues are not listed by prefix", Sqs, "_list_queues", _without_prefix),
    Mutant("queues-on-one-page", "a page of queues has no token", Sqs, "_list_queues", _one_page),
    Mutant("tags-replaced", "TagQueue replaces all tags", Sqs, "_tag_queue", _replacing_tags),
    Mutant("tags-lost", "TagQueue has no effect", Sqs, "_tag_queue", returning({})),
    Mutant("untags-all", "UntagQueue removes every tag", Sqs, "_untag_queue", _removing_all_tags),
    Mutant("untags-nothing", "UntagQueue has no effect", Sqs, "_untag_queue", returning({})),
    Mutant("queue-keeps-tags", "a queue that is made again has the tags it had", Sqs, "_create_queue", _keep_tags),
    Mutant("permission-lost", "AddPermission of a queue has no effect", *_ADD_PERMISSION, returning({})),
    Mutant("permission-kept", "RemovePermission of a queue has no effect", *_REMOVE_PERMISSION, returning({})),
    Mutant("permission-twice", "two permissions of a queue may have one label", *_ADD_PERMISSION, without(*_ADD_PERMISSION, "Already exists", instead={})),
    Mutant("permission-removed-unknown", "an unknown permission of a queue can be removed", *_REMOVE_PERMISSION, without(*_REMOVE_PERMISSION, "can't find label", instead={})),
    Mutant("purges-nothing", "a purge has no effect", FifoQueue, "purge", nothing),
    # Window and groups.
    Mutant("window-of-four-minutes", "ids are forgotten after four minutes", FifoQueue, "is_remembered", lambda _self, first, now: now < first.sent_at + 240),
    Mutant("looks-at-one", "only the oldest message of a queue is looked at", limits, "FIFO_WINDOW_MESSAGES", 1, read_by=(FifoQueue, "_groups")),
    Mutant("one-in-flight", "a queue has one message in flight", limits, "IN_FLIGHT_MESSAGES_MAX", 1, read_by=(SimulatedQueue, "in_flight_room")),
    # Visibility.
    Mutant("extension-ignored", "a visibility timeout cannot be extended", SimulatedQueue, "change_visibility", _only_to_zero),
    Mutant("release-ignored", "a message cannot be given back", SimulatedQueue, "change_visibility", _only_longer),
    Mutant("extension-added", "an extension counts from the end of the last timeout", SimulatedQueue, "change_visibility", _add_seconds),
    Mutant("shortening-ignored", "a visibility timeout cannot be shortened", SimulatedQueue, "change_visibility", _not_below),
    Mutant("extension-for-ever", "a message may be held longer than twelve hours", limits, "VISIBILITY_TIMEOUT_SECONDS_MAX", 10**9, read_by=(SimulatedQueue, "change_visibility")),
    Mutant("late-delete-silent", "a late delete is ignored without an error", SimulatedQueue, "delete", _silent_delete),
    Mutant("any-handle", "what is no receipt handle is taken for an old one", SimulatedQueue, "message_of", _any_handle),
    Mutant("retention-spares-in-flight", "retention spares what is in flight", SimulatedQueue, "settle", _settle_sparing_in_flight),
    Mutant("retention-from-first-receive", "retention begins with the first receive", SimulatedQueue, "settle", _settle_by_first_receive),
    # Counters.
    Mutant("in-flight-counted-as-visible", "what is in flight counts as visible too", SimulatedQueue, "counts", after(SimulatedQueue, "counts", lambda result, *_: result | {"ApproximateNumberOfMessages": _sum_of("", "NotVisible")(result)})),
    Mutant("in-flight-not-counted", "what is in flight is not counted", SimulatedQueue, "counts", after(SimulatedQueue, "counts", _counting(NotVisible=_NONE))),
    Mutant("delayed-not-counted", "what is delayed is not counted", SimulatedQueue, "counts", after(SimulatedQueue, "counts", _counting(Delayed=_NONE))),
    Mutant("delayed-counted-in-flight", "what is delayed counts as in flight", SimulatedQueue, "counts", after(SimulatedQueue, "counts", _counting(NotVisible=_sum_of("NotVisible", "Delayed"), Delayed=_NONE))),
)  # fmt: skip
