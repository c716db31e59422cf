"""The same mistake ends every command with the same code."""

import errno
import os
from pathlib import Path

import pytest

from sluice.errors import ConfigError, HistoryError, unwritable
from sluice.terminal.exits import COULD_NOT, PARTLY, REFUSED
from tests.support.command_line import Run

EMPTY, NOWHERE, JOURNAL, DATABASE = "empty", "nowhere", "broken", "database.db"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with an empty folder, a journal that is none, and a database without tables."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / EMPTY).mkdir()
    (tmp_path / JOURNAL).mkdir()
    (tmp_path / JOURNAL / "a.arrows").write_bytes(b"nonsense")
    (tmp_path / DATABASE).touch()


REFUSALS = [
    # What is given to the command is not there, or is something else.
    *((command, folder) for command in ("check", "delays", "report") for folder in (NOWHERE, EMPTY)),
    ("compare", NOWHERE, EMPTY),
    ("load", "resume", NOWHERE),
    ("load", "resume", EMPTY),
    ("load", "plan", NOWHERE),
    ("load", "run", f"{NOWHERE}.yaml"),
    ("env", "--declaration", f"{NOWHERE}.py"),
    ("env", NOWHERE),
    ("record", EMPTY, "--", NOWHERE),
    ("init", "Nowhere"),
    ("outbox", "ls", "--dsn", f"sqlite:///{NOWHERE}.db"),
    ("inbox", "ls", "--consumer", "billing", "--dsn", f"sqlite:///{NOWHERE}.db"),
    ("outbox", "ls", "--dsn", f"oracle://{NOWHERE}"),
    ("worker", "--consumer", NOWHERE, "--dsn", f"sqlite:///{DATABASE}"),
    ("worker", "--consumer", "billing", "--dsn", f"sqlite:///{DATABASE}", "--handlers", NOWHERE),
    ("relay", "--dsn", f"sqlite:///{DATABASE}", "--endpoint-url", NOWHERE),
    ("dlq", "replace", "a", "1", "--data", NOWHERE, "--reason", "x", "--consumer", "billing"),
    ("dlq", "skip", "a", "1", "--reason", " ", "--consumer", "billing", "--dsn", f"sqlite:///{DATABASE}"),
    ("outbox", "skip", "a", "1", "--reason", "", "--dsn", f"sqlite:///{DATABASE}"),
    # How the command is written is wrong.
    ("check",),
    ("delays", EMPTY, EMPTY),
    ("compare", EMPTY),
    ("load", "run", "smoke", "--fast"),
    ("conformance", "--workers", "none"),
]
FAILURES = [
    # What is there cannot be read, or whoever is asked does not do it.
    ("check", JOURNAL),
    ("delays", JOURNAL),
    ("outbox", "ls", "--dsn", f"sqlite:///{DATABASE}"),
    ("inbox", "ls", "--consumer", "billing", "--dsn", f"sqlite:///{DATABASE}"),
    ("worker", "--consumer", "billing", "--dsn", f"sqlite:///{DATABASE}"),
    ("relay", "--dsn", f"sqlite:///{DATABASE}", "--endpoint-url", "http://127.0.0.1:1"),
    ("dlq", "ls", "--endpoint-url", "http://127.0.0.1:1"),
    ("dlq", "inspect", "--consumer", "billing", "--endpoint-url", "http://127.0.0.1:1"),
    ("load", "run", "smoke", "--endpoint-url", "http://127.0.0.1:1"),
    ("alive", NOWHERE),  # its answer: the process is not alive
]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(case, REFUSED) for case in REFUSALS] + [(case, COULD_NOT) for case in FAILURES],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_mistake_has_one_code_in_every_command(run: Run, arguments: tuple[str, ...], code: int) -> None:
    """3: the arguments have to be corrected, and nothing was begun. 2: the work could not be done."""
    ended, _, printed = run(*arguments)

    assert ended == code, printed
    assert "Traceback" not in printed, printed


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    "arguments",
    [
        ("record", f"{DATABASE}/below", "--", "true"),
        ("report", EMPTY, "-o", f"{DATABASE}/page.html"),
        ("worker", "--consumer", "billing", "--dsn", f"sqlite:///{DATABASE}", "--alive", f"{DATABASE}/alive"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_place_that_cannot_be_written_is_refused(run: Run, arguments: tuple[str, ...]) -> None:
    """The operator has to give another place, and nothing was begun."""
    ended, _, printed = run(*arguments)

    assert ended == REFUSED, printed
    assert printed.startswith("sluice: cannot write to "), printed


@pytest.mark.parametrize(("number", "kind"), [(errno.EACCES, ConfigError), (errno.ENOSPC, HistoryError)])
def test_a_full_disk_is_no_wrong_folder(number: int, kind: type[Exception]) -> None:
    """A folder without rights is the caller's mistake (exit code 3), a full disk is not (2)."""
    assert type(unwritable("runs", OSError(number, os.strerror(number)), "…")) is kind


@pytest.mark.usefixtures("there")
def test_an_unknown_profile_of_aws_is_refused_as_a_wrong_value(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nope")

    ended, _, printed = run("dlq", "ls", "--consumer", "billing")

    assert ended == REFUSED
    assert printed == "sluice: the config profile (nope) could not be found; correct AWS_PROFILE, or unset it\n"


@pytest.mark.parametrize(
    ("pytests", "code"),
    [
        (pytest.ExitCode.OK, 0),
        (pytest.ExitCode.TESTS_FAILED, PARTLY),
        (pytest.ExitCode.INTERRUPTED, COULD_NOT),
        (pytest.ExitCode.INTERNAL_ERROR, COULD_NOT),
        (pytest.ExitCode.USAGE_ERROR, REFUSED),
        (pytest.ExitCode.NO_TESTS_COLLECTED, REFUSED),
    ],
)
def test_contracts_end_as_other_commands_do(
    run: Run, monkeypatch: pytest.MonkeyPatch, pytests: pytest.ExitCode, code: int
) -> None:
    """Pytest's codes are another table: there 2 is Ctrl-C, and 4 wrong usage."""
    monkeypatch.setattr(pytest, "main", lambda *_, **__: pytests)

    assert run("contracts")[0] == code
