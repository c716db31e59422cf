"""The load test from the shell."""

import sys
import traceback

import click

from sluice.errors import ConfigError, MessagingError
from sluice.history.checker.verdict import EXIT_CODES, EXIT_REFUSED, Status
from spark_load.cli.check import check
from spark_load.cli.planning import plan, profiles
from spark_load.cli.printing import error_line
from spark_load.cli.report import compare, report
from spark_load.cli.resume import resume
from spark_load.cli.run import run
from spark_load.run.driver import Stopped

_COULD_NOT = EXIT_CODES[Status.UNKNOWN]
_STOPPED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Offer a load to a deployed environment, record everything, judge the record.

    \b
    Exit codes: 0 valid, 1 invalid (with witnesses), 2 unknown or could not run,
    3 wrong usage or refused, 99 valid with a threshold crossed.
    """


for _command in (run, resume, plan, check, profiles, report, compare):
    cli.add_command(_command)


cli.add_command(check, "judge")


def main() -> None:
    """Run the command line; every expected failure is one line and an exit code."""
    try:
        cli(standalone_mode=False, prog_name="python -m spark_load")
    except Stopped as stopped:
        error_line(str(stopped))
        sys.exit(_STOPPED)
    except click.Abort:
        error_line("stopped; no verdict was written")
        sys.exit(_STOPPED)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_REFUSED)
    except ConfigError as error:
        error_line(f"spark_load: {error}")
        sys.exit(EXIT_REFUSED)
    except MessagingError as error:
        error_line(f"spark_load: {error}")
        sys.exit(_COULD_NOT)
    except Exception:  # Python would exit with 1, which means INVALID: a crash is unknown
        for line in traceback.format_exc().rstrip().split("\n"):
            error_line(line)
        sys.exit(_COULD_NOT)


if __name__ == "__main__":
    main()
