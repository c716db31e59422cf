"""The tables of a run's own: what producers committed, and what handlers did. Nothing in them refuses a repeat."""

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Producers' and consumers' tables."""


class RecordedEvent(Base):
    """One event, written in the transaction that puts it into the outbox."""

    __tablename__ = "chaos_happened"
    __table_args__ = (UniqueConstraint("producer", "number", "position"),)

    event_id: Mapped[str] = mapped_column(primary_key=True)
    producer: Mapped[str]
    number: Mapped[int]
    position: Mapped[int]
    group_id: Mapped[str]
    payload: Mapped[str]


class EffectRow(Base):
    """One effect of an event; a doomed one is written by an attempt that must not be committed."""

    __tablename__ = "chaos_effect"

    id: Mapped[int] = mapped_column(primary_key=True)
    consumer: Mapped[str]
    event_id: Mapped[str]
    group_id: Mapped[str]
    epoch: Mapped[int]
    seq: Mapped[int]
    payload: Mapped[str]
    is_doomed: Mapped[bool]
    is_late: Mapped[bool]
    attempt: Mapped[int]
    pid: Mapped[int]
