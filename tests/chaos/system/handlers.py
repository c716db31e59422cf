"""What all consumers of a run do with an event: write its effect, or suffer from it as long as it is not healed."""

import os
import signal
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from sluice.clock import SystemClock
from sluice.messaging import Ack, Context, Event, Outcome, Reject, handler
from tests.chaos.faults.schedule import Kind
from tests.chaos.system.models import Effect

HEALED = "CHAOS_HEALED"
"""Names the file that holds how often an operator has mended something."""
_HANG_SECONDS = 6.0  # longer than the visibility timeout, which the worker extends


@handler("*")
def do(session: Session, event: Event, context: Context) -> Outcome:
    """Write down the effect; an ill event then does what it is there for."""
    ill = illness(event, context)
    session.add(effect(event, context, is_doomed=ill not in (None, Kind.HANG)))
    session.flush()
    return Ack() if ill is None else suffer(session, ill)


def illness(event: Event, context: Context) -> Kind | None:
    """Return what is wrong with an event for this consumer; None when nothing is, or not any more."""
    poison = event.data["poison"]
    if poison is None or poison["consumer"] != context.consumer:
        return None
    kind = Kind(poison["kind"])
    if kind is Kind.HANG:
        return kind if context.attempt == 1 else None
    return None if healed_count(Path(os.environ[HEALED])) >= poison["heals_after"] else kind


def effect(event: Event, context: Context, *, is_doomed: bool) -> Effect:
    """Return the row of an effect."""
    return Effect(
        consumer=context.consumer,
        event_id=event.id,
        group_id=event.group,
        epoch=context.epoch,
        seq=context.seq,
        payload=event.data["payload"],
        is_doomed=is_doomed,
        is_late=context.is_late,
        attempt=context.attempt,
        pid=os.getpid(),
    )


def suffer(session: Session, ill: Kind) -> Outcome:
    """Fail in the way of a kind of poison."""
    match ill:
        case Kind.REJECT:
            return Reject("the event is poison, and no operator has mended it yet")
        case Kind.RAISE:
            raise RuntimeError("the event is poison, and no operator has mended it yet")
        case Kind.DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        case Kind.HANG:
            SystemClock().sleep(_HANG_SECONDS)
        case Kind.ROLLBACK:
            driver: Any = session.connection().connection.driver_connection
            driver.rollback()  # below the ORM, which does not notice
    return Ack()


def healed_count(path: Path) -> int:
    """Return how often an operator has mended something."""
    return int(path.read_text(encoding="utf-8")) if path.exists() else 0


def heal(path: Path, count: int) -> None:
    """Let an operator have mended something that often; handlers see the old number or the new one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(str(count), encoding="utf-8")
    fresh.replace(path)
