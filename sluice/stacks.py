"""The stacks of an environment, which `stacks/stage.py` of a project composes.

A stack's constructs are its attributes, so that other stacks of the project can use them
(docs/guides/existing-things.md).
"""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from constructs import Construct

from sluice import limits
from sluice.constructs.database import Database, DatabaseAccess
from sluice.constructs.fan_out import EncryptionKeys, Fanout, Producers
from sluice.constructs.monitoring.alarms import Alarms, OperatorTopic
from sluice.constructs.monitoring.dashboard import Dashboard
from sluice.constructs.network import Network
from sluice.constructs.services.consumers import Consumers
from sluice.declaration import Environment, NewDatabase, NewNetwork, Removal, naming
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.validation import require


class EnvironmentStack(cdk.Stack):
    """One stack of an environment; with Removal.RETAIN it is protected from deletion.

    Args:
        environment: as declared; its name begins the stack's name.
        holds: for the stack's description, what it contains.
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment, holds: str) -> None:
        self._zones = environment.network.availability_zones if isinstance(environment.network, NewNetwork) else 0
        super().__init__(
            scope,
            id_,
            stack_name=naming.stack_name(environment, id_.lower()),
            description=f"Sluice {environment.name}: {holds}",
            termination_protection=environment.removal is Removal.RETAIN,
        )

    @property
    def availability_zones(self) -> list[str]:
        """Return the region's availability zones as tokens; their names at synth would take a call to an account."""
        return [cdk.Fn.select(number, cdk.Fn.get_azs()) for number in range(self._zones)]

    def require_room(self, environment: Environment) -> None:
        """Refuse this stack, or one of its counterparts for consumers with `stack`, if it is too large.

        The cdk command adds one resource, and the keys are two outputs that other stacks import; both count.

        Raises:
            ConfigError: a stack has more resources or outputs than CloudFormation takes.
        """
        assert self.node.scope is not None, "every stack is in an app"
        names = {self.node.id, *(f"{self.node.id}-{consumer.stack}" for consumer in environment.consumers)}
        for stack in self.node.scope.node.children:
            if not isinstance(stack, cdk.Stack) or stack.node.id not in names:
                continue
            parts = stack.node.find_all()
            counts = {
                "resources": (1 + sum(isinstance(part, cdk.CfnResource) for part in parts), limits.STACK_RESOURCES_MAX),
                "outputs": (2 + sum(isinstance(part, cdk.CfnOutput) for part in parts), limits.STACK_OUTPUTS_MAX),
            }
            for what, (count, most) in counts.items():
                require(
                    environment,
                    count <= most,
                    field="consumers",
                    seen=f"{len(environment.consumers)} consumers, with {count} {what} in stack {stack.stack_name}",
                    allowed=f"as many as {most} {what} in a stack are enough for; declare new ones with"
                    " Consumer(stack='more'), in stacks beside these",
                )

    def output(self, **values: str) -> None:
        """Make an output of the stack for each name and value."""
        for name, value in values.items():
            cdk.CfnOutput(self, name, value=value)


class NetworkStack(EnvironmentStack):
    """Holds `network`: a VPC, new or existing, and the security groups of tasks and producers."""

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_, environment=environment, holds="where the tasks run")
        self.network = Network(self, "Network", environment=environment)
        _tag_what_cdk_leaves(self, environment)
        if self.network.producers is not None:
            self.output(ProducersSecurityGroupId=self.network.producers.security_group_id)


def _tag_what_cdk_leaves(stack: cdk.Stack, environment: Environment) -> None:
    """Tag the function that empties the default security group, and its role: CDK makes them as plain resources."""
    tags = [{"Key": key, "Value": value} for key, value in environment.all_tags.items()]
    for part in stack.node.find_all():
        if not isinstance(part, cdk.CfnResource) or cdk.TagManager.is_taggable(part):
            continue
        if part.cfn_resource_type in ("AWS::Lambda::Function", "AWS::IAM::Role"):
            part.add_property_override("Tags", tags)


class DatabaseStack(EnvironmentStack):
    """Holds `database`: the cluster with inbox and outbox. An existing database needs no stack."""

    @check_argument_types
    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, declared: NewDatabase, network: Network
    ) -> None:
        super().__init__(scope, id_, environment=environment, holds="inbox and outbox")
        self.database = Database(self, "Database", environment=environment, declared=declared, network=network)
        self.output(
            SecretArn=self.database.access.secret_arn,
            Endpoint=self.database.cluster.cluster_endpoint.socket_address,
        )
        # Exported even if no users are made: CloudFormation removes no export that a later stack still imports.
        self.export_value(self.database.cluster.cluster_resource_identifier)
        if self.database.access.users_arn is not None:
            self.output(UsersArn=self.database.access.users_arn)


