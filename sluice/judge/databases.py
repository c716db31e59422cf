"""The judge of databases: compares effects with committed events.

Pure: evidence in, findings out; no code of the runtime.

The order of commits comes from the database (`pg_xact_commit_timestamp`) and not from Sluice's numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sluice.judge.checker.verdict import PropertyStatus


class DatabaseAnomaly(StrEnum):
    """The kinds of violation that databases can show."""

    COMMIT_LOST = "commit lost"
    ROLLED_BACK = "rolled back, yet there"
    UNPUBLISHED = "committed without a message"
    INVENTED = "invented"
    MISNUMBERED = "not numbered in the order of commits"
    LOST = "lost"
    DOUBLE = "done more than once"
    DOOMED = "an attempt that failed was committed"
    CHANGED = "changed on its way"
    REORDERED = "out of order"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedEvent:
    """An event in its producer's table; commits are in order of `committed_at_us`, events of one by `position`."""

    event_id: str
    group: str
    payload: str
    committed_at_us: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """A message in the outbox."""

    event_id: str
    group: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedEffect:
    """An effect; effects are in order of `committed_at_us`, those of one transaction by `id`."""

    consumer: str
    event_id: str
    group: str
    epoch: int
    seq: int
    payload: str
    is_doomed: bool
    committed_at_us: int
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxNumbers:
    """A range of numbers that an inbox lists because they were missing, dead, late or skipped."""

    consumer: str
    group: str
    epoch: int
    seq: int
    through: int
    state: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseEvidence:
    """The rows that a run left behind.

    Args:
        acknowledged: ids of events whose commit was answered.
        rolled_back: ids of events that were rolled back.
        committed: producers' rows.
        published: the outbox.
        done: the effects.
        listed: the inboxes' exceptions.
        dead: (consumer, event id) in a DLQ.
        parked: (consumer, event id) parked in an inbox.
        is_settled: whether all queues are empty, and nothing waits in the outbox.
    """

    acknowledged: Collection[str] = ()
    rolled_back: Collection[str] = ()
    committed: Sequence[CommittedEvent] = ()
    published: Sequence[OutboxMessage] = ()
    done: Sequence[AppliedEffect] = ()
    listed: Sequence[InboxNumbers] = ()
    dead: Collection[tuple[str, str]] = ()
    parked: Collection[tuple[str, str]] = ()
    is_settled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseViolation:
    """One violation."""

    anomaly: DatabaseAnomaly
    event_id: str
    group: str
    consumer: str | None = None
    sentence: str = ""

    def __str__(self) -> str:
        whose = "" if self.consumer is None else f"{self.consumer}: "
        return f"{self.anomaly}: {whose}event {self.event_id} of group {self.group}: {self.sentence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The violations, and the effects that are still missing.

    Args:
        violations: all violations.
        unfinished: (consumer, event id) without an effect that is no violation.
        late_counts: effects after later ones that the inbox lists, by consumer.
    """

    violations: tuple[DatabaseViolation, ...]
    unfinished: tuple[tuple[str, str], ...] = ()
    late_counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def status(self) -> PropertyStatus:
        """Return the verdict: a violation outweighs an unfinished effect."""
        if self.violations:
            return PropertyStatus.INVALID
        return PropertyStatus.UNKNOWN if self.unfinished else PropertyStatus.VALID


def judge(evidence: DatabaseEvidence, always_ordered: Mapping[str, bool]) -> Judgement:
    """Return the violations and the missing effects.

    Args:
        evidence: the rows of the run.
        always_ordered: consumer to whether its effects are in order whatever its inbox lists: with PARK and HALT.
    """
    violations = [*_producer_violations(evidence), *_outbox_violations(evidence)]
    unfinished: list[tuple[str, str]] = []
    late_counts: dict[str, int] = {}
    for consumer, is_always in always_ordered.items():
        done = sorted(
            (effect for effect in evidence.done if effect.consumer == consumer),
            key=lambda effect: (effect.committed_at_us, effect.id),
        )
        violations += _effect_violations(evidence, consumer, done)
        missing, lost = _missing_effects(evidence, consumer, {effect.event_id for effect in done})
        unfinished += missing
        violations += lost
        late = set() if is_always else _late_effect_ids(evidence, consumer, done)
        late_counts[consumer] = len(late)
        violations += _order_violations(evidence, consumer, [effect for effect in done if effect.id not in late])
    return Judgement(violations=tuple(violations), unfinished=tuple(unfinished), late_counts=late_counts)


def _producer_violations(evidence: DatabaseEvidence) -> Iterator[DatabaseViolation]:
    """Yield the violations in the producers' own rows: the database keeps every acknowledged commit, and no other."""
    there = {committed.event_id: committed for committed in evidence.committed}
    for event_id in evidence.acknowledged:
        if event_id not in there:
            sentence = "acknowledged, and its row is gone"
            yield DatabaseViolation(anomaly=DatabaseAnomaly.COMMIT_LOST, event_id=event_id, group="", sentence=sentence)
    for event_id in evidence.rolled_back:
        if event_id in there:
            yield _violation(DatabaseAnomaly.ROLLED_BACK, there[event_id], "its row is there")


