"""The checks of a virtual run's database and history: each finds violations."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sluice.history.events import CallOutcome, HistoryEvent, Kind, settle
from sluice.judge import databases
from sluice.judge.checker import Expectation, check_group
from tests.chaos.virtual.schedules import CONSUMER
from tests.chaos.virtual.virtual_run import RunEvidence
from tests.support.messaging.function_answers import wrong_answers

_NAMES = frozenset(column.name for column in fields(HistoryEvent))


def violations(evidence: RunEvidence, *, queue: str) -> list[str]:
    """Return what is wrong, as sentences: first what the database shows, then what the history does."""
    return [
        *of_database(evidence),
        *of_deletes(evidence),
        *of_messages(evidence),
        *of_dead_letters(evidence),
        *of_functions(evidence),
        *of_history(evidence, queue=queue),
    ]


def of_database(evidence: RunEvidence) -> Iterator[str]:
    """Yield what is not done once and in the order of the commits, held against the rows of the producer."""
    counts = Counter[str]()
    committed, published = [], []
    for place, (number, group) in enumerate(evidence.committed):
        counts[group] += 1
        row = {"event_id": str(number), "group": group}
        committed.append(databases.CommittedEvent(**row, payload="", committed_at_us=place, position=0))
        published.append(databases.OutboxMessage(**row, seq=counts[group]))
    done = [
        databases.AppliedEffect(
            consumer=CONSUMER,
            event_id=str(number),
            group=group,
            epoch=1,
            seq=0,
            payload="",
            is_doomed=False,
            committed_at_us=place,
            id=place,
        )
        for place, (number, group) in enumerate(evidence.effects)
    ]
    rows = databases.DatabaseEvidence(
        committed=committed,
        published=published,
        done=done,
        dead=frozenset((CONSUMER, str(number)) for number, _ in evidence.dead),
        is_settled=evidence.unfinished is None,
    )
    yield from map(str, databases.judge(rows, {CONSUMER: True}).violations)


def of_deletes(evidence: RunEvidence) -> Iterator[str]:
    """Yield what a worker took for deleted and the queue brought again: nobody would have tried once more."""
    last = {
        row["sqs_message_id"]: position
        for position, row in enumerate(evidence.history)
        if row.get("kind") == Kind.RECEIVED
    }
    for sqs_message_id, position in evidence.deleted:
        if last.get(sqs_message_id, -1) >= position:
            yield f"message {sqs_message_id} was taken for deleted and came again"


def of_messages(evidence: RunEvidence) -> Iterator[str]:
    """Yield the events that were sent in two messages: the topic would deliver both, and nobody sends again here."""
    messages: dict[int, set[tuple[str, tuple[int, ...]]]] = defaultdict(set)
    for message in evidence.messages:
        for number in message[1]:
            messages[number].add(message)
    for number, different in messages.items():
        if len(different) > 1:
            yield f"event {number} was sent in {len(different)} different messages"


def of_dead_letters(evidence: RunEvidence) -> Iterator[str]:
    """Yield each dead letter that is not poison: no event has failed as often as it may."""
    for number, group in evidence.dead:
        if number not in evidence.poison:
            yield f"event {number} of group {group} is in the DLQ, and its attempts are not used up"


def of_functions(evidence: RunEvidence) -> Iterator[str]:
    """Yield what is wrong with answers of functions."""
    for invocation in evidence.answers:
        yield from wrong_answers(invocation)


def of_history(evidence: RunEvidence, *, queue: str) -> Iterator[str]:
    """Yield what the checker finds in what was published, received, handled and deleted.

    What is lost only the database tells: there are no end markers, and a worker that dies between its commit and its
    next word leaves an effect that nobody wrote down.
    """
    lost = sum(row.get("kind") == Kind.POLL and row.get("outcome") != CallOutcome.OK for row in evidence.history)
    groups: dict[str, list[HistoryEvent]] = defaultdict(list)
    for event in _events(evidence.history):
        if event.message_group_id is not None:
            groups[event.message_group_id].append(event)
    for listed in groups.values():
        run = next(event.message_run for event in listed if event.message_run is not None)
        expectation = Expectation(
            run=run,
            queues=(queue,),
            visibility_timeout_seconds={queue: evidence.visibility_seconds},
            lost_receives={queue: lost},
        )
        for violation in check_group(settle(listed), expectation).violations:
            yield f"{violation.anomaly} in group {violation.message_group_id}: {violation.sentence}"


def _events(rows: Sequence[Mapping[str, Any]]) -> Iterator[HistoryEvent]:
    """Yield the events of messages, which a group is judged by; polls that brought nothing are none."""
    for row in rows:
        if row.get("kind") in (Kind.PUBLISHED, Kind.RECEIVED, Kind.DELETED, Kind.VISIBILITY_CHANGED, Kind.HANDLED):
            yield HistoryEvent(**{name: value for name, value in row.items() if name in _NAMES})
