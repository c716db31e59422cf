"""The compiled queue against one in SimPy, on small cases; what must hold in every case; and a minute by hand."""

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from sluice.rehearse.model import queue_simulation as queue
from sluice.rehearse.model.queue_simulation import (
    FAILS_ALWAYS,
    FAILS_IN_OUTAGE,
    IS_FORGOTTEN,
    QueueState,
    SimulatedArrivals,
    Work,
)
from tests.support.queue_in_simpy import QueueInSimpy

pytestmark = pytest.mark.xdist_group("rehearsal")  # one worker compiles the simulation

MINUTES, SLOTS = 6, 14
type TimedMessage = tuple[float, int, int]
"""When it is sent, in which group, and how many of its receives fail."""


def test_compiled_code_of_an_older_version_is_removed(tmp_path: Path) -> None:
    """After an upgrade the cached code may name a class that is gone. The error of numba would not explain it."""
    source, cache = tmp_path / "queue.py", tmp_path / "__pycache__"
    cache.mkdir()
    for path, changed_at in ((cache / "queue.old.nbi", 10), (source, 20), (cache / "queue.new.nbi", 30)):
        path.touch()
        os.utime(path, (changed_at, changed_at))

    queue.remove_stale_caches(source)

    assert [path.name for path in cache.iterdir()] == ["queue.new.nbi"]


def _arrivals(messages: Sequence[TimedMessage]) -> SimulatedArrivals:
    sent_at, group, fails = zip(*messages, strict=True) if messages else ((), (), ())
    return SimulatedArrivals(
        np.array(sent_at, dtype=np.float64), np.array(group, dtype=np.int64), np.array(fails, dtype=np.uint8)
    )


def _of_minute(messages: Sequence[TimedMessage], minute: int) -> list[TimedMessage]:
    return [message for message in messages if 60 * minute <= message[0] < 60 * (minute + 1)]


def _state(*, groups: int, lanes: int, slots: int = SLOTS) -> QueueState:
    return queue.with_room(queue.new_state(groups=groups, task_slots=slots, lanes=lanes), 0)


def _bins(latencies: Sequence[float]) -> list[int]:
    """Return how many latencies are in each bin: the first ends at a millisecond, each other is 1.5 % further."""
    ends = 0.001 * 1.015 ** np.arange(queue.BIN_COUNT)
    return np.bincount(np.searchsorted(ends, latencies), minlength=queue.BIN_COUNT).tolist()


def _quarters(low: float, high: float) -> st.SearchStrategy[float]:
    """Return numbers that floating point adds without an error, so that much happens at the same instant."""
    return st.integers(int(4 * low), int(4 * high)).map(lambda count: count / 4)


WORKS = st.builds(
    Work,
    lanes=st.integers(1, 3),
    handler_seconds=_quarters(0.25, 5) | _quarters(5, 100),
    overhead_seconds=_quarters(0, 1),
    visibility_seconds=_quarters(1, 90),
    retry_seconds=_quarters(0, 40),
    max_receive_count=st.integers(0, 3),
    stop_timeout_seconds=_quarters(0, 10) | _quarters(10, 150),
    start_seconds=_quarters(0, 90),
    is_protected=st.booleans(),
    outage_ends_at=_quarters(0, 300),
    protected_seconds=st.just(0.0) | _quarters(0, 40),
)
FAILS = st.sampled_from([0, 0, 0, 0, 1, 2, IS_FORGOTTEN, FAILS_IN_OUTAGE, FAILS_ALWAYS])


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Work, int, list[TimedMessage], list[int]]:
    """Return how tasks work, how many groups, what is sent, and how many tasks are wanted from each minute on."""
    groups = draw(st.integers(1, 6))
    sent = st.tuples(_quarters(0, 60 * MINUTES - 0.25), st.integers(0, groups - 1), FAILS)
    messages = sorted(draw(st.lists(sent, min_size=10, max_size=60)), key=lambda message: message[0])
    wanted = draw(st.lists(st.integers(0, 4), min_size=MINUTES, max_size=MINUTES))
    return draw(WORKS), groups, messages, wanted


