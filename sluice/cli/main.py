"""The command `sluice`: its subcommands, the function that runs it, and its exit codes.

The module of a subcommand is imported when the subcommand is named. It has options and help, and imports only click;
what the subcommand works with is imported when it runs. So `--help` and wrong usage load neither SQLAlchemy nor boto3.
"""

import atexit
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from sluice.errors import ConfigError, EndpointError, InterruptedWorkError, MessagingError
from sluice.extras import missing
from sluice.terminal import output, streams
from sluice.terminal.exits import COULD_NOT, REFUSED, STOPPED
from sluice.terminal.groups import CommandGroup, Lazy
from sluice.terminal.printable import printable

if TYPE_CHECKING:
    from sqlalchemy import Engine

_NO_TEXT = re.compile("[\udc80-\udcff]")  # https://docs.python.org/3/library/codecs.html#error-handlers
_CHARACTERS_MAX = 5_000  # of the line that explains a failure
_TRACEBACK_CHARACTERS_MAX = 100_000
_CHILDREN_SECONDS = 1.0  # for all child processes together, to end after SIGTERM
COMMANDS = {
    "alive": Lazy("sluice.cli.alive:alive", "Check that a worker or relay makes progress."),
    "check": Lazy(
        "spark_load.cli.check:check", "Judge a recorded history: nothing lost, doubled, reordered.", "checker"
    ),
    "compare": Lazy("spark_load.cli.report:compare", "Compare two judged runs.", "checker"),
    "conformance": Lazy("contract_tests.command:conformance", "Test every promise on every emulator.", "contracts"),
    "contracts": Lazy("contract_tests.command:contracts", "Verify every promise against an endpoint.", "contracts"),
    "delays": Lazy("sluice.cli.record:delays", "Show where the time went in a recorded history.", "recorder"),
    "dlq": Lazy("sluice.cli.dlq.commands:dlq", "Look at dead letters, mend them, bring them back."),
    "drill": Lazy("sluice.cli.drill.commands:drill", "Practise a restore on copies, with a stopwatch."),
    "env": Lazy(
        "sluice.cli.env.commands:env", "List the declared environments, their names, and what they cost.", "rehearse"
    ),
    "events": Lazy("sluice.cli.events.commands:events", "Compare what producers send and consumers read.", "events"),
    "find": Lazy("sluice.cli.overview.commands:find", "Show where an event or a group is and was."),
    "inbox": Lazy("sluice.cli.inbox:inbox", "Look after a consumer's inbox."),
    "init": Lazy("sluice.cli.new_project.init:init", "Write a new project: a consumer, its tests, its stacks."),
    "lambda": Lazy("sluice.cli.functions:functions", "Run a consumer's Lambda function on this machine.", "lambda"),
    "load": Lazy("spark_load.cli.commands:load", "Load-test a deployed environment.", "load"),
    "outbox": Lazy("sluice.cli.outbox:outbox", "Look at an outbox, and act on its messages."),
    "record": Lazy("sluice.cli.record:record", "Run a program, and record its SNS and SQS calls.", "recorder"),
    "rehearse": Lazy("sluice.rehearse.command:rehearse", "Try the deployed scaling on a day of traffic.", "rehearse"),
    "relay": Lazy("sluice.cli.services.commands:relay", "Publish what is committed to the outbox."),
    "replay": Lazy("sluice.cli.replay.commands:replay", "Hand events of the past to a consumer."),
    "report": Lazy("spark_load.cli.report:report", "Draw the page of a judged run again.", "checker"),
    "schema": Lazy("sluice.cli.schema.commands:schema", "Create or upgrade the tables of outbox and inbox."),
    "simulator": Lazy("sluice.cli.simulator:simulator", "Run SQS and SNS in memory, as a server for development."),
    "status": Lazy("sluice.cli.overview.commands:status", "Show an environment on one screen, and what waits for you."),
    "subject": Lazy("sluice.cli.subject.commands:subject", "Find and erase what messages say of one subject."),
    "topology": Lazy("sluice.cli.topology:topology", "Make an environment's topics and queues on an emulator."),
    "ui": Lazy("sluice.console.command:ui", "Show an environment in the browser, and act there.", "ui"),
    "worker": Lazy("sluice.cli.services.commands:worker", "Hand a consumer's messages to its handlers."),
}


