"""A body in two: a frame, which many bodies share and which is escaped once, and values, which need no escaping."""

from collections.abc import Callable, Iterator, Sequence

type Values = Sequence[Sequence[str]]
"""A column for each gap of a frame, with the value of each body: texts of letters, digits, `-`, `_`, `.` and `~` alone,
which stand in JSON and in a form as they are."""


GAP = "\0"


class BodyTemplate:
    """The text before the first value of a body, between each two, and behind the last."""

    __slots__ = ("_pieces", "_template")

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces
        self._template = "%s".join([piece.replace("%", "%%") for piece in pieces])

    def escaped(self, escape: Callable[[str], str]) -> str:
        """Return the text as some encoding has it, which escapes GAP, with GAP for each value."""
        return GAP.join(map(escape, self._pieces))

    def texts(self, values: Values) -> Iterator[str]:
        """Yield the whole bodies."""
        return map(self._template.__mod__, zip(*values, strict=True))
