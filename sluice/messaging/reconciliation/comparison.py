"""A comparison of an outbox's sent messages with each consumer's inbox and queues.

A *number* is the number of a message in its group. It is accounted for if the inbox says so: handled, parked, dead,
given up, or before the consumer's first number of the group. Any other number has not arrived. It is *missing* if no
queue can still hold its message: the message is older than the longest time in flight, and each queue either keeps
messages for a shorter time or is empty by SQS's count. Otherwise it is unknown, and the reason is given. If the queues
hold fewer messages than there are messages of unknown numbers and dead letters, some are lost, though not known by
number (`Shortage`). Events that travelled together are one message until they are dead.

For most groups `screening` shows that a consumer has handled all numbers in order. The messages of the other groups are
read one by one, except for numbers that were handled in order.

SQS counts approximately. `QueuePlace.about` is read before the inboxes, and the queue is counted before and after the
DLQs, so a message that moves meanwhile is seen in one of them. The outbox is read before the inboxes, so a number that
is handled meanwhile counts as handled.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html (counts are
consistent a minute after the last send at the earliest; read 2026-11-27)
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import batched, combinations
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, or_, select

from sluice.limits import BUNDLE_EVENTS_MAX
from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.inbox.pause import Pause, find_pause
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.reconciliation.epochs import GroupEpochs
from sluice.messaging.reconciliation.routes import (
    Cause,
    Finding,
    Judgement,
    QueuePlace,
    Route,
    Shortage,
    add_numbers,
)
from sluice.messaging.reconciliation.screening import (
    GroupCounter,
    PositionRow,
    Positions,
    SentNumbers,
    Streams,
    groups_of,
    sent_messages,
)
from sluice.messaging.reconciliation.states import GroupSnapshot, NumberState, has_rows, read_groups

_GROUPS = 500
"""The most groups whose numbers are judged one by one at once."""
_IDS = 500
"""The most messages whose bodies are read in one statement."""
_RANGES = 200
"""The most ranges of numbers in one statement."""
_RESTORED_MAX = 1_000
_NO_ROWS = "nothing of {consumer} is in this database: its inbox may be in another one, see --inbox"
_LOST_SOMEWHERE = {Cause.NOT_IN_QUEUE, Cause.NO_POSITION}
_ARRIVALS = 500
"""The most groups whose last message is looked at for the last message that has come."""
_BROUGHT_BACK = ("redrive", "automatic-redrive", "replace")


@dataclass(frozen=True, slots=True)
class _SuspectGroup:
    """A group in which some consumer has not handled every number in order.

    Args:
        sent: the numbers of the messages that the outbox has sent.
        counter: the group's counter in the outbox; None if it was forgotten.
        routes: the routes of the consumers that have not handled every number in order.
    """

    sent: SentNumbers
    counter: GroupCounter | None
    routes: list[Route]


class Reconciliation:
    """One comparison of a topic's outbox with its consumers.

    Args:
        engine: the engine of the outbox's database.
        now_us: the time of the outbox's database before the queues were counted, microseconds UTC.
        in_flight_us: the longest time of a message in flight, in microseconds; a younger message is not judged.
        counts_young: whether younger messages are counted, and compared with the counts of the queues; False leaves
            them out.

    Attributes:
        judgements: the result of each consumer, by its name.
        rows: the number of compared messages.
        epochs: the number of groups in each epoch.
        restored: the groups in which a consumer knows later numbers than the outbox, up to a thousand.
        restored_count: the number of all such groups.
    """

    def __init__(
        self,
        engine: Engine,
        topic: str,
        routes: Iterable[Route],
        *,
        now_us: int,
        in_flight_us: int,
        counts_young: bool = True,
    ) -> None:
        self._engine, self._topic, self._routes = engine, topic, tuple(routes)
        self._now_us, self._in_flight_us = now_us, in_flight_us
        self._before_us = now_us if counts_young else now_us - in_flight_us
        self._judged = [route for route in self._routes if route.unjudged is None]
        self._seen: list[Route] = []
        self.judgements = {route.consumer: Judgement(route.consumer) for route in self._routes}
        self.rows = 0
        self.epochs: Counter[int] = Counter()
        self.restored: list[GroupEpochs] = []
        self.restored_count = 0
        self._histories: dict[str, _ConsumerHistory] = {}
        self._held: dict[str, Counter[frozenset[str]]] = {route.consumer: Counter() for route in self._routes}
        self._counted: defaultdict[str, deque[str]] = defaultdict(partial(deque, maxlen=BUNDLE_EVENTS_MAX))

    def compare(self) -> None:
        """Read the topic's outbox and the inboxes, and fill `judgements` and the counts."""
        for route in self._judged:
            self._histories[route.consumer] = _read_history(route, self._last_arrival(route))
        self._seen = [route for route in self._judged if not self._is_blind(route)]
        for suspects in batched(self._screen(), _GROUPS):
            self._examine(suspects)
        for route in self._judged:
            self._check_young(route)
            self._check_dead_letters(route)
            self.judgements[route.consumer].shortage = self._shortage(route)
            if self._is_blind(route):
                self._judge_blind(route)

    def _last_arrival(self, route: Route) -> int:
        """Return when a message was committed that arrived and that the present subscription would stop.

        A message that was sent before that instant was lost for another cause. The instant, in microseconds UTC, is the
        latest of the last messages of some groups; 0 if none of them is such a message, or the subscription is as
        declared.
        """
        if route.is_subscribed is not False and route.accepts is None:
            return 0
        g, m = inbox.groups.c, outbox.messages.c
        last = select(g.last_event_id).where(g.consumer == route.consumer, g.last_event_id.is_not(None))
        with engines.reading(route.known_engine) as connection:
            event_ids = connection.execute(last.order_by(g.updated_at_us.desc()).limit(_ARRIVALS)).scalars().all()
        arrived = select(m.created_at_us, m.attributes, m.body).where(m.topic == self._topic, m.event_id.in_(event_ids))
        with engines.reading(self._engine) as connection:
            rows = connection.execute(arrived).all()
        accepts = route.accepts or (lambda *_: False)
        return max((row.created_at_us for row in rows if not accepts(json.loads(row.attributes), row.body)), default=0)

    def _screen(self) -> Iterator[_SuspectGroup]:
        """Count the messages of groups that were handled in order, and yield the other groups."""
        with ExitStack() as stack:
            connections: dict[Engine, Connection] = {}

            def connect(engine: Engine) -> Connection:
                if engine not in connections:
                    connections[engine] = stack.enter_context(engines.reading(engine))
                return connections[engine]

            groups = groups_of(Streams(connect(self._engine), stack), self._topic, before_us=self._before_us)
            group = next(groups, None)  # the outbox is read first
            found = {
                route.consumer: Positions(Streams(connect(route.engine), stack), route.consumer)
                for route in self._routes
                if route.engine is not None
            }
            while group is not None:
                group_id, counter, sent = group
                positions = {consumer: rows.find(group_id) for consumer, rows in found.items()}
                if counter is not None:
                    self._note_epoch(counter, positions)
                if sent is not None:
                    self.rows += sent.messages
                    suspect = self._suspect(sent, counter, positions)
                    if suspect.routes:
                        yield suspect
                group = next(groups, None)

    def _note_epoch(self, counter: GroupCounter, positions: Mapping[str, PositionRow | None]) -> None:
        """Count a group's epoch, and note the group if a consumer's position is later than the outbox's counter."""
        self.epochs[counter.epoch] += 1
        last = (counter.epoch, counter.last_seq)
        if any(row is not None and (row.epoch, row.last_seq) > last for row in positions.values()):
            self.restored_count += 1
            if len(self.restored) < _RESTORED_MAX:
                known = {name: None if row is None else (row.epoch, row.last_seq) for name, row in positions.items()}
                self.restored.append(GroupEpochs(**counter._asdict(), positions=known))

    def _suspect(
        self, sent: SentNumbers, counter: GroupCounter | None, positions: Mapping[str, PositionRow | None]
    ) -> _SuspectGroup:
        """Count a group's messages as handled for consumers that handled all in order; return it with the others."""
        left = []
        for route in self._seen:
            row = positions[route.consumer]
            is_in_order = (
                row is not None
                and row.is_plain
                and counter is not None
                and row.epoch == counter.epoch
                and max(row.first_seq, counter.first_seq) <= sent.first
                and sent.last <= row.last_seq
            )
            if is_in_order:
                self.judgements[route.consumer].states[NumberState.HANDLED] += sent.messages
            else:
                left.append(route)
        return _SuspectGroup(sent, counter, left)

    def _examine(self, suspects: Sequence[_SuspectGroup]) -> None:
        """Judge the numbers of groups one by one, and add a finding for each missing one."""
        snapshots = {
            route.consumer: _read_snapshots(
                route, [suspect.sent.group_id for suspect in suspects if route in suspect.routes]
            )
            for route in self._seen
        }
        for suspect in suspects:
            causes: dict[int, dict[str, Cause]] = {}
            epochs: dict[int, int] = {}
            for route in suspect.routes:
                snapshot = snapshots[route.consumer][suspect.sent.group_id]
                for seq, epoch, cause in self._judge_group(suspect, route, snapshot):
                    epochs[seq] = epoch
                    causes.setdefault(seq, {})[route.consumer] = cause
            for seq in sorted(causes):
                self._find(suspect.sent.group_id, epochs[seq], seq, causes[seq])

    def _find(self, group_id: str, epoch: int, seq: int, causes: Mapping[str, Cause]) -> None:
        """Add a finding for each consumer at which a number is missing."""
        is_nowhere = len(self._routes) == len(causes) > 1 and set(causes.values()) <= _LOST_SOMEWHERE
        for consumer, cause in causes.items():
            found = Cause.NOWHERE if is_nowhere else cause
            finding = Finding(consumer=consumer, group_id=group_id, epoch=epoch, first=seq, last=seq, cause=found)
            self.judgements[consumer].find(finding)

    def _judge_group(
        self, suspect: _SuspectGroup, route: Route, snapshot: GroupSnapshot
    ) -> Iterator[tuple[int, int, Cause]]:
        """Count a group's numbers by their states, and yield (number, epoch, cause) of each missing one."""
        counter = suspect.counter
        handled = [] if counter is None else snapshot.handled_ranges(counter.epoch, counter.first_seq)
        judged = 0
        for rows in batched(self._messages(suspect.sent.group_id, handled), _IDS):
            judged += len(rows)
            wanted = [row for row in rows if route.accepts is not None or not _is_current(row, counter)]
            contents = self._contents(wanted)
            for row in rows:
                content = contents.get(row.id)
                is_current = counter is not None and _is_current(row, counter)
                epoch = counter.epoch if is_current and counter is not None else _epoch_of(contents[row.id].body)
                cause = self._judge(route, row, epoch, snapshot, content)
                if cause is not None:
                    yield row.group_seq, epoch, cause
        if judged < suspect.sent.messages:
            self.judgements[route.consumer].states[NumberState.HANDLED] += suspect.sent.messages - judged

    def _messages(self, group_id: str, handled: list[tuple[int, int]]) -> Iterator[Row[Any]]:
        """Yield the sent messages of a group, by number, without the numbers in the ranges of `handled`."""
        m = outbox.messages.c
        columns = (m.id, m.group_id, m.group_seq, m.sent_at_us, m.created_at_us, m.sns_message_id)
        here = (*sent_messages(self._topic, before_us=self._before_us), m.group_id == group_id)
        begins = [0, *(highest + 1 for _, highest in handled)]
        ends = [*(lowest - 1 for lowest, _ in handled), None]
        left = [(first, last) for first, last in zip(begins, ends, strict=True) if last is None or first <= last]
        for ranges in batched(left, _RANGES):
            is_left = or_(*(_is_between(m.group_seq, first, last) for first, last in ranges))
            statement: Any = select(*columns).where(*here, is_left).order_by(m.group_seq)
            with engines.reading(self._engine) as connection:
                yield from connection.execute(statement, execution_options={"yield_per": _IDS})

    def _contents(self, rows: Sequence[Row[Any]]) -> dict[int, Row[Any]]:
        """Return the bodies and attributes of some messages, by the ids of their rows."""
        if not rows:
            return {}
        m = outbox.messages.c
        statement: Any = select(m.id, m.body, m.attributes).where(m.id.in_([row.id for row in rows]))
        with engines.reading(self._engine) as connection:
            return {row.id: row for row in connection.execute(statement)}

    def _judge(
        self, route: Route, row: Row[Any], epoch: int, snapshot: GroupSnapshot, content: Row[Any] | None
    ) -> Cause | None:
        """Count a number under its state or its doubt, the reason why it cannot be judged.

        Return the cause if the number is missing, otherwise None.
        """
        judgement, history = self.judgements[route.consumer], self._histories[route.consumer]
        state = snapshot.state_of(epoch, row.group_seq)
        sent_us = row.created_at_us if row.sent_at_us is None else row.sent_at_us

        def numbers(cause: str) -> Finding:
            seq = row.group_seq
            return Finding(
                consumer=route.consumer, group_id=row.group_id, epoch=epoch, first=seq, last=seq, cause=cause
            )

        if state is NumberState.LATER_EPOCH:
            judgement.doubt(
                numbers("its group is in a later epoch at the consumer: what came of an earlier one is not known")
            )
            return None
        if state not in (NumberState.AWAITED, NumberState.GAP):
            judgement.states[state] += 1
            return None
        if state is NumberState.AWAITED and route.joined_at_us is not None and sent_us < route.joined_at_us:
            judgement.states[NumberState.BASELINE] += 1
            return None
        is_young = not self._is_old(sent_us)
        if row.sns_message_id is not None and state is NumberState.AWAITED and is_young:
            judgement.young += 1
            judgement.young_messages += self._is_uncounted(route, row.sns_message_id)
            add_numbers(judgement.young_numbers, numbers(""))
            return None
        if row.sns_message_id is not None:
            doubt = self._doubt(route, history, snapshot, sent_us)
            holding = [] if doubt is not None else self._holding(route, sent_us)
            if doubt is None and holding:
                doubt = holding[0].doubt
                if history.pause is not None:
                    doubt = f"{route.consumer} is paused {history.pause.describe()}; {doubt}"
                self._held[route.consumer][frozenset(place.name for place in holding)] += self._is_uncounted(
                    route, row.sns_message_id
                )
            if doubt is not None:
                judgement.doubt(numbers(doubt))
                return None
        judgement.states[state] += 1
        cause = _cause(route, row, content, arrived_us=history.arrived_us)
        return Cause.NO_POSITION if cause is Cause.NOT_IN_QUEUE and snapshot.row is None else cause

    def _is_uncounted(self, route: Route, sns_message_id: str) -> bool:
        """Count a number's message once; a resend may be between its numbers, which are as many as of one bundle."""
        counted = self._counted[route.consumer]
        is_uncounted = sns_message_id not in counted
        counted.append(sns_message_id)
        return is_uncounted

    def _doubt(self, route: Route, history: "_ConsumerHistory", snapshot: GroupSnapshot, sent_us: int) -> str | None:
        """Return why a number may have arrived unseen, or be in flight; None if only a queue can hold its message."""
        if snapshot.row is None and history.forgotten_before_us is not None and sent_us < history.forgotten_before_us:
            return "its inbox has forgotten groups of that time (inbox_retention_seconds)"
        if not self._is_old(sent_us):
            return f"sent less than {_text_of(self._in_flight_us)} ago, and a later number came: it may be on its way"
        return None if route.places else "its queues are not known"

    def _holding(self, route: Route, sent_us: int) -> list[QueuePlace]:
        """Return the queues of a consumer that may hold a message sent at that instant."""
        brought_back_us = self._histories[route.consumer].brought_back_us
        return [
            place
            for place in route.places
            if place.may_hold(sent_us=sent_us, now_us=self._now_us, brought_back_us=brought_back_us)
        ]

    def _check_young(self, route: Route) -> None:
        """Count the numbers too young to be judged: as awaited if the queue holds as many messages, else as a doubt."""
        judgement = self.judgements[route.consumer]
        queue = next((place for place in route.places if not place.is_dlq), None)
        if not judgement.young or queue is None:
            return
        if queue.about is not None and judgement.young_messages <= queue.about:
            judgement.states[NumberState.AWAITED] += judgement.young
            return
        held = f"cannot be read ({queue.fault})" if queue.about is None else f"holds about {queue.about}"
        doubt = f"sent less than {_text_of(self._in_flight_us)} ago and not there yet, and {queue.name} {held}"
        judgement.doubts[doubt] += judgement.young
        judgement.undecided += [replace(numbers, cause=doubt) for numbers in judgement.young_numbers]

    def _check_dead_letters(self, route: Route) -> None:
        """Count the numbers that the inbox records as dead; if the queues are empty, add a finding for each of them."""
        judgement = self.judgements[route.consumer]
        dead = self._histories[route.consumer].dead
        judgement.dead = sum(row.through - row.seq + 1 for row in dead)
        old = [row for row in dead if self._is_old(row.seen_at_us)]
        unknown = next((place for place in route.places if place.about is None), None)
        held = sum(place.about or 0 for place in route.places)
        if unknown is not None and dead:
            doubt = f"{len(dead)} dead letters are recorded, and {unknown.name} cannot be read ({unknown.fault})"
            judgement.dead_doubts[doubt] += len(dead)
        elif held == 0 and len(old) < len(dead):
            short = f"died less than {_text_of(self._in_flight_us)} ago, and SQS counts no message: it may be in flight"
            judgement.dead_doubts[short] += len(dead) - len(old)
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

    def _shortage(self, route: Route) -> Shortage | None:
        """Return the shortage: messages that some queues should hold, but fewer are in them; None without one.

        Dead letters may be in any of the queues, as somebody may have brought them back. Of all sets of queues, the one
        that lacks most messages counts; by the marriage theorem no more are lost for certain.
        """
        dead = [row for row in self._histories[route.consumer].dead if self._is_old(row.seen_at_us)]
        places = {place.name: place for place in route.places if place.about != 0}
        found: Shortage | None = None
        for size in range(1, len(places) + 1):
            for names in combinations(places, size):
                capacities = [places[name].capacity for name in names]
                missing = sum(count for held, count in self._held[route.consumer].items() if held <= set(names))
                dead_count = sum(row.through - row.seq + 1 for row in dead) if len(names) == len(places) else 0
                if None in capacities:
                    continue
                lost = missing + dead_count - sum(capacity or 0 for capacity in capacities)
                if lost > (0 if found is None else found.lost):
                    held_count = sum(places[name].about or 0 for name in names)
                    found = Shortage(lost=lost, missing=missing, dead=dead_count, held=held_count, queues=names)
        return found

    def _is_old(self, at_us: int) -> bool:
        return self._now_us - at_us >= self._in_flight_us

    def _judge_blind(self, route: Route) -> None:
        """Judge a consumer without any row in its database: only messages that were never published are missing."""
        m = outbox.messages.c
        sent = sent_messages(self._topic, before_us=self._before_us)
        unpublished = select(m.id, m.group_id, m.group_seq, m.sent_at_us, m.created_at_us, m.sns_message_id, m.body)
        early = func.coalesce(m.sent_at_us, m.created_at_us) < (route.joined_at_us or 0)
        with engines.reading(self._engine) as connection:
            counts = select(func.count()).select_from(outbox.messages).where(*sent, m.sns_message_id.is_not(None))
            count = connection.execute(counts).scalar_one()
            early_count = connection.execute(counts.where(early)).scalar_one()
            rows: Any = unpublished.where(*sent, m.sns_message_id.is_(None)).order_by(m.group_id, m.group_seq)
            for row in connection.execute(rows, execution_options={"yield_per": _IDS}):
                epoch = _epoch_of(row.body)
                cause = self._judge(route, row, epoch, GroupSnapshot(), None)
                if cause is not None:
                    self._find(row.group_id, epoch, row.group_seq, {route.consumer: cause})
        judgement = self.judgements[route.consumer]
        if early_count:
            judgement.states[NumberState.BASELINE] += early_count
        if count > early_count:
            judgement.doubts[_NO_ROWS.format(consumer=route.consumer)] += count - early_count

    def _is_blind(self, route: Route) -> bool:
        """Return whether the consumer has no row in its database, so that the inbox may be in another one."""
        return not self._histories[route.consumer].has_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConsumerHistory:
    """An inbox's records of a consumer that belong to no single group.

    Args:
        has_rows: whether any row of the consumer is in the database.
        forgotten_before_us: groups without a message since this instant may have been deleted; None if none were.
        arrived_us: when the latest message was committed that arrived and that the present subscription would stop; 0
            if none is known.
        brought_back_us: when a message was last brought back from the consumer's DLQ, by the audit.
        dead: the open dead numbers of the consumer.
        pause: since when, by whom and why it is paused; None if it is not.
    """

    has_rows: bool
    arrived_us: int
    forgotten_before_us: int | None
    brought_back_us: int | None
    dead: list[Row[Any]]
    pause: Pause | None


