"""What holds for every environment whatever it declares: `problems` says in a sentence each what does not.

The other tests compare the resources of some environments whole. Here is what a combination of options or a name could
break.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from sluice.declaration import Consumer, Encryption, Environment, naming
from tests.unit.stacks.synthesis import MESSAGING, Properties, Resource

TOPIC, QUEUE, SUBSCRIPTION = "AWS::SNS::Topic", "AWS::SQS::Queue", "AWS::SNS::Subscription"
TOPIC_POLICY, QUEUE_POLICY = "AWS::SNS::TopicPolicy", "AWS::SQS::QueuePolicy"
KEY, POLICY = "AWS::KMS::Key", "AWS::IAM::Policy"
ALARM, TASK_DEFINITION = "AWS::CloudWatch::Alarm", "AWS::ECS::TaskDefinition"

_QUEUE_RETENTION_SECONDS = 345_600  # SQS's own, where a template says nothing
_OF_QUEUE = (
    *("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:DeleteMessage"),
    *("sqs:GetQueueUrl", "sqs:GetQueueAttributes"),
)
_OF_TASK = ("ecs:GetTaskProtection", "ecs:UpdateTaskProtection")
# What SNS counts, and what an idle queue reports, is not reported while there is none; a relay always reports.
_GAPS = {"notBreaching": ("-failed", "-lost", "-asleep", "-quarantined"), "breaching": ("-lagging",)}

type Found = list[Resource]


def problems(found: Found, environment: Environment) -> list[str]:
    """Return one sentence for everything that is wrong in an environment's resources."""
    checks = (
        *(_queues, _dead_letter_queues, _subscriptions, _delivery, _encryption, _transport),
        *(_privileges, _permissions, _alarms, _operators),
    )
    return [problem for check in checks for problem in check(found, environment)]


def of_kind(found: Found, kind: str) -> list[Resource]:
    """Return the resources of that type; two may have one name."""
    return [resource for resource in found if resource.kind == kind]


def _queues(found: Found, environment: Environment) -> Iterator[str]:
    queues, topics = of_kind(found, QUEUE), of_kind(found, TOPIC)
    for name, count in Counter(resource.name for resource in queues).items():
        if count > 1 or not re.fullmatch(r"[A-Za-z0-9_-]{1,75}\.fifo", name):
            yield f"{count} queues are called {name}"
    for queue in queues:
        kind = [queue.properties.get(key) for key in ("FifoQueue", "DeduplicationScope", "FifoThroughputLimit")]
        if kind != [True, "messageGroup", "perMessageGroupId"]:
            yield f"{queue.name} is not FIFO for high throughput"
    (topic,) = (resource.properties for resource in topics if resource.name == naming.topic_name(environment))
    if [topic.get("FifoTopic"), topic.get("FifoThroughputScope")] != [True, "MessageGroup"]:
        yield "the topic is not FIFO for high throughput"
    if any(resource.properties.get("ContentBasedDeduplication") for resource in (*queues, *topics)):
        yield "something deduplicates by content"


def _dead_letter_target(resource: Resource) -> str | None:
    target: str | None = resource.properties.get("RedrivePolicy", {}).get("deadLetterTargetArn")
    return target


def _dead_letter_queues(found: Found, environment: Environment) -> Iterator[str]:
    queues = {f"Arn({resource.name})": resource for resource in of_kind(found, QUEUE)}
    sources = Counter(map(_dead_letter_target, (*queues.values(), *of_kind(found, SUBSCRIPTION))))
    for arn, queue in queues.items():
        target = _dead_letter_target(queue)
        if arn in sources and target is None:
            continue
        dead_letters = queues.get(target or "")
        if dead_letters is None:
            yield f"{queue.name} has no DLQ"
        else:
            yield from _joined(queue, dead_letters, source_count=sources[target])


