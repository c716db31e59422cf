"""The rows that a listing shows: those of groups, of types, of a cause, of a time."""

import re
from dataclasses import dataclass

from sqlalchemy import ColumnElement, true

ANYTHING = "…"
"""In the text of a cause: whatever stands there, as listings by reason print it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChoice:
    """Which rows are shown: those that match everything given.

    Args:
        groups: of these groups; empty means any.
        types: of events of these types; a row whose type is not known matches none.
        died_of: a part of the recorded reason, upper and lower case alike; `ANYTHING` in it matches any text.
        since_us: from that instant on, microseconds UTC.
    """

    groups: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    died_of: str | None = None
    since_us: int | None = None

    @property
    def is_any(self) -> bool:
        """Return whether everything matches."""
        return self == RowChoice()

    def matches_group(self, group_id: str | None) -> bool:
        """Return whether a row of that group is shown; None is of no group."""
        return not self.groups or group_id in self.groups

    def matches_type(self, type_: str | None) -> bool:
        """Return whether a row of that type is shown; None is not known."""
        return not self.types or type_ in self.types

    def matches_reason(self, reason: str | None) -> bool:
        """Return whether a row with that reason is shown; None has none."""
        if self.died_of is None:
            return True
        pattern = ".*".join(map(re.escape, self.died_of.split(ANYTHING)))
        return reason is not None and re.search(pattern, reason, re.IGNORECASE | re.DOTALL) is not None

    def matches_instant(self, at_us: int) -> bool:
        """Return whether a row of that instant is shown."""
        return self.since_us is None or at_us >= self.since_us

    def in_groups(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """Return the same about groups as a condition of SQL."""
        return column.in_(sorted(self.groups)) if self.groups else true()

    def is_since(self, column: ColumnElement[int]) -> ColumnElement[bool]:
        """Return the same about instants as a condition of SQL."""
        return true() if self.since_us is None else column >= self.since_us

    def of_reason(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """Return the same about reasons as a condition of SQL."""
        if self.died_of is None:
            return true()
        parts = [re.sub(r"([%_\\])", r"\\\1", part) for part in self.died_of.split(ANYTHING)]
        return column.ilike(f"%{'%'.join(parts)}%", escape="\\")


EVERYTHING = RowChoice()
"""No row is left out."""
