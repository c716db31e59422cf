"""A deployed environment is as declared, and its alarm about a poison message reaches an operator.

The expected values are made from the declaration, not from the stacks. LocalStack enforces no policies, so the tests
read and evaluate them (`sluice/simulator/model/policies.py`).
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import dropwhile
from typing import Any

import pytest

from contract_tests.deployment import expressions
from contract_tests.deployment.environment import DeployedEnvironment
from contract_tests.resources import NotArrangedError, QueueUnderTest, Resources, TopicUnderTest, bodies
from contract_tests.targets.binding import Target
from sluice.clock import NotReachedError, eventually
from sluice.declaration import Encryption, ExistingTopic, Removal, naming
from sluice.declaration import Topic as DeclaredTopic
from sluice.declaration.alarms import Alarm, Hearer, alarms
from sluice.declaration.watched_metrics import Expression, WatchedMetric
from sluice.limits import FIFO_SUFFIX, MESSAGE_BYTES_MAX
from sluice.simulator.model.policies import PolicyDecision, PolicyRequest, decide

pytestmark = pytest.mark.deployment

_ALARM_SECONDS = 200  # LocalStack evaluates alarms once a minute, unless this run started it
_QUIET_SECONDS = 300  # LocalStack evaluates three minutes' data points, where AWS would evaluate one
_SECURE = {"aws:securetransport": "true"}
_STRANGER = "arn:aws:iam::999999999999:user/stranger"


def _expected_encryption(deployment: DeployedEnvironment) -> dict[str, str]:
    """Return the queue attributes about encryption that the declaration calls for."""
    if deployment.environment.encryption is Encryption.SQS_MANAGED:
        return {"SqsManagedSseEnabled": "true"}
    return {"KmsMasterKeyId": deployment.key_id("queues")}


def _live_queue(deployment: DeployedEnvironment, name: str) -> dict[str, Any]:
    """Return a queue's live attributes without its policy; redrive policies are parsed JSON."""
    attributes: dict[str, Any] = deployment.queue_attributes(name)
    del attributes["Policy"]
    for document in ("RedrivePolicy", "RedriveAllowPolicy"):
        if document in attributes:
            attributes[document] = json.loads(attributes[document])
    if "KmsMasterKeyId" in attributes:
        attributes["KmsMasterKeyId"] = attributes["KmsMasterKeyId"].rpartition("/")[2]
        # With a key AWS returns false and 300 seconds for these; LocalStack returns true for one, and not the other.
        attributes.pop("SqsManagedSseEnabled", None)
        attributes.pop("KmsDataKeyReusePeriodSeconds", None)
    return attributes


_HIGH_THROUGHPUT = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}


def _expected_queue(
    deployment: DeployedEnvironment, name: str, *, retention_seconds: int, bytes_max: int = MESSAGE_BYTES_MAX
) -> dict[str, Any]:
    """Return the expected attributes of a queue; the caller replaces those that differ for a consumer's queue."""
    return (
        (_HIGH_THROUGHPUT if name.endswith(FIFO_SUFFIX) else {})
        | {
            "QueueArn": deployment.queue_arn(name),
            "MessageRetentionPeriod": str(retention_seconds),
            "MaximumMessageSize": str(bytes_max),
            "DelaySeconds": "0",
            "VisibilityTimeout": "30",
            "ReceiveMessageWaitTimeSeconds": "0",
        }
        | _expected_encryption(deployment)
    )


@pytest.mark.promise("STK-01")
def test_every_queue_is_live_as_declared(deployment: DeployedEnvironment) -> None:
    environment = deployment.environment
    expected = {}
    for consumer in environment.consumers:
        name = naming.queue_name(environment, consumer)
        dead_letters = naming.dead_letter_queue_name(environment, consumer)
        undelivered = naming.undelivered_queue_name(environment, consumer)
        kept_seconds = consumer.dead_letter_retention_seconds
        expected[undelivered] = _expected_queue(deployment, undelivered, retention_seconds=kept_seconds)
        if consumer.queue is not None:  # an existing queue and its DLQ are configured by their owner
            continue
        expected[name] = _expected_queue(
            deployment,
            name,
            retention_seconds=consumer.message_retention_seconds,
            bytes_max=environment.event_bytes_max,
        ) | {
            "VisibilityTimeout": str(consumer.visibility_timeout_seconds),
            "ReceiveMessageWaitTimeSeconds": "20",
            "RedrivePolicy": {
                "deadLetterTargetArn": deployment.queue_arn(dead_letters),
                "maxReceiveCount": environment.max_receive_count(consumer),
            },
        }
        expected[dead_letters] = _expected_queue(deployment, dead_letters, retention_seconds=kept_seconds) | {
            "RedriveAllowPolicy": {"redrivePermission": "byQueue", "sourceQueueArns": [deployment.queue_arn(name)]}
        }

    seen = {name: _live_queue(deployment, name) for name in expected}

    assert seen == expected


