"""The services: what each task runs, where, as whom, and what it may do."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import Environment, task_settings
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.environments import FULL
from tests.support.templates.resources import Resource, of_kind, statements
from tests.unit.constructs.expected import CONSUMERS, account, allow

CLUSTER, SERVICE = "AWS::ECS::Cluster", "AWS::ECS::Service"
TASK_DEFINITION, ROLE, LOG_GROUP = "AWS::ECS::TaskDefinition", "AWS::IAM::Role", "AWS::Logs::LogGroup"
RECEIVE = [
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ReceiveMessage",
]
PROTECT = ["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"]
PULL = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
WRITE_LOGS = ["logs:CreateLogStream", "logs:PutLogEvents"]
SECRET = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:sluice/inbox-AbCdEf"  # noqa: S105 (its ARN)
SECRET_KEY = "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666"  # noqa: S105 (its ARN)
DIGEST = "sha256:abababababababababababababababababababababababababababababababab"


def _settings(environment: Environment, name: str | None) -> dict[str, str]:
    """Return the variable with what is declared; tests/unit/declaration/test_task_settings.py reads it back."""
    consumer = next((consumer for consumer in environment.consumers if consumer.name == name), None)
    part = task_settings.task_environment(environment, consumer)
    return _variable("SLUICE_TASK_SETTINGS", task_settings.render(part))


def _container(
    name: str,
    *,
    command: str,
    image: str,
    variables: list[dict[str, str]],
    region: str,
    service: str,
    stop_seconds: int,
) -> dict[str, Any]:
    """Return a container whole: command, who it is, read-only, not root, time to stop, logs."""
    return {
        "Name": name,
        "Essential": True,
        "Image": image,
        "Command": ["python", "-m", "sluice", command],
        "Environment": variables,
        "HealthCheck": {
            "Command": ["CMD", "python", "-m", "sluice", "alive"],
            "Interval": 30,
            "Timeout": 10,
            "Retries": 3,
            "StartPeriod": 120,
        },
        "ReadonlyRootFilesystem": True,
        "User": "10001",
        "StopTimeout": stop_seconds,
        "LogConfiguration": {
            "LogDriver": "awslogs",
            "Options": {
                "awslogs-group": f"Ref(/ecs/{service})",
                "awslogs-stream-prefix": name,
                "awslogs-region": region,
            },
        },
    }


def _task_definition(family: str, construct: str, *, cpu: str, memory: str, container: Any) -> dict[str, Any]:
    return {
        "Family": family,
        "Cpu": cpu,
        "Memory": memory,
        "NetworkMode": "awsvpc",
        "RequiresCompatibilities": ["FARGATE"],
        "TaskRoleArn": f"Arn({construct}TaskDefinitionTaskRole)",
        "ExecutionRoleArn": f"Arn({construct}TaskDefinitionExecutionRole)",
        "ContainerDefinitions": [container],
    }


def _variable(name: str, value: str) -> dict[str, str]:
    return {"Name": name, "Value": value}


ALIVE = _variable("SLUICE_ALIVE_FILE", "/dev/shm/alive")  # noqa: S108 (of the container alone)


def _image(found: list[Resource], family: str) -> str:
    (container,) = of_kind(found, TASK_DEFINITION)[family]["ContainerDefinitions"]
    image: str = container["Image"]
    return image


def test_running_tasks_are_counted_by_container_insights(declared: list[Resource], environment: Environment) -> None:
    """One cluster per environment; scaling divides by what Container Insights counts."""
    clusters = of_kind(declared, CLUSTER)

    name = f"sluice-{environment.name}"
    assert clusters == {
        name: {"ClusterName": name, "ClusterSettings": [{"Name": "containerInsights", "Value": "enabled"}]}
    }


def test_each_consumer_has_a_service_whose_task_count_is_scalings(
    declared: list[Resource], environment: Environment
) -> None:
    """No DesiredCount; rolled back if its tasks do not start; in the private subnets, without a public address."""
    services = of_kind(declared, SERVICE)
    subnets = [f"Ref({name})" for name in of_kind(declared, "AWS::EC2::Subnet")]

    prefix = f"sluice-{environment.name}"
    assert services == {
        f"{prefix}-{consumer}": {
            "ServiceName": f"{prefix}-{consumer}",
            "Cluster": f"Ref({prefix})",
            "TaskDefinition": f"Ref({prefix}-{consumer})",
            "LaunchType": "FARGATE",
            "DeploymentConfiguration": {
                "DeploymentCircuitBreaker": {"Enable": True, "Rollback": True},
                "MaximumPercent": 200,
                "MinimumHealthyPercent": 100,
            },
            "NetworkConfiguration": {
                "AwsvpcConfiguration": {
                    "AssignPublicIp": "DISABLED",
                    "SecurityGroups": ["GroupId(ConsumersNetworkTasks)"],
                    "Subnets": subnets,
                }
            },
            "EnableECSManagedTags": True,
            "PropagateTags": "SERVICE",
            "LoadBalancers": [],
        }
        for consumer in CONSUMERS
    }


def test_the_service_in_somebody_elses_network_is_in_the_declared_subnets(hosted: list[Resource]) -> None:
    """All of them, and only the tasks' own security group."""
    services = of_kind(hosted, SERVICE)

    assert services["sluice-hosted-billing"]["NetworkConfiguration"] == {
        "AwsvpcConfiguration": {
            "AssignPublicIp": "DISABLED",
            "SecurityGroups": ["GroupId(ConsumersNetworkTasks)"],
            "Subnets": ["subnet-0a1b2c3d4e5f60718", "subnet-0f1e2d3c4b5a69788"],
        }
    }


