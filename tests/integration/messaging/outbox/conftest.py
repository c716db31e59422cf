"""An outbox, once on SQLite and once on Postgres, with a simulated topic."""

import pytest
from sqlalchemy import Engine

from tests.support.messaging.world import World


@pytest.fixture
def world(engine: Engine) -> World:
    """Return an outbox and its relays, once on SQLite and once on Postgres."""
    return World(engine)
