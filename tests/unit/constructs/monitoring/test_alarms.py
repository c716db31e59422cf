"""Alarms tell operators that something is wrong, and what to do."""

import io
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from sluice.clock import VirtualClock
from sluice.declaration import metrics
from sluice.messaging.telemetry.metrics import EmbeddedMetrics
from tests.support.templates.environments import FULL, MIXED, REDRIVEN
from tests.support.templates.resources import OBSERVABILITY, Resource, StackTemplates, of_kind, outputs, resources
from tests.unit.constructs.expectations import of_queue, of_service
from tools.generate import DOCS

ALARM = "AWS::CloudWatch::Alarm"
TOPIC, TOPIC_POLICY, SUBSCRIPTION = "AWS::SNS::Topic", "AWS::SNS::TopicPolicy", "AWS::SNS::Subscription"


def _watching(found: list[Resource]) -> list[Resource]:
    return [resource for resource in found if resource.stack == OBSERVABILITY]


OPERATORS = ["Ref(sluice-full-operators)"]
TOPIC_NAME, OUTBOX = {"TopicName": "sluice-full-orders.fifo"}, {"Topic": "sluice-full-orders.fifo"}
LEDGER, LEDGER_DLQ, LEDGER_UNDELIVERED = (
    {"QueueName": f"sluice-full-ledger{kind}.fifo"} for kind in ("", "-dlq", "-undelivered-dlq")
)
RELAY = {"ClusterName": "sluice-full", "ServiceName": "sluice-full-relay"}
DATABASE = {"DBClusterIdentifier": "sluice-full", "Role": "WRITER"}
WORKERS = {"ClusterName": "sluice-full", "ServiceName": "sluice-full-ledger"}
NIGHT_BATCH = {"Queue": "sluice-full-night-batch.fifo"}
FIRST, TOO_MUCH = "GreaterThanOrEqualToThreshold", "GreaterThanThreshold"
# What SNS counts is not reported while there is nothing to count, a queue nobody touches reports nothing whatever it
# holds, and a relay always reports: for it a gap is the failure itself.
FINE, UNCHANGED, FAILURE = "notBreaching", "ignore", "breaching"


def _alarm(
    name: str,
    description: str,
    *,
    threshold: float,
    operator: str = FIRST,
    minutes: tuple[int, int] = (1, 1),
    gap: str,
    **watched: Any,
) -> dict[str, Any]:
    return {
        "AlarmName": name,
        "AlarmDescription": description,
        "Threshold": threshold,
        "ComparisonOperator": operator,
        "DatapointsToAlarm": minutes[0],
        "EvaluationPeriods": minutes[1],
        "TreatMissingData": gap,
        "AlarmActions": OPERATORS,
        "OKActions": OPERATORS,
        **watched,
    }


def _of(namespace: str, metric: str, dimensions: dict[str, str], statistic: str = "Maximum") -> dict[str, Any]:
    return {
        "Namespace": namespace,
        "MetricName": metric,
        "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
        "Statistic": statistic,
        "Period": 60,
    }


def _math(label: str, expression: str, *metrics: str) -> dict[str, Any]:
    evaluated = {"Id": "expr_1", "Label": label, "Expression": expression, "ReturnData": True}
    queries = [of_queue(metric, "sluice-full-ledger.fifo", Period=60) for metric in metrics]
    return {"Metrics": [evaluated, *queries, of_service("sluice-full", "sluice-full-ledger", Period=60)]}


