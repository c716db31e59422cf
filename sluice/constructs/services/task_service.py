"""Tasks and services on Fargate: a consumer's workers, the relays, and the task of automatic redrive.

A task runs a command such as `sluice worker`. The variables SLUICE_ENV and SLUICE_CONSUMER say for which consumer,
SLUICE_TASK_SETTINGS has its part of the declaration, and SLUICE_DATABASE_… tell where the inbox is. The image has code
only, so that a changed declaration needs no new image. Workers find their queues by name (`sluice.declaration.naming`).
A relay gets its topic's ARN in SLUICE_TOPIC_ARN: the ARN contains the account, and its network has no way to STS.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from sluice.constructs.database import DatabaseAccess
from sluice.constructs.fan_out import EncryptionKeys, topic_key_arn
from sluice.constructs.feature_flags import set_flags
from sluice.constructs.logs import log_group
from sluice.constructs.monitoring.alarm import make_alarm
from sluice.constructs.nag import acknowledge
from sluice.constructs.network import Network
from sluice.constructs.services.automatic_redrive import AutomaticRedriveRule
from sluice.constructs.services.images import Images, TaskImage
from sluice.constructs.services.scaling import BacklogScaling
from sluice.constructs.services.task_start import TaskStart
from sluice.declaration import (
    Consumer,
    DatabaseRole,
    Environment,
    ExistingTopic,
    Hourly,
    Topic,
    naming,
    policies,
    task_settings,
)
from sluice.declaration.alarms import Hearer, of_consumer
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.fields.topics import RELAY_TASKS

_USER = "10001"
_SCHEMA_START_SECONDS = 120
_SCHEMA_WAIT_SECONDS = 90  # shorter, so that the command ends by itself and logs why
_ALIVE_FILE = "/dev/shm/alive"  # noqa: S108 (only this container sees it; its root file system is read-only)
_SMALL_CPU, _SMALL_MEMORY_MIB = 256, 512  # of relays and of automatic redrive
_RELAY_STOP_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """The constructs that all tasks of an environment share.

    Args:
        environment: as declared.
        images: of the tasks.
        cluster: where the tasks run.
        network: their subnets and security groups.
        database: the access to the database; None if there is none.
        keys: of topics and queues; None if SQS holds them.
        deployment_alarms: whether alarms roll back a new version of a service.
    """

    environment: Environment
    images: Images
    cluster: ecs.ICluster
    network: Network
    database: DatabaseAccess | None
    keys: EncryptionKeys | None
    deployment_alarms: bool = True


class TaskSpec(Construct):
    """A Fargate task that runs one command of `sluice`, with a role and a log group of its own.

    In a service, ECS replaces a task whose process gives no signs of life. A task that is started once is not replaced.
    AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/healthcheck.html (read 2026-11-23).
    """

    @check_argument_types
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        place: TaskPlace,
        name: str,
        command: Sequence[str],
        variables: dict[str, str],
        image: TaskImage,
        stop_timeout_seconds: int,
        role: DatabaseRole,
        cpu: int = _SMALL_CPU,
        memory_mib: int = _SMALL_MEMORY_MIB,
        consumer: Consumer | None = None,
        topic: Topic | ExistingTopic | None = None,
        settings: Environment | None = None,
    ) -> None:
        super().__init__(scope, id_)
        set_flags(self)
        self._place, environment, database = place, place.environment, place.database
        service_name = naming.service_name(environment, name)
        self.task_definition = ecs.FargateTaskDefinition(
            self,
            "TaskDefinition",
            cpu=cpu,
            memory_limit_mib=memory_mib,
            family=service_name,
            runtime_platform=image.platform,
        )
        task_logs = log_group(
            self, "Logs", environment=environment, key=place.network.log_key, name=f"/ecs/{service_name}"
        )
        logging = ecs.LogDriver.aws_logs(stream_prefix=name, log_group=task_logs)
        read = task_settings.task_environment(environment, consumer, topic) if settings is None else settings
        common = {"SLUICE_ENV": environment.name, task_settings.VARIABLE: task_settings.render(read)}
        database_variables = {} if database is None else database.variables(role)
        container = self.task_definition.add_container(
            "Container",
            container_name=name,
            image=image.container,
            command=["python", "-m", "sluice", *command],
            environment={**common, **database_variables, **variables, "SLUICE_ALIVE_FILE": _ALIVE_FILE},
            logging=logging,
            health_check=ecs.HealthCheck(
                command=["CMD", "python", "-m", "sluice", "alive"],
                interval=cdk.Duration.seconds(30),
                timeout=cdk.Duration.seconds(10),
                retries=3,
                start_period=cdk.Duration.seconds(120),
            ),
            readonly_root_filesystem=True,
            linux_parameters=_linux_parameters(self, "Linux"),
            user=_USER,
            stop_timeout=cdk.Duration.seconds(stop_timeout_seconds),
        )
        if database is not None:
            migration = () if consumer is not None and consumer.image is not None else environment.migration
            self._apply_schema_first(
                container, database, image=image.container, variables=common, logging=logging, migration=migration
            )
        self.task_role = self.task_definition.task_role
        for statement in () if database is None else database.statements(role):
            self.task_role.add_to_principal_policy(statement)
        acknowledge(
            self.task_definition,
            "AwsSolutions-ECS2",
            "the variables are names, numbers and the ARN of a secret; no variable is the secret itself",
        )
        if image.is_in_ecr:
            acknowledge(
                self.task_definition.obtain_execution_role(),
                "AwsSolutions-IAM5[Resource::*]",
                "ecr:GetAuthorizationToken knows no resource; pulling itself is allowed from one repository",
            )

    def _apply_schema_first(
        self,
        container: ecs.ContainerDefinition,
        database: DatabaseAccess,
        *,
        image: ecs.ContainerImage,
        variables: dict[str, str],
        logging: ecs.LogDriver,
        migration: Sequence[str],
    ) -> None:
        """Add a container that makes the tables, and that has to succeed before `container` starts.

        It runs `sluice schema apply` and the project's own migration. Where tasks have users of their own, it also
        makes these users as the database's owner: ECS hands this container the owner's secret, which it reads with the
        execution role; the task's own role may not read it.

        The command waits for a database that does not answer or wakes up. If it fails, the task does not start, and ECS
        rolls the deployment back.
        AWS: https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDependency.html and startTimeout in
        https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html (read 2026-11-23);
        https://docs.aws.amazon.com/AmazonECS/latest/developerguide/secrets-envvar-secrets-manager.html
        (read 2026-11-26).
        """
        secrets = database.owner_secrets(self.task_definition)
        schema = self.task_definition.add_container(
            "Schema",
            container_name="apply_schema",
            image=image,
            command=[
                *("python", "-m", "sluice", "schema", "apply", "--wait", str(_SCHEMA_WAIT_SECONDS)),
                *(("--migrate", shlex.join(migration)) if migration else ()),
            ],
            environment={
                **variables,
                **database.owner_variables(),
                **({"SLUICE_DATABASE_ROLES": "1"} if secrets else {}),
            },
            secrets=secrets,
            logging=logging,
            essential=False,
            readonly_root_filesystem=True,
            linux_parameters=_linux_parameters(self, "SchemaLinux"),
            user=_USER,
            start_timeout=cdk.Duration.seconds(_SCHEMA_START_SECONDS),
        )
        container.add_container_dependencies(
            ecs.ContainerDependency(container=schema, condition=ecs.ContainerDependencyCondition.SUCCESS)
        )

    def allow(self, arn: str, *actions: str) -> None:
        """Allow the task these actions on one resource."""
        self.task_role.add_to_principal_policy(iam.PolicyStatement(actions=list(actions), resources=[arn]))

    def serve(self, *, desired_count: int | None = None) -> ecs.FargateService:
        """Make a service of these tasks; ECS rolls back a deployment whose tasks do not start.

        Without a `desired_count` the template has no DesiredCount, so that a deployment keeps the number of tasks that
        scaling chose.
        AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-resource-ecs-service.html
        (read 2026-11-21).
        """
        service = ecs.FargateService(
            self,
            "Service",
            service_name=self.task_definition.family,
            cluster=self._place.cluster,
            task_definition=self.task_definition,
            desired_count=desired_count,
            capacity_provider_strategies=_spot() if self._place.environment.spot else None,
            vpc_subnets=self._place.network.subnets,
            security_groups=[self._place.network.security_group],
            assign_public_ip=False,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            min_healthy_percent=100,
            max_healthy_percent=200,
            availability_zone_rebalancing=None if desired_count is None else ecs.AvailabilityZoneRebalancing.ENABLED,
            propagate_tags=ecs.PropagatedTagSource.SERVICE,
            enable_ecs_managed_tags=True,
        )
        # The service is made after these and deleted before them. A task that cannot pull its image yet counts as
        # failed; a task that stops after the endpoints are deleted cannot delete its messages; and a cluster cannot
        # give up a capacity provider that a service uses.
        service.node.add_dependency(
            self._place.network, self.task_definition.obtain_execution_role(), self._place.cluster
        )
        return service


def queue_key_arn(place: TaskPlace, consumer: Consumer) -> str | None:
    """Return the ARN of the key that a consumer's queue is encrypted with; None where SQS holds the key."""
    if consumer.queue is not None:
        return consumer.queue.key_arn
    return None if place.keys is None else place.keys.queues.key_arn


