"""A queue, its groups and the tasks that work on it, as discrete events; compiled, because a day may have a billion.

Every message is an event of its own: it is sent, received by a lane once nothing before it in its group is left,
handled and deleted, or given back, dead-lettered, or lost to a killed task and delivered again. Of SQS:

- A group is with one lane at a time, and its first message goes first. Of the groups that may be received from, the one
  whose message was sent first is received: AWS promises order in a group and nothing between groups.
  https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html
- A message that is not deleted keeps its group until it is visible again.
- An idle lane polls for 20 s at a time, and an empty answer is an empty receive: there is one for each 20 s of idle
  lanes, on average.

And of ECS: a task takes its time to start; with scale-in protection it is stopped only when all its lanes have been
idle as long as the protection outlasts the work; without, it gets SIGTERM, takes nothing new, and is killed when the
stop timeout is over.
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection.html (read 2026-11-23)

Not simulated: the search for free groups among the first 120,000 messages only, several messages per receive, throttled
calls, handlers of different length. At the same instant messages are sent, then handled, then visible again; tasks
start, are killed, and lose their protection last.

SimPy would be the library for this, and the tests hold this against it: 1.44 billion messages a day would take it hours
(docs/decisions/0011-rehearsal.md).
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

type Floats = npt.NDArray[np.float64]
type Integers = npt.NDArray[np.int64]
type Bytes = npt.NDArray[np.uint8]

LONG_POLL_SECONDS = 20.0  # limit of SQS
FAILS_ALWAYS, FAILS_IN_OUTAGE, IS_FORGOTTEN = 255, 254, 253
BIN_COUNT = 1_500
"""The number of latency bins. The first is up to 1 ms; the upper bound of each further bin is 1.5 % higher."""
_BIN_RATIO, _BIN_FIRST_SECONDS = 1.015, 0.001
_LOG_RATIO = float(np.log(_BIN_RATIO))
_NONE = -1  # in place of a group, a lane or a message
_OFF, _RUNNING, _DRAINING, _STARTING = 0, 1, 2, 3

# The sums of a minute, in the order of `Minute`.
_VISIBLE, _IN_FLIGHT, _RUNNING_TASKS, _BUSY, _IDLE, _RECEIVED, _SENT, _DONE, _DEAD, _KILLED = range(10)
_MEASURES = 10
# What is counted at this instant, in the order of `QueueState.counts`.
_WAITING, _HELD, _TASKS, _BUSY_LANES, _STOPS, _SPARE, _EVENTS, _READY = range(8)
_POLLS_FIRST, _POLLS, _TURN_FIRST, _TURNS, _DRAINING_LANES = range(8, 13)
_COUNTED = 13


def remove_stale_caches(source: Path) -> None:
    """Remove the files that numba compiled from an older version of a source file.

    numba does so itself once it has read its index, which it cannot if a class in it is gone or has another name: then
    the first call raises AttributeError. Its files stand in `__pycache__`, and no installer removes them.
    https://numba.readthedocs.io/en/stable/developer/caching.html (read 2026-11-27)
    """
    with suppress(OSError):
        changed_at = source.stat().st_mtime
        for index in (source.parent / "__pycache__").glob(f"{source.stem}.*.nbi"):
            if index.stat().st_mtime < changed_at:
                index.unlink()


remove_stale_caches(Path(__file__))


class Work(NamedTuple):
    """The work of tasks, with its durations.

    Args:
        lanes: groups a task works on at once.
        handler_seconds: how long a message is in its handler.
        overhead_seconds: the further time of a lane for each message: its delete and the next receive.
        visibility_seconds: how long a message of a killed task stays away.
        retry_seconds: how long a failed message stays away.
        max_receive_count: receives before a failing message is dead-lettered; 0 never is.
        stop_timeout_seconds: from SIGTERM until a task is killed.
        start_seconds: from the decision until a task polls.
        is_protected: whether a task with work is protected from scale-in.
        outage_ends_at: the end of the outage, seconds since the start; until then `FAILS_IN_OUTAGE` messages fail.
        protected_seconds: how long a task is protected after its last message.
    """

    lanes: int
    handler_seconds: float
    overhead_seconds: float
    visibility_seconds: float
    retry_seconds: float
    max_receive_count: int
    stop_timeout_seconds: float
    start_seconds: float
    is_protected: bool
    outage_ends_at: float = 0.0
    protected_seconds: float = 0.0


class SimulatedArrivals(NamedTuple):
    """Messages to be sent.

    Args:
        sent_at: when each is sent, in seconds since the start, ascending.
        group: the group of each.
        fails: how many of its receives fail, at most 252; `FAILS_ALWAYS` is all, `FAILS_IN_OUTAGE` those until an
            outage ends, and of `IS_FORGOTTEN` the first ends only with its visibility timeout.
    """

    sent_at: Floats
    group: Integers
    fails: Bytes


class QueueState(NamedTuple):
    """The whole state of a simulation, in arrays.

    By message: when it was sent, the next message of its group, how many of its receives fail; and the spare places. By
    group: its first and last message, and how often the first was received. By lane: its group, and the number of its
    turn, which identifies turns that a killed task never ends. By task: its state, its busy lanes, when it starts or is
    killed, since when it is idle, and whether an event for the end of its protection is planned.

    Polling lanes are a ring, and so are turns, because every handler takes equally long. Groups that may be received
    from are a heap, sorted by the time their first message was sent. All other future events are a heap, sorted by
    time.
    """

    sent_at: Floats
    following: Integers
    fails: Bytes
    spare: Integers
    head: Integers
    tail: Integers
    receives: Integers
    lane_group: Integers
    lane_turn: Integers
    lane_polls: Bytes
    polling: Integers
    turn_ends: Floats
    turn_lane: Integers
    turn_number: Integers
    task_state: Integers
    task_busy: Integers
    task_due: Floats
    task_idle_at: Floats
    task_expires: Bytes
    event_at: Floats
    event: Integers
    ready_key: Floats
    ready: Integers
    counts: Integers
    now: Floats


def new_state(*, groups: int, task_slots: int, lanes: int) -> QueueState:
    """Return an empty queue without tasks."""
    all_lanes = task_slots * lanes

    def integers(count: int, value: int = 0) -> Integers:
        return np.full(count, value, dtype=np.int64)

    return QueueState(
        sent_at=np.zeros(0),
        following=integers(0),
        fails=np.zeros(0, dtype=np.uint8),
        spare=integers(0),
        head=integers(groups, _NONE),
        tail=integers(groups, _NONE),
        receives=integers(groups),
        lane_group=integers(all_lanes, _NONE),
        lane_turn=integers(all_lanes),
        lane_polls=np.zeros(all_lanes, dtype=np.uint8),
        polling=integers(all_lanes + 1),
        turn_ends=np.zeros(0),
        turn_lane=integers(0),
        turn_number=integers(0),
        task_state=integers(task_slots, _OFF),
        task_busy=integers(task_slots),
        task_due=np.zeros(task_slots),
        task_idle_at=np.full(task_slots, -np.inf),
        task_expires=np.zeros(task_slots, dtype=np.uint8),
        event_at=np.zeros(0),
        event=integers(0),
        ready_key=np.zeros(groups + 1),
        ready=integers(groups + 1),
        counts=integers(_COUNTED),
        now=np.zeros(1),
    )


def with_room(state: QueueState, count: int) -> QueueState:
    """Return the state with room for a minute with that many messages, and for the scaling at its end."""
    state = _with_room_for_turns(_with_room_for_events(state))
    spare = int(state.counts[_SPARE])
    if spare >= count:
        return state
    size = len(state.sent_at)
    more = max(count - spare, size, 1_024)
    state.counts[_SPARE] = spare + more
    return state._replace(
        sent_at=_longer(state.sent_at, more),
        following=_longer(state.following, more),
        fails=_longer(state.fails, more),
        spare=np.concatenate([state.spare[:spare], np.arange(size, size + more), np.zeros(size, dtype=np.int64)]),
    )


def _longer[T: np.generic](values: npt.NDArray[T], more: int) -> npt.NDArray[T]:
    return np.concatenate([values, np.zeros(more, dtype=values.dtype)])


def _with_room_for_events(state: QueueState) -> QueueState:
    """Make room for each group to be visible again, and each task to be started, killed and unprotected.

    Outdated events stay.
    """
    needed = int(state.counts[_EVENTS]) + len(state.head) + 3 * len(state.task_state)
    missing = needed - len(state.event)
    if missing <= 0:
        return state
    more = missing + needed
    return state._replace(event_at=_longer(state.event_at, more), event=_longer(state.event, more))


def _with_room_for_turns(state: QueueState) -> QueueState:
    """Make room for a turn of each lane; the turns of killed tasks stay until the time they would have ended."""
    count, lanes = int(state.counts[_TURNS]), len(state.lane_group)
    if count + lanes <= len(state.turn_ends):
        return state
    order = (state.counts[_TURN_FIRST] + np.arange(count)) % max(1, len(state.turn_ends))
    state.counts[_TURN_FIRST] = 0
    more = count + 2 * lanes
    return state._replace(
        turn_ends=_longer(state.turn_ends[order], more),
        turn_lane=_longer(state.turn_lane[order], more),
        turn_number=_longer(state.turn_number[order], more),
    )


@njit(cache=True, error_model="numpy")
def _push(keys: Floats, values: Integers, size: int, key: float, value: int) -> None:
    """Put a value into a heap of that size."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if keys[parent] < key or (keys[parent] == key and values[parent] < value):
            break
        keys[child], values[child] = keys[parent], values[parent]
        child = parent
    keys[child], values[child] = key, value


