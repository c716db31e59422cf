"""Text from outside becomes one printable line of limited length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.messaging.hooks import harmless
from sluice.terminal.printable import CHARACTERS_MAX, exception_text, printable


class Silent:
    """An object whose text cannot be had."""

    def __str__(self) -> str:
        raise KeyboardInterrupt("no text")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("order-1", "order-1"),
        ("Ärger, 注文", "Ärger, 注文"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("one\r\ntwo\tthree", "one\\r\\ntwo\\tthree"),
        ("\x9b31m\x7f\x00", "\\x9b31m\\x7f\\x00"),
        ("a\ud800b", "a\\ud800b"),
        ("evil\u202etxt.exe", "evil\\u202etxt.exe"),
        (5, "5"),
        (None, "None"),
        (Silent(), "Silent, whose text cannot be had: KeyboardInterrupt"),
    ],
)
def test_a_character_is_shown_unchanged_or_as_its_escape(value: object, shown: str) -> None:
    assert printable(value) == shown


def test_a_long_text_is_cut_with_its_length() -> None:
    shown = printable("\x1b" * 10_000_000)

    assert len(shown) == CHARACTERS_MAX
    assert shown.endswith("… (of 10000000 characters)")


@given(text=st.text(st.characters(exclude_categories=())), most=st.integers(0, 100))
def test_printable_text_is_always_bounded_and_storable(text: str, most: int) -> None:
    """Storable means: as UTF-8, which half a surrogate pair is not."""
    shown = printable(text, characters_max=most)

    assert shown.isprintable()
    assert len(shown) <= most
    assert shown.encode().decode() == shown


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_without_a_text_is_named_by_its_type() -> None:
    assert (
        exception_text(UnspeakableError())
        == "UnspeakableError: UnspeakableError, whose text cannot be had: RuntimeError"
    )


def test_harmless_swallows_an_error_without_a_text() -> None:
    with harmless(object()):
        raise UnspeakableError