def rights_on_queues(scope: Construct, place: TaskPlace, consumer: Consumer) -> Iterator[tuple[Sequence[str], str]]:
    """Return what a consumer's processes may do on its queues and their key: actions, and a resource.

    The ARNs are literals: a reference to another stack's export would keep that stack from removing the consumer.
    """
    queue_arn, dead_letter_queue_arn = (
        cdk.Stack.of(scope).format_arn(service="sqs", resource=name_of(place.environment, consumer))
        for name_of in (naming.queue_name, naming.dead_letter_queue_name)
    )
    return policies.consume(
        place.environment,
        consumer,
        queue_arn=queue_arn,
        dead_letter_queue_arn=dead_letter_queue_arn,
        key_arn=queue_key_arn(place, consumer),
    )


def add_automatic_redrive(scope: Construct, *, place: TaskPlace, consumer: Consumer, image: TaskImage | None) -> None:
    """Make the task of automatic redrive and the rules that start it, if the consumer declares automatic redrive.

    Args:
        scope: the construct in which they are made.
        place: where the task runs.
        consumer: whose dead letters the task brings back.
        image: the consumer's image; None if it has not been made yet, because a function runs a zip package.
    """
    if consumer.automatic_redrive is None:
        return
    redrive = TaskSpec(
        scope,
        "Redrive",
        place=place,
        consumer=consumer,
        variables={"SLUICE_CONSUMER": consumer.name},
        image=place.images.of(consumer) if image is None else image,
        stop_timeout_seconds=consumer.stop_timeout_seconds,
        name=f"{consumer.name}_redrive",  # no consumer has an underscore in its name
        command=["dlq", "automatic-redrive"],
        role=DatabaseRole.REDRIVE,
    )
    AutomaticRedriveRule(
        scope,
        "AutomaticRedrive",
        environment=place.environment,
        consumer=consumer,
        declared=consumer.automatic_redrive,
        task_definition=redrive.task_definition,
        cluster=place.cluster,
        network=place.network,
        key_arn=queue_key_arn(place, consumer),
    )


