"""Shrinking cuts a failing run down to the least that still fails."""

from collections.abc import Sequence

from tests.chaos.shrinking import shrink


def test_shrinking_leaves_only_the_faults_and_messages_that_matter() -> None:
    """Two faults and one message, of twenty and thirty."""

    def fails(faults: Sequence[int], messages: Sequence[int]) -> bool:
        return {3, 17} <= set(faults) and 11 in messages

    least = shrink(range(20), range(30), fails, tries_max=500)

    assert least.faults == (3, 17)
    assert least.messages == (11,)
    assert least.is_least is True
    assert least.tries < 100


def test_a_failure_without_faults_shrinks_to_nothing() -> None:
    least = shrink((1, 2, 3), (4,), lambda *_: True, tries_max=50)

    assert least.faults == ()
    assert least.messages == ()


def test_a_short_search_says_that_more_may_be_left_out() -> None:
    """The faults and messages that are returned have failed all the same."""

    def fails(faults: Sequence[int], messages: Sequence[int]) -> bool:
        return {3, 17} <= set(faults)

    least = shrink(range(20), range(30), fails, tries_max=5)

    assert least.tries == 5
    assert least.is_least is False
    assert fails(least.faults, least.messages)
