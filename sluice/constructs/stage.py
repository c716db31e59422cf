"""An environment as a CDK stage: three stacks, that hold what is kept, what runs, and what watches both."""

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_kms as kms
from constructs import Construct

from sluice.constructs.alarms import Alarms, OperatorTopic
from sluice.constructs.dashboard import Dashboard
from sluice.constructs.fan_out import Fanout, Producers
from sluice.constructs.network import Network
from sluice.constructs.task_service import ConsumerService, RelayService
from sluice.declaration import Environment, NewNetwork, Removal, naming
from sluice.declaration.operators import has_operators
from sluice.declaration.validation import require


class MessagingStack(cdk.Stack):
    """The stateful part of an environment: topic, queues, DLQs and keys. Only wires, and says where things are."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, "messaging"),
            description=f"Sluice {environment.name}: SNS FIFO topic to SQS FIFO queues",
        )
        self.fanout = Fanout(self, "Fanout", environment=environment)
        self.producers = Producers(self, "Producers", fanout=self.fanout)
        self._output("TopicArn", self.fanout.topic.topic_arn)
        self._output("PublishPolicyArn", self.producers.publish_policy.managed_policy_arn)
        for consumer in environment.consumers:
            queues = self.fanout.consumers[consumer.name]
            self._output(naming.output_name(consumer, "QueueUrl"), queues.queue.queue_url)
            self._output(naming.output_name(consumer, "QueueArn"), queues.queue.queue_arn)
            self._output(naming.output_name(consumer, "DeadLetterQueueArn"), queues.dead_letter_queue.queue_arn)
            self._output(naming.output_name(consumer, "UndeliveredQueueArn"), queues.undelivered_queue.queue_arn)

    def _output(self, name: str, value: str) -> None:
        cdk.CfnOutput(self, name, value=value)


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


class ObservabilityStack(cdk.Stack):
    """The operator topic, the alarms and the dashboard of an environment. Only wires."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, key: kms.IKey | None) -> None:
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, "observability"),
            description=f"Sluice {environment.name}: alarms and dashboard",
        )
        self.operators = OperatorTopic(self, "Operators", environment=environment, key=key)
        self.alarms = Alarms(self, "Alarms", environment=environment, topic=self.operators.topic)
        self.dashboard = Dashboard(self, "Dashboard", environment=environment)
        cdk.CfnOutput(self, "OperatorTopicArn", value=self.operators.topic.topic_arn)


class EnvironmentStage(cdk.Stage):
    """Everything one environment consists of, deployed with `cdk deploy -c env=NAME 'NAME/*'`.

    Raises:
        ConfigError: it keeps its data, and nobody would hear that some is late, dead or about to be deleted.
    """

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        require(
            environment,
            environment.removal is Removal.DESTROY or has_operators(environment),
            field="silent",
            allowed="True, or alarm_emails, alarm_urls, alarm_slack or alarm_topic_arn: an environment that keeps its"
            " data has somebody to hear its alarms",
        )
        super().__init__(
            scope,
            naming.stage_name(environment),
            env=cdk.Environment(account=environment.account, region=environment.region),
        )
        self.messaging = MessagingStack(self, "Messaging", environment=environment)
        fanout = self.messaging.fanout
        topic_key, queue_key = (None, None) if fanout.keys is None else (fanout.keys.topic, fanout.keys.queues)
        self.consumers = ConsumersStack(
            self,
            "Consumers",
            environment=environment,
            topic_key=topic_key,
            queue_key=queue_key,
        )
        self.consumers.add_stack_dependency(self.messaging, "workers find their queues by name")
        self.observability = ObservabilityStack(self, "Observability", environment=environment, key=topic_key)
        for stack in (self.messaging, self.consumers, self.observability):
            stack.termination_protection = environment.removal is Removal.RETAIN
        for key, value in {
            "application": environment.application,
            "environment": environment.name,
            **environment.tags,
        }.items():
            cdk.Tags.of(self).add(key, value)
