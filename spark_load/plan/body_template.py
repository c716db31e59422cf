"""A body in two: a frame, which many bodies share and which is escaped once, and values, which need no escaping."""

from collections.abc import Callable

type Body = tuple[BodyTemplate, tuple[object, ...]]
"""A frame, and a value for each of its gaps: numbers, or texts of letters, digits, `-`, `_`, `.` and `~` alone, which
stand in JSON and in a form as they are."""


class BodyTemplate:
    """The text before the first value of a body, between each two, and behind the last."""

    __slots__ = ("_pieces", "template")

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces
        self.template = self.escaped(str)
        """To be formatted with the values, as by `%`."""

    def escaped(self, escape: Callable[[str], str]) -> str:
        """Return the template of the body as some encoding has it."""
        return "%s".join([escape(piece).replace("%", "%%") for piece in self._pieces])


def text(body: Body) -> str:
    """Return the whole body."""
    template, values = body
    return template.template % values
