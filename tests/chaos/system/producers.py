"""Producers: processes that commit events through the outbox, and write down elsewhere what they tried.

What the n-th commit of a producer holds follows from the seed, whatever was done to the producer before. It counts its
own rows to know how far it is, so that a commit whose answer was lost is not made twice.
"""

import json
import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sluice.clock import SystemClock
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from tests.chaos.system.models import RecordedEvent

_RETRY_SECONDS = 0.2
_ROLLED_BACK_SHARE, _TWO_SHARE, _SAVEPOINT_SHARE = 0.1, 0.1, 0.05


class TransactionState(StrEnum):
    """The state of a transaction, as far as its producer knows it."""

    BEGUN = "begun"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerCommit:
    """The content of one commit.

    Args:
        groups: of its events, in order.
        is_tried_before: whether the same is rolled back first.
        has_savepoint: whether an event is added inside a savepoint that is rolled back.
    """

    groups: tuple[str, ...]
    is_tried_before: bool = False
    has_savepoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task of a producer's process.

    Args:
        name: of the producer.
        seed: of its commits.
        commits: how many it makes in all.
        begins_at_us: when the run began, by the machine's clock.
        seconds: it spreads its commits over so long.
        groups: message groups.
        batch_events_max: events of a group that one commit has at most, one behind the other.
        topic: name of the topic.
        dsn: of the database.
        journal: folder for what it tried.
    """

    name: str
    seed: int
    commits: int
    begins_at_us: int
    seconds: float
    groups: tuple[str, ...]
    topic: str
    dsn: str
    journal: str
    batch_events_max: int = 1

    def as_json(self) -> str:
        """Return the settings as the argument of a producer's process."""
        return json.dumps(asdict(self))

    def commit(self, number: int) -> ProducerCommit:
        """Return what the commit of that number holds: a pure function of seed, name and number."""
        rng = Random(f"{self.seed}/{self.name}/{number}")  # noqa: S311 (a load is not a secret)
        groups = rng.choices(self.groups, k=2 if rng.random() < _TWO_SHARE else 1)
        is_tried_before, has_savepoint = rng.random() < _ROLLED_BACK_SHARE, rng.random() < _SAVEPOINT_SHARE
        return ProducerCommit(
            groups=tuple(group for group in groups for _ in range(rng.randint(1, self.batch_events_max))),
            is_tried_before=is_tried_before,
            has_savepoint=has_savepoint,
        )

    def due_at_us(self, number: int) -> int:
        """Return when the commit of that number is to be made."""
        return self.begins_at_us + round(self.seconds * number / self.commits * 1_000_000)


def produce(task: Task, kind: "type[RecordedTransactions] | None" = None) -> None:
    """Commit until all is committed; a database that does not answer is tried again."""
    engine, clock = engines.engine(task.dsn), SystemClock()
    with (Path(task.journal) / f"{task.name}-{os.getpid()}-{clock.now_us()}.jsonl").open(
        "a", encoding="utf-8"
    ) as journal:
        number: int | None = None
        while number is None or number < task.commits:
            try:
                if number is None:
                    number = committed_count(engine, task.name)
                    continue
                clock.sleep((task.due_at_us(number) - clock.now_us()) / 1_000_000)
                (kind or RecordedTransactions)(engine, task, journal).commit(number)
                number += 1
            except DBAPIError:
                number = None  # whether it was committed tells the database
                clock.sleep(_RETRY_SECONDS)
    engine.dispose()


def committed_count(engine: Engine, producer: str) -> int:
    """Return how many commits of a producer there are."""
    with engines.reading(engine) as connection:
        of = select(func.count(func.distinct(RecordedEvent.number))).where(RecordedEvent.producer == producer)
        return int(connection.execute(of).scalar_one())


class RecordedTransactions:
    """Makes the transactions of one producer, and writes into a journal what it tries."""

    def __init__(self, engine: Engine, task: Task, journal: Any) -> None:
        self.engine, self.task, self._journal = engine, task, journal

    def commit(self, number: int) -> None:
        """Commit what the number holds, after what is to be rolled back."""
        planned = self.task.commit(number)
        if planned.is_tried_before:
            self._try(number, planned, is_kept=False)
        self._try(number, planned, is_kept=True)

    def _try(self, number: int, planned: ProducerCommit, *, is_kept: bool) -> None:
        events = [_event(group) for group in planned.groups]
        given_up = [_event(planned.groups[0])] if planned.has_savepoint else []
        ids = [event.id for event in events]
        self._write_down(ids if is_kept else [], TransactionState.BEGUN)
        self._write_down([*(event.id for event in given_up), *([] if is_kept else ids)], TransactionState.ROLLED_BACK)
        self.transact(number, events, given_up, is_kept=is_kept)
        self._write_down(ids if is_kept else [], TransactionState.COMMITTED)

    def transact(self, number: int, events: Sequence[Event], given_up: Sequence[Event], *, is_kept: bool) -> None:
        """Write and commit the events, or roll them back; those given up are in a savepoint that is rolled back."""
        with Session(self.engine) as session:
            if given_up:
                with session.begin_nested() as savepoint:
                    self._add(session, number, given_up, position=len(events))
                    session.flush()
                    savepoint.rollback()
            self._add(session, number, events, position=0)
            if is_kept:
                session.commit()
            else:
                session.flush()
                session.rollback()

    def _add(self, session: Session, number: int, events: Sequence[Event], *, position: int) -> None:
        for place, event in enumerate(events, start=position):
            session.add(
                RecordedEvent(
                    event_id=event.id,
                    producer=self.task.name,
                    number=number,
                    position=place,
                    group_id=event.group,
                    payload=event.data["payload"],
                )
            )
            Outbox(self.task.topic).add(session, event)

    def _write_down(self, ids: Sequence[str], tried: TransactionState) -> None:
        """Write down before it is done, and after: who is killed in between does not know."""
        if ids:
            self._journal.write(json.dumps({"ids": ids, "tried": tried}) + "\n")
            self._journal.flush()


def _event(group: str) -> Event:
    return Event(type="chaos.happened", group=group, data={"payload": uuid.uuid4().hex})


def read_journal_states(journal: Path) -> dict[str, TransactionState]:
    """Return what producers knew of each event, by id; a line that was cut short by a kill is left out."""
    known: dict[str, TransactionState] = {}
    for path in sorted(journal.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            known |= dict.fromkeys(entry["ids"], TransactionState(entry["tried"]))
    return known


if __name__ == "__main__":
    produce(Task(**json.loads(sys.argv[1])))
