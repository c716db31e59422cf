"""Engines in processes that are forked, as by gunicorn before it serves, or by multiprocessing."""

import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sluice.messaging.database import engines


def _in_child(do: Callable[[], object]) -> Any:
    """Run a function in a forked child, and return its result."""
    reader, writer = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # that threads and fork do not go together
        child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(do()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        found = json.loads(answer.read())
    os.waitpid(child, 0)
    return found


@pytest.fixture
def postgres(private_postgres: Any) -> Iterator[Engine]:
    """Yield an engine on a Postgres of this test's own."""
    made = engines.engine(private_postgres.get_uri())
    yield made
    made.dispose()


def _backend(engine: Engine) -> int:
    """Return the id of the server process that a new transaction of the engine talks to."""
    with engine.begin() as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def test_a_forked_child_opens_connections_and_its_parent_keeps_its_own(postgres: Engine) -> None:
    """Over one connection each would get the other's answers, and commit the other's rows."""
    before = _backend(postgres)

    assert _in_child(lambda: [_backend(postgres), _backend(postgres)]) != [before, before]
    assert _backend(postgres) == before


def test_a_fork_takes_no_open_file_of_sqlite_along(tmp_path: Path) -> None:
    """With the open file, the child would count the parent's locks as its own.

    It could overwrite the parent's pages.
    """
    file = tmp_path / "outbox.db"
    made = engines.engine(f"sqlite:///{file}")
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE t (x)"))

    def open_files() -> int:
        return [os.path.realpath(opened) for opened in Path("/proc/self/fd").iterdir()].count(str(file))

    def write() -> int:
        with made.begin() as connection:
            connection.execute(text("INSERT INTO t VALUES (1)"))
        return open_files()

    assert open_files() == 1
    assert _in_child(open_files) == 0
    assert _in_child(write) == 1
    with made.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM t")).scalar_one() == 1
    made.dispose()