def _read_history(route: Route, arrived_us: int) -> _ConsumerHistory:
    """Return the records of a consumer in its inbox."""
    name = route.consumer
    exceptions, audit = inbox.exceptions.c, inbox.audit.c
    is_dead = (exceptions.consumer == name, exceptions.state == inbox.DEAD, exceptions.closed_at_us.is_(None))
    dead = select(exceptions.group_id, exceptions.epoch, exceptions.seq, exceptions.through, exceptions.seen_at_us)
    brought_back = (audit.consumer == name, audit.action.in_(_BROUGHT_BACK))
    forgotten = select(inbox.consumers.c.forgotten_before_us).where(inbox.consumers.c.consumer == name)
    with engines.reading(route.known_engine) as connection:
        return _ConsumerHistory(
            has_rows=has_rows(connection, name),
            arrived_us=arrived_us,
            forgotten_before_us=connection.execute(forgotten).scalar(),
            brought_back_us=connection.execute(select(func.max(audit.at_us)).where(*brought_back)).scalar(),
            dead=list(
                connection.execute(dead.where(*is_dead).order_by(exceptions.group_id, exceptions.epoch, exceptions.seq))
            ),
            pause=find_pause(connection, name),
        )


def _read_snapshots(route: Route, group_ids: list[str]) -> dict[str, GroupSnapshot]:
    with engines.reading(route.known_engine) as connection:
        return read_groups(connection, route.consumer, group_ids)


