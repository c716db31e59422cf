"""How the command line is written: one module prints, every number has bounds, options fit what they are given to."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import messaging.cli
from messaging import dead_letters, schema, tables
from messaging.cli import dlq_commands, outbox_commands, schema_command
from messaging.cli.commands import cli
from messaging.cli.values import Number

FOLDER = Path(messaging.cli.__file__).parent
PRINTS = "output.py"
PRINTING = {"echo", "secho", "echo_via_pager", "print", "pprint", "Console", "confirm", "prompt", "print_exc"}
MODULES = sorted([*FOLDER.glob("*.py"), FOLDER.parent / "__main__.py"])


def _commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(_commands(cli))
PARAMETERS = {(path, one.name): one for path, command in COMMANDS.items() for one in command.params}


def _printing(source: str) -> Iterator[str]:
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
                yield from (one.name for one in names if one.name.partition(".")[0] == "rich")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_only_one_module_prints(module: Path) -> None:
    """What passes by it would be markup, or a terminal's control characters."""
    found = set(_printing(module.read_text(encoding="utf-8")))

    assert bool(found) == (module.name == PRINTS), found


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
def test_what_prints_is_found(source: str) -> None:
    """The check above would fail."""
    assert list(_printing(source))


@pytest.mark.parametrize("place", PARAMETERS, ids=str)
def test_every_number_is_finite_and_bounded(place: tuple[tuple[str, ...], str]) -> None:
    """Click's own FLOAT takes nan; a whole number without an end is too large for a database."""
    kind = PARAMETERS[place].type

    assert not isinstance(kind, click.types.FloatParamType)
    assert kind is not click.INT
    if isinstance(kind, click.IntRange):
        assert kind.min is not None
        assert kind.max is not None


def test_there_are_numbers_to_check() -> None:
    """Each option that takes a float is known to the tests of what it refuses."""
    found = {(*path, name) for (path, name), one in PARAMETERS.items() if isinstance(one.type, Number)}

    assert found == {
        ("relay", "poll"),
        ("relay", "lease"),
        ("relay", "keep"),
        ("worker", "idle_seconds"),
        ("dlq", "redrive", "rate"),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_options_are_what_the_command_takes(path: tuple[str, ...]) -> None:
    """They are declared apart from it: nobody else compares the two."""
    command = COMMANDS[path]
    body = _body(path)
    opened = {"place"} if {"dsn", "environment_name"} <= _names(command) and not _is_plain(path) else set()
    given = _names(command) - (_PLACE if opened else set())
    if "hold_seconds" in given:
        given, opened = given - {"undelivered", "hold_seconds", "force"}, {"place", "queue"}
    if opened and path[0] not in {"relay", "outbox"}:
        given -= {"consumer_name", "endpoint_url"}

    assert {*inspect.signature(body).parameters} - {"part"} == given | opened


_PLACE = {"environment_name", "dsn"}


def _is_plain(path: tuple[str, ...]) -> bool:
    return path[-1] == "schema" or path == ("dlq", "ls")


def _names(command: click.Command) -> set[str]:
    return {str(one.name) for one in command.params}


def _body(path: tuple[str, ...]) -> object:
    """Return the function a command imports and calls, which its help's module names."""
    if path[-1] == "schema":
        return importlib.import_module("messaging.cli.tables").create
    name = path[-1].replace("-", "_")
    modules = ("dlq", "dlq_acts", "dlq_moving") if path[0] == "dlq" else (path[0],)
    found = [getattr(importlib.import_module(f"messaging.cli.{one}"), name, None) for one in modules]
    (body,) = [one for one in found if inspect.isfunction(one) and one.__module__.startswith("messaging.cli")]
    return body


def test_choices_are_what_the_modules_know() -> None:
    """They stand there again, because `--help` does not load those modules."""
    assert set(outbox_commands._STATUSES) == {tables.PENDING, tables.SENT, tables.QUARANTINED}
    assert tuple(sorted(schema_command._KINDS)) == tuple(sorted(schema.names()))
    assert {dlq_commands.CLIENT, dlq_commands.NATIVE} == {"client", "native"}
    assert inspect.signature(dead_letters.DeadLetterQueue).parameters["hold_seconds"].default == 120


@pytest.mark.parametrize("name", messaging.__all__)
def test_what_a_service_imports_is_there(name: str) -> None:
    """Though the package imports it only then."""
    assert getattr(messaging, name).__name__ == name


def test_what_is_not_there_is_said_as_python_says_it() -> None:
    """An ImportError would be raised of it."""
    with pytest.raises(AttributeError, match="module 'messaging' has no attribute 'Inbox'"):
        _ = messaging.Inbox  # type: ignore[attr-defined]
