"""`sluice schema apply` as tasks run it: many at once, killed, too old, and while the database is away."""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sluice.clock import eventually
from sluice.messaging.database import engines, migrations
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables as outbox_tables
from tests.support.command_line import KEYS, Run, command_line
from tests.support.processes.messaging_process import PATIENCE_SECONDS, MessagingProcess

_DONE = "the outbox's tables are as this version needs them\nthe inbox's tables are as this version needs them\n"
_MIGRATE = """
import os, pathlib, sys, time
from sqlalchemy import text
from sluice.messaging.database import engines

folder = pathlib.Path(sys.argv[1])
(folder / "running").touch(exist_ok=False)  # fails beside another
while not (folder / "go").exists():
    time.sleep(0.01)
engine = engines.engine(os.environ["SLUICE_DSN"])
with engine.begin() as connection:
    connection.execute(text("CREATE TABLE IF NOT EXISTS invoices (id INTEGER)"))
    connection.execute(text("INSERT INTO invoices SELECT count(*) FROM sluice_inbox_group"))  # ours are there
(folder / "running").unlink()
"""
_WAITS = "another process runs the project's migration; it is waited for"
_AWAY = "postgresql://user@127.0.0.1:1/name"
_NEWER = (
    "sluice: the {part}'s tables are of version 9, which needs code of version 8 or later, and this code is of version"
    " {version}; deploy a later Sluice\n"
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Yield a function that runs `sluice` in this process, and returns exit code, output and error output."""
    with command_line(monkeypatch, capsys) as made:
        yield made


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    """Return the URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'shop.db'}"


def _apply(dsn: str, log: Path, *options: str, **variables: str) -> MessagingProcess:
    """Start `sluice schema apply` in a process of its own."""
    return MessagingProcess(["schema", "apply", "--dsn", dsn, *options], environment=KEYS | variables, log=log)


def _require_made(dsn: str) -> None:
    """Check that the tables of outbox and inbox are there, in the version of this code."""
    engine = engines.engine(dsn)
    with engine.connect() as connection:
        migrations.require(connection, outbox_tables.versioned)
        migrations.require(connection, inbox_tables.versioned)
    engine.dispose()


def test_concurrent_schema_applies_finish_the_work_of_a_killed_one(dsn: str, tmp_path: Path) -> None:
    """One is killed between the two parts, so the outbox's tables are committed. Of four, one upgrades the inbox's."""
    with _apply(dsn, tmp_path / "killed.log", SLUICE_FAILPOINT="in_step:2") as killed:
        assert killed.wait_for_exit() == -signal.SIGKILL
    with ExitStack() as stack:
        started = [stack.enter_context(_apply(dsn, tmp_path / f"{number}.log")) for number in range(4)]
        assert [process.wait_for_exit() for process in started] == [0] * 4
        upgraded = [entry["part"] for process in started for entry in process.log_entries("upgraded")]

    assert upgraded == ["inbox"]
    _require_made(dsn)


