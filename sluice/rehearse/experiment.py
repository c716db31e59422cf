"""An experiment is a service with the traffic that it is tried on; a mistake is described by its simulated effects."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sluice.declaration.metric_math import Series, Term
from sluice.rehearse.model.control_loop import USUAL, Variant
from sluice.rehearse.model.policies import MetricExpression, ScaledService, ScalingPolicy, TargetTracking
from sluice.rehearse.model.scenarios import Scenario
from sluice.rehearse.model.simulation import (
    TO_EXPRESSIONS,
    SimulationResult,
    TaskWork,
    simulate,
    simulated_series,
)

VISIBLE, IN_FLIGHT = "ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesNotVisible"
RUNNING = "RunningTaskCount"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A known mistake in how a service scales, found in this service.

    Args:
        name: the kind of mistake.
        policy: the policy that has it; the service if no single policy has it.
        found: what was found, as a sentence.
        consequence: its simulated effect, with figures.
        repair: the repair, as a sentence.
    """

    name: str
    policy: str
    found: str
    consequence: str
    repair: str


@dataclass(frozen=True, slots=True)
class Experiment:
    """A service with the traffic that it is tried on; results of the service as deployed are kept.

    Args:
        service: the service in the template.
        tasks: how its tasks work.
        scenarios: traffic by name.
        own: custom metrics: namespace and name to the expression that simulates the metric.
    """

    service: ScaledService
    tasks: TaskWork
    scenarios: Mapping[str, Scenario]
    own: Mapping[tuple[str, str], Term]
    _as_deployed: dict[str, SimulationResult] = field(default_factory=dict, init=False, compare=False, repr=False)

    def result_on(
        self, scenario: str, service: ScaledService | None = None, variant: Variant = USUAL
    ) -> SimulationResult:
        """Return the simulated result on this traffic, of the service or of a changed one."""
        tried = self.scenarios[scenario]
        if service is None and variant is USUAL:
            if scenario not in self._as_deployed:
                self._as_deployed[scenario] = simulate(self.service, tried.traffic, tried.tasks, own=self.own)
            return self._as_deployed[scenario]
        return simulate(service or self.service, tried.traffic, tried.tasks, own=self.own, variant=variant)

    def comparison(self, scenario: str, repaired: ScaledService, traffic: str | None = None) -> str:
        """Return the results of the service and of the repaired one on this traffic, in words."""
        return comparison(
            traffic or scenario.replace("-", " "), self.result_on(scenario), self.result_on(scenario, repaired)
        )


def with_own_metrics(service: ScaledService) -> ScaledService:
    """Return the service with every policy's metrics those of its own queue and tasks, all of them reported."""
    for policy in service.policies:
        watched = policy.watched
        metrics = {
            id_: replace(metric, dimensions=service.dimensions_in(metric.namespace) or metric.dimensions)
            for id_, metric in watched.metrics.items()
        }
        service = service.exchange(policy, policy.with_watched(replace(watched, metrics=metrics)))
    return replace(service, has_insights=True)


def scales_in(policy: ScalingPolicy) -> bool:
    """Return whether a policy ever takes tasks away."""
    if isinstance(policy, TargetTracking):
        return not policy.disables_scale_in
    return policy.adjustment_type == "ExactCapacity" or any(step.adjustment < 0 for step in policy.steps)


def scales_out(policy: ScalingPolicy) -> bool:
    """Return whether a policy ever starts tasks."""
    if isinstance(policy, TargetTracking):
        return True
    return any(step.adjustment > 0 for step in policy.steps)


def value_with(
    watched: MetricExpression,
    own: Mapping[tuple[str, str], Term],
    visible: float,
    *,
    tasks: float = 2.0,
    age: float = 7.0,
    in_flight: float = 0.0,
    empty: float = 0.0,
    flow: float = 0.0,
) -> float | None:
    """Return the value of an expression for a service in this state, to find out what the expression measures."""
    there: dict[str, Series] = {name: [0.0] for name in TO_EXPRESSIONS.values()}
    there |= {"visible": [visible], "running": [tasks], "desired": [tasks], "age": [age], "cpu": [7.0]}
    there |= {"inflight": [in_flight], "empty": [empty], "sent": [flow], "received": [flow], "done": [flow]}
    series = {}
    for id_, metric in watched.metrics.items():
        key = (metric.namespace, metric.name)
        series[id_] = [own[key].value_at(there, 0)] if key in own else there.get(simulated_series(metric) or "", [None])
    return watched.term.value_at(series, 0)


def comparison(traffic: str, before: SimulationResult, after: SimulationResult) -> str:
    """Return the results of a service and of the repaired one, in words."""
    was, made = describe_result(before), describe_result(after)
    return (
        f"{traffic}: {was}; repaired: {made}" if was != made else f"{traffic}: {was}; this repair alone changes nothing"
    )


def describe_result(outcome: SimulationResult) -> str:
    """Return the result of a simulation in words."""
    p95 = outcome.quantile_seconds(0.95)
    seconds = "nothing handled" if p95 is None or math.isinf(p95) else f"p95 {p95:,.0f} s"
    turns = f", turned round {outcome.flaps} times" if outcome.flaps else ""
    return f"{seconds}, {outcome.task_hours:,.1f} task-hours, at most {outcome.most_tasks} tasks{turns}"
