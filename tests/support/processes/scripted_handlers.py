"""A consumer's handlers that follow instructions in the event: fail, refuse, take their time."""

import os
from pathlib import Path

from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sluice.clock import eventually
from sluice.messaging import Ack, Context, Event, Outcome, Reject, Retry, handler

_PATIENCE_SECONDS = 60


class Base(DeclarativeBase):
    """The base of the table of effects."""


class HandledEvent(Base):
    """One handled event, in the order of handling; no constraint keeps a second row of the same event out."""

    __tablename__ = "deeds"

    id: Mapped[int] = mapped_column(primary_key=True)
    consumer: Mapped[str]
    group: Mapped[str]
    seq: Mapped[int]
    pid: Mapped[int]
    attempt: Mapped[int]


class Gate:
    """Keeps an event's first attempt in its handler until a test opens it.

    Args:
        path: of a file that is not there yet, and the beginning of another's name.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._reached = path, path.with_name(f"{path.name}-reached")

    @property
    def is_reached(self) -> bool:
        return self._reached.exists()

    def await_reached(self) -> None:
        eventually(lambda: self.is_reached, timeout_seconds=_PATIENCE_SECONDS, describe="a handler to be at work")

    def open(self) -> None:
        self.path.touch()

    def pass_through(self, context: Context, *, is_stubborn: bool) -> None:
        """Wait until the gate is open; unless the handler is stubborn, the end of its hold may end the wait."""
        self._reached.touch()

        def is_open() -> bool:
            if not is_stubborn:
                context.hold.check()
            return self.path.exists()

        eventually(is_open, timeout_seconds=_PATIENCE_SECONDS, describe="the gate to be opened")


@handler("*")
def do(session: Session, event: Event, context: Context) -> Outcome:
    data = event.data
    if context.attempt <= data.get("retries", 0):
        return Retry(delay_seconds=0, reason="it was told to fail")
    if not Path(data.get("needs", "/")).exists():
        return Reject(f"it was told to be refused while there is no {data['needs']}")
    session.add(
        HandledEvent(
            consumer=context.consumer, group=event.group, seq=context.seq, pid=os.getpid(), attempt=context.attempt
        )
    )
    session.flush()
    if "gate" in data and context.attempt == 1:
        Gate(Path(data["gate"])).pass_through(context, is_stubborn=data.get("is_stubborn", False))
    return Ack()
