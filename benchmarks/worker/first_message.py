"""A handler that prints when its first message came, and ends its worker.

A worker loads it with `--handlers benchmarks.worker.first_message`.

Prints as JSON the processor seconds of the process since it was started, and the machine's monotonic clock.
"""

import json
import os
import signal
import time

from sqlalchemy.orm import Session

from sluice.messaging import Ack, Context, Event, handler


@handler("*")
def report_first_message(_: Session, __: Event, ___: Context) -> Ack:
    """Print the times, and let SIGTERM end the worker."""
    print(json.dumps([time.process_time(), time.monotonic()]), flush=True)  # noqa: TID251 (of the process itself)
    os.kill(os.getpid(), signal.SIGTERM)
    return Ack()
