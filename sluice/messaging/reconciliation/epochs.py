"""The epoch of each group of a topic, in the outbox and at its consumers: they differ after a restore."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Engine, select

from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.reconciliation.routes import Route

_GROUPS = 500
"""The groups that are read in one statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpochs:
    """The epoch of one group in the outbox, and its consumers' positions.

    Args:
        first_seq: the first number of the epoch.
        last_seq: the last number that the outbox has given.
        positions: consumer -> (epoch, last number) in its inbox; None if the inbox does not have the group.
    """

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
    """Return group id -> (epoch, last number) in a consumer's inbox, for the groups that it has."""
    g = inbox.groups.c
    here = (g.consumer == route.consumer, g.group_id.in_(group_ids))
    with engines.reading(route.known_engine) as connection:
        rows = connection.execute(select(g.group_id, g.epoch, g.last_seq).where(*here)).all()
    return {row.group_id: (row.epoch, row.last_seq) for row in rows}
