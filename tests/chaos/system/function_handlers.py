"""The handler of a run's Lambda functions: its first attempts at some events fail, whatever faults there are.

Without such failures few batches would have one in their middle, and a function that answers wrongly would pass.
"""

from zlib import crc32

from sqlalchemy.orm import Session

from sluice.messaging import Context, Event, Outcome, Retry, handler
from tests.chaos.system import handlers

_FAILING_ONE_IN, _FAILURES = 6, 2


@handler("*")
def do(session: Session, event: Event, context: Context) -> Outcome:
    """Write down an effect that is to be rolled back, and fail; or do what the plain handler does."""
    return fail_first(session, event, context, one_in=_FAILING_ONE_IN, failures=_FAILURES)


def fail_first(session: Session, event: Event, context: Context, *, one_in: int, failures: int) -> Outcome:
    """Fail at the first attempts at one event in so many; otherwise do what the plain handler does."""
    if crc32(event.id.encode()) % one_in or context.attempt > failures:
        return handlers.do(session, event, context)
    session.add(handlers.effect(event, context, is_doomed=True))
    return Retry(delay_seconds=1, reason=f"attempt {context.attempt} of {failures} that fail")
