"""A connection to Postgres as outbox and inbox use it: no answer is waited for without end, and few messages are sent.

What every message takes is sent as text, its values escaped: BEGIN with the first statement, the last one with COMMIT.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import psycopg

_LOOK_SECONDS = 0.1  # after which a wait for Postgres looks whether Ctrl-C was pressed, as psycopg has it


def _alternating(around: Sequence[bytes], between: Sequence[bytes]) -> bytes:
    return b"".join(part for pair in zip_longest(around, between, fillvalue=b"") for part in pair)


class NothingChanged(psycopg.DataError):
    """Raised by a commit whose last statement had to change a row: nothing is committed."""

    SIGN = b"sluice: nothing changed"
    """What Postgres cannot read as a number: an error by which no other is meant, as a division by zero may be."""


class Impatient(psycopg.Connection[Any]):
    """A connection that is closed when an answer takes too long."""

    seconds_max: float | None = None
    owes_last = False
    """Whether what `commit_with` was given last is not committed."""
    _last: bytes | None = None
    _prepared_count = 0
    _is_pooled: bool | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._statement_names: dict[tuple[bytes, ...], bytes] = {}

    def wait(self, gen: Any, interval: float = _LOOK_SECONDS, timeout: float | None = None) -> Any:
        """Wait for an answer, for so long at most; whoever gives a time of its own wants no more than to look."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.seconds_max)
        except psycopg.errors._WaitTimeout as error:  # noqa: SLF001 (its documentation names it)
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the database gave no answer for {self.seconds_max:g} s") from error

    def execute_directly(
        self, statement: Sequence[bytes], values: Sequence[str | None], *, is_prepared: bool = False
    ) -> psycopg.pq.abc.PGresult:
        """Execute a statement in the transaction, without a cursor: a third of its time.

        Where no transaction is begun, the same message begins it: a round trip less.

        Args:
            statement: what is around its values; Postgres finds their types.
            values: as text that Postgres reads.
            is_prepared: whether Postgres keeps its plan for this connection, which has to suit tables of any size.

        Raises:
            psycopg.Error: Postgres refused it, or is gone.
        """
        if not (is_prepared and self._keeps_plans()):
            return self._in_transaction(self._written(statement, values))
        key = tuple(statement)
        if key not in self._statement_names:
            places = [b"$%d" % (number + 1) for number in range(len(values))]
            self._prepared_count += 1
            name = b"sluice_%d" % self._prepared_count
            self._in_transaction(b"PREPARE %b AS %b" % (name, _alternating(statement, places)))
            self._statement_names[key] = name
        begins = self.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
        try:
            literals = b", ".join(self._literals(values))
            return self._in_transaction(b"EXECUTE %b(%b)" % (self._statement_names[key], literals))
        except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported) as error:
            # Somebody has dropped all of this connection, and will again; or a column it returns has another type.
            del self._statement_names[key]
            self._is_pooled = isinstance(error, psycopg.errors.InvalidSqlStatementName)
            if not begins:
                raise
        self.rollback()
        return self._in_transaction(self._written(statement, values))

    def commit_with(self, statement: Sequence[bytes], values: Sequence[str | None]) -> None:
        """Let the next commit execute a statement first, in the same message; it has to change a row.

        A rollback forgets it, but not one to a savepoint. Where it changes none, the commit raises `NothingChanged`
        instead. Its values are part of its text, which Postgres shows in `pg_stat_activity` and may log.

        Raises:
            psycopg.Error: a value cannot be sent.
        """
        self._last = b"WITH changed AS (%b RETURNING 1) SELECT %b FROM changed; COMMIT" % (
            self._written(statement, values),
            b"CAST(CASE count(*) WHEN 0 THEN '%b' ELSE '1' END AS int)" % NothingChanged.SIGN,
        )
        self.owes_last = True

    def commit(self) -> None:
        """Commit, after what `commit_with` was given."""
        last, self._last = self._last, None
        if last is None or self._num_transactions or self._tpc:  # in a transaction of its own, psycopg refuses
            super().commit()
            return
        try:
            self._answers(last)
        except BaseException as error:
            with suppress(psycopg.Error):  # the connection may be gone, and then says so first
                self.rollback()
            is_sign = isinstance(error, psycopg.errors.InvalidTextRepresentation) and (
                NothingChanged.SIGN.decode() in str(error)
            )
            if is_sign:
                raise NothingChanged(str(error)) from error
            raise
        self.owes_last = False

    def rollback(self) -> None:
        """Roll back, and forget what `commit_with` was given."""
        self._last = None
        super().rollback()

    def _keeps_plans(self) -> bool:
        """Return whether it is Postgres itself that we are connected to: a pooler may change what is behind it.

        A pooler tells its clients a number of its own where Postgres tells that of its process.
        """
        if self._is_pooled is None:
            seen = self._in_transaction(b"SELECT pg_backend_pid()").get_value(0, 0)
            self._is_pooled = seen != b"%d" % self.info.backend_pid
        return not self._is_pooled

    def _written(self, statement: Sequence[bytes], values: Sequence[str | None]) -> bytes:
        return _alternating(statement, self._literals(values))

    def _literals(self, values: Sequence[str | None]) -> list[bytes]:
        encoding, escaping = self.info.encoding, psycopg.pq.Escaping(self.pgconn)
        texts = [None if value is None else value.encode(encoding) for value in values]
        if any(text is not None and b"\0" in text for text in texts):  # libpq would take what is before it
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return [b"NULL" if text is None else bytes(escaping.escape_literal(text)) for text in texts]

    def _in_transaction(self, statement: bytes) -> psycopg.pq.abc.PGresult:
        if not self.autocommit and self.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            statement = self._get_tx_start_command() + b"; " + statement  # BEGIN, as the connection is set up
        return self._answers(statement)[-1]

    def _answers(self, statements: bytes) -> list[psycopg.pq.abc.PGresult]:
        """Return what Postgres answers to statements in one message; after one that fails it does no other."""
        with self.lock:
            self.pgconn.send_query(statements)
            answers: list[psycopg.pq.abc.PGresult] = self.wait(psycopg.generators.execute(self.pgconn))
        if answers[-1].status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(answers[-1], encoding=self.info.encoding)
        return answers
