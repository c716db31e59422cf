"""The SQLSTATE with which a server refuses a connection, because the text of the refusal is in the server's language.

libpq tells only the text of a failed connect. Its trace has the SQLSTATE, so a connection that failed is tried once
more with a trace. The traced messages, which contain the password, are kept in memory only until the SQLSTATE is read.
On another system than Linux psycopg has no trace, and a refusal counts as a database that does not answer.
https://www.postgresql.org/docs/18/libpq-control.html#LIBPQ-PQTRACE,
https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-PQCONNECTSTARTPARAMS,
https://www.psycopg.org/psycopg3/docs/api/pq.html (read 2026-11-26)
"""

import os
import re
import select
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from sluice.clock import SystemClock

_SECONDS_MAX = 5.0
_ANSWER = re.compile(rb'ErrorResponse\b.*? C "([0-9A-Z]{5})"')


class RefusedConnectionError(psycopg.OperationalError):
    """Raised when a server answers that it takes no connection, with its SQLSTATE."""

    def __init__(self, text: str, sqlstate: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def with_sqlstate(error: psycopg.OperationalError, arguments: Sequence[Any], named: Mapping[str, Any]) -> BaseException:
    """Return an error with the SQLSTATE of the server's answer, or the error itself if there is no answer.

    Args:
        error: the error of a failed connect.
        arguments: positional arguments of that connect.
        named: keyword arguments of that connect.
    """
    if error.sqlstate is not None or isinstance(error, psycopg.errors.ConnectionTimeout) or sys.platform != "linux":
        return error
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    conninfo = make_conninfo(*arguments, **{name: value for name, value in named.items() if name in known})
    with suppress(psycopg.Error, OSError):
        found = _ANSWER.findall(_trace(conninfo))
        if found:
            return RefusedConnectionError(str(error), found[-1].decode())
    return error


def _trace(conninfo: str) -> bytes:
    """Connect once more, and return libpq's trace of it."""
    clock = SystemClock()
    connection, ends_at = pq.PGconn.connect_start(conninfo.encode()), clock.monotonic() + _SECONDS_MAX
    file = os.memfd_create("sluice")
    try:
        connection.trace(file)
        polled = pq.PollingStatus.WRITING
        while polled in (pq.PollingStatus.READING, pq.PollingStatus.WRITING) and clock.monotonic() < ends_at:
            waiting = [connection.socket]
            reads, writes = (waiting, []) if polled is pq.PollingStatus.READING else ([], waiting)
            select.select(reads, writes, [], max(0.0, ends_at - clock.monotonic()))
            polled = pq.PollingStatus(connection.connect_poll())
        connection.untrace()
        return os.pread(file, os.fstat(file).st_size, 0)
    finally:
        connection.finish()
        os.close(file)
