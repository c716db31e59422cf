"""The only module of the command line that prints: what it is given is text, and nothing a terminal acts on.

A group may be called `order[/x]`, which is markup to rich; a payload, a handler's error or a server's message may hold
the escape sequences of a terminal. Everything printed passes through `printable`, tables take their cells as text, and
JSON escapes what is not printable. A test holds that no other module here prints.
"""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from sluice.terminal.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

CHARACTERS_MAX = 100_000
"""The most characters of one line, or of one cell of a table."""
_INDENT, _WIDTH_MIN = 4, 40
_WIDTH_MAX = 1_000_000
"""The width of a console that is a file or a pipe: wider than any table, so that nothing is wrapped or cut."""


def line(text: str, *, is_error: bool = False) -> None:
    """Print one line; a line break in the text is printed as its escape."""
    click.echo(printable(text, characters_max=CHARACTERS_MAX), err=is_error)


def wrapped_line(text: str) -> None:
    """Print one line; on a terminal broken between words at its width, with the rest of it indented."""
    shown = printable(text, characters_max=CHARACTERS_MAX)
    if sys.stdout.isatty():
        indent = " " * (len(shown) - len(shown.lstrip()) + _INDENT)
        width = max(shutil.get_terminal_size().columns, _WIDTH_MIN)
        parts = textwrap.wrap(shown, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        shown = "\n".join(parts)
    click.echo(shown)


def lines(text: str, *, is_error: bool = False) -> None:
    """Print each line of a text as `line` does."""
    for part in text.split("\n"):
        line(part, is_error=is_error)


def clear() -> None:
    """Clear the terminal before the next screen; in a file or a pipe, print an empty line between screens."""
    if console().is_terminal:
        click.clear()
    else:
        line("")


def as_json(value: object, *, indent: int | None = 2) -> None:
    """Print a value as JSON; characters that are not printable are escaped as JSON escapes them.

    Args:
        value: what `json.dumps` takes.
        indent: None prints all of it as one line.
    """
    is_unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    text = json.dumps(value, indent=indent, ensure_ascii=not is_unicode)
    click.echo("\n".join(map(printable_json, text.split("\n"))))


def printable_json(text: str) -> str:
    """Return JSON that says the same, with every character that is not printable as JSON escapes it."""
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()  # JSON escapes UTF-16, two units beyond U+FFFF
    return "".join(f"\\u{units[index : index + 4]}" for index in range(0, len(units), 4))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table: on a terminal folded to its width, else as wide as it is."""
    from rich.table import Table  # noqa: PLC0415 (what prints no table needs no rich)
    from rich.text import Text  # noqa: PLC0415

    def cell(value: object) -> Text:
        return Text(printable(value, characters_max=CHARACTERS_MAX))

    shown = Table(title=None if title is None else cell(title))
    for name in columns:
        shown.add_column(name, overflow="fold")
    for row in rows:
        shown.add_row(*map(cell, row))
    console().print(shown)


def console() -> "Console":
    """Return the console that tables are printed on.

    It is the terminal with its width, or one so wide that a row is one line.
    """
    from rich.console import Console  # noqa: PLC0415

    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_WIDTH_MAX)


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if that is a terminal.

    Yield a function that is told how many more items are done.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task("messages", total=total)
        yield lambda count: bar.update(shown, advance=count)
