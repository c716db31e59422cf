"""A rehearsal on the terminal and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sluice.cost.prices import PRICE_DATE, PRICE_REGION, usd
from sluice.pages.units import plural
from sluice.rehearse.advice import Advice
from sluice.rehearse.experiment import Mistake
from sluice.rehearse.model.control_loop import USUAL, VARIANTS
from sluice.rehearse.model.policies import ScaledService
from sluice.rehearse.reasons import reason
from sluice.rehearse.rehearsal import DEPLOYED, JUDGED_SHARE, ProgressWatcher, Rehearsal, RehearsalRow
from sluice.terminal import output
from sluice.terminal.printable import printable

NAMES = ("traffic", "scaled by")
COLUMNS = (
    *NAMES, "a second", "tasks", "task-hours", "dollars a month", "p50", "p95", "p99", "oldest", "first task", "turns",
    "cut short", "dead", "left",
)  # fmt: skip
"""Columns of the table: the simulation and its results; the verdict follows."""
_FEW_COLUMNS = (*NAMES, "p95", "dollars a month")
_WIDE_CHARACTERS = 200
"""In a narrower terminal the table has only `_FEW_COLUMNS`."""
_MONTH_HOURS = 730
READING = (
    f"latency is from sent to handled, judged by its {JUDGED_SHARE:.0%}",
    f"dollars are list prices of Fargate, and of Lambda, in {PRICE_REGION}, {PRICE_DATE}, for {_MONTH_HOURS} hours of"
    " such traffic; of a function tasks are invocations, which are paid for while they work",
)
NOT_SIMULATED = (
    "the search among the first 120,000 messages only",
    "throttled calls",
    "handlers of different length",
    "scaling from the tasks that run where fewer run than are wanted",
    "that a worker is unprotected for a minute in each half hour of work",
    "nothing here was compared with AWS",
)


@contextmanager
def progress() -> Iterator[ProgressWatcher]:
    """Show the progress of the simulation on a terminal; elsewhere show nothing."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1)
        yield lambda label, share: bar.update(task, description=printable(label), completed=share)


def dollars_of(row: RehearsalRow) -> float | None:
    """Return the price of a row's task-hours, or invocations, by list prices; None if the size is unknown."""
    if row.service.mapping is None:
        return dollars(row.service, row.paid_hours)
    if row.service.memory_mib is None:
        return None
    second = row.service.memory_mib / 1_024 * usd(f"Lambda duration{' on ARM' if row.service.is_on_arm else ''}")
    invocations = sum(value or 0.0 for value in row.result.series["received"])
    return row.paid_hours * 3_600 * second + invocations * usd("Lambda request")


def dollars(service: ScaledService, task_hours: float) -> float | None:
    """Return the price of a service's task-hours on Fargate, by list prices; None if a size is unknown."""
    if service.cpu_units is None or service.memory_mib is None:
        return None
    hourly = service.cpu_units / 1_024 * usd("Fargate CPU") + service.memory_mib / 1_024 * usd("Fargate memory")
    return task_hours * hourly


def seconds(value: float | None) -> str:
    """Return seconds as text: seconds up to an hour, then hours."""
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.2g} s"
    return f"{value:,.0f} s" if value < 3_600 else f"{value / 3_600:,.1f} h"


def judgement(row: RehearsalRow) -> str:
    """Return the judgement of a row's latency: `kept`, `missed`, `not drained` or `not judged`.

    A service that leaves messages in the queue is never `kept`, whether it is judged or not.
    """
    if row.is_missed:
        return "missed"
    if row.result.left:
        return "not drained"
    return "kept" if row.scenario.is_judged else "not judged"


def verdict_of(row: RehearsalRow) -> str:
    """Return the judgement of a row, with the declared latency."""
    word = judgement(row)
    return f"{word}: {seconds(row.scenario.tasks.acceptable_latency_seconds)}" if row.scenario.is_judged else word


def print_rehearsal(rehearsal: Rehearsal) -> None:
    """Print a rehearsal on the terminal."""
    service = rehearsal.service
    output.line(f"{', '.join(rehearsal.names)}: {service.scaling_text}")
    names = COLUMNS if output.console().width >= _WIDE_CHARACTERS else _FEW_COLUMNS
    chosen = [COLUMNS.index(name) for name in names]
    rows = [(cells(row), verdict_of(row)) for row in rehearsal.rows]
    output.table((*names, ""), [(*(made[idx] for idx in chosen), verdict) for made, verdict in rows])
    for sentence in summary(rehearsal):
        output.line(sentence)
    for mistake in merge_equal(rehearsal.mistakes):
        output.line(f"mistake {mistake.name} in {mistake.policy}: {mistake.found}")
        output.line(f"  {mistake.consequence}")
        output.line(f"  instead: {mistake.repair}")
    for traffic, advice in rehearsal.advice.items():
        output.lines("\n".join(advice_sentences(traffic, advice)))
    for assumed in service.assumed:
        output.line(f"not known: {assumed}")
    if service.cpu_units is None or service.memory_mib is None:
        output.line("not known: the size of a task, and so what it costs")
    for unsimulated in service.not_simulated:
        output.line(f"not simulated: {unsimulated}")
    if rehearsal.depends_on:
        output.line(f"the verdict is another one with: {'; '.join(rehearsal.depends_on)}")
    output.line(f"{'; '.join(READING)}; not simulated: {', '.join(NOT_SIMULATED)}")


