"""The one command `sluice`: what runs it, and what it ends with."""

import atexit
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from sluice.cli.commands import COMMANDS, cli
from sluice.errors import SET_CREDENTIALS, ConfigError, EndpointError, MessagingError, Stopped
from sluice.extras import missing
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT, REFUSED, STOPPED
from sluice.terminal.printable import printable

__all__ = ["cli", "main"]

_CHARACTERS_MAX = 5_000  # of what is said of a failure
_TRACEBACK_CHARACTERS_MAX = 100_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every expected failure is one line and an exit code.

    Args:
        arguments: without the program's name; None takes what the program was started with.
    """
    try:
        cli(arguments, standalone_mode=False, prog_name="sluice")
    except click.Abort:
        output.line("stopped", is_error=True)
        sys.exit(STOPPED)
    except Stopped as stopped:
        output.line(str(stopped), is_error=True)
        sys.exit(STOPPED)
    except click.exceptions.NoArgsIsHelpError as error:  # `sluice dlq`
        output.lines(error.format_message(), is_error=True)
        sys.exit(REFUSED)
    except click.ClickException as error:
        _fail(_refusal(error), REFUSED)
    except ConfigError as error:
        _fail(str(error), REFUSED)
    except MessagingError as error:
        _fail(str(error), COULD_NOT)
    except ModuleNotFoundError as error:
        needed = None if error.name is None else missing(error.name, _extra(arguments))
        if needed is None:
            _fail_unforeseen(error)
        _fail(str(needed), REFUSED)
    except Exception as error:  # Python would exit with 1, which means partly done
        _fail_unforeseen(error)


def _extra(arguments: Sequence[str] | None) -> str:
    """Return the extra that the command needs."""
    given = sys.argv[1:] if arguments is None else arguments
    command = next((word for word in given if not word.startswith("-")), "")
    return COMMANDS[command].extra if command in COMMANDS else "worker"


def _refusal(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).removesuffix(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return message if context is None else f"{message}; see `{context.command_path} --help`"


def _fail_unforeseen(error: Exception) -> NoReturn:
    explained = _explained(error)
    if explained is not None:
        _fail(str(explained), REFUSED if isinstance(explained, ConfigError) else COULD_NOT)
    text = "".join(traceback.format_exception(error)).rstrip()
    output.lines(text[-_TRACEBACK_CHARACTERS_MAX:], is_error=True)
    sys.exit(COULD_NOT)


def _explained(error: Exception) -> MessagingError | None:
    """Return what a library raised as the sentence an operator reads; None of an error nobody thought of."""
    if _is_a(error, "sqlalchemy.exc", "SQLAlchemyError"):
        text = str(getattr(error, "orig", None) or error).strip().splitlines()
        return EndpointError(
            f"the database does not do it ({text[0] if text else type(error).__name__}); look at --dsn"
        )
    if _is_a(error, "botocore.exceptions", "ProfileNotFound"):
        return ConfigError(f"{str(error).lower()}; correct AWS_PROFILE, or unset it")
    if _is_a(error, "botocore.exceptions", "NoCredentialsError"):
        return EndpointError(f"there are no AWS credentials; {SET_CREDENTIALS}")
    if _is_a(error, "botocore.exceptions", "BotoCoreError", "ClientError"):
        return EndpointError(f"AWS does not answer as hoped ({error}); look at credentials, region and --endpoint-url")
    return None


def _is_a(error: Exception, module: str, *names: str) -> bool:
    imported = sys.modules.get(module)  # what raised is imported by now
    return imported is not None and isinstance(error, tuple(getattr(imported, name) for name in names))


def _fail(message: str, code: int) -> NoReturn:
    output.line(f"sluice: {printable(message, characters_max=_CHARACTERS_MAX)}", is_error=True)
    sys.exit(code)


def run() -> None:
    """End, also where a handler has left threads at work that Python would wait for: nobody would start another."""
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    ours = (threading.main_thread(), threading.current_thread())
    if any(not thread.daemon and thread not in ours for thread in threading.enumerate()):
        atexit._run_exitfuncs()  # noqa: SLF001 (has no public name)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)
    sys.exit(code)  # type: ignore[arg-type]
