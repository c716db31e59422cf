"""Compare the effects in the consumers' databases with the history, because a killed worker cannot record its own.

A worker records the commit of an effect after the commit. If it dies in between, the effect exists without a record.
But the handler has written a row for the effect in the same transaction.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import SQLAlchemyError

from sluice.errors import EndpointError
from sluice.history.events import END_TYPE, Kind, is_end_marker
from sluice.judge.databases import AppliedEffect, CommittedEvent, DatabaseEvidence, InboxNumbers, OutboxMessage
from sluice.recorder.journal import read_journal

_TABLE = Table(
    "load_effect",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("consumer", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in ("epoch", "seq", "is_late", "written_at_us")),
    sqlite_autoincrement=True,
)
_LISTED = text(
    'SELECT consumer, group_id AS "group", epoch, seq, through, state, reason FROM sluice_inbox_exception'
    " WHERE consumer = :consumer AND epoch = :epoch"
)
_PARKED = text("SELECT group_id, seq FROM sluice_inbox_parked WHERE consumer = :consumer AND epoch = :epoch")
_COMMITTED = text("SELECT group_id, group_seq FROM sluice_outbox WHERE type <> :end ORDER BY id")
_UNSENT = text("SELECT count(*) FROM sluice_outbox WHERE status <> 'sent'")
_PASSED = text(
    "SELECT coalesce(sum(last_seq), 0) FROM sluice_inbox_group"
    " WHERE consumer = :consumer AND epoch = :epoch AND parked_at_us IS NULL"
)
_GAPS = text(
    "SELECT count(*) FROM sluice_inbox_exception"
    " WHERE consumer = :consumer AND epoch = :epoch AND state = 'gap' AND closed_at_us IS NULL"
)
_READ = ["kind", "queue", "message_group_id", "idx", "message_run"]

type _Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One row that a handler wrote.

    Args:
        message_run: the run in the history.
        idx: the number in the history.
        written_at_us: the time by the worker's clock, before the commit.
    """

    message_group_id: str
    message_run: str
    idx: int
    is_late: bool
    written_at_us: int

    @property
    def key(self) -> _Key:
        """Return the key of its message."""
        return self.message_run, self.message_group_id, self.idx


@contextmanager
def _open(url: str) -> Iterator[Connection]:
    """Yield a connection to a database in a transaction.

    Raises:
        EndpointError: the database cannot be reached or used; the message does not contain its password.
    """
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise EndpointError(
            f"the effects in {url_text(url)} cannot be read or written ({_cause(error)}); let its user create the table"
            f" {_TABLE.name}, or name another database with SLUICE_DSN"
        ) from error
    finally:
        engine.dispose()


def require_reachable(url: str) -> None:
    """Require, before a run begins, that a connection to the inboxes' database can be opened.

    Raises:
        EndpointError: it cannot; the message does not contain its password.
    """
    engine = create_engine(url)
    try:
        engine.connect().close()
    except SQLAlchemyError as error:
        raise EndpointError(
            f"{url_text(url)} cannot be reached ({_cause(error)}); start it, or name another database with SLUICE_DSN"
        ) from error
    finally:
        engine.dispose()


def _cause(error: SQLAlchemyError) -> str:
    """Return the first line of what the driver says."""
    return str(error.__cause__ or error).splitlines()[0]


def url_text(url: str) -> str:
    """Return the URL of a database without its password."""
    return make_url(url).render_as_string(hide_password=True)


def make_table(url: str) -> None:
    """Create the table of the handlers' effects in the database of an inbox, unless it exists; raises as `_open`."""
    with _open(url) as connection:
        _TABLE.create(connection, checkfirst=True)


def effects_in(url: str, *, consumer: str, epoch: int) -> list[Effect]:
    """Return a consumer's effects of a run, each group's in the order of their commits; raises as `_open`.

    The ids of a group's rows have the order of the commits, because the inbox lets no two transactions of a group
    overlap.
    """
    of_run = (_TABLE.c.consumer == consumer) & (_TABLE.c.epoch == epoch)
    with _open(url) as connection:
        return [
            Effect(
                message_group_id=row.group_id,
                message_run=f"epoch-{row.epoch}",
                idx=row.seq,
                is_late=bool(row.is_late),
                written_at_us=row.written_at_us,
            )
            for row in connection.execute(select(_TABLE).where(of_run).order_by(_TABLE.c.id))
        ]