def _outbox_violations(evidence: DatabaseEvidence) -> Iterator[DatabaseViolation]:
    """Yield the differences between outbox and rows: each event once, numbered in the order of commits."""
    committed = _commits_by_group(evidence.committed)
    published: dict[str, list[OutboxMessage]] = defaultdict(list)
    for publish in sorted(evidence.published, key=lambda published: published.seq):
        published[publish.group].append(publish)
    rows = {entry.event_id for entry in evidence.committed}
    for group in {**committed, **published}:
        messages = published.get(group, [])
        yield from (_uncommitted_violation(evidence, entry) for entry in messages if entry.event_id not in rows)
        in_outbox = {entry.event_id for entry in messages}
        for row in committed.get(group, []):
            if row.event_id not in in_outbox:
                yield _violation(DatabaseAnomaly.UNPUBLISHED, row, "the outbox has none")
        expected = [row.event_id for row in committed.get(group, []) if row.event_id in in_outbox]
        known = [entry for entry in messages if entry.event_id in rows]
        for place, (message, event_id) in enumerate(zip(known, expected, strict=True), start=1):
            if message.event_id != event_id or (len(known) == len(messages) and message.seq != place):
                sentence = f"has number {message.seq}; commit {place} of the group was {event_id}"
                yield _violation(DatabaseAnomaly.MISNUMBERED, message, sentence)
                break  # the later numbers of the group are wrong because of this one


def _violation(
    anomaly: DatabaseAnomaly,
    row: CommittedEvent | OutboxMessage | AppliedEffect,
    sentence: str,
    consumer: str | None = None,
) -> DatabaseViolation:
    return DatabaseViolation(
        anomaly=anomaly, event_id=row.event_id, group=row.group, consumer=consumer, sentence=sentence
    )


def _uncommitted_violation(
    evidence: DatabaseEvidence, row: OutboxMessage | AppliedEffect, consumer: str | None = None
) -> DatabaseViolation:
    if row.event_id in evidence.rolled_back:
        return _violation(DatabaseAnomaly.ROLLED_BACK, row, "it was rolled back by its producer", consumer)
    return _violation(DatabaseAnomaly.INVENTED, row, "no producer has committed it", consumer)


def _effect_violations(
    evidence: DatabaseEvidence, consumer: str, done: Sequence[AppliedEffect]
) -> Iterator[DatabaseViolation]:
    """Yield a violation for each of a consumer's effects that should not exist, and each event that has several.

    An effect should not exist if no producer committed its event, if its attempt was to be rolled back, or if it has
    another group or payload than its event.
    """
    rows = {committed.event_id: committed for committed in evidence.committed}
    times = Counter(effect.event_id for effect in done)
    for effect in done:
        row = rows.get(effect.event_id)
        if row is None:
            yield _uncommitted_violation(evidence, effect, consumer)
        elif effect.is_doomed:
            sentence = f"effect {effect.id} is of an attempt that was to be rolled back"
            yield _violation(DatabaseAnomaly.DOOMED, effect, sentence, consumer)
        elif (effect.group, effect.payload) != (row.group, row.payload):
            sentence = f"effect {effect.id} says {effect.payload!r} of {effect.group!r}"
            yield _violation(DatabaseAnomaly.CHANGED, effect, sentence, consumer)
    for event_id, count in times.items():
        if count > 1 and event_id in rows:
            yield _violation(DatabaseAnomaly.DOUBLE, rows[event_id], f"it has {count} effects", consumer)