@pytest.mark.parametrize(
    "alarm",
    [
        _alarm(
            "sluice-full-topic-failed",
            "SNS could not deliver to a queue. See which undelivered DLQ fills, then its queue's policy and key.",
            **_of("AWS/SNS", "NumberOfNotificationsFailed", TOPIC_NAME, "Sum"),
            threshold=1,
            gap=FINE,
        ),
        _alarm(
            "sluice-full-topic-lost",
            "Messages are lost: SNS could neither deliver them nor put them into the undelivered DLQ."
            " Publish them again; consumers that had them need an inbox.",
            **_of("AWS/SNS", "NumberOfNotificationsFailedToRedriveToDlq", TOPIC_NAME, "Sum"),
            threshold=1,
            gap=FINE,
        ),
        _alarm(
            "sluice-full-relay-lagging",
            "A committed message has waited longer than 90 s to be published, or no relay leads. See"
            " the relay's log: SNS refuses, the database does not answer, no task starts, or a message is quarantined.",
            **_of("Sluice", "OutboxLag", OUTBOX),
            threshold=90,
            operator=TOO_MUCH,
            minutes=(3, 5),
            gap=FAILURE,
        ),
        _alarm(  # without a relay the lag rings
            "sluice-full-relay-quarantined",
            "SNS refuses a message as it is, and its group waits behind it. See `sluice"
            " outbox ls`, mend what refuses it, then unquarantine or skip it.",
            **_of("Sluice", "OutboxQuarantined", OUTBOX),
            threshold=1,
            gap=FINE,
        ),
        _alarm(
            "sluice-full-relay-alone",
            "Fewer than 2 relays have run for 15 minutes, so nobody takes over when the last one fails. See the events"
            " of its ECS service, and its log.",
            **_of("ECS/ContainerInsights", "RunningTaskCount", RELAY, "Average"),
            threshold=2,
            operator="LessThanThreshold",
            minutes=(15, 15),
            gap=FAILURE,
        ),
        _alarm(
            "sluice-full-database-full",
            "The database has used more than 90 % of max_acus for 15 minutes. Raise max_acus, or find what takes so"
            " much.",
            **_of("AWS/RDS", "ACUUtilization", DATABASE),
            threshold=90,
            operator=TOO_MUCH,
            minutes=(15, 15),
            gap=FINE,
        ),
        _alarm(  # at 0 ACUs at least 2,000, whatever the most is
            "sluice-full-database-connections",
            "More than 80% of the 2000 connections are open that the database takes. See who holds them in"
            " pg_stat_activity; raise max_acus, or lower max_tasks.",
            **_of("AWS/RDS", "DatabaseConnections", DATABASE),
            threshold=1_600,
            operator=TOO_MUCH,
            minutes=(15, 15),
            gap=FINE,
        ),
        _alarm(
            "sluice-full-database-wraparound",
            "Half of the transaction ids are used that Postgres has before it refuses to write. Find what keeps"
            " vacuum: a transaction, a prepared transaction or a replication slot that is old.",
            **_of("AWS/RDS", "MaximumUsedTransactionIDs", DATABASE),
            threshold=1_000_000_000,
            operator=TOO_MUCH,
            minutes=(15, 15),
            gap=FINE,
        ),
        _alarm(
            "sluice-full-ledger-short",
            "Fewer than 2 tasks have run for 15 minutes. See the events of its ECS service, and the log of"
            " apply_schema: tasks do not start, or end at once.",
            **_of("ECS/ContainerInsights", "RunningTaskCount", WORKERS, "Average"),
            threshold=2,
            operator="LessThanThreshold",
            minutes=(15, 15),
            gap=FAILURE,
        ),
        _alarm(
            "sluice-full-ledger-dead-letters",
            "A message failed 7 times. Inspect it, fix the cause, redrive it.",
            **_of("AWS/SQS", "ApproximateNumberOfMessagesVisible", LEDGER_DLQ),
            threshold=1,
            gap=UNCHANGED,
        ),
        _alarm(
            "sluice-full-ledger-undelivered",
            "SNS could not deliver a message to the queue: its policy or its key is wrong. Fix it, then"
            " send these messages to that queue.",
            **_of("AWS/SQS", "ApproximateNumberOfMessagesVisible", LEDGER_UNDELIVERED),
            threshold=1,
            gap=UNCHANGED,
        ),
        _alarm(  # acceptable are 300 s
            "sluice-full-ledger-late",
            "A message has waited longer than 300 s. See `sluice status` and the dashboard: a pause, failing tasks, too"
            " few tasks, or a stuck group.",
            **_of("AWS/SQS", "ApproximateAgeOfOldestMessage", LEDGER),
            threshold=300,
            operator=TOO_MUCH,
            minutes=(3, 5),
            gap=UNCHANGED,
        ),
        _alarm(
            "sluice-full-ledger-expiring",
            "A message has waited half of the 7200 s after which SQS deletes it, also during a pause.",
            **_of("AWS/SQS", "ApproximateAgeOfOldestMessage", LEDGER),
            threshold=3_600,
            gap=UNCHANGED,
        ),
        _alarm(  # fewer in flight than nine tenths of 8 lanes x 2.5 s / 2.75 s a task
            "sluice-full-ledger-stuck",
            "The oldest message is late though tasks are idle: its group is blocked by a failing or slow message, or"
            " holds most of the load; or the consumer is paused, see `sluice status`. More tasks do not help.",
            **_math(
                "late while lanes are idle",
                "IF(((FILL(age, REPEAT) > 300)"
                " AND (FILL(inflight, REPEAT) < (FILL(FILL(running, REPEAT), 0) * 6.54546))), 1, 0)",
                "inflight",
                "age",
            ),
            threshold=1,
            minutes=(8, 10),
            gap=UNCHANGED,
        ),
        _alarm(  # all 8 tasks, more than 960 messages in front of each, and hardly an idle lane
            "sluice-full-ledger-pinned",
            "All 8 tasks have had more than they can do in time for 15 minutes. Raise max_tasks, or"
            " make the handler faster.",
            **_math(
                "behind with all tasks at work",
                "IF(((FILL(FILL(running, REPEAT), 0) >= 8) AND (IF((FILL(FILL(running, REPEAT), 0) > 0),"
                " ((FILL(visible, REPEAT) + FILL(inflight, REPEAT)) / FILL(FILL(running, REPEAT), 0)),"
                " (FILL(visible, REPEAT) + FILL(inflight, REPEAT))) > 960)),"
                " IF((FILL(inflight, REPEAT) < (FILL(FILL(running, REPEAT), 0) * 6.54546)), 0, 1), 0)",
                "visible",
                "inflight",
            ),
            threshold=1,
            minutes=(15, 15),
            gap=UNCHANGED,
        ),
        _alarm(
            "sluice-full-night-batch-parked",
            "A group has been parked for 10 minutes: a message is missing, dead or held, and what follows it is set"
            " aside. See `sluice dlq ls`, then redrive, replace, retry or skip it.",
            **_of("Sluice", "InboxParkedGroups", NIGHT_BATCH),
            threshold=1,
            minutes=(10, 10),
            gap=UNCHANGED,
        ),
    ],
    ids=lambda alarm: alarm["AlarmName"],
)
def test_an_alarm_rings_when_it_is_to_and_says_what_to_do(full: list[Resource], alarm: dict[str, Any]) -> None:
    """All properties of an alarm, in the environment whose every number differs from its default."""
    assert of_kind(_watching(full), ALARM)[alarm["AlarmName"]] == alarm