def count_recorded(journals: Iterable[Path], queue: str, run: str) -> Counter[_Key]:
    """Return how often the history says that the effect of a message of a run was committed."""
    counts: Counter[_Key] = Counter()
    for journal in journals:
        for row in read_journal(journal).select(_READ).to_pylist():
            if (row["kind"], row["queue"], row["message_run"]) == (Kind.HANDLED, queue, run):
                counts[row["message_run"], row["message_group_id"], row["idx"]] += 1
    return counts


def unrecorded_effects(effects: Iterable[Effect], known: Counter[_Key], queue: str) -> Iterator[Mapping[str, Any]]:
    """Yield an event for each effect that the history does not record, as fields of a `HistoryEvent`.

    Args:
        effects: from the database.
        known: how often the history records each effect; see `count_recorded`.
        queue: of the consumer.
    """
    unmatched = Counter(known)
    for effect in effects:
        if unmatched[effect.key]:
            unmatched[effect.key] -= 1
            continue
        yield {
            "kind": Kind.HANDLED.value,
            "queue": queue,
            "message_group_id": effect.message_group_id,
            "message_run": effect.message_run,
            "idx": effect.idx,
            "invoked_at_us": effect.written_at_us,
            "responded_at_us": effect.written_at_us,
            "detail": json.dumps({"state": "late" if effect.is_late else "contiguous", "source": "database"}),
        }


def missing_effects(effects: Iterable[Effect], known: Counter[_Key]) -> list[_Key]:
    """Return the effects that are committed according to the history and are missing in the database.

    An end marker has no effect, because no handler is called for it.
    """
    missing = known - Counter(effect.key for effect in effects)
    return sorted(key for key in missing if not is_end_marker(key[2]))


def passed_count(url: str, *, consumer: str, epoch: int) -> int:
    """Return how many numbers an inbox has passed in a run; 0 while one is missing or parked. Raises as `_open`."""
    of_run = {"consumer": consumer, "epoch": epoch}
    with _open(url) as connection:
        is_waiting = connection.execute(_GAPS, of_run).scalar_one() or connection.execute(_PARKED, of_run).first()
        return 0 if is_waiting else int(connection.execute(_PASSED, of_run).scalar_one())


def is_all_sent(outbox: Path) -> bool:
    """Return whether every event in an outbox was published; raises as `_open`."""
    with _open(f"sqlite:///{outbox}") as connection:
        return not connection.execute(_UNSENT).scalar_one()


def rows_of(url: str, *, consumer: str, epoch: int, effects: Sequence[Effect], outbox: Path | None) -> DatabaseEvidence:
    """Return the rows of a run's databases, for `sluice.judge.databases`; raises as `_open`.

    Args:
        url: the URL of a consumer's inbox.
        consumer: the consumer of the inbox.
        epoch: the epoch of the run.
        effects: the consumer's effects, in the order of their commits.
        outbox: SQLite file of the outbox, whose rows are the committed events. With None, the effects count as the
            committed events, so that nothing can be missing.
    """
    of_run = {"consumer": consumer, "epoch": epoch}
    with _open(url) as connection:
        listed = [InboxNumbers(**row) for row in connection.execute(_LISTED, of_run).mappings()]
        parked = {(consumer, _id(group, seq)) for group, seq in connection.execute(_PARKED, of_run)}
    if outbox is None:
        numbers = sorted({(effect.message_group_id, effect.idx) for effect in effects})
        places = {number: place for place, number in enumerate(numbers)}
        firsts = {group: place for (group, _), place in reversed(places.items())}
        seqs = [
            place - firsts[group] + 1 for (group, _), place in places.items()
        ]  # without an outbox, no hole is known
    else:
        with _open(f"sqlite:///{outbox}") as connection:
            numbers = [(group, seq) for group, seq in connection.execute(_COMMITTED, {"end": END_TYPE})]
        seqs = [seq for _, seq in numbers]
    return DatabaseEvidence(
        committed=[
            CommittedEvent(event_id=_id(group, seq), group=group, payload="", committed_at_us=place, position=0)
            for place, (group, seq) in enumerate(numbers)
        ],
        published=[
            OutboxMessage(event_id=_id(group, seq), group=group, seq=published)
            for (group, seq), published in zip(numbers, seqs, strict=True)
        ],
        done=[
            AppliedEffect(
                consumer=consumer,
                event_id=_id(effect.message_group_id, effect.idx),
                group=effect.message_group_id,
                epoch=epoch,
                seq=effect.idx,
                payload="",
                is_doomed=False,
                committed_at_us=place,
                id=place,
            )
            for place, effect in enumerate(effects)
        ],
        listed=listed,
        parked=parked,
    )


def _id(group: str, seq: int) -> str:
    """Return an id of an event, from its number in its group."""
    return f"{seq} of {group}"
