"""The tasks of a service as ECS keeps them: as many as desired, a protected one never stopped, SIGTERM before SIGKILL.

AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection.html (scaling in waits for
protected tasks), https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_StopTask.html (SIGTERM, and SIGKILL when
the stop timeout is over) (read 2026-11-23).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sluice.clock import Clock
from spark_load.consume.scaling.ecs_agent import EcsAgent


class TaskProcess(Protocol):
    """The process of a task."""

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""

    def terminate(self) -> object:
        """Send SIGTERM."""

    def kill(self) -> object:
        """Send SIGKILL."""

    def is_polling(self) -> bool:
        """Return whether the task has begun to receive."""


@dataclass(slots=True, kw_only=True)
class PooledTask:
    """One task; instants are microseconds UTC, None for what has not happened.

    Args:
        name: unique in the run.
        started_us: when it was started.
        polls_us: when it began to receive.
        stopped_us: when it got SIGTERM.
        was_protected: whether it was protected at that moment.
        killed_us: when it got SIGKILL.
        ended_us: when its process had ended.
    """

    name: str
    process: TaskProcess
    started_us: int
    polls_us: int | None = None
    stopped_us: int | None = None
    was_protected: bool = False
    killed_us: int | None = None
    ended_us: int | None = None


class TaskPool:
    """The tasks of one service. One thread uses it.

    Args:
        name: of the service's consumer; tasks are called after it.
        start: starts a task of that name.
        agent: what knows which tasks are protected.
        stop_timeout_seconds: from SIGTERM to SIGKILL, real seconds.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[str], TaskProcess],
        *,
        agent: EcsAgent,
        stop_timeout_seconds: float,
        clock: Clock,
    ) -> None:
        self._name, self._start, self._agent, self._clock = name, start, agent, clock
        self._stop_timeout_us = round(stop_timeout_seconds * 1_000_000)
        self.tasks: list[PooledTask] = []
        self.desired = 0

    def scale(self, desired: int) -> None:
        """Set the desired number of tasks: missing ones are started, and superfluous ones are stopped, now or later."""
        self.desired = desired
        self.tend()

    def tend(self) -> None:
        """Note which tasks receive or have ended, kill those that do not stop, and start and stop tasks as desired.

        Called several times a second.
        """
        now_us = self._clock.now_us()
        for task in self.alive:
            if task.process.poll() is not None:
                task.ended_us = now_us
            elif task.polls_us is None and task.process.is_polling():
                task.polls_us = now_us
        for task in self.alive:
            is_overdue = task.stopped_us is not None and now_us - task.stopped_us >= self._stop_timeout_us
            if is_overdue and task.killed_us is None:
                task.killed_us = now_us
                task.process.kill()
        tasks = self._tasks_to_keep
        for _ in range(self.desired - len(tasks)):
            self._begin()
        unprotected = [task for task in reversed(tasks) if not self._agent.is_protected(task.name)]
        for task in unprotected[: max(0, len(tasks) - self.desired)]:
            self._stop(task)

    def _begin(self) -> None:
        name = f"{self._name}-{len(self.tasks)}"
        started_us = self._clock.now_us()
        self.tasks.append(PooledTask(name=name, process=self._start(name), started_us=started_us))

    def _stop(self, task: PooledTask) -> None:
        task.stopped_us, task.was_protected = self._clock.now_us(), self._agent.is_protected(task.name)
        task.process.terminate()

    def is_protected(self, name: str) -> bool:
        """Return whether a task is protected from scale-in."""
        return self._agent.is_protected(name)

    @property
    def alive(self) -> list[PooledTask]:
        """Return the tasks with a running process, oldest first."""
        return [task for task in self.tasks if task.ended_us is None]

    @property
    def _tasks_to_keep(self) -> list[PooledTask]:
        """Return the running tasks that were not told to stop."""
        return [task for task in self.alive if task.stopped_us is None]

    @property
    def running_count(self) -> int:
        """Return how many tasks receive."""
        return len([task for task in self._tasks_to_keep if task.polls_us is not None])

    @property
    def is_settled(self) -> bool:
        """Return whether exactly the desired number of tasks runs."""
        return len(self.alive) == self.desired == self.running_count

    @property
    def tasks_ended_by_themselves(self) -> list[PooledTask]:
        """Return the tasks that ended without being stopped."""
        return [task for task in self.tasks if task.ended_us is not None and task.stopped_us is None]
