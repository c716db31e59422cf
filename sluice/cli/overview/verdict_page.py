"""The verdict of `sluice outbox verify` as one page: properties, consumers, what is lost, and what is not known."""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from sluice.pages.parts import fill, list_items, pairs, rows_html
from sluice.terminal.files import write_whole

_TEMPLATE = Path(__file__).resolve().parent / "verdict.html"
STATUS = {"VALID": "holds", "INVALID": "violated", "UNKNOWN": "unknown"}
"""The class of a page's head, by verdict."""
_MEANS = {
    "VALID": "Everything that was judged has come, is set aside, or is dead and in its DLQ.",
    "INVALID": "Something is lost, or a subscription is wrong.",
    "UNKNOWN": "Something cannot be judged.",
}
_NUMBER_COLUMNS = ("consumer", "group", "epoch", "first", "last", "why")
_NUMBERS = ("opportunities", "broken", "missing", "first", "last", "seconds")


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Write the page of a verdict, which `found` has as the command prints it in JSON.

    Raises:
        HistoryError: the file cannot be written.
    """
    write_whole(path, html(found), instead="name another file with --page")


def html(found: Mapping[str, Any]) -> str:
    """Return the page of a verdict as HTML."""
    consumers, verdict = found["consumers"], found["verdict"]
    unknown = [f"{each['consumer']}: {reason}" for each in consumers for reason in each["unknown"]]
    parts = {
        "title": escape(f"{verdict}: {found['topic']}"),
        "status": STATUS[verdict],
        "word": verdict,
        "heading": escape(f"Outbox of {found['topic']}"),
        "means": _MEANS[verdict],
        "under": "",
        "reasons": list_items(f"{each['consumer']}: {wrong}" for each in consumers for wrong in each["wrong"]),
        "properties": table(
            ("property", "verdict", "broken", "opportunities"),
            (
                (each["means"], each["verdict"], each["violations"], each["opportunities"])
                for each in found["properties"]
            ),
        ),
        "consumers": consumers_table(consumers),
        "lost": table(_NUMBER_COLUMNS, _lost_rows(found)),
        "unknown": list_items(unknown or ["nothing"]),
        "undecided": table(
            _NUMBER_COLUMNS, (_row_of(each, open_) for each in consumers for open_ in each["undecided"]), instead=""
        ),
        "origin": pairs(
            [
                ("made at", found["at"]),
                ("messages that were looked at", str(found["sent"])),
                ("longest time in flight", f"{found['in_flight_seconds']} s"),
            ]
        ),
    }
    return fill(_TEMPLATE, parts)


def consumers_table(consumers: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of what became of the messages of each consumer, with how many numbers are in which state."""
    return table(
        ("consumer", "verdict", "missing", "numbers"),
        (
            (
                each["consumer"],
                each["verdict"],
                each["missing"],
                ", ".join(f"{count} {state}" for state, count in each["states"].items()),
            )
            for each in consumers
        ),
    )


def _lost_rows(found: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
    for each in found["consumers"]:
        for lost in each["findings"]:
            yield _row_of(each, lost)
        if each["shortage"] is not None:
            yield each["consumer"], "", "", "", "", each["shortage"]["means"]
        if each["is_cut"]:
            yield each["consumer"], "more", "", "", "", f"{each['missing']} numbers in all; raise --limit"
    for group in found["restored"]:
        yield ", ".join(group["ahead"]), group["group"], group["epoch"], "", group["last_seq"], group["cause"]


def _row_of(consumer: Mapping[str, Any], numbers: Mapping[str, Any]) -> tuple[Any, ...]:
    return consumer["consumer"], *(numbers[name] for name in _NUMBER_COLUMNS[1:])


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]], *, instead: str = "<p>nothing</p>") -> str:
    """Return a table of rows as HTML, which scrolls in a narrow window; `instead` where there is no row."""
    cells = "\n".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll">{rows_html(head, cells, numbers=_NUMBERS)}</div>' if cells else instead
