"""An environment as a CDK stage: stacks that hold where it runs, what is kept, what runs, and what watches it."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from constructs import Construct

from sluice.constructs.cluster import cluster
from sluice.constructs.database import Database, DatabaseAccess, access_to_existing
from sluice.constructs.fan_out import Fanout, Producers
from sluice.constructs.monitoring.alarms import Alarms, OperatorTopic
from sluice.constructs.monitoring.dashboard import Dashboard
from sluice.constructs.network import Network
from sluice.constructs.services.images import Images
from sluice.constructs.services.task_service import ConsumerService, RelayService
from sluice.declaration import Environment, ExistingDatabase, NewDatabase, NewNetwork, Removal, naming
from sluice.declaration.arguments import typed
from sluice.declaration.fields.operators import has_operators
from sluice.declaration.validation import require


class NetworkStack(cdk.Stack):
    """Where the tasks of an environment run: VPC, endpoints, security groups. Only wires."""

    @typed
    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        self._zones = environment.network.availability_zones if isinstance(environment.network, NewNetwork) else 0
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, "network"),
            description=f"Sluice {environment.name}: where the tasks run",
        )
        self.network = Network(self, "Network", environment=environment)
        if self.network.producers is not None:
            cdk.CfnOutput(self, "ProducersSecurityGroupId", value=self.network.producers.security_group_id)

    @property
    def availability_zones(self) -> list[str]:
        """Return the zones as the region will name them: asking at synth would need the network and an account."""
        return [cdk.Fn.select(number, cdk.Fn.get_azs()) for number in range(self._zones)]


class DatabaseStack(cdk.Stack):
    """The database of an environment that has its own. Only wires, and says where things are."""

    @typed
    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, declared: NewDatabase, network: Network
    ) -> None:
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, "database"),
            description=f"Sluice {environment.name}: inbox and outbox",
        )
        self.database = Database(self, "Database", environment=environment, declared=declared, network=network)
        cdk.CfnOutput(self, "SecretArn", value=self.database.access.secret_arn)
        cdk.CfnOutput(self, "Endpoint", value=self.database.cluster.cluster_endpoint.socket_address)


class MessagingStack(cdk.Stack):
    """The stateful part of an environment: topic, queues, DLQs and keys. Only wires, and says where things are."""

    @typed
    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, database: DatabaseAccess | None
    ) -> None:
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, "messaging"),
            description=f"Sluice {environment.name}: SNS FIFO topic to SQS FIFO queues",
        )
        self.fanout = Fanout(self, "Fanout", environment=environment)
        for topic in environment.topics:
            self._output(naming.topic_output_name(environment, topic), self.fanout.topics[topic.name].topic_arn)
        if environment.published_topics:
            producers = Producers(self, "Producers", environment=environment, fanout=self.fanout, database=database)
            self._output("PublishPolicyArn", producers.publish_policy.managed_policy_arn)
            if producers.outbox_policy is not None:
                self._output("OutboxPolicyArn", producers.outbox_policy.managed_policy_arn)
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

    @typed
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        network: Network,
        database: DatabaseAccess | None,
        topic_key: kms.IKey | None,
        queue_key: kms.IKey | None,
        project: Path = Path(),
    ) -> None:
        super().__init__(scope, id_)
        images = Images(self, "Images", environment=environment, project=project)
        self.cluster = cluster(self, "Cluster", environment=environment, vpc=network.vpc)
        self.services = {
            consumer.name: ConsumerService(
                self,
                f"Consumer-{consumer.name}",
                environment=environment,
                consumer=consumer,
                images=images,
                cluster=self.cluster,
                network=network,
                database=database,
                queue_key=queue_key,
            )
            for consumer in environment.consumers
        }
        if environment.has_relay:
            for topic in environment.published_topics:
                RelayService(
                    self,
                    naming.of_topic(environment, "Relay", topic),
                    environment=environment,
                    topic=topic,
                    images=images,
                    cluster=self.cluster,
                    network=network,
                    database=database,
                    topic_key=topic_key,
                )


class ConsumersStack(cdk.Stack):
    """The stateless part of an environment: cluster and services. Only wires."""

    @typed
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        network: Network,
        database: DatabaseAccess | None,
        topic_key: kms.IKey | None,
        queue_key: kms.IKey | None,
        project: Path,
    ) -> None:
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, "consumers"),
            description=f"Sluice {environment.name}: the consumers' workers",
        )
        self.consumers = Consumers(
            self,
            "Consumers",
            environment=environment,
            network=network,
            database=database,
            topic_key=topic_key,
            queue_key=queue_key,
            project=project,
        )


class ObservabilityStack(cdk.Stack):
    """The operator topic, the alarms and the dashboard of an environment. Only wires."""

    @typed
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

    Args:
        environment: what is declared.
        project: the folder with the Dockerfile of an image that is to be built; by default where `cdk` starts the app,
            beside cdk.json.

    Raises:
        ConfigError: it has handlers and no database; it keeps its data, and nobody would hear that some is late, dead
            or about to be deleted; or its image is to be built, and there is no Dockerfile, or the image would not hold
            a consumer's handlers.
    """

    @typed
    def __init__(self, scope: Construct, *, environment: Environment, project: Path = Path()) -> None:
        require(
            environment,
            environment.removal is Removal.DESTROY or has_operators(environment),
            field="silent",
            allowed="True, or alarm_emails, alarm_urls, alarm_slack or alarm_topic_arn: an environment that keeps its"
            " data has somebody to hear its alarms",
        )
        for consumer in environment.consumers:
            require(
                consumer,
                consumer.handlers is None or environment.database is not None,
                field="handlers",
                allowed=f"None while environment {environment.name!r} has no database: a worker keeps its inbox there;"
                " declare database=NewDatabase()",
            )
        super().__init__(
            scope,
            naming.stage_name(environment),
            env=cdk.Environment(account=environment.account, region=environment.region),
        )
        self.network = NetworkStack(self, "Network", environment=environment)
        database = self._database(environment)
        self.messaging = MessagingStack(self, "Messaging", environment=environment, database=database)
        fanout = self.messaging.fanout
        topic_key, queue_key = (None, None) if fanout.keys is None else (fanout.keys.topic, fanout.keys.queues)
        self.consumers = ConsumersStack(
            self,
            "Consumers",
            environment=environment,
            network=self.network.network,
            database=database,
            topic_key=topic_key,
            queue_key=queue_key,
            project=project,
        )
        self.consumers.add_stack_dependency(self.messaging, "workers find their queues by name")
        self.observability = ObservabilityStack(self, "Observability", environment=environment, key=topic_key)
        for stack in self.node.children:
            assert isinstance(stack, cdk.Stack)
            stack.termination_protection = environment.removal is Removal.RETAIN
        for key, value in {
            "application": environment.application,
            "environment": environment.name,
            **environment.tags,
        }.items():
            cdk.Tags.of(self).add(key, value)

    def _database(self, environment: Environment) -> DatabaseAccess | None:
        match environment.database:
            case NewDatabase() as declared:
                stack = DatabaseStack(
                    self, "Database", environment=environment, declared=declared, network=self.network.network
                )
                return stack.database.access
            case ExistingDatabase() as existing:
                return access_to_existing(existing)
        return None