def test_a_database_with_a_url_needs_no_declaration(
    run: Run, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A team that takes the outbox into a service of its own has no declaration."""
    monkeypatch.chdir(tmp_path)
    for name in ("SLUICE_DSN", "SLUICE_DECLARATION"):
        monkeypatch.delenv(name, raising=False)

    unnamed = run("schema", "apply")
    applied = run("schema", "apply", "--dsn", dsn, "--log-level", "error")

    assert unnamed == (
        3,
        "",
        "sluice: no database is named: give --dsn, or set SLUICE_DSN, SLUICE_DATABASE_SECRET_ARN or"
        " SLUICE_DATABASE_USER\n",
    )
    assert applied == (0, "", _DONE)
    _require_made(dsn)


def test_schema_apply_waits_for_a_database_that_is_away(dsn: str, tmp_path: Path) -> None:
    """Another writer holds SQLite's lock until the command has logged that it waits."""
    engine = engines.engine(dsn)
    with engine.begin() as held:  # SQLite's one writer
        held.execute(text("CREATE TABLE busy (id INTEGER)"))
        with _apply(dsn, tmp_path / "waiting.log", "--wait", "60") as waiting:
            logged = waiting.await_logged("the database does not answer yet")
            held.commit()
            assert waiting.wait_for_exit() == 0
    engine.dispose()

    assert "database is locked" in logged["error"]
    _require_made(dsn)


def test_schema_apply_gives_up_a_database_that_stays_away(run: Run) -> None:
    """Until then it logs its progress; at the end it prints one line and ends with 2."""
    code, printed, text = run("schema", "apply", "--dsn", _AWAY, "--wait", "3")

    *progress, last = text.splitlines()
    assert code == 2
    assert printed == ""
    assert progress
    assert all('"the database does not answer yet"' in line for line in progress)
    assert last.startswith("sluice: the database does not do it (connection failed: ")


def test_schema_apply_ends_when_its_task_is_stopped(tmp_path: Path) -> None:
    """At SIGTERM it ends with 2, long before --wait is over."""
    with _apply(_AWAY, tmp_path / "stopped.log", "--wait", "600") as waiting:
        waiting.await_logged("the database does not answer yet")
        waiting.send(signal.SIGTERM)
        code, log = waiting.wait_for_exit(), waiting.log

    assert code == 2
    assert log.splitlines()[-1] == "sluice: stopped before the outbox's tables were upgraded; run it again"


def test_a_second_schema_apply_changes_nothing(run: Run, dsn: str) -> None:
    """Deployments run it each time."""
    assert run("schema", "apply", "--dsn", dsn, "--log-level", "error") == (0, "", _DONE)
    assert run("schema", "apply", "--dsn", dsn) == (0, "", _DONE)


def test_a_process_that_is_too_old_for_the_tables_refuses_to_start(run: Run, engine: Engine) -> None:
    """The upgrade, the worker and the relay, each in one line with exit code 3."""
    dsn = engine.url.render_as_string(hide_password=False)
    assert run("schema", "apply", "--dsn", dsn)[0] == 0
    with engine.begin() as connection:
        connection.execute(text("UPDATE sluice_schema SET version = 9, readable_from = 8"))

    refused = {
        "outbox": run("schema", "apply", "--dsn", dsn),
        "inbox": run("worker", "--consumer", "billing", "--dsn", dsn, "--handlers", "examples.services.billing"),
    }
    relay = run("relay", "--dsn", dsn, "--endpoint-url", "http://127.0.0.1:1")

    lines = {
        tables.part: _NEWER.format(part=tables.part, version=tables.version)
        for tables in (outbox_tables.versioned, inbox_tables.versioned)
    }
    for part, (code, printed, message) in refused.items():  # a worker first says which types go to its DLQ
        assert code == 3
        assert printed == ""
        assert message.splitlines(keepends=True)[-1] == lines[part]
    assert relay == (3, "", lines["outbox"])


def test_tables_of_an_older_version_are_not_used(run: Run, engine: Engine) -> None:
    """The relay names the command that upgrades them."""
    dsn = engine.url.render_as_string(hide_password=False)
    assert run("schema", "apply", "--dsn", dsn)[0] == 0
    with engine.begin() as connection:
        connection.execute(text("UPDATE sluice_schema SET version = 0"))

    code, _, message = run("relay", "--dsn", dsn, "--endpoint-url", "http://127.0.0.1:1")

    assert code == 2
    assert (
        message == "sluice: the outbox's tables are of version 0, this code needs 5; run `sluice schema apply outbox`\n"
    )


def test_a_projects_migration_runs_in_one_process_at_a_time(engine: Engine, tmp_path: Path) -> None:
    """Of two processes with --migrate one waits.

    Each migration finds our tables, because it runs after our upgrade.
    """
    dsn, script = engine.url.render_as_string(hide_password=False), tmp_path / "migrate.py"
    script.write_text(_MIGRATE)
    migrate = ("--migrate", shlex.join([sys.executable, str(script), str(tmp_path)]))

    with ExitStack() as stack:
        started = [stack.enter_context(_apply(dsn, tmp_path / f"{number}.log", *migrate)) for number in range(2)]
        eventually(
            lambda: sum(len(process.log_entries(_WAITS)) for process in started) == 1,
            timeout_seconds=PATIENCE_SECONDS,
            describe="one of two to wait",
        )
        (tmp_path / "go").touch()
        codes = [process.wait_for_exit() for process in started]

    assert codes == [0] * 2, [process.log for process in started]
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM invoices")).scalar_one() == 2


@pytest.mark.parametrize(
    ("migrate", "code", "message"),
    ids=["exit code", "signal", "no such command", "broken quotes", "empty"],
    argvalues=[
        (
            "sh -c 'exit 3'",
            2,
            "`sh -c 'exit 3'` ended with exit code 3, and says why above; correct it, and run this again",
        ),
        (
            "sh -c 'kill -9 $$'",
            2,
            "`sh -c 'kill -9 $$'` ended with SIGKILL, and says why above; correct it, and run this again",
        ),
        (
            "alembick upgrade",
            3,
            "--migrate is `alembick upgrade`, which cannot be run (No such file or directory: alembick); correct"
            " Environment.migrate in the declaration",
        ),
        (
            "alembic 'upgrade",
            3,
            '--migrate is "alembic \'upgrade" (No closing quotation), allowed is a command; correct its quotes',
        ),
        (" ", 3, "--migrate is empty, allowed is a command such as 'alembic upgrade head'; leave it out"),
    ],
)
def test_a_failing_migration_is_reported_in_one_line(run: Run, dsn: str, migrate: str, code: int, message: str) -> None:
    """Exit code 3 if the command itself is wrong, 2 if it fails."""
    found, _, printed = run("schema", "apply", "--dsn", dsn, "--migrate", migrate)

    assert found == code
    assert printed.splitlines()[-1] == f"sluice: {message}"


def test_a_stopped_task_stops_its_migration(dsn: str, tmp_path: Path) -> None:
    """The signal is passed on, and the next process runs the migration again."""
    begun, stopped = tmp_path / "begun", tmp_path / "stopped"
    command = f"trap 'touch {stopped}; exit 0' TERM; touch {begun}; while :; do sleep 0.05; done"
    with _apply(dsn, tmp_path / "log", "--migrate", shlex.join(["sh", "-c", command])) as process:
        eventually(begun.exists, timeout_seconds=PATIENCE_SECONDS, describe="the migration to begin")
        process.send(signal.SIGTERM)
        assert process.wait_for_exit() == 2

    assert stopped.exists()
    assert "ran; run it again" in process.log.splitlines()[-1]
    with _apply(dsn, tmp_path / "again", "--migrate", "true") as process:
        assert process.wait_for_exit() == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_sql_of_both_parts_is_the_sql_of_each(run: Run, kind: str) -> None:
    """`sluice schema sql` prints outbox and inbox, or the part that is named."""
    both, outbox, inbox = (run("schema", "sql", kind, *part)[1] for part in ((), ("outbox",), ("inbox",)))

    assert both == f"{outbox}\n{inbox}"
    assert outbox.startswith("CREATE TABLE sluice_outbox (")
    assert inbox.startswith("CREATE TABLE sluice_inbox_")
