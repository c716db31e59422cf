"""Commands in the surroundings that containers, secrets and shells give them: one line that names the cause."""

import json
import os
from pathlib import Path

import pytest

from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from sluice.terminal.exits import COULD_NOT, REFUSED
from tests.support.command_line import Run

_NOWHERE = "http://127.0.0.1:1"
_TOPIC_ARN = "arn:aws:sns:us-east-1:000000000000:t.fifo"
_CONFIGURATION = """
[profile sso]
sso_session = mine
sso_account_id = 000000000000
sso_role_name = x
[sso-session mine]
sso_start_url = https://example.com/start
sso_region = us-east-1
[profile half]
aws_access_key_id = x
[profile process]
credential_process = /bin/false
[profile chatty]
credential_process = /bin/echo hello
[profile role]
role_arn = arn:aws:iam::000000000000:role/x
source_profile = nothing
[profile web]
role_arn = arn:aws:iam::000000000000:role/x
web_identity_token_file = /nonexistent
"""


@pytest.fixture
def dsn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a database with all tables, and work in an empty folder with AWS's configuration in it."""
    (tmp_path / "config").write_text(_CONFIGURATION, encoding="utf-8")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    url = f"sqlite:///{tmp_path / 'both.db'}"
    engine = engines.engine(url)
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
        inbox_tables.metadata.create_all(connection)
    engine.dispose()
    return url


@pytest.mark.parametrize("around", ["\n", "\r\n", " ", "\t"], ids=ascii)
@pytest.mark.parametrize("name", ["--dsn", "--endpoint-url", "--topic-arn", "--queue-url"])
def test_white_space_around_a_value_is_no_part_of_it(run: Run, dsn: str, name: str, around: str) -> None:
    """Secrets and files often end in a newline."""
    given = {"--dsn": dsn, "--endpoint-url": _NOWHERE, "--topic-arn": _TOPIC_ARN, "--queue-url": f"{_NOWHERE}/0/q.fifo"}
    given[name] += around
    options = {option: value for option, value in given.items() if option != "--topic-arn"}
    worker = [part for pair in options.items() for part in pair]
    relay = [part for option in ("--dsn", "--endpoint-url", "--topic-arn") for part in (option, given[option])]

    code, out, err = run("worker", "--consumer", "billing", *worker)

    assert code == COULD_NOT
    assert out == ""
    assert err.splitlines()[-1].startswith("sluice: the queue does not answer (EndpointConnectionError: ")
    assert run("relay", "--until-empty", *relay)[0] == 0


@pytest.mark.parametrize("around", ["{}\n", " {}\r\n"], ids=ascii)
def test_white_space_around_variables_is_no_part_of_them(
    run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    """Keys of AWS would be headers that no HTTP client sends, and be shown in its refusal."""
    variables = {
        "SLUICE_DSN": dsn,
        "SLUICE_ENV": "local",
        "SLUICE_CONSUMER": "billing",
        "SLUICE_QUEUE_URL": f"{_NOWHERE}/0/q.fifo",
        "SLUICE_LOG_LEVEL": "warning",
        "AWS_ENDPOINT_URL": _NOWHERE,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_SESSION_TOKEN": "test",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, around.format(value))

    code, out, err = run("worker")

    assert code == COULD_NOT
    assert out == ""
    assert err.splitlines()[-1].startswith("sluice: the queue does not answer (EndpointConnectionError: ")


@pytest.mark.parametrize("command", [("worker", "--consumer", "billing"), ("relay", "--until-empty")], ids=" ".join)
@pytest.mark.parametrize(
    ("profile", "code", "step"),
    [
        ("sso", COULD_NOT, "SSO Token: Token for mine does not exist); log in again, as with `aws sso login`, or"),
        ("half", COULD_NOT, "missing: aws_secret_access_key); correct the profile in AWS's configuration, or"),
        ("process", COULD_NOT, "credentials from custom-process: ); correct the profile in AWS's configuration, or"),
        (
            "chatty",
            COULD_NOT,
            "credentials cannot be read (JSONDecodeError: Expecting value: line 1 column 1 (char 0)); c",
        ),
        ("role", COULD_NOT, 'The source_profile "nothing" referenced in the profile "role" does not exist.); correct'),
        ("web", COULD_NOT, "No such file or directory: '/nonexistent'); look at that file"),
        ("none", REFUSED, "the config profile (none) could not be found; correct AWS_PROFILE, or unset it"),
    ],
)
def test_a_failure_to_get_credentials_names_its_own_cause(
    run: Run,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    profile: str,
    code: int,
    step: str,
) -> None:
    """Each profile fails in another way; the last line has the next step, and does not blame the endpoint."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", profile)
    monkeypatch.setenv("SLUICE_TOPIC_ARN", _TOPIC_ARN)

    ended, _, err = run(*command, "--dsn", dsn, "--endpoint-url", _NOWHERE)

    assert ended == code
    assert "Traceback" not in err
    assert step in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ("dlq", "ls", "--consumer", "billing", "--endpoint-url", "http://local_stack:4566"),
            REFUSED,
            "an alias such as local-stack",
        ),
        (("outbox", "resend", "\udcfc", "1", "--reason", "x"), REFUSED, "bytes that are no text in utf-8 (\\udcfc); "),
        (("dlq", "retry", "\udcfc", "1", "--reason", "x"), REFUSED, "bytes that are no text in utf-8 (\\udcfc); "),
        (("outbox", "ls", "--dsn", "postgresql://\udcfc@127.0.0.1:1/x"), REFUSED, "bytes that are no text"),
    ],
    ids=["underscore", "group", "group of a DLQ", "dsn"],
)
def test_values_that_nobody_can_use_are_named(
    run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    """A host of docker compose with an underscore; bytes of a terminal that is not UTF-8."""
    monkeypatch.setenv("SLUICE_DSN", dsn)
    monkeypatch.setenv("SLUICE_CONSUMER", "billing")

    ended, _, err = run(*arguments)

    assert ended == code, err
    assert err.count("\n") == 1, err
    assert sentence in err


def test_too_many_open_files_are_reported_in_one_line(run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("sluice.cli.targets.engines.require_there", refuse)

    code, _, err = run("outbox", "ls", "--dsn", dsn)

    assert code == COULD_NOT
    assert err.count("\n") == 1
    assert "Too many open files" in err


def test_a_user_without_a_name_is_audited_by_number(run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run as whatever number they are given."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_001)

    code, _, err = run("outbox", "begin-epoch", "--dsn", dsn, "--reason", "restored", "--yes")
    _, out, _ = run("outbox", "audit", "--dsn", dsn)

    assert code == 0
    assert err == ""
    assert json.loads(out)["actor"] == "user 2000000001"