@pytest.mark.promise("STK-02")
def test_every_topic_is_live_as_declared(deployment: DeployedEnvironment) -> None:
    seen = {arn: _live_topic(deployment, arn) for arn in deployment.own_topics}

    assert seen == {arn: _expected_topic(deployment, arn) for arn in deployment.own_topics}


def _expected_topic(deployment: DeployedEnvironment, arn: str) -> dict[str, str]:
    """Return the expected attributes of a topic."""
    environment = deployment.environment
    expected = {
        "TopicArn": arn,
        "Owner": deployment.account,
        "DisplayName": "",
        "FifoTopic": "true",
        "ContentBasedDeduplication": "false",
        "FifoThroughputScope": "MessageGroup",
        "MaximumMessageSize": str(environment.event_bytes_max),
    }
    if environment.archive_days is not None:
        expected["ArchivePolicy"] = json.dumps({"MessageRetentionPeriod": str(environment.archive_days)})
    if environment.encryption is Encryption.CMK:
        expected["KmsMasterKeyId"] = deployment.key_id("topic")
    return expected


def _live_topic(deployment: DeployedEnvironment, arn: str) -> dict[str, str]:
    """Return a topic's live attributes, without its policy, counts and computed values."""
    seen = deployment.topic_attributes(arn)
    volatile = ("Policy", "EffectiveDeliveryPolicy", "BeginningArchiveTime")
    counts = ("SubscriptionsConfirmed", "SubscriptionsDeleted", "SubscriptionsPending")
    configured = {key: value for key, value in seen.items() if key not in (*volatile, *counts)}
    if "KmsMasterKeyId" in configured:
        configured["KmsMasterKeyId"] = configured["KmsMasterKeyId"].rpartition("/")[2]
    if "ArchivePolicy" in configured:
        configured["ArchivePolicy"] = json.dumps(json.loads(configured["ArchivePolicy"]))
    return configured


@pytest.mark.promise("STK-03")
def test_every_queue_is_subscribed_as_declared_and_nothing_else_is(deployment: DeployedEnvironment) -> None:
    """Other subscriptions are allowed only to existing topics, and from accounts that are declared as subscribers."""
    environment = deployment.environment
    expected, seen = {}, {}
    for topic in environment.topics:
        arn = naming.topic_arn(environment, deployment.account, topic.name)
        declared = _expected_subscriptions(deployment, topic)
        accounts = topic.subscriber_accounts if isinstance(topic, DeclaredTopic) else ()
        expected[arn] = declared
        seen[arn] = {
            endpoint: _live_subscription(attributes)
            for endpoint, attributes in deployment.subscriptions(arn).items()
            if endpoint in declared or not (isinstance(topic, ExistingTopic) or endpoint.split(":")[4] in accounts)
        }

    assert seen == expected


def _expected_subscriptions(deployment: DeployedEnvironment, topic: DeclaredTopic | ExistingTopic) -> dict[str, Any]:
    """Return the expected subscriptions of a topic, by the ARN of the consumer's queue."""
    environment = deployment.environment
    expected = {}
    for consumer in environment.consumers_of(topic):
        undelivered = deployment.queue_arn(naming.undelivered_queue_name(environment, consumer))
        expected[deployment.queue_arn(naming.queue_name(environment, consumer))] = {
            "Protocol": "sqs",
            "RawMessageDelivery": "true",
            "RedrivePolicy": {"deadLetterTargetArn": undelivered},
            "FilterPolicy": json.loads(json.dumps(consumer.filter_policy)),
            "FilterPolicyScope": "MessageAttributes",
            "PendingConfirmation": "false",
        }

    return expected


def _live_subscription(attributes: dict[str, str]) -> dict[str, Any]:
    """Return a live subscription's attributes as `_expected_subscriptions` has the expected ones."""
    return {
        "Protocol": attributes["Protocol"],
        "RawMessageDelivery": attributes["RawMessageDelivery"],
        "RedrivePolicy": json.loads(attributes.get("RedrivePolicy", "null")),
        "FilterPolicy": json.loads(attributes.get("FilterPolicy", "null")),
        "FilterPolicyScope": attributes.get("FilterPolicyScope", "MessageAttributes"),
        "PendingConfirmation": attributes["PendingConfirmation"],
    }


