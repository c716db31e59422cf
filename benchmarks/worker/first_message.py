"""A handler that says when its first message came, and ends its worker: `--handlers benchmarks.worker.first_message`.

Prints as JSON the processor seconds of the process since it was started, and the machine's monotonic clock.
"""

import json
import os
import signal
import time

from sqlalchemy.orm import Session

from sluice.messaging import Ack, Context, Event, handler


@handler("*")
def first(_: Session, __: Event, ___: Context) -> Ack:
    """Say so, and ask for no more."""
    print(json.dumps([time.process_time(), time.monotonic()]), flush=True)  # noqa: TID251 (of the process itself)
    os.kill(os.getpid(), signal.SIGTERM)
    return Ack()
