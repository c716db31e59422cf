"""Handlers of a load test's workers under faults: they write one row for each message, which the judge counts.

`sluice load run --consumer worker --faults chaos` starts `sluice worker` with these handlers. The table is the load
test's own; nothing in it refuses a repeat.
"""

import os

from sqlalchemy import text
from sqlalchemy.orm import Session

from sluice.clock import SystemClock
from sluice.messaging import Ack, Context, Event, Outcome, handler
from sluice.messaging.handlers import ANY
from sluice.testing.load import poison

_offset_us = os.environ.get("SLUICE_LOAD_CLOCK")  # the load test's clock, whatever the worker's says
_clock = SystemClock(None if _offset_us is None else int(_offset_us))
_INSERT = text(
    "INSERT INTO load_effect (consumer, group_id, epoch, seq, is_late, written_at_us)"
    " VALUES (:consumer, :group_id, :epoch, :seq, :is_late, :written_at_us)"
)


@handler(ANY)
def write(session: Session, event: Event, context: Context) -> Outcome:
    """Write a row for the message in the transaction of the inbox's mark.

    Then fail in the current way, if the event is poison.
    """
    session.execute(
        _INSERT,
        {
            "consumer": context.consumer,
            "group_id": event.group,
            "epoch": context.epoch,
            "seq": context.seq,
            "is_late": int(context.is_late),
            "written_at_us": _clock.now_us(),
        },
    )
    way = poison.way_of(event)
    return Ack() if way is None else poison.suffer(session, way)
