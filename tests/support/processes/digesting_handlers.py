"""A consumer's handler that stores a digest of each event's data, to compare received with committed data."""

import hashlib
import json

from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sluice.messaging import Ack, Context, Event, Outcome, handler


class Base(DeclarativeBase):
    """The table of digests."""


class Digest(Base):
    """The digest of one handled event; no constraint keeps a second row of the same event out."""

    __tablename__ = "digests"

    id: Mapped[int] = mapped_column(primary_key=True)
    group: Mapped[str]
    seq: Mapped[int]
    text: Mapped[str]


def digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@handler("*")
def keep(session: Session, event: Event, context: Context) -> Outcome:
    session.add(Digest(group=event.group, seq=context.seq, text=digest(event.data)))
    return Ack()
