"""The kinds of traffic that a service is tried on, sized by the capacity of its tasks; and a day of them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sluice.rehearse.model.policies import ScaledService
from sluice.rehearse.model.queue_simulation import Floats
from sluice.rehearse.model.simulation import TaskWork
from sluice.rehearse.model.traffic import DrawnTraffic, Traffic, changing, constant

_HOURS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Traffic for a service.

    Args:
        about: what the traffic shows, in a few words.
        traffic: the messages that are sent.
        tasks: how the tasks work meanwhile.
        is_judged: whether the declared latency can be kept. It cannot if there are too few groups, if messages never
            succeed, during an outage of handlers, or if eight times as many messages arrive within a second.
    """

    about: str
    traffic: Traffic
    tasks: TaskWork
    is_judged: bool = True

    @property
    def name(self) -> str:
        """Return the name of the scenario."""
        return self.traffic.name


def per_second(tasks: TaskWork, count: float) -> float:
    """Return how many messages a second so many tasks can handle."""
    return count * tasks.lanes / (tasks.handler_seconds + tasks.overhead_seconds)


def scenarios(service: ScaledService, tasks: TaskWork, *, groups: int, seed: int = 1) -> Mapping[str, Scenario]:
    """Return every kind of traffic by its name, for a service of this size.

    Args:
        service: its bounds say how much there is to do.
        tasks: how its tasks work.
        groups: message groups active at the same time.
        seed: of all draws.
    """
    useful = min(float(service.max_tasks), groups / tasks.lanes)
    most = per_second(tasks, useful)
    long = replace(tasks, handler_seconds=max(tasks.handler_seconds, 4.0 * service.stop_timeout_seconds))
    few = max(2, tasks.lanes)

    drawn = partial(DrawnTraffic, group_count=groups, seed=seed)

    made = (
        Scenario(
            about="0.4 of what the most tasks do",
            traffic=drawn(name="steady", rates=constant(0.4 * most, 4 * _HOURS)),
            tasks=tasks,
        ),
        Scenario(
            about="eight times as much for 20 minutes",
            traffic=drawn(
                name="burst",
                rates=changing(lambda second: most * np.where(_between(second, 60, 80), 0.8, 0.1), 4 * _HOURS),
            ),
            tasks=tasks,
            is_judged=False,
        ),
        Scenario(
            about="a message each half hour",
            traffic=drawn(name="sparse", rates=constant(1 / 1_800, 12 * _HOURS)),
            tasks=tasks,
        ),
        Scenario(
            about="one group has 0.6 of the messages, twice what a lane can do",
            traffic=drawn(
                name="hot-group",
                rates=constant(2 * per_second(tasks, 1 / tasks.lanes) / 0.6, 4 * _HOURS),
                hot_share=0.6,
            ),
            tasks=tasks,
            is_judged=False,
        ),
        Scenario(
            about=f"{few} groups, one and a half times what their lanes can do",
            traffic=drawn(
                name="few-groups",
                rates=constant(1.5 * per_second(tasks, few / tasks.lanes), 4 * _HOURS),
                group_count=few,
            ),
            tasks=tasks,
            is_judged=False,
        ),
        Scenario(
            about=f"handlers of {long.handler_seconds:g} s, four times the stop timeout, coming and going",
            traffic=drawn(name="long-jobs", rates=changing(_waves(per_second(long, useful)), 8 * _HOURS)),
            tasks=long,
            is_judged=False,
        ),
        Scenario(
            about="one message in a hundred never succeeds",
            traffic=drawn(name="poison", rates=constant(0.3 * most, 4 * _HOURS), poison_share=0.01),
            tasks=tasks,
            is_judged=False,
        ),
        *(
            Scenario(
                about=f"{share} message fails for an hour",
                traffic=drawn(
                    name=name,
                    rates=constant(0.3 * most, 4 * _HOURS),
                    failing=changing(partial(_outage, failing_share), 4 * _HOURS),
                ),
                tasks=tasks,
                is_judged=False,
            )
            for name, share, failing_share in (("outage", "each", 1.0), ("half-outage", "every second", 0.5))
        ),
        Scenario(
            about="a day: quiet night, two peaks",
            traffic=drawn(name="day", rates=changing(_day(most), 24 * _HOURS)),
            tasks=tasks,
        ),
    )
    return {scenario.name: scenario for scenario in made}


def _between(second: Floats, first_minute: int, last_minute: int) -> Floats:
    return ((second >= 60 * first_minute) & (second < 60 * last_minute)).astype(np.float64)


def _outage(share: float, second: Floats) -> Floats:
    """Return the share of messages that fail in each second: `share` in the second hour, otherwise none."""
    return share * _between(second, 60, 120)


def _waves(most: float) -> Callable[[Floats], Floats]:
    """Return a rate between nothing and 0.6 of what is possible, up and down every two hours."""
    return lambda second: 0.3 * most * (1 - np.cos(second * math.tau / 7_200))


def _day(most: float) -> Callable[[Floats], Floats]:
    """Return a day's rate: 0.05 of what is possible at night, peaks of 0.7 at 11 and 0.5 at 20 o'clock."""

    def rate(second: Floats) -> Floats:
        hour = second / 3_600
        return most * (0.05 + 0.65 * np.exp(-((hour - 11) ** 2) / 8) + 0.45 * np.exp(-((hour - 20) ** 2) / 4))

    return rate
