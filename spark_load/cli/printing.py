"""Text from a history on a terminal: ids, names and errors come from outside, and are printed as text."""

import json

import click

_CHARACTERS_MAX = 20_000


def error_line(text: str) -> None:
    """Print a line to standard error; what is not printable stands as its escape."""
    cut = text if len(text) <= _CHARACTERS_MAX else f"{text[:_CHARACTERS_MAX]}… (of {len(text)} characters)"
    click.echo("".join(map(_escaped, cut)), err=True)


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def print_json(value: object) -> None:
    """Print JSON in ASCII, with DEL escaped, which JSON would leave."""
    click.echo(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))