def _is_current(row: Row[Any], counter: GroupCounter | None) -> bool:
    """Return whether a message has the epoch of its group's counter."""
    return counter is not None and bool(row.group_seq >= counter.first_seq)


def _is_between(column: Any, first: int, last: int | None) -> Any:
    return column >= first if last is None else column.between(first, last)


def _cause(route: Route, row: Row[Any], content: Row[Any] | None, *, arrived_us: int) -> Cause:
    """Return why a missing message has not arrived; `content` has its body and attributes, if a filter needs them."""
    if row.sns_message_id is None:
        return Cause.NOT_PUBLISHED
    if row.sent_at_us is not None and row.sent_at_us < arrived_us:
        return Cause.NOT_IN_QUEUE
    if route.is_subscribed is False:
        return Cause.NO_SUBSCRIPTION
    if route.accepts is not None and content is not None:
        return Cause.NOT_IN_QUEUE if route.accepts(json.loads(content.attributes), content.body) else Cause.FILTERED
    return Cause.NOT_IN_QUEUE


def _epoch_of(body: str) -> int:
    return int(json.loads(body)["epoch"])


def _text_of(span_us: int) -> str:
    """Return a span of microseconds in words: in days, hours or minutes if it is a whole number of them."""
    seconds = span_us // 1_000_000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
