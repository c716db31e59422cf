"""Which relay leads, and a token that every write of a leader is held against.

There is one row per topic. A write begins with an update of the row under the leader's token. The update renews the
lease and keeps other relays from taking over until the write is committed; if it changes no row, another relay leads
and nothing is written. All times are the database's, so the clocks of the relays' hosts do not matter.

The database's clock may be set back, and a dead leader's lease would then last longer by as much. Therefore a standby
also takes over when the row did not change for longer than the lease in it, by the standby's own monotonic clock. This
may be wrong when the database's clock is set forward; then two relays think that they lead, and the token lets only one
of them write.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, func, insert, literal, literal_column, select, update
from sqlalchemy.exc import IntegrityError, InternalError

from sluice.clock import Clock, SystemClock
from sluice.messaging.database import engines
from sluice.messaging.database.server_settings import DURABLE
from sluice.messaging.errors import LeaseLostError
from sluice.messaging.liveness import process_name
from sluice.messaging.outbox.tables import leases

_IDLE_TOO_LONG = "25P03"  # SQLSTATE idle_in_transaction_session_timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """The lease as its row has it: who leads, until when by the database's clock, and the length of the lease."""

    owner: str
    token: int
    expires_at_us: int
    lease_us: int


class Lease:
    """The lease of one topic's outbox, seen from one relay, which holds it or wants it. Runs on one thread.

    Args:
        lease_seconds: how long a leader that does not renew its lease remains the leader.
        owner: the relay's name for operators; None means host, process and a random part.
        clock: a clock in place of the database's, for tests; None means the database's own.
        own_clock: measures how long the lease of another relay has not changed; None means this machine's.
    """

    def __init__(
        self,
        engine: Engine,
        topic: str,
        *,
        lease_seconds: float,
        owner: str | None = None,
        clock: Clock | None = None,
        own_clock: Clock | None = None,
    ) -> None:
        self._engine, self._topic, self._clock = engine, topic, clock
        self._own_clock = SystemClock() if own_clock is None else own_clock
        self._lease_us = round(lease_seconds * 1_000_000)
        self._seen_since = 0.0  # by our own clock: since when the row of another relay is as in `seen`
        self.owner = process_name() if owner is None else owner
        self.token: int | None = None
        self.seen: HeldLease | None = None

    def acquire(self) -> bool:
        """Take the lease if no other relay holds it, and return whether this relay leads now.

        Otherwise `seen` is the lease of the leader. If the commit fails, this relay does not lead, as another may get
        the same token; if it was applied all the same, nobody leads until the lease runs out.

        Raises:
            OutboxError: the tables are missing.
        """
        token = None
        with engines.explaining_missing_tables(), self._transaction() as connection:
            connection.execute(select(self._idle_limit(connection), DURABLE))
            holding, now_us = self._find(connection), engines.now_us(connection, self._clock)
            if holding is not None and self._is_over(holding, now_us):
                token = self._take_over(connection, holding, now_us)
        self.token = self._insert_lease() if holding is None else token
        return self.token is not None

    def _find(self, connection: Connection) -> HeldLease | None:
        columns = (leases.c.owner, leases.c.token, leases.c.expires_at_us, leases.c.lease_us)
        found = connection.execute(select(*columns).where(leases.c.topic == self._topic)).mappings().one_or_none()
        return None if found is None else HeldLease(**found)

    def _is_over(self, holding: HeldLease, now_us: int) -> bool:
        """Return whether the lease has ended by the database's clock, or has not changed for too long by our own."""
        now = self._own_clock.monotonic()
        if holding != self.seen:
            self.seen, self._seen_since = holding, now
        return holding.expires_at_us <= now_us or now - self._seen_since > holding.lease_us / 1_000_000

    def _take_over(self, connection: Connection, holding: HeldLease, now_us: int) -> int | None:
        """Return the new token; None if the leader renewed its lease, or a third relay took over first."""
        unchanged = (
            leases.c.topic == self._topic,
            leases.c.token == holding.token,
            leases.c.expires_at_us == holding.expires_at_us,
        )
        taken = {
            "owner": self.owner,
            "token": leases.c.token + 1,
            "led_token": leases.c.token + 1,
            "led_since_us": now_us,
            "expires_at_us": now_us + self._lease_us,
            "lease_us": self._lease_us,
        }
        changed = update(leases).where(*unchanged).values(taken).returning(leases.c.token)
        return connection.execute(changed).scalar()

    def _insert_lease(self) -> int | None:
        """Insert the row of a topic that has had no leader yet, and return its token.

        None if another relay inserted it first.
        """
        try:
            with self._transaction() as connection:
                connection.execute(select(self._idle_limit(connection), DURABLE))
                now_us = engines.now_us(connection, self._clock)
                made = {
                    "topic": self._topic,
                    "owner": self.owner,
                    "token": 1,
                    "led_token": 1,
                    "led_since_us": now_us,
                    "expires_at_us": now_us + self._lease_us,
                    "lease_us": self._lease_us,
                }
                connection.execute(insert(leases).values(made))
        except IntegrityError:
            return None
        return 1

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Renew the lease, and yield the connection in that transaction: no other relay can take over until it ends.

        Raises:
            LeaseLostError: another leads; nothing was written.
        """
        with self._transaction() as connection:
            now_us = engines.now_us_sql(connection.dialect.name, self._clock)
            self._change_end(connection, now_us + self._lease_us)
            yield connection

    def require(self, token: int | None) -> None:
        """Compare the token with that of the lease's row, as the same statement read it that read what is to be sent.

        Raises:
            LeaseLostError: another leads.
        """
        if token != self.token:
            raise self._lose()

    def renew(self) -> None:
        """Renew the lease.

        Raises:
            LeaseLostError: another leads.
        """
        with self.writing():
            pass

    def release(self) -> bool:
        """Let another relay lead at once.

        Return False if this relay had no lease, or another relay had taken it over.
        """
        if self.token is None:
            return False
        try:
            with self._transaction() as connection:
                self._change_end(connection, 0)
        except LeaseLostError:
            return False
        finally:
            self.token = None
        return True

    def _idle_limit(self, connection: Connection) -> ColumnElement[Any]:
        """Return an expression that limits the idle time of the transaction in which a statement evaluates it."""
        if connection.dialect.name != "postgresql":
            return literal_column("1")
        return func.set_config(
            "idle_in_transaction_session_timeout", f"{self._lease_us // 1_000}ms", literal(value=True)
        )

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that Postgres ends if no statement arrives for the length of the lease.

        The transaction locks the lease's row. If its process is paused or its host is lost, no other relay could lead
        until the server finds the connection dead, which takes hours.
        https://www.postgresql.org/docs/18/runtime-config-client.html (read 2026-11-21)

        Raises:
            LeaseLostError: Postgres has ended the transaction.
        """
        try:
            with self._engine.begin() as connection:
                yield connection
        except InternalError as error:
            if getattr(error.orig, "sqlstate", None) != _IDLE_TOO_LONG:
                raise
            self.token = None
            raise LeaseLostError(f"relay {self.owner} stopped in the middle of a write to {self._topic}") from error

    def _change_end(self, connection: Connection, expires_at_us: ColumnElement[int] | int) -> None:
        """Change the end of the lease under this relay's token.

        Raises:
            LeaseLostError: another relay leads.
        """
        mine = (leases.c.topic == self._topic, leases.c.token == self.token)
        touched = update(leases).where(*mine).values(expires_at_us=expires_at_us)
        if connection.execute(touched.returning(self._idle_limit(connection), DURABLE)).first() is None:
            raise self._lose()

    def _lose(self) -> LeaseLostError:
        """Forget the token, and return the error that says so."""
        token, self.token = self.token, None
        return LeaseLostError(f"relay {self.owner} led {self._topic} with token {token}, and another leads now")