def test_alarms_read_the_metrics_that_the_relay_writes(full: list[Resource]) -> None:
    """Namespace, names and dimensions of a line of the relay's log, which nobody else holds together."""
    alarms = of_kind(_watching(full), ALARM)
    log = io.StringIO()
    measured = EmbeddedMetrics(log, metrics.dimensions(FULL), clock=VirtualClock())

    measured.put(dict.fromkeys(metrics.UNITS, 1.0))

    line = json.loads(log.getvalue())
    (written,) = line["_aws"]["CloudWatchMetrics"]
    read = [alarms[f"sluice-full-relay-{condition}"] for condition in ("lagging", "quarantined")]
    assert {entry["Namespace"] for entry in read} == {written["Namespace"]}
    assert {entry["MetricName"] for entry in read} <= {metric["Name"] for metric in written["Metrics"]}
    for result in read:
        assert result["Dimensions"] == [{"Name": name, "Value": line[name]} for (name,) in written["Dimensions"]]


@pytest.mark.parametrize(
    ("name", "account", "key"),
    [
        ("local", "000000000000", {}),
        ("dev", "<AWS::AccountId>", {}),
        ("staging", "<AWS::AccountId>", {"KmsMasterKeyId": "Arn(FanoutKeysTopic)"}),
        ("prod", "<AWS::AccountId>", {"KmsMasterKeyId": "Arn(FanoutKeysTopic)"}),
        ("full", "111122223333", {"KmsMasterKeyId": "Arn(FanoutKeysTopic)"}),
    ],
)
def test_only_this_accounts_alarms_publish_to_the_standard_topic_of_alarms(
    by_environment: Mapping[str, list[Resource]], name: str, account: str, key: dict[str, str]
) -> None:
    """CloudWatch does not publish to FIFO topics; its policy is whole here, TLS included."""
    found = _watching(by_environment[name])

    topic = f"Ref(sluice-{name}-operators)"
    assert of_kind(found, TOPIC) == {f"sluice-{name}-operators": {"TopicName": f"sluice-{name}-operators", **key}}
    assert of_kind(found, TOPIC_POLICY) == {
        "OperatorsTopicPolicy": {
            "Topics": [topic],
            "PolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Sid": "AllowPublishThroughSSLOnly",
                        "Effect": "Deny",
                        "Action": "sns:Publish",
                        "Principal": "*",
                        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                        "Resource": topic,
                    },
                    {
                        "Sid": "AllowAlarms",
                        "Effect": "Allow",
                        "Action": "sns:Publish",
                        "Principal": {"Service": "cloudwatch.amazonaws.com"},
                        "Condition": {"StringEquals": {"aws:SourceAccount": account}},
                        "Resource": topic,
                    },
                ],
            },
        }
    }


