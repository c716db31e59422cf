"""How the command line is written: one module prints, every number has bounds, options fit what they are given to."""

import ast
import inspect
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from unittest.mock import create_autospec

import click
import pytest

import sluice.cli
from sluice import messaging
from sluice.cli import place
from sluice.cli.commands import cli
from sluice.cli.dlq import acts, automatic, listing, moving
from sluice.cli.services import alive, delays, env, env_diff, init, record, relay, worker
from sluice.cli.tables import inbox, outbox, outbox_commands, schema_commands
from sluice.cli.tables import schema as cli_tables
from sluice.messaging.database import schema
from sluice.messaging.outbox import tables
from sluice.messaging.sqs import dead_letter_limits, dead_letter_queue
from sluice.terminal.values import Number
from spark_load.cli.commands import load

FOLDER = Path(sluice.cli.__file__).parent
PRINTS = "output.py"
PRINTING = {"echo", "secho", "echo_via_pager", "print", "pprint", "Console", "confirm", "prompt", "print_exc"}
PLAIN = {
    "schema": cli_tables,
    "relay": relay,
    "worker": worker,
    "delays": delays,
    "alive": alive,
    "outbox": outbox,
    "inbox": inbox,
    "init": init,
    "record": record,
}
MODULES = [*FOLDER.rglob("*.py"), *(FOLDER.parent / "terminal").rglob("*.py"), FOLDER.parent / "__main__.py"]


def _commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(_commands(cli))
PARAMETERS = {(path, parameter.name): parameter for path, command in COMMANDS.items() for parameter in command.params}


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
                yield from (alias.name for alias in names if alias.name.partition(".")[0] == "rich")


def test_only_one_module_prints() -> None:
    """What passes by it would be markup, or a terminal's control characters."""
    printing = {module.name for module in MODULES if any(_printing(module.read_text(encoding="utf-8")))}

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
def test_what_prints_is_found(source: str) -> None:
    assert list(_printing(source))


def _is_unbounded(kind: object) -> bool:
    if isinstance(kind, click.IntRange):
        return None in {kind.min, kind.max}
    return isinstance(kind, click.types.FloatParamType) or kind is click.INT


def test_every_number_is_finite_and_bounded() -> None:
    """Click's own FLOAT takes nan; a whole number without an end is too large for a database."""
    assert [place for place, parameter in PARAMETERS.items() if _is_unbounded(parameter.type)] == []


def test_there_are_numbers_to_check() -> None:
    found = {(*path, name) for (path, name), parameter in PARAMETERS.items() if isinstance(parameter.type, Number)}

    assert found == {
        ("relay", "poll"),
        ("relay", "lease"),
        ("relay", "keep"),
        ("worker", "idle_seconds"),
        ("alive", "within_seconds"),
        ("dlq", "redrive", "rate"),
        ("schema", "apply", "wait_seconds"),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_options_are_what_the_command_takes(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are declared apart from it: nobody else compares the two."""
    monkeypatch.setattr(place, "outbox_target", lambda *_: nullcontext("place"))
    monkeypatch.setattr(place, "consumer_target", lambda *_: nullcontext("place"))
    module, name = _body(path)
    body = create_autospec(getattr(module, name))  # raises TypeError where it is not called as it is declared
    monkeypatch.setattr(module, name, body)
    run = COMMANDS[path].callback
    assert run is not None

    run(
        **{
            str(parameter.name): "local" if parameter.name == "environment_name" else None
            for parameter in COMMANDS[path].params
        }
    )

    body.assert_called_once()


def _body(path: tuple[str, ...]) -> tuple[ModuleType, str]:
    """Return the module and the name of the function that a command runs."""
    name = path[-1].replace("-", "_")
    modules = {"dlq": (listing, acts, automatic, moving), "env": (env, env_diff)}.get(path[0]) or (PLAIN[path[0]],)
    return next((module, name) for module in modules if hasattr(module, name))


def test_choices_are_what_the_modules_know() -> None:
    """They stand there again, because `--help` does not load those modules."""
    assert set(outbox_commands._STATUSES) == {tables.PENDING, tables.SENT, tables.QUARANTINED}
    assert tuple(sorted(schema_commands._KINDS)) == tuple(sorted(schema.names()))
    assert {dead_letter_limits.CLIENT, dead_letter_limits.NATIVE} == {"client", "native"}
    assert inspect.signature(dead_letter_queue.DeadLetterQueue).parameters["hold_seconds"].default == 120


@pytest.mark.parametrize("name", messaging.__all__)
def test_what_a_service_imports_is_there(name: str) -> None:
    assert getattr(messaging, name).__name__ == name


def test_what_is_not_there_is_said_as_python_says_it() -> None:
    with pytest.raises(AttributeError, match=r"module 'sluice\.messaging' has no attribute 'Inbox'"):
        _ = messaging.Inbox  # type: ignore[attr-defined]


GROUPS: dict[str, click.Command] = {"sluice": cli, "load": load}


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_a_list_of_commands_has_a_line_for_each(group: click.Group) -> None:
    page = group.get_help(click.Context(group, terminal_width=80))

    listed = page.partition("Commands:\n")[2].rstrip().splitlines()
    assert [line.split()[0] for line in listed] == group.list_commands(click.Context(group))
    assert not any(line.endswith("...") for line in listed)
