"""`sluice` imports little to print its help, and refuses invalid values in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from sluice.cli import record
from sluice.errors import MessagingError
from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from tests.support.command_line import Run
from tests.support.project import PROJECT

HEAVY = {"boto3", "botocore", "psycopg", "pyarrow", "rich", "sqlalchemy", "structlog"}
OF_OTHERS = {
    "aws_cdk",
    "jsii",
    "jinja2",
    "lark",
    "numba",
    "numpy",
    "opentelemetry",
    "pandas",
    "pyarrow",
    "pyspark",
    "yaml",
}
_LOADED = """
import json, sys
from sluice.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    """Return the URL of an SQLite file with all tables."""
    url = f"sqlite:///{tmp_path / 'both.db'}"
    engine = engines.engine(url)
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
        inbox_tables.metadata.create_all(connection)
    engine.dispose()
    return url


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 3),
        (("--help",), 0),
        (("dlq",), 3),
        (("worker", "--help"), 0),
        (("relay", "-h"), 0),
        (("outbox", "ls", "--help"), 0),
        (("dlq", "redrive", "--help"), 0),
        (("worker", "--lanes", "x"), 3),
        (("relay", "--lease", "nan"), 3),
        (("dlq", "skip", "a"), 3),
        (("delay",), 3),
    ],
)
def test_help_and_wrong_usage_load_nothing_heavy(arguments: tuple[str, ...], code: int) -> None:
    """Help must not wait for the import of a database's driver."""
    ended = subprocess.run(
        [sys.executable, "-c", _LOADED, *arguments], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == code, ended.stderr
    loaded = set(json.loads(ended.stderr.splitlines()[-1]))
    assert "click" in loaded
    assert loaded & HEAVY == set()


def test_a_worker_loads_nothing_of_the_other_parts(dsn: str) -> None:
    """ECS may start a worker when messages wait, and each module that it loads delays the first message."""
    command = ("worker", "--consumer", "billing", "--dsn", dsn, "--endpoint-url", "http://127.0.0.1:1")
    ended = subprocess.run(
        [sys.executable, "-c", _LOADED, *command], capture_output=True, text=True, timeout=60, check=False
    )

    loaded = set(json.loads(ended.stderr.splitlines()[-1]))
    assert {"botocore", "sqlalchemy", "structlog"} <= loaded
    assert loaded & OF_OTHERS == set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("worker", "--lanes", "x"),
            "Invalid value for '--lanes': it is 'x', allowed is a whole number from 1 to 256;",
        ),
        (
            ("worker", "--lanes", "0"),
            "Invalid value for '--lanes': it is '0', allowed is a whole number from 1 to 256;",
        ),
        (("rehearse", "--seed", "x"), "Invalid value for '--seed': it is 'x', allowed is a whole number from 0;"),
        (("delay",), "No such command 'delay'"),
        (("relay", "--fast"), "No such option '--fast'"),
        (("dlq", "skip", "a", "1"), "Missing option '--reason'"),
        (("outbox", "skip", "a", str(2**63), "--reason", "x"), "Invalid value for '[SEQ]'"),
        (("relay", "--log-level", "loud"), "Invalid value for '--log-level': 'loud' is not one of 'debug', 'info'"),
    ],
)
def test_wrong_usage_is_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    """Exit code 3 means: correct the command. The line names the help."""
    code, out, err = run(*arguments)

    assert code == 3
    assert out == ""
    assert err.startswith(f"sluice: {message}")
    assert err.endswith(" --help`\n")
    assert err.count("\n") == 1