def test_the_operator_topic_tells_each_declared_address(
    by_environment: Mapping[str, list[Resource]], full: list[Resource]
) -> None:
    """Without declared addresses the topic has no subscription."""
    topic = "Ref(sluice-full-operators)"
    subscriptions = of_kind(_watching(full), SUBSCRIPTION).values()
    elsewhere = [of_kind(_watching(found), SUBSCRIPTION) for name, found in by_environment.items() if name != "full"]

    assert list(subscriptions) == [
        {"Protocol": "email", "Endpoint": "ops@example.com", "TopicArn": topic},
        {"Protocol": "email", "Endpoint": "lead@example.com", "TopicArn": topic},
        {"Protocol": "https", "Endpoint": FULL.alarm_urls[0], "TopicArn": topic},
    ]
    (slack,) = of_kind(full, "AWS::Chatbot::SlackChannelConfiguration").values()
    assert slack["SlackWorkspaceId"] == "T01234ABCDE"
    assert slack["SlackChannelId"] == "C01234ABCDE"
    assert slack["SnsTopicArns"] == [topic]
    assert not any(elsewhere)


def test_an_existing_topic_is_told_in_place_of_one_of_ours(hosted_resources: list[Resource]) -> None:
    """All alarms publish to it, and the environment has no operator topic."""
    watching = _watching(hosted_resources)

    alarms = of_kind(watching, ALARM).values()
    assert {arn for alarm in alarms for arn in (*alarm["AlarmActions"], *alarm["OKActions"])} == {
        "arn:aws:sns:us-east-1:111122223333:on-call"
    }
    assert of_kind(watching, TOPIC) == {}


def test_the_operator_topic_is_told_as_an_output(stacks: Mapping[str, StackTemplates]) -> None:
    """Operators need its ARN to subscribe other endpoints than e-mail."""
    found = outputs(stacks["prod"][OBSERVABILITY].template)

    assert found == {"OperatorTopicArn": "Ref(sluice-prod-operators)"}


def test_every_alarm_is_explained_on_the_page(
    by_environment: Mapping[str, list[Resource]], edited_stacks: Mapping[str, StackTemplates]
) -> None:
    """The table in docs/architecture/stacks.md names each alarm.

    The list under it names no alarm that does not exist.
    """
    page = (DOCS / "architecture" / "stacks.md").read_text(encoding="utf-8")
    every = (*by_environment.values(), *(resources(edited_stacks[name]) for name in (REDRIVEN, MIXED)))
    names = {name for found in every for name in of_kind(found, ALARM)}
    consumers = "billing|shipping|audit|ledger|night-batch|search"
    subject = rf"sluice-[a-z]+-(?:(?:topic|relay|verdict)(?:-(?:payments|stock))?|database|{consumers})-"

    conditions = {re.sub(subject, "", name) for name in names}
    row = r"^\| `sluice-ENV-(?:topic|relay|verdict|database|CONSUMER)-([a-z-]+)` \|.*\| [A-Z][^|]{20,}\. \|$"
    rows = re.findall(row, page, flags=re.MULTILINE)
    paragraphs = re.findall(r"^- \*\*([a-z-]+)\*\*: ", page, flags=re.MULTILINE)
    assert sorted(rows) == sorted(conditions)
    assert len(paragraphs) == len({*paragraphs} & conditions) > 10
