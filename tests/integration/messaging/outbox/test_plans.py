"""How Postgres goes about the outbox's queries."""

from sqlalchemy import Engine, text

from sluice.messaging.database import engines
from sluice.messaging.outbox.store import Store


def test_a_plan_made_while_the_outbox_was_small_is_not_kept(postgres: Engine) -> None:
    """The head query is planned for the outbox as it is now, however often it was asked before."""
    store = Store(postgres, "plans.fifo")

    for _ in range(20):
        store.heads("")

    with engines.reading(postgres) as connection:
        assert connection.execute(text("SELECT statement FROM pg_prepared_statements")).scalars().all() == []
