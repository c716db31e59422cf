"""Search the databases and the DLQs of an environment for a subject's content, and erase it."""

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy import Engine

from sluice import limits
from sluice.cli.acts import actor, print_intent
from sluice.cli.dlq.target import DlqTarget, StoppableClock, stoppable
from sluice.cli.overview.sources import Sources, Unknown, explain_failure, opening, read
from sluice.cli.targets import ConsumerTarget
from sluice.declaration import Environment, naming
from sluice.errors import MessagingError
from sluice.messaging.bundle import write_bundle
from sluice.messaging.database import engines
from sluice.messaging.envelope import TOMBSTONE
from sluice.messaging.erasure import (
    StoredCopy,
    Subject,
    SubjectEraser,
    find_rows,
    is_on_its_way,
    with_events,
)
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_limits import HOLD_SECONDS
from sluice.messaging.sqs.dead_letter_queue import Destination, Reading, StoredDeadLetter
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT, PARTLY

STAYS = (
    "event ids, groups, numbers, times, and the message ids of SNS and SQS: outbox, inbox and audit need them",
    "the reasons that operators gave for their acts",
    "in recordings, which have no bodies: 16 hex digits of a hash of each body",
    "what is not searched: messages in queues, the consumers' own tables, logs, backups",
)
_RECEIVES = (10, 9, 7)  # letters that a receive brings at most
_LETTERS_MAX = 10_000
_IN_FRONT = (
    "other events of its bundle would come behind letters of its group that are behind it now; bring them back"
    " (`dlq redrive`), or delete them, and run this again"
)
_COLUMNS = ("place", "of", "group", "number", "epoch", "event", "")


@dataclass(slots=True, kw_only=True)
class SearchResult:
    """The places that have content of a subject.

    Args:
        subject: the subject, with all events that were found.
        copies: the rows and dead letters.
        on_their_way: sent messages that a consumer has not handled, with that consumer: its queue may have a copy.
        unsearched: what could not be searched, with the reason.
    """

    subject: Subject
    copies: list[StoredCopy]
    on_their_way: list[tuple[str, StoredCopy]]
    unsearched: list[str]

    @property
    def erasable(self) -> list[StoredCopy]:
        """Return the copies that can be erased now."""
        return [copy for copy in self.copies if copy.left is None]


def find(
    environment: Environment,
    subject: Subject,
    *,
    dsn: str | None,
    inboxes: tuple[str, ...],
    endpoint_url: str | None,
    as_json: bool,
) -> None:
    """Print where a subject's content is, and exit with the command's code; each argument is the option of its name."""
    with opening(environment, dsn, inboxes, endpoint_url) as sources, stoppable() as (_, clock):
        result = _search(sources, subject, clock)
    _print(result, erased=None, as_json=as_json)
    if result.unsearched:
        sys.exit(COULD_NOT)


def erase(
    environment: Environment,
    subject: Subject,
    *,
    dsn: str | None,
    inboxes: tuple[str, ...],
    endpoint_url: str | None,
    as_json: bool,
    reason: str,
    confirmed: bool,
) -> None:
    """Erase a subject's content, and search again; without `confirmed` print what would be erased.

    Dead letters are erased before rows: after a failure in between, the rows still have the event ids by which the
    remaining dead letters are found.
    """
    eraser = SubjectEraser(actor=actor(), reason=reason)
    with opening(environment, dsn, inboxes, endpoint_url) as sources, stoppable() as (_, clock):
        before = _search(sources, subject, clock)
        if not confirmed:
            _print(before, erased=None, as_json=as_json)
            if not as_json:
                print_intent(f"erase {len(before.erasable)} copies", confirmed=False)
            sys.exit(COULD_NOT if before.unsearched else 0)
        places = {copy.place for copy in before.copies}
        dlqs = [dlq for dlq in _dlqs(sources) if dlq.name in places]
        erased = sum(_erase_letters(dlq, before.subject, eraser, clock) for dlq in dlqs)
        erased += sum(_erase_rows(engine, before.subject, eraser) for engine in _databases(sources))
        after = _search(sources, before.subject, clock)
    after.on_their_way = before.on_their_way
    _print(after, erased=erased, as_json=as_json)
    if after.unsearched:
        sys.exit(COULD_NOT)
    if after.copies or after.on_their_way:
        sys.exit(PARTLY)


