"""The runtime from the shell."""

import sys
import traceback

import click
from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy.exc import SQLAlchemyError

from messaging.cli.delays import delays
from messaging.cli.dlq import dlq
from messaging.cli.exits import COULD_NOT, REFUSED
from messaging.cli.inbox import inbox
from messaging.cli.outbox import outbox
from messaging.cli.relay import relay
from messaging.cli.worker import worker
from sluice.errors import ConfigError, MessagingError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """What producers and consumers run, and what operators use to look after it.

    \b
    Exit codes: 0 done, 1 partly done, 2 could not, 3 wrong usage or refused.
    """


for _command in (relay, outbox, delays, worker, inbox, dlq):
    cli.add_command(_command)


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
    except SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or error).strip().splitlines()
        _fail(f"the database does not do it ({said[0] if said else type(error).__name__}); look at --dsn", COULD_NOT)
    except (BotoCoreError, ClientError) as error:
        _fail(f"AWS does not answer as hoped ({error}); look at credentials, region and --endpoint-url", COULD_NOT)
    except Exception:  # Python would exit with 1, which means partly done
        traceback.print_exc()
        sys.exit(COULD_NOT)


def _fail(said: str, code: int) -> None:
    click.echo(f"messaging: {said}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
