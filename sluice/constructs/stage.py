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
from sluice.constructs.services.task_service import ConsumerService, RelayService, TaskPlace
from sluice.declaration import Environment, ExistingDatabase, NewDatabase, NewNetwork, Removal, naming
from sluice.declaration.arguments import typed
from sluice.declaration.fields.operators import has_operators
from sluice.declaration.validation import require


class EnvironmentStack(cdk.Stack):
    """One stack of an environment; it only holds and names what the stage puts into it."""

    @typed
    def __init__(self, scope: Construct, id_: str, *, environment: Environment, holds: str) -> None:
        self._zones = environment.network.availability_zones if isinstance(environment.network, NewNetwork) else 0
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, id_.lower()),
            description=f"Sluice {environment.name}: {holds}",
        )

    @property
    def availability_zones(self) -> list[str]:
        """Return the zones as the region will name them: asking at synth would need the network and an account."""
        return [cdk.Fn.select(number, cdk.Fn.get_azs()) for number in range(self._zones)]

    def output(self, **values: str) -> None:
        """Say where things are, a name each."""
        for name, value in values.items():
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
        self.cluster = cluster(self, "Cluster", environment=environment, vpc=network.vpc)
        place = TaskPlace(
            environment=environment,
            images=Images(self, "Images", environment=environment, project=project),
            cluster=self.cluster,
            network=network,
            database=database,
        )
        self.services = {
            consumer.name: ConsumerService(
                self, f"Consumer-{consumer.name}", place=place, consumer=consumer, queue_key=queue_key
            )
            for consumer in environment.consumers
        }
        for topic in environment.published_topics if environment.has_relay else ():
            RelayService(
                self, naming.of_topic(environment, "Relay", topic), place=place, topic=topic, topic_key=topic_key
            )


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
        self._environment = environment
        network = self._network()
        database = self._database(network)
        fanout = self._messaging(database)
        topic_key, queue_key = (None, None) if fanout.keys is None else (fanout.keys.topic, fanout.keys.queues)
        consumers = self._stack("Consumers", "the consumers' workers")
        Consumers(
            consumers,
            "Consumers",
            environment=environment,
            network=network,
            database=database,
            topic_key=topic_key,
            queue_key=queue_key,
            project=project,
        )
        consumers.add_stack_dependency(cdk.Stack.of(fanout), "workers find their queues by name")
        self._observability(topic_key)
        for stack in self.node.children:
            assert isinstance(stack, cdk.Stack)
            stack.termination_protection = environment.removal is Removal.RETAIN
        for key, value in {
            "application": environment.application,
            "environment": environment.name,
            **environment.tags,
        }.items():
            cdk.Tags.of(self).add(key, value)

    def _stack(self, id_: str, holds: str) -> EnvironmentStack:
        return EnvironmentStack(self, id_, environment=self._environment, holds=holds)

    def _network(self) -> Network:
        """Make the stack of VPC, endpoints and security groups."""
        stack = self._stack("Network", "where the tasks run")
        network = Network(stack, "Network", environment=self._environment)
        if network.producers is not None:
            stack.output(ProducersSecurityGroupId=network.producers.security_group_id)
        return network

    def _database(self, network: Network) -> DatabaseAccess | None:
        """Make the stack of the environment's own database, where it has one."""
        match self._environment.database:
            case NewDatabase() as declared:
                stack = self._stack("Database", "inbox and outbox")
                made = Database(stack, "Database", environment=self._environment, declared=declared, network=network)
                stack.output(SecretArn=made.access.secret_arn, Endpoint=made.cluster.cluster_endpoint.socket_address)
                return made.access
            case ExistingDatabase() as existing:
                return access_to_existing(existing)
        return None

    def _messaging(self, database: DatabaseAccess | None) -> Fanout:
        """Make the stack of what is kept: topics, queues, DLQs and keys."""
        environment, stack = self._environment, self._stack("Messaging", "SNS FIFO topic to SQS FIFO queues")
        fanout = Fanout(stack, "Fanout", environment=environment)
        for topic in environment.topics:
            stack.output(**{naming.topic_output_name(environment, topic): fanout.topics[topic.name].topic_arn})
        if environment.published_topics:
            producers = Producers(stack, "Producers", environment=environment, fanout=fanout, database=database)
            stack.output(PublishPolicyArn=producers.publish_policy.managed_policy_arn)
            if producers.outbox_policy is not None:
                stack.output(OutboxPolicyArn=producers.outbox_policy.managed_policy_arn)
        for consumer in environment.consumers:
            queues = fanout.consumers[consumer.name]
            values = {
                "QueueUrl": queues.queue.queue_url,
                "QueueArn": queues.queue.queue_arn,
                "DeadLetterQueueArn": queues.dead_letter_queue.queue_arn,
                "UndeliveredQueueArn": queues.undelivered_queue.queue_arn,
            }
            stack.output(**{naming.output_name(consumer, name): value for name, value in values.items()})
        return fanout

    def _observability(self, key: kms.IKey | None) -> None:
        """Make the stack of the operator topic, the alarms and the dashboard."""
        stack = self._stack("Observability", "alarms and dashboard")
        operators = OperatorTopic(stack, "Operators", environment=self._environment, key=key)
        Alarms(stack, "Alarms", environment=self._environment, topic=operators.topic)
        Dashboard(stack, "Dashboard", environment=self._environment)
        stack.output(OperatorTopicArn=operators.topic.topic_arn)