class ConsumerService(Construct):
    """The service of a consumer's workers, with their rights on its queue, scaled on the queue's backlog."""

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, place: TaskPlace, consumer: Consumer) -> None:
        super().__init__(scope, id_)
        environment, image = place.environment, place.images.of(consumer)
        tasks = TaskSpec(
            self,
            "Worker",
            place=place,
            consumer=consumer,
            variables={"SLUICE_CONSUMER": consumer.name},
            image=image,
            stop_timeout_seconds=consumer.stop_timeout_seconds,
            name=consumer.name,
            command=["worker"],
            role=DatabaseRole.WORKER,
            cpu=consumer.cpu,
            memory_mib=consumer.memory_mib,
        )
        self.service = tasks.serve()
        for actions, arn in rights_on_queues(self, place, consumer):
            tasks.allow(arn, *actions)
        if place.deployment_alarms:
            self._roll_back_on_alarms(environment, consumer)
        self._allow_task_protection(tasks, environment=environment)
        add_automatic_redrive(self, place=place, consumer=consumer, image=image)
        self.scaling = BacklogScaling(self, "Scaling", environment=environment, consumer=consumer, service=self.service)

    def _roll_back_on_alarms(self, environment: Environment, consumer: Consumer) -> None:
        """Make the alarms on which ECS rolls back a new version; the service is made after them."""
        scope = Construct(self, "DeploymentAlarms")
        alarms = of_consumer(environment, consumer, Hearer.DEPLOYMENT)
        for alarm in alarms:
            make_alarm(scope, alarm.condition, alarm)
        self.service.enable_deployment_alarms(
            [alarm.name for alarm in alarms], behavior=ecs.AlarmBehavior.ROLLBACK_ON_ALARM
        )
        self.service.node.add_dependency(scope)

    def _allow_task_protection(self, tasks: TaskSpec, *, environment: Environment) -> None:
        """Allow a worker to protect its own task from scale-in while it works on messages.

        AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection.html
        (read 2026-11-21).
        """
        tasks_of_cluster = f"arn:aws:ecs:{environment.region}:{{}}:task/{naming.cluster_name(environment)}/*"
        account = cdk.Stack.of(self).account
        resource = tasks_of_cluster.format(account)
        tasks.allow(resource, "ecs:GetTaskProtection", "ecs:UpdateTaskProtection")
        seen = tasks_of_cluster.format("<AWS::AccountId>" if cdk.Token.is_unresolved(account) else account)
        acknowledge(
            tasks.task_role,
            f"AwsSolutions-IAM5[Resource::{seen}]",
            "a task protects itself, and its id is known only once it runs; other clusters are out of reach",
        )


