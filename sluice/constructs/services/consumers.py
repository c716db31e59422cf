"""The cluster, a service for each consumer that runs as tasks, the relays, and the Lambda functions."""

from pathlib import Path

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_lambda as lambda_
from constructs import Construct, IDependable

from sluice.constructs.database import DatabaseAccess
from sluice.constructs.fan_out import EncryptionKeys, Fanout
from sluice.constructs.network import Network
from sluice.constructs.place import consumer_scope, require_place
from sluice.constructs.services.consumer_function import ConsumerFunction
from sluice.constructs.services.images import Images
from sluice.constructs.services.task_service import (
    ConsumerService,
    OutboxVerification,
    RelayService,
    TaskPlace,
)
from sluice.declaration import Consumer, Environment, naming
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.validation import refuse


class Consumers(Construct):
    """All services and functions of an environment's consumers, and its relays; tasks run in one cluster.

    Args:
        environment: as declared. Its `cluster` may be made in this app, and is found by name.
        network: where the tasks run.
        database: the access to the database; None if there is none.
        keys: of topics and queues; None if SQS holds them.
        project: the folder with the Dockerfile of an image that is to be built, and with the packages of functions.
        deployment_alarms: make the alarms by which ECS rolls back a new version of a service. The other alarms are
            constructs of their own (`sluice.constructs.monitoring.alarms`).

    Attributes:
        environment: as declared.
        cluster: where the tasks run.
        services: a `ConsumerService` for each consumer that runs as tasks, by its name.
        functions: a `ConsumerFunction` for each consumer that runs on Lambda, by its name.
        relays: a `RelayService` for each topic that is published to, by its name.
    """

    @check_argument_types
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        network: Network,
        database: DatabaseAccess | None,
        keys: EncryptionKeys | None,
        project: Path = Path(),
        deployment_alarms: bool = True,
    ) -> None:
        super().__init__(scope, id_)
        self.environment = environment
        require_place(self, environment)
        self.cluster = _cluster(self, "Cluster", environment=environment, vpc=network.vpc)
        place = TaskPlace(
            environment=environment,
            images=Images(self, "Images", environment=environment, project=project),
            cluster=self.cluster,
            network=network,
            database=database,
            keys=keys,
            deployment_alarms=deployment_alarms,
        )
        self.services = {
            consumer.name: ConsumerService(
                consumer_scope(self, consumer), f"Consumer-{consumer.name}", place=place, consumer=consumer
            )
            for consumer in environment.consumers
            if consumer.runtime is None
        }
        self.relays = {
            topic.name: RelayService(self, naming.of_topic(environment, "Relay", topic), place=place, topic=topic)
            for topic in (environment.published_topics if environment.has_relay else ())
        }
        if environment.verification is not None:
            for topic in environment.verified_topics:
                id_ = naming.of_topic(environment, "Verification", topic)
                OutboxVerification(self, id_, place=place, topic=topic, declared=environment.verification)
        self.functions = {
            consumer.name: ConsumerFunction(
                consumer_scope(self, consumer),
                f"Consumer-{consumer.name}",
                place=place,
                consumer=consumer,
                declared=consumer.runtime,
                tables=self._makes_tables(environment, consumer),
                project=project,
            )
            for consumer in environment.consumers
            if consumer.runtime is not None
        }
        self._start_after_queues(environment)

    def _makes_tables(self, environment: Environment, function: Consumer) -> IDependable:
        """Return a service whose tasks make the tables that a function needs, whenever the image changes.

        A function makes no tables. A relay's tasks always do. A consumer's tasks do if at least one always runs, and if
        they have the environment's image or the project has no tables of its own. CloudFormation waits until the
        service is in a steady state, and its tasks start after the tables are made.

        Raises:
            ConfigError: the environment has no such service.
        """
        for relay in self.relays.values():
            return relay.service
        for consumer in environment.consumers:
            has_image = consumer.image is None or not environment.migration
            if consumer.runtime is None and consumer.min_tasks > 0 and has_image:
                return self.services[consumer.name].service
        return refuse(
            type(function),
            function.name,
            field="runtime",
            seen="Lambda(…)",
            allowed=f"None, or Lambda(…) in an environment with a task that makes the tables: declare relay=True in"
            f" environment {environment.name!r}, or a consumer that runs as tasks, of the environment's image and with"
            " min_tasks of 1 or more",
        )

    def _start_after_queues(self, environment: Environment) -> None:
        """Deploy each consumer that is in a stack of its own after its queue, which it finds by name.

        The stage makes the consumers' main stack depend on the queues' main stack; the other stacks depend here.
        """
        moved_consumers = [consumer for consumer in environment.consumers if consumer.stack is not None]
        if not moved_consumers:
            return
        for part in self.node.root.node.find_all():
            if isinstance(part, Fanout) and part.environment == environment:
                for consumer in moved_consumers:
                    service_or_function = self.services.get(consumer.name) or self.functions[consumer.name]
                    service_or_function.node.add_dependency(part.consumers[consumer.name])

    def add_variable(self, name: str, value: str) -> None:
        """Set an environment variable in every container of every task and in every function, such as HTTPS_PROXY.

        Behind a proxy all calls of AWS are botocore's, which reads HTTPS_PROXY and NO_PROXY.
        """
        consumers = [*self.services.values(), *self.functions.values()]
        parts = [*self.node.find_all(), *(part for each in consumers for part in each.node.find_all())]
        for part in dict.fromkeys(parts):
            if isinstance(part, ecs.ContainerDefinition | lambda_.Function):
                part.add_environment(name, value)


def _cluster(scope: Construct, id_: str, *, environment: Environment, vpc: ec2.IVpc) -> ecs.ICluster:
    """Return the environment's cluster, with Container Insights, by whose metric scaling counts running tasks.

    An existing cluster is not changed: it has to have Container Insights, and the capacity provider FARGATE_SPOT if the
    environment uses Spot.

    AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Container-Insights-metrics-ECS.html
    (read 2026-11-21).
    """
    name = naming.cluster_name(environment)
    if environment.cluster is not None:
        return ecs.Cluster.from_cluster_attributes(scope, id_, cluster_name=name, vpc=vpc)
    return ecs.Cluster(
        scope,
        id_,
        cluster_name=name,
        vpc=vpc,
        container_insights_v2=ecs.ContainerInsights.ENABLED,
        enable_fargate_capacity_providers=environment.spot,
    )
