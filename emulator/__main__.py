"""LocalStack from the shell: `up` in the foreground, or `run -- COMMAND` around a command."""

import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from emulator import localstack
from emulator.processes import SupervisedProcess
from sluice.errors import ConfigError, EndpointError, MessagingError

_COMMAND_GRACE_SECONDS = 20


class _StopSignal(BaseException):
    """Raised in the main thread by SIGTERM or SIGHUP, so that context managers end what they started."""


def _raise_stopped(number: int, _frame: FrameType | None) -> NoReturn:
    """Raise `_StopSignal` with the signal's number; handles SIGTERM and SIGHUP."""
    raise _StopSignal(number)


_log_option = click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("runs") / "localstack.log",
    show_default=True,
    help="File LocalStack logs to.",
)


def _start(port: int | None, endpoint_url: str | None, log: Path) -> AbstractContextManager[localstack.Emulator]:
    """Return a new LocalStack, or the running one at the endpoint; the two options exclude each other."""
    if endpoint_url is None:
        return localstack.running(port=port, log=log)
    if port is not None:
        raise ConfigError("--port and --endpoint-url exclude each other: start one, or attach to one")
    return nullcontext(localstack.attach(endpoint_url.rstrip("/")))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """LocalStack 4.14.0 in host mode: no Docker, nothing left behind.

    SLUICE_EMULATOR=localemu starts LocalEmu in its place.

    \b
    Exit codes: that of COMMAND for `run`; otherwise 0 stopped as asked,
    2 could not start or attach, 3 wrong usage.
    """


@cli.command()
@click.option("--port", type=int, default=localstack.DEFAULT_PORT, show_default=True, help="Port on 127.0.0.1.")
@_log_option
def up(port: int, log: Path) -> None:
    """Run in the foreground until Ctrl-C."""
    with localstack.running(port=port, log=log) as running:
        click.echo(f"{running.engine} at {running.endpoint_url}, log in {log}. Ctrl-C stops it.")
        for name, value in running.environment().items():
            click.echo(f"  export {name}={value}")
        assert running.process is not None
        code = running.process.wait()
    raise EndpointError(f"{running.engine.title} ended by itself with exit code {code}; its log: {log}")


@cli.command(context_settings={"allow_interspersed_args": False})
@click.option("--port", type=int, help="Port on 127.0.0.1.  [default: a free one]")
@click.option("--endpoint-url", metavar="URL", help="Attach to a LocalStack that runs already; it is left running.")
@_log_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(port: int | None, endpoint_url: str | None, log: Path, command: Sequence[str]) -> None:
    """Start LocalStack, run COMMAND with AWS_* pointing at it, stop both, exit with COMMAND's code.

    \b
    Example: python -m emulator run -- pytest contract_tests
    """
    with _start(port, endpoint_url, log) as running:
        process = SupervisedProcess(
            command, environment=localstack.with_endpoint(running), grace_seconds=_COMMAND_GRACE_SECONDS
        )
        with process:
            code = process.wait()
    sys.exit(code)


def main() -> None:
    """Run the command line; every expected failure is one line and an exit code."""
    signal.signal(signal.SIGTERM, _raise_stopped)
    signal.signal(signal.SIGHUP, _raise_stopped)
    try:
        cli(standalone_mode=False, prog_name="python -m emulator")
    except (_StopSignal, KeyboardInterrupt, click.Abort) as stopped:
        number = stopped.args[0] if isinstance(stopped, _StopSignal) else signal.SIGINT
        sys.exit(128 + number)
    except click.ClickException as error:
        error.show()
        sys.exit(3)
    except ConfigError as error:
        sys.exit(_fail(error, 3))
    except (EndpointError, MessagingError, OSError) as error:
        sys.exit(_fail(error, 2))


def _fail(error: Exception, code: int) -> int:
    """Print an error as one line and return the exit code."""
    click.echo(f"emulator: {error}", err=True)
    return code


if __name__ == "__main__":
    main()
