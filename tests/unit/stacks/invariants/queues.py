"""Queues, their DLQs and subscriptions: what there is, of what type, and what is joined to what."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from sluice import naming
from sluice.declaration import Environment, Removal
from tests.unit.stacks.invariants.found import KEY, LOG_GROUP, QUEUE, SUBSCRIPTION, TOPIC, Found, of_kind, properties
from tests.unit.stacks.synthesis import MESSAGING, Resource, Template

_RETENTION_SECONDS = 345_600  # SQS's own, where a template says nothing


def _dead_letter_target(resource: Resource) -> str | None:
    target: str | None = resource.properties.get("RedrivePolicy", {}).get("deadLetterTargetArn")
    return target


def _names(found: Found, environment: Environment) -> Iterator[str]:
    names = Counter(one.name for one in of_kind(found, QUEUE))
    for name, count in names.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,75}\.fifo", name):
            yield f"{name} is no name for a FIFO queue"
        if count > 1:
            yield f"{count} queues are called {name}"
    expected = {
        name(environment, consumer)
        for consumer in environment.consumers
        for name in (naming.queue_name, naming.dead_letter_queue_name, naming.undelivered_queue_name)
    }
    for name in sorted(expected ^ set(names)):
        yield f"{name} is {'missing' if name in expected else 'unknown'}"


def _fifo(found: Found, environment: Environment) -> Iterator[str]:
    for queue in of_kind(found, QUEUE):
        kind = [queue.properties.get(key) for key in ("FifoQueue", "DeduplicationScope", "FifoThroughputLimit")]
        if kind != [True, "messageGroup", "perMessageGroupId"]:
            yield f"{queue.name} is not FIFO for high throughput"
    topic = properties(found, TOPIC, naming.topic_name(environment))
    if [topic.get("FifoTopic"), topic.get("FifoThroughputScope")] != [True, "MessageGroup"]:
        yield "the topic is not FIFO for high throughput"
    if any(one.properties.get("ContentBasedDeduplication") for one in (*of_kind(found, QUEUE), *of_kind(found, TOPIC))):
        yield "something deduplicates by content"


def _dead_letter_queues(found: Found, environment: Environment) -> Iterator[str]:
    queues = {f"Arn({one.name})": one for one in of_kind(found, QUEUE)}
    sources = Counter(map(_dead_letter_target, (*queues.values(), *of_kind(found, SUBSCRIPTION))))
    for arn, queue in queues.items():
        target = _dead_letter_target(queue)
        if arn in sources and target is None:
            continue
        dead_letters = queues.get(target or "")
        if dead_letters is None:
            yield f"{queue.name} has no DLQ"
        else:
            yield from _joined(queue, dead_letters, source_count=sources[target])


def _joined(queue: Resource, dead_letters: Resource, *, source_count: int) -> Iterator[str]:
    if source_count > 1:
        yield f"{dead_letters.name} is the DLQ of {source_count}"
    if dead_letters.properties.get("FifoQueue") != queue.properties.get("FifoQueue"):
        yield f"{dead_letters.name} is not of the type of {queue.name}"
    kept, needed = (one.properties.get("MessageRetentionPeriod", _RETENTION_SECONDS) for one in (dead_letters, queue))
    if kept < needed:
        yield f"{dead_letters.name} keeps messages for a shorter time than {queue.name}"
    allowed = dead_letters.properties.get("RedriveAllowPolicy", {})
    arns = allowed.get("sourceQueueArns", [])
    if (
        allowed.get("redrivePermission") != "byQueue"
        or len(arns) != 1
        or not re.fullmatch(rf"arn:[a-z-]+:sqs:[a-z0-9-]+:.+:{re.escape(queue.name)}", str(arns[0]))
    ):
        yield f"{dead_letters.name} does not take messages from {queue.name} alone"


def _declared_queues(found: Found, environment: Environment) -> Iterator[str]:
    for consumer in environment.consumers:
        kept = {"MessageRetentionPeriod": consumer.dead_letter_retention_seconds}
        expected: dict[str, dict[str, int]] = {
            naming.dead_letter_queue_name(environment, consumer): kept,
            naming.undelivered_queue_name(environment, consumer): kept,
            naming.queue_name(environment, consumer): {
                "MessageRetentionPeriod": consumer.message_retention_seconds,
                "VisibilityTimeout": consumer.visibility_timeout_seconds,
                "ReceiveMessageWaitTimeSeconds": 20,
                "maxReceiveCount": consumer.max_attempts,
            },
        }
        for name, numbers in expected.items():
            queue = properties(found, QUEUE, name)
            seen = {**queue, **queue.get("RedrivePolicy", {})}
            yield from (f"{name} has {key} {seen.get(key)}" for key in numbers if seen.get(key) != numbers[key])


def _subscriptions(found: Found, environment: Environment) -> Iterator[str]:
    subscriptions = [one for one in of_kind(found, SUBSCRIPTION) if one.stack == MESSAGING]
    by_endpoint = {one.properties["Endpoint"]: one for one in subscriptions}
    targets = Counter(_dead_letter_target(one) for one in (*subscriptions, *of_kind(found, QUEUE)))
    if len(subscriptions) != len(environment.consumers):
        yield f"there are {len(subscriptions)} subscriptions"
    for consumer in environment.consumers:
        subscription = by_endpoint.get(f"Arn({naming.queue_name(environment, consumer)})")
        if subscription is None:
            yield f"{consumer.name} is not subscribed"
            continue
        target = _dead_letter_target(subscription)
        if target != f"Arn({naming.undelivered_queue_name(environment, consumer)})":
            yield f"what SNS cannot deliver to {consumer.name} goes to {target}"
        if targets[target] > 1:
            yield f"what SNS cannot deliver to {consumer.name} is mixed with something else"
        if subscription.properties.get("RawMessageDelivery") is not True:
            yield f"{consumer.name} gets envelopes"
        filters = None if consumer.filter_policy is None else dict(consumer.filter_policy)
        if subscription.properties.get("FilterPolicy") != filters:
            yield f"{consumer.name} is filtered otherwise than declared"


def _retention(found: Found, environment: Environment) -> Iterator[str]:
    fate = {
        Removal.DESTROY: ("Delete", "Delete"),
        Removal.RETAIN: ("RetainExceptOnCreate", "Retain"),
    }[environment.removal]
    operators = naming.operator_topic_name(environment)
    for one in found:
        is_stateful = one.kind in (TOPIC, QUEUE, KEY, LOG_GROUP) and one.name != operators
        if is_stateful and (one.deletion_policy, one.update_replace_policy) != fate:
            yield f"{one.name} does not go or stay as declared"
    for group in of_kind(found, LOG_GROUP):
        if group.properties.get("RetentionInDays") != environment.log_retention_days:
            yield f"{group.name} is not kept for the days declared"


def exports_of_consumers(templates: Mapping[str, Template]) -> Iterator[str]:
    """Yield what forbids to remove a consumer in one deployment: what another stack imports cannot be deleted."""
    exports = [
        output["Export"]["Name"]
        for template in templates.values()
        for output in template.get("Outputs", {}).values()
        if "Export" in output
    ]
    for name in exports:
        if not re.search(r":ExportsOutputFnGetAttFanoutKeys", name):
            yield f"{name} is exported"


CHECKS = (_names, _fifo, _dead_letter_queues, _declared_queues, _subscriptions, _retention)
