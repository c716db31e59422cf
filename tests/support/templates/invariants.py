"""The invariants that a combination of options could break: `problems` has a sentence for each that is broken.

A part that no option changes is compared whole in tests/unit/constructs, or is a rule of cdk-nag.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from sluice.declaration import Consumer, DatabaseRole, Encryption, Environment, NewDatabase, naming
from sluice.declaration.alarms import Hearer, alarms
from tests.support.templates.environments import database_access
from tests.support.templates.resources import Resource

_TOPIC, _QUEUE, _KEY = "AWS::SNS::Topic", "AWS::SQS::Queue", "AWS::KMS::Key"
_POLICY, _ALARM, _TASK_DEFINITION = "AWS::IAM::Policy", "AWS::CloudWatch::Alarm", "AWS::ECS::TaskDefinition"
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
        undelivered = queues.pop(naming.undelivered_queue_name(environment, consumer))
        if not undelivered.get("FifoQueue"):
            yield f"the DLQ of the subscription of {name} is not FIFO"
        if consumer.queue is not None:
            continue
        queue, dead_letters = queues.pop(name), queues.pop(naming.dead_letter_queue_name(environment, consumer))
        if [each.get("FifoQueue", False) for each in (queue, dead_letters)] != 2 * [consumer.fifo]:
            yield f"{name} or its DLQ is not of the declared type"
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
    topic_key, queue_key = _key_arns(environment)
    of_queues = {"KmsMasterKeyId": queue_key} if is_own else {"SqsManagedSseEnabled": True}
    of_topics = {"KmsMasterKeyId": topic_key} if is_own else {}
    for resource in (*_of_kind(found, _QUEUE), *_of_kind(found, _TOPIC)):
        seen = {key: value for key, value in resource.properties.items() if key.startswith(("Kms", "SqsManaged"))}
        if seen != (of_queues if resource.kind == _QUEUE else of_topics):
            yield f"{resource.name} is encrypted with {seen}"
    of_logs = "Arn(NetworkLogKey)" if is_own else None
    for group in _of_kind(found, "AWS::Logs::LogGroup"):
        if group.properties.get("KmsKeyId") != of_logs:
            yield f"{group.name} is encrypted with {group.properties.get('KmsKeyId')}"


def _key_arns(environment: Environment) -> tuple[str, str]:
    keys = environment.keys
    return ("Arn(FanoutKeysTopic)", "Arn(FanoutKeysQueues)") if keys is None else (keys.topic_arn, keys.queues_arn)


def _keys(found: list[Resource], environment: Environment) -> Iterator[str]:
    """Check that keys are there as declared, and let in services on our behalf alone, after the account itself."""
    if environment.encryption is not Encryption.CMK:
        yield from (f"nobody declared the key {key.name}" for key in _of_kind(found, _KEY))
        return
    account = _account(environment)
    alarms = ("cloudwatch.amazonaws.com", {"StringEquals": {"aws:SourceAccount": account}})
    archived = environment.topics if environment.archive_days is not None else ()
    delivered = [topic for topic in environment.topics if environment.consumers_of(topic)]
    groups = f"arn:aws:logs:{environment.region}:{account}:log-group:"
    logged = [f"{groups}{prefix}{naming.service_name(environment, '*')}" for prefix in ("/ecs/", "")]
    if isinstance(environment.database, NewDatabase):
        logged.append(f"{groups}/aws/rds/cluster/{naming.database_name(environment)}/*")
    messaging = {
        "FanoutKeysTopic": [alarms, *(_sns(naming.topic_arn(environment, account, each.name)) for each in archived)],
        "FanoutKeysQueues": [_sns(f"Ref({naming.topic_name(environment, each.name)})") for each in delivered],
    }
    expected = {
        **(messaging if environment.keys is None else {}),
        **({"DatabaseKey": []} if isinstance(environment.database, NewDatabase) else {}),
        "NetworkLogKey": [
            (f"logs.{environment.region}.amazonaws.com", {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": logged}})
        ],
    }
    let_in = {
        key.name: [
            (statement["Principal"]["Service"], statement["Condition"])
            for statement in key.properties["KeyPolicy"]["Statement"][1:]
        ]
        for key in _of_kind(found, _KEY)
    }
    if let_in != expected:
        yield f"keys let in {let_in}"


def _sns(topic_arn: str) -> tuple[str, dict[str, dict[str, str]]]:
    return "sns.amazonaws.com", {"ArnEquals": {"aws:SourceArn": topic_arn}}


def _permissions(found: list[Resource], environment: Environment) -> Iterator[str]:
    """Compare all a worker may with all it needs, action by action: database, its key and ours in any combination."""
    roles = {resource.name: resource.properties["TaskRoleArn"] for resource in _of_kind(found, _TASK_DEFINITION)}
    for consumer in environment.consumers:
        role = roles[naming.service_name(environment, consumer.name)].replace("Arn(", "Ref(")
        seen: defaultdict[str, list[str]] = defaultdict(list)
        for policy in _of_kind(found, _POLICY):
            if role in policy.properties["Roles"]:
                for statement in policy.properties["PolicyDocument"]["Statement"]:
                    for action in _as_list(statement["Action"]):
                        seen[action] += _as_list(statement["Resource"])
        needed = _needed_actions(environment, consumer)
        for action in sorted({*seen, *needed}):
            if sorted(seen.get(action, [])) != sorted(needed.get(action, [])):
                yield f"{consumer.name} may {action} on {', '.join(map(str, seen.get(action, ['nothing'])))}"


def _needed_actions(environment: Environment, consumer: Consumer) -> dict[str, list[str]]:
    account = _account(environment)
    access = {action: [arn] for action, arn in database_access(environment, DatabaseRole.WORKER).items()}
    queue = naming.queue_arn(environment, naming.queue_name(environment, consumer), account)
    task = f"arn:aws:ecs:{environment.region}:{account}:task/{naming.cluster_name(environment)}/*"
    key_arn = _key_arns(environment)[1] if environment.encryption is Encryption.CMK else None
    if consumer.queue is not None:
        key_arn = consumer.queue.key_arn
    decrypted = [
        *access.pop("kms:Decrypt", []),
        *([key_arn] if key_arn is not None else []),
    ]
    of_queue = {action: [queue] for action in _OF_QUEUE}
    if environment.topic(consumer.topic).bundle_events_max > 1:  # its worker sends dead events to the DLQ itself
        dead_letters = naming.queue_arn(environment, naming.dead_letter_queue_name(environment, consumer), account)
        of_queue |= {"sqs:GetQueueUrl": [queue, dead_letters], "sqs:SendMessage": [dead_letters]}
        access |= {} if key_arn is None else {"kms:GenerateDataKey": [key_arn]}
    return {
        **of_queue,
        **{action: [task] for action in _OF_TASK},
        **access,
        **({"kms:Decrypt": decrypted} if decrypted else {}),
    }


def _alarms(found: list[Resource], environment: Environment) -> Iterator[str]:
    """Check that every declared alarm is there, and tells whom it is for."""
    declared = {alarm.name: alarm for alarm in alarms(environment)}
    made = {resource.name: resource.properties for resource in _of_kind(found, _ALARM)}
    for name in sorted(declared.keys() ^ made.keys()):
        yield f"alarm {name} is {'missing' if name in declared else 'unknown'}"
    operators = [environment.alarm_topic_arn or f"Ref({naming.operator_topic_name(environment)})"]
    services = {service.name: service.properties for service in _of_kind(found, "AWS::ECS::Service")}
    for consumer in environment.consumers:
        name = naming.service_name(environment, consumer.name)
        seen = services[name]["DeploymentConfiguration"].get("Alarms", {}).get("AlarmNames", [])
        if seen != [f"{name}-{condition}" for condition in ("failing", "dying", "delayed")]:
            yield f"{name} is deployed while {seen} are watched"
    for name in declared.keys() & made.keys():
        begun, ended = (made[name].get(actions) for actions in ("AlarmActions", "OKActions"))
        match declared[name].hearer:
            case Hearer.OPERATORS if [begun, ended] != [operators, operators]:
                yield f"alarm {name} does not tell the operators"
            case Hearer.SCALING if "WakeFromZero" not in str(begun):
                yield f"alarm {name} wakes nobody"
            case Hearer.DEPLOYMENT | Hearer.REDRIVE if begun or ended:
                yield f"alarm {name}, which is for {declared[name].hearer.value}, does more"


def _as_list(value: Any) -> list[Any]:
    """Return what CloudFormation takes as one or many as many."""
    return value if isinstance(value, list) else [value]
