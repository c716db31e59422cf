"""The handler of workers with bundles: its first attempt at a few events fails, so that each place of a bundle does."""

from sqlalchemy.orm import Session

from sluice.messaging import Context, Event, Outcome, handler
from tests.chaos.system.function_handlers import fail_first

_FAILING_ONE_IN, _FAILURES = 41, 1


@handler("*")
def do(session: Session, event: Event, context: Context) -> Outcome:
    """Fail at the first attempt at one event in so many; otherwise do what the plain handler does."""
    return fail_first(session, event, context, one_in=_FAILING_ONE_IN, failures=_FAILURES)