def _joined(queue: Resource, dead_letters: Resource, *, source_count: int) -> Iterator[str]:
    if source_count > 1:
        yield f"{dead_letters.name} is the DLQ of {source_count}"
    if dead_letters.properties.get("FifoQueue") != queue.properties.get("FifoQueue"):
        yield f"{dead_letters.name} is not of the type of {queue.name}"
    kept, needed = (
        resource.properties.get("MessageRetentionPeriod", _QUEUE_RETENTION_SECONDS)
        for resource in (dead_letters, queue)
    )
    if kept < needed:
        yield f"{dead_letters.name} keeps messages for a shorter time than {queue.name}"
    allowed = dead_letters.properties.get("RedriveAllowPolicy", {})
    arns = [str(arn) for arn in allowed.get("sourceQueueArns", [])]
    of_queue = [re.fullmatch(rf"arn:[a-z-]+:sqs:[a-z0-9-]+:.+:{re.escape(queue.name)}", arn) for arn in arns]
    if allowed.get("redrivePermission") != "byQueue" or len(of_queue) != 1 or None in of_queue:
        yield f"{dead_letters.name} does not take messages from {queue.name} alone"


def _subscriptions(found: Found, environment: Environment) -> Iterator[str]:
    subscriptions = [resource for resource in of_kind(found, SUBSCRIPTION) if resource.stack == MESSAGING]
    targets = Counter(_dead_letter_target(subscription) for subscription in (*subscriptions, *of_kind(found, QUEUE)))
    endpoints = [resource.properties["Endpoint"] for resource in subscriptions]
    if sorted(endpoints) != sorted(
        f"Arn({naming.queue_name(environment, consumer)})" for consumer in environment.consumers
    ):
        yield f"subscribed are {endpoints}"
    for entry in subscriptions:
        target, endpoint = _dead_letter_target(entry), entry.properties["Endpoint"]
        if target != endpoint.replace(".fifo", "-undelivered-dlq.fifo") or targets[target] > 1:
            yield f"what SNS cannot deliver to {endpoint} goes to {target}"
        if entry.properties.get("RawMessageDelivery") is not True:
            yield f"{endpoint} gets envelopes"


def _delivery(found: Found, environment: Environment) -> Iterator[str]:
    topic = f"Ref({naming.topic_name(environment)})"
    takers = {
        statement["Resource"]
        for policy in of_kind(found, QUEUE_POLICY)
        for statement in _allowances(policy)
        if statement["Action"] == "sqs:SendMessage"
        and statement["Principal"] == {"Service": "sns.amazonaws.com"}
        and statement.get("Condition") == {"ArnEquals": {"aws:SourceArn": topic}}
    }
    expected = {
        f"Arn({name(environment, consumer)})"
        for consumer in environment.consumers
        for name in (naming.queue_name, naming.undelivered_queue_name)
    }
    for arn in sorted(expected ^ takers):
        yield f"SNS {'may not' if arn in expected else 'may'} send to {arn}"


def _encryption(found: Found, environment: Environment) -> Iterator[str]:
    is_own, keys = environment.encryption is Encryption.CMK, of_kind(found, KEY)
    expected = {"KmsMasterKeyId": "Arn(FanoutKeysQueues)"} if is_own else {"SqsManagedSseEnabled": True}
    for queue in of_kind(found, QUEUE):
        seen = {key: value for key, value in queue.properties.items() if re.match("Kms|SqsManaged", key)}
        if seen != expected:
            yield f"{queue.name} is encrypted with {seen}"
    for topic in of_kind(found, TOPIC):
        encrypted_with = topic.properties.get("KmsMasterKeyId")
        if encrypted_with != ("Arn(FanoutKeysTopic)" if is_own else None):
            yield f"{topic.name} is encrypted with {encrypted_with}"
    let_in = {
        key.name: [principal for statement in _allowances(key) for principal in _principals(statement)] for key in keys
    }
    services = {name: principals[1:] for name, principals in let_in.items()}  # after the account itself
    replaying = ["sns.amazonaws.com"] if environment.archive_days is not None else []
    expected_services = {
        "FanoutKeysTopic": ["cloudwatch.amazonaws.com", *replaying],
        "FanoutKeysQueues": ["sns.amazonaws.com"],
    }
    if services != (expected_services if is_own else {}):
        yield f"keys let in {services}"
    yield from (f"{key.name} does not rotate" for key in keys if key.properties.get("EnableKeyRotation") is not True)


