"""A consumer's handlers: one prints more than a pipe holds, and fails if printing fails."""

from sqlalchemy.orm import Session

from sluice.messaging import Context, Event, handler


@handler("said")
def say(session: Session, event: Event, context: Context) -> None:
    """Print a hundred kilobytes at once."""
    print("x" * 100_000, flush=True)


@handler("done")
def do(session: Session, event: Event, context: Context) -> None:
    """Print nothing."""
