"""The cluster and everything in it, a service for each consumer that runs as tasks and the relay; and the functions."""

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
from sluice.constructs.services.task_service import ConsumerService, RelayService, TaskPlace
from sluice.declaration import Consumer, Environment, naming
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.validation import refuse


class Consumers(Construct):
    """The services and functions by their consumer's name, and the relays by their topic's; tasks in one cluster.

    Args:
        environment: what is declared. Its `cluster` may be one of this app, by its name.
        network: where the tasks run.
        database: how they get into it; None if there is none.
        keys: of topics and queues; None if SQS holds them.
        project: the folder with the Dockerfile of an image that is to be built, and with the packages of functions.
        deployment_alarms: whether a service's new version is taken back by alarms, which are made with it. The other
            alarms are constructs of their own (`sluice.constructs.monitoring.alarms`).

    Attributes:
        environment: whose they are.
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
        """Return a service whose tasks make the tables that a function needs, whenever its image is another one.

        A relay's tasks always do. Those of another consumer do where they have the environment's image, or the project
        has no tables of its own, and where one runs at every deployment. CloudFormation takes a service for made or
        updated once it is in a steady state, and its tasks start after the tables are made.

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
        """Let what is in a stack beside this one start after its queue, which it finds by name."""
        beside = [consumer for consumer in environment.consumers if consumer.stack is not None]
        if not beside:
            return
        for part in self.node.root.node.find_all():
            if isinstance(part, Fanout) and part.environment == environment:
                for consumer in beside:
                    made = self.services.get(consumer.name) or self.functions[consumer.name]
                    made.node.add_dependency(part.consumers[consumer.name])

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
    """Return the environment's cluster. Container Insights are on: scaling counts running tasks with them.

    Of an existing one nothing is changed: it has them, and the capacity provider FARGATE_SPOT where the environment's
    tasks run on it.

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
