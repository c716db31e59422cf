"""What runs: the network, the services, their tasks and what those may do."""

import re
from collections import Counter
from collections.abc import Iterator

from sluice import naming
from sluice.declaration import Consumer, Encryption, Environment, NewNetwork
from tests.unit.stacks.invariants.found import (
    ALARM,
    KEY,
    LOG_GROUP,
    QUEUE,
    SERVICE,
    TASK_DEFINITION,
    TOPIC,
    Found,
    allowances,
    as_list,
    of_kind,
    properties,
)

_OF_QUEUE = (
    *("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:DeleteMessage"),
    *("sqs:GetQueueUrl", "sqs:GetQueueAttributes"),
)
_OF_TASK = ("ecs:GetTaskProtection", "ecs:UpdateTaskProtection")


def _network(found: Found, environment: Environment) -> Iterator[str]:
    for one in found:
        if one.kind in ("AWS::EC2::NatGateway", "AWS::EC2::InternetGateway", "AWS::EC2::Route", "AWS::EC2::EIP"):
            yield f"{one.kind} leads out of the network"
        if one.properties.get("MapPublicIpOnLaunch"):
            yield f"{one.name} gives public addresses"
        if "SecurityGroupIngress" in one.properties or "CidrIp" in one.properties:
            yield f"{one.name} is open to addresses"
    endpoints = Counter(
        re.sub(r"^.*(?:[0-9]|>)\.", "", one.properties["ServiceName"])
        for one in of_kind(found, "AWS::EC2::VPCEndpoint")
    )
    expected: Counter[str] = Counter()
    if isinstance(environment.network, NewNetwork):
        expected.update(["sqs", "ecr.api", "ecr.dkr", "logs", "s3"])
        expected.update(["secretsmanager"] if environment.database is not None else [])
        expected.update(["sns"] if environment.relay else [])
    if endpoints != expected:
        yield f"the network has endpoints for {sorted(endpoints)}"


def _services(found: Found, environment: Environment) -> Iterator[str]:
    counts = {naming.service_name(environment, one.name): None for one in environment.consumers}
    expected: dict[str, int | None] = {
        **counts,
        **({naming.service_name(environment, "relay"): 1} if environment.relay else {}),
    }
    seen = {one.name: one.properties.get("DesiredCount") for one in of_kind(found, SERVICE)}
    for name in sorted({*seen, *expected}):
        if seen.get(name, "no service") != expected.get(name, "no service"):
            yield f"{name} has a fixed task count of {seen.get(name, 'no service')}"
    for one in of_kind(found, SERVICE):
        breaker = one.properties["DeploymentConfiguration"].get("DeploymentCircuitBreaker")
        if breaker != {"Enable": True, "Rollback": True}:
            yield f"{one.name} does not roll back"
        if one.properties["NetworkConfiguration"]["AwsvpcConfiguration"]["AssignPublicIp"] != "DISABLED":
            yield f"{one.name} has a public address"
    for cluster in of_kind(found, "AWS::ECS::Cluster"):
        if {"Name": "containerInsights", "Value": "enabled"} not in cluster.properties.get("ClusterSettings", []):
            yield "running tasks are not counted"


def _tasks(found: Found, environment: Environment) -> Iterator[str]:
    for definition in of_kind(found, TASK_DEFINITION):
        (container,) = definition.properties["ContainerDefinitions"]
        if container.get("ReadonlyRootFilesystem") is not True:
            yield f"{definition.name} may write to its file system"
        if container.get("User") in (None, "0", "root"):
            yield f"{definition.name} is root"
    for consumer in environment.consumers:
        yield from _worker(found, environment, consumer)


def _worker(found: Found, environment: Environment, consumer: Consumer) -> Iterator[str]:
    definition = properties(found, TASK_DEFINITION, naming.service_name(environment, consumer.name))
    (container,) = definition.get("ContainerDefinitions", [{}])
    database = environment.database
    expected = {
        "Command": ["python", "-m", "sluice", "worker"],
        "Environment": [
            {"Name": "SLUICE_ENV", "Value": environment.name},
            {"Name": "SLUICE_CONSUMER", "Value": consumer.name},
            *([] if database is None else [{"Name": "SLUICE_DATABASE_SECRET_ARN", "Value": database.secret_arn}]),
        ],
        "StopTimeout": consumer.stop_timeout_seconds,
        "Cpu": str(consumer.cpu),
        "Memory": str(consumer.memory_mib),
    }
    seen = {**definition, **container}
    yield from (f"{consumer.name}'s task has another {key}" for key in expected if seen.get(key) != expected[key])
    yield from _permissions(found, environment, consumer, role=f"Ref({str(definition.get('TaskRoleArn'))[4:-1]})")


def _permissions(found: Found, environment: Environment, consumer: Consumer, *, role: str) -> Iterator[str]:
    """Compare all a worker may with all it needs, action by action."""
    seen = {
        action: as_list(statement["Resource"])
        for policy in of_kind(found, "AWS::IAM::Policy")
        if role in policy.properties["Roles"]
        for statement in allowances(policy)
        for action in as_list(statement.get("Action", "everything else"))
    }
    database, account = environment.database, environment.account or "<AWS::AccountId>"
    queue = naming.queue_arn(environment, naming.queue_name(environment, consumer), account)
    task = f"arn:aws:ecs:{environment.region}:{account}:task/{naming.cluster_name(environment)}/*"
    decrypted = [
        *([database.secret_key_arn] if database is not None and database.secret_key_arn is not None else []),
        *(["Arn(FanoutKeysQueues)"] if environment.encryption is Encryption.CMK else []),
    ]
    expected = {
        **{action: [queue] for action in _OF_QUEUE},
        **{action: [task] for action in _OF_TASK},
        **({} if database is None else {"secretsmanager:GetSecretValue": [database.secret_arn]}),
        **({"kms:Decrypt": decrypted} if decrypted else {}),
    }
    for action in sorted({*seen, *expected}):
        if seen.get(action) != expected.get(action):
            yield f"{consumer.name} may {action} on {', '.join(map(str, seen.get(action, ['nothing'])))}"


def _tags(found: Found, environment: Environment) -> Iterator[str]:
    expected = {"application": "sluice", "environment": environment.name, **environment.tags}
    for one in found:
        if one.kind in (TOPIC, QUEUE, KEY, SERVICE, TASK_DEFINITION, ALARM, LOG_GROUP) and one.tags != expected:
            yield f"{one.name} is tagged {one.tags}"


CHECKS = (_network, _services, _tasks, _tags)
