"""The file in which a running process shows that it is alive, and the health check that reads it.

The process writes the file every few seconds: the time, the seconds until it will write again, and its overdue parts.
The age of the file is measured by the machine's monotonic clock, so setting the wall clock changes nothing.

The check runs every few seconds in every container: this module imports the standard library only.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sluice.terminal.printable import printable

_BYTES_MAX = 65_536
"""Of a file that is read: thousands of parts fit in."""
_NAMES_MAX = 5
"""The most overdue parts that a line names; the rest are counted."""


class NoSign(ValueError):
    """Raised when a file was not written by `write`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One sign of life of a process.

    Args:
        pid: the process id, for people: the check may run in a container with other process ids.
        clock_id: the id of the monotonic clock, from `sluice.clock.clock_id`; another id means another boot.
        written_at: the time for people, ISO 8601 in UTC.
        within_seconds: the time until the next sign is due.
        overdue: parts that gave no sign of life in time, and how many seconds they are late.
    """

    pid: int
    clock_id: str
    monotonic_seconds: float
    written_at: str
    within_seconds: float
    overdue: Mapping[str, float]

    def __post_init__(self) -> None:
        numbers = (self.monotonic_seconds, self.within_seconds, *self.overdue.values())
        if type(self.pid) is not int or not all(map(_is_number, numbers)):
            raise NoSign("a number is none")
        if not all(isinstance(text, str) for text in (self.clock_id, self.written_at, *self.overdue)):
            raise NoSign("a text is none")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def write(path: Path, sign: Sign) -> None:
    """Replace the file atomically: a reader sees the old sign or the new one, never half of one.

    Raises:
        OSError: the file cannot be written; the old one is unchanged.
    """
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        written.write_text(json.dumps(asdict(sign)) + "\n", encoding="utf-8")
        written.replace(path)
    except OSError:
        written.unlink(missing_ok=True)
        raise


def read(path: Path) -> Sign:
    """Return the last sign of life.

    Raises:
        OSError: the file cannot be read.
        NoSign: the file was not written by `write`.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 (a descriptor)
        content = file.read(_BYTES_MAX)
    try:
        found = json.loads(content)
        return Sign(**{field.name: found[field.name] for field in fields(Sign)})
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise NoSign(f"{len(content)} bytes that no worker or relay has written") from error


def problem(sign: Sign, *, now_seconds: float, clock_id: str, within_seconds: float | None) -> str | None:
    """Return in a sentence why a process does not count as alive; None if it is alive.

    Args:
        sign: the last sign of life.
        now_seconds: the time by the machine's monotonic clock.
        clock_id: the id of that clock.
        within_seconds: the highest age of the sign; None means the age that the process itself promised.
    """
    age = now_seconds - sign.monotonic_seconds
    allowed = sign.within_seconds if within_seconds is None else within_seconds
    pid = f"process {sign.pid}"
    if sign.clock_id != clock_id or age < 0:
        return f"{pid} wrote its last sign of life at {printable(sign.written_at, characters_max=40)}, before this boot"
    if age > allowed:
        return f"{pid} gave no sign of life for {age:.1f} s, allowed is {allowed:g} s: it is stuck, stopped or dead"
    if sign.overdue:
        return f"no sign of life from {_overdue_text(sign.overdue)} of {pid}, see its log"
    return None


def _overdue_text(overdue: Mapping[str, float]) -> str:
    listed = [
        f"{printable(name, characters_max=60)} ({seconds:.0f} s overdue)"
        for name, seconds in list(overdue.items())[:_NAMES_MAX]
    ]
    more = len(overdue) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more > 0 else "")
