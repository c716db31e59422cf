"""The log of relay and worker has bounded lines, printable on terminals, from the chosen level on."""

import io
import json
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
import structlog

from sluice.cli.services.running import log_to
from sluice.terminal.logger import Logger

ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\x7f"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging() -> Iterator[None]:
    """Restore structlog's configuration after each test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def _raise_value_error(text: str) -> None:
    raise ValueError(text)


def _log_an_exception(text: str) -> None:
    try:
        try:
            _raise_value_error(text)
        except ValueError as error:
            raise RuntimeError("after it\nsecond line") from error
    except RuntimeError:
        Logger().exception("it failed", reason=text)


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_a_huge_exception_makes_a_bounded_log_entry(stream: io.StringIO) -> None:
    """Its text of ten megabytes would be escaped, and be repeated in the traceback."""
    log_to(stream)

    _log_an_exception(ESCAPES * 1_000_000)

    written = stream.getvalue()
    assert len(written) < 300_000
    assert "Traceback (most recent call last)" in written
    assert "RuntimeError: after it" in written


def test_a_log_on_a_terminal_contains_no_control_characters() -> None:
    """They could clear the screen or forge a line; they are shown as escapes, and code lines stay lines."""
    stream = Terminal()
    log_to(stream)

    _log_an_exception(ESCAPES)
    Logger().info(ESCAPES, group="a\nforged line", found=[ESCAPES, {"x": ESCAPES}], body=b"\x1b")

    written = stream.getvalue()
    assert "\x1b[2J" not in written
    assert not set(written) & set("\x07\x9b\x7f")
    assert "a\\nforged line" in written
    assert "\n    raise ValueError(text)\n" in written
    assert "\\x1b[2J" in written


def test_a_json_log_line_keeps_values_and_types() -> None:
    stream = io.StringIO()
    log_to(stream)

    Logger().warning("x", group=ESCAPES, count=3, share=0.5, found=["a", {"b": 1}], is_x=True, of=None)

    fields = json.loads(stream.getvalue())
    assert fields["group"] == ESCAPES
    assert fields["count"] == 3
    assert fields["share"] == 0.5
    assert fields["found"] == ["a", {"b": 1}]
    assert fields["is_x"] is True
    assert fields["of"] is None
    assert fields["level"] == "warning"


def test_a_value_without_text_is_logged() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise ValueError("no text")

    stream = io.StringIO()
    log_to(stream)

    Logger().info("x", found=Silent())

    assert json.loads(stream.getvalue())["found"] == "Silent, whose text cannot be had: ValueError"


@pytest.mark.parametrize(("level", "logged"), [("debug", "diwe"), ("info", "iwe"), ("warning", "we"), ("error", "e")])
def test_events_below_the_level_are_not_logged(level: str, logged: str) -> None:
    """Each event is one letter: debug, info, warning, error."""
    stream = io.StringIO()
    log_to(stream, level)
    log = Logger()

    log.debug("d")
    log.info("i")
    log.warning("w")
    log.error("e")

    assert "".join(json.loads(line)["event"] for line in stream.getvalue().splitlines()) == logged


def test_an_exception_that_no_traceback_can_be_made_of_is_named() -> None:
    """A line is lost, or a lane ends, where somebody else's exception raises while it is looked at."""
    stream = io.StringIO()
    log_to(stream)
    error = SyntaxError("bad")
    error.filename, error.lineno, error.text, error.offset = "t", 3, "abc def", "7"  # type: ignore[assignment]

    try:
        raise error
    except SyntaxError:
        Logger().exception("it failed")

    assert "whose traceback cannot be had: TypeError" in json.loads(stream.getvalue())["exception"]


class BrokenStream(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_under_the_log_raises_no_error() -> None:
    """Only the line is lost; the worker goes on."""
    log_to(BrokenStream())

    Logger().info("working")
    _log_an_exception("x")


def test_a_program_whose_signal_comes_while_a_line_is_logged_ends() -> None:
    """The program's own signal handler raises SystemExit at any point of the main thread."""

    def stop(*_: object) -> NoReturn:
        sys.exit(0)

    structlog.configure(processors=[stop])

    with pytest.raises(SystemExit):
        Logger().info("working")


def test_an_exception_that_its_renderer_cannot_show_is_named() -> None:
    """A program that runs a worker has processors of its own, which may fail of somebody else's exception."""

    def render(_: object, __: str, line: Any) -> str:
        assert not line.pop("exc_info", None)
        return json.dumps(line)

    stream = io.StringIO()
    structlog.configure(processors=[render], logger_factory=structlog.PrintLoggerFactory(stream))

    _log_an_exception("x")

    found = {"event": "it failed, and its traceback cannot be shown", "error": "RuntimeError: after it\\nsecond line"}
    assert json.loads(stream.getvalue()) == found
