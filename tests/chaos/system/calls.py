"""The calls of handlers, which these write down themselves: a call that is rolled back leaves no row."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

VARIABLE = "SLUICE_CHAOS_CALLS"


class HandlerCall(NamedTuple):
    """A call of a consumer's handler with an event; a doomed one fails."""

    consumer: str
    event_id: str
    is_doomed: bool


def write_down(consumer: str, event_id: str, *, is_doomed: bool) -> None:
    """Append a call to the file of this process."""
    with (Path(os.environ[VARIABLE]) / f"{os.getpid()}.txt").open("a", encoding="utf-8") as file:
        file.write(f"{consumer} {event_id} {is_doomed:d}\n")


def read(folder: Path) -> Iterator[HandlerCall]:
    """Yield all calls."""
    for file in folder.glob("*.txt"):
        for line in file.read_text(encoding="utf-8").splitlines():
            consumer, event_id, is_doomed = line.split()
            yield HandlerCall(consumer, event_id, is_doomed == "1")
