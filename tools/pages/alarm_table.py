"""The alarms of the declaration as rows of a table: those of one topic, its relay, and a consumer with every option."""

from collections.abc import Iterator

from sluice.declaration import AutomaticRedrive, Consumer, Environment, Gaps, Hourly, Lambda, NewDatabase, naming
from sluice.declaration.alarms import Alarm, Comparison, MissingData, alarms
from sluice.declaration.watched_metrics import Expression, WatchedMetric

COLUMNS = ("alarm", "watches", "rings at", "for", "a gap", "tells", "means, with the default numbers")

_CONSUMER = Consumer(name="consumer", handlers="their.handlers", gaps=Gaps.HALT, automatic_redrive=AutomaticRedrive())
_ASLEEP = Consumer(name="asleep", min_tasks=0, acceptable_latency_seconds=1_200)
_FUNCTION = Consumer(name="function", handlers="their.handlers", runtime=Lambda(maximum_concurrency=5))
_ENVIRONMENT = Environment(
    name="env", database=NewDatabase(), verification=Hourly(), consumers=(_CONSUMER, _ASLEEP, _FUNCTION)
)
_COMPARED = {
    Comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD: "at least",
    Comparison.GREATER_THAN_THRESHOLD: "more than",
    Comparison.LESS_THAN_THRESHOLD: "less than",
}
_GAPS = {
    MissingData.NOT_BREACHING: "counts as fine",
    MissingData.IGNORE: "keeps its state",
    MissingData.BREACHING: "rings",
}
_OWNERS = {
    naming.topic_name(_ENVIRONMENT): "topic",
    naming.service_name(_ENVIRONMENT, "relay"): "relay",
    naming.service_name(_ENVIRONMENT, _CONSUMER.name): "service",
    naming.function_name(_ENVIRONMENT, _FUNCTION): "function",
    naming.queue_name(_ENVIRONMENT, _CONSUMER): "queue",
    naming.dead_letter_queue_name(_ENVIRONMENT, _CONSUMER): "queue's DLQ",
    naming.undelivered_queue_name(_ENVIRONMENT, _CONSUMER): "subscription's DLQ",
}


def rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each condition that rings an alarm, for the first alarm of that condition."""
    first: dict[str, Alarm] = {}
    for alarm in alarms(_ENVIRONMENT):
        first.setdefault(alarm.condition, alarm)
    for alarm in first.values():
        subject = "CONSUMER" if alarm.subject in (_CONSUMER.name, _ASLEEP.name, _FUNCTION.name) else alarm.subject
        yield (
            f"`{naming.alarm_name(_ENVIRONMENT, subject, alarm.condition).replace('-env-', '-ENV-')}`",
            _metric_text(alarm.watches),
            f"{_COMPARED[alarm.comparison]} {alarm.bound or f'{alarm.threshold:g}'}",
            alarm.duration or f"{alarm.minutes} of {alarm.evaluated_minutes} min",
            _GAPS[alarm.missing],
            alarm.hearer.value,
            alarm.description,
        )


def _metric_text(watched: WatchedMetric | Expression) -> str:
    if isinstance(watched, Expression):
        return f"expression: {watched.label}"
    if "Topic" in watched.dimensions:
        owner = "outbox"
    elif "DBClusterIdentifier" in watched.dimensions:
        owner = "database's writer"
    else:
        owner = _OWNERS[tuple(watched.dimensions.values())[-1]]
    return f"{watched.statistic} of `{watched.name}` of the {owner}"
