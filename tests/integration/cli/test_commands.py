"""The programs answer a wrong declaration, a strange value or Ctrl-C with a line and an exit code, no traceback."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.clock import eventually
from tests.support.cases import one_case_in
from tests.support.declaration import FILE
from tests.support.endpoints.capturing_server import Reply, capturing
from tests.support.project import PROJECT

REFUSAL = "Consumer.name is 'Billing', allowed is lower-case letters, digits and single inner hyphens; change it in"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


def _environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | KEYS | more


COMMANDS = [  # one of each program by day
    pytest.param(["-m", "sluice", "load", "run", "smoke"], 3, "sluice: ", marks=pytest.mark.slow),
    (["-m", "sluice", "worker", "--consumer", "billing"], 3, "sluice: "),
    pytest.param(["-m", "sluice", "dlq", "ls"], 3, "sluice: ", marks=pytest.mark.slow),
    pytest.param(["scripts/change.py", "diff", "dev"], 3, "diff: ", marks=pytest.mark.slow),
    (["scripts/change.py", "deploy", "local"], 3, "deploy: "),
    pytest.param(["scripts/change.py", "destroy", "prod"], 3, "destroy: ", marks=pytest.mark.slow),
    (["app.py"], 3, "app.py: "),
    (["-m", "pytest", "contract_tests"], 4, "ERROR: "),
    pytest.param(["-m", "pytest", "-n", "2", "contract_tests", "--prove"], 4, "ERROR: ", marks=pytest.mark.slow),
]


def _run_refused(command: list[str], file: Path) -> tuple[int, str, str]:
    """Run a program with a declaration; return its exit code, error output and output."""
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env=_environment(PYTHONPATH=str(PROJECT), SLUICE_DECLARATION=str(file)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.returncode, ended.stderr.strip(), ended.stdout


@pytest.mark.parametrize(("command", "code", "program"), COMMANDS)
def test_every_command_refuses_a_wrong_declaration_in_one_line(
    tmp_path: Path, command: list[str], code: int, program: str
) -> None:
    """The line names the declaration's file and line; pytest exits with a code of its own."""
    wrong = tmp_path / "environments.py"
    wrong.write_text(FILE.read_text(encoding="utf-8").replace('"billing"', '"Billing"'), encoding="utf-8")
    (line,) = [
        number for number, text in enumerate(wrong.read_text("utf-8").splitlines(), start=1) if "Consumer(name" in text
    ]

    assert _run_refused(command, wrong) == (code, f"{program}{REFUSAL} {wrong}:{line}", "")


@pytest.mark.parametrize(
    "command",
    [["app.py"], ["scripts/change.py", "diff", "dev"], ["-m", "sluice", "relay"]],
    ids=["app", "change", "relay"],
)
def test_a_declaration_with_a_missing_comma_is_refused_in_one_line(tmp_path: Path, command: list[str]) -> None:
    """Without our handling Python would print that line and a traceback of our own modules."""
    wrong = tmp_path / "environments.py"
    wrong.write_text("ENVIRONMENTS = (\n    1\n    2\n)\n", encoding="utf-8")

    code, text, printed = _run_refused(command, wrong)

    assert code == 3
    assert printed == ""
    assert text.partition(": ")[2] == (
        f"SyntaxError: invalid syntax. Perhaps you forgot a comma?; change it in {wrong}:2"
    )


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "and there is no such module; put it on the Python path, or correct Consumer.handlers"),
        pytest.param(
            "", "has no handlers, allowed is one or more functions under @handler(type)", marks=pytest.mark.slow
        ),
        pytest.param(
            "1 / 0\n",
            "and importing that module raised ZeroDivisionError: division by zero; fix the module",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_handlers_that_are_not_there_are_refused_at_synth(tmp_path: Path, module: str | None, reason: str) -> None:
    """The refusal comes before the deployment; a module of handlers beside the declaration is found."""
    if module is not None:
        (tmp_path / "billing_handlers.py").write_text(module, encoding="utf-8")
    wrong = tmp_path / "environments.py"
    text = FILE.read_text(encoding="utf-8")
    wrong.write_text(text.replace('f"examples.services.{name}"', '"billing_handlers"'), encoding="utf-8")

    code, message, printed = _run_refused(["app.py"], wrong)

    assert code == 3
    assert printed == ""
    assert message.startswith(f"app.py: Consumer('billing') in {wrong}: ")
    assert reason in message
    assert len(message.splitlines()) == 1


_BREAKS_OUT = ["x'; touch made; '", 'x"; touch made; "', "$(shell touch made)"]
_STRANGE = [*_BREAKS_OUT, "`touch made`", "a b", "--help", ""]


@pytest.mark.parametrize(
    ("target", "value"),
    [
        *one_case_in(7, ["deploy", "load"], _STRANGE),  # one for each program
        *one_case_in(3, ["diff", "destroy"], _BREAKS_OUT),
    ],
)
def test_no_shell_and_no_make_interprets_the_environments_name(tmp_path: Path, target: str, value: str) -> None:
    """Each strange name would run `touch made` in a shell, or become another option or word of the command."""
    ended = subprocess.run(
        ["make", "--silent", "--old-file=setup", f"--file={PROJECT / 'Makefile'}", target, f"ENV={value}"],
        cwd=_workplace(tmp_path),
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    program = "sluice" if target == "load" else target
    line, of_make = ended.stderr.splitlines()
    assert line == (
        f"{program}: environment {value!r} is not declared, allowed is one of local, dev, staging, prod;"
        f" declare it in {FILE}"
    )
    assert of_make.endswith(f"{target}] Error 3")
    assert not (tmp_path / "made").exists()


def _workplace(directory: Path) -> Path:
    """Return a folder in which make finds the project, and whose files show what a recipe has done."""
    for name in (".venv", "node_modules", "sluice", "emulator", "spark_load", "scripts"):
        (directory / name).symlink_to(PROJECT / name)
    return directory


_CALLER = Reply(
    body=b'<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    b"<Account>111122223333</Account></GetCallerIdentityResult></GetCallerIdentityResponse>",
    headers=(("Content-Type", "text/xml"),),
)


@pytest.fixture
def endpoint_url() -> Iterator[str]:
    with capturing(lambda _: _CALLER) as server:
        yield server.url


@pytest.mark.parametrize("action", ["diff", "deploy", "destroy"])
def test_a_change_stopped_with_ctrl_c_says_so(tmp_path: Path, endpoint_url: str, action: str) -> None:
    """The command exits with 130, and says that CloudFormation goes on.

    A program that prints a line and waits replaces cdk.
    """
    cdk = tmp_path / "cdk"
    cdk.write_text(f"#!/bin/sh\n: > {tmp_path}/runs\nexec sleep 60\n", encoding="utf-8")
    cdk.chmod(0o755)
    change = subprocess.Popen(
        [sys.executable, "scripts/change.py", action, "dev"],
        cwd=PROJECT,
        env=_environment(
            AWS_ENDPOINT_URL=endpoint_url,
            CONFIRM="dev",
            PATH=f"{tmp_path}:{os.environ['PATH']}",
            PYTHONPATH=str(PROJECT),
        ),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    eventually((tmp_path / "runs").exists, timeout_seconds=60, describe="cdk to be started")

    os.killpg(change.pid, signal.SIGINT)
    _, printed = change.communicate(timeout=60)

    assert change.returncode == 130
    assert printed.splitlines()[-1] == (
        f"{action}: stopped; CloudFormation goes on with a change it has begun: see it end, then make diff"
    )
    assert "Traceback" not in printed
