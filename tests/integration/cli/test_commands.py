"""What the programs answer to a wrong declaration, a strange value or Ctrl-C: a line and an exit code, no traceback."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sluice.clock import eventually
from tests.support.project import PROJECT

REFUSAL = (
    "Consumer.name is 'Billing', allowed is lower-case letters, digits and single inner hyphens;"
    " change it in sluice/environments.py"
)
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


def _environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | KEYS | more


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project in which a consumer is called Billing."""
    copy = tmp_path_factory.mktemp("wrong")
    for package in ("sluice", "emulator", "stacks", "spark_load", "contract_tests", "scripts"):
        shutil.copytree(PROJECT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("app.py", "pyproject.toml"):
        shutil.copy(PROJECT / file, copy)
    declaration = copy / "sluice" / "environments.py"
    declaration.write_text(declaration.read_text(encoding="utf-8").replace('"billing"', '"Billing"'), encoding="utf-8")
    return copy


@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        (["-m", "sluice", "load", "run", "smoke"], 3, f"sluice: {REFUSAL}"),
        (["scripts/change.py", "diff", "dev"], 3, f"diff: {REFUSAL}"),
        (["scripts/change.py", "deploy", "local"], 3, f"deploy: {REFUSAL}"),
        (["scripts/change.py", "destroy", "prod"], 3, f"destroy: {REFUSAL}"),
        (["app.py"], 3, f"app.py: {REFUSAL}"),
        (["-m", "pytest", "contract_tests"], 4, f"ERROR: {REFUSAL}"),
        (["-m", "pytest", "-n", "2", "contract_tests", "--prove"], 4, f"ERROR: {REFUSAL}"),
    ],
)
def test_a_wrong_declaration_is_one_line_everywhere(wrong: Path, command: list[str], code: int, line: str) -> None:
    """Whatever imports it first; pytest has an exit code of its own for that."""
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=wrong,
        env=_environment(PYTHONPATH=str(wrong)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ended.returncode, ended.stderr.strip(), ended.stdout) == (code, line, "")


@pytest.mark.parametrize("target", ["deploy", "diff", "destroy", "load"])
@pytest.mark.parametrize(
    "value", ["x'; touch made; '", 'x"; touch made; "', "`touch made`", "$(shell touch made)", "a b", "--help", ""]
)
def test_no_shell_and_no_make_interprets_the_environments_name(tmp_path: Path, target: str, value: str) -> None:
    """The program gets it as it was given, and says that it is not declared."""
    ended = subprocess.run(
        ["make", "--silent", "--old-file=setup", f"--file={PROJECT / 'Makefile'}", target, f"ENV={value}"],
        cwd=_workplace(tmp_path),
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    program = "spark_load" if target == "load" else target
    line, of_make = ended.stderr.splitlines()
    assert line == (
        f"{program}: environment {value!r} is not declared, allowed is one of local, dev, staging, prod;"
        " declare it in sluice/environments.py"
    )
    assert of_make.endswith(f"{target}] Error 3")
    assert not (tmp_path / "made").exists()


def _workplace(directory: Path) -> Path:
    """Return a folder in which make finds the project, and what a recipe makes is seen."""
    for name in (".venv", "node_modules", "sluice", "emulator", "spark_load", "scripts"):
        (directory / name).symlink_to(PROJECT / name)
    return directory


class _Caller(BaseHTTPRequestHandler):
    """Says who the caller is, as STS does."""

    def do_POST(self) -> None:
        body = (
            b'<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
            b"<Account>111122223333</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
        )
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint_url() -> Iterator[str]:
    """Yield where an account's STS answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Caller) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


@pytest.mark.parametrize("action", ["diff", "deploy", "destroy"])
def test_a_change_stopped_with_ctrl_c_says_so(tmp_path: Path, endpoint_url: str, action: str) -> None:
    """Exit code 130, and that CloudFormation goes on; cdk is stood in for by what says that it runs, and waits."""
    cdk = tmp_path / "cdk"
    cdk.write_text(f"#!/bin/sh\n: > {tmp_path}/runs\nexec sleep 60\n", encoding="utf-8")
    cdk.chmod(0o755)
    change = subprocess.Popen(
        # A shell runs its background jobs, and so perhaps pytest, with SIGINT ignored, which would be inherited.
        ["env", "--default-signal=INT", sys.executable, "scripts/change.py", action, "dev"],
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
    _, said = change.communicate(timeout=60)

    assert change.returncode == 130
    assert said.splitlines()[-1] == (
        f"{action}: stopped; CloudFormation goes on with a change it has begun: see it end, then make diff"
    )
    assert "Traceback" not in said
