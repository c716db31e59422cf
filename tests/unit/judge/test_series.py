"""How a run is cut into bins of time and ranks of groups."""

import pytest

from sluice.judge.checker.verdict import Violation
from sluice.judge.folder.series_schema import BINS_MAX
from sluice.judge.series import GROUPS_MAX, _shown_groups, bin_width_us, rank_table, waiting
from tests.support.histories.by_hand import published


@pytest.mark.parametrize(
    ("span_seconds", "bin_seconds"),
    [(0, 0.5), (59, 0.5), (60, 1), (119, 1), (120, 2), (86_400, 900), (86_400 * 30, 25_200)],
)
def test_a_bin_is_as_wide_as_it_must_be(span_seconds: int, bin_seconds: float) -> None:
    width = bin_width_us(span_seconds * 1_000_000)

    assert width == bin_seconds * 1_000_000
    assert span_seconds * 1_000_000 // width + 1 <= BINS_MAX


def test_groups_are_ranked_by_size() -> None:
    assert rank_table({1_000: 1, 7: 10, 1: 9}) == [(1_000, 0, 1), (7, 1, 10), (1, 11, 9)]
    assert rank_table({}) == []


def _found(anomaly: str, group: str, *at_ms: int) -> Violation:
    witness = tuple(published(0, published_ms, message_group_id=group) for published_ms in at_ms)
    return Violation(anomaly=anomaly, message_group_id=group, queue=None, idxs=(0,), sentence="", witness=witness)


def test_a_timeline_spans_all_that_was_found_in_its_group() -> None:
    found = [_found("A1", "g", 100), _found("B1", "g", 50, 70), _found("C1", "g", 120)]

    assert _shown_groups(found) == {"g": (50_000, 125_000)}


def test_every_anomaly_is_told_of_before_one_is_told_of_twice() -> None:
    many = [_found("A1", f"a{number}", 10) for number in range(GROUPS_MAX + 1)]
    found = [*many, _found("B1", "b", 10), _found("A1", "a0", 90)]

    groups = _shown_groups(found)

    assert list(groups) == ["a0", "b", *(f"a{number}" for number in range(1, GROUPS_MAX - 1))]
    assert groups["a0"] == (10_000, 95_000)


def test_what_waits_is_never_less_than_nothing() -> None:
    """A message can be received before its publisher has the answer."""
    assert waiting([3, 0, 2, 0], [1, 3, 0, 1]) == [2, 0, 1, 0]
