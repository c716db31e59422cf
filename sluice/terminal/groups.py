"""Commands that are imported when they are used: `sluice --help` loads neither Spark nor pytest nor SQLAlchemy."""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click


class Lazy(NamedTuple):
    """A command of a group that is imported only when somebody uses it.

    Args:
        place: where it is, `module:name`.
        help: its line in the list of commands.
        extra: of Sluice's packages, which one the command needs.
    """

    place: str
    help: str
    extra: str = "worker"


class CommandGroup(click.Group):
    """A group that lists its commands in full, and imports some of them only when they are used.

    Args:
        lazy: name to command; None where all are imported.
        default: the command that runs where none is named; None shows the help.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, Lazy] | None = None, default: str | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.lazy, self.default = {} if lazy is None else lazy, default

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted([*super().list_commands(ctx), *self.lazy])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, imported now if it is lazy; None if there is none."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.lazy[cmd_name].place.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command), (module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command into the help, without importing lazy commands."""
        commands = {name: self.commands[name].get_short_help_str(limit=200) for name in super().list_commands(ctx)}
        commands |= {name: lazy.help for name, lazy in self.lazy.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(commands.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, with the default command put in front unless they name a command or ask for help."""
        is_named = bool(args) and (args[0] in self.list_commands(ctx) or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named or self.default is None else [self.default, *args])