def test_each_consumers_task_runs_its_worker(by_environment: Mapping[str, list[Resource]]) -> None:
    """Told who it is, and what is declared."""
    definitions = of_kind(by_environment["local"], TASK_DEFINITION)

    assert definitions == {
        f"sluice-local-{consumer}": _task_definition(
            f"sluice-local-{consumer}",
            f"ConsumersConsumer{consumer}Worker",
            cpu="256",
            memory="512",
            container=_container(
                consumer,
                command="worker",
                image="000000000000.dkr.ecr.us-east-1.<AWS::URLSuffix>/sluice-worker:0.1.0",
                variables=[
                    _variable("SLUICE_ENV", "local"),
                    _variable("SLUICE_CONSUMER", consumer),
                    ALIVE,
                    _settings(ENVIRONMENTS["local"], consumer),
                ],
                region="us-east-1",
                service=f"sluice-local-{consumer}",
                stop_seconds=30,
            ),
        )
        for consumer in CONSUMERS
    }


def test_a_worker_is_given_what_is_declared_of_its_queue(full: list[Resource]) -> None:
    """So that a changed queue needs no new image, which holds code and no declaration."""
    (container,) = of_kind(full, TASK_DEFINITION)["sluice-full-ledger"]["ContainerDefinitions"]
    variables = {variable["Name"]: variable["Value"] for variable in container["Environment"]}

    written = json.loads(variables["SLUICE_TASK_SETTINGS"])

    (ledger,) = written["consumers"]
    assert (written["name"], written["region"], written["topic"]) == ("full", "eu-central-1", "orders")
    assert (ledger["name"], ledger["max_attempts"], ledger["visibility_timeout_seconds"]) == ("ledger", 7, 90)
    assert ledger["filter_policy"]["amount"] == [{"numeric": [">=", 100]}]


def test_a_consumers_own_sizes_and_image_reach_its_task(full: list[Resource]) -> None:
    """And where there is a database, the ARN of its secret: never the secret itself."""
    definitions = of_kind(full, TASK_DEFINITION)

    assert definitions["sluice-full-ledger"] == _task_definition(
        "sluice-full-ledger",
        "ConsumersConsumerledgerWorker",
        cpu="512",
        memory="1024",
        container=_container(
            "ledger",
            command="worker",
            image=f"111122223333.dkr.ecr.eu-central-1.<AWS::URLSuffix>/team/ledger@{DIGEST}",
            variables=[
                _variable("SLUICE_ENV", "full"),
                _variable("SLUICE_CONSUMER", "ledger"),
                ALIVE,
                _settings(FULL, "ledger"),
                _variable("SLUICE_DATABASE_SECRET_ARN", SECRET),
            ],
            region="eu-central-1",
            service="sluice-full-ledger",
            stop_seconds=45,
        ),
    )


def test_a_worker_may_use_its_own_queue_and_protect_its_own_task(
    declared: list[Resource], environment: Environment
) -> None:
    """Everything its role allows, whole; with a key of ours also to decrypt; nobody else's queue, no sending."""
    allowed = {
        consumer: statements(declared, f"ConsumersConsumer{consumer}WorkerTaskDefinitionTaskRole")
        for consumer in CONSUMERS
    }

    of_account = f"us-east-1:{account(environment)}"
    has_key = environment.name in ("staging", "prod")
    decrypt = [allow("kms:Decrypt", "Arn(FanoutKeysQueues)")] if has_key else []
    assert allowed == {
        consumer: [
            allow(RECEIVE, f"arn:aws:sqs:{of_account}:sluice-{environment.name}-{consumer}.fifo"),
            *decrypt,
            allow(PROTECT, f"arn:aws:ecs:{of_account}:task/sluice-{environment.name}/*"),
        ]
        for consumer in CONSUMERS
    }


