"""A comparison of an outbox's sent messages with each consumer's inbox and queues.

A number is accounted for if the inbox says so: handled, parked, dead, given up, or before the consumer's first number
of the group. Any other number has not arrived. It is *missing* if no queue can still hold it: it is older than the
longest time in flight, and for each queue that may hold it, either the retention is over or SQS counts no message in
it. Otherwise it is unknown, and the reason is given. SQS counts approximately. `QueuePlace.about` is read before the
inboxes, and the queue is counted before and after the DLQs, so a message that moves meanwhile is seen in one of them.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html (counts are
consistent a minute after the last send at the earliest; read 2026-11-27)
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, or_, select, tuple_

from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.outbox.tables import SENT

_PAGE = 5_000
"""The most rows of the outbox that are read in one transaction."""
_GROUPS = 500
"""The most groups of an inbox that are looked up in one statement."""
_FINDINGS_MAX = 100_000
_BROUGHT_BACK = ("redrive", "automatic-redrive", "replace")


class NumberState(StrEnum):
    """The state of a number in a consumer's inbox."""

    HANDLED = "handled"
    FILLED = "handled late"
    REDRIVEN = "handled after it was brought back"
    PARKED = "set aside"
    HELD = "held"
    DEAD = "dead"
    REFUSED = "dead, and refused by the inbox"
    SKIPPED = "given up"
    FILTERED = "left out, as its filter policy allows"
    BASELINE = "before the consumer's first number of the group"
    GAP = "missing: a later number came"
    AWAITED = "has not come"
    LATER_EPOCH = "of an earlier epoch than the consumer's"


class Cause(StrEnum):
    """The known reason for which a number has not arrived."""

    NOT_PUBLISHED = "marked as sent without a message id of SNS: no relay published it"
    NO_SUBSCRIPTION = "the consumer's queue is not subscribed to the topic"
    FILTERED = "the live subscription has a filter policy that is not declared, and does not match it"
    NOT_IN_QUEUE = "published, and in none of its queues: purged, deleted, or expired"
    NOWHERE = "no consumer has it: not published, or lost before the queues"
    NOT_IN_DLQ = "dead by the inbox's record, and in none of its queues: purged, deleted, or expired"
    RESTORED = "the consumer knows later numbers than the outbox: it was restored without `outbox begin-epoch`"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """A queue that may hold a message of a consumer.

    Args:
        about: how many messages are in it, in flight and delayed ones included, as SQS counts; None is unknown.
        fault: why the count is unknown.
        retention_us: how long it keeps a message, microseconds.
        is_dlq: whether it is one of the DLQs; a message may arrive there as late as its queue keeps it.
    """

    name: str
    about: int | None
    fault: str | None = None
    retention_us: int
    is_dlq: bool = False

    def doubt(self, *, sent_us: int, now_us: int, brought_back_us: int | None) -> str | None:
        """Return why a message may be in this queue; None if it cannot be."""
        if self.about == 0:
            return None
        kept_us = self.retention_us
        is_within = now_us - sent_us < (2 * kept_us if self.is_dlq else kept_us)
        if brought_back_us is not None and not self.is_dlq:
            is_within = is_within or now_us - brought_back_us < kept_us
        if not is_within:
            return None
        if self.about is None:
            return f"{self.name} may hold it, and cannot be read ({self.fault})"
        return f"it may be among the about {self.about} messages of {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A consumer's way from the topic to its inbox.

    Args:
        engine: the engine of the inbox's database; None if it is unknown, and `unjudged` says why.
        unjudged: why its numbers cannot be judged; None if they can.
        places: its queue, its DLQ, and the DLQ of its subscription.
        is_subscribed: whether the queue is subscribed; None is unknown.
        accepts: whether a live filter policy that is not declared lets a message pass, by its attributes and body; None
            if there is no such policy.
        joined_at_us: when the consumer joined; numbers sent before are not expected.
    """

    consumer: str
    engine: Engine | None
    unjudged: str | None = None
    places: tuple[QueuePlace, ...] = ()
    is_subscribed: bool | None = None
    accepts: Callable[[Mapping[str, str], str], bool] | None = None
    joined_at_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Numbers of one group, first to last, that did not arrive at a consumer for one cause."""

    consumer: str
    group_id: str
    epoch: int
    first: int
    last: int
    cause: Cause

    @property
    def count(self) -> int:
        """Return how many numbers."""
        return self.last - self.first + 1


