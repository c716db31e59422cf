"""A queue and its tasks in SimPy, for small cases: the reference for `sluice.rehearse.model.queue_simulation`.

It uses objects and lists, no arrays: messages, groups with their messages in order, tasks with their lanes.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import simpy

from sluice.rehearse.model.queue_simulation import Work

ALWAYS, IN_OUTAGE, FORGOTTEN = 255, 254, 253
_SENT, _ENDED, _VISIBLE = 1, 2, 3


@dataclass(slots=True)
class SimpyMessage:
    """A message and how often it was received."""

    sent_at: float
    number: int
    fails: int
    receives: int = 0


@dataclass(slots=True)
class Task:
    """A task: `off`, `starting`, `running` or `draining`; and the group each of its lanes works on."""

    number: int
    state: str = "off"
    life: int = 0
    idle_at: float = -math.inf
    work: dict[int, int] = field(default_factory=dict)


class QueueInSimpy:
    """A queue and its tasks.

    Args:
        work: how tasks work.
        groups: message groups.
        slots: the most tasks there are at a time.
    """

    def __init__(self, work: Work, *, groups: int, slots: int) -> None:
        self.environment = simpy.Environment()
        self.latencies: list[float] = []
        self.handled: list[tuple[int, int]] = []
        self.dead, self.killed, self.received, self.sent = 0, 0, 0, 0
        self.seconds = {"visible": 0.0, "in_flight": 0.0, "running": 0.0, "busy": 0.0, "idle": 0.0}
        self._work = work
        self._groups: list[deque[SimpyMessage]] = [deque() for _ in range(groups)]
        self._away: set[int] = set()
        self._tasks = [Task(number) for number in range(slots)]
        self._polls: list[tuple[int, int]] = []
        self._stops = 0
        self._since = 0.0

    def send(self, sent_at: float, group: int, fails: int) -> None:
        """Plan a message."""
        self._later(sent_at - self.environment.now, _SENT, partial(self._arrive, group, fails))

    def run(self, until: float) -> None:
        """Let time pass."""
        self.environment.run(until)
        self._count()

    def scale(self, wanted: int) -> None:
        """Start tasks from the first slot on, and stop tasks from the last.

        A protected task stops only while it is idle.
        """
        present = [task for task in self._tasks if task.state in {"running", "starting"}]
        for task in [task for task in self._tasks if task.state == "off"][: max(0, wanted - len(present))]:
            task.state, task.life = "starting", task.life + 1
            self._later(
                self._work.start_seconds,
                self._order(task, 0),
                partial(self._start, task, task.life),
            )
        self._stops = max(0, len(present) - wanted)
        for task in reversed(present):
            outlasts = task.idle_at + self._work.protected_seconds - self.environment.now
            is_held = self._work.is_protected and (task.work or outlasts > 0)
            if self._stops and (task.state == "starting" or not is_held):
                self._stop(task)
                self._stops -= 1
            elif self._stops and not task.work:
                self._later(outlasts, self._order(task, 2), partial(self._unprotect, task, task.idle_at))

    def messages_left(self) -> list[float]:
        """Return how long each message that is left has waited."""
        return [self.environment.now - message.sent_at for group in self._groups for message in group]

    def oldest_seconds(self) -> float:
        """Return the age of the oldest message."""
        return max(self.messages_left(), default=0.0)

    def _order(self, task: Task, offset: int) -> int:
        return _VISIBLE + len(self._groups) + offset * len(self._tasks) + task.number

    def _later(self, seconds: float, order: int, action: Callable[[], None]) -> None:
        """Plan an action; of actions planned for one time, the one with the lowest order happens first."""
        event = simpy.Event(self.environment)
        event._ok, event._value = True, None  # as a Timeout does, which takes no order
        event.callbacks = [lambda _: self._happen(action)]
        self.environment.schedule(event, priority=order, delay=seconds)  # type: ignore[arg-type]

    def _happen(self, action: Callable[[], None]) -> None:
        self._count()
        action()
        self._hand_out()

    def _count(self) -> None:
        """Add the state since the last call to the sums."""
        seconds, self._since = self.environment.now - self._since, self.environment.now
        running = [task for task in self._tasks if task.state == "running"]
        self.seconds["visible"] += seconds * (sum(map(len, self._groups)) - len(self._away))
        self.seconds["in_flight"] += seconds * len(self._away)
        self.seconds["running"] += seconds * len(running)
        self.seconds["busy"] += seconds * sum(len(task.work) for task in self._tasks)
        self.seconds["idle"] += seconds * sum(self._work.lanes - len(task.work) for task in running)

    def _arrive(self, group: int, fails: int) -> None:
        self._groups[group].append(SimpyMessage(self.environment.now, self.sent, fails))
        self.sent += 1

    def _hand_out(self) -> None:
        """Give the oldest available first message of a group to the lane that has polled longest, repeatedly."""
        while True:
            free = [
                (queue[0].sent_at, group)
                for group, queue in enumerate(self._groups)
                if queue and group not in self._away
            ]
            if not free:
                return
            lane = self._next_lane()
            if lane is None:
                return
            self._receive(min(free)[1], *lane)

    def _next_lane(self) -> tuple[Task, int] | None:
        """Return the first polling lane; lanes of tasks that do not run are dropped."""
        while self._polls:
            number, lane = self._polls.pop(0)
            if self._tasks[number].state == "running":
                return self._tasks[number], lane
        return None

    def _receive(self, group: int, task: Task, lane: int) -> None:
        message = self._groups[group][0]
        message.receives += 1
        self.received += 1
        self._away.add(group)
        task.work[lane] = group
        turn = (message, message.receives)
        self._later(
            self._work.handler_seconds + self._work.overhead_seconds,
            _ENDED,
            partial(self._end, group, task, lane, turn),
        )

    def _end(self, group: int, task: Task, lane: int, turn: tuple[SimpyMessage, int]) -> None:
        message, receives = turn
        if not self._groups[group] or self._groups[group][0] is not message or message.receives != receives:
            return
        if task.work.get(lane) != group:
            return
        del task.work[lane]
        is_out = message.fails == IN_OUTAGE and self.environment.now < self._work.outage_ends_at
        if message.fails == FORGOTTEN and receives == 1:
            left = self._work.visibility_seconds - self._work.handler_seconds - self._work.overhead_seconds
            self._later(max(0, left), _VISIBLE + group, partial(self._show, group))
        elif is_out or message.fails == ALWAYS or FORGOTTEN > message.fails >= receives:
            self._later(self._work.retry_seconds, _VISIBLE + group, partial(self._show, group))
        else:
            self._groups[group].popleft()
            self._away.discard(group)
            self.latencies.append(self.environment.now - message.sent_at)
            self.handled.append((group, message.number))
        if not task.work and task.state == "draining":
            task.state = "off"
        if task.state != "running":
            return
        self._poll(task, lane)
        if not task.work:
            task.idle_at = self.environment.now
            if self._work.protected_seconds:
                order = self._order(task, 2)
                self._later(self._work.protected_seconds, order, partial(self._unprotect, task, task.idle_at))
            else:
                self._unprotect(task, task.idle_at)

    def _unprotect(self, task: Task, idle_at: float) -> None:
        """Stop a task that is to stop and has been idle since then."""
        if self._stops and task.state == "running" and not task.work and task.idle_at == idle_at:
            self._stops -= 1
            task.state = "off"

    def _show(self, group: int) -> None:
        self._away.discard(group)
        if 0 < self._work.max_receive_count <= self._groups[group][0].receives:
            self._groups[group].popleft()
            self.dead += 1

    def _start(self, task: Task, life: int) -> None:
        if task.state == "starting" and task.life == life:
            task.state, task.idle_at = "running", -math.inf
            for lane in range(self._work.lanes):
                self._poll(task, lane)

    def _poll(self, task: Task, lane: int) -> None:
        if (task.number, lane) not in self._polls:
            self._polls.append((task.number, lane))

    def _stop(self, task: Task) -> None:
        if task.state == "running" and task.work:
            task.state = "draining"
            self._later(self._work.stop_timeout_seconds, self._order(task, 1), partial(self._kill, task, task.life))
        else:
            task.state = "off"

    def _kill(self, task: Task, life: int) -> None:
        if task.state == "draining" and task.life == life:
            task.state = "off"
            for group in task.work.values():
                self.killed += 1
                self._later(self._work.visibility_seconds, _VISIBLE + group, partial(self._show, group))
            task.work.clear()