def test_a_worker_with_a_database_may_read_that_one_secret(full: list[Resource], hosted: list[Resource]) -> None:
    """And decrypt it where it has a key of its own."""
    with_key = statements(full, "ConsumersConsumerledgerWorkerTaskDefinitionTaskRole")
    without_key = statements(hosted, "ConsumersConsumerbillingWorkerTaskDefinitionTaskRole")

    assert with_key == [
        allow("secretsmanager:GetSecretValue", SECRET),
        allow("kms:Decrypt", [SECRET_KEY, "Arn(FanoutKeysQueues)"]),
        allow(RECEIVE, "arn:aws:sqs:eu-central-1:111122223333:sluice-full-ledger.fifo"),
        allow(PROTECT, "arn:aws:ecs:eu-central-1:111122223333:task/sluice-full/*"),
    ]
    assert without_key == [
        allow(
            "secretsmanager:GetSecretValue",
            "arn:aws:secretsmanager:us-east-1:111122223333:secret:sluice/inbox-AbCdEf",
        ),
        allow(RECEIVE, "arn:aws:sqs:us-east-1:<AWS::AccountId>:sluice-hosted-billing.fifo"),
        allow(PROTECT, "arn:aws:ecs:us-east-1:<AWS::AccountId>:task/sluice-hosted/*"),
    ]


def test_roles_of_tasks_are_assumed_by_ecs_and_have_no_other_policies(
    declared: list[Resource], environment: Environment
) -> None:
    """What a role allows stands in its own policy; nothing managed by AWS is attached."""
    roles = {name: role for name, role in of_kind(declared, ROLE).items() if name.startswith("ConsumersConsumer")}

    assumed_by_ecs = {
        "AssumeRolePolicyDocument": {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ecs-tasks.amazonaws.com"}}
            ],
        }
    }
    assert roles == {
        f"ConsumersConsumer{consumer}WorkerTaskDefinition{role}": assumed_by_ecs
        for consumer in CONSUMERS
        for role in ("TaskRole", "ExecutionRole")
    }


@pytest.mark.parametrize(
    ("name", "construct", "family", "image", "repository"),
    [
        (
            "local",
            "Consumerbilling",
            "sluice-local-billing",
            "000000000000.dkr.ecr.us-east-1.<AWS::URLSuffix>/sluice-worker:0.1.0",
            "arn:aws:ecr:us-east-1:000000000000:repository/sluice-worker",
        ),
        (
            "prod",
            "Consumerbilling",
            "sluice-prod-billing",
            "<AWS::AccountId>.dkr.ecr.us-east-1.<AWS::URLSuffix>/sluice-worker:0.1.0",
            "arn:aws:ecr:us-east-1:<AWS::AccountId>:repository/sluice-worker",
        ),
        (
            "full",
            "Consumerledger",
            "sluice-full-ledger",
            f"111122223333.dkr.ecr.eu-central-1.<AWS::URLSuffix>/team/ledger@{DIGEST}",
            "arn:aws:ecr:eu-central-1:111122223333:repository/team/ledger",
        ),
        (
            "full",
            "Consumernightbatch",
            "sluice-full-night-batch",
            "111122223333.dkr.ecr.eu-central-1.<AWS::URLSuffix>/team/worker:stable",
            "arn:aws:ecr:eu-central-1:111122223333:repository/team/worker",
        ),
        (
            "hosted",
            "Consumersearch",
            "sluice-hosted-search",
            "444455556666.dkr.ecr.eu-west-1.<AWS::URLSuffix>/search:3.1",
            "arn:aws:ecr:eu-west-1:444455556666:repository/search",
        ),
        (
            "plain",
            "Consumerbilling",
            "sluice-plain-billing",
            "<AWS::AccountId>.dkr.ecr.us-east-1.<AWS::URLSuffix>/sluice-worker:1.2.3",
            "arn:aws:ecr:us-east-1:<AWS::AccountId>:repository/sluice-worker",
        ),
    ],
    ids=["repository", "unknown account", "uri with digest", "repository with path", "elsewhere", "dotted tag"],
)
def test_an_image_in_ecr_may_be_pulled_from_its_one_repository(
    by_environment: Mapping[str, list[Resource]], name: str, construct: str, family: str, image: str, repository: str
) -> None:
    """By the role that starts the task, which besides may only log; a token for ECR knows no resource."""
    found = by_environment[name]

    allowed = statements(found, f"Consumers{construct}WorkerTaskDefinitionExecutionRole")

    assert _image(found, family) == image
    assert allowed == [
        allow(PULL, repository),
        allow("ecr:GetAuthorizationToken", "*"),
        allow(WRITE_LOGS, f"Arn(/ecs/{family})"),
    ]


