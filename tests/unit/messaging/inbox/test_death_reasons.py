"""The reasons of dead letters, grouped; and the text by which a listing chooses some of them."""

import pytest

from sluice.messaging.database.choice import RowChoice
from sluice.messaging.inbox.death_reasons import group_reasons


def _texts(*deaths: tuple[str, str | None]) -> list[tuple[int, str, int]]:
    """Group the reasons of deaths (group, reason); return count, common text and number of groups of each."""
    return [(found.count, found.text, found.groups) for found in group_reasons((*death, 7) for death in deaths)]


def test_reasons_that_differ_in_values_are_one() -> None:
    """A value that all reasons share stays in the text; reasons with different words are different."""
    assert _texts(
        ("a", "refund of -3 cents, allowed is 1 or more"),
        ("b", "refund of -500 cents, allowed is 1 or more"),
        ("b", "refund of -3 cents, allowed is 1 or more"),
        ("c", "there is no handler for 'order.refunded'"),
        ("c", "there is no handler for 'order.shipped'"),
        ("d", None),
    ) == [
        (3, "refund of … cents, allowed is 1 or more", 2),
        (1, "no reason is recorded", 1),
        (1, "there is no handler for 'order.refunded'", 1),
        (1, "there is no handler for 'order.shipped'", 1),
    ]


def test_reasons_that_differ_in_the_groups_name_are_one() -> None:
    """The differing words become an ellipsis."""
    assert _texts(("ann", "customer ann is unknown"), ("bob", "customer bob is unknown")) == [
        (2, "customer … is unknown", 2)
    ]


def test_a_summary_is_cut_to_the_requested_length() -> None:
    (found,) = group_reasons([("a", "x" * 500, 1), ("b", "x" * 500, 2)])

    assert len(found.summarize(60)) == 60
    assert found.summarize(60).endswith("x…; 2 groups")
    assert found.summarize().count("x") == 500


@pytest.mark.parametrize(
    ("died_of", "reason", "matches"),
    [
        ("refund of … cents", "attempt 5: refund of -3 cents, allowed is 1", True),
        ("REFUND", "refund of -3 cents", True),
        ("50%", "50 of them", False),
        ("a.c", "abc", False),
        ("refund", None, False),
        (None, None, True),
    ],
)
def test_a_text_selects_the_reasons_that_contain_it(died_of: str | None, reason: str | None, matches: bool) -> None:  # noqa: FBT001
    """Upper and lower case are one, an ellipsis stands for any text, and no other character is a wildcard."""
    assert RowChoice(died_of=died_of).matches_reason(reason) is matches


def test_a_long_word_takes_no_longer_than_its_length() -> None:
    """A search that began anew at each letter would take hours."""
    word = "a" * 500_000

    assert _texts(("order-1", word), ("order-2", word)) == [(2, word, 2)]


def test_only_whole_words_count_as_the_groups_name() -> None:
    """The `a` in `ab` is not group a, and the one in `a-c` is."""
    assert _texts(("a", "a of a-c, ab"), ("b", "b of b-c, ab")) == [(2, "… of …-c, ab", 2)]
