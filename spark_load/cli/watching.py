"""The progress of a run, always on standard error.

It shows the tasks' own reports. They do not count for the verdict, which comes from the journals.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sluice.clock import Clock, SystemClock
from sluice.pages import units
from spark_load.profiles.profile import Profile
from spark_load.runtime.coordinator import TaskProgress

_QUIET_LINE_SECONDS = 10  # between two lines without a terminal
_RATE_SECONDS = 10  # over which a rate is measured
_EVERYBODY = "published"
# The counters of suspicious observations in a task's report, and the words for them.
_ODD_OF_PUBLISHERS = {"throttled": "throttled", "failed": "failed", "abandoned": "given up"}
_ODD_OF_CONSUMERS = {"again": "again", "strangers": "of strangers", "fallen_back": "behind a later one"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRow:
    """Progress of one queue, or of all publishers; None means unknown.

    Args:
        name: name of the queue, as short as possible.
        sent: acknowledged publishes to it.
        done: messages consumed; for publishers, published.
        expected: about how many there will be.
        waiting: about how many are in the queue.
        per_second: the latest rate.
        left_seconds: until all are done, at that rate; None also if the rate is zero.
        seen: suspicious observations so far, in words.
    """

    name: str
    sent: int | None
    done: int | None = None
    expected: int
    waiting: int | None = None
    per_second: float | None = None
    left_seconds: float | None = None
    seen: str


class ProgressTable:
    """Turns the tasks' reports into a row for all publishers and one for each queue, with the latest rates.

    How many messages are expected is computed from the profile once, because the reports count only what is done.
    """

    def __init__(self, load: Profile, queues: Sequence[str], clock: Clock) -> None:
        self._queues, self._clock = units.short_names(list(queues)), clock
        self._is_topic, self._has_progress = load.has_topic, load.consumer == "raw"
        # Late duplicates come after the deduplication window, so they arrive, too. Each group ends with an end marker,
        # which is one more message. Duplicates inside the window are published and never arrive.
        arriving = load.message_count * (1 + load.late_duplicate_share) + load.group_count
        self._published = round(arriving + load.message_count * load.duplicate_share)
        # A topic copies every message to every queue. Without a topic each group is sent to one of the queues.
        self._arriving = round(arriving if self._is_topic else arriving / max(1, len(queues)))
        self._arriving_share = arriving / self._published
        self._past: deque[tuple[float, dict[str, int]]] = deque()

    def rows(self, progress: Sequence[TaskProgress]) -> list[ProgressRow]:
        """Return a row for all publishers, and one for each queue."""
        publishers = [task for task in progress if task.queue is None]
        consumers = {queue: [task for task in progress if task.queue == queue] for queue in self._queues}
        published = sum(task.done for task in publishers)
        done = {queue: sum(task.done for task in tasks) for queue, tasks in consumers.items()}
        rates = self._rates({_EVERYBODY: published} | done)
        all_publishers = ProgressRow(
            name=_EVERYBODY,
            sent=published,
            done=published,
            expected=self._published,
            per_second=rates[_EVERYBODY],
            left_seconds=_seconds_left(self._published - published, rates[_EVERYBODY]),
            seen=_counts_text(publishers, _ODD_OF_PUBLISHERS),
        )
        sent = round(published * self._arriving_share) if self._is_topic else None
        if not self._has_progress:
            seen = "workers do not say how far they are"
            rows = [
                ProgressRow(name=name, sent=sent, expected=self._arriving, seen=seen) for name in self._queues.values()
            ]
        else:
            rows = [
                ProgressRow(
                    name=name,
                    sent=sent,
                    done=done[queue],
                    expected=self._arriving,
                    waiting=None if sent is None else max(0, sent - done[queue]),
                    per_second=rates[queue],
                    left_seconds=_seconds_left(self._arriving - done[queue], rates[queue]),
                    seen=_counts_text(consumers[queue], _ODD_OF_CONSUMERS),
                )
                for queue, name in self._queues.items()
            ]
        return [all_publishers, *rows]

    def _rates(self, done: dict[str, int]) -> dict[str, float]:
        """Return each name's rate since about ten seconds ago, from the counts `done` by name."""
        now = self._clock.monotonic()
        self._past.append((now, done))
        while len(self._past) > 2 and now - self._past[1][0] >= _RATE_SECONDS:
            self._past.popleft()
        earlier_at, earlier = self._past[0]
        if now <= earlier_at:
            return dict.fromkeys(done, 0.0)
        return {name: max(0, count - earlier.get(name, 0)) / (now - earlier_at) for name, count in done.items()}


def _seconds_left(count: int, per_second: float) -> float | None:
    if count <= 0:
        return 0.0
    return count / per_second if per_second else None


def _counts_text(tasks: Sequence[TaskProgress], names: Mapping[str, str]) -> str:
    """Return the sum of each counter that is not zero, in words."""
    counts = {name: sum(getattr(task, field) for task in tasks) for field, name in names.items()}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def line(phase: str, rows: Sequence[ProgressRow]) -> str:
    """Return the progress of a run in one line, for logs."""
    return "; ".join([phase, *(_short(row) for row in rows)])


def _short(row: ProgressRow) -> str:
    """Return a row as text."""
    waiting = "" if row.waiting is None else f", {row.waiting:,} waiting"
    left = "" if not row.left_seconds else f", {units.seconds(round(row.left_seconds))} left"
    seen = f", seen so far: {row.seen}" if row.seen else ""
    return (
        f"{row.name} {_count(row.done)} of about {row.expected:,} at {units.rate(row.per_second)}{waiting}{left}{seen}"
    )


def table(phase: str, rows: Sequence[ProgressRow]) -> Table:
    """Return the progress of a run as a table, for terminals."""
    shown = Table(title=phase, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for name in ("", "sent", "done", "of about", "waiting", "rate", "left"):
        shown.add_column(name, justify="left" if not name else "right", no_wrap=True)
    shown.add_column("seen so far, no verdict")
    for row in rows:
        shown.add_row(
            Text(row.name),
            _count(row.sent),
            _count(row.done),
            _count(row.expected),
            _count(row.waiting),
            units.rate(row.per_second),
            units.NONE if row.left_seconds is None else units.seconds(round(row.left_seconds)),
            Text(row.seen, style="yellow"),
        )
    return shown


def _count(value: int | None) -> str:
    return units.NONE if value is None else f"{value:,}"


class Watcher:
    """Shows on standard error how far a run is: a table that stays in its place on a terminal, else some lines."""

    def __init__(
        self, load: Profile, queues: Sequence[str], clock: Clock | None = None, console: Console | None = None
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._console = Console(stderr=True) if console is None else console
        self._progress_table = ProgressTable(load, queues, self._clock)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._phase = ""
        self._printed_at = float("-inf")

    def __enter__(self) -> "Watcher":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, phase: str, progress: list[TaskProgress]) -> None:
        """Show the phase and how far the tasks are."""
        rows = self._progress_table.rows(progress) if progress else []
        if self._console.is_terminal:
            self._live.update(table(phase, rows), refresh=True)
        elif phase != self._phase or self._clock.monotonic() - self._printed_at >= _QUIET_LINE_SECONDS:
            self._printed_at = self._clock.monotonic()
            self._console.print(line(phase, rows), soft_wrap=True, markup=False, highlight=False)
        self._phase = phase
