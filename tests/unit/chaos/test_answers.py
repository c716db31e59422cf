"""Answers of a function to batches of mixed groups, as a chaos run judges them."""

import pytest

from tests.support.messaging.function_answers import wrong_answers

HANDLED, FAILED, UNTOUCHED, DROPPED = (True, False), (True, True), (False, True), (False, False)
"""Whether a message was begun, and whether it is reported."""


def sentences_of(*messages: tuple[str, tuple[bool, bool]], left_ms: int = 1_500) -> list[str]:
    """Return what is wrong with an answer to messages, each of a group."""
    ended = [
        {"group": group, "id": str(number), "is_begun": is_begun, "is_reported": is_reported}
        for number, (group, (is_begun, is_reported)) in enumerate(messages)
    ]
    return list(wrong_answers({"messages": ended, "left_ms": left_ms}))


@pytest.mark.parametrize(
    "messages",
    [
        [("a", HANDLED), ("b", HANDLED)],
        [("a", FAILED), ("b", HANDLED), ("a", UNTOUCHED)],
        [("a", HANDLED), ("a", FAILED), ("a", UNTOUCHED), ("b", FAILED)],
    ],
)
def test_a_failure_and_what_is_behind_it_in_its_group_are_reported(
    messages: list[tuple[str, tuple[bool, bool]]],
) -> None:
    assert sentences_of(*messages) == []


def test_a_message_behind_a_failure_is_not_handled() -> None:
    assert sentences_of(("a", FAILED), ("a", HANDLED)) == [
        "of group a, a message behind one that failed was taken for handled"
    ]


def test_a_failure_of_another_group_is_no_reason_to_report() -> None:
    assert sentences_of(("a", FAILED), ("b", UNTOUCHED)) == [
        "of group b, message 1 was reported untouched, and nothing of its group had failed"
    ]


def test_an_invocation_without_time_leaves_messages_untouched() -> None:
    assert sentences_of(("a", HANDLED), ("b", UNTOUCHED), left_ms=200) == []


def test_a_message_that_nobody_touched_is_not_deleted() -> None:
    """A function that takes receives for attempts sends it to the DLQ by itself."""
    assert sentences_of(("a", DROPPED), ("a", HANDLED)) == ["of group a, message 0 was taken for handled untouched"]
