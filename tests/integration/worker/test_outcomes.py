"""What a handler may say, and what becomes of its message."""

from tests.integration.worker.places import World


def test_what_was_sent_is_done_once_and_in_order(world_anywhere: World) -> None:
    """W1: each message has one effect, in the order of its group, and leaves the queue."""
    world = world_anywhere
    world.send("a", "a", "b", "a", "b")

    world.work_off(world.worker())

    assert sorted(world.effects()) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]
    assert world.called == world.effects()
    assert world.positions() == {"a": 3, "b": 2}
    assert (world.left(), world.dead(), world.exceptions()) == ([], [], {})
