"""The scheduler compared with a plain model, which has lists of messages; and with very many messages."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_load.publish import scheduler
from spark_load.publish.scheduler import GroupScheduler

_GROUPS, _ADDRESSES = 7, 2

type _Message = tuple[int, int, int]
"""planned_idx, idx, group."""


class _Model:
    """A plain implementation of the docstring of `GroupScheduler`."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[_Message]] = {group: [] for group in range(_GROUPS)}
        self._abandoned: set[int] = set()
        self.resting: dict[int, float] = {}
        self.on_their_way: dict[int, _Message] = {}

    def add(self, due: list[_Message]) -> int:
        for message in due:
            if message[2] not in self._abandoned:
                self._waiting[message[2]].append(message)
        return sum(group in self._abandoned for *_, group in due)

    def ready(self, address: int) -> list[_Message]:
        """Return the first messages of the groups that may be sent, in the order of the plan."""
        blocked = self.resting.keys() | self.on_their_way.keys()
        return sorted(
            waiting[0]
            for group, waiting in self._waiting.items()
            if waiting and group not in blocked and group % _ADDRESSES == address
        )

    def take(self, address: int, room: int) -> list[_Message]:
        taken = self.ready(address)[:room]
        for message in taken:
            self.on_their_way[message[2]] = self._waiting[message[2]].pop(0)
        return taken

    def settle(self, group: int) -> None:
        del self.on_their_way[group]

    def put_back(self, group: int, until: float) -> None:
        self._waiting[group].insert(0, self.on_their_way.pop(group))
        self.resting[group] = until

    def wake(self, now: float) -> None:
        self.resting = {group: until for group, until in self.resting.items() if until > now}

    def abandon(self, group: int) -> int:
        del self.on_their_way[group]
        self._abandoned.add(group)
        behind, self._waiting[group] = len(self._waiting[group]), []
        return behind

    def state(self) -> Any:
        heads = [self.ready(address) for address in range(_ADDRESSES)]
        return {
            "waiting_count": sum(map(len, self._waiting.values())),
            "is_empty": not self.on_their_way and not any(self._waiting.values()),
            "ready": [len(ready) for ready in heads],
            "heads_us": [ready[0][0] * 10 if ready else None for ready in heads],
            "wakes_at": min(self.resting.values(), default=None),
        }


def _state(tested: GroupScheduler) -> Any:
    """Return the scheduler's counts and heads, by which it is compared with the model."""
    return {
        "waiting_count": tested.waiting_count,
        "is_empty": tested.is_empty,
        "ready": [tested.ready_count(address) for address in range(_ADDRESSES)],
        "heads_us": [tested.head_us(address) for address in range(_ADDRESSES)],
        "wakes_at": tested.wakes_at,
    }


def _add(tested: GroupScheduler, due: list[_Message]) -> int:
    """Add messages to the scheduler, given as (planned instant, number, group)."""
    planned_idx, idx, groups = np.array(due, np.int64).reshape(-1, 3).T
    attempts = np.ones(len(due), np.int32)
    columns = (planned_idx, idx, attempts, groups.astype(np.int32), planned_idx * 10)
    names = ("planned_idx", "idx", "publish_attempt", "group_number", "intended_at_us")
    return tested.add(dict(zip(names, columns, strict=True)))