@settings(max_examples=60, deadline=None, database=None, print_blob=True)
@given(_cases())
def test_the_compiled_simulation_equals_simpy_on_the_same_case(
    case: tuple[Work, int, list[TimedMessage], list[int]],
) -> None:
    """Minute for minute the same counts, averages and age, and in the end the same latencies to the bin."""
    work, groups, messages, wanted = case
    model = QueueInSimpy(work, groups=groups, slots=SLOTS)
    for message in messages:
        model.send(*message)
    state, latencies = _state(groups=groups, lanes=work.lanes), np.zeros(queue.BIN_COUNT, dtype=np.int64)
    before: dict[str, float] = defaultdict(float)
    for minute in range(MINUTES):
        queue.scale(state, work, wanted[minute])
        model.scale(wanted[minute])
        arrivals = _arrivals(_of_minute(messages, minute))
        state = queue.with_room(state, len(arrivals.sent_at))

        measured = queue.minute_of(queue.advance(state, work, 60.0 * (minute + 1), arrivals, latencies))
        model.run(60 * (minute + 1))

        now = {**model.seconds, "sent": model.sent, "done": len(model.handled), "dead": model.dead}
        now |= {"killed": model.killed, "received": model.received}
        new = {name: value - before[name] for name, value in now.items()}
        assert measured._asdict() == pytest.approx(
            {
                "visible": new["visible"] / 60,
                "in_flight": new["in_flight"] / 60,
                "running": new["running"] / 60,
                "busy_lanes": new["busy"] / 60,
                "empty_receives": new["idle"] / 20,
                **{name: new[name] for name in ("received", "sent", "done", "dead", "killed")},
            }
        ), f"minute {minute}"
        assert queue.oldest_seconds(state) == pytest.approx(model.oldest_seconds())
        before = defaultdict(float, now)
    assert latencies.tolist() == _bins(model.latencies)
    assert queue.count_left(state, latencies) == len(model.messages_left())
    assert latencies.tolist() == _bins([*model.latencies, *model.messages_left()])
    assert sorted(model.handled) == [pair for group in range(groups) for pair in model.handled if pair[0] == group]
    for name in ("killed", "dead", "done"):
        event(f"{name}: {before[name] > 0}")


