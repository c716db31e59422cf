"""`sluice conformance` as a wheel installs it: without the package `emulator`."""

import subprocess
import sys

from click.testing import CliRunner

from contract_tests.command import conformance

_INSTALLED = "import sys; sys.modules['emulator'] = None; from sluice.cli.main import main; main(sys.argv[1:])"


def _sluice(*arguments: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", _INSTALLED, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_without_a_checkout_conformance_prints_its_help() -> None:
    code, printed, errors = _sluice("conformance", "--help")

    assert (code, errors) == (0, "")
    assert "Needs a checkout of Sluice" in printed
    assert "--only TARGET" in printed


def test_without_a_checkout_conformance_says_in_one_line_what_it_needs() -> None:
    needs = "sluice: this starts emulators, which needs a checkout of Sluice; run it there\n"

    assert _sluice("conformance") == (3, "", needs)


def test_an_unknown_target_is_refused_with_the_known_ones() -> None:
    ended = CliRunner().invoke(conformance, ["--only", "sqs"])

    assert ended.exit_code == 2
    assert "'sqs' is not one of 'simulator', 'localstack-4.14.0'" in ended.output