class MessagingStack(EnvironmentStack):
    """Holds `fan_out`, the topics and the consumers' queues, and `producers`, the policies for producers' roles.

    `producers` is None where every topic is an existing one that the environment does not publish to.
    """

    @check_argument_types
    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, database: DatabaseAccess | None
    ) -> None:
        super().__init__(scope, id_, environment=environment, holds="SNS FIFO topic to SQS FIFO queues")
        self.fan_out = Fanout(self, "Fanout", environment=environment)
        self.producers: Producers | None = None
        if environment.published_topics:
            self.producers = Producers(
                self, "Producers", environment=environment, fanout=self.fan_out, database=database
            )
        self._add_outputs(environment)
        self.require_room(environment)

    def _add_outputs(self, environment: Environment) -> None:
        """Make outputs of the topics' and queues' ARNs and URLs, and of the producers' policies."""
        for topic in environment.topics:
            self.output(**{naming.topic_output_name(environment, topic): self.fan_out.topics[topic.name].topic_arn})
        if self.producers is not None:
            self.output(PublishPolicyArn=self.producers.publish_policy.managed_policy_arn)
            if self.producers.outbox_policy is not None:
                self.output(OutboxPolicyArn=self.producers.outbox_policy.managed_policy_arn)
        for consumer in environment.consumers:
            queues = self.fan_out.consumers[consumer.name]
            values = {
                "QueueUrl": queues.queue.queue_url,
                "QueueArn": queues.queue.queue_arn,
                "DeadLetterQueueArn": queues.dead_letter_queue.queue_arn,
                "UndeliveredQueueArn": queues.undelivered_queue.queue_arn,
            }
            for name, value in values.items():
                stack = cdk.Stack.of(queues)
                cdk.CfnOutput(stack, naming.output_name(consumer, name), value=value)


class ConsumersStack(EnvironmentStack):
    """Holds `cluster`, `services` and `functions` by their consumer's name, and `relays` by their topic's.

    Args:
        environment: as declared.
        network: where the tasks run.
        database: the access to the database; None if there is none.
        keys: of topics and queues; None if SQS holds them.
        project: the folder with the Dockerfile of an image that is to be built, and with the packages of functions.

    Raises:
        ConfigError: a consumer has handlers and the environment no database; or the image is to be built and there is
            no Dockerfile, or the image would lack a consumer's handlers; or a Lambda function is declared wrongly.
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
    ) -> None:
        for consumer in environment.consumers:
            require(
                consumer,
                consumer.handlers is None or database is not None,
                field="handlers",
                allowed=f"None while environment {environment.name!r} has no database: a worker keeps its inbox there;"
                " declare database=NewDatabase()",
            )
        super().__init__(scope, id_, environment=environment, holds="the consumers' workers")
        consumers = Consumers(
            self,
            "Consumers",
            environment=environment,
            network=network,
            database=database,
            keys=keys,
            project=project,
        )
        self.cluster, self.services, self.relays = consumers.cluster, consumers.services, consumers.relays
        self.functions = consumers.functions
        self.require_room(environment)


class ObservabilityStack(EnvironmentStack):
    """Holds `operators`, `alarms` and `dashboard`. `operators.topic` is for alarms of your own.

    Args:
        environment: as declared.
        key: the KMS key of the operator topic; None without `Encryption.CMK`.

    Raises:
        ConfigError: the environment has Removal.RETAIN, and nobody would receive its alarms.
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment, key: kms.IKey | None) -> None:
        require(
            environment,
            environment.removal is Removal.DESTROY or environment.has_operators,
            field="silent",
            allowed="True, or alarm_emails, alarm_urls, alarm_slack or alarm_topic_arn: an environment that keeps its"
            " data has somebody to hear its alarms",
        )
        super().__init__(scope, id_, environment=environment, holds="alarms and dashboard")
        self.operators = OperatorTopic(self, "Operators", environment=environment, key=key)
        self.alarms = Alarms(self, "Alarms", environment=environment, topic=self.operators.topic)
        self.dashboard = Dashboard(self, "Dashboard", environment=environment)
        self.output(OperatorTopicArn=self.operators.topic.topic_arn)
        self.require_room(environment)
