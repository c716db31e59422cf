"""What the workers of a load test do with a message: it has been in the inbox, and that is all.

`python -m spark_load run --consumer worker` starts `python -m messaging worker --handlers examples.load_handlers`.
"""

from sqlalchemy.orm import Session

from messaging import Ack, Context, Event, Outcome, handler
from messaging.handlers import ANY


@handler(ANY)
def done(_session: Session, _event: Event, _context: Context) -> Outcome:
    """Have no effect of its own: what is judged is the inbox's mark, which is committed with every effect."""
    return Ack()
