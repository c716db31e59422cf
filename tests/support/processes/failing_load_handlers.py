"""The load test's handler, with failures in the middle of batches, whatever faults there are.

The first attempts at one message in eight fail: so each group has failures with messages behind them, and each of these
is received more than three times. One attempt of a run ends its process, and another one never ends.
"""

import os
import signal
from pathlib import Path

from sqlalchemy.orm import Session

from sluice.messaging import Context, Event, Outcome, Retry, handler
from sluice.messaging.handlers import ANY
from sluice.testing.load import effects

_FAILING_ONE_IN, _FAILURES = 8, 3
_ENDING = {5: signal.SIGKILL, 6: signal.SIGSTOP}
"""The signal that a process sends itself at the first message that has this number in its group."""
MARKS = "SLUICE_MARKS"
"""The environment variable that names the folder of what happened once."""


@handler(ANY)
def write(session: Session, event: Event, context: Context) -> Outcome:
    """Write the row of the message; an attempt that fails rolls it back.

    The delay is longer than an invocation takes from there to its end: who deletes such a message finds it hidden.
    """
    outcome = effects.write(session, event, context)
    if context.seq % _FAILING_ONE_IN == 3 and context.attempt <= _FAILURES:
        return Retry(delay_seconds=4, reason=f"attempt {context.attempt} of {_FAILURES} that fail")
    number = _ENDING.get(context.seq)
    if number is not None and _is_first(number):
        os.kill(os.getpid(), number)
    return outcome


def _is_first(number: signal.Signals) -> bool:
    """Return whether no process of the run has sent itself the signal so far."""
    try:
        Path(os.environ[MARKS], number.name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
