"""G: a received message equals the published one."""

from collections.abc import Iterator, Sequence
from itertools import chain

from sluice.history.events import OTHER_GROUP, HistoryEvent, detail_of
from sluice.judge.checker.group import Group, effective, number
from sluice.judge.checker.rules import FoundViolation, rule


def _receives_with_publishes(group: Group) -> Iterator[tuple[str, HistoryEvent, list[HistoryEvent]]]:
    """Yield (queue, receive, publishes of the message) for all queues except the DLQs, which F6 checks."""
    for queue, events in sorted(group.received.items()):
        if queue in group.expectation.dead_letter_queues.values():
            continue
        for event in events:
            published = group.publishes_by(event)
            if published and not group.may_be_older(event):
                yield queue, event, published


@rule("G1")
def _find_corrupted_bodies(group: Group) -> Iterator[FoundViolation]:
    for queue, event, published in _receives_with_publishes(group):
        if event.body_hash is not None and not {event.body_hash, None} & {publish.body_hash for publish in published}:
            sentence = "the received body is not the published one"
            yield queue, [event.idx], sentence, [published[0], event]


@rule("G2")
def _find_wrong_md5_sums(group: Group) -> Iterator[FoundViolation]:
    for queue, events in sorted(group.received.items()):
        for event in events:
            if event.md5_ok is False:
                sentence = "the MD5 the service gave is not that of the body"
                published = group.publishes.get(event.idx or 0, [])[:1]
                yield queue, [event.idx], sentence, [*published, event]


@rule("G3")
def _find_lost_attributes(group: Group) -> Iterator[FoundViolation]:
    yield from _find_mixed_bundles(group)
    for queue, event, published in _receives_with_publishes(group):
        dead = group.dead_letter(queue, event.idx)
        has_stayed = group.has_stayed(queue, event.idx, by=event) and (dead is None or group.is_before(event, dead))
        if event.deduplication_id is None or not has_stayed:
            continue  # what comes back from a DLQ has another deduplication id
        ids = {publish.deduplication_id for publish in published}
        attributes = {publish.attributes_hash for publish in published}
        changed = [
            *(["deduplication id"] if not {event.deduplication_id, None} & ids else []),
            *(["attributes"] if event.attributes_hash and not {event.attributes_hash, None} & attributes else []),
        ]
        if changed:
            sentence = f"the received {' and '.join(changed)} are not the published ones"
            yield queue, [event.idx], sentence, [published[0], event]


def _find_mixed_bundles(group: Group) -> Iterator[FoundViolation]:
    published = (event for _, tries in sorted(group.publishes.items()) for event in tries)
    received = (event for _, events in sorted(group.received.items()) for event in events)
    for event in chain(published, received):
        if event.detail is not None and OTHER_GROUP in (detail := detail_of(event.detail)):
            sentence = f"it stands in a bundle of group {detail[OTHER_GROUP]}"
            yield event.queue, [event.idx], sentence, [*group.publishes.get(event.idx or 0, [])[:1], event]


@rule("G4")
def _find_wrong_envelopes(group: Group) -> Iterator[FoundViolation]:
    for queue, event, published in _receives_with_publishes(group):
        ids = {publish.sns_message_id for publish in published}
        numbers = {number(publish) for publish in published}
        is_other_id = event.sns_message_id is not None and not {event.sns_message_id, None} & ids
        is_other_number = event.sns_sequence_number is not None and not {event.sns_sequence_number, None} & numbers
        if is_other_id or is_other_number:
            sentence = "the envelope names another message than the publish was acknowledged as"
            yield queue, [event.idx], sentence, [published[0], event]
        elif _is_acknowledged_otherwise(group, queue, event, published):
            sentence = "its message id or sequence number is not the one that its sending was acknowledged with"
            yield queue, [event.idx], sentence, [published[0], event]


def _is_acknowledged_otherwise(
    group: Group, queue: str, event: HistoryEvent, published: Sequence[HistoryEvent]
) -> bool:
    """Return whether a message that was sent only to its queue arrived under another id or number than acknowledged.

    If several copies arrived under one id, the further copies are violations of B1.
    """
    sent = effective(published)
    ids = {publish.sqs_message_id: publish.sqs_sequence_number for publish in sent}
    is_known = {publish.queue for publish in sent} == {queue} and None not in ids and event.sqs_message_id is not None
    if not is_known or not group.has_stayed(queue, event.idx) or not group.is_bound(queue, event.idx):
        return False
    if event.sqs_message_id in ids:
        return ids[event.sqs_message_id] not in (None, event.sqs_sequence_number) and bool(event.sqs_sequence_number)
    return ids.keys().isdisjoint(group.ids[queue, event.idx or 0])