def _decisions(policy: dict[str, Any], *, action: str, resource: str, service: str, own: dict[str, str]) -> Any:
    """Return a policy's decision about each caller, by words for the caller.

    The callers are an AWS service on our behalf (in the context `own`), on behalf of a stranger's topic, on nobody's
    behalf; and a stranger.
    """

    def decision_for(principal: str, context: dict[str, str]) -> PolicyDecision:
        return decide(policy, PolicyRequest(principal=principal, action=action, resource=resource, context=context))

    foreign = {"aws:sourcearn": "arn:aws:sns:us-east-1:999999999999:theirs.fifo", "aws:sourceaccount": "999999999999"}
    plain = {"aws:securetransport": "false"}
    return {
        "on our behalf": decision_for(service, own | _SECURE),
        "on a stranger's behalf": decision_for(service, foreign | _SECURE),
        "on nobody's behalf": decision_for(service, _SECURE),
        "on our behalf without TLS": decision_for(service, own | plain),
        "a stranger": decision_for(_STRANGER, _SECURE),
        "a stranger without TLS": decision_for(_STRANGER, plain),
    }


_OWN_SERVICE_ALLOWED = {
    "on our behalf": PolicyDecision.ALLOW,
    "on a stranger's behalf": PolicyDecision.NOT_STATED,
    "on nobody's behalf": PolicyDecision.NOT_STATED,
    "on our behalf without TLS": PolicyDecision.DENY,
    "a stranger": PolicyDecision.NOT_STATED,
    "a stranger without TLS": PolicyDecision.DENY,
}
_NO_CALLER_ALLOWED = _OWN_SERVICE_ALLOWED | {"on our behalf": PolicyDecision.NOT_STATED}


@pytest.mark.promise("STK-04")
def test_policies_let_in_the_topic_and_alarms_and_nobody_else(deployment: DeployedEnvironment) -> None:
    environment = deployment.environment
    expected, seen = {}, {}
    for consumer in environment.consumers:
        of_consumer = {
            naming.queue_name(environment, consumer): _OWN_SERVICE_ALLOWED,
            naming.dead_letter_queue_name(environment, consumer): _NO_CALLER_ALLOWED,
        }
        own = {} if consumer.queue is not None else of_consumer
        for name, decisions in {
            **own,
            naming.undelivered_queue_name(environment, consumer): _OWN_SERVICE_ALLOWED,
        }.items():
            expected[name] = decisions
            seen[name] = _decisions(
                json.loads(deployment.queue_attributes(name)["Policy"]),
                action="sqs:SendMessage",
                resource=deployment.queue_arn(name),
                service="sns.amazonaws.com",
                own={"aws:sourcearn": naming.topic_arn(environment, deployment.account, consumer.topic)},
            )
    topics = dict.fromkeys(deployment.own_topics, _NO_CALLER_ALLOWED)
    if deployment.environment.alarm_topic_arn is None:  # the policy of an existing topic is up to its owner
        topics[deployment.operator_topic_arn] = _OWN_SERVICE_ALLOWED
    for arn, decisions in topics.items():
        expected[arn] = decisions
        seen[arn] = _decisions(
            json.loads(deployment.topic_attributes(arn)["Policy"]),
            action="sns:Publish",
            resource=arn,
            service="cloudwatch.amazonaws.com",
            own={"aws:sourceaccount": deployment.account},
        )

    assert seen == expected


def _expected_alarm(alarm: Alarm) -> dict[str, Any]:
    """Return a declared alarm with the fields that `_flatten_alarm` gives a deployed alarm."""
    if isinstance(alarm.watches, Expression):
        inputs = {id_: _expected_metric(metric) for id_, metric in alarm.watches.metrics.items()}
        watches: dict[str, Any] = {"Expression": alarm.watches.text, "Inputs": inputs}
    else:
        watches = _expected_metric(alarm.watches)
    return watches | {
        "AlarmDescription": alarm.description,
        "DatapointsToAlarm": alarm.minutes,
        "EvaluationPeriods": alarm.evaluated_minutes,
        "ComparisonOperator": alarm.comparison.value,
        "Threshold": float(alarm.threshold),
        "TreatMissingData": alarm.missing.value,
    }


def _expected_metric(metric: WatchedMetric) -> dict[str, Any]:
    """Return a declared metric with a period of one minute, as `_flatten_metric` returns a deployed one."""
    return {
        "Namespace": metric.namespace,
        "MetricName": metric.name,
        "Dimensions": dict(metric.dimensions),
        "Statistic": metric.statistic,
        "Period": 60,
    }


