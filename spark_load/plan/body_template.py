"""A body in two: a frame, which many bodies share and which is escaped once, and values, which need no escaping."""

from collections.abc import Iterator, Sequence
from itertools import count

type Values = Sequence[Sequence[str]]
"""A column for each gap of a frame, with the value of each body: texts of letters, digits, `-`, `_`, `.` and `~` alone,
which stand in JSON and in a form as they are."""


class BodyTemplate:
    """The text before the first value of a body, between each two, and behind the last."""

    __slots__ = ("_pieces", "_template")

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces
        self._template = "%s".join([piece.replace("%", "%%") for piece in pieces])

    def with_gaps(self) -> tuple[str, str]:
        """Return the text with a mark for each value, and the mark: it stands nowhere else, and needs no escaping."""
        mark = next(mark for mark in map("GAP{}.".format, count()) if not any(mark in piece for piece in self._pieces))
        return mark.join(self._pieces), mark

    def texts(self, values: Values) -> Iterator[str]:
        """Yield the whole bodies."""
        return map(self._template.__mod__, zip(*values, strict=True))
