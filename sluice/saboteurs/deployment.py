"""Saboteurs of a deployed environment: they falsify what AWS reports of its queues, topics, policies and alarms."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

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


_FUNCTION, _MAPPINGS = "lambda.GetFunction", "lambda.ListEventSourceMappings"


def _of_functions(**values: Any) -> Callable[[int], Hook]:
    """Return a factory of hooks that report these values in the configuration of every function."""
    return misreport(lambda parsed: parsed["Configuration"].update(values), _FUNCTION)


def _of_mappings(**values: Any) -> Callable[[int], Hook]:
    """Return a factory of hooks that report these settings of every event source mapping."""
    return misreport(of_each("EventSourceMappings", lambda mapping: mapping.update(values)), _MAPPINGS)


def _of_role_policies(edit: Edit) -> Callable[[int], Hook]:
    """Return a factory of hooks that edit each statement of a reported role's policy, which is quoted JSON so far."""

    def rewrite(parsed: dict[str, Any]) -> None:
        policy = json.loads(unquote(parsed["PolicyDocument"]))
        of_each("Statement", edit)(policy)
        parsed["PolicyDocument"] = quote(json.dumps(policy))

    return misreport(rewrite, "iam.GetRolePolicy")


def _allow_every_resource(statement: dict[str, Any]) -> None:
    if statement["Effect"] == "Allow":
        statement["Resource"] = "*"


def _deny_nothing(statement: dict[str, Any]) -> None:
    statement["Effect"] = "Allow"


def _invite_everybody(parsed: dict[str, Any]) -> None:
    policy = json.loads(parsed["Policy"])
    for statement in policy["Statement"]:
        statement["Principal"] = "*"
        statement.pop("Condition", None)
    parsed["Policy"] = json.dumps(policy)


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
    "shrink-functions": Saboteur("reports functions with the least memory", _of_functions(MemorySize=128)),
    "hurry-functions": Saboteur("reports functions with a second of time", _of_functions(Timeout=1)),
    "empty-function-variables": Saboteur("reports functions without variables", _of_functions(Environment={})),
    "expose-functions": Saboteur("reports functions outside of the network", _of_functions(VpcConfig={})),
    "hide-mappings": Saboteur(
        "lists no event source mappings", misreport(lambda parsed: parsed["EventSourceMappings"].clear(), _MAPPINGS)
    ),
    "grow-live-batches": Saboteur("reports mappings with batches of eleven", _of_mappings(BatchSize=11)),
    "stop-live-mappings": Saboteur("reports mappings that are disabled", _of_mappings(State="Disabled")),
    "drop-live-failure-reports": Saboteur(
        "reports mappings that read no answers", _of_mappings(FunctionResponseTypes=[])
    ),
    "delay-live-batches": Saboteur(
        "reports mappings with a batching window", _of_mappings(MaximumBatchingWindowInSeconds=5)
    ),
    "hide-schedules": Saboteur(
        "lists no rules of a function",
        misreport(lambda parsed: parsed["RuleNames"].clear(), "events.ListRuleNamesByTarget"),
    ),
    "stop-schedules": Saboteur(
        "reports rules that are disabled",
        misreport(lambda parsed: parsed.update(State="DISABLED"), "events.DescribeRule"),
    ),
    "change-scheduled-events": Saboteur(
        "reports rules with an empty event",
        misreport(of_each("Targets", lambda target: target.update(Input="{}")), "events.ListTargetsByRule"),
    ),
    "widen-function-roles": Saboteur(
        "reports roles that may use every resource", _of_role_policies(_allow_every_resource)
    ),
    "permit-everything-denied": Saboteur("reports roles that are denied nothing", _of_role_policies(_deny_nothing)),
    "open-functions": Saboteur(
        "reports functions that anybody invokes", misreport(_invite_everybody, "lambda.GetPolicy")
    ),
}
