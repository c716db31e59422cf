"""Which relay leads, and a token that every write of a leader is held against.

There is one row per topic. A write begins by touching that row under its own token, which renews the lease and keeps
everybody else from taking over until the write is committed; when nothing is touched, another leads and nothing is
written. Times are the database's, so the clocks of the relays' hosts do not matter.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, func, insert, select, update
from sqlalchemy.exc import IntegrityError, InternalError

from messaging import databases
from messaging.errors import LeaseLost
from messaging.tables import leases
from sluice.clock import Clock

_IDLE_TOO_LONG = "25P03"  # SQLSTATE idle_in_transaction_session_timeout


class Lease:
    """The leadership of one topic's outbox, as one relay has it or wants it. Runs on one thread.

    Args:
        engine: the outbox's database.
        topic: name of the topic.
        lease_seconds: how long a leader that says nothing remains leader.
        owner: shown to operators; None makes one up.
        clock: for tests; None means the database's own.
    """

    def __init__(
        self,
        engine: Engine,
        topic: str,
        *,
        lease_seconds: float,
        owner: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._engine, self._topic, self._clock = engine, topic, clock
        self._lease_us = round(lease_seconds * 1_000_000)
        self.owner = uuid.uuid4().hex[:12] if owner is None else owner
        self.token: int | None = None

    def acquire(self) -> bool:
        """Lead, when nobody does; return whether this one leads now.

        Raises:
            OutboxError: the tables are missing.
        """
        with databases.explaining_missing_tables(), self._transaction() as connection:
            now_us = databases.now_us(connection, self._clock)
            found = connection.execute(
                update(leases)
                .where(leases.c.topic == self._topic, leases.c.expires_at_us <= now_us)
                .values(owner=self.owner, token=leases.c.token + 1, expires_at_us=now_us + self._lease_us)
                .returning(leases.c.token)
            ).scalar()
        self.token = self._first() if found is None else int(found)
        return self.token is not None

    def _first(self) -> int | None:
        """Lead a topic that nobody ever led; None when somebody does."""
        with self._engine.connect() as connection:
            if connection.execute(select(leases.c.token).where(leases.c.topic == self._topic)).scalar() is not None:
                return None
        try:
            with self._transaction() as connection:
                expires_at_us = databases.now_us(connection, self._clock) + self._lease_us
                connection.execute(
                    insert(leases).values(topic=self._topic, owner=self.owner, token=1, expires_at_us=expires_at_us)
                )
        except IntegrityError:  # another was first
            return None
        return 1

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection in a transaction nobody takes over during, and renew the lease with it.

        Raises:
            LeaseLost: another leads; nothing was written.
        """
        with self._transaction() as connection:
            self._touch(connection, databases.now_us(connection, self._clock) + self._lease_us)
            yield connection

    def renew(self) -> None:
        """Remain leader.

        Raises:
            LeaseLost: another leads.
        """
        with self.writing():
            pass

    def release(self) -> None:
        """Let another lead at once. Nothing happens when one does already."""
        if self.token is not None:
            try:
                with self._transaction() as connection:
                    self._touch(connection, 0)
            except LeaseLost:
                pass
        self.token = None

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that Postgres ends when nothing comes for as long as a lease.

        It holds the lease's row. Whoever stops in the middle, or whose host is gone, would keep all others from leading
        until the connection is found dead, which takes hours.
        https://www.postgresql.org/docs/18/runtime-config-client.html (read 2026-11-21)

        Raises:
            LeaseLost: Postgres has ended it.
        """
        try:
            with self._engine.begin() as connection:
                if connection.dialect.name == "postgresql":
                    bound = ("idle_in_transaction_session_timeout", f"{self._lease_us // 1_000}ms")
                    connection.execute(select(func.set_config(*bound, True)))  # noqa: FBT003 (this transaction only)
                yield connection
        except InternalError as error:
            if getattr(error.orig, "sqlstate", None) != _IDLE_TOO_LONG:
                raise
            self.token = None
            raise LeaseLost(f"relay {self.owner} stopped in the middle of a write to {self._topic}") from error

    def _touch(self, connection: Connection, expires_at_us: int) -> None:
        mine = (leases.c.topic == self._topic, leases.c.token == self.token)
        touched = connection.execute(update(leases).where(*mine).values(expires_at_us=expires_at_us))
        if touched.rowcount != 1:
            token, self.token = self.token, None
            raise LeaseLost(f"relay {self.owner} led {self._topic} with token {token}, and another leads now")
