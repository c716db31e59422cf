"""Checks of a run with bundles besides those of its databases: of every message of the topic, and every call."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sluice.judge.databases import DatabaseEvidence
from tests.chaos.system.calls import HandlerCall

_EVENTS_MIN = 3
"""Events of a message in the mean: with fewer there was hardly a bundle to be harmed."""
_PLACES = ("first", "middle", "last", "several in one")
type ConsumerEvent = tuple[str, str]
"""A consumer, and the id of an event."""


class SentMessage(NamedTuple):
    """A message that the topic delivered, and the ids of its events in order."""

    deduplication_id: str
    event_ids: tuple[str, ...]


def sizes(sent: Sequence[SentMessage]) -> dict[int, int]:
    """Return how many messages had how many events."""
    return dict(sorted(Counter(len(message.event_ids) for message in sent).items()))


def mean_events(messages: Mapping[int, int]) -> float:
    """Return the mean of events of a message."""
    return sum(size * count for size, count in messages.items()) / max(1, sum(messages.values()))


def failed_events(calls: Iterable[HandlerCall]) -> set[ConsumerEvent]:
    """Return the events on which handlers failed."""
    return {(call.consumer, call.event_id) for call in calls if call.is_doomed}


def dead_events(found: DatabaseEvidence) -> dict[ConsumerEvent, str]:
    """Return the events that died, with the reason."""
    ids = {(published.group, published.seq): published.event_id for published in found.published}
    return {
        (listed.consumer, ids[listed.group, listed.seq]): listed.reason or ""
        for listed in found.listed
        if listed.state in ("dead", "redriven")
    }


def count_places(sent: Sequence[SentMessage], events: Iterable[ConsumerEvent]) -> dict[str, int]:
    """Return how many events of consumers are at which place of their bundle, and how many bundles have several."""
    by_consumer: dict[str, set[str]] = defaultdict(set)
    for consumer, event_id in events:
        by_consumer[consumer].add(event_id)
    found = Counter[str]()
    for _, event_ids in sent:
        for ids in by_consumer.values() if len(event_ids) > 1 else ():
            places = [place for place, event_id in enumerate(event_ids) if event_id in ids]
            found.update(_PLACES[(place > 0) + (place == len(event_ids) - 1)] for place in places)
            found[_PLACES[-1]] += len(places) > 1
    return {place: found[place] for place in _PLACES}


def why_no_proof(messages: Mapping[int, int], failed: Mapping[str, int]) -> str | None:
    """Return why a run says little about bundles; None if it does not."""
    if (mean := mean_events(messages)) < _EVENTS_MIN:
        return f"a message had {mean:.1f} events in the mean, and less than {_EVENTS_MIN} say nothing about bundles"
    spared = [place for place, count in failed.items() if not count]
    return f"no handler failed on these events of a bundle: {', '.join(spared)}" if spared else None


def objections(
    sent: Sequence[SentMessage],
    found: DatabaseEvidence,
    calls: Collection[HandlerCall],
    resent: Collection[str],
    brought_back: Collection[ConsumerEvent],
) -> Iterator[str]:
    """Yield what is wrong with messages and deaths, which is mended when everything has drained, or never looked at.

    Args:
        sent: every message of the topic.
        found: the databases.
        calls: of all handlers.
        resent: ids of events that an operator sent again.
        brought_back: events that an operator brought back from a DLQ.
    """
    messages: dict[str, set[str]] = defaultdict(set)
    for message in sent:
        for event_id in message.event_ids:
            messages[event_id].add(message.deduplication_id)
    for event_id, different in messages.items():
        if len(different) > 1 and event_id not in resent:
            yield f"event {event_id} was sent in {len(different)} different messages"
    called = {(call.consumer, call.event_id) for call in calls}
    dead = dead_events(found)
    for consumer, event_id in sorted(set(brought_back) - set(dead)):
        yield f"{consumer}: event {event_id} was in the DLQ without a death of its own: it went there with a neighbour"
    for (consumer, event_id), reason in dead.items():
        if (consumer, event_id) not in called:
            yield f"{consumer}: event {event_id} died, and its handler was never called: {reason}"
