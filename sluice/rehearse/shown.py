"""A rehearsal on the terminal and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sluice.cost.prices import PRICE_DATE, PRICE_REGION, usd
from sluice.rehearse.advice import Advice
from sluice.rehearse.model.control_loop import USUAL, VARIANTS
from sluice.rehearse.model.policies import ScaledService
from sluice.rehearse.rehearsal import DEPLOYED, JUDGED_SHARE, Rehearsal, Row, Watch
from sluice.terminal import output
from sluice.terminal.printable import printable

NAMES = ("traffic", "scaled by")
COLUMNS = (
    *NAMES, "tasks", "task-hours", "US dollars", "p50", "p95", "p99", "oldest", "first task", "turns", "cut short",
    "left",
)  # fmt: skip
"""Of the table: what was simulated, and what came of it; the verdict follows."""
READING = (
    f"latency is from sent to handled, judged by its {JUDGED_SHARE:.0%}",
    f"dollars are Fargate list prices of {PRICE_REGION}, {PRICE_DATE}",
)
NOT_SIMULATED = (
    "the search among the first 120,000 messages only",
    "throttled calls",
    "handlers of different length",
    "that a worker is protected for five seconds after its last message, so that scaling in takes longer under traffic",
    "nothing here was compared with AWS",
)


@contextmanager
def progress() -> Iterator[Watch]:
    """Show on a terminal what is simulated and how far it is; elsewhere nothing."""
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


def dollars(service: ScaledService, task_hours: float) -> float | None:
    """Return what so many hours of a service's tasks cost on Fargate, by list prices; None where no size is known."""
    if service.cpu_units is None or service.memory_mib is None:
        return None
    hourly = service.cpu_units / 1_024 * usd("Fargate CPU") + service.memory_mib / 1_024 * usd("Fargate memory")
    return task_hours * hourly


def seconds(value: float | None) -> str:
    """Return a time as people read it."""
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.2g} s"
    return f"{value:,.0f} s" if value < 3_600 else f"{value / 3_600:,.1f} h"


def judgement(row: Row) -> str:
    """Return whether a row's latency is what was declared: `kept`, `missed` or `not judged`."""
    if not row.scenario.is_judged:
        return "not judged"
    return "missed" if row.is_missed else "kept"


def verdict_of(row: Row) -> str:
    """Return the same with what was declared."""
    word = judgement(row)
    return f"{word}: {seconds(row.scenario.tasks.acceptable_latency_seconds)}" if row.scenario.is_judged else word


def terminal(rehearsal: Rehearsal) -> None:
    """Print a rehearsal."""
    service = rehearsal.service
    policies = ", ".join(f"{policy.name}" for policy in service.policies) or "none"
    output.line(f"{service.name}: {service.min_tasks} to {service.max_tasks} tasks, policies: {policies}")
    output.table((*COLUMNS, ""), [(*cells(rehearsal, row), verdict_of(row)) for row in rehearsal.rows])
    for mistake in rehearsal.mistakes:
        output.line(f"mistake {mistake.name} in {mistake.policy}: {mistake.found}")
        output.line(f"  {mistake.consequence}")
        output.line(f"  instead: {mistake.repair}")
    for traffic, advice in rehearsal.advice.items():
        output.lines("\n".join(advised(traffic, advice)))
    for assumed in service.assumed:
        output.line(f"not known: {assumed}")
    if rehearsal.depends_on:
        output.line(f"the verdict is another one with: {'; '.join(rehearsal.depends_on)}")
    output.line(f"{'; '.join(READING)}; not simulated: {', '.join(NOT_SIMULATED)}")


def advised(traffic: str, advice: Advice) -> list[str]:
    """Return what limits a consumer on this traffic, and what helps, as sentences."""
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


def _quantile(row: Row, share: float) -> str:
    """Return a latency; where messages that were left decide it, it is that or more."""
    result = row.result
    total = int(result.latencies.sum())
    is_open = total > 0 and result.left > (1 - share) * total
    return f"{'≥ ' if is_open else ''}{seconds(result.quantile_seconds(share))}"


def cells(rehearsal: Rehearsal, row: Row) -> Sequence[str]:
    """Return a row of the table, a cell for each of `COLUMNS`."""
    result = row.result
    hours, usd = len(result.p95_seconds) / 60, dollars(rehearsal.service, result.task_hours)
    return (
        row.scenario.name,
        row.policy if row.variant is USUAL else f"{row.policy}, {row.variant.name}",
        f"{result.task_hours / hours:.1f}, at most {result.most_tasks}",
        f"{result.task_hours:,.1f}",
        "-" if usd is None else f"{usd:,.2f}",
        *(_quantile(row, share) for share in (0.5, 0.95, 0.99)),
        seconds(result.oldest_seconds),
        seconds(result.first_task_seconds),
        str(result.flaps),
        f"{result.killed:,}",
        f"{result.left:,}",
    )


def as_json(rehearsal: Rehearsal) -> Mapping[str, Any]:
    """Return a rehearsal for programs."""
    return {
        "service": rehearsal.service.name,
        "min_tasks": rehearsal.service.min_tasks,
        "max_tasks": rehearsal.service.max_tasks,
        "is_missed": rehearsal.is_missed,
        "assumed": rehearsal.service.assumed,
        "depends_on": rehearsal.depends_on,
        "advice": {traffic: asdict(advice) for traffic, advice in rehearsal.advice.items()},
        "mistakes": [asdict(mistake) for mistake in rehearsal.mistakes],
        "variants": [asdict(variant) for variant in VARIANTS],
        "rows": [_row(rehearsal, row) for row in rehearsal.rows],
    }


def _row(rehearsal: Rehearsal, row: Row) -> Mapping[str, Any]:
    result = row.result
    return {
        "traffic": row.scenario.name,
        "policy": row.policy,
        "is_deployed": row.policy == DEPLOYED,
        "variant": row.variant.name,
        "acceptable_latency_seconds": row.scenario.tasks.acceptable_latency_seconds,
        "is_judged": row.scenario.is_judged,
        "is_missed": row.is_missed,
        "task_hours": result.task_hours,
        "usd": dollars(rehearsal.service, result.task_hours),
        "tasks_max": result.most_tasks,
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
