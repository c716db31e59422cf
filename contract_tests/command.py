"""The commands `sluice contracts`, which runs the suite on one target, and `sluice conformance`, on all emulators."""

import sys
from collections.abc import Generator
from pathlib import Path

import click
import pytest

from sluice.errors import EndpointError
from sluice.terminal.exits import COULD_NOT, PARTLY, REFUSED, STOPPED
from sluice.terminal.values import Whole

_SUITE = Path(__file__).resolve().parent
_EXITS: dict[int, int] = {
    pytest.ExitCode.OK: 0,
    pytest.ExitCode.TESTS_FAILED: PARTLY,
    pytest.ExitCode.USAGE_ERROR: REFUSED,
    pytest.ExitCode.NO_TESTS_COLLECTED: REFUSED,
}


class _Ending:
    """A plugin that stores two ends of a run that pytest's exit code does not tell: a bad endpoint, and Ctrl-C."""

    is_unusable = is_stopped = False

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self) -> Generator[None, object, object]:
        try:
            return (yield)
        except pytest.UsageError as error:
            self.is_unusable = isinstance(error.__cause__, EndpointError)
            raise

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.is_stopped = excinfo.type is KeyboardInterrupt  # pytest also calls this when collection fails


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True},
)
@click.argument("arguments", metavar="[PYTEST OPTIONS]", nargs=-1, type=click.UNPROCESSED)
def contracts(arguments: tuple[str, ...]) -> None:
    """Verify every promise against an endpoint: pytest runs the contract suite, and takes all of its options.

    \b
    Examples:
      sluice contracts --target simulator -m core
      sluice contracts --endpoint-url http://localhost:4566 -m "not deployment"
      sluice contracts --queue-url URL --target aws --i-will-pay
    Options of the suite itself: sluice contracts -- --help, under "contracts".
    Exit codes: 0 every promise is kept, 1 one is broken, 2 the endpoint cannot be used, or the suite failed,
    3 wrong usage, or no promise is selected, 130 stopped.
    """
    ending = _Ending()
    own = ["-c", str(_SUITE / "suite.ini"), "--rootdir", str(_SUITE), "--confcutdir", str(_SUITE)]
    exit_code = pytest.main([*own, str(_SUITE), *arguments], plugins=[ending])
    if ending.is_stopped:
        sys.exit(STOPPED)
    sys.exit(COULD_NOT if ending.is_unusable else _EXITS.get(exit_code, COULD_NOT))


def _known_targets(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of `--only`; refuse a name that is no target's. click calls this."""
    if not names:
        return names
    from contract_tests.proving.conformance import COLUMNS  # noqa: PLC0415 (starts emulators: in a checkout only)

    return tuple(click.Choice(list(COLUMNS)).convert(name, option, context) for name in names)


def _endpoints(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Return the URL of each `--endpoint TITLE=URL`, by its title. click calls this."""
    found = {}
    for text in given:
        title, _, url = text.partition("=")
        if not title or not url:
            raise click.BadParameter(f"{text!r} is not TITLE=URL, such as Floci=http://127.0.0.1:4566", param=option)
        found[title] = url
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only",
    metavar="TARGET",
    multiple=True,
    callback=_known_targets,
    help="Only these targets, such as simulator or moto; may be repeated.",
)
@click.option(
    "--endpoint",
    "endpoints",
    metavar="TITLE=URL",
    multiple=True,
    callback=_endpoints,
    help="Also what answers there, and without --only nothing else; may be repeated.",
)
@click.option("-k", "keyword", metavar="EXPRESSION", help="Only these tests, as for pytest -k.")
@click.option("-n", "--workers", type=Whole(1), default=4, show_default=True, help="Tests at a time.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for conformance.json, .md, .html and results/.  [default: docs; with --endpoint runs/conformance]",
)
def conformance(
    only: tuple[str, ...], endpoints: dict[str, str], keyword: str | None, workers: int, output: Path | None
) -> None:
    """Test every promise on every emulator, and write the page that compares them.

    \b
    Needs a checkout of Sluice, where the emulators are, and about a quarter of an hour.
    What each run and each server printed is in runs/conformance/.
    Exit codes: 0 every target was tested, whatever it keeps; 2 one could not be
    installed, started or tested (the page says unknown, and why); 3 wrong usage.
    """
    from contract_tests.proving import conformance as body  # noqa: PLC0415 (starts emulators: in a checkout only)

    body.run(only, endpoints, keyword, workers, output)