@settings(max_examples=15, deadline=None, database=None, print_blob=True)
@given(_cases())
def test_no_message_is_lost_and_each_group_keeps_one_lane_and_order(
    case: tuple[Work, int, list[TimedMessage], list[int]],
) -> None:
    """At every second no group is on two lanes, and no message is before an older one of its group.

    No lane works without a task.
    """
    work, groups, messages, wanted = case
    state, latencies = _state(groups=groups, lanes=work.lanes), np.zeros(queue.BIN_COUNT, dtype=np.int64)
    sent = done = dead = 0.0
    first = np.zeros(groups)
    for second in range(60 * MINUTES):
        if second % 60 == 0:
            queue.scale(state, work, wanted[second // 60])
        arrivals = _arrivals([message for message in messages if second <= message[0] < second + 1])
        state = queue.with_room(state, len(arrivals.sent_at))

        measured = queue.minute_of(queue.advance(state, work, second + 1.0, arrivals, latencies))

        sent, done, dead = sent + measured.sent, done + measured.done, dead + measured.dead
        held = state.lane_group[state.lane_group >= 0]
        assert len(set(held.tolist())) == len(held)
        for group in range(groups):
            if state.head[group] >= 0:
                assert state.sent_at[state.head[group]] >= first[group]
                first[group] = state.sent_at[state.head[group]]
        by_task = (state.lane_group.reshape(SLOTS, work.lanes) >= 0).sum(axis=1)
        assert by_task.tolist() == state.task_busy.tolist()
        assert not work.is_protected or measured.killed == 0
    assert sent == len(messages)
    assert sent == done + dead + queue.count_left(state, latencies)
    assert latencies.sum() == sent - dead


def _run(
    work: Work, messages: Sequence[TimedMessage], wanted: Sequence[int], *, groups: int = 3
) -> tuple[list[queue.Minute], list[int]]:
    """Return what was measured in each minute, and the latencies of all messages, whole seconds, in their order."""
    state, latencies = _state(groups=groups, lanes=work.lanes), np.zeros(queue.BIN_COUNT, dtype=np.int64)
    minutes = []
    for minute, tasks in enumerate(wanted):
        arrivals = _arrivals(_of_minute(messages, minute))
        state = queue.with_room(state, len(arrivals.sent_at))
        queue.scale(state, work, tasks)
        measures = queue.advance(state, work, 60.0 * (minute + 1), arrivals, latencies)
        minutes.append(queue.minute_of(measures))
    ends = 0.001 * 1.015 ** np.arange(queue.BIN_COUNT)
    return minutes, [round(end) for end, count in zip(ends, latencies, strict=True) for _ in range(count)]


WORK = Work(
    lanes=2,
    handler_seconds=12.0,
    overhead_seconds=0.0,
    visibility_seconds=90.0,
    retry_seconds=30.0,
    max_receive_count=2,
    stop_timeout_seconds=30.0,
    start_seconds=0.0,
    is_protected=False,
)


def test_a_simulated_minute_equals_the_one_computed_by_hand() -> None:
    """Two of a group at 6 s, one lane at a time: 24 s in flight, the second visible for 12; 96 s of lanes idle."""
    minutes, latencies = _run(WORK, [(6, 0, 0), (6, 0, 0)], [1])

    assert minutes[0]._asdict() == pytest.approx(
        {
            "visible": 12 / 60,
            "in_flight": 24 / 60,
            "running": 1,
            "busy_lanes": 24 / 60,
            "empty_receives": 96 / 20,
            "received": 2,
            "sent": 2,
            "done": 2,
            "dead": 0,
            "killed": 0,
        }
    )
    assert latencies == [12, 24]


def test_each_lane_receives_nothing_from_an_empty_queue_every_twenty_seconds() -> None:
    """A long poll of SQS waits 20 s at most, so each lane asks three times in the simulated minute."""
    minutes, _ = _run(WORK, [], [3])

    tasks, receives_a_minute = 3, 60 / 20
    assert minutes[0].empty_receives == pytest.approx(tasks * WORK.lanes * receives_a_minute)


def test_a_draining_task_polls_no_more_and_its_lanes_are_not_idle() -> None:
    """Three lanes of two tasks work for 90 s; one task is stopped after 60: of the other two lanes are idle for 30."""
    work = WORK._replace(stop_timeout_seconds=100.0, handler_seconds=90.0)
    minutes, _ = _run(work, [(0, group, 0) for group in range(3)], [2, 1])

    assert minutes[1].running == 1
    assert minutes[1].busy_lanes == pytest.approx(3 * 30 / 60)
    assert minutes[1].empty_receives == pytest.approx(2 * 30 / 20)


def test_a_poison_message_is_dead_lettered_and_its_group_goes_on() -> None:
    """Received at 0 and 42, each 12 s and 30 s away: dead at 84, when the one behind it is received."""
    minutes, latencies = _run(WORK, [(0, 0, FAILS_ALWAYS), (1, 0, 0)], [1, 1])

    assert [minute.dead for minute in minutes] == [0, 1]
    assert latencies == [84 - 1 + 12]


def test_a_poison_message_fails_beyond_255_receives() -> None:
    """The queue has no DLQ. With a receive a second the message is still there after ten minutes."""
    work = WORK._replace(max_receive_count=0, handler_seconds=0.5, retry_seconds=0.5)
    minutes, _ = _run(work, [(0, 0, FAILS_ALWAYS)], [1] * 10)

    assert sum(minute.received for minute in minutes) == 600
    assert sum(minute.done for minute in minutes) == 0


def test_a_killed_tasks_message_is_delivered_again_after_the_visibility_timeout() -> None:
    """The task is stopped at 60 s and killed at 90, and its message is visible again at 150.

    It is handled at 300, and not at 180, when the killed task would have ended.
    """
    work = WORK._replace(handler_seconds=150.0, visibility_seconds=60.0)
    minutes, latencies = _run(work, [(30, 0, 0)], [1, 0, 1, 1, 1, 1])

    assert [minute.killed for minute in minutes] == [0, 1, 0, 0, 0, 0]
    assert latencies == [pytest.approx(270, rel=0.02)]


def test_the_end_of_an_older_stop_kills_no_new_task() -> None:
    """A task is stopped at 60 and has ended at 115.

    The next one starts at 120 and is stopped at 180; the first one's kill, due at 190, does not hit it.
    """
    work = WORK._replace(handler_seconds=65.0, stop_timeout_seconds=130.0)
    minutes, latencies = _run(work, [(50, 0, 0), (150, 1, 0)], [1, 0, 1, 0, 0])

    assert sum(minute.killed for minute in minutes) == 0
    assert latencies == [pytest.approx(65, rel=0.02)] * 2


def test_a_protected_task_finishes_its_work_and_then_stops() -> None:
    """The same, protected: handled at 120, and no task runs after it."""
    work = WORK._replace(handler_seconds=90.0, is_protected=True)
    minutes, latencies = _run(work, [(30, 0, 0)], [1, 0, 0, 0])

    assert sum(minute.killed for minute in minutes) == 0
    assert latencies == [pytest.approx(90, rel=0.02)]
    assert [minute.running for minute in minutes] == [1, 1, 0, 0]


def test_the_oldest_message_of_equal_groups_is_received_first() -> None:
    """One lane, sent to groups 2, 0, 1, each a second after the other."""
    _, latencies = _run(WORK._replace(lanes=1), [(0, 2, 0), (1, 0, 0), (2, 1, 0)], [1])

    assert latencies == [12, 23, 34]


def test_tasks_that_never_start_need_no_more_room_than_there_is() -> None:
    """Half a day of tasks that are asked for and given up, each an hour before it would have started."""
    work = WORK._replace(start_seconds=3_600.0)
    minutes, _ = _run(work, [], [SLOTS, 0] * 360)

    assert sum(minute.running for minute in minutes) == 0


def test_turns_of_killed_tasks_need_no_more_room_than_there_is() -> None:
    """Half a day of tasks that are killed in work of twelve hours; every message is lost and delivered again."""
    work = WORK._replace(
        handler_seconds=43_200.0, stop_timeout_seconds=1.0, visibility_seconds=1.0, max_receive_count=0
    )
    minutes, latencies = _run(work, [(0, group, 0) for group in range(3)], [SLOTS, 0] * 360)

    assert sum(minute.killed for minute in minutes) == 3 * 360
    assert latencies == []


@pytest.mark.parametrize("share", [0.5, 0.95, 1.0])
def test_a_quantile_is_within_a_bin_of_the_exact_one(share: float) -> None:
    """Bins are 1.5 % wide, so the found value is at most that much above; of no latency there is no quantile."""
    latencies = np.random.default_rng(1).lognormal(2, 2, 10_000)
    exact = float(np.sort(latencies)[int(share * 10_000) - 1])

    found = queue.quantile(np.array(_bins(latencies.tolist()), dtype=np.int64), share)

    assert found is not None
    assert exact <= found <= 1.0151 * exact
    assert queue.quantile(np.zeros(queue.BIN_COUNT, dtype=np.int64), share) is None