def _search(sources: Sources, subject: Subject, clock: StoppableClock) -> SearchResult:
    """Search everything for the subject, and again for all events that were found, which may differ elsewhere."""
    dlqs = list(_dlqs(sources))
    with ThreadPoolExecutor() as pool:  # a receive waits for a second until it says that there is nothing
        received = [
            (dlq, *found) for dlq, found in zip(dlqs, pool.map(partial(_receive, clock=clock), dlqs), strict=True)
        ]
    first, unread = _search_rows(sources, subject)
    first += [copy for dlq, letters, _ in received for copy in _copies_in(dlq, letters, subject)]
    whole = with_events(subject, (copy.event_id for copy in first))
    rows, _ = _search_rows(sources, whole)
    return SearchResult(
        subject=whole,
        copies=rows + [copy for dlq, letters, _ in received for copy in _copies_in(dlq, letters, whole)],
        on_their_way=list(_on_their_way(sources, rows)),
        unsearched=[*unread, *(reason for *_, reason in received if reason is not None)],
    )


def _databases(sources: Sources) -> list[Engine]:
    """Return each database once, that of the outbox first."""
    engines_ = (sources.outbox, *sources.inboxes.values())
    return list(dict.fromkeys(each for each in engines_ if isinstance(each, Engine)))


def _search_rows(sources: Sources, subject: Subject) -> tuple[list[StoredCopy], list[str]]:
    """Return the rows of all databases that have content of a subject, and why a database could not be read."""
    unread = [each.reason for each in (sources.outbox, *sources.inboxes.values()) if isinstance(each, Unknown)]
    copies: list[StoredCopy] = []
    for engine in _databases(sources):
        found = read(engine, lambda connection: [row.copy for row in find_rows(connection, subject)])
        if isinstance(found, Unknown):
            unread.append(f"{engine.url.render_as_string()}: {found.reason}")
        else:
            copies += found
    return copies, list(dict.fromkeys(unread))


def _on_their_way(sources: Sources, rows: list[StoredCopy]) -> Iterator[tuple[str, StoredCopy]]:
    """Yield (consumer, message) for each sent message that a consumer has not handled.

    Consumers with a filter policy or a standard queue are left out, because their positions do not tell that.
    """
    sent = [copy for copy in rows if copy.is_sent]
    for consumer in sources.environment.consumers:
        engine = sources.inboxes[consumer.name]
        topic = naming.topic_name(sources.environment, sources.environment.topic(consumer.topic).name)
        if isinstance(engine, Unknown) or consumer.filter_policy is not None or not consumer.fifo:
            continue
        with engines.reading(engine) as connection:
            for copy in sent:
                if copy.owner == topic and is_on_its_way(connection, consumer.name, copy):
                    yield consumer.name, copy


def _erase_rows(engine: Engine, subject: Subject, eraser: SubjectEraser) -> int:
    """Erase the subject's content from a database's rows, in one transaction, and return how many rows had some.

    A row with a reason to be left (`copy.left`) is left as it is.
    """
    with engine.begin() as connection:
        found = [row for row in find_rows(connection, subject) if row.copy.left is None]
        for row in found:
            eraser.erase(connection, row)
    return len(found)


# --- dead letters -----------------------------------------------------------------------------------------------------


def _dlqs(sources: Sources) -> Iterator[DlqTarget]:
    """Yield both DLQs of each consumer."""
    for consumer in sources.environment.consumers:
        engine = sources.inboxes[consumer.name]
        target = ConsumerTarget(
            environment=sources.environment,
            consumer=consumer,
            database=None if isinstance(engine, Unknown) else engine,
            endpoint_url=sources.endpoint_url,
        )
        for is_undelivered in (False, True):
            yield DlqTarget(target=target, is_undelivered=is_undelivered, hold_seconds=HOLD_SECONDS, is_forced=False)


