"""What only the database knows goes into the history, and what they contradict each other in is said."""

from collections import Counter

from spark_load.consume.effects import Effect, compared, out_of_order, undone


def _effect(idx: int, *, is_late: bool = False) -> Effect:
    return Effect(message_group_id="g", message_run="epoch-1", idx=idx, is_late=is_late, written_at_us=1_000 + idx)


def _key(idx: int) -> tuple[str, str, int]:
    return "epoch-1", "g", idx


def test_an_effect_nobody_wrote_down_is_added_once_and_a_second_one_too() -> None:
    """Its worker was killed behind the commit. Two effects are two events, of which the checker makes R2."""
    events = list(compared([_effect(1), _effect(2), _effect(2)], Counter([_key(1)]), "billing"))

    assert [(event["kind"], event["queue"], event["idx"]) for event in events] == [("handled", "billing", 2)] * 2
    assert list(compared([_effect(1)], Counter([_key(1)]), "billing")) == []


def test_an_effect_the_database_has_not_is_named_and_an_end_marker_has_none() -> None:
    assert undone([_effect(1)], Counter([_key(1), _key(2), _key(-3)])) == [_key(2)]


def test_an_effect_behind_a_later_one_is_out_of_order_unless_it_is_late() -> None:
    assert out_of_order([_effect(1), _effect(3), _effect(2, is_late=True), _effect(4)]) == []
    assert out_of_order([_effect(1), _effect(3), _effect(2), _effect(4)]) == [(_effect(2), _effect(3))]
