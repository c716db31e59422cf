"""What a combination of options could break: `problems` says in a sentence each what does not hold.

What no option changes is compared whole in tests/unit/constructs, or is a rule of cdk-nag.
"""

from collections.abc import Iterator
from typing import Any

from sluice.declaration import Consumer, Encryption, Environment, naming
from tests.support.templates.resources import Resource

_TOPIC, _QUEUE, _KEY = "AWS::SNS::Topic", "AWS::SQS::Queue", "AWS::KMS::Key"
_POLICY, _ALARM, _TASK_DEFINITION = "AWS::IAM::Policy", "AWS::CloudWatch::Alarm", "AWS::ECS::TaskDefinition"
_ALARMS_OF_CONSUMER = ("dead-letters", "undelivered", "late", "expiring", "stuck", "pinned")
_OF_QUEUE = (
    *("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:DeleteMessage"),
    *("sqs:GetQueueUrl", "sqs:GetQueueAttributes"),
)
_OF_TASK = ("ecs:GetTaskProtection", "ecs:UpdateTaskProtection")


def problems(found: list[Resource], environment: Environment) -> list[str]:
    """Return one sentence for everything that is wrong in an environment's resources."""
    checks = (_queues, _encryption, _keys, _permissions, _alarms)
    return [problem for check in checks for problem in check(found, environment)]


def _of_kind(found: list[Resource], kind: str) -> list[Resource]:
    return [resource for resource in found if resource.kind == kind]


def _account(environment: Environment) -> str:
    return environment.account or "<AWS::AccountId>"


def _queues(found: list[Resource], environment: Environment) -> Iterator[str]:
    """Check that each queue has a DLQ of its own, which keeps messages as long and takes them from no other queue."""
    queues = {resource.name: resource.properties for resource in _of_kind(found, _QUEUE)}
    for consumer in environment.consumers:
        name = naming.queue_name(environment, consumer)
        queue, dead_letters = queues.pop(name), queues.pop(naming.dead_letter_queue_name(environment, consumer))
        undelivered = queues.pop(naming.undelivered_queue_name(environment, consumer))
        if queue["RedrivePolicy"]["deadLetterTargetArn"] != f"Arn({dead_letters['QueueName']})":
            yield f"{name} has no DLQ of its own"
        if min(dlq["MessageRetentionPeriod"] for dlq in (dead_letters, undelivered)) < queue["MessageRetentionPeriod"]:
            yield f"a DLQ of {name} keeps messages for a shorter time"
        source = naming.queue_arn(environment, name, _account(environment))
        if dead_letters["RedriveAllowPolicy"] != {"redrivePermission": "byQueue", "sourceQueueArns": [source]}:
            yield f"the DLQ of {name} takes messages from others"
    yield from (f"nobody declared {name}" for name in queues)


def _encryption(found: list[Resource], environment: Environment) -> Iterator[str]:
    is_own = environment.encryption is Encryption.CMK
    of_queues = {"KmsMasterKeyId": "Arn(FanoutKeysQueues)"} if is_own else {"SqsManagedSseEnabled": True}
    of_topics = {"KmsMasterKeyId": "Arn(FanoutKeysTopic)"} if is_own else {}
    for resource in (*_of_kind(found, _QUEUE), *_of_kind(found, _TOPIC)):
        seen = {key: value for key, value in resource.properties.items() if key.startswith(("Kms", "SqsManaged"))}
        if seen != (of_queues if resource.kind == _QUEUE else of_topics):
            yield f"{resource.name} is encrypted with {seen}"


def _keys(found: list[Resource], environment: Environment) -> Iterator[str]:
    """Check that keys are there as declared, and let in services on our behalf alone, after the account itself."""
    account = _account(environment)
    alarms = {"cloudwatch.amazonaws.com": {"StringEquals": {"aws:SourceAccount": account}}}
    replay = {"sns.amazonaws.com": {"ArnEquals": {"aws:SourceArn": naming.topic_arn(environment, account)}}}
    topic = f"Ref({naming.topic_name(environment)})"
    expected = {
        "FanoutKeysTopic": alarms if environment.archive_days is None else {**alarms, **replay},
        "FanoutKeysQueues": {"sns.amazonaws.com": {"ArnEquals": {"aws:SourceArn": topic}}},
    }
    let_in = {
        key.name: {
            statement["Principal"]["Service"]: statement["Condition"]
            for statement in key.properties["KeyPolicy"]["Statement"][1:]
        }
        for key in _of_kind(found, _KEY)
    }
    if let_in != (expected if environment.encryption is Encryption.CMK else {}):
        yield f"keys let in {let_in}"


def _permissions(found: list[Resource], environment: Environment) -> Iterator[str]:
    """Compare all a worker may with all it needs, action by action: database, its key and ours in any combination."""
    roles = {resource.name: resource.properties["TaskRoleArn"] for resource in _of_kind(found, _TASK_DEFINITION)}
    for consumer in environment.consumers:
        role = roles[naming.service_name(environment, consumer.name)].replace("Arn(", "Ref(")
        seen = {
            action: _as_list(statement["Resource"])
            for policy in _of_kind(found, _POLICY)
            if role in policy.properties["Roles"]
            for statement in policy.properties["PolicyDocument"]["Statement"]
            for action in _as_list(statement["Action"])
        }
        needed = _needed(environment, consumer)
        for action in sorted({*seen, *needed}):
            if seen.get(action) != needed.get(action):
                yield f"{consumer.name} may {action} on {', '.join(map(str, seen.get(action, ['nothing'])))}"


def _needed(environment: Environment, consumer: Consumer) -> dict[str, list[str]]:
    database, account = environment.database, _account(environment)
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


def _alarms(found: list[Resource], environment: Environment) -> Iterator[str]:
    """Check that every alarm is there, and tells the operators that it began and that it is over, or wakes a task."""
    conditions = {
        "topic": ("failed", "lost"),
        "relay": ("lagging", "quarantined") if environment.relay else (),
        **{
            consumer.name: (
                *_ALARMS_OF_CONSUMER,
                *(("asleep",) if consumer.min_tasks == 0 else ()),
                *(("parked",) if consumer.parks else ()),
            )
            for consumer in environment.consumers
        },
    }
    expected = {
        naming.alarm_name(environment, subject, condition) for subject, of in conditions.items() for condition in of
    }
    alarms = {resource.name: resource.properties for resource in _of_kind(found, _ALARM)}
    for name in sorted(expected ^ set(alarms)):
        yield f"alarm {name} is {'missing' if name in expected else 'unknown'}"
    operators = [environment.alarm_topic_arn or f"Ref({naming.operator_topic_name(environment)})"]
    for name, alarm in alarms.items():
        if name.endswith("-asleep"):
            if "WakeFromZero" not in str(alarm["AlarmActions"]):
                yield f"alarm {name} wakes nobody"
        elif [alarm.get("AlarmActions"), alarm.get("OKActions")] != [operators, operators]:
            yield f"alarm {name} does not tell the operators"


def _as_list(value: Any) -> list[Any]:
    """Return what CloudFormation takes as one or many as many."""
    return value if isinstance(value, list) else [value]