def _receive(dlq: DlqTarget, clock: StoppableClock) -> tuple[list[StoredDeadLetter], str | None]:
    """Return the letters of a DLQ that can be seen, released again, and why there may be others; None if not.

    A receive that ends within a group hides the rest of it, so the DLQ is read again with receives that end elsewhere.
    """
    seen: dict[str, StoredDeadLetter] = {}
    try:
        queue = dlq.open()
        about = sum(queue.counts.values())
        for at_once in _RECEIVES:
            with Reading(queue, clock=clock) as reading:
                letters = dead_letter_queue.peek(reading, _LETTERS_MAX, is_stopped=clock.is_stopped, at_once=at_once)
            seen |= {dead_letter.sqs_message_id: dead_letter for dead_letter in letters}
            if about <= len(seen) or clock.is_stopped():
                break
    except (MessagingError, ClientError, BotoCoreError) as error:
        return [], f"{dlq.name}: {explain_failure(error)}"
    letters = list(seen.values())
    if about <= len(letters):
        return letters, None
    return letters, (
        f"{dlq.name}: {len(letters)} of about {about} letters can be seen, at most the first"
        f" {limits.RECEIVE_MESSAGES_MAX} of each group; bring those in front back (`dlq redrive`), or delete them"
    )


def _is_of(subject: Subject, dead_letter: StoredDeadLetter) -> bool:
    """Return whether a dead letter has content of a subject; a tombstone has none."""
    is_tombstone = dead_letter.envelope is not None and dead_letter.envelope.event.type == TOMBSTONE
    return not is_tombstone and subject.matches_body(dead_letter.body, dead_letter.message_group_id)


def _events_of(subject: Subject, dead_letter: StoredDeadLetter) -> list[StoredDeadLetter]:
    return [event for event in dead_letter.events if _is_of(subject, event)]


def _copies_in(dlq: DlqTarget, letters: list[StoredDeadLetter], subject: Subject) -> Iterator[StoredCopy]:
    """Yield the stored copies that letters of a DLQ have of a subject."""
    for dead_letter in letters:
        events = _events_of(subject, dead_letter)
        left = _IN_FRONT if _is_in_front(dead_letter, events, letters) else None
        yield from (_copy_of(dlq, event, left) for event in events)


def _is_in_front(
    dead_letter: StoredDeadLetter, events: list[StoredDeadLetter], letters: list[StoredDeadLetter]
) -> bool:
    """Return whether what a bundle keeps without these events would come behind later letters of its group.

    A receive brings so many of a group at most: there may be later ones.
    """
    if len(events) == len(dead_letter.events):
        return False
    group = [each for each in letters if each.message_group_id == dead_letter.message_group_id]
    others = [each for each in group if each.sqs_message_id != dead_letter.sqs_message_id]
    is_later = any(each.sent_at_us >= dead_letter.sent_at_us for each in others)
    return is_later or len(group) >= limits.RECEIVE_MESSAGES_MAX


def _copy_of(dlq: DlqTarget, dead_letter: StoredDeadLetter, left: str | None = None) -> StoredCopy:
    """Return the stored copy that a dead letter is; `left` is why it cannot be erased."""
    envelope = dead_letter.envelope
    return StoredCopy(
        place=dlq.name,
        owner=dlq.target.consumer.name,
        group_id=dead_letter.message_group_id,
        event_id=None if envelope is None else envelope.event.id,
        epoch=None if envelope is None else envelope.epoch,
        seq=None if envelope is None else envelope.seq,
        left=left if dlq.target.database is not None else "its consumer's inbox, which has the audit, cannot be read",
    )


