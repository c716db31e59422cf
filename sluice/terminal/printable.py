"""Text from outside, made fit to be stored, logged and shown: bounded, and without a character that does anything.

What a message, a handler or a database says may be an escape sequence of a terminal, half a surrogate pair that UTF-8
cannot store, a NUL that Postgres cannot, ten megabytes, or an object whose `__str__` raises.
"""

from collections.abc import Callable

CHARACTERS_MAX = 2_000
"""The most characters of a reason, in the inbox and in a log line."""


def printable(value: object, *, characters_max: int = CHARACTERS_MAX) -> str:
    """Return a value as one line of printable text, shortened if it is longer than the bound.

    Every character that is not printable, line breaks included, stands as its escape: `\\x1b`, `\\n`, `\\ud800`. A
    shortened text says so at its end, within the bound.

    Args:
        value: anything; a value that cannot be turned into text is named by its type.
        characters_max: the most characters of the returned text.
    """
    text = value if type(value) is str else text_of(value, str)
    shown = "".join(map(_escape, text[: characters_max + 1]))
    if len(shown) <= characters_max:
        return shown
    end = f"… (of {len(text)} characters)"
    return shown[: max(0, characters_max - len(end))] + end[:characters_max]


def text_of(value: object, convert: Callable[[object], str] = repr) -> str:
    """Return a value as text; where the conversion raises, name the value's type."""
    try:
        return convert(value)
    except BaseException as error:  # somebody else's __repr__ may raise anything, a long number a ValueError
        return f"{type(value).__name__}, whose text cannot be had: {type(error).__name__}"


def exception_text(error: BaseException) -> str:
    """Return an exception's type and text as one line, whatever its `__str__` does."""
    return printable(f"{type(error).__name__}: {printable(error)}")


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
