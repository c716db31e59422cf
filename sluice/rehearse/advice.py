"""Find the limits of a consumer, and the change of its declaration that helps most, each change simulated."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sluice import limits
from sluice.declaration import Consumer, Environment
from sluice.errors import ConfigError
from sluice.rehearse.declared_service import service_of, tasks_of
from sluice.rehearse.model.simulation import SimulationResult, simulate
from sluice.rehearse.model.traffic import Traffic

_JUDGED_SHARE = 0.95
_WORTH = 0.9
"""A change that leaves more than this share of the latency is not advised: it helps too little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """An upper limit of a consumer's rate, for one reason.

    Args:
        name: `groups`, `hottest group`, `lanes and tasks`, `topic's quota`, `queue's quota`.
        per_second: messages a second.
        because: how the limit is computed.
    """

    name: str
    per_second: float
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedChange:
    """A change of a consumer's declaration, and the result of its simulation.

    Args:
        text: the change as a difference: `lanes=4 -> 8`.
        p95_seconds: 95th percentile of the latency from sent to handled; None without messages.
        task_hours: task-hours for the traffic.
    """

    text: str
    p95_seconds: float | None
    task_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Advice for a consumer on its traffic.

    Args:
        peak_per_second: the rate of the busiest minute.
        ceilings: the limits of its rate, the lowest first.
        declared: the result of the unchanged declaration.
        changes: the changes that help, the best first; empty if the declared latency is kept.
    """

    peak_per_second: float
    ceilings: Sequence[Ceiling]
    declared: AdvisedChange
    changes: Sequence[AdvisedChange]


def ceilings(environment: Environment, consumer: Consumer, *, groups: int, hottest_share: float) -> Sequence[Ceiling]:
    """Return the limits of a consumer's rate, the lowest first.

    Args:
        environment: the consumer's environment, whose region has quotas.
        consumer: the consumer as it is declared.
        groups: message groups active at a time.
        hottest_share: share of the messages that are in the busiest group.
    """
    work = tasks_of(consumer)
    turn_seconds = work.handler_seconds + work.overhead_seconds
    limits_with_reasons = {
        "hottest group": (
            1 / turn_seconds / hottest_share,
            f"it has {hottest_share:.1%} of the messages, and one lane at a time, {turn_seconds:g} s each",
        ),
        "groups": (groups / turn_seconds, f"{groups:,} groups, one lane each, {turn_seconds:g} s a message"),
        "lanes and tasks": (
            consumer.max_tasks * consumer.lanes / turn_seconds,
            f"{consumer.max_tasks} tasks of {consumer.lanes} lanes, {turn_seconds:g} s a message",
        ),
        "topic's quota": (
            float(limits.TOPIC_MESSAGES_PER_SECOND.get(environment.region, limits.TOPIC_MESSAGES_PER_SECOND_ELSEWHERE)),
            f"messages a second in {environment.region}",
        ),
        "queue's quota": (
            float(limits.QUEUE_CALLS_PER_SECOND.get(environment.region, limits.QUEUE_CALLS_PER_SECOND_ELSEWHERE)),
            f"receives a second in {environment.region}, a message each",
        ),
    }
    if not consumer.fifo:
        del limits_with_reasons["hottest group"], limits_with_reasons["groups"]
    found = [
        Ceiling(name=name, per_second=value, because=because) for name, (value, because) in limits_with_reasons.items()
    ]
    return sorted(found, key=lambda ceiling: ceiling.per_second)


def advise(environment: Environment, consumer: Consumer, traffic: Traffic) -> Advice:
    """Return the limits of a consumer on this traffic, and the changes that help.

    Args:
        environment: the consumer's environment.
        consumer: the consumer as it is declared.
        traffic: the messages that are sent.
    """
    declared = _outcome("as declared", environment, consumer, traffic)
    latency = consumer.acceptable_latency_seconds
    changes: list[AdvisedChange] = []
    if declared.p95_seconds is not None and declared.p95_seconds > latency:
        tried = [_outcome(text, environment, changed, traffic) for text, changed in _changes(consumer, traffic)]
        better = [
            change
            for change in tried
            if change.p95_seconds is not None and change.p95_seconds < _WORTH * declared.p95_seconds
        ]
        enough = sorted(
            (change for change in better if _seconds(change) <= latency), key=lambda change: change.task_hours
        )
        changes = enough + sorted((change for change in better if change not in enough), key=_seconds)
    return Advice(
        peak_per_second=traffic.peak_per_second,
        ceilings=ceilings(environment, consumer, groups=traffic.group_count, hottest_share=traffic.hottest_share),
        declared=declared,
        changes=changes,
    )


def _seconds(change: AdvisedChange) -> float:
    """Return the 95th percentile of a change's latency for sorting; a change without messages comes last."""
    return math.inf if change.p95_seconds is None else change.p95_seconds


def _changes(consumer: Consumer, traffic: Traffic) -> list[tuple[str, Consumer]]:
    """Return the changes that might help and that the declaration allows."""
    turn_seconds = consumer.processing_seconds
    needed = math.ceil(traffic.peak_per_second * turn_seconds / consumer.lanes)
    wanted: list[dict[str, float]] = [
        {"lanes": consumer.lanes * 2},
        {"max_tasks": consumer.max_tasks * 2},
        {"lanes": consumer.lanes * 2, "max_tasks": consumer.max_tasks * 2},
        {"min_tasks": max(1, consumer.min_tasks + 1)},
        {"min_tasks": min(consumer.max_tasks, max(1, needed))},
        {"processing_seconds": consumer.processing_seconds / 2},
    ]
    found = {}
    for fields in wanted:
        values = {name: value for name, value in fields.items() if value != getattr(consumer, name)}
        if not values:
            continue
        groups = max(consumer.expected_groups, traffic.group_count)
        try:
            changed = replace(consumer, **values)  # type: ignore[arg-type]
        except ConfigError:
            values["expected_groups"] = groups
            try:
                changed = replace(consumer, **values)  # type: ignore[arg-type]
            except ConfigError:
                continue
        text = ", ".join(f"{name}={getattr(consumer, name):g} -> {value:g}" for name, value in values.items())
        found[text] = changed
    return list(found.items())


def _outcome(text: str, environment: Environment, consumer: Consumer, traffic: Traffic) -> AdvisedChange:
    """Simulate a consumer on the traffic and return the result under the name of the change."""
    result: SimulationResult = simulate(service_of(environment, consumer), traffic, tasks_of(consumer))
    return AdvisedChange(text=text, p95_seconds=result.quantile_seconds(_JUDGED_SHARE), task_hours=result.task_hours)