def _transport(found: Found, environment: Environment) -> Iterator[str]:
    denying = {
        attached
        for policy in (*of_kind(found, QUEUE_POLICY), *of_kind(found, TOPIC_POLICY))
        for statement in policy.properties["PolicyDocument"]["Statement"]
        for attached in _as_list(policy.properties.get("Queues", policy.properties.get("Topics")))
        if statement["Effect"] == "Deny"
        and statement["Principal"] in ("*", {"AWS": "*"})
        and statement["Action"] in ("sqs:*", "sns:Publish")
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        and re.sub("^Arn", "Ref", statement["Resource"]) == attached
    }
    for resource in (*of_kind(found, QUEUE), *of_kind(found, TOPIC)):
        if f"Ref({resource.name})" not in denying:
            yield f"{resource.name} takes what is not encrypted in transit"


def _privileges(found: Found, environment: Environment) -> Iterator[str]:
    account = environment.account or "<AWS::AccountId>"
    topic = f"Ref({naming.topic_name(environment)})"
    of_topic_key = naming.topic_arn(environment, account)  # the topic names its key, so the key does not name it
    for resource in found:
        on_behalf_of = {
            "sns.amazonaws.com": {
                "ArnEquals": {"aws:SourceArn": of_topic_key if resource.name == "FanoutKeysTopic" else topic}
            },
            "cloudwatch.amazonaws.com": {"StringEquals": {"aws:SourceAccount": account}},
        }
        excesses = _let_in if resource.kind in (KEY, QUEUE_POLICY, TOPIC_POLICY) else _allowed
        for statement in _allowances(resource):
            # CDK lets a key's account administer the key; without this nobody could.
            is_administration = resource.kind == KEY and re.fullmatch(
                rf"arn:[a-z-]+:iam::{re.escape(account)}:root", str(*_principals(statement))
            )
            if not is_administration:
                yield from (f"{resource.name}: {excess}" for excess in _wildcards(statement))
                yield from (f"{resource.name}: {excess}" for excess in excesses(statement, on_behalf_of))


def _allowances(resource: Resource) -> Iterator[Properties]:
    """Yield what a policy, a key or a role allows, statement by statement."""
    documents = [resource.properties.get(key) for key in ("PolicyDocument", "KeyPolicy", "AssumeRolePolicyDocument")]
    inline = [policy["PolicyDocument"] for policy in resource.properties.get("Policies", ())]
    for document in (*documents, *inline):
        yield from (entry for entry in (document or {}).get("Statement", ()) if entry["Effect"] == "Allow")


def _principals(statement: Properties) -> list[Any]:
    principal = statement.get("Principal", {})
    return (
        [item for kind in principal.values() for item in _as_list(kind)] if isinstance(principal, dict) else [principal]
    )


def _wildcards(statement: Properties) -> Iterator[str]:
    if "*" in _principals(statement):
        yield "anybody is allowed something"
    if any(key.startswith("Not") for key in statement):
        yield "something is allowed by what it is not"
    yield from (f"{action} is allowed" for action in _as_list(statement.get("Action", [])) if "*" in action)


def _let_in(statement: Properties, on_behalf_of: Mapping[str, Properties]) -> Iterator[str]:
    """Check a policy of a resource: it lets in services only, and each only on behalf of what is ours."""
    for principal in _principals(statement):
        if statement.get("Condition") != on_behalf_of.get(principal, "nobody"):
            yield f"{principal} is let in on whoever's behalf"


def _allowed(statement: Properties, _: Mapping[str, Properties]) -> Iterator[str]:
    """Check a policy of a role: every resource is named, but for a token of ECR and a task's own id."""
    actions = _as_list(statement.get("Action", []))
    for resource in map(str, _as_list(statement.get("Resource", []))):
        is_token = (actions, resource) == (["ecr:GetAuthorizationToken"], "*")
        is_task = all(action.endswith("TaskProtection") for action in actions) and resource.endswith("/*")
        if "*" in resource and not is_token and not is_task:
            yield f"something is allowed on {resource}"


