"""The cluster and everything in it: a service for each consumer, and the relay where one is declared."""

from pathlib import Path

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sluice.constructs.database import DatabaseAccess
from sluice.constructs.fan_out import Keys
from sluice.constructs.network import Network
from sluice.constructs.services.images import Images
from sluice.constructs.services.task_service import ConsumerService, RelayService, TaskPlace
from sluice.declaration import Environment, naming
from sluice.declaration.arguments import typed


class Consumers(Construct):
    """The services by their consumer's name, and the relays by their topic's, in one cluster."""

    @typed
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        network: Network,
        database: DatabaseAccess | None,
        keys: Keys | None,
        project: Path = Path(),
    ) -> None:
        super().__init__(scope, id_)
        self.cluster = _cluster(self, "Cluster", environment=environment, vpc=network.vpc)
        place = TaskPlace(
            environment=environment,
            images=Images(self, "Images", environment=environment, project=project),
            cluster=self.cluster,
            network=network,
            database=database,
            keys=keys,
        )
        self.services = {
            consumer.name: ConsumerService(self, f"Consumer-{consumer.name}", place=place, consumer=consumer)
            for consumer in environment.consumers
        }
        self.relays = {
            topic.name: RelayService(self, naming.of_topic(environment, "Relay", topic), place=place, topic=topic)
            for topic in (environment.published_topics if environment.has_relay else ())
        }


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
