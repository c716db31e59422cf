"""What is watched, and who is told."""

from collections.abc import Iterator

from sluice import naming
from sluice.declaration import Environment
from tests.unit.stacks.invariants.found import (
    ALARM,
    TOPIC,
    TOPIC_POLICY,
    Found,
    allowances,
    metric_math,
    of_kind,
    properties,
)


def _alarms(found: Found, environment: Environment) -> Iterator[str]:
    conditions = ("dead-letters", "undelivered", "late", "expiring", "stuck", "pinned")
    expected = {
        *(naming.alarm_name(environment, "topic", condition) for condition in ("failed", "lost")),
        *(naming.alarm_name(environment, "relay", what) for what in ("lagging", "quarantined") if environment.relay),
        *(naming.alarm_name(environment, one.name, what) for one in environment.consumers for what in conditions),
        *(naming.alarm_name(environment, one.name, "asleep") for one in environment.consumers if one.min_tasks == 0),
        *(naming.alarm_name(environment, one.name, "parked") for one in environment.consumers if one.parks),
    }
    alarms = {one.name: one.properties for one in of_kind(found, ALARM)}
    for name in sorted(expected ^ set(alarms)):
        yield f"alarm {name} is {'missing' if name in expected else 'unknown'}"
    for name, alarm in alarms.items():
        # What SNS counts, and what an idle queue reports, is not reported while there is none; a relay always reports.
        gaps = {"notBreaching": ("-failed", "-lost", "-asleep", "-quarantined"), "breaching": ("-lagging",)}
        of_gap = next((gap for gap, ends in gaps.items() if name.endswith(ends)), "ignore")
        if alarm.get("TreatMissingData") != of_gap:
            yield f"alarm {name} takes a gap for {alarm.get('TreatMissingData')}"
        told = [f"Ref({naming.operator_topic_name(environment)})"]
        if not name.endswith("-asleep") and [alarm.get("AlarmActions"), alarm.get("OKActions")] != [told, told]:
            yield f"alarm {name} does not tell the operators"
        if "Metrics" in alarm:
            yield from metric_math(f"alarm {name}", alarm["Metrics"])


def _thresholds(found: Found, environment: Environment) -> Iterator[str]:
    expected: dict[str, dict[str, float]] = {
        consumer.name: {
            "dead-letters": 1,
            "undelivered": 1,
            "late": consumer.acceptable_latency_seconds,
            "expiring": consumer.message_retention_seconds / 2,
            "stuck": 1,
            "pinned": 1,
            **({"parked": 1} if consumer.parks else {}),
        }
        for consumer in environment.consumers
    }
    if environment.relay:
        expected["relay"] = {"lagging": environment.outbox_lag_seconds, "quarantined": 1}
    for subject, thresholds in expected.items():
        for condition, threshold in thresholds.items():
            name = naming.alarm_name(environment, subject, condition)
            seen = properties(found, ALARM, name).get("Threshold")
            if seen != threshold:
                yield f"alarm {name} rings at {seen}"


def _operators(found: Found, environment: Environment) -> Iterator[str]:
    topic = properties(found, TOPIC, naming.operator_topic_name(environment))
    if topic.get("FifoTopic"):
        yield "CloudWatch does not publish to the operator topic: it is FIFO"
    publishers = [
        statement["Principal"]
        for policy in of_kind(found, TOPIC_POLICY)
        for statement in allowances(policy)
        if policy.properties["Topics"] == [f"Ref({naming.operator_topic_name(environment)})"]
    ]
    if publishers != [{"Service": "cloudwatch.amazonaws.com"}]:
        yield f"to the operator topic publish {publishers}"


CHECKS = (_alarms, _thresholds, _operators)