@pytest.mark.promise("STK-05")
def test_every_alarm_is_live_as_declared(deployment: DeployedEnvironment) -> None:
    """Only alarms for operators are compared; unit tests cover those that start a task, a rollback or a redrive."""
    declared = alarms(deployment.environment)
    expected = {alarm.name: _expected_alarm(alarm) for alarm in declared if alarm.hearer is Hearer.OPERATORS}
    others = {alarm.name for alarm in declared} - expected.keys()
    operators = [deployment.operator_topic_arn]
    notified = {"AlarmActions": operators, "OKActions": operators, "InsufficientDataActions": []}
    described = {"ActionsEnabled": True, **notified}

    live = {name: _flatten_alarm(alarm) for name, alarm in deployment.alarms().items() if name not in others}
    seen = {name: {key: live[name].get(key) for key in expected[name] | described} for name in live.keys() & expected}

    assert sorted(live) == sorted(expected)
    assert seen == {name: alarm | described for name, alarm in expected.items()}


def _flatten_alarm(alarm: dict[str, Any]) -> dict[str, Any]:
    """Return a deployed alarm with its dimensions as a dictionary, or with its expression and the metrics in that."""
    queries = alarm.get("Metrics", [])
    expressions = [query["Expression"] for query in queries if "Expression" in query]
    if not expressions:
        return alarm | {"Dimensions": _dimensions(alarm)}
    inputs = {query["Id"]: _flatten_metric(query["MetricStat"]) for query in queries if "MetricStat" in query}
    return alarm | {"Expression": "; ".join(expressions), "Inputs": inputs}


def _flatten_metric(statistic: dict[str, Any]) -> dict[str, Any]:
    """Return a metric of a deployed alarm's expression with the fields of `_expected_metric`."""
    metric = statistic["Metric"]
    return {
        "Namespace": metric["Namespace"],
        "MetricName": metric["MetricName"],
        "Dimensions": _dimensions(metric),
        "Statistic": statistic["Stat"],
        "Period": statistic["Period"],
    }


def _dimensions(metric: dict[str, Any]) -> dict[str, str]:
    return {dimension["Name"]: dimension["Value"] for dimension in metric["Dimensions"]}


@pytest.mark.promise("STK-07")
def test_every_deployed_expression_is_taken_and_answered(deployment: DeployedEnvironment, target: Target) -> None:
    """CloudWatch answers each expression; a target that computes none is replaced by CloudWatch's service model."""
    requests = expressions.of_alarms(deployment.alarms())
    parts = [part for part in naming.stack_parts(deployment.environment) if part not in ("network", "database")]
    for part in parts:
        requests |= expressions.of_template(deployment.template(part))
    model = deployment.cloudwatch.meta.service_model.operation_model("GetMetricData")
    shape = model.input_shape.members["MetricDataQueries"]

    faults = {place: [*expressions.faults(queries, shape)] for place, queries in requests.items()}
    answers = {
        place: _query_result(deployment, target, queries) for place, queries in requests.items() if not faults[place]
    }

    kinds = {place.partition(" ")[0] for place in requests}
    assert kinds == {"alarm", "scaling", "graph"}
    assert {place: found for place, found in faults.items() if found} == {}
    assert {place: answer for place, answer in answers.items() if answer not in (None, "Complete")} == {}


def _query_result(deployment: DeployedEnvironment, target: Target, queries: expressions.Queries) -> str | None:
    """Return CloudWatch's answer to queries about the last ten minutes: "Complete", or what is wrong.

    None stands for a target that computes no expressions.
    """
    if not target.computes_metrics:
        return None
    now = datetime.fromtimestamp(target.clock.now_us() / 1_000_000, UTC)
    answer = deployment.cloudwatch.get_metric_data(
        MetricDataQueries=queries, StartTime=now - timedelta(minutes=10), EndTime=now
    )
    states = {result["StatusCode"] for result in answer["MetricDataResults"]} - {"Complete", "PartialData"}
    notes = [message["Value"] for message in answer.get("Messages", [])]
    return ", ".join([*sorted(states), *notes]) or "Complete"


@pytest.fixture
def operator_inbox(deployment: DeployedEnvironment, resources: Resources, target: Target) -> Iterator[QueueUnderTest]:
    """Yield a queue for messages of the operator topic; a subscription that the test makes is removed afterwards."""
    queue = resources.standard_queue()
    yield queue
    honest = target.make_client("sns")
    subscriptions = honest.list_subscriptions_by_topic(TopicArn=deployment.operator_topic_arn)["Subscriptions"]
    for subscription in subscriptions:
        if subscription["Endpoint"] == queue.arn:
            honest.unsubscribe(SubscriptionArn=subscription["SubscriptionArn"])


