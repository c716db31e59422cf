"""Dead letters by reason: reasons that differ in values only are the same reason."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sluice.messaging.database.choice import ANYTHING
from sluice.terminal.printable import printable

_GROUP, _NUMBERED_GROUP = "\1", "\2"  # in the place of a group's name, without and with a digit
_WORD = re.compile(r"""[\1\2]|[^\s,;()\[\]{}'"=]+""")
_DIGIT = re.compile(r"[\d\2]")
_TIMES = "\N{MULTIPLICATION SIGN}"
_NO_REASON = "no reason is recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathReason:
    """A reason of death, with the count of the numbers that died of it.

    Args:
        text: the reason; `ANYTHING` stands in place of values that differ.
        count: how many numbers died of the reason.
        groups: how many groups have such a number.
        since_us: when the first of these deaths was recorded, microseconds UTC.
    """

    text: str
    count: int
    groups: int
    since_us: int

    def summarize(self, room: int | None = None) -> str:
        """Return count, reason and groups as one line; the reason is cut if the line would exceed `room` characters."""
        counted, groups = f"{self.count} {_TIMES} ", f"; {self.groups} group{'' if self.groups == 1 else 's'}"
        text = printable(self.text)
        if room is not None and len(counted) + len(text) + len(groups) > room:
            text = f"{text[: room - len(counted) - len(groups) - 1]}…"
        return f"{counted}{text}{groups}"


def group_reasons(deaths: Iterable[tuple[str, str | None, int]]) -> list[DeathReason]:
    """Return the reasons of deaths (group, reason, instant), the most frequent first.

    A value is a word with a digit, or the name of the group. A value that all have in common stays.
    """
    alike: dict[str, list[tuple[str, list[str], int]]] = {}
    for group_id, reason, at_us in deaths:
        skeleton, values = _split(reason or _NO_REASON, group_id)
        alike.setdefault(skeleton, []).append((group_id, values, at_us))
    found = [
        DeathReason(
            text=_join(skeleton, [values for _, values, _ in rows]),
            count=len(rows),
            groups=len({group_id for group_id, _, _ in rows}),
            since_us=min(at_us for _, _, at_us in rows),
        )
        for skeleton, rows in alike.items()
    ]
    return sorted(found, key=lambda reason: (-reason.count, reason.since_us, reason.text))


def _split(reason: str, group_id: str) -> tuple[str, list[str]]:
    """Return a reason with NUL in the place of each value, and the values; no stored reason has control characters.

    One pattern serves all groups: to compile one for each would take seconds for some thousand groups.
    """
    mark = _NUMBERED_GROUP if any(map(str.isdecimal, group_id)) else _GROUP
    marked = _mark_words(reason, group_id, mark) if group_id and group_id in reason else reason
    values: list[str] = []

    def take_values(word: re.Match[str]) -> str:
        if _DIGIT.search(word[0]):
            values.append(word[0].replace(mark, group_id))
            return "\0"
        values.extend([group_id] * word[0].count(_GROUP))
        return word[0].replace(_GROUP, "\0")

    return _WORD.sub(take_values, marked), values


def _mark_words(text: str, word: str, mark: str) -> str:
    """Return a text with a mark in the place of each occurrence of a word that is no part of a longer one."""
    parts, begin = [], 0
    while (found := text.find(word, begin)) >= 0:
        end = found + len(word)
        is_whole = not _is_of_word(text[max(found - 1, 0) : found]) and not _is_of_word(text[end : end + 1])
        step = end if is_whole else found + 1
        parts.append(text[begin:found] + (mark if is_whole else text[found]))
        begin = step
    return "".join(parts) + text[begin:]


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _join(skeleton: str, values: list[list[str]]) -> str:
    first, *parts = skeleton.split("\0")
    shown = [column[0] if len(set(column)) == 1 else ANYTHING for column in zip(*values, strict=True)]
    return first + "".join(value + part for value, part in zip(shown, parts, strict=True))