NUMBERS = [
    (("relay",), "--poll"),
    (("relay",), "--lease"),
    (("relay",), "--keep"),
    (("worker", "--consumer", "billing"), "--until-idle"),
    (("dlq", "redrive", "--consumer", "billing"), "--rate"),
]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300", "-1", "-1e-300", "x", ""])
@pytest.mark.parametrize(("command", "option"), NUMBERS)
def test_an_invalid_number_is_refused(run: Run, dsn: str, command: tuple[str, ...], option: str, value: str) -> None:
    code, out, err = run(*command, "--dsn", dsn, "--endpoint-url", "http://127.0.0.1:1", f"{option}={value}")

    assert code == 3
    assert out == ""
    assert err.startswith(f"sluice: Invalid value for '{option}': it is {value!r}, allowed is a number of ")
    assert err.count("\n") == 1
    engine = engines.engine(dsn)
    with engine.connect() as connection:
        assert connection.execute(select(tables.leases)).all() == []
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://u@h:abc/d", "database URL has a port or an option that cannot be read"),
        ("postgresql://u@h:hunter2/d", "database URL has a port or an option that cannot be read"),
        ("sqlite:///x.db?timeout=abc", "database URL has a port or an option that cannot be read"),
        ("sqlite:///file:x.db?nolock=1&uri=true", "database URL has nolock, allowed is none of nolock, immutable, vfs"),
        ("sqlite:///file:x.db?vfs=unix-none&uri=true", "database URL has vfs, allowed is none of"),
        ("sqlite:///file:x.db?mode=memory&uri=true", "database URL has mode=memory, allowed is a file"),
        ("sqlite:///x.db?mode=memory", "database URL has mode=memory, allowed is a file"),
        ("postgresql://u@h:0/d", "database port is 0, allowed is 1 to 65535"),
        ("postgresql://u@h:99999/d", "database port is 99999, allowed is 1 to 65535"),
        ("postgresql+asyncpg://u@h/d", "database driver is 'asyncpg', allowed is psycopg"),
        ("postgresql+psycopg_async://u@h/d", "database driver is 'psycopg_async', allowed is psycopg"),
        ("postgresql+psycopg2://u@h/d", "database driver is 'psycopg2', allowed is psycopg"),
        ("postgresql+nope://u@h/d", "database driver is 'nope', allowed is psycopg"),
        ("sqlite+aiosqlite:///x.db", "database driver is 'aiosqlite', allowed is pysqlite"),
        ("oracle://u@h/d", "database is 'oracle', allowed is one of sqlite, postgresql"),
        ("sqlite://u@h/x", "database URL cannot be read (Invalid SQLite URL: sqlite://u@h/x)"),
        ("outbox.db", "database URL cannot be read ("),
        ("://", "database URL cannot be read ("),
    ],
)
def test_an_invalid_database_is_refused(run: Run, url: str, message: str) -> None:
    """A password in the URL, such as hunter2, is not shown."""
    code, out, err = run("outbox", "lag", "--dsn", url)

    assert code == 3
    assert out == ""
    assert err.startswith(f"sluice: {message}")
    assert err.count("\n") == 1
    assert "hunter" not in err


@pytest.mark.parametrize(
    "url",
    [
        "http://h:abc",
        "http://h:99999",
        "http://-h",
        "http://a..b",
        "http://\x1b[2J",
        "http://[::x]",
        "http://" + 128 * "a." + "b",
    ],
)
def test_an_invalid_endpoint_is_refused(run: Run, dsn: str, url: str) -> None:
    """Among them is an endpoint that only botocore refuses, with a ValueError."""
    code, out, err = run("relay", "--dsn", dsn, "--endpoint-url", url)

    assert code == 3
    assert out == ""
    assert err == f"sluice: endpoint is {url!r}, allowed is a URL such as http://127.0.0.1:4566\n"


def test_a_failure_is_printable_and_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error's text may come from outside: it could control the terminal, or fill it."""

    def fail(**_: object) -> None:
        raise MessagingError("\x1b[2J\nThe end" + "x" * 1_000_000)

    monkeypatch.setattr(record.delays, "callback", fail)

    code, out, err = run("delays", ".")

    assert code == 2
    assert out == ""
    assert err.startswith("sluice: \\x1b[2J\\nThe endxxx")
    assert err.removesuffix("\n").isprintable()
    assert len(err) < 10_000


def test_a_traceback_keeps_its_lines_and_is_printable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a defect of Sluice ends in a traceback; its text may come from outside, too."""

    def fail(**_: object) -> None:
        raise RuntimeError("\x1b[2J")

    monkeypatch.setattr(record.delays, "callback", fail)

    code, out, err = run("delays", ".")

    assert code == 2
    assert out == ""
    assert err.startswith("Traceback (most recent call last):\n  File ")
    assert err.endswith("RuntimeError: \\x1b[2J\n")


_LEAVES_A_THREAD = """
import concurrent.futures, sys, threading
import sluice.cli.main as runtime
concurrent.futures.ThreadPoolExecutor().submit(threading.Event().wait)
runtime.main = lambda *_, **__: sys.exit(2)
runtime.run()
"""


def test_a_thread_that_a_handler_has_left_at_work_keeps_no_process() -> None:
    """Python would wait for an executor's thread for ever; whoever supervises the process would start no other."""
    ended = subprocess.run([sys.executable, "-c", _LEAVES_A_THREAD], timeout=60, check=False)

    assert ended.returncode == 2


def test_ctrl_c_while_modules_are_imported_ends_it(tmp_path: Path) -> None:
    """The signal arrives during the import of click: nothing has begun, so nothing is printed."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", encoding="utf-8")

    ended = subprocess.run(
        [sys.executable, "-m", "sluice", "--help"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{PROJECT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 130
    assert ended.stdout == ""
    assert ended.stderr == ""