@settings(max_examples=50, deadline=None)  # of a scheduler broken in eight ways none got past 11, of 60 starts each
@given(rng=st.randoms(use_true_random=True))
def test_the_scheduler_does_what_its_plain_model_does(rng: Random) -> None:
    """Random steps: messages are added; all, some or none of a call are acknowledged; groups rest or are abandoned."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scheduler, "_ROWS", 4)  # so that rings go round and grow
        tested = GroupScheduler(group_count=_GROUPS, address_count=_ADDRESSES)
    model, rows, added = _Model(), dict[int, int](), 0
    for now in range(80):
        groups = rng.choices(range(_GROUPS), k=rng.randrange(6))
        due = [(added + place, rng.randrange(3), group) for place, group in enumerate(groups)]
        added += len(due)
        assert _add(tested, due) == model.add(due)

        tested.wake(now)
        model.wake(now)
        address, room = rng.randrange(_ADDRESSES), rng.randint(1, 4)
        taken, expected = tested.take(address, room), model.take(address, room)
        assert tested.columns(taken)["planned_idx"].tolist() == [number for number, *_ in expected]
        assert tested.groups(taken) == [group for *_, group in expected]
        rows |= dict(zip([number for number, *_ in expected], taken, strict=True))

        settled: list[int] = []
        for group, (number, *_) in [*model.on_their_way.items()]:
            own = rows[number]
            answer = rng.choices(["none", "ok", "failed", "abandoned"], [4, 8, 4, 0.1])[0]
            if answer == "ok":
                settled.append(own)
                model.settle(group)
            elif answer == "failed":
                until = now + rng.randrange(9)
                tested.put_back(own, until=until)
                model.put_back(group, until)
            elif answer == "abandoned":
                assert tested.abandon(own) == model.abandon(group)
        tested.settle(settled)
        assert _state(tested) == model.state()
    _empty(tested, model, rows)


def _empty(tested: GroupScheduler, model: _Model, rows: dict[int, int]) -> None:
    """Acknowledge all messages that are left, so that a message that was lost or counted twice is seen."""
    tested.wake(1_000)
    model.wake(1_000)
    for step in range(1_000):
        for group, (number, *_) in [*model.on_their_way.items()]:
            tested.settle([rows[number]])
            model.settle(group)
        assert _state(tested) == model.state()
        if tested.is_empty:
            return
        address = step % _ADDRESSES
        taken, expected = tested.take(address, 4), model.take(address, 4)
        assert tested.columns(taken)["planned_idx"].tolist() == [number for number, *_ in expected]
        rows |= dict(zip([number for number, *_ in expected], taken, strict=True))
    raise AssertionError("it is never empty")


def test_finished_messages_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is finished when it is acknowledged or abandoned. Its row must be used again.

    Otherwise a publisher would need more memory with every message.
    """
    monkeypatch.setattr(scheduler, "_ROWS", 4)
    tested = GroupScheduler(group_count=1_000, address_count=1)
    sizes = set[int]()
    for number in range(0, 900, 3):
        for group in (number, number + 1, number + 2):
            _add(tested, [(2 * group, 0, group), (2 * group + 1, 1, group)])
        settled, failed, abandoned = tested.take(0, 3)
        tested.put_back(failed, until=number)
        tested.abandon(abandoned)
        tested.settle([settled])
        tested.wake(number)
        while taken := tested.take(0, 1):
            tested.settle(taken)
        assert tested.is_empty
        sizes.add(tested._rows._size)

    assert max(sizes) <= 32


def test_a_message_that_rests_is_kept_while_40_000_others_finish() -> None:
    """Message 0 rests until second 60, message 1 of its group waits behind it; the others are of other groups."""
    tested = GroupScheduler(group_count=3, address_count=1)
    _add(tested, [(0, 0, 0), (1, 1, 0), (2, 2, 1)])
    held, other = tested.take(0, 10)
    tested.put_back(held, until=60.0)
    tested.settle([other])

    seen: list[int] = []
    for first in range(3, 40_003, 1_000):
        _add(tested, [(number, number, 1 + number % 2) for number in range(first, first + 1_000)])
        while tested.ready_count(0):
            taken = tested.take(0, 10)
            seen += tested.columns(taken)["idx"].tolist()
            tested.settle(taken)
    assert seen == list(range(3, 40_003))
    assert tested.waiting_count == 2
    assert tested.wakes_at == 60.0

    tested.wake(60.0)
    for idx in (0, 1):
        assert tested.head_us(0) == idx * 10
        taken = tested.take(0, 10)
        assert tested.columns(taken)["idx"].tolist() == [idx]
        tested.settle(taken)
    assert tested.is_empty


def _due_columns(count: int, first: int = 0) -> dict[str, Any]:
    numbers = np.arange(first, first + count)
    return {
        "planned_idx": numbers,
        "idx": numbers,
        "publish_attempt": np.ones(count, np.int32),
        "group_number": np.zeros(count, np.int32),
        "intended_at_us": numbers * 10,
    }


def test_a_bundle_of_an_earlier_process_is_taken_when_it_is_whole() -> None:
    """Its three messages are due one by one, as those of a plan that is resumed."""
    tested = GroupScheduler(group_count=1, address_count=1, bundle_max=5, sent_before={(0, 0): 3})
    taken = []
    for number in range(6):
        tested.add(_due_columns(1, first=number))
        taken.append(tested.take(0, 10))
    assert tested.waiting_count == 3
    tested.settle(taken[2])
    following = tested.take(0, 10)

    assert [len(rows) for rows in taken] == [0, 0, 3, 0, 0, 0]
    assert tested.columns(taken[2])["idx"].tolist() == [0, 1, 2]
    assert tested.columns(following)["idx"].tolist() == [3, 4, 5]


def test_a_bundle_that_failed_is_taken_again_as_it_was() -> None:
    """Otherwise the retry would be another message, under another deduplication id."""
    tested = GroupScheduler(group_count=1, address_count=1, bundle_max=3)
    tested.add(_due_columns(2))
    bundle = tested.take(0, 10)
    tested.add(_due_columns(4, first=2))
    tested.put_back(bundle[0], until=1.0)
    waiting = tested.waiting_count
    tested.wake(1.0)

    again = tested.take(0, 10)
    tested.settle(again)
    following = tested.take(0, 10)
    abandoned = tested.abandon(following[0])

    assert len(bundle) == 2
    assert waiting == 6
    assert again == bundle
    assert tested.columns(following)["idx"].tolist() == [2, 3, 4]
    assert abandoned == 3
    assert tested.is_empty
    assert tested.waiting_count == 0