@dataclass(slots=True)
class Judgement:
    """The result of one consumer.

    Args:
        states: how many numbers are in which state.
        doubts: each reason, with the count of numbers that cannot be judged for it.
        young: how many numbers have not arrived and may be in flight.
        is_cut: whether there are more findings than are kept.
    """

    consumer: str
    states: Counter[NumberState] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    doubts: Counter[str] = field(default_factory=Counter)
    young: int = 0
    is_cut: bool = False

    @property
    def missing(self) -> int:
        """Return how many numbers are missing."""
        return sum(finding.count for finding in self.findings)

    def find(self, finding: Finding) -> None:
        """Add a finding. A finding that continues the last one extends it."""
        last = self.findings[-1] if self.findings else None
        place = (finding.group_id, finding.epoch, finding.cause)
        if last is not None and (last.group_id, last.epoch, last.cause) == place and last.last + 1 == finding.first:
            self.findings[-1] = _widen(last, finding.last)
        elif len(self.findings) < _FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.is_cut = True


def _widen(finding: Finding, last: int) -> Finding:
    return Finding(
        consumer=finding.consumer,
        group_id=finding.group_id,
        epoch=finding.epoch,
        first=finding.first,
        last=last,
        cause=finding.cause,
    )


@dataclass(slots=True)
class GroupSnapshot:
    """An inbox's knowledge of one group.

    Args:
        row: the consumer's position; None if the group has received nothing, or its row was deleted.
        exceptions: the records of its numbers.
        parked: epoch and number of each parked message, to whether the message is held.
    """

    row: Row[Any] | None = None
    exceptions: list[Row[Any]] = field(default_factory=list)
    parked: dict[tuple[int, int], bool] = field(default_factory=dict)

    def exception_of(self, epoch: int, seq: int) -> Row[Any] | None:
        """Return the record of a number; None if it has none."""
        return next((row for row in self.exceptions if row.epoch == epoch and row.seq <= seq <= row.through), None)

    def has_all(self, epoch: int, first: int, last: int) -> bool:
        """Return whether all these numbers were handled, and the group has neither exceptions nor parked messages."""
        row = self.row
        if row is None or self.exceptions or self.parked or row.epoch != epoch:
            return False
        return bool(row.first_seq <= first and last <= row.last_seq)

    def state_of(self, epoch: int, seq: int) -> NumberState:
        """Return the state of a number."""
        row = self.row
        position = (0, 0) if row is None else (row.epoch, row.last_seq)
        if (epoch, seq) in self.parked and (epoch, seq) > position:
            return NumberState.HELD if self.parked[epoch, seq] else NumberState.PARKED
        exception = self.exception_of(epoch, seq)
        if exception is not None:
            return _state_of_exception(exception)
        if row is None or epoch > row.epoch:
            return NumberState.AWAITED
        if epoch < row.epoch:
            return NumberState.LATER_EPOCH
        if seq < row.first_seq:
            return NumberState.BASELINE
        return NumberState.HANDLED if seq <= row.last_seq else NumberState.AWAITED


def _state_of_exception(exception: Row[Any]) -> NumberState:
    is_open = exception.closed_at_us is None
    match exception.state:
        case inbox.GAP:
            return NumberState.GAP if is_open else NumberState.FILTERED
        case inbox.DEAD:
            return NumberState.DEAD if is_open else NumberState.REFUSED
        case inbox.FILLED:
            return NumberState.FILLED
        case inbox.REDRIVEN:
            return NumberState.REDRIVEN
    return NumberState.SKIPPED


