"""The choice of rows in a listing: by group, by type, by cause and by time."""

import re
from dataclasses import dataclass

from sqlalchemy import ColumnElement, true

ANYTHING = "…"
"""Stands for any text in the text of a cause, as in listings by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChoice:
    """A choice of rows: those that match every given condition.

    Args:
        groups: only these groups; empty means any.
        types: only events of these types; a row of unknown type matches none.
        died_of: a part of the recorded reason, in upper or lower case; `ANYTHING` in it matches any text.
        since_us: only rows from this time on, microseconds UTC.
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
        """Return whether rows of a group are chosen; None stands for a row without a group."""
        return not self.groups or group_id in self.groups

    def matches_type(self, type_: str | None) -> bool:
        """Return whether rows of a type are chosen; None stands for an unknown type."""
        return not self.types or type_ in self.types

    def matches_reason(self, reason: str | None) -> bool:
        """Return whether rows with a reason are chosen; None stands for a row without a reason."""
        if self.died_of is None:
            return True
        pattern = ".*".join(map(re.escape, self.died_of.split(ANYTHING)))
        return reason is not None and re.search(pattern, reason, re.IGNORECASE | re.DOTALL) is not None

    def matches_instant(self, at_us: int) -> bool:
        """Return whether a row of that instant, in microseconds UTC, is chosen."""
        return self.since_us is None or at_us >= self.since_us

    def in_groups(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """Return the SQL condition under which a row's group is chosen."""
        return column.in_(sorted(self.groups)) if self.groups else true()

    def is_since(self, column: ColumnElement[int]) -> ColumnElement[bool]:
        """Return the SQL condition under which a row's instant, in microseconds UTC, is chosen."""
        return true() if self.since_us is None else column >= self.since_us

    def of_reason(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """Return the SQL condition under which a row's reason is chosen."""
        if self.died_of is None:
            return true()
        parts = [re.sub(r"([%_\\])", r"\\\1", part) for part in self.died_of.split(ANYTHING)]
        return column.ilike(f"%{'%'.join(parts)}%", escape="\\")


EVERYTHING = RowChoice()
"""No row is left out."""
