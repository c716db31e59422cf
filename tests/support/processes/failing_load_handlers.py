"""The load test's handler, whose first attempts at one message in some fail, whatever faults there are.

So each group has failures with messages behind them, and each of these is received more than three times.
"""

from sqlalchemy.orm import Session

from sluice.messaging import Context, Event, Outcome, Retry, handler
from sluice.messaging.handlers import ANY
from sluice.testing.load import effects

_FAILING_ONE_IN, _FAILURES = 8, 3


@handler(ANY)
def write(session: Session, event: Event, context: Context) -> Outcome:
    """Write the row of the message; an attempt that fails rolls it back.

    The delay is longer than an invocation takes from there to its end: who deletes such a message finds it hidden.
    """
    outcome = effects.write(session, event, context)
    if context.seq % _FAILING_ONE_IN == 2 and context.attempt <= _FAILURES:
        return Retry(delay_seconds=6, reason=f"attempt {context.attempt} of {_FAILURES} that fail")
    return outcome