def read_groups(connection: Connection, consumer: str, group_ids: Sequence[str]) -> dict[str, GroupSnapshot]:
    """Return an inbox's knowledge of groups, by group id; each id has an entry."""
    found = {group_id: GroupSnapshot() for group_id in group_ids}
    for start in range(0, len(group_ids), _GROUPS):
        some = group_ids[start : start + _GROUPS]
        for table in (inbox.groups, inbox.exceptions, inbox.parked):
            columns = [column for column in table.c if column.name not in ("body", "attributes")]
            here = (table.c.consumer == consumer, table.c.group_id.in_(some))
            for row in connection.execute(select(*columns).where(*here)):
                _add_row(found[row.group_id], table.name, row)
    return found


def _add_row(snapshot: GroupSnapshot, table: str, row: Row[Any]) -> None:
    if table == inbox.groups.name:
        snapshot.row = row
    elif table == inbox.exceptions.name:
        snapshot.exceptions.append(row)
    else:
        snapshot.parked[row.epoch, row.seq] = row.held_at_us is not None


class Reconciliation:
    """One comparison of a topic's outbox with its consumers.

    Args:
        engine: the engine of the outbox's database.
        now_us: the time of the outbox's database before the queues were counted, microseconds UTC.
        in_flight_us: the longest time that a message may be in flight; a younger message is not judged.
    """

    def __init__(self, engine: Engine, topic: str, routes: Iterable[Route], *, now_us: int, in_flight_us: int) -> None:
        self._engine, self._topic, self._routes = engine, topic, tuple(routes)
        self._now_us, self._in_flight_us = now_us, in_flight_us
        self.judgements = {route.consumer: Judgement(route.consumer) for route in self._routes}
        self.rows = 0
        self._histories: dict[str, _ConsumerHistory] = {}

    def compare(self) -> None:
        """Read the whole outbox of the topic, page by page, and the inboxes' knowledge of its numbers."""
        judged = [route for route in self._routes if route.unjudged is None]
        for route in judged:
            self._histories[route.consumer] = _read_history(route)
        for rows in self._pages():
            self.rows += len(rows)
            chunks = {group_id: list(each) for group_id, each in groupby(rows, key=lambda row: str(row.group_id))}
            epochs = self._epochs(list(chunks))
            snapshots = {route.consumer: _read_snapshots(route, list(chunks)) for route in judged}
            for group_id, chunk in chunks.items():
                of_group = {consumer: found[group_id] for consumer, found in snapshots.items()}
                self._compare_group(chunk, epochs.get(group_id), judged, of_group)
        for route in judged:
            self._check_young(route)
            self._check_dead_letters(route)

    def _pages(self) -> Iterator[list[Row[Any]]]:
        m = outbox.messages.c
        columns = (m.id, m.group_id, m.group_seq, m.sent_at_us, m.created_at_us, m.sns_message_id)
        is_sent = (m.topic == self._topic, m.status == SENT)
        is_before = or_(m.sent_at_us.is_(None), m.sent_at_us <= self._now_us)
        after: tuple[str, int] = ("", 0)
        while True:
            behind = tuple_(m.group_id, m.group_seq) > tuple_(*after)
            page = select(*columns).where(*is_sent, is_before, behind).order_by(m.group_id, m.group_seq).limit(_PAGE)
            with engines.reading(self._engine) as connection:
                rows: list[Any] = list(connection.execute(page))
            if not rows:
                return
            yield rows
            after = (rows[-1].group_id, rows[-1].group_seq)

    def _epochs(self, group_ids: list[str]) -> dict[str, tuple[int, int]]:
        """Return the epoch of each group and the first number of that epoch, from the groups' counters."""
        g = outbox.groups.c
        found: dict[str, tuple[int, int]] = {}
        with engines.reading(self._engine) as connection:
            for start in range(0, len(group_ids), _GROUPS):
                here = (g.topic == self._topic, g.group_id.in_(group_ids[start : start + _GROUPS]))
                rows = connection.execute(select(g.group_id, g.epoch, g.first_seq).where(*here))
                found |= {row.group_id: (row.epoch, row.first_seq) for row in rows}
        return found

    def _compare_group(
        self,
        rows: list[Row[Any]],
        counter: tuple[int, int] | None,
        judged: list[Route],
        snapshots: Mapping[str, GroupSnapshot],
    ) -> None:
        first, last = rows[0].group_seq, rows[-1].group_seq
        left = []
        for route in judged:
            if (
                counter is not None
                and counter[1] <= first
                and snapshots[route.consumer].has_all(counter[0], first, last)
            ):
                self.judgements[route.consumer].states[NumberState.HANDLED] += len(rows)
            else:
                left.append(route)
        contents: dict[int, Row[Any]] = {}
        for row in rows if left else ():
            is_current = counter is not None and row.group_seq >= counter[1]
            if not is_current or any(route.accepts is not None for route in left):
                contents = contents or self._contents(rows)
            epoch = counter[0] if is_current and counter is not None else _epoch_of(contents[row.id].body)
            causes = {
                route.consumer: self._judge(route, row, epoch, snapshots[route.consumer], contents.get(row.id))
                for route in left
            }
            is_nowhere = len(self._routes) == len(judged) == len(left) > 1 and set(causes.values()) == {
                Cause.NOT_IN_QUEUE
            }
            for consumer, cause in causes.items():
                if cause is not None:
                    self.judgements[consumer].find(
                        Finding(
                            consumer=consumer,
                            group_id=row.group_id,
                            epoch=epoch,
                            first=row.group_seq,
                            last=row.group_seq,
                            cause=Cause.NOWHERE if is_nowhere else cause,
                        )
                    )

    def _contents(self, rows: list[Row[Any]]) -> dict[int, Row[Any]]:
        m = outbox.messages.c
        found: dict[int, Row[Any]] = {}
        with engines.reading(self._engine) as connection:
            for start in range(0, len(rows), _GROUPS):
                ids = [row.id for row in rows[start : start + _GROUPS]]
                read = connection.execute(select(m.id, m.body, m.attributes).where(m.id.in_(ids)))
                found |= {row.id: row for row in read}
        return found

    def _judge(
        self, route: Route, row: Row[Any], epoch: int, snapshot: GroupSnapshot, content: Row[Any] | None
    ) -> Cause | None:
        """Count a number under its state or under the reason of a doubt.

        Return the cause if it is missing, otherwise None.
        """
        judgement, history = self.judgements[route.consumer], self._histories[route.consumer]
        state = snapshot.state_of(epoch, row.group_seq)
        sent_us = row.created_at_us if row.sent_at_us is None else row.sent_at_us
        if state is NumberState.LATER_EPOCH:
            judgement.doubts[
                "its group is in a later epoch at the consumer: what came of an earlier one is not known"
            ] += 1
            return None
        if state not in (NumberState.AWAITED, NumberState.GAP):
            judgement.states[state] += 1
            return None
        if state is NumberState.AWAITED and route.joined_at_us is not None and sent_us < route.joined_at_us:
            judgement.states[NumberState.BASELINE] += 1
            return None
        is_young = self._now_us - sent_us < self._in_flight_us
        if row.sns_message_id is not None and state is NumberState.AWAITED and is_young and history.has_rows:
            judgement.young += 1
            return None
        doubt = None if row.sns_message_id is None else self._doubt(route, history, snapshot, sent_us)
        if doubt is not None:
            judgement.doubts[doubt] += 1
            return None
        judgement.states[state] += 1
        return _cause(route, row, content)

    def _doubt(self, route: Route, history: "_ConsumerHistory", snapshot: GroupSnapshot, sent_us: int) -> str | None:
        """Return why a number without a row in the inbox may still arrive, or may have arrived unseen.

        None if it is certainly missing.
        """
        if not history.has_rows:
            return f"nothing of {route.consumer} is in this database: its inbox may be in another one, see --inbox"
        if snapshot.row is None and history.forgotten_before_us is not None and sent_us < history.forgotten_before_us:
            return "its inbox has forgotten groups of that time (inbox_retention_seconds)"
        if self._now_us - sent_us < self._in_flight_us:
            return f"sent less than {_text_of(self._in_flight_us)} ago, and a later number came: it may be on its way"
        for place in route.places:
            doubt = place.doubt(sent_us=sent_us, now_us=self._now_us, brought_back_us=history.brought_back_us)
            if doubt is not None:
                return doubt
        return None if route.places else "its queues are not known"

    def _check_young(self, route: Route) -> None:
        """Check whether the queue holds as many messages as there are numbers that are too young to be judged."""
        judgement = self.judgements[route.consumer]
        queue = next((place for place in route.places if not place.is_dlq), None)
        if not judgement.young or queue is None:
            return
        if queue.about is not None and judgement.young <= queue.about:
            judgement.states[NumberState.AWAITED] += judgement.young
            return
        held = f"cannot be read ({queue.fault})" if queue.about is None else f"holds about {queue.about}"
        doubt = f"sent less than {_text_of(self._in_flight_us)} ago and not there yet, and {queue.name} {held}"
        judgement.doubts[doubt] += judgement.young

    def _check_dead_letters(self, route: Route) -> None:
        """Look whether the queues can hold as many messages as the inbox records as dead."""
        judgement = self.judgements[route.consumer]
        dead = self._histories[route.consumer].dead
        old = [row for row in dead if self._now_us - row.seen_at_us >= self._in_flight_us]
        unknown = next((place for place in route.places if place.about is None), None)
        held = sum(place.about or 0 for place in route.places)
        if unknown is not None and dead:
            doubt = f"{len(dead)} dead letters are recorded, and {unknown.name} cannot be read ({unknown.fault})"
            judgement.doubts[doubt] += len(dead)
        elif held == 0 and len(old) < len(dead):
            short = f"died less than {_text_of(self._in_flight_us)} ago, and SQS counts no message: it may be in flight"
            judgement.doubts[short] += len(dead) - len(old)
        elif 0 < held < len(old):
            doubt = (
                f"{len(old)} dead letters are recorded, and its queues hold about {held} messages: look with `dlq ls`"
            )
            judgement.doubts[doubt] += len(old) - held
        for row in old if held == 0 and unknown is None else ():
            judgement.find(
                Finding(
                    consumer=route.consumer,
                    group_id=row.group_id,
                    epoch=row.epoch,
                    first=row.seq,
                    last=row.through,
                    cause=Cause.NOT_IN_DLQ,
                )
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConsumerHistory:
    """An inbox's knowledge of the consumer as a whole.

    Args:
        has_rows: whether any row of the consumer is in the database.
        brought_back_us: when a message was last brought back from the consumer's DLQ, by the audit.
        dead: the open dead numbers of the consumer.
    """

    has_rows: bool
    forgotten_before_us: int | None
    brought_back_us: int | None
    dead: list[Row[Any]]


def _read_history(route: Route) -> _ConsumerHistory:
    name = route.consumer
    exceptions, audit = inbox.exceptions.c, inbox.audit.c
    is_dead = (exceptions.consumer == name, exceptions.state == inbox.DEAD, exceptions.closed_at_us.is_(None))
    dead = select(exceptions.group_id, exceptions.epoch, exceptions.seq, exceptions.through, exceptions.seen_at_us)
    brought_back = (audit.consumer == name, audit.action.in_(_BROUGHT_BACK))
    forgotten = select(inbox.consumers.c.forgotten_before_us).where(inbox.consumers.c.consumer == name)
    with engines.reading(_engine_of(route)) as connection:
        return _ConsumerHistory(
            has_rows=has_rows(connection, name),
            forgotten_before_us=connection.execute(forgotten).scalar(),
            brought_back_us=connection.execute(select(func.max(audit.at_us)).where(*brought_back)).scalar(),
            dead=list(
                connection.execute(dead.where(*is_dead).order_by(exceptions.group_id, exceptions.epoch, exceptions.seq))
            ),
        )


def has_rows(connection: Connection, consumer: str) -> bool:
    """Return whether any row of a consumer is in this inbox. If not, its inbox may be in another database."""
    tables = (inbox.groups, inbox.exceptions)
    return any(
        connection.execute(select(1).select_from(table).where(table.c.consumer == consumer).limit(1)).first()
        is not None
        for table in tables
    )


def _read_snapshots(route: Route, group_ids: list[str]) -> dict[str, GroupSnapshot]:
    with engines.reading(_engine_of(route)) as connection:
        return read_groups(connection, route.consumer, group_ids)


def _engine_of(route: Route) -> Engine:
    assert route.engine is not None, "a consumer without a known inbox is not judged"
    return route.engine


def _cause(route: Route, row: Row[Any], content: Row[Any] | None) -> Cause:
    if row.sns_message_id is None:
        return Cause.NOT_PUBLISHED
    if route.is_subscribed is False:
        return Cause.NO_SUBSCRIPTION
    if route.accepts is not None and content is not None:
        return Cause.NOT_IN_QUEUE if route.accepts(json.loads(content.attributes), content.body) else Cause.FILTERED
    return Cause.NOT_IN_QUEUE


def _epoch_of(body: str) -> int:
    return int(json.loads(body)["epoch"])


def _text_of(span_us: int) -> str:
    seconds = span_us // 1_000_000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpochs:
    """The epoch of one group in the outbox, and its consumers' positions: consumer to (epoch, last number)."""

    group_id: str
    epoch: int
    first_seq: int
    last_seq: int
    positions: Mapping[str, tuple[int, int] | None]

    @property
    def ahead(self) -> list[str]:
        """Return the consumers that know later numbers than the outbox has given."""
        return [
            consumer
            for consumer, position in self.positions.items()
            if position is not None and position > (self.epoch, self.last_seq)
        ]


def compare_epochs(engine: Engine, topic: str, routes: Iterable[Route]) -> Iterator[GroupEpochs]:
    """Yield the epoch of every group of a topic, in the order of their ids, beside its consumers' positions."""
    known = [route for route in routes if route.engine is not None]
    g = outbox.groups.c
    after = ""
    while True:
        columns = (g.group_id, g.epoch, g.first_seq, g.last_seq)
        page = select(*columns).where(g.topic == topic, g.group_id > after).order_by(g.group_id).limit(_GROUPS)
        with engines.reading(engine) as connection:
            rows = connection.execute(page).all()
        if not rows:
            return
        positions = {route.consumer: _positions(route, [row.group_id for row in rows]) for route in known}
        for row in rows:
            yield GroupEpochs(
                group_id=row.group_id,
                epoch=row.epoch,
                first_seq=row.first_seq,
                last_seq=row.last_seq,
                positions={consumer: found.get(row.group_id) for consumer, found in positions.items()},
            )
        after = rows[-1].group_id


def _positions(route: Route, group_ids: list[str]) -> dict[str, tuple[int, int]]:
    g = inbox.groups.c
    here = (g.consumer == route.consumer, g.group_id.in_(group_ids))
    with engines.reading(_engine_of(route)) as connection:
        rows = connection.execute(select(g.group_id, g.epoch, g.last_seq).where(*here)).all()
    return {row.group_id: (row.epoch, row.last_seq) for row in rows}
