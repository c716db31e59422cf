"""Only one module of the command line prints, every number has bounds, and commands accept their options."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import sluice.cli
from sluice import messaging
from sluice.cli import outbox as outbox_commands
from sluice.cli.main import COMMANDS as LAZY
from sluice.cli.main import cli
from sluice.cli.options import ProcessOptions
from sluice.cli.schema import commands as schema_commands
from sluice.extras import EXTRAS
from sluice.messaging.database import schema
from sluice.messaging.outbox import tables
from sluice.messaging.sqs import dead_letter_limits, dead_letter_queue
from sluice.terminal.groups import Lazy
from sluice.terminal.values import NumberType
from spark_load.cli.commands import load

FOLDER = Path(sluice.cli.__file__).parent
PRINTS = "output.py"
PRINTING = {"echo", "secho", "echo_via_pager", "print", "pprint", "Console", "confirm", "prompt", "print_exc"}
GIVEN = {
    "choice": {"groups", "types", "died_of", "since_us"},
    "environment": {"environment_name", "declaration"},
    "target": {"environment_name", "declaration", "dsn"},
    "dlq": {"environment_name", "declaration", "dsn", "undelivered", "hold_seconds", "force"},
    "process": set(ProcessOptions.__slots__),
    "cluster": {"master", "remote"},
    "named": {"profile_name", "consumer", "shape"},
    "subject": {"fields", "groups", "event_ids"},
}
"""What a command is handed in place of options, and of which."""
OF_OTHERS = {"check", "compare", "conformance", "contracts", "load", "rehearse", "report"}
"""Commands of other packages."""
CHOSEN = {"topic", "consumer_name", "endpoint_url"}
"""Options that are part of a place, or the command's own."""
MODULES = [*FOLDER.rglob("*.py"), *(FOLDER.parent / "terminal").rglob("*.py"), FOLDER.parent / "__main__.py"]


def _commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command with its path."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(_commands(cli))
PARAMETERS = {
    (path, parameter.name): parameter
    for path, command in COMMANDS.items()
    if path[0] not in OF_OTHERS
    for parameter in command.params
}


def _calls_that_print(source: str) -> Iterator[str]:
    """Yield what a module calls to print, and what it imports or writes to for that."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in PRINTING:
                yield name
            case ast.Attribute(value=ast.Attribute(attr="stdout" | "stderr"), attr="write" | "writelines"):
                yield "write"
            case ast.ImportFrom(module=str(name)) if name.partition(".")[0] == "rich":
                yield name
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.partition(".")[0] == "rich")


def test_only_one_module_prints() -> None:
    """Text that passes by this module would be markup, or a terminal's control characters."""
    printing = {module.name for module in MODULES if any(_calls_that_print(module.read_text(encoding="utf-8")))}

    assert printing == {PRINTS}


@pytest.mark.parametrize(
    "source",
    [
        "click.echo(x)",
        "from click import echo\necho(x)",
        "print(x)",
        "sys.stderr.write(x)",
        "import rich",
        "from rich.table import Table",
        "traceback.print_exc()",
    ],
)
def test_printing_functions_are_found(source: str) -> None:
    assert list(_calls_that_print(source))


def _is_unbounded(kind: object) -> bool:
    """Return whether an option takes numbers without an end."""
    if isinstance(kind, click.IntRange):
        return None in {kind.min, kind.max}
    return isinstance(kind, click.types.FloatParamType) or kind is click.INT


def test_every_number_is_finite_and_bounded() -> None:
    """Click's own FLOAT takes nan; a whole number without an end is too large for a database."""
    assert [place for place, parameter in PARAMETERS.items() if _is_unbounded(parameter.type)] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_command_takes_an_invalid_number(path: tuple[str, ...]) -> None:
    """Commands of other packages are tried too: `--max-clock-offset nan` once ended in a traceback."""
    assert not [
        parameter.name for parameter in COMMANDS[path].params if isinstance(parameter.type, click.types.FloatParamType)
    ]


def test_the_options_with_decimal_numbers_are_these() -> None:
    """The tests above look at the options that they find, so this list keeps them from finding none."""
    found = {(*path, name) for (path, name), parameter in PARAMETERS.items() if isinstance(parameter.type, NumberType)}

    assert found == {
        ("env", "cost", "events_per_message"),
        ("relay", "poll"),
        ("relay", "lease"),
        ("relay", "keep_days"),
        ("worker", "idle_seconds"),
        ("lambda", "local", "idle_seconds"),
        ("lambda", "local", "start_seconds"),
        ("lambda", "local", "schedule_seconds"),
        ("alive", "within_seconds"),
        ("dlq", "redrive", "rate"),
        ("schema", "apply", "wait_seconds"),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_command_takes_its_options(path: tuple[str, ...]) -> None:
    """Click passes options by name, and mypy does not compare the names."""
    callback = COMMANDS[path].callback
    assert callback is not None
    parameters = inspect.signature(callback).parameters  # of the function itself, whatever wraps it
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    taken = {name for name, parameter in parameters.items() if parameter.kind is not inspect.Parameter.VAR_KEYWORD}
    options = {str(parameter.name) for parameter in COMMANDS[path].params}
    handed = (set(GIVEN) & taken) - options  # an option of its own may have such a name
    converted = {name for source in handed for name in GIVEN[source]}

    assert taken - handed <= options
    assert converted <= options
    assert takes_all or options - taken - converted <= (CHOSEN if handed else set())


@pytest.mark.parametrize(("name", "lazy"), LAZY.items())
def test_each_lazily_imported_command_exists(name: str, lazy: Lazy) -> None:
    """It is imported at its first use, from the module in the table, whose packages are an extra of pip's."""
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    assert command.name == name
    assert lazy.extra in EXTRAS


def test_choices_are_what_the_modules_know() -> None:
    """The choices are repeated in the options, because `--help` does not import those modules."""
    assert set(outbox_commands._STATUSES) == {tables.PENDING, tables.SENT, tables.QUARANTINED}
    assert tuple(sorted(schema_commands._KINDS)) == tuple(sorted(schema.names()))
    assert {dead_letter_limits.CLIENT, dead_letter_limits.NATIVE} == {"client", "native"}
    assert inspect.signature(dead_letter_queue.DeadLetterQueue).parameters["hold_seconds"].default == 120


@pytest.mark.parametrize("name", messaging.__all__)
def test_modules_a_service_imports_exist(name: str) -> None:
    assert getattr(messaging, name).__name__ == name


def test_a_missing_module_is_reported_in_pythons_words() -> None:
    with pytest.raises(AttributeError, match=r"module 'sluice\.messaging' has no attribute 'Inbox'"):
        _ = messaging.Inbox  # type: ignore[attr-defined]


def test_lines_that_a_help_keeps_are_not_run_together() -> None:
    """Click keeps the lines of a paragraph whose first line is the mark alone."""
    marked = [path for path, command in COMMANDS.items() if re.search("\b[^\n]", command.help or "")]

    assert marked == []


GROUPS: dict[str, click.Command] = {"sluice": cli, "load": load}


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_the_list_of_commands_has_a_line_for_each_command(group: click.Group) -> None:
    """On 80 columns no description is cut."""
    page = group.get_help(click.Context(group, terminal_width=80))

    listed = page.partition("Commands:\n")[2].rstrip().splitlines()
    assert [line.split()[0] for line in listed] == group.list_commands(click.Context(group))
    assert not any(line.endswith("...") for line in listed)