def test_an_image_from_another_registry_is_taken_as_declared(hosted: list[Resource]) -> None:
    """And the role that starts the task may nothing in ECR."""
    allowed = statements(hosted, "ConsumersConsumerbillingWorkerTaskDefinitionExecutionRole")

    assert _image(hosted, "sluice-hosted-billing") == "ghcr.io/example/worker:2"
    assert allowed == [allow(WRITE_LOGS, "Arn(/ecs/sluice-hosted-billing)")]


def test_each_service_logs_to_a_group_of_its_own(declared: list[Resource], environment: Environment) -> None:
    """Named after the service, and kept as long as declared."""
    groups = of_kind(declared, LOG_GROUP)
    del groups["ConsumersNetworkFlowLogs"]

    days = {"local": 30, "dev": 7, "staging": 30, "prod": 90}
    assert groups == {
        f"/ecs/sluice-{environment.name}-{consumer}": {
            "LogGroupName": f"/ecs/sluice-{environment.name}-{consumer}",
            "RetentionInDays": days[environment.name],
        }
        for consumer in CONSUMERS
    }


def test_the_relay_is_one_task_that_publishes_from_the_outbox(full: list[Resource]) -> None:
    """One leads, so one is enough, and it is not scaled; it is told its topic, and reads the database's secret."""
    service = of_kind(full, SERVICE)["sluice-full-relay"]
    (container,) = of_kind(full, TASK_DEFINITION)["sluice-full-relay"]["ContainerDefinitions"]

    assert service["DesiredCount"] == 1
    assert statements(full, "ConsumersRelayTaskDefinitionTaskRole") == [
        allow("secretsmanager:GetSecretValue", SECRET),
        allow("kms:Decrypt", SECRET_KEY),
        allow("sns:Publish", "arn:aws:sns:eu-central-1:111122223333:sluice-full-orders.fifo"),
        allow(["kms:Decrypt", "kms:GenerateDataKey"], "Arn(FanoutKeysTopic)"),
    ]
    assert container == _container(
        "relay",
        command="relay",
        image="111122223333.dkr.ecr.eu-central-1.<AWS::URLSuffix>/team/worker:stable",
        variables=[
            _variable("SLUICE_ENV", "full"),
            _variable("SLUICE_TOPIC_ARN", "arn:aws:sns:eu-central-1:111122223333:sluice-full-orders.fifo"),
            ALIVE,
            _settings(FULL, None),
            _variable("SLUICE_DATABASE_SECRET_ARN", SECRET),
        ],
        region="eu-central-1",
        service="sluice-full-relay",
        stop_seconds=30,
    )


def test_a_relay_without_a_declared_account_is_told_its_topic_too(hosted: list[Resource]) -> None:
    """Or it would ask STS for the account, and a network without internet has no way there."""
    (container,) = of_kind(hosted, TASK_DEFINITION)["sluice-hosted-relay"]["ContainerDefinitions"]

    expected = _variable("SLUICE_TOPIC_ARN", "arn:aws:sns:us-east-1:<AWS::AccountId>:sluice-hosted-events.fifo")
    assert expected in container["Environment"]


def test_there_is_a_relay_only_where_one_is_declared(by_environment: Mapping[str, list[Resource]]) -> None:
    """Every service there is, by environment."""
    services = {name: set(of_kind(found, SERVICE)) for name, found in by_environment.items()}

    assert services == {
        **{name: {f"sluice-{name}-{consumer}" for consumer in CONSUMERS} for name in ENVIRONMENTS},
        "full": {"sluice-full-ledger", "sluice-full-night-batch", "sluice-full-relay"},
        "hosted": {"sluice-hosted-billing", "sluice-hosted-search", "sluice-hosted-relay"},
        "plain": {"sluice-plain-billing"},
    }


def test_no_service_starts_before_its_tasks_can_pull_and_log(full: list[Resource]) -> None:
    """A task that fails for want of an endpoint counts against the deployment, and could roll a first one back."""
    endpoints = {resource.name for resource in full if resource.kind == "AWS::EC2::VPCEndpoint"}
    services = [resource for resource in full if resource.kind == SERVICE]

    assert len(endpoints) == 7
    for service in services:
        name = service.name.removeprefix("sluice-full-").replace("-", "")
        construct = "ConsumersRelay" if name == "relay" else f"ConsumersConsumer{name}Worker"
        policy = f"{construct}TaskDefinitionExecutionRoleDefaultPolicy"
        assert {*endpoints, policy} <= set(service.depends_on), service.name