def _subscribe_inbox(deployment: DeployedEnvironment, queue: QueueUnderTest) -> None:
    """Subscribe a queue to the operator topic, and wait until a published message arrives in it."""
    topic = TopicUnderTest(deployment.sns, deployment.operator_topic_arn)
    topic.subscribe(queue, raw=False)
    topic.publish("can you hear me?", group=None)
    heard = queue.await_message()
    assert json.loads(heard["Body"])["Message"] == "can you hear me?"
    queue.delete(heard)


@pytest.fixture
def poison(deployment: DeployedEnvironment, target: Target) -> Iterator[str]:
    """Yield a unique body for a poison message, which is deleted afterwards from the first consumer's queue and DLQ.

    The test receives from that queue, so the queue has to be empty and the environment one with Removal.DESTROY.
    """
    _require_idle(deployment)
    body = f"poison-{uuid.uuid4().hex}"
    yield body
    environment = deployment.environment
    honest = replace(deployment, sqs=target.make_client("sqs"))
    for name in (naming.queue_name, naming.dead_letter_queue_name):
        queue = honest.queue(name(environment, environment.consumers[0]))
        for message in queue.receive(most=10, visibility=5):
            if message["Body"] == body:
                queue.delete(message)


def _require_idle(deployment: DeployedEnvironment) -> None:
    """Refuse to run the test unless the first consumer's queue is empty and the environment may be destroyed."""
    environment = deployment.environment
    queue = deployment.queue(naming.queue_name(environment, environment.consumers[0]))
    names = [f"ApproximateNumberOfMessages{what}" for what in ("", "NotVisible", "Delayed")]
    counts = deployment.sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=names)["Attributes"]
    if environment.removal is Removal.RETAIN or any(int(count) for count in counts.values()):
        raise NotArrangedError(
            f"{queue.name} of environment {environment.name!r} (Removal.{environment.removal.name}) holds {counts};"
            " a poison message is tried only where removal is DESTROY and in an empty queue: leave this one out with"
            " -k 'not operator_hears'"
        )


def _await_quiet(deployment: DeployedEnvironment, alarm: str) -> None:
    """Wait until the alarm does not ring; if it goes on ringing, the test cannot judge the promise."""
    try:
        eventually(
            lambda: deployment.alarms()[alarm]["StateValue"],
            until=lambda state: state != "ALARM",
            timeout_seconds=_QUIET_SECONDS,
            describe=f"{alarm} to be quiet",
        )
    except NotReachedError as error:
        raise NotArrangedError(f"{error}; look for dead letters left by others, and purge them") from error


@pytest.mark.promise("STK-06")
@pytest.mark.timeout(_QUIET_SECONDS + _ALARM_SECONDS + 60)
def test_a_poison_message_is_dead_lettered_and_an_operator_hears_of_it(
    deployment: DeployedEnvironment, operator_inbox: QueueUnderTest, poison: str
) -> None:
    environment = deployment.environment
    consumer = environment.consumers[0]
    queue = deployment.queue(naming.queue_name(environment, consumer))
    dead_letters = deployment.queue(naming.dead_letter_queue_name(environment, consumer))
    alarm = naming.alarm_name(environment, consumer.name, "dead-letters")
    _subscribe_inbox(deployment, operator_inbox)
    _await_quiet(deployment, alarm)

    queue.send(poison, group=poison, id=poison)
    tries = [queue.await_message(visibility=0) for _ in range(consumer.max_attempts)]
    surplus = queue.receive(wait=1)
    dead = dead_letters.await_message(visibility=0)
    heard = eventually(
        lambda: _since_quiet(
            notice["NewStateValue"] for notice in _notices(operator_inbox) if notice["AlarmName"] == alarm
        ),
        timeout_seconds=_ALARM_SECONDS,
        describe=f"word of {alarm} on the operator topic",
    )

    assert bodies([*tries, *surplus]) == [poison] * consumer.max_attempts
    assert dead["Body"] == poison
    assert heard == ["ALARM"]


def _since_quiet(states: Iterable[str]) -> list[str]:
    """Return an alarm's states from the first that is not OK; OK before it is from the time before the test."""
    return list(dropwhile(lambda state: state == "OK", states))


def _notices(queue: QueueUnderTest) -> list[dict[str, Any]]:
    """Receive the notices that arrived from the operator topic, and delete them."""
    messages = queue.receive(most=10, wait=1)
    for message in messages:
        queue.delete(message)
    return [json.loads(json.loads(message["Body"])["Message"]) for message in messages]