@click.group(cls=CommandGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluice-fifo", prog_name="sluice")
def cli() -> None:
    """Ordered fan-out messaging on AWS: run it, look after it, prove it, load-test it.

    \b
    Exit codes: 0 done, 1 partly done (check, load: invalid), 2 could not (unknown),
    3 wrong usage or refused, 99 (check, load) valid with a threshold crossed,
    (status) something waits for a person.
    """


def main(arguments: Sequence[str] | None = None, *, database: "Callable[[], Engine] | None" = None) -> None:
    """Run the command line; every expected failure is one line and an exit code.

    Args:
        arguments: without the program's name; None is `sys.argv`.
        database: opens the database in place of `--dsn`; Django's `manage.py` commands pass it.
    """
    _trim_variables()
    try:
        cli(arguments, standalone_mode=False, prog_name="sluice", obj=database)
    except click.Abort:
        output.line("stopped", is_error=True)
        sys.exit(STOPPED)
    except InterruptedWorkError as stopped:
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


def _trim_variables() -> None:
    """Strip white space from the values of our variables and AWS's: a secret from a file often ends in a newline."""
    for name, value in os.environ.items():
        if name.startswith(("AWS_", "SLUICE_")) and value != value.strip():
            os.environ[name] = value.strip()


def _extra(arguments: Sequence[str] | None) -> str:
    """Return the extra of the wheel that the named subcommand needs, for the error about a module that is missing."""
    words = sys.argv[1:] if arguments is None else arguments
    command = next((word for word in words if not word.startswith("-")), "")
    return COMMANDS[command].extra if command in COMMANDS else "worker"


def _refusal(error: click.ClickException) -> str:
    """Return click's error in one line, with the command whose `--help` explains it."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return message if context is None else f"{message}; see `{context.command_path} --help`"


def _fail_unforeseen(error: Exception) -> NoReturn:
    """Exit with one line about a library's error; with the traceback where no such line is known."""
    explained = _explain(error)
    if explained is not None:
        _fail(str(explained), REFUSED if isinstance(explained, ConfigError) else COULD_NOT)
    text = "".join(traceback.format_exception(error)).rstrip()
    output.lines(text[-_TRACEBACK_CHARACTERS_MAX:], is_error=True)
    sys.exit(COULD_NOT)


def _explain(error: Exception) -> MessagingError | None:
    """Return a library's error as a sentence for an operator; None for an error that should not occur."""
    if _is_a(error, "sqlalchemy.exc", "SQLAlchemyError"):
        text = str(getattr(error, "orig", None) or error).strip().splitlines()
        return EndpointError(
            f"the database does not do it ({text[0] if text else type(error).__name__}); look at --dsn"
        )
    if _is_a(error, "botocore.exceptions", "BotoCoreError", "ClientError"):
        return _explain_aws(error)
    if isinstance(error, UnicodeEncodeError) and _NO_TEXT.search(error.object):
        bytes_ = printable(error.object[error.start : error.end])
        return ConfigError(
            f"an argument or variable holds bytes that are no text in {sys.getfilesystemencoding()} ({bytes_}); write"
            " UTF-8, and set PYTHONUTF8=1 where the locale is another one"
        )
    if isinstance(error, OSError):
        return EndpointError(f"the system does not do it ({error}); look at that file, the disk and `ulimit -n`")
    return None


def _explain_aws(error: Exception) -> MessagingError:
    """Return botocore's error as a sentence with the next step."""
    from sluice import sdk

    step = sdk.next_step(error)
    if _is_a(error, "botocore.exceptions", "ProfileNotFound"):
        return ConfigError(f"{str(error).lower()}; {step}")
    if _is_a(error, "botocore.exceptions", "NoCredentialsError"):
        return EndpointError(f"there are no AWS credentials; {step}")
    if _is_a(error, "botocore.exceptions", "ClientError"):
        step = "look at credentials, region and --endpoint-url"
    return EndpointError(f"AWS does not answer as hoped ({error}); {step}")


def _is_a(error: Exception, module: str, *names: str) -> bool:
    """Return whether an error is of one of these classes, without importing their module."""
    imported = sys.modules.get(module)  # a module that raised an error has been imported
    return imported is not None and isinstance(error, tuple(getattr(imported, name) for name in names))


def _fail(message: str, code: int) -> NoReturn:
    """Print an error in one line, and exit with the code."""
    output.line(f"sluice: {printable(message, characters_max=_CHARACTERS_MAX)}", is_error=True)
    sys.exit(code)


def run(arguments: Sequence[str] | None = None, *, database: "Callable[[], Engine] | None" = None) -> None:
    """Run the command line, and end the process even where a handler left threads or child processes running.

    Python would wait for them, and ECS or systemd starts no other process in the meantime.
    """
    code: object = 0
    try:
        main(arguments, database=database)
    except SystemExit as end:
        code = end.code
    if (write_error := streams.failure()) is not None:
        is_done = code in (0, None)
        lost = "all is done, and what was printed is lost" if is_done else "what was printed is lost"
        failure = f"standard output cannot be written ({write_error.strerror})"
        output.line(f"sluice: {failure}: {lost}; send it elsewhere", is_error=True)
        code = COULD_NOT if is_done else code
    ours = (threading.main_thread(), threading.current_thread())
    has_threads = any(not thread.daemon and thread not in ours for thread in threading.enumerate())
    if _end_children() or has_threads:
        atexit._run_exitfuncs()  # noqa: SLF001 (has no public name)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)
    sys.exit(code)  # type: ignore[arg-type]


def _end_children() -> bool:
    """End the child processes that a handler has started with `multiprocessing`; return whether there were any.

    Each gets SIGTERM, and SIGKILL a second later: a forked child has inherited the worker's handler of SIGTERM.
    """
    multiprocessing = sys.modules.get("multiprocessing")  # there are no children where nobody has imported it
    children = (
        [] if multiprocessing is None else [child for child in multiprocessing.active_children() if not child.daemon]
    )
    for child in children:
        child.terminate()
    for child in children:
        child.join(_CHILDREN_SECONDS / len(children))
    for child in children:
        child.kill()
    return bool(children)
