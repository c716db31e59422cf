"""`sluice contracts` and `sluice conformance`, each in a process: without a checkout, and with nothing to test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from contract_tests.command import conformance
from sluice.terminal.exits import COULD_NOT, REFUSED
from tests.support.project import PROJECT

_INSTALLED = (
    "import sys; sys.modules |= {'emulator': None, 'tests': None}; from sluice.cli.main import main; main(sys.argv[1:])"
)


def _sluice(*arguments: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", _INSTALLED, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_without_a_checkout_conformance_prints_its_help() -> None:
    code, printed, errors = _sluice("conformance", "--help")

    assert code == 0
    assert errors == ""
    assert "Needs a checkout of Sluice" in printed
    assert "--only TARGET" in printed


def test_without_a_checkout_conformance_says_in_one_line_what_it_needs() -> None:
    needs = "sluice: this starts emulators, which needs a checkout of Sluice; run it there\n"

    assert _sluice("conformance") == (3, "", needs)


def test_without_a_checkout_mutants_are_refused_in_one_line() -> None:
    code, printed, errors = _sluice("contracts", "--target", "simulator", "--mutants")

    assert code == REFUSED
    assert (
        printed
        + errors
        == "ERROR: --mutants breaks the simulator's model by the rules in tests/mutants/, which is not here: run it in"
        " a checkout of Sluice\n\n"
    )


def test_the_contracts_leave_the_tests_of_other_folders_alone() -> None:
    """A test without a promise may run beside them, as in `make slow`; it keeps its place and gets no marker."""
    beside = "tests/unit/contract_tests/test_mutants.py"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", beside, "contract_tests/queues/test_purge.py"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    files = [line.partition("::")[0] for line in ended.stdout.splitlines() if "::" in line]
    assert list(dict.fromkeys(files)) == [beside, "contract_tests/queues/test_purge.py"]


def test_a_users_own_tests_run_beside_the_contracts(tmp_path: Path) -> None:
    """With `--pyargs` the suite's hooks see every test of the run, also the user's, which has no promise and fails."""
    (tmp_path / "test_own.py").write_text("def test_own() -> None:\n    assert not 'own'\n")
    suite = [
        "--pyargs",
        "contract_tests.groups",
        "--target",
        "simulator",
        "-k",
        "test_own or second_message_of_a_group_waits",
    ]

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_own.py", *suite, "--results", "results.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "FAILED test_own.py::test_own - AssertionError" in ended.stdout
    assert json.loads((tmp_path / "results.json").read_text())["promises"].keys() == {"GRP-01"}


def test_an_unknown_target_is_refused_with_the_known_ones() -> None:
    ended = CliRunner().invoke(conformance, ["--only", "sqs"])

    assert ended.exit_code == 2
    assert "'sqs' is not one of 'simulator', 'localstack-4.14.0'" in ended.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--endpoint-url", "http://127.0.0.1:1"), COULD_NOT),
        (("--target", "simulator", "-k", "no_test_is_called_so"), REFUSED),
        (("--target", "moon"), REFUSED),
    ],
)
def test_contracts_that_test_nothing_say_why_by_their_code(arguments: tuple[str, ...], code: int) -> None:
    """The endpoint cannot be used, or the arguments match no test."""
    ended = subprocess.run([sys.executable, "-m", "sluice", "contracts", *arguments], check=False, timeout=120)

    assert ended.returncode == code


def test_contracts_refuse_an_invalid_target_in_one_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "sluice", "contracts", "--target", "moon"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert (ended.stdout + ended.stderr).split("\n", 1)[0] == (
        "ERROR: target is 'moon', allowed is one of localstack, localemu, endpoint, simulator, aws; correct --target"
    )
    assert "usage" not in ended.stdout + ended.stderr