def _erase_letters(dlq: DlqTarget, subject: Subject, eraser: SubjectEraser, clock: StoppableClock) -> int:
    """Erase the letters of a DLQ that are of a subject, and return how many there were.

    Erased letters make room for later ones of their groups, so it reads again until it finds none, with
    receives of each size.
    """
    if dlq.target.database is None:
        return 0
    queue, erased = dlq.open(), 0
    at_once, *others = _RECEIVES
    destination = Destination(dlq.sqs(), naming.queue_name(dlq.target.environment, dlq.target.consumer))
    while not clock.is_stopped():
        with Reading(queue, clock=clock) as reading:
            letters = dead_letter_queue.peek(reading, _LETTERS_MAX, is_stopped=clock.is_stopped, at_once=at_once)
            found = [(dead_letter, _events_of(subject, dead_letter)) for dead_letter in letters]
            ours = [
                (dead_letter, events)
                for dead_letter, events in found
                if events and reading.is_safe(dead_letter) and not _is_in_front(dead_letter, events, letters)
            ]
            for dead_letter, events in ours:
                with dlq.target.database.begin() as connection:
                    for event in events:
                        eraser.write_down(connection, _copy_of(dlq, event))
                _erase_letter(reading, dead_letter, events, destination, Destination(dlq.sqs(), dlq.name))
                erased += len(events)
        if not ours and not (letters and others):
            break
        if not ours:
            at_once, *others = others
    return erased


def _erase_letter(
    reading: Reading,
    dead_letter: StoredDeadLetter,
    events: list[StoredDeadLetter],
    destination: Destination,
    own: Destination,
) -> None:
    """Send the tombstones of a letter's events to its consumer's queue, which counts their numbers; delete the letter.

    An event that is no envelope has no number, and no tombstone. The other events of a bundle are sent to the DLQ
    itself, so that none of them is brought back.
    """

    def send(_: StoredDeadLetter) -> None:
        for event in events:
            if event.envelope is not None:
                body = event.envelope.as_tombstone(is_same_event=True).body
                send_body(destination, body, {"type": {"DataType": "String", "StringValue": TOMBSTONE}})
        erased = {event.position for event in events}
        others = [event.body for position, event in enumerate(dead_letter.bundled) if position not in erased]
        if others:
            send_body(own, write_bundle(others), dead_letter.attributes)

    def send_body(queue: Destination, body: str, attributes: Mapping[str, Mapping[str, Any]]) -> None:
        queue.send_body(
            body,
            message_group_id=dead_letter.message_group_id,
            attributes=attributes,
            trace_header=None,
            deduplication_id=dead_letter_queue.replacing(dead_letter, body),
        )

    dead_letter_queue.move(reading, dead_letter, send)


# --- output -----------------------------------------------------------------------------------------------------------


def _print(result: SearchResult, *, erased: int | None, as_json: bool) -> None:
    """Print the copies that were found, or after an erasure the number of erased copies and those that are left."""
    waiting = [{"consumer": consumer, **asdict(copy)} for consumer, copy in result.on_their_way]
    if as_json:
        output.as_json(
            {
                "is_done": erased is not None,
                "erased": erased or 0,
                "copies": [asdict(copy) for copy in result.copies],
                "on_their_way": waiting,
                "not_searched": result.unsearched,
                "stays": STAYS,
            }
        )
        return
    if result.copies:
        rows = [(c.place, c.owner, c.group_id, c.seq, c.epoch, c.event_id, c.left or "") for c in result.copies]
        output.table(_COLUMNS, [["" if cell is None else cell for cell in row] for row in rows])
    output.line(
        f"{len(result.copies)} copies" if erased is None else f"erased {erased} copies, left {len(result.copies)}"
    )
    for each in waiting:
        output.line(
            f"{each['consumer']} has not handled number {each['seq']} of group {each['group_id']} (epoch"
            f" {each['epoch']}): its queue may have a copy; run this again when it has"
        )
    for reason in result.unsearched:
        output.line(f"not searched: {reason}", is_error=True)
    for text in STAYS:
        output.line(f"stays: {text}", is_error=True)
