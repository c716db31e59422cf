"""The services: the command of each task, its network, its user and its permissions."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import DatabaseRole, Environment, NewDatabase, task_settings
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.environments import CHANGING, EXTRA, FULL, OWNED, REDRIVEN, secret_of
from tests.support.templates.resources import Resource, StackTemplates, of_kind, resources, statements
from tests.unit.constructs.expectations import CONSUMERS, account, allow, log_encryption, log_in

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
SECRET, SECRET_KEY = "MasterUserSecret.SecretArn(DatabaseCluster)", "Arn(DatabaseKey)"
DIGEST = "sha256:abababababababababababababababababababababababababababababababab"


def _settings(environment: Environment, name: str | None) -> dict[str, str]:
    """Return the variable with the declaration; tests/unit/declaration/test_task_settings.py reads it back."""
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
    depends_on: str | None = None,
) -> dict[str, Any]:
    """Return all properties of a container: command, variables, image, read-only, not root, time to stop, logs."""
    after = {} if depends_on is None else {"DependsOn": [{"Condition": "SUCCESS", "ContainerName": depends_on}]}
    return {
        **after,
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
        "LinuxParameters": {"Capabilities": {"Drop": ["ALL"]}, "InitProcessEnabled": True},
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


def _schema_container(name: str, environment: Environment, *, image: str, secret: str) -> dict[str, Any]:
    """Return the container that makes the tables of an environment."""
    container = _container(
        name,
        command="schema",
        image=image,
        variables=[
            _variable("SLUICE_ENV", environment.name),
            _settings(environment, name),
            *_PLACE,
            _variable("SLUICE_DATABASE_ROLES", "1"),
        ],
        region=environment.region,
        service=f"sluice-{environment.name}-{name}",
        stop_seconds=0,
    )
    for absent in ("HealthCheck", "StopTimeout"):
        del container[absent]
    return container | {
        "Name": "apply_schema",
        "Essential": False,
        "Secrets": [{"Name": "SLUICE_DATABASE_SECRET", "ValueFrom": secret}],
        "Command": ["python", "-m", "sluice", "schema", "apply", "--wait", "90"],
        "StartTimeout": 120,
    }


def _task_definition(
    family: str,
    construct: str,
    *,
    cpu: str,
    memory: str,
    container: Any,
    architecture: str = "X86_64",
    schema: Any = None,
) -> dict[str, Any]:
    return {
        "Family": family,
        "Cpu": cpu,
        "Memory": memory,
        "NetworkMode": "awsvpc",
        "RequiresCompatibilities": ["FARGATE"],
        "RuntimePlatform": {"CpuArchitecture": architecture, "OperatingSystemFamily": "LINUX"},
        "TaskRoleArn": f"Arn({construct}TaskDefinitionTaskRole)",
        "ExecutionRoleArn": f"Arn({construct}TaskDefinitionExecutionRole)",
        "ContainerDefinitions": [container] if schema is None else [container, schema],
    }


def _variable(name: str, value: str) -> dict[str, str]:
    return {"Name": name, "Value": value}


_PLACE = [
    _variable("SLUICE_DATABASE_HOST", "Endpoint.Address(DatabaseCluster)"),
    _variable("SLUICE_DATABASE_PORT", "5432"),
    _variable("SLUICE_DATABASE_NAME", "sluice"),
]
"""Where a database of the environment's own is."""


def _database(role: DatabaseRole) -> list[dict[str, str]]:
    return [_variable("SLUICE_DATABASE_USER", role.value), *_PLACE]


ALIVE = _variable("SLUICE_ALIVE_FILE", "/dev/shm/alive")  # noqa: S108 (of the container alone)


def _first_container(found: list[Resource], family: str) -> dict[str, Any]:
    """Return the container that runs the service's command."""
    container: dict[str, Any] = of_kind(found, TASK_DEFINITION)[family]["ContainerDefinitions"][0]
    return container


