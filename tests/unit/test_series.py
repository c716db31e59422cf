"""How a run is cut into bins of time and ranks of groups."""

import pytest

from spark_load.series import BINS_MAX, bin_width_us, rank_table, waiting


@pytest.mark.parametrize(
    ("span_seconds", "bin_seconds"),
    [(0, 0.5), (59, 0.5), (60, 1), (119, 1), (120, 2), (86_400, 900), (86_400 * 30, 25_200)],
)
def test_a_bin_is_as_wide_as_it_must_be(span_seconds: int, bin_seconds: float) -> None:
    """Never more bins than BINS_MAX, the last one counted."""
    width = bin_width_us(span_seconds * 1_000_000)

    assert width == bin_seconds * 1_000_000
    assert span_seconds * 1_000_000 // width + 1 <= BINS_MAX


def test_groups_are_ranked_by_size() -> None:
    """One hot group, ten of one size, nine with one message."""
    assert rank_table({1_000: 1, 7: 10, 1: 9}) == [(1_000, 0, 1), (7, 1, 10), (1, 11, 9)]
    assert rank_table({}) == []


def test_what_waits_is_never_less_than_nothing() -> None:
    """A message can be received before its publisher has the answer."""
    assert waiting([3, 0, 2, 0], [1, 3, 0, 1]) == [2, 0, 1, 0]
