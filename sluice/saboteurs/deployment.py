"""Breaks what a deployed environment reports of its queues, topics, policies and alarms."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.saboteurs.base import (
    QUEUE_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    Hook,
    Saboteur,
    misreport,
    of_each,
    without_attribute,
)

_SUBSCRIPTION = "sns.GetSubscriptionAttributes"


class _ShareUndeliveredQueue(Hook):
    operations = (_SUBSCRIPTION,)

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._first: str | None = None

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if self._first is None:
            self._first = parsed["Attributes"]["RedrivePolicy"]
        parsed["Attributes"]["RedrivePolicy"] = self._first


def _without_encryption(parsed: dict[str, Any]) -> None:
    for name in ("SqsManagedSseEnabled", "KmsMasterKeyId"):
        parsed["Attributes"].pop(name, None)


def _rewrite_policy(rewrite: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def edit(parsed: dict[str, Any]) -> None:
        policy = json.loads(parsed["Attributes"]["Policy"])
        rewrite(policy)
        parsed["Attributes"]["Policy"] = json.dumps(policy)

    return edit


def _allow_plain_http(policy: dict[str, Any]) -> None:
    policy["Statement"] = [statement for statement in policy["Statement"] if statement["Effect"] != "Deny"]


def _allow_foreign_sources(policy: dict[str, Any]) -> None:
    for statement in policy["Statement"]:
        if statement["Effect"] == "Allow":
            statement.pop("Condition")


def _misdirect(alarm: dict[str, Any]) -> None:
    for query in alarm.get("Metrics", []):
        for dimension in query.get("MetricStat", {}).get("Metric", {}).get("Dimensions", []):
            dimension["Value"] += "-other"


def _tell_without_data(alarm: dict[str, Any]) -> None:
    alarm["InsufficientDataActions"] = alarm.get("AlarmActions", [])


def _of_subscription(**reported: str) -> Callable[[dict[str, Any]], None]:
    return lambda parsed: parsed["Attributes"].update(reported)


def _raise_threshold(alarm: dict[str, Any]) -> None:
    alarm["Threshold"] += 1


SABOTEURS = (
    Saboteur(
        "lose-redrive-policy",
        "reports queues without their redrive policy",
        misreport(without_attribute("RedrivePolicy"), QUEUE_ATTRIBUTES),
    ),
    Saboteur(
        "lose-encryption", "reports queues without their encryption", misreport(_without_encryption, QUEUE_ATTRIBUTES)
    ),
    Saboteur(
        "shorten-retention",
        "reports queues that keep messages for a minute",
        misreport(lambda parsed: parsed["Attributes"].update(MessageRetentionPeriod="60"), QUEUE_ATTRIBUTES),
    ),
    Saboteur(
        "widen-topic-scope",
        "reports topics that deduplicate across groups",
        misreport(without_attribute("FifoThroughputScope"), TOPIC_ATTRIBUTES),
    ),
    Saboteur(
        "hide-subscription",
        "lists all subscriptions but the last",
        misreport(lambda parsed: parsed["Subscriptions"].pop(), "sns.ListSubscriptionsByTopic"),
    ),
    Saboteur(
        "match-by-body",
        "reports subscriptions whose filter looks at the body",
        misreport(_of_subscription(FilterPolicyScope="MessageBody"), _SUBSCRIPTION),
    ),
    Saboteur(
        "invent-filters",
        "reports subscriptions with a filter nobody declared",
        misreport(_of_subscription(FilterPolicy='{"invented": ["yes"]}'), _SUBSCRIPTION),
    ),
    Saboteur(
        "keep-pending",
        "reports subscriptions that wait for a confirmation",
        misreport(_of_subscription(PendingConfirmation="true"), _SUBSCRIPTION),
    ),
    Saboteur("share-undelivered-queue", "reports the first subscription's DLQ for all", _ShareUndeliveredQueue),
    Saboteur(
        "allow-plain-http",
        "reports policies that deny nothing",
        misreport(_rewrite_policy(_allow_plain_http), QUEUE_ATTRIBUTES, TOPIC_ATTRIBUTES),
    ),
    Saboteur(
        "allow-foreign-sources",
        "reports policies that allow without a condition",
        misreport(_rewrite_policy(_allow_foreign_sources), QUEUE_ATTRIBUTES, TOPIC_ATTRIBUTES),
    ),
    Saboteur(
        "mute-alarms",
        "reports alarms that tell nobody",
        misreport(of_each("MetricAlarms", lambda alarm: alarm.update(AlarmActions=[])), "cloudwatch.DescribeAlarms"),
    ),
    Saboteur(
        "misdirect-expressions",
        "reports alarms computed of another queue's and service's metrics",
        misreport(of_each("MetricAlarms", _misdirect), "cloudwatch.DescribeAlarms"),
    ),
    Saboteur(
        "tell-without-data",
        "reports alarms that also tell when there is no data",
        misreport(of_each("MetricAlarms", _tell_without_data), "cloudwatch.DescribeAlarms"),
    ),
    Saboteur(
        "raise-thresholds",
        "reports alarms that ring later",
        misreport(of_each("MetricAlarms", _raise_threshold), "cloudwatch.DescribeAlarms"),
    ),
)