def _image(found: list[Resource], family: str) -> str:
    container = _first_container(found, family)
    image: str = container["Image"]
    return image


def test_running_tasks_are_counted_by_container_insights(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """An environment has one cluster, and scaling divides by the metric of Container Insights."""
    clusters = of_kind(declared_resources, CLUSTER)

    name = f"sluice-{environment.name}"
    assert clusters == {
        name: {"ClusterName": name, "ClusterSettings": [{"Name": "containerInsights", "Value": "enabled"}]}
    }


def test_each_consumer_has_a_service_whose_task_count_is_scalings(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """No DesiredCount; rolled back if tasks do not start or fail messages; in private subnets, not public."""
    services = of_kind(declared_resources, SERVICE)
    del services[f"sluice-{environment.name}-relay"]
    subnets = [f"Ref({name})" for name in of_kind(declared_resources, "AWS::EC2::Subnet")]

    prefix = f"sluice-{environment.name}"
    assert services == {
        f"{prefix}-{consumer}": {
            "ServiceName": f"{prefix}-{consumer}",
            "Cluster": f"Ref({prefix})",
            "TaskDefinition": f"Ref({prefix}-{consumer})",
            "LaunchType": "FARGATE",
            "DeploymentConfiguration": {
                "Alarms": {
                    "AlarmNames": [f"{prefix}-{consumer}-{alarm}" for alarm in ("failing", "dying", "delayed")],
                    "Enable": True,
                    "Rollback": True,
                },
                "DeploymentCircuitBreaker": {"Enable": True, "Rollback": True},
                "MaximumPercent": 200,
                "MinimumHealthyPercent": 100,
            },
            "NetworkConfiguration": {
                "AwsvpcConfiguration": {
                    "AssignPublicIp": "DISABLED",
                    "SecurityGroups": ["GroupId(NetworkTasks)"],
                    "Subnets": subnets,
                }
            },
            "EnableECSManagedTags": True,
            "PropagateTags": "SERVICE",
            "LoadBalancers": [],
        }
        for consumer in CONSUMERS
    }


def test_the_service_in_somebody_elses_network_is_in_the_declared_subnets(hosted_resources: list[Resource]) -> None:
    """Its tasks are in all declared subnets, with only the tasks' own security group."""
    services = of_kind(hosted_resources, SERVICE)

    assert services["sluice-hosted-billing"]["NetworkConfiguration"] == {
        "AwsvpcConfiguration": {
            "AssignPublicIp": "DISABLED",
            "SecurityGroups": ["GroupId(NetworkTasks)"],
            "Subnets": ["subnet-0a1b2c3d4e5f60718", "subnet-0f1e2d3c4b5a69788"],
        }
    }


def test_each_consumers_task_runs_its_worker(by_environment: Mapping[str, list[Resource]]) -> None:
    """The variables have the consumer's name and its declaration."""
    definitions = of_kind(by_environment["local"], TASK_DEFINITION)
    del definitions["sluice-local-relay"]

    image = "000000000000.dkr.ecr.us-east-1.<AWS::URLSuffix>/sluice-worker:local"
    secret = "arn:aws:secretsmanager:us-east-1:000000000000:secret:rds!cluster-local-000000"  # noqa: S105 (its ARN)
    assert definitions == {
        f"sluice-local-{consumer}": _task_definition(
            f"sluice-local-{consumer}",
            f"ConsumersConsumer{consumer}Worker",
            cpu="256",
            memory="512",
            container=_container(
                consumer,
                command="worker",
                image=image,
                variables=[
                    _variable("SLUICE_ENV", "local"),
                    _settings(ENVIRONMENTS["local"], consumer),
                    *_database(DatabaseRole.WORKER),
                    _variable("SLUICE_CONSUMER", consumer),
                    ALIVE,
                ],
                region="us-east-1",
                service=f"sluice-local-{consumer}",
                stop_seconds=30,
                depends_on="apply_schema",
            ),
            schema=_schema_container(consumer, ENVIRONMENTS["local"], image=image, secret=secret),
        )
        for consumer in CONSUMERS
    }


def test_a_consumers_own_sizes_and_image_reach_its_task(full: list[Resource]) -> None:
    """The variables also have the consumer's declaration, so that a changed queue needs no new image.

    They name the database's address and user, too.
    """
    definitions = of_kind(full, TASK_DEFINITION)

    assert definitions["sluice-full-ledger"] == _task_definition(
        "sluice-full-ledger",
        "ConsumersConsumerledgerWorker",
        cpu="512",
        memory="1024",
        architecture="ARM64",
        container=_container(
            "ledger",
            command="worker",
            image=f"111122223333.dkr.ecr.eu-central-1.<AWS::URLSuffix>/team/ledger@{DIGEST}",
            variables=[
                _variable("SLUICE_ENV", "full"),
                _settings(FULL, "ledger"),
                *_database(DatabaseRole.WORKER),
                _variable("SLUICE_CONSUMER", "ledger"),
                ALIVE,
            ],
            region="eu-central-1",
            service="sluice-full-ledger",
            stop_seconds=45,
            depends_on="apply_schema",
        ),
        schema=_schema_container(
            "ledger",
            FULL,
            image=f"111122223333.dkr.ecr.eu-central-1.<AWS::URLSuffix>/team/ledger@{DIGEST}",
            secret=SECRET,
        ),
    )


def test_every_task_with_a_database_makes_its_tables_first(
    full: list[Resource], hosted_resources: list[Resource]
) -> None:
    """The service's container starts once that one has succeeded; both have the same image, user and place."""
    for found in (full, hosted_resources):
        for family, definition in of_kind(found, TASK_DEFINITION).items():
            service, schema = definition["ContainerDefinitions"]
            assert service["DependsOn"] == [{"Condition": "SUCCESS", "ContainerName": schema["Name"]}], family
            assert schema["Command"][:7] == ["python", "-m", "sluice", "schema", "apply", "--wait", "90"]
            assert service["Essential"] is True
            assert schema["Essential"] is False
            shared = [variable for variable in service["Environment"] if variable in schema["Environment"]]
            assert [variable for variable in schema["Environment"] if variable not in shared] in (
                [],
                [_variable("SLUICE_DATABASE_ROLES", "1")],
            )
            for name in ("Image", "User", "ReadonlyRootFilesystem", "LogConfiguration"):
                assert schema[name] == service[name], name


def test_a_project_migrates_in_every_task_of_its_own_image(
    full: list[Resource], hosted_resources: list[Resource]
) -> None:
    """A consumer's own image may not contain the migration."""
    commands = {
        family: definition["ContainerDefinitions"][1]["Command"][7:]
        for found in (full, hosted_resources)
        for family, definition in of_kind(found, TASK_DEFINITION).items()
    }

    migrates = ["--migrate", "alembic upgrade head"]
    assert {family for family, command in commands.items() if command == migrates} == {
        "sluice-full-night-batch",
        "sluice-full-relay",
    }
    assert all(command in ([], migrates) for command in commands.values())


def test_a_worker_may_use_its_own_queue_and_protect_its_own_task(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """Everything its role allows, whole; with a key of ours also to decrypt; nobody else's queue, no sending."""
    allowed = {
        consumer: statements(declared_resources, f"ConsumersConsumer{consumer}WorkerTaskDefinitionTaskRole")
        for consumer in CONSUMERS
    }

    of_account = f"us-east-1:{account(environment)}"
    has_key = environment.name in ("staging", "prod")
    decrypt = [allow("kms:Decrypt", "Arn(FanoutKeysQueues)")] if has_key else []
    assert allowed == {
        consumer: [
            *log_in(environment, DatabaseRole.WORKER),
            allow(RECEIVE, f"arn:aws:sqs:{of_account}:sluice-{environment.name}-{consumer}.fifo"),
            *decrypt,
            allow(PROTECT, f"arn:aws:ecs:{of_account}:task/sluice-{environment.name}/*"),
        ]
        for consumer in CONSUMERS
    }


_OF_SECRET = {"secretsmanager:GetSecretValue", "secretsmanager:*", "*"}


def _reading(found: list[Resource]) -> set[str]:
    """Return which roles of IAM, and which managed policies, may read a secret, or log in as a user, and as which."""
    policies = [
        *((role[4:-1], policy) for policy in of_kind(found, "AWS::IAM::Policy").values() for role in policy["Roles"]),
        *of_kind(found, "AWS::IAM::ManagedPolicy").items(),
    ]
    return {
        f"{name}: {'secret' if action in _OF_SECRET else statement['Resource'].rpartition('/')[2]}"
        for name, policy in policies
        for statement in policy["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        if action in _OF_SECRET or action.startswith("rds-db:")
    }


def test_no_worker_relay_or_producer_reads_the_owners_secret(
    by_environment: Mapping[str, list[Resource]], edited_stacks: Mapping[str, StackTemplates]
) -> None:
    """ECS reads it with the execution role, whose credentials no container has, and hands it to the step alone."""
    redriven = resources(edited_stacks[REDRIVEN])
    for found in (by_environment["full"], by_environment["prod"], redriven):
        seen = _reading(found)
        assert {name for name in seen if name.endswith(": secret")} == {
            f"{name}: secret" for name in of_kind(found, ROLE) if name.endswith("TaskDefinitionExecutionRole")
        }
        for definition in of_kind(found, TASK_DEFINITION).values():
            service, schema = definition["ContainerDefinitions"]
            assert "Secrets" not in service
            assert [secret["Name"] for secret in schema["Secrets"]] == ["SLUICE_DATABASE_SECRET"]
            assert "SLUICE_DATABASE_SECRET_ARN" not in str(definition)
    assert {name for name in _reading(redriven) if not name.endswith(": secret")} == {
        *(f"ConsumersConsumer{name}WorkerTaskDefinitionTaskRole: sluice_worker" for name in ("ledger", "nightbatch")),
        *(f"ConsumersConsumer{name}RedriveTaskDefinitionTaskRole: sluice_redrive" for name in ("ledger", "nightbatch")),
        "ConsumersRelayTaskDefinitionTaskRole: sluice_relay",
        "ConsumersVerificationTaskDefinitionTaskRole: sluice_reader",
        "ProducersOutbox: sluice_producer",
    }


def test_owner_and_users_both_get_in_while_one_takes_the_others_place(
    edited_stacks: Mapping[str, StackTemplates],
) -> None:
    """An image or a producer of before reads the secret, and one of now logs in as its user, whichever is first."""
    found = resources(edited_stacks[CHANGING])
    owned = resources(edited_stacks[OWNED])

    seen = _reading(found)
    for name in (*(name for name in of_kind(found, ROLE) if name.endswith("TaskRole")), "ProducersOutbox"):
        assert {user for user in seen if user.startswith(f"{name}: ")} > {f"{name}: secret"}, name
    for definition in of_kind(found, TASK_DEFINITION).values():
        service, schema = definition["ContainerDefinitions"]
        for variable in ("SLUICE_DATABASE_SECRET_ARN", "SLUICE_DATABASE_USER"):
            assert variable in [given["Name"] for given in service["Environment"]]
        assert "SLUICE_DATABASE_SECRET_ARN" in [given["Name"] for given in schema["Environment"]]
        assert [secret["Name"] for secret in schema["Secrets"]] == ["SLUICE_DATABASE_SECRET"]
    assert {name.rpartition(": ")[2] for name in _reading(owned)} == {"secret"}
    assert not any("ExecutionRole" in name for name in _reading(owned))
    assert "rds-db" not in str(owned)
    assert "SLUICE_DATABASE_USER" not in str(owned)
    assert "Secrets" not in str(of_kind(owned, TASK_DEFINITION))


def test_a_worker_may_read_the_one_secret_of_somebody_elses_database(hosted_resources: list[Resource]) -> None:
    """It may also decrypt this secret with the secret's own key."""
    allowed = statements(hosted_resources, "ConsumersConsumerbillingWorkerTaskDefinitionTaskRole")

    assert allowed == [
        allow(
            "secretsmanager:GetSecretValue",
            "arn:aws:secretsmanager:us-east-1:111122223333:secret:sluice/inbox-AbCdEf",
        ),
        allow("kms:Decrypt", "arn:aws:kms:us-east-1:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666"),
        allow(RECEIVE, "arn:aws:sqs:us-east-1:<AWS::AccountId>:sluice-hosted-billing.fifo"),
        allow(PROTECT, "arn:aws:ecs:us-east-1:<AWS::AccountId>:task/sluice-hosted/*"),
    ]


def test_tasks_log_in_to_somebody_elses_database_as_users_of_its_own(
    by_environment: Mapping[str, list[Resource]],
) -> None:
    """They log in by IAM and are given the database's address.

    The owner's secret reaches only the container that makes the users.
    """
    found = by_environment["shared"]
    places = {
        "SLUICE_DATABASE_HOST": "shop.cluster-abc.us-east-1.rds.amazonaws.com",
        "SLUICE_DATABASE_PORT": "5433",
        "SLUICE_DATABASE_NAME": "shop",
    }

    assert {name for name in _reading(found) if name.endswith(": secret")} == {
        f"{name}: secret" for name in of_kind(found, ROLE) if name.endswith("TaskDefinitionExecutionRole")
    }
    assert allow(
        "rds-db:connect", "arn:aws:rds-db:us-east-1:<AWS::AccountId>:dbuser:cluster-ABCDEFGHIJKL01234/sluice_worker"
    ) in statements(found, "ConsumersConsumerbillingWorkerTaskDefinitionTaskRole")
    for definition in of_kind(found, TASK_DEFINITION).values():
        service, schema = definition["ContainerDefinitions"]
        variables = {each["Name"]: each["Value"] for each in service["Environment"]}
        assert places.items() <= variables.items()
        assert variables["SLUICE_DATABASE_USER"] in ("sluice_worker", "sluice_relay")
        assert "Secrets" not in service
        assert [secret["Name"] for secret in schema["Secrets"]] == ["SLUICE_DATABASE_SECRET"]
        assert {"Name": "SLUICE_DATABASE_ROLES", "Value": "1"} in schema["Environment"]


def test_roles_of_tasks_are_assumed_by_ecs_and_have_no_other_policies(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """The permissions of a role are in a policy of its own; no policy managed by AWS is attached."""
    roles = {
        name: role for name, role in of_kind(declared_resources, ROLE).items() if name.startswith("ConsumersConsumer")
    }

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
            "000000000000.dkr.ecr.us-east-1.<AWS::URLSuffix>/sluice-worker:local",
            "arn:aws:ecr:us-east-1:000000000000:repository/sluice-worker",
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
    ids=[
        "repository",
        "uri with tag and digest",
        "repository with path",
        "elsewhere",
        "unknown account and dotted tag",
    ],
)
def test_an_image_in_ecr_may_be_pulled_from_its_one_repository(
    by_environment: Mapping[str, list[Resource]], name: str, construct: str, family: str, image: str, repository: str
) -> None:
    """The role that starts the task may pull it, and may only log besides.

    ECR's token cannot be limited to a repository.
    """
    found = by_environment[name]

    allowed = statements(found, f"Consumers{construct}WorkerTaskDefinitionExecutionRole")

    assert _image(found, family) == image
    assert allowed == [
        allow(PULL, repository),
        allow("ecr:GetAuthorizationToken", "*"),
        allow(WRITE_LOGS, f"Arn(/ecs/{family})"),
        *_hand_over({**ENVIRONMENTS, **EXTRA}[name]),
    ]


def test_the_built_image_may_be_pulled_from_the_repository_of_assets(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """The one `cdk bootstrap` makes in the account and region; all tasks of an environment run the same image."""
    images = {_image(declared_resources, f"sluice-{environment.name}-{consumer}") for consumer in CONSUMERS}
    if environment.image is not None:
        assert images == {f"{environment.account}.dkr.ecr.us-east-1.<AWS::URLSuffix>/{environment.image}"}
        return
    repository = "cdk-hnb659fds-container-assets-<AWS::AccountId>-us-east-1"

    (image,) = images

    assert re.fullmatch(rf"<AWS::AccountId>\.dkr\.ecr\.us-east-1\.<AWS::URLSuffix>/{repository}:[0-9a-f]{{64}}", image)
    for consumer in CONSUMERS:
        assert statements(declared_resources, f"ConsumersConsumer{consumer}WorkerTaskDefinitionExecutionRole") == [
            allow(PULL, f"arn:aws:ecr:us-east-1:<AWS::AccountId>:repository/{repository}"),
            allow("ecr:GetAuthorizationToken", "*"),
            allow(WRITE_LOGS, f"Arn(/ecs/sluice-{environment.name}-{consumer})"),
            *_hand_over(environment),
        ]


def _hand_over(environment: Environment) -> list[dict[str, Any]]:
    """Return the statements with which ECS passes the owner's secret to the step that makes tables."""
    if not isinstance(environment.database, NewDatabase):
        return []
    secret, key = secret_of(environment)
    read = allow(["secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue"], str(secret))
    return [read] if key is None else [allow("kms:Decrypt", key), read]


def test_an_image_from_another_registry_is_taken_as_declared(hosted_resources: list[Resource]) -> None:
    """The role that starts the task has no right in ECR then."""
    allowed = statements(hosted_resources, "ConsumersConsumerbillingWorkerTaskDefinitionExecutionRole")

    assert _image(hosted_resources, "sluice-hosted-billing") == "ghcr.io/example/worker:2"
    assert allowed == [allow(WRITE_LOGS, "Arn(/ecs/sluice-hosted-billing)")]


def test_tasks_on_spot_ask_for_nothing_else(hosted_resources: list[Resource]) -> None:
    """A launch type beside a capacity provider is refused by ECS; the cluster keeps a provider that a service uses."""
    services = [resource for resource in hosted_resources if resource.kind == SERVICE]
    (association,) = (
        resource for resource in hosted_resources if resource.kind.endswith("ClusterCapacityProviderAssociations")
    )

    assert association.properties["CapacityProviders"] == ["FARGATE", "FARGATE_SPOT"]
    assert len(services) == 3
    for service in services:
        assert service.properties["CapacityProviderStrategy"] == [{"CapacityProvider": "FARGATE_SPOT", "Weight": 1}]
        assert "LaunchType" not in service.properties
        assert association.name in service.depends_on


def test_each_service_logs_to_a_group_of_its_own(declared_resources: list[Resource], environment: Environment) -> None:
    """Named after the service, and kept as long as declared."""
    groups = of_kind(declared_resources, LOG_GROUP)
    del groups["NetworkFlowLogs"]
    of_database = groups.pop(f"/aws/rds/cluster/sluice-{environment.name}/postgresql")

    days = {"local": 30, "dev": 7, "staging": 30, "prod": 90}
    assert of_database["RetentionInDays"] == days[environment.name]
    assert groups == {
        f"/ecs/sluice-{environment.name}-{consumer}": {
            "LogGroupName": f"/ecs/sluice-{environment.name}-{consumer}",
            "RetentionInDays": days[environment.name],
            **log_encryption(environment),
        }
        for consumer in (*CONSUMERS, "relay")
    }


def test_the_relay_is_two_tasks_that_publish_from_the_outbox(full: list[Resource]) -> None:
    """One leads and one stands by, in zones of their own; it is told its topic, and is a user of the database."""
    service = of_kind(full, SERVICE)["sluice-full-relay"]
    container = _first_container(full, "sluice-full-relay")

    assert service["DesiredCount"] == 2
    assert service["AvailabilityZoneRebalancing"] == "ENABLED"
    assert service["NetworkConfiguration"]["AwsvpcConfiguration"]["Subnets"] == [
        f"Ref({name})" for name in of_kind(full, "AWS::EC2::Subnet")
    ]
    assert statements(full, "ConsumersRelayTaskDefinitionTaskRole") == [
        *log_in(FULL, DatabaseRole.RELAY),
        allow("sns:Publish", "arn:aws:sns:eu-central-1:111122223333:sluice-full-orders.fifo"),
        allow(["kms:Decrypt", "kms:GenerateDataKey"], "Arn(FanoutKeysTopic)"),
    ]
    assert container == _container(
        "relay",
        command="relay",
        image="111122223333.dkr.ecr.eu-central-1.<AWS::URLSuffix>/team/worker:stable",
        variables=[
            _variable("SLUICE_ENV", "full"),
            _settings(FULL, None),
            *_database(DatabaseRole.RELAY),
            _variable("SLUICE_TOPIC_ARN", "arn:aws:sns:eu-central-1:111122223333:sluice-full-orders.fifo"),
            ALIVE,
        ],
        region="eu-central-1",
        service="sluice-full-relay",
        stop_seconds=30,
        depends_on="apply_schema",
    )


def test_a_relay_without_a_declared_account_is_told_its_topic_too(hosted_resources: list[Resource]) -> None:
    """A relay without its topic would ask STS for the account, and a network without internet has no way there."""
    container = _first_container(hosted_resources, "sluice-hosted-relay")

    expected = _variable("SLUICE_TOPIC_ARN", "arn:aws:sns:us-east-1:<AWS::AccountId>:sluice-hosted-events.fifo")
    assert expected in container["Environment"]


def test_there_is_a_relay_where_there_is_a_database(by_environment: Mapping[str, list[Resource]]) -> None:
    """Every service there is, by environment."""
    services = {name: set(of_kind(found, SERVICE)) for name, found in by_environment.items()}

    assert services == {
        **{name: {f"sluice-{name}-{service}" for service in (*CONSUMERS, "relay")} for name in ENVIRONMENTS},
        "full": {"sluice-full-ledger", "sluice-full-night-batch", "sluice-full-relay"},
        "hosted": {"sluice-hosted-billing", "sluice-hosted-search", "sluice-hosted-relay"},
        "plain": {"sluice-plain-billing"},
        "shared": {
            *("sluice-shared-billing", "sluice-shared-search", "sluice-shared-audit"),
            *("sluice-shared-relay", "sluice-shared-relay-payments", "sluice-shared-relay-stock"),
        },
    }


def test_no_service_starts_before_its_tasks_can_pull_and_log(full: list[Resource]) -> None:
    """A task that may not pull counts against the deployment, and could roll a first one back.

    Endpoints are in a stack that is deployed before: tests/unit/constructs/test_stage.py.
    """
    services = [resource for resource in full if resource.kind == SERVICE]

    assert {resource.stack for resource in full if resource.kind == "AWS::EC2::VPCEndpoint"} == {"network"}
    for service in services:
        name = service.name.removeprefix("sluice-full-").replace("-", "")
        construct = "ConsumersRelay" if name == "relay" else f"ConsumersConsumer{name}Worker"
        assert f"{construct}TaskDefinitionExecutionRoleDefaultPolicy" in service.depends_on, service.name