class OutboxVerification(TaskSpec):
    """Compares a topic's outbox with its consumers' inboxes and queues every hour, in a task that may only read.

    GetSubscriptionAttributes knows no resource: https://github.com/KensioSoftware/yulin/pull/662 (read 2026-11-27).
    AWS's own page, service-authorization/latest/reference/list_amazonsns.html, could not be read whole.
    """

    @check_argument_types
    def __init__(
        self, scope: Construct, id_: str, *, place: TaskPlace, topic: Topic | ExistingTopic, declared: Hourly
    ) -> None:
        environment = place.environment
        topic_arn = naming.topic_arn(environment, cdk.Stack.of(scope).account, topic.name)
        in_flight = f"{environment.in_flight_seconds(declared)}s"
        super().__init__(
            scope,
            id_,
            place=place,
            name=naming.of_topic(environment, "outbox_verdict", topic),  # no consumer has an underscore in its name
            command=["outbox", "verify", "--old-only", "--in-flight", in_flight],
            topic=topic,
            settings=task_settings.verified_environment(environment, topic),
            variables={"SLUICE_TOPIC_ARN": topic_arn},
            image=place.images.shared_image,
            stop_timeout_seconds=_RELAY_STOP_SECONDS,
            role=DatabaseRole.READER,
        )
        self.allow(topic_arn, "sns:ListSubscriptionsByTopic")
        self.allow("*", "sns:GetSubscriptionAttributes")
        reason = "sns:GetSubscriptionAttributes knows no resource, and only reads"
        acknowledge(self.task_role, "AwsSolutions-IAM5[Resource::*]", reason)
        names = (naming.queue_name, naming.dead_letter_queue_name, naming.undelivered_queue_name)
        for consumer in environment.consumers_of(topic):
            for name_of in names:
                arn = cdk.Stack.of(self).format_arn(service="sqs", resource=name_of(environment, consumer))
                self.allow(arn, "sqs:GetQueueUrl", "sqs:GetQueueAttributes")
        rule = events.Rule(
            self,
            "Schedule",
            description=f"Compare the outbox of {naming.topic_name(environment, topic.name)} with its consumers",
            schedule=events.Schedule.rate(cdk.Duration.hours(1)),
        )
        TaskStart(self, task_definition=self.task_definition, cluster=place.cluster, network=place.network).add_to(rule)
        acknowledge(rule, "Serverless-EventBusDLQ", "a run that does not start is missing, and an alarm rings for that")


class RelayService(TaskSpec):
    """A topic's relay, which publishes the outbox to it: two tasks, one of which leads, in two zones if there are two.

    AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/service-rebalancing.html (read 2026-11-23).
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, place: TaskPlace, topic: Topic | ExistingTopic) -> None:
        environment = place.environment
        # The ARN is a literal: a reference to another stack's export would keep that stack from changing the topic.
        topic_arn = naming.topic_arn(environment, cdk.Stack.of(scope).account, topic.name)
        super().__init__(
            scope,
            id_,
            place=place,
            name=naming.of_topic(environment, "relay", topic),
            command=["relay"],
            topic=topic,
            variables={"SLUICE_TOPIC_ARN": topic_arn},
            image=place.images.shared_image,
            stop_timeout_seconds=_RELAY_STOP_SECONDS,
            role=DatabaseRole.RELAY,
        )
        self.service = self.serve(desired_count=RELAY_TASKS)
        self.allow(topic_arn, "sns:Publish")
        key_arn = topic_key_arn(topic, place.keys)
        if key_arn is not None:
            self.allow(key_arn, "kms:Decrypt", "kms:GenerateDataKey")


def _linux_parameters(scope: Construct, id_: str) -> ecs.LinuxParameters:
    """Return a container's settings: no capabilities of the kernel, and an init process.

    The init process passes signals on, and ends processes that others left behind.

    AWS: https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_KernelCapabilities.html (read 2026-11-26)
    """
    parameters = ecs.LinuxParameters(scope, id_, init_process_enabled=True)
    parameters.drop_capabilities(ecs.Capability.ALL)
    return parameters


def _spot() -> list[ecs.CapacityProviderStrategy]:
    """Return the capacity provider of Fargate Spot, whose tasks get SIGTERM two minutes before AWS ends them.

    A worker ends within its stop timeout of at most two minutes after SIGTERM (promises S1 to S6 of the worker, in
    tests/integration/messaging/worker/processes/test_signals.py).
    AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-capacity-providers.html
    (read 2026-11-23).
    """
    return [ecs.CapacityProviderStrategy(capacity_provider="FARGATE_SPOT", weight=1)]
