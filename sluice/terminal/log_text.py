"""Text in log lines: bounded everywhere, and printable where a terminal shows it.

The text of an exception or a database may have ten megabytes, or hold the escape sequences of a terminal.
"""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import structlog

from sluice.terminal.printable import printable, text_of

CHARACTERS_MAX = 20_000
"""The longest text of a line; a longer one loses its middle."""
_DEPTH_MAX = 4
_ITEMS_MAX = 100
_EXCEPTION = "exception"
"""The key under which structlog puts a traceback, the only text of several lines."""

type LogLine = MutableMapping[str, Any]


def with_traceback(logger: Any, name: str, line: LogLine) -> LogLine:
    """Add the traceback of a line's exception.

    Where the traceback cannot be rendered, name only the exception. structlog calls this as a processor.
    """
    found = line.get("exc_info")
    try:
        return structlog.processors.format_exc_info(logger, name, line)
    except BaseException as error:  # somebody else's exception may raise anything while it is looked at
        rest = {key: value for key, value in line.items() if key != "exc_info"}
        raised = found[0] if isinstance(found, tuple) else type(found)
        return rest | {_EXCEPTION: f"{printable(raised)}, whose traceback cannot be had: {type(error).__name__}"}


def limit_texts(_: Any, __: str, line: LogLine) -> LogLine:
    """Shorten every long text of a line, as a processor of structlog.

    The JSON renderer escapes what is not printable.
    """
    return {name: _each(value, _cut) for name, value in line.items()}


def make_printable(_: Any, __: str, line: LogLine) -> LogLine:
    """Shorten every long text of a line and make it printable, as a processor of structlog.

    A traceback keeps its line breaks.
    """
    plain = {name: _each(value, _printable) for name, value in line.items() if name != _EXCEPTION}
    plain["event"] = str(plain["event"])
    if _EXCEPTION not in line:
        return plain
    text = _cut(str(line[_EXCEPTION]))
    return plain | {
        _EXCEPTION: "\n".join(printable(part, characters_max=2 * CHARACTERS_MAX) for part in text.split("\n"))
    }


@dataclass(frozen=True, slots=True)
class _EscapedText:
    """Escaped text, in a class of its own because structlog would escape a `str` again."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


def _printable(text: str) -> str | _EscapedText:
    """Return a text shortened and escaped; where anything was escaped, as `_EscapedText`."""
    found = printable(text, characters_max=CHARACTERS_MAX)
    return found if found == text else _EscapedText(found)


def _cut(text: str) -> str:
    """Return a text, without its middle if it is too long.

    A traceback begins with the place and ends with the exception.
    """
    if len(text) <= CHARACTERS_MAX:
        return text
    notice = f" … ({len(text)} characters, the middle is left out) … "
    side_characters = (CHARACTERS_MAX - len(notice)) // 2
    return text[:side_characters] + notice + text[-side_characters:]


def _each(value: object, change: Callable[[str], object], depth: int = 0) -> Any:
    """Return a value with every text in it changed by `change`.

    A value that is not JSON is first made the text that the renderer would print. What is nested too deep, or has too
    many items, becomes one text.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth < _DEPTH_MAX and len(value) <= _ITEMS_MAX:
        return {change(str(name)): _each(inner, change, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple) and depth < _DEPTH_MAX and len(value) <= _ITEMS_MAX:
        return [_each(inner, change, depth + 1) for inner in value]
    return change(value if isinstance(value, str) else text_of(value))