def merge_equal(mistakes: Sequence[Mistake]) -> Sequence[Mistake]:
    """Merge equal mistakes of several policies into one, with the consequence of the first policy."""
    policies: dict[tuple[str, str, str], dict[str, None]] = {}
    for mistake in mistakes:
        policies.setdefault((mistake.name, mistake.found, mistake.repair), {})[mistake.policy] = None
    firsts = {(mistake.name, mistake.found, mistake.repair): mistake for mistake in reversed(mistakes)}
    return [replace(firsts[same], policy=", ".join(names)) for same, names in policies.items()]


def summary(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield in how many cases the deployed scaling keeps the latency, and the reason for each other case."""
    rows = rehearsal.deployed_rows
    words = [judgement(row) for row in rows]
    count = {word: words.count(word) for word in ("kept", "missed", "not drained", "not judged")}
    yield f"of {plural(len(rows), 'case')}: {', '.join(f'{found} {word}' for word, found in count.items() if found)}"
    for row, word in zip(rows, words, strict=True):
        if word in {"missed", "not drained"}:
            yield f"  {row.scenario.name}: {word}: {reason(rehearsal.service, row)}"


def advice_sentences(traffic: str, advice: Advice) -> list[str]:
    """Return sentences about the limit of a consumer on this traffic, and about each remedy."""
    lowest = advice.ceilings[0]
    head = (
        f"{traffic}: at its peak {advice.peak_per_second:,.3g} messages a second; the limit is {lowest.name}:"
        f" {lowest.per_second:,.3g} a second ({lowest.because})"
    )
    if not advice.changes:
        return [head]
    best, *others = advice.changes
    was = advice.declared
    return [
        head,
        f"  what helps most: {best.text}: p95 {seconds(was.p95_seconds)} -> {seconds(best.p95_seconds)},"
        f" task-hours {was.task_hours:,.1f} -> {best.task_hours:,.1f}",
        *(f"  or {each.text}: p95 {seconds(each.p95_seconds)}, {each.task_hours:,.1f} task-hours" for each in others),
    ]


def _quantile(row: RehearsalRow, share: float) -> str:
    """Return a latency as text, with `≥` if remaining messages decide it."""
    result = row.result
    total = int(result.latencies.sum())
    is_open = total > 0 and result.left > (1 - share) * total
    return f"{'≥ ' if is_open else ''}{seconds(result.quantile_seconds(share))}"


def cells(row: RehearsalRow) -> Sequence[str]:
    """Return a row of the table, a cell for each of `COLUMNS`."""
    result = row.result
    usd = dollars_of(row)
    return (
        row.scenario.name,
        row.policy if row.variant is USUAL else f"{row.policy}, {row.variant.name}",
        _rates(row),
        f"{row.paid_hours / row.hours:.1f}, at most {row.most_running}",
        f"{row.paid_hours:,.1f}",
        "-" if usd is None else f"{usd / row.hours * _MONTH_HOURS:,.2f}",
        *(_quantile(row, share) for share in (0.5, 0.95, 0.99)),
        seconds(result.oldest_seconds),
        seconds(result.first_task_seconds),
        str(result.flaps),
        f"{result.killed:,}",
        f"{result.dead:,}",
        f"{result.left:,}",
    )


def _rates(row: RehearsalRow) -> str:
    """Return how many messages a second are sent, on average and in the busiest minute."""
    traffic = row.scenario.traffic
    mean, peak = traffic.message_count / traffic.minutes / 60, traffic.peak_per_second
    return f"{mean:,.3g}" if f"{mean:,.2g}" == f"{peak:,.2g}" else f"{mean:,.3g}, at most {peak:,.3g}"


def as_json(rehearsal: Rehearsal, name: str) -> Mapping[str, Any]:
    """Return a rehearsal as JSON, under the name of one of its services."""
    return {
        "service": name,
        "min_tasks": rehearsal.service.min_tasks,
        "max_tasks": rehearsal.service.max_tasks,
        "is_missed": rehearsal.is_missed,
        "assumed": rehearsal.service.assumed,
        "not_simulated": rehearsal.service.not_simulated,
        "depends_on": rehearsal.depends_on,
        "advice": {traffic: asdict(advice) for traffic, advice in rehearsal.advice.items()},
        "mistakes": [asdict(mistake) for mistake in rehearsal.mistakes],
        "variants": [asdict(variant) for variant in VARIANTS],
        "rows": [_row(row) for row in rehearsal.rows],
    }


def _row(row: RehearsalRow) -> Mapping[str, Any]:
    result = row.result
    return {
        "traffic": row.scenario.name,
        "policy": row.policy,
        "is_deployed": row.policy == DEPLOYED,
        "variant": row.variant.name,
        "acceptable_latency_seconds": row.scenario.tasks.acceptable_latency_seconds,
        "is_judged": row.scenario.is_judged,
        "is_missed": row.is_missed,
        "is_drained": not result.left,
        "messages_per_second": row.scenario.traffic.message_count / row.scenario.traffic.minutes / 60,
        "task_hours": row.paid_hours,
        "usd": dollars_of(row),
        "tasks_max": row.most_running,
        "p50_seconds": result.quantile_seconds(0.5),
        "p95_seconds": result.quantile_seconds(0.95),
        "p99_seconds": result.quantile_seconds(0.99),
        "oldest_seconds": result.oldest_seconds,
        "first_task_seconds": result.first_task_seconds,
        "flaps": result.flaps,
        "cut_short": result.killed,
        "dead_lettered": result.dead,
        "left": result.left,
    }
