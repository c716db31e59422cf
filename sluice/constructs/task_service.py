"""Services on Fargate, one for each command of `messaging`, and a consumer's workers and the relay as such.

What runs in the container is fixed here: `sluice worker`. SLUICE_ENV and SLUICE_CONSUMER say who it is,
SLUICE_TASK_SETTINGS what is declared of it, SLUICE_DATABASE_SECRET_ARN where the inbox is. The image holds code and no
declaration, so that a changed queue needs no new one. Queues are found by name (`sluice.declaration.naming`). The relay
gets its topic by SLUICE_TOPIC_ARN: to make the ARN itself it would have to ask STS for the account, and has no way
there.
"""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from sluice.constructs.feature_flags import set_flags
from sluice.constructs.nag import acknowledge
from sluice.constructs.network import Network
from sluice.constructs.removal import log_group
from sluice.constructs.scaling import BacklogScaling
from sluice.declaration import Consumer, Database, Environment, naming, registry, task_settings

_USER = "10001"
_ALIVE_FILE = "/dev/shm/alive"  # noqa: S108 (of the container alone; its root file system is read-only)
_RELAY_CPU, _RELAY_MEMORY_MIB, _RELAY_STOP_SECONDS = 256, 512, 30


class TaskService(Construct):
    """A Fargate service that runs one command of `messaging`, with a role and a log group of its own.

    It has no DesiredCount, so that a deployment leaves alone what scaling chose. A deployment whose tasks do not start
    is rolled back. A task whose process gives no signs of life is replaced.
    AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-resource-ecs-service.html (read 2026-11-21)
    and https://docs.aws.amazon.com/AmazonECS/latest/developerguide/healthcheck.html (read 2026-11-23).
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        name: str,
        command: Sequence[str],
        variables: dict[str, str],
        image: str,
        cpu: int,
        memory_mib: int,
        stop_timeout_seconds: int,
        cluster: ecs.ICluster,
        network: Network,
        consumer: Consumer | None = None,
        desired_count: int | None = None,
    ) -> None:
        super().__init__(scope, id_)
        set_flags(self)
        service_name = naming.service_name(environment, name)
        self.task_definition = ecs.FargateTaskDefinition(
            self, "TaskDefinition", cpu=cpu, memory_limit_mib=memory_mib, family=service_name
        )
        task_logs = log_group(self, "Logs", environment=environment, name=f"/ecs/{service_name}")
        self.task_definition.add_container(
            "Container",
            container_name=name,
            image=_image(self, image),
            command=["python", "-m", "sluice", *command],
            environment={
                "SLUICE_ENV": environment.name,
                **variables,
                "SLUICE_ALIVE_FILE": _ALIVE_FILE,
                task_settings.VARIABLE: task_settings.render(task_settings.task_environment(environment, consumer)),
                **_database_variables(environment),
            },
            logging=ecs.LogDriver.aws_logs(stream_prefix=name, log_group=task_logs),
            health_check=ecs.HealthCheck(
                command=["CMD", "python", "-m", "sluice", "alive"],
                interval=cdk.Duration.seconds(30),
                timeout=cdk.Duration.seconds(10),
                retries=3,
                start_period=cdk.Duration.seconds(120),
            ),
            readonly_root_filesystem=True,
            user=_USER,
            stop_timeout=cdk.Duration.seconds(stop_timeout_seconds),
        )
        self.task_role = self.task_definition.task_role
        _grant_database(self.task_role, environment.database)
        acknowledge(
            self.task_definition,
            "AwsSolutions-ECS2",
            "the variables are names, numbers and the ARN of a secret; the secret itself is read by the task",
        )
        if _is_in_ecr(image):
            acknowledge(
                self.task_definition.obtain_execution_role(),
                "AwsSolutions-IAM5[Resource::*]",
                "ecr:GetAuthorizationToken knows no resource; pulling itself is allowed from one repository",
            )
        self.service = ecs.FargateService(
            self,
            "Service",
            service_name=service_name,
            cluster=cluster,
            task_definition=self.task_definition,
            desired_count=desired_count,
            vpc_subnets=network.subnets,
            security_groups=[network.security_group],
            assign_public_ip=False,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            min_healthy_percent=100,
            max_healthy_percent=200,
            propagate_tags=ecs.PropagatedTagSource.SERVICE,
            enable_ecs_managed_tags=True,
        )
        # A task that starts before it can pull its image counts as failed; one that stops after the endpoints are gone
        # cannot delete its messages.
        self.service.node.add_dependency(network, self.task_definition.obtain_execution_role())


class ConsumerService(Construct):
    """A consumer's workers: a service that may receive from its queue and delete, scaled on the queue's backlog."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        consumer: Consumer,
        cluster: ecs.ICluster,
        network: Network,
        queue_key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, id_)
        tasks = TaskService(
            self,
            "Worker",
            environment=environment,
            name=consumer.name,
            command=["worker"],
            consumer=consumer,
            variables={"SLUICE_CONSUMER": consumer.name},
            image=environment.image if consumer.image is None else consumer.image,
            cpu=consumer.cpu,
            memory_mib=consumer.memory_mib,
            stop_timeout_seconds=consumer.stop_timeout_seconds,
            cluster=cluster,
            network=network,
        )
        self.service = tasks.service
        # By literal ARN: an export would forbid to remove a consumer in one deployment.
        queue = sqs.Queue.from_queue_attributes(
            self,
            "Queue",
            queue_arn=cdk.Stack.of(self).format_arn(service="sqs", resource=naming.queue_name(environment, consumer)),
            key_arn=None if queue_key is None else queue_key.key_arn,
            fifo=True,
        )
        queue.grant_consume_messages(tasks.task_role)
        self._allow_task_protection(tasks, environment=environment)
        self.scaling = BacklogScaling(
            self, "Scaling", environment=environment, consumer=consumer, service=tasks.service
        )

    def _allow_task_protection(self, tasks: TaskService, *, environment: Environment) -> None:
        """Let a worker protect its own task from scale-in while it works on messages.

        AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection.html
        (read 2026-11-21).
        """
        tasks_of_cluster = f"arn:aws:ecs:{environment.region}:{{}}:task/{naming.cluster_name(environment)}/*"
        account = cdk.Stack.of(self).account
        resource = tasks_of_cluster.format(account)
        tasks.task_role.add_to_principal_policy(
            iam.PolicyStatement(actions=["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"], resources=[resource])
        )
        seen = tasks_of_cluster.format("<AWS::AccountId>" if cdk.Token.is_unresolved(account) else account)
        acknowledge(
            tasks.task_role,
            f"AwsSolutions-IAM5[Resource::{seen}]",
            "a task protects itself, and its id is known only once it runs; other clusters are out of reach",
        )


