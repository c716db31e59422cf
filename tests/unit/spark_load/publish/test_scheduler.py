"""The scheduler: columns of messages, of which some stay open while very many others come and go."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from spark_load.publish.scheduler import GroupScheduler


def _due(first: int, groups: Sequence[int]) -> dict[str, Any]:
    idx = np.arange(first, first + len(groups))
    attempts = np.ones(len(idx), np.int32)
    return {
        "planned_idx": idx,
        "idx": idx,
        "publish_attempt": attempts,
        "group_number": np.array(groups, np.int32),
        "intended_at_us": idx * 10,
    }


def test_a_message_that_rests_is_still_there_after_any_number_of_others() -> None:
    scheduler = GroupScheduler(group_count=3, address_count=1)
    scheduler.add(_due(0, [0, 0, 1]))
    held, other = scheduler.take(0, 10)
    scheduler.put_back(held, until=60.0)
    scheduler.settle([other])

    seen: list[int] = []
    for first in range(3, 120_003, 1_000):
        scheduler.add(_due(first, [1, 2] * 500))
        while scheduler.ready_count(0):
            taken = scheduler.take(0, 10)
            seen += scheduler.columns(taken)["idx"].tolist()
            scheduler.settle(taken)
    assert seen == list(range(3, 120_003))
    assert (scheduler.waiting_count, scheduler.wakes_at) == (2, 60.0)

    scheduler.wake(60.0)
    for idx in (0, 1):
        assert scheduler.head_us(0) == idx * 10
        taken = scheduler.take(0, 10)
        assert scheduler.columns(taken)["idx"].tolist() == [idx]
        scheduler.settle(taken)
    assert scheduler.is_empty


def test_of_a_group_that_is_given_up_nothing_goes_any_more() -> None:
    scheduler = GroupScheduler(group_count=2, address_count=1)
    scheduler.add(_due(0, [0, 0, 0, 1]))
    first, other = scheduler.take(0, 10)

    assert scheduler.abandon(first) == 2
    assert scheduler.add(_due(4, [0, 1, 0])) == 2
    scheduler.settle([other])

    taken = scheduler.take(0, 10)
    assert scheduler.columns(taken)["idx"].tolist() == [5]
    scheduler.settle(taken)
    assert scheduler.is_empty
