"""The stateless stack of an environment: what runs."""

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_kms as kms
from constructs import Construct

from sluice.constructs.network import Network
from sluice.constructs.task_service import ConsumerService, RelayService
from sluice.declaration import Environment, NewNetwork, naming


class Consumers(Construct):
    """The cluster and everything in it: a service for each consumer, and the relay where one is declared."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        topic_key: kms.IKey | None,
        queue_key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, id_)
        self.network = Network(self, "Network", environment=environment)
        self.cluster = ecs.Cluster(
            self,
            "Cluster",
            cluster_name=naming.cluster_name(environment),
            vpc=self.network.vpc,
            # Scaling counts running tasks with it.
            container_insights_v2=ecs.ContainerInsights.ENABLED,
        )
        self.services = {
            consumer.name: ConsumerService(
                self,
                f"Consumer-{consumer.name}",
                environment=environment,
                consumer=consumer,
                cluster=self.cluster,
                network=self.network,
                queue_key=queue_key,
            )
            for consumer in environment.consumers
        }
        if environment.relay:
            RelayService(
                self,
                "Relay",
                environment=environment,
                cluster=self.cluster,
                network=self.network,
                topic_key=topic_key,
            )


class ConsumersStack(cdk.Stack):
    """The stateless part of an environment: network, cluster, services. Only wires."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        topic_key: kms.IKey | None,
        queue_key: kms.IKey | None,
    ) -> None:
        self._zones = environment.network.availability_zones if isinstance(environment.network, NewNetwork) else 0
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, "consumers"),
            description=f"Sluice {environment.name}: the consumers' workers",
        )
        self.consumers = Consumers(self, "Consumers", environment=environment, topic_key=topic_key, queue_key=queue_key)

    @property
    def availability_zones(self) -> list[str]:
        """Return the zones as the region will name them: asking at synth would need the network and an account."""
        return [cdk.Fn.select(number, cdk.Fn.get_azs()) for number in range(self._zones)]
