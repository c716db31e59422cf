"""A restore drill as one page: its steps with their times, what the restore lost, and the verdict."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from sluice.cli.overview.verdict_page import STATUS, consumers_table, table
from sluice.clock import SystemClock, utc
from sluice.pages.parts import fill, list_items, pairs
from sluice.terminal.files import write_whole

_TEMPLATE = Path(__file__).resolve().parent / "drill.html"
_MEANS = {
    "VALID": "Every consumer has what the restored outbox has sent, and takes new events.",
    "INVALID": "Something is lost after the restore.",
    "UNKNOWN": "Something cannot be judged after the restore.",
}


def write(path: Path, fields: Mapping[str, Any]) -> None:
    """Write the page of a drill, which `fields` has as the command prints it in JSON.

    Raises:
        HistoryError: the file cannot be written.
    """
    write_whole(path, html(fields), instead="name another file with --page")


def html(fields: Mapping[str, Any]) -> str:
    """Return the page of a drill as HTML; `fields` is the drill as the command prints it in JSON."""
    verdict, consumers, discarded = fields["verdict"], fields["outbox"]["consumers"], fields["discarded"]
    lost = "not known: --now was not given"
    if discarded is not None:
        lost = f"{discarded['messages']} messages of {discarded['groups']} groups"
    parts = {
        "title": escape(f"{verdict}: restore drill of {fields['environment']}"),
        "status": STATUS[verdict],
        "word": verdict,
        "heading": escape(f"Restore drill of {fields['environment']}"),
        "means": _MEANS[verdict],
        "under": "",
        "reasons": list_items(
            [
                *(f"{each['consumer']}: {text}" for each in consumers for text in each["wrong"]),
                *(f"{each['consumer']} takes no new event of group {each['group']}" for each in fields["not_taken"]),
            ]
        ),
        "steps": table(
            ("step", "seconds", "result", "what you would run"),
            ((step["name"], f"{step['seconds']:.1f}", step["result"], step["command"]) for step in fields["steps"]),
        ),
        "consumers": consumers_table(consumers),
        "unknown": list_items(
            [f"{each['consumer']}: {reason}" for each in consumers for reason in each["unknown"]] or ["nothing"]
        ),
        "origin": pairs(
            [
                ("made at", utc(SystemClock().now_us()).isoformat(timespec="seconds")),
                ("all steps", f"{fields['seconds']:.1f} s"),
                ("numbered after the backup, and lost to the outbox", lost),
                ("resent", str(fields["resent"])),
                ("given up in restored inboxes", str(fields["given_up"])),
            ]
        ),
    }
    return fill(_TEMPLATE, parts)