@njit(cache=True, error_model="numpy")
def _pop(keys: Floats, values: Integers, size: int) -> int:
    """Take the value with the least key out of a heap of that size; of equal keys, the least value."""
    first = values[0]
    key, value, size = keys[size - 1], values[size - 1], size - 1
    parent = 0
    while 2 * parent + 1 < size:
        child = 2 * parent + 1
        other = child + 1
        if other < size and (
            keys[other] < keys[child] or (keys[other] == keys[child] and values[other] < values[child])
        ):
            child = other
        if keys[child] > key or (keys[child] == key and values[child] > value):
            break
        keys[parent], values[parent] = keys[child], values[child]
        parent = child
    keys[parent], values[parent] = key, value
    return int(first)


@njit(cache=True)
def _bin(seconds: float) -> int:
    """Return the bin of a latency."""
    if seconds <= _BIN_FIRST_SECONDS:
        return 0
    return min(BIN_COUNT - 1, int(np.log(seconds / _BIN_FIRST_SECONDS) / _LOG_RATIO) + 1)


@njit(cache=True, error_model="numpy")
def advance(  # noqa: C901, PLR0915 (see below)
    state: QueueState,
    work: Work,
    until: float,
    arrivals: SimulatedArrivals,
    latencies: Integers,
) -> Floats:
    """Let time pass until `until`, with the messages that are sent meanwhile.

    One function with functions inside: numba counts references to every array of a tuple that is handed from function
    to function, which takes four times as long.

    Args:
        state: changed in place; it has room for what is sent.
        work: how tasks work.
        until: seconds since the start.
        arrivals: what is sent before then.
        latencies: by bin, how many messages took so long from sent to handled; added to.

    Returns:
        What was measured, for `minute_of`.
    """
    (sent_at, following, fails, spare, head, tail, receives, lane_group, lane_turn, lane_polls, polling) = state[:11]
    (turn_ends, turn_lane, turn_number, task_state, task_busy, task_due, task_idle_at, task_expires) = state[11:19]
    (event_at, event, ready_key, ready, count, now) = state[19:]
    groups, slots, lanes = len(head), len(task_state), work.lanes
    measures = np.zeros(_MEASURES)

    def pass_time(instant: float) -> None:
        """Add the state since the last event to the minute's sums."""
        seconds = instant - now[0]
        measures[_VISIBLE] += (count[_WAITING] - count[_HELD]) * seconds
        measures[_IN_FLIGHT] += count[_HELD] * seconds
        measures[_RUNNING_TASKS] += count[_TASKS] * seconds
        measures[_BUSY] += count[_BUSY_LANES] * seconds
        busy = count[_BUSY_LANES] - count[_DRAINING_LANES]
        measures[_IDLE] += (count[_TASKS] * lanes - busy) * seconds
        now[0] = instant

    def plan_event(seconds: float, what: int) -> None:
        """Plan an event: a group is visible again, a task starts, or a task is killed."""
        _push(event_at, event, count[_EVENTS], now[0] + seconds, what)
        count[_EVENTS] += 1

    def make_ready(group: int) -> None:
        """Add a group to those that may be received from, unless it is empty."""
        if head[group] != _NONE:
            _push(ready_key, ready, count[_READY], sent_at[head[group]], group)
            count[_READY] += 1

    def add_polling_lane(lane: int) -> None:
        """Put a lane behind the other polling lanes."""
        if not lane_polls[lane]:
            place = count[_POLLS_FIRST] + count[_POLLS]
            polling[place if place < len(polling) else place - len(polling)] = lane
            count[_POLLS] += 1
            lane_polls[lane] = 1

    def take_polling_lane() -> int:
        """Take the lane that has polled longest, of a task that still runs; -1 without any."""
        while count[_POLLS] > 0:
            lane = polling[count[_POLLS_FIRST]]
            count[_POLLS_FIRST] = count[_POLLS_FIRST] + 1 if count[_POLLS_FIRST] + 1 < len(polling) else 0
            count[_POLLS] -= 1
            lane_polls[lane] = 0
            if task_state[lane // lanes] == _RUNNING and lane_group[lane] == _NONE:
                return int(lane)
        return _NONE

    def begin_turn(lane: int, group: int) -> None:
        """Let a lane receive a group's first message."""
        receives[group] += 1
        lane_group[lane] = group
        lane_turn[lane] += 1
        task_busy[lane // lanes] += 1
        count[_HELD] += 1
        count[_BUSY_LANES] += 1
        measures[_RECEIVED] += 1
        place = count[_TURN_FIRST] + count[_TURNS]
        place = place if place < len(turn_ends) else place - len(turn_ends)
        turn_ends[place] = now[0] + work.handler_seconds + work.overhead_seconds
        turn_lane[place] = lane
        turn_number[place] = lane_turn[lane]
        count[_TURNS] += 1

    def receive() -> None:
        """Hand messages to lanes while there are both."""
        while count[_READY] > 0:
            lane = take_polling_lane()
            if lane == _NONE:
                break
            group = _pop(ready_key, ready, count[_READY])
            count[_READY] -= 1
            begin_turn(lane, group)

    def remove_first(group: int) -> None:
        """Remove a group's first message."""
        message = head[group]
        head[group] = following[message]
        receives[group] = 0
        spare[count[_SPARE]] = message
        count[_SPARE] += 1
        count[_WAITING] -= 1

    def end_task(task: int) -> None:
        """End a task."""
        if task_state[task] == _RUNNING:
            count[_TASKS] -= 1
        task_state[task] = _OFF

    def stop_if_unprotected(task: int) -> None:
        """Stop an idle task if its protection has ended and a stop is due; if it is still protected, plan the end."""
        if count[_STOPS] == 0 or task_busy[task] > 0 or task_state[task] != _RUNNING:
            return
        left = task_idle_at[task] + work.protected_seconds - now[0]
        if left <= 0:
            count[_STOPS] -= 1
            end_task(task)
        elif not task_expires[task]:
            task_expires[task] = 1
            plan_event(left, groups + 2 * slots + task)

    def free_lane(lane: int) -> None:
        """End a lane's turn; a task without busy lanes may be stopped."""
        task = lane // lanes
        lane_group[lane] = _NONE
        task_busy[task] -= 1
        count[_BUSY_LANES] -= 1
        if task_state[task] == _DRAINING:
            count[_DRAINING_LANES] -= 1
        is_idle = task_busy[task] == 0
        if is_idle and task_state[task] == _DRAINING:
            end_task(task)
        elif task_state[task] == _RUNNING:
            add_polling_lane(lane)
        if is_idle and task_state[task] == _RUNNING:
            task_idle_at[task] = now[0]
            stop_if_unprotected(task)

    def end_message(group: int) -> None:
        """Delete a handled message; one that failed keeps its group until it is visible again."""
        message = head[group]
        kind = fails[message]
        is_forgotten = kind == IS_FORGOTTEN and receives[group] == 1
        is_failing = kind == FAILS_ALWAYS or (kind < IS_FORGOTTEN and kind >= receives[group])
        if kind == FAILS_IN_OUTAGE:
            is_failing = now[0] < work.outage_ends_at
        if is_forgotten:
            plan_event(max(0.0, work.visibility_seconds - work.handler_seconds - work.overhead_seconds), group)
        elif is_failing:
            plan_event(work.retry_seconds, group)
        else:
            latencies[_bin(now[0] - sent_at[message])] += 1
            measures[_DONE] += 1
            remove_first(group)
            count[_HELD] -= 1
            make_ready(group)

    def end_turn() -> None:
        """End the turn that has lasted longest, unless its task was killed."""
        place = count[_TURN_FIRST]
        count[_TURN_FIRST] = place + 1 if place + 1 < len(turn_ends) else 0
        count[_TURNS] -= 1
        lane = turn_lane[place]
        if lane_turn[lane] == turn_number[place] and lane_group[lane] != _NONE:
            end_message(lane_group[lane])
            free_lane(lane)

    def end_visibility_timeout(group: int) -> None:
        """Make a group's first message visible again, or dead-letter it if its receives are used up."""
        count[_HELD] -= 1
        if 0 < work.max_receive_count <= receives[group]:
            measures[_DEAD] += 1
            remove_first(group)
        make_ready(group)

    def kill_task(task: int) -> None:
        """End a task whose stop timeout is over; its messages stay hidden until their visibility timeout ends."""
        if task_state[task] != _DRAINING or task_due[task] != now[0]:
            return
        for lane in range(task * lanes, (task + 1) * lanes):
            if lane_group[lane] != _NONE:
                plan_event(work.visibility_seconds, lane_group[lane])
                lane_turn[lane] += 1
                lane_group[lane] = _NONE
                task_busy[task] -= 1
                count[_BUSY_LANES] -= 1
                count[_DRAINING_LANES] -= 1
                measures[_KILLED] += 1
        end_task(task)

    def start_task(task: int) -> None:
        """Let a task's lanes poll, unless it was stopped before it started."""
        if task_state[task] == _STARTING and task_due[task] == now[0]:
            task_state[task] = _RUNNING
            task_idle_at[task] = -np.inf
            count[_TASKS] += 1
            for lane in range(task * lanes, (task + 1) * lanes):
                add_polling_lane(lane)

    def run_next_event() -> None:
        """Take the next event from the heap and carry it out."""
        what = _pop(event_at, event, count[_EVENTS])
        count[_EVENTS] -= 1
        if what < groups:
            end_visibility_timeout(what)
        elif what < groups + slots:
            start_task(what - groups)
        elif what < groups + 2 * slots:
            kill_task(what - groups - slots)
        else:
            task_expires[what - groups - 2 * slots] = 0
            stop_if_unprotected(what - groups - 2 * slots)

    def send(group: int, failing: int) -> None:
        """Add a message to the end of a group; `failing` is its value of `fails`."""
        count[_SPARE] -= 1
        message = spare[count[_SPARE]]
        sent_at[message] = now[0]
        following[message] = _NONE
        fails[message] = failing
        count[_WAITING] += 1
        measures[_SENT] += 1
        if head[group] == _NONE:
            head[group] = message
            make_ready(group)
        else:
            following[tail[group]] = message
        tail[group] = message

    idx = 0
    while True:
        event_next = event_at[0] if count[_EVENTS] > 0 else np.inf
        turn_next = turn_ends[count[_TURN_FIRST]] if count[_TURNS] > 0 else np.inf
        sent_next = arrivals.sent_at[idx] if idx < len(arrivals.sent_at) else np.inf
        instant = min(event_next, turn_next, sent_next)
        if instant >= until:
            break
        pass_time(instant)
        if instant == sent_next:
            send(arrivals.group[idx], arrivals.fails[idx])
            idx += 1
        elif instant == turn_next:
            end_turn()
        else:
            run_next_event()
        receive()
    pass_time(until)
    return measures


@njit(cache=True, error_model="numpy")
def _push_event(state: QueueState, seconds: float, what: int) -> None:
    _push(state.event_at, state.event, state.counts[_EVENTS], state.now[0] + seconds, what)
    state.counts[_EVENTS] += 1


@njit(cache=True, error_model="numpy")
def scale(state: QueueState, work: Work, wanted: int) -> None:
    """Start or stop tasks, so that `wanted` tasks run or start.

    A protected service stops tasks whose lanes are all idle, and further ones as soon as theirs are.
    """
    present = 0
    for task in range(len(state.task_state)):
        if state.task_state[task] in (_RUNNING, _STARTING):
            present += 1
    _start_tasks(state, work, wanted - present)
    state.counts[_STOPS] = _stop_tasks(state, work, present - wanted)


@njit(cache=True, error_model="numpy")
def _start_tasks(state: QueueState, work: Work, count: int) -> None:
    for task in range(len(state.task_state)):
        if count <= 0:
            return
        if state.task_state[task] == _OFF:
            state.task_state[task] = _STARTING
            state.task_due[task] = state.now[0] + work.start_seconds
            _push_event(state, work.start_seconds, len(state.head) + task)
            count -= 1


@njit(cache=True, error_model="numpy")
def _stop_tasks(state: QueueState, work: Work, count: int) -> int:
    """Stop up to `count` tasks; return how many of them are still protected.

    A task that is idle but still protected is stopped when its protection ends, if it is idle then.
    """
    slots = len(state.task_state)
    for task in range(slots - 1, -1, -1):
        if count <= 0:
            return 0
        if state.task_state[task] == _STARTING:
            state.task_state[task] = _OFF
            count -= 1
        elif state.task_state[task] == _RUNNING and _is_protected(state, work, task):
            left = state.task_idle_at[task] + work.protected_seconds - state.now[0]
            if state.task_busy[task] == 0 and not state.task_expires[task]:
                state.task_expires[task] = 1
                _push_event(state, left, len(state.head) + 2 * slots + task)
        elif state.task_state[task] == _RUNNING:
            state.counts[_TASKS] -= 1
            state.task_state[task] = _OFF
            count -= 1
            if state.task_busy[task] > 0:
                state.task_state[task] = _DRAINING
                state.counts[_DRAINING_LANES] += state.task_busy[task]
                state.task_due[task] = state.now[0] + work.stop_timeout_seconds
                _push_event(state, work.stop_timeout_seconds, len(state.head) + slots + task)
    return max(0, count)


@njit(cache=True, error_model="numpy")
def _is_protected(state: QueueState, work: Work, task: int) -> bool:
    idle_seconds = state.now[0] - state.task_idle_at[task]
    return bool(work.is_protected and (state.task_busy[task] > 0 or idle_seconds < work.protected_seconds))


def oldest_seconds(state: QueueState) -> float:
    """Return how long the oldest message has been in the queue; 0 if the queue is empty."""
    oldest = state.sent_at[state.head[state.head != _NONE]].min(initial=state.now[0])
    return float(state.now[0] - oldest)


def waiting_count(state: QueueState) -> int:
    """Return how many messages are in the queue, messages in flight included."""
    return int(state.counts[_WAITING])


@njit(cache=True, error_model="numpy")
def count_left(state: QueueState, latencies: Integers) -> int:
    """Count every remaining message with the time it has waited as its latency; return how many remain."""
    left = 0
    for group in range(len(state.head)):
        message = state.head[group]
        while message != _NONE:
            latencies[_bin(state.now[0] - state.sent_at[message])] += 1
            left += 1
            message = state.following[message]
    return left


class Minute(NamedTuple):
    """Measures of a minute; counts are of the minute, the rest averages over it."""

    visible: float
    in_flight: float
    running: float
    busy_lanes: float
    empty_receives: float
    received: float
    sent: float
    done: float
    dead: float
    killed: float


def minute_of(measures: Floats, *, seconds: float = 60) -> Minute:
    """Return the measurements of `advance` over `seconds`, as averages and counts."""
    per = np.ones(_MEASURES)
    per[:_IDLE], per[_IDLE] = seconds, LONG_POLL_SECONDS
    return Minute(*(measures / per))


def quantile(latencies: Integers, share: float) -> float | None:
    """Return the latency in seconds that this share does not exceed, within 1.5 %; None without messages."""
    total = int(latencies.sum())
    if total == 0:
        return None
    bin_ = int(np.searchsorted(np.cumsum(latencies), share * total))
    return float(_BIN_FIRST_SECONDS * _BIN_RATIO**bin_)
