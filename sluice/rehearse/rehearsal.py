"""A rehearsal: one service on traffic, in every variant of undocumented behaviour, beside the usual ways to scale."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sluice.declaration.metric_math import Term
from sluice.rehearse.advice import Advice
from sluice.rehearse.alternatives import OWN_METRICS, alternatives
from sluice.rehearse.experiment import Mistake
from sluice.rehearse.model.control_loop import USUAL, VARIANTS, Variant
from sluice.rehearse.model.policies import ScaledService
from sluice.rehearse.model.scenarios import Scenario
from sluice.rehearse.model.simulation import SimulationResult, simulate

LARGE = 20_000_000
"""From this many messages on, only the deployed scaling is simulated, once, because it takes minutes."""
JUDGED_SHARE = 0.95
DEPLOYED = "deployed"

type ProgressWatcher = Callable[[str, float], object]
"""Called with the name of the running simulation, and its share of all simulations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRow:
    """One simulation.

    Args:
        scenario: the traffic.
        service: the simulated service: the deployed one, or an alternative.
        policy: `deployed_rows`, or the name of the alternative.
        variant: the assumed behaviour of AWS where sources differ.
        result: the result of the simulation.
    """

    scenario: Scenario
    service: ScaledService
    policy: str
    variant: Variant
    result: SimulationResult

    @property
    def paid_hours(self) -> float:
        """Return the hours that are paid for: of tasks, or those that invocations worked."""
        if self.service.mapping is None:
            return self.result.task_hours
        return (
            sum(value or 0.0 for value in self.result.series["received"]) * self.scenario.tasks.handler_seconds / 3_600
        )

    @property
    def most_running(self) -> int:
        """Return the most tasks there were at once; of a function the most invocations, on average over a minute."""
        if self.service.mapping is None:
            return self.result.most_tasks
        most = math.ceil(max((value or 0.0 for value in self.result.series["inflight"]), default=0.0))
        return min(self.service.max_tasks, most)  # a message that waits for its next try is in flight, too

    @property
    def p95_seconds(self) -> float | None:
        """Return the 95th percentile of the latency; None without messages."""
        return self.result.quantile_seconds(JUDGED_SHARE)

    @property
    def is_missed(self) -> bool:
        """Return whether the declared latency had to be kept and was not."""
        seconds = self.p95_seconds
        acceptable_seconds = self.scenario.tasks.acceptable_latency_seconds
        return self.scenario.is_judged and seconds is not None and seconds > acceptable_seconds

    @property
    def hours(self) -> float:
        """Return how long the simulation lasted, including the time after the end of the traffic."""
        return len(self.result.p95_seconds) / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The rehearsal of a service.

    Args:
        service: the service.
        rows: every simulation, those of the deployed scaling first.
        mistakes: the mistakes of its policies.
        advice: traffic to the advice for the consumer, if a declaration has one.
        others: names of other services that scale alike.
    """

    service: ScaledService
    rows: Sequence[RehearsalRow]
    mistakes: Sequence[Mistake] = ()
    advice: Mapping[str, Advice] = field(default_factory=dict)
    others: Sequence[str] = ()

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the service, and of the services that scale alike."""
        return (self.service.name, *self.others)

    @property
    def deployed_rows(self) -> Sequence[RehearsalRow]:
        """Return the rows of the deployed service, on each traffic, in the usual variant."""
        return [row for row in self.rows if row.policy == DEPLOYED and row.variant is USUAL]

    @property
    def is_missed(self) -> bool:
        """Return whether the deployed service misses the declared latency in the usual variant."""
        return any(row.is_missed for row in self.deployed_rows)

    @property
    def depends_on(self) -> Sequence[str]:
        """Return the variants in which the latency is judged differently than in the usual one, with the traffic."""
        usual = {row.scenario.name: row.is_missed for row in self.deployed_rows}
        return [
            f"{row.scenario.name}: {row.variant.name}"
            for row in self.rows
            if row.policy == DEPLOYED and row.is_missed != usual[row.scenario.name]
        ]


def simulate_all(
    service: ScaledService,
    scenarios: Sequence[Scenario],
    *,
    own: Mapping[tuple[str, str], Term],
    compares: bool,
    watch: ProgressWatcher = lambda _name, _share: None,
) -> list[RehearsalRow]:
    """Return a service's results on traffic.

    Args:
        service: the deployed service.
        scenarios: the traffic.
        own: custom metrics, as expressions.
        compares: whether every variant and the usual alternatives are simulated as well.
        watch: called before each simulation and during it.
    """
    planned = [
        (scenario, *others)
        for scenario in scenarios
        for others in _plan_simulations(service, scenario, compares=compares)
    ]
    rows = []
    for idx, (scenario, policy, scaled, variant) in enumerate(planned):

        def progress(minute: int, scenario: Scenario = scenario, policy: str = policy, done: int = idx) -> None:
            share = done + (minute + 1) / scenario.traffic.minutes
            watch(f"{scenario.name}, {policy}", share / len(planned))

        result = simulate(
            scaled,
            scenario.traffic,
            scenario.tasks,
            variant=variant,
            own={**OWN_METRICS, **own},
            progress=progress,
        )
        rows.append(RehearsalRow(scenario=scenario, service=scaled, policy=policy, variant=variant, result=result))
    return rows


def _plan_simulations(
    service: ScaledService, scenario: Scenario, *, compares: bool
) -> list[tuple[str, ScaledService, Variant]]:
    """Return the simulations of a traffic, each as way to scale, service scaled in that way, and variant of AWS."""
    usual = (DEPLOYED, service, USUAL)
    if not compares or scenario.traffic.message_count > LARGE:
        return [usual]
    unknown = VARIANTS if service.mapping is None else ()  # of alarms and metrics, which a mapping does not look at
    variants = [(DEPLOYED, service, variant) for variant in unknown if variant is not USUAL]
    others = alternatives(service, scenario.tasks, scenario.traffic)
    return [usual, *variants, *((name, other, USUAL) for name, other in others.items())]
