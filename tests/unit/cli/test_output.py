"""Printed values are lines of printable text that still say the value, whatever it holds."""

import io
import json
import re
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.terminal import output
from sluice.terminal.printable import printable

_PIECES = (
    "[/x]",
    "[red]",
    "[link=file:///x]",
    ":smile:",
    "\x1b[2J",
    "\x1b]0;t\x07",
    "\x9b",
    "\x7f",
    "\u202e",
    "\n",
    "\\",
)
HOSTILE_TEXTS = st.lists(st.sampled_from(_PIECES) | st.text(st.characters(), max_size=5), max_size=6).map("".join)
VALUES = st.recursive(
    HOSTILE_TEXTS | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE_TEXTS, inner, max_size=3),
    max_leaves=8,
)


type Capture = pytest.CaptureFixture[str]


_PROPERTY_SETTINGS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@_PROPERTY_SETTINGS
@given(text=HOSTILE_TEXTS)
def test_a_printed_line_contains_no_line_break(capsys: Capture, text: str) -> None:
    """A name from outside may contain markup, escapes or line breaks."""
    output.line(f"group {text}")

    assert capsys.readouterr().out == f"group {printable(text, characters_max=10_000)}\n"


@_PROPERTY_SETTINGS
@given(value=VALUES, indent=st.sampled_from([None, 2]))
def test_printed_json_is_printable_and_reads_back_as_the_value(capsys: Capture, value: Any, indent: int | None) -> None:
    output.as_json(value, indent=indent)

    text = capsys.readouterr().out
    assert json.loads(text) == value
    assert all(line.isprintable() for line in text.split("\n"))
    assert indent is not None or text.count("\n") == 1


def test_json_keeps_printable_unicode_unescaped(capsys: Capture) -> None:
    output.as_json("Ärger, 注文 \U0001f600", indent=None)

    assert capsys.readouterr().out == '"Ärger, 注文 \U0001f600"\n'


def test_json_for_an_output_without_unicode_is_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))

    output.as_json("注文", indent=None)

    assert written.getvalue() == b'"\\u6ce8\\u6587"\n'


@_PROPERTY_SETTINGS
@given(text=HOSTILE_TEXTS)
def test_a_table_shows_cells_as_they_are(capsys: Capture, text: str) -> None:
    """Markup of the table's library in a cell is text, and has no effect."""
    output.table(("group", "error"), [(text, 1)], title=text)

    lines = capsys.readouterr().out.split("\n")
    assert all(line.isprintable() for line in lines)
    assert f" {printable(text)} " in lines[-3]


def test_a_table_in_a_pipe_is_not_cut(capsys: Capture) -> None:
    """Another program reads it, so no width limits it."""
    output.table(("group", "error"), [("g" * 128, "long " * 200 + "end")])

    (row,) = [line for line in capsys.readouterr().out.splitlines() if "ggg" in line]
    assert "g" * 128 in row
    assert "long " * 200 + "end" in row


def test_a_sentence_is_broken_between_words_on_a_terminal_only(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets one line, so that a program finds it whole; what is longer than the terminal is not broken."""
    text = f"  dead number 7 of order-1 \x1b[2J since 2026-11-27: {'x' * 50}"
    monkeypatch.setenv("COLUMNS", "40")

    output.wrapped_line(text)
    piped = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.wrapped_line(text)
    shown = capsys.readouterr().out

    assert piped == f"  dead number 7 of order-1 \\x1b[2J since 2026-11-27: {'x' * 50}\n"
    assert shown == f"  dead number 7 of order-1 \\x1b[2J since\n      2026-11-27:\n      {'x' * 50}\n"


def test_a_table_on_a_terminal_is_folded_and_loses_nothing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 40 columns a name of sixty characters takes several rows."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in (("COLUMNS", "40"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)

    output.table(("group", "error"), [("0123456789" * 6, "[red]\x1b[2J")])

    rows = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()[3:-1]
    assert "".join(row.split()[1] for row in rows) == "0123456789" * 6
    assert max(map(len, rows)) == 40
    assert "[red]\\x1b[2J" in rows[0]


def test_a_printed_line_is_cut_at_a_bound(capsys: Capture) -> None:
    output.line("x" * 10_000_000)

    assert len(capsys.readouterr().out) == output.CHARACTERS_MAX + 1
