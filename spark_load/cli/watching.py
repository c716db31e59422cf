"""How far a run is, for whoever waits for it: always on standard error."""

import click
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from sluice.clock import Clock, SystemClock
from spark_load import profile
from spark_load.coordination import Progress

_QUIET_LINE_SECONDS = 10


class Watcher:
    """Shows how far the run is: bars on a terminal, a line now and then elsewhere. Always on standard error."""

    def __init__(self, load: profile.Profile, queue_count: int, clock: Clock | None = None) -> None:
        self._expected = {
            "published": round(load.message_count * (1 + load.duplicate_share)) + load.group_count,
            "consumed": (load.message_count + load.group_count) * queue_count,
        }
        self._clock = SystemClock() if clock is None else clock
        self._console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description:12}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._phase = ""
        self._said_at = float("-inf")

    def __enter__(self) -> "Watcher":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, phase: str, everyone: list[Progress]) -> None:
        """Show the phase and how far the tasks are."""
        done = {
            "published": sum(one.done for one in everyone if one.role == "publish"),
            "consumed": sum(one.done for one in everyone if one.role == "consume"),
        }
        if self._console.is_terminal:
            self._draw(phase, everyone, done)
        elif phase != self._phase or self._clock.monotonic() - self._said_at >= _QUIET_LINE_SECONDS:
            self._said_at = self._clock.monotonic()
            counts = ", ".join(f"{name} {count:,} of about {self._expected[name]:,}" for name, count in done.items())
            click.echo(f"{phase}{': ' + counts if everyone else ''}", err=True)
        self._phase = phase

    def _draw(self, phase: str, everyone: list[Progress], done: dict[str, int]) -> None:
        if phase != self._phase:
            self._console.print(phase)
        for name, count in done.items() if everyone else ():
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=self._expected[name])
            self._bars.update(self._tasks[name], completed=min(count, self._expected[name]))