def _permissions(found: Found, environment: Environment) -> Iterator[str]:
    """Compare all a worker may with all it needs, action by action: database, its key and ours in any combination."""
    roles = {resource.name: resource.properties["TaskRoleArn"] for resource in of_kind(found, TASK_DEFINITION)}
    for consumer in environment.consumers:
        role = roles[naming.service_name(environment, consumer.name)].replace("Arn(", "Ref(")
        seen = {
            action: _as_list(statement["Resource"])
            for policy in of_kind(found, POLICY)
            if role in policy.properties["Roles"]
            for statement in _allowances(policy)
            for action in _as_list(statement.get("Action", "everything else"))
        }
        needed = _needed(environment, consumer)
        for action in sorted({*seen, *needed}):
            if seen.get(action) != needed.get(action):
                yield f"{consumer.name} may {action} on {', '.join(map(str, seen.get(action, ['nothing'])))}"


def _needed(environment: Environment, consumer: Consumer) -> dict[str, list[str]]:
    database, account = environment.database, environment.account or "<AWS::AccountId>"
    queue = naming.queue_arn(environment, naming.queue_name(environment, consumer), account)
    task = f"arn:aws:ecs:{environment.region}:{account}:task/{naming.cluster_name(environment)}/*"
    decrypted = [
        *([database.secret_key_arn] if database is not None and database.secret_key_arn is not None else []),
        *(["Arn(FanoutKeysQueues)"] if environment.encryption is Encryption.CMK else []),
    ]
    return {
        **{action: [queue] for action in _OF_QUEUE},
        **{action: [task] for action in _OF_TASK},
        **({} if database is None else {"secretsmanager:GetSecretValue": [database.secret_arn]}),
        **({"kms:Decrypt": decrypted} if decrypted else {}),
    }


def _alarms(found: Found, environment: Environment) -> Iterator[str]:
    conditions = ("dead-letters", "undelivered", "late", "expiring", "stuck", "pinned")
    expected = {
        *(naming.alarm_name(environment, "topic", condition) for condition in ("failed", "lost")),
        *(naming.alarm_name(environment, "relay", what) for what in ("lagging", "quarantined") if environment.relay),
        *(
            naming.alarm_name(environment, consumer.name, what)
            for consumer in environment.consumers
            for what in conditions
        ),
        *(
            naming.alarm_name(environment, consumer.name, "asleep")
            for consumer in environment.consumers
            if consumer.min_tasks == 0
        ),
        *(
            naming.alarm_name(environment, consumer.name, "parked")
            for consumer in environment.consumers
            if consumer.parks
        ),
    }
    alarms = {resource.name: resource.properties for resource in of_kind(found, ALARM)}
    for name in sorted(expected ^ set(alarms)):
        yield f"alarm {name} is {'missing' if name in expected else 'unknown'}"
    for name, alarm in alarms.items():
        of_gap = next((gap for gap, ends in _GAPS.items() if name.endswith(ends)), "ignore")
        if alarm.get("TreatMissingData") != of_gap:
            yield f"alarm {name} takes a gap for {alarm.get('TreatMissingData')}"
        operators = [f"Ref({naming.operator_topic_name(environment)})"]
        if name.endswith("-asleep"):
            if "WakeFromZero" not in str(alarm.get("AlarmActions")):
                yield f"alarm {name} wakes nobody"
        elif [alarm.get("AlarmActions"), alarm.get("OKActions")] != [operators, operators]:
            yield f"alarm {name} does not tell the operators"


def _operators(found: Found, environment: Environment) -> Iterator[str]:
    name = naming.operator_topic_name(environment)
    if any(resource.properties.get("FifoTopic") for resource in of_kind(found, TOPIC) if resource.name == name):
        yield "CloudWatch does not publish to the operator topic: it is FIFO"
    publishers = [
        statement["Principal"]
        for policy in of_kind(found, TOPIC_POLICY)
        for statement in _allowances(policy)
        if policy.properties["Topics"] == [f"Ref({name})"]
    ]
    if publishers != [{"Service": "cloudwatch.amazonaws.com"}]:
        yield f"to the operator topic publish {publishers}"


def _as_list(value: Any) -> list[Any]:
    """Return what CloudFormation takes as one or many as many."""
    return value if isinstance(value, list) else [value]
