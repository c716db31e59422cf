"""Checks before a worker receives its first message: the live queue must be the declared one.

A worker relies on the declaration: how long a message stays hidden, which attempt is the last, how long the inbox has
to remember. These would silently be wrong if somebody changed the queue by hand, or if it was not deployed after a
change of the declaration.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html (names; FifoQueue
is missing in the response unless it is true),
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html (a FIFO queue's
DLQ is FIFO, and a message's retention starts again in it) (read 2026-11-21).
"""

import json
from collections.abc import Iterator, Mapping

from sluice.declaration import Consumer

_NEXT = "deploy the environment's stacks, or declare it so"


def faults(
    declared: Consumer,
    attributes: Mapping[str, str],
    dead_letters: Mapping[str, str] | None,
    *,
    bundle_events_max: int = 1,
) -> list[str]:
    """Return a sentence for each way in which the live queue would break its worker; empty if the worker may start.

    Args:
        declared: the consumer of the queue.
        attributes: all attributes of the queue.
        dead_letters: all attributes of its DLQ; None if they may not be read, and then they count as declared.
        bundle_events_max: as the consumer's topic declares it.
    """
    return [
        *_visibility(declared, attributes),
        *_redrive(declared, attributes, bundle_events_max),
        *_order(declared, attributes, dead_letters),
        *_retention(declared, attributes, dead_letters),
    ]


def _visibility(declared: Consumer, attributes: Mapping[str, str]) -> Iterator[str]:
    seen, allowed = attributes.get("VisibilityTimeout"), declared.visibility_timeout_seconds
    if seen != str(allowed):
        yield (
            f"the queue's VisibilityTimeout is {seen}, allowed is visibility_timeout_seconds ({allowed}), by which its"
            f" workers hold a message; {_NEXT}"
        )


def _redrive(declared: Consumer, attributes: Mapping[str, str], bundle_events_max: int) -> Iterator[str]:
    seen, allowed = attributes.get("RedrivePolicy"), declared.max_receive_count(bundle_events_max)
    if seen is None:
        yield f"the queue has no RedrivePolicy, allowed is one with a DLQ, or a poison message comes for ever; {_NEXT}"
    elif (count := _max_receive_count(seen)) != allowed:
        name, reason = "max_attempts", "by which its workers know a message's last attempt"
        if declared.runtime is not None or bundle_events_max > 1:
            name = "that of bundles" if declared.runtime is None else "receives_max of its runtime"
            reason = "or SQS dead-letters messages by receives that are no attempts"
        yield f"the queue's maxReceiveCount is {count}, allowed is {name} ({allowed}), {reason}; {_NEXT}"


def _max_receive_count(policy: str) -> int | None:
    """Return the count of a redrive policy, which AWS takes and gives back as a number or as text."""
    try:
        return int(json.loads(policy)["maxReceiveCount"])
    except (ValueError, TypeError, KeyError):
        return None


def _order(declared: Consumer, attributes: Mapping[str, str], dead_letters: Mapping[str, str] | None) -> Iterator[str]:
    if not _is_fifo(attributes):
        if declared.parks:
            yield (
                "the queue is not a FIFO queue, allowed is one with Poison.PARK, Gaps.WAIT or Gaps.HALT: a standard"
                " queue has gaps and late messages all the time; declare Poison.SKIP and Gaps.RECORD, or use a FIFO"
                " queue"
            )
    elif dead_letters is not None and not _is_fifo(dead_letters):
        yield (
            "the DLQ is not a FIFO queue, allowed is one behind a FIFO queue, or a group's dead letters come back in"
            " any order; deploy the environment's stacks"
        )


def _is_fifo(attributes: Mapping[str, str]) -> bool:
    return attributes.get("FifoQueue") == "true"


def _retention(
    declared: Consumer, attributes: Mapping[str, str], dead_letters: Mapping[str, str] | None
) -> Iterator[str]:
    source = _seconds(attributes, declared.message_retention_seconds)
    dead = _seconds(dead_letters, declared.dead_letter_retention_seconds)
    longest = 2 * source + dead
    if longest >= declared.inbox_retention_seconds:
        yield (
            f"inbox_retention_seconds is {declared.inbox_retention_seconds}, allowed is more than {longest}, which is"
            f" 2 x the queue's MessageRetentionPeriod ({source}) + the DLQ's ({dead}): a message redriven late would be"
            " handled again; raise it in the declaration, or deploy the environment's stacks"
        )


def _seconds(attributes: Mapping[str, str] | None, declared: int) -> int:
    return declared if attributes is None else int(attributes.get("MessageRetentionPeriod", declared))