def _missing_effects(
    evidence: DatabaseEvidence, consumer: str, done: Collection[str]
) -> tuple[list[tuple[str, str]], list[DatabaseViolation]]:
    """Return the events without effect: those that a queue or inbox still has, and those that are lost."""
    skipped = {
        (listed.group, seq)
        for listed in evidence.listed
        if listed.consumer == consumer and listed.state == "skipped" and listed.reason
        for seq in range(listed.seq, listed.through + 1)
    }
    seqs = {published.event_id: published.seq for published in evidence.published}
    unfinished, lost = [], []
    for row in evidence.committed:
        place = (consumer, row.event_id)
        if row.event_id in done:
            continue
        is_given_up = (row.group, seqs.get(row.event_id)) in skipped
        if is_given_up or place in evidence.dead or place in evidence.parked or not evidence.is_settled:
            unfinished.append(place)
            continue
        sentence = (
            "it has no effect, is in no queue and no DLQ, and is not set aside;"
            f" its inbox says {_inbox_state_text(evidence, consumer, row.group, seqs.get(row.event_id))}"
        )
        lost.append(_violation(DatabaseAnomaly.LOST, row, sentence, consumer))
    return unfinished, lost


def _inbox_state_text(evidence: DatabaseEvidence, consumer: str, group: str, seq: int | None) -> str:
    for listed in evidence.listed:
        is_its = (listed.consumer, listed.group) == (consumer, group)
        if is_its and seq is not None and listed.seq <= seq <= listed.through:
            return f"{listed.state} of number {seq}" + (f" ({listed.reason})" if listed.reason else "")
    return f"nothing of number {seq}"


def _late_effect_ids(evidence: DatabaseEvidence, consumer: str, done: Iterable[AppliedEffect]) -> set[int]:
    """Return the effects that an inbox lists as late: their numbers were missing or dead before."""
    came = {
        (listed.group, listed.epoch, seq)
        for listed in evidence.listed
        if listed.consumer == consumer and listed.state in ("filled", "redriven")
        for seq in range(listed.seq, listed.through + 1)
    }
    return {effect.id for effect in done if (effect.group, effect.epoch, effect.seq) in came}


def _order_violations(
    evidence: DatabaseEvidence, consumer: str, done: Iterable[AppliedEffect]
) -> Iterator[DatabaseViolation]:
    """Yield each effect that comes after one whose event was committed later in the same group."""
    places = {
        row.event_id: place
        for rows in _commits_by_group(evidence.committed).values()
        for place, row in enumerate(rows, 1)
    }
    last: dict[str, AppliedEffect] = {}
    for effect in done:
        if effect.event_id not in places or effect.is_doomed:
            continue
        before = last.get(effect.group)
        if before is None or places[effect.event_id] >= places[before.event_id]:
            last[effect.group] = effect
            continue
        sentence = (
            f"commit {places[effect.event_id]} of its group was done after commit {places[before.event_id]},"
            f" event {before.event_id}"
        )
        yield _violation(DatabaseAnomaly.REORDERED, effect, sentence, consumer)


def _commits_by_group(committed: Iterable[CommittedEvent]) -> dict[str, list[CommittedEvent]]:
    """Return the events of each group in the order of their commits."""
    groups: dict[str, list[CommittedEvent]] = defaultdict(list)
    for entry in sorted(committed, key=lambda committed: (committed.committed_at_us, committed.position)):
        groups[entry.group].append(entry)
    return dict(groups)
