"""Saboteurs of a deployed environment: they falsify what AWS reports of its queues, topics, policies and alarms."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.saboteurs.base import (
    QUEUE_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    Edit,
    Hook,
    Saboteur,
    conceal,
    misreport,
    of_each,
    report,
)

_SUBSCRIPTION = "sns.GetSubscriptionAttributes"


class _ShareUndeliveredQueue(Hook):
    """Reports the DLQ of the first subscription for all later ones."""

    operations = (_SUBSCRIPTION,)

    def begin(self) -> None:
        """Begin without a remembered policy. `Hook.__init__` calls this, so a hook sets its attributes here."""
        self._first_redrive_policy: str | None = None

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        """Remember the redrive policy of the first subscription, and report it for every later one."""
        if self._first_redrive_policy is None:
            self._first_redrive_policy = parsed["Attributes"]["RedrivePolicy"]
        parsed["Attributes"]["RedrivePolicy"] = self._first_redrive_policy


def _rewrite_policy(rewrite: Edit) -> Edit:
    """Return an edit that applies `rewrite` to the parsed resource policy of a reported queue or topic."""

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


def _of_alarms(edit: Edit) -> Callable[[int], Hook]:
    """Return a factory of hooks that edit every reported alarm."""
    return misreport(of_each("MetricAlarms", edit), "cloudwatch.DescribeAlarms")


def _misdirect(alarm: dict[str, Any]) -> None:
    for query in alarm.get("Metrics", []):
        for dimension in query.get("MetricStat", {}).get("Metric", {}).get("Dimensions", []):
            dimension["Value"] += "-other"


def _misspell(alarm: dict[str, Any]) -> None:
    for query in alarm.get("Metrics", []):
        if "Expression" in query:
            query["Expression"] += " + misspelt"


def _tell_without_data(alarm: dict[str, Any]) -> None:
    alarm["InsufficientDataActions"] = alarm.get("AlarmActions", [])


def _raise_threshold(alarm: dict[str, Any]) -> None:
    alarm["Threshold"] += 1


SABOTEURS = {
    "lose-redrive-policy": Saboteur(
        "reports queues without their redrive policy", conceal(QUEUE_ATTRIBUTES, "RedrivePolicy")
    ),
    "lose-encryption": Saboteur(
        "reports queues without their encryption", conceal(QUEUE_ATTRIBUTES, "SqsManagedSseEnabled", "KmsMasterKeyId")
    ),
    "shorten-retention": Saboteur(
        "reports queues that keep messages for a minute", report(QUEUE_ATTRIBUTES, MessageRetentionPeriod="60")
    ),
    "widen-topic-scope": Saboteur(
        "reports topics that deduplicate across groups", conceal(TOPIC_ATTRIBUTES, "FifoThroughputScope")
    ),
    "hide-subscription": Saboteur(
        "lists all subscriptions but the last",
        misreport(lambda parsed: parsed["Subscriptions"].pop(), "sns.ListSubscriptionsByTopic"),
    ),
    "match-by-body": Saboteur(
        "reports subscriptions whose filter looks at the body", report(_SUBSCRIPTION, FilterPolicyScope="MessageBody")
    ),
    "invent-filters": Saboteur(
        "reports subscriptions with a filter nobody declared",
        report(_SUBSCRIPTION, FilterPolicy='{"invented": ["yes"]}'),
    ),
    "keep-pending": Saboteur(
        "reports subscriptions that wait for a confirmation", report(_SUBSCRIPTION, PendingConfirmation="true")
    ),
    "share-undelivered-queue": Saboteur("reports the first subscription's DLQ for all", _ShareUndeliveredQueue),
    "allow-plain-http": Saboteur(
        "reports policies that deny nothing",
        misreport(_rewrite_policy(_allow_plain_http), QUEUE_ATTRIBUTES, TOPIC_ATTRIBUTES),
    ),
    "allow-foreign-sources": Saboteur(
        "reports policies that allow without a condition",
        misreport(_rewrite_policy(_allow_foreign_sources), QUEUE_ATTRIBUTES, TOPIC_ATTRIBUTES),
    ),
    "mute-alarms": Saboteur("reports alarms that tell nobody", _of_alarms(lambda alarm: alarm.update(AlarmActions=[]))),
    "misdirect-expressions": Saboteur(
        "reports alarms computed of another queue's and service's metrics", _of_alarms(_misdirect)
    ),
    "misspell-expressions": Saboteur(
        "reports alarms computed of a metric that they do not name", _of_alarms(_misspell)
    ),
    "tell-without-data": Saboteur(
        "reports alarms that also tell when there is no data", _of_alarms(_tell_without_data)
    ),
    "raise-thresholds": Saboteur("reports alarms that ring later", _of_alarms(_raise_threshold)),
}
