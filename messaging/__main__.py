"""The runtime from the shell."""

import sys
import traceback
from importlib import import_module

import click

from messaging.cli.exits import COULD_NOT, REFUSED
from sluice.errors import ConfigError, MessagingError

_COMMANDS = ("alive", "delays", "dlq", "inbox", "outbox", "relay", "worker")


class _Commands(click.Group):
    """Imports a command when it is called: a health check runs `alive` every few seconds, and needs no database."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's)
        """Return their names."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's)
        """Return one, which is named as its module is."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"messaging.cli.{cmd_name}"), cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """What producers and consumers run, and what operators use to look after it.

    \b
    Exit codes: 0 done, 1 partly done, 2 could not, 3 wrong usage or refused.
    """


def main() -> None:
    """Run the command line; every expected failure is one line and an exit code."""
    try:
        cli(standalone_mode=False, prog_name="python -m messaging")
    except click.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(REFUSED)
    except ConfigError as error:
        _fail(str(error), REFUSED)
    except MessagingError as error:
        _fail(str(error), COULD_NOT)
    except Exception as error:  # Python would exit with 1, which means partly done
        explained = _explained(error)
        if explained is not None:
            _fail(explained, COULD_NOT)
        traceback.print_exc()
        sys.exit(COULD_NOT)


def _explained(error: Exception) -> str | None:
    """Return in a line what the database or AWS means; None where it is neither."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (`alive` never gets here)
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    if isinstance(error, SQLAlchemyError):
        said = str(getattr(error, "orig", None) or error).strip().splitlines()
        return f"the database does not do it ({said[0] if said else type(error).__name__}); look at --dsn"
    if isinstance(error, BotoCoreError | ClientError):
        return f"AWS does not answer as hoped ({error}); look at credentials, region and --endpoint-url"
    return None


def _fail(said: str, code: int) -> None:
    click.echo(f"messaging: {said}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