class RelayService(TaskService):
    """The relay: one task that publishes the outbox to the topic. One leads; during a deployment a second stands by."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        cluster: ecs.ICluster,
        network: Network,
        topic_key: kms.IKey | None,
    ) -> None:
        # By literal ARN, as the queues: the relay can then be switched off in one deployment.
        topic_arn = cdk.Stack.of(scope).format_arn(service="sns", resource=naming.topic_name(environment))
        super().__init__(
            scope,
            id_,
            environment=environment,
            name="relay",
            command=["relay"],
            variables={"SLUICE_TOPIC_ARN": topic_arn},
            image=environment.image,
            cpu=_RELAY_CPU,
            memory_mib=_RELAY_MEMORY_MIB,
            stop_timeout_seconds=_RELAY_STOP_SECONDS,
            cluster=cluster,
            network=network,
            desired_count=1,
        )
        self.task_role.add_to_principal_policy(iam.PolicyStatement(actions=["sns:Publish"], resources=[topic_arn]))
        if topic_key is not None:
            self.task_role.add_to_principal_policy(
                iam.PolicyStatement(actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[topic_key.key_arn])
            )


def _database_variables(environment: Environment) -> dict[str, str]:
    return {} if environment.database is None else {"SLUICE_DATABASE_SECRET_ARN": environment.database.secret_arn}


def _grant_database(role: iam.IRole, database: Database | None) -> None:
    if database is None:
        return
    role.add_to_principal_policy(
        iam.PolicyStatement(actions=["secretsmanager:GetSecretValue"], resources=[database.secret_arn])
    )
    if database.secret_key_arn is not None:
        role.add_to_principal_policy(iam.PolicyStatement(actions=["kms:Decrypt"], resources=[database.secret_key_arn]))


def _is_in_ecr(image: str) -> bool:
    host = registry(image)
    return host is None or ".dkr.ecr." in host


def _image(scope: Construct, image: str) -> ecs.ContainerImage:
    """Return the declared image; one in ECR with the right to pull it, and no other."""
    if not _is_in_ecr(image):
        return ecs.ContainerImage.from_registry(image)
    host = registry(image)
    path = image if host is None else image.removeprefix(f"{host}/")
    name, separator, tag = path.partition("@")
    if not separator:
        name, _, tag = path.rpartition(":")
    return ecs.ContainerImage.from_ecr_repository(_repository(scope, host, name), tag)


def _repository(scope: Construct, host: str | None, name: str) -> ecr.IRepository:
    if host is None:
        return ecr.Repository.from_repository_name(scope, "Repository", name)
    account, _, _, region = host.split(".")[:4]
    arn = cdk.Stack.of(scope).format_arn(
        service="ecr", account=account, region=region, resource="repository", resource_name=name
    )
    return ecr.Repository.from_repository_attributes(scope, "Repository", repository_arn=arn, repository_name=name)
