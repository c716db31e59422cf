"""Poison in a load test with faults: events on which the handlers of a consumer fail, as long as a file says how."""

import os
import signal
from pathlib import Path
from typing import Any
from zlib import crc32

from sqlalchemy.orm import Session

from sluice.clock import SystemClock
from sluice.messaging import Ack, Event, Outcome, Reject

VARIABLE = "SLUICE_LOAD_POISON"
"""The environment variable that names the file; the load test writes into it how handlers are to fail."""
DOOMED = ("reject", "raise", "die", "rollback")
"""The ways of failing after which nothing of the message may be committed."""
_ONE_IN = 4
_HANG_SECONDS = 6.0  # longer than the visibility timeout of a test, which the worker extends


def way_of(event: Event) -> str | None:
    """Return the way in which the handler is to fail on this event, from the file; None if it is not to fail.

    While the file exists, one event in four is poison.
    """
    file = os.environ.get(VARIABLE)
    if file is None or crc32(event.id.encode()) % _ONE_IN:
        return None
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def suffer(session: Session, way: str) -> Outcome:
    """Fail in one of the ways below: raise, end the process, or return an outcome."""
    match way:
        case "reject":
            return Reject("the event is poison")
        case "raise":
            raise RuntimeError("the event is poison")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            SystemClock().sleep(_HANG_SECONDS)
        case "rollback":
            driver: Any = session.connection().connection.driver_connection
            driver.rollback()  # below the ORM, which does not notice
    return Ack()
