"""How far a run is, for whoever waits for it: always on standard error.

What it shows is what the tasks say of themselves. It counts for nothing: the verdict comes from their journals.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sluice.clock import Clock, SystemClock
from spark_load.profiles.profile import Profile
from spark_load.report import units
from spark_load.runtime.coordinator import Progress

_QUIET_LINE_SECONDS = 10
_RATE_SECONDS = 10
_EVERYBODY = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How far one queue is, or all publishers are.

    Args:
        name: of the queue, as short as it can be.
        sent: publishes acknowledged that go there; None where nobody knows.
        done: messages consumed; or published. None where nobody says.
        expected: about how many that will be.
        waiting: about how many are in the queue; None where nobody knows.
        per_second: lately; None where nobody says.
        left_seconds: until all are, at that rate; None when nothing moves, or nobody says.
        seen: what looks odd so far, in words.
    """

    name: str
    sent: int | None
    done: int | None
    expected: int
    waiting: int | None
    per_second: float | None
    left_seconds: float | None
    seen: str


class ProgressTable:
    """Turns what the tasks say into rows. It remembers the last seconds, for the rates.

    Args:
        load: the profile.
        queues: names, in the order of the rows.
        clock: whose time the rates are by.
    """

    def __init__(self, load: Profile, queues: Sequence[str], clock: Clock) -> None:
        self._queues, self._clock = units.short_names(list(queues)), clock
        self._is_topic, self._has_progress = load.destination == "topic", load.consumer == "raw"
        arriving = load.message_count * (1 + load.late_duplicate_share) + load.group_count
        self._published = round(arriving + load.message_count * load.duplicate_share)
        self._arriving = round(arriving if self._is_topic else arriving / max(1, len(queues)))
        self._arriving_share = arriving / self._published
        self._past: deque[tuple[float, dict[str, int]]] = deque()

    def rows(self, progress: Sequence[Progress]) -> list[Row]:
        """Return a row for all publishers, and one for each queue."""
        publishers = [task for task in progress if task.queue is None]
        consumers = {queue: [task for task in progress if task.queue == queue] for queue in self._queues}
        done = {_EVERYBODY: sum(task.done for task in publishers)}
        done |= {queue: sum(task.done for task in of) for queue, of in consumers.items()}
        rates = self._rates(done)
        arrived = round(done[_EVERYBODY] * self._arriving_share)
        first = Row(
            name=_EVERYBODY,
            sent=done[_EVERYBODY],
            done=done[_EVERYBODY],
            expected=self._published,
            waiting=None,
            per_second=rates[_EVERYBODY],
            left_seconds=_left(self._published - done[_EVERYBODY], rates[_EVERYBODY]),
            seen=_seen_publishing(publishers),
        )
        sent = arrived if self._is_topic else None
        if not self._has_progress:
            return [first, *(self._untold(short, sent) for short in self._queues.values())]
        return [
            first,
            *(
                Row(
                    name=short,
                    sent=sent,
                    done=done[queue],
                    expected=self._arriving,
                    waiting=None if sent is None else max(0, sent - done[queue]),
                    per_second=rates[queue],
                    left_seconds=_left(self._arriving - done[queue], rates[queue]),
                    seen=_seen_consuming(consumers[queue]),
                )
                for queue, short in self._queues.items()
            ),
        ]

    def _untold(self, name: str, sent: int | None) -> Row:
        """Return the row of a queue whose consumers keep their own record, and do not say how far they are."""
        return Row(
            name=name,
            sent=sent,
            done=None,
            expected=self._arriving,
            waiting=None,
            per_second=None,
            left_seconds=None,
            seen="workers do not say how far they are",
        )

    def _rates(self, done: dict[str, int]) -> dict[str, float]:
        now = self._clock.monotonic()
        self._past.append((now, done))
        while len(self._past) > 2 and now - self._past[1][0] >= _RATE_SECONDS:
            self._past.popleft()
        since, before = self._past[0]
        if now <= since:
            return dict.fromkeys(done, 0.0)
        return {name: max(0, count - before.get(name, 0)) / (now - since) for name, count in done.items()}


def _left(count: int, per_second: float) -> float | None:
    if count <= 0:
        return 0.0
    return count / per_second if per_second else None


def _seen_publishing(of: Sequence[Progress]) -> str:
    return _progress_line(
        throttled=sum(task.throttled for task in of),
        failed=sum(task.failed for task in of),
        **{"given up": sum(task.abandoned for task in of)},
    )


def _seen_consuming(of: Sequence[Progress]) -> str:
    return _progress_line(
        **{
            "again": sum(task.again for task in of),
            "of strangers": sum(task.strangers for task in of),
            "behind a later one": sum(task.fallen_back for task in of),
        }
    )


def _progress_line(**counts: int) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def line(phase: str, rows: Sequence[Row]) -> str:
    """Return where a run stands in one line, for logs."""
    return "; ".join([phase, *(_short(row) for row in rows)])


def _short(row: Row) -> str:
    waiting = "" if row.waiting is None else f", {row.waiting:,} waiting"
    left = "" if not row.left_seconds else f", {units.seconds(round(row.left_seconds))} left"
    seen = f", seen so far: {row.seen}" if row.seen else ""
    return (
        f"{row.name} {_count(row.done)} of about {row.expected:,} at {units.rate(row.per_second)}{waiting}{left}{seen}"
    )


def table(phase: str, rows: Sequence[Row]) -> Table:
    """Return where a run stands as a table, for terminals."""
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
    """Shows how far a run is: a table that stays in its place on a terminal, elsewhere a line now and then.

    Args:
        load: the profile.
        queues: their names.
        clock: by which a line is due.
        console: where to; standard error when None.
    """

    def __init__(
        self, load: Profile, queues: Sequence[str], clock: Clock | None = None, console: Console | None = None
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._console = Console(stderr=True) if console is None else console
        self._gauge = ProgressTable(load, queues, self._clock)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._phase = ""
        self._printed_at = float("-inf")

    def __enter__(self) -> "Watcher":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, phase: str, progress: list[Progress]) -> None:
        """Show the phase and how far the tasks are."""
        rows = self._gauge.rows(progress) if progress else []
        if self._console.is_terminal:
            self._live.update(table(phase, rows), refresh=True)
        elif phase != self._phase or self._clock.monotonic() - self._printed_at >= _QUIET_LINE_SECONDS:
            self._printed_at = self._clock.monotonic()
            self._console.print(line(phase, rows), soft_wrap=True, markup=False, highlight=False)
        self._phase = phase
