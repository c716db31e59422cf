"""Hand-made rehearsals: an hour or a day of traffic, with the figures that a page has to show."""

import math
import re
from dataclasses import replace
from html import unescape

import numpy as np

from sluice.rehearse.experiment import Mistake
from sluice.rehearse.model.control_loop import USUAL, VARIANTS
from sluice.rehearse.model.policies import MetricExpression, MetricSource, QueueSettings, ScaledService, TargetTracking
from sluice.rehearse.model.queue_simulation import BIN_COUNT
from sluice.rehearse.model.scenarios import Scenario
from sluice.rehearse.model.simulation import SimulationResult, TaskWork
from sluice.rehearse.model.traffic import RecordedTraffic
from sluice.rehearse.reading.expressions import parse
from sluice.rehearse.rehearsal import DEPLOYED, Rehearsal, RehearsalRow

TASKS = TaskWork(lanes=4, handler_seconds=1, acceptable_latency_seconds=60)
SERVICE = ScaledService(
    name="shop-prod-billing",
    min_tasks=1,
    max_tasks=8,
    policies=(
        TargetTracking(
            name="backlog-per-task",
            watched=MetricExpression(
                term=parse("visible"),
                metrics={
                    "visible": MetricSource(
                        namespace="AWS/SQS",
                        name="ApproximateNumberOfMessagesVisible",
                        dimensions={"QueueName": "billing.fifo"},
                    )
                },
                text="visible",
            ),
            target=240,
        ),
    ),
    queue=QueueSettings(name="billing.fifo"),
)
MISTAKE = Mistake(
    name="cooldown-0",
    policy="backlog-per-task",
    found="its cooldown after scaling out is 0 s",
    consequence="a burst: p95 200 s; repaired: p95 90 s",
    repair="a cooldown of 300 s",
)


def result(p95_seconds: float, *, minutes: int = 60, tasks: float = 2) -> SimulationResult:
    """Return a simulation: 120 messages a minute, a peak of backlog and tasks in its 20th, an idle minute at 40."""
    made = SimulationResult()
    made.latencies = np.zeros(BIN_COUNT, dtype=np.int64)
    made.latencies[round(math.log(p95_seconds / 0.001) / math.log(1.015))] = 100
    values: dict[str, list[float | None]] = {
        "sent": [120.0] * minutes,
        "done": [120.0] * minutes,
        "visible": [5.0] * minutes,
        "inflight": [3.0] * minutes,
        "desired": [tasks] * minutes,
        "running": [tasks] * minutes,
        "age": [2.0] * minutes,
    }
    values["visible"][20], values["desired"][20], values["age"][20] = 4_321.0, 7.0, 42.0
    values["running"][40] = None
    made.series.update(values)
    made.p95_seconds = [p95_seconds] * minutes
    made.p95_seconds[39], made.p95_seconds[41] = None, None
    return made


def row(scenario: str, p95_seconds: float, *, minutes: int = 60, tasks: float = 2) -> RehearsalRow:
    """Return the result of the deployed scaling on one kind of traffic."""
    return RehearsalRow(
        scenario=Scenario(
            about="as it comes",
            traffic=RecordedTraffic(name=scenario, sent_at=np.zeros(0), group=np.zeros(0, np.int64)),
            tasks=TASKS,
            is_judged=scenario != "poison",
        ),
        service=SERVICE,
        policy=DEPLOYED,
        variant=USUAL,
        result=result(p95_seconds, minutes=minutes, tasks=tasks),
    )


def kept_latency() -> Rehearsal:
    """Return a service that keeps its latency on all that is judged."""
    return Rehearsal(service=SERVICE, rows=[row("steady", 12), row("day", 20, minutes=1_440), row("poison", 300)])


def not_drained() -> Rehearsal:
    """Return a service that keeps its latency in all judged cases, and leaves a message in an unjudged one."""
    *judged, poison = kept_latency().rows
    left = replace(poison, result=result(300))
    left.result.left = 1
    return Rehearsal(service=SERVICE, rows=[*judged, left])


def missed_latency() -> Rehearsal:
    """Return a service that misses its latency, but not with later metrics; with two alternatives."""
    usual = row("burst", 90)
    late = replace(usual, variant=VARIANTS[-1], result=result(50))
    steps = replace(usual, policy="steps on visible messages", result=result(40, tasks=5))
    fixed = replace(usual, policy="8 tasks, always", result=result(2, tasks=8))
    return Rehearsal(service=replace(SERVICE, name="shop-prod-audit"), rows=[usual, late, steps, fixed])


def table(page: str) -> list[list[str]]:
    """Return the cells of the page's table of simulations, row by row."""
    (table,) = re.findall(r'<div class="scroll tried">.*?</table>', page, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [
        [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in rows
    ]
