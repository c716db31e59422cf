"""SNS FIFO topics and, for each consumer, an SQS queue with two DLQs of its own.

The DLQ of the queue holds messages that the consumer could not handle; the DLQ of the subscription holds messages that
SNS could not deliver. They are separate for two reasons. Only messages of the first can be moved back: a move task
refuses a DLQ whose source is not SQS. And SNS keeps group and deduplication id, so that in one DLQ of all subscriptions
SQS would drop the second consumer's copy of a message as a duplicate.
AWS: https://docs.aws.amazon.com/sns/latest/dg/sns-dead-letter-queues.html (read 2026-11-20).
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from sluice import limits
from sluice.constructs.database import DatabaseAccess
from sluice.constructs.feature_flags import set_flags
from sluice.constructs.nag import acknowledge
from sluice.constructs.place import consumer_scope, require_place
from sluice.constructs.removal import encryption_key, removal_policy
from sluice.declaration import Consumer, DatabaseRole, Encryption, Environment, ExistingTopic, Topic, naming, policies
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.validation import did_you_mean, nearest, value_text
from sluice.errors import ConfigError


class EncryptionKeys(Construct):
    """The two KMS keys of an environment with keys of its own: one for the topics, one for the queues; new or existing.

    There are two, because one key would be a circular dependency in the template: the policy of the queues' key names
    the topic, on whose behalf SNS may use the key, and the topic names the key that encrypts it. Statements that are
    added here to an existing key change nothing: its owner writes its policy.

    AWS: https://docs.aws.amazon.com/sns/latest/dg/message-archiving-and-replay-topic-owner.html (read 2026-11-21).
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        if environment.keys is None:
            self.topic: kms.IKey = encryption_key(self, "Topic", environment=environment)
            self.queues: kms.IKey = encryption_key(self, "Queues", environment=environment)
        else:
            self.topic = kms.Key.from_key_arn(self, "Topic", environment.keys.topic_arn)
            self.queues = kms.Key.from_key_arn(self, "Queues", environment.keys.queues_arn)
        account = cdk.Stack.of(self).account
        _attach(self.topic, policies.use_key_for_alarms(account))
        own = [topic for topic in environment.topics if isinstance(topic, Topic)]
        if environment.archive_days is not None:
            # SNS reads its archive to replay it. The ARN is a literal, because the topic itself refers to this key.
            for topic in own:
                _attach(self.topic, policies.use_key_for(naming.topic_arn(environment, account, topic.name)))
        for producer in dict.fromkeys(account for topic in own for account in topic.producer_accounts):
            _attach(self.topic, policies.use_key_through("sns", account=producer, region=environment.region))


class ConsumerQueue(Construct):
    """A consumer's queue, its DLQ, and the FIFO DLQ of its subscription.

    Queue and DLQ are made together so that they cannot differ in type, which SQS refuses; or both are existing ones.
    AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html
    (read 2026-11-20, promise DLQ-01).
    """

    @check_argument_types
    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, consumer: Consumer, key: kms.IKey | None
    ) -> None:
        super().__init__(scope, id_)
        self._environment, self._key = environment, key
        if consumer.queue is None:
            self.dead_letter_queue: sqs.IQueue = self._dead_letter_queue(consumer)
        else:
            self.dead_letter_queue = self._existing("DeadLetterQueue", consumer.queue.dead_letter_queue_arn)
        # It has no redriveAllowPolicy: AWS does not document whether that would refuse what SNS sends, and lose it.
        self.undelivered_queue = self._new(
            "UndeliveredQueue",
            naming.undelivered_queue_name(environment, consumer),
            is_fifo=True,
            retention_seconds=consumer.dead_letter_retention_seconds,
        )
        _acknowledge_dead_letters(self.undelivered_queue)
        acknowledge(self.undelivered_queue, "AwsSolutions-SQS3", "it is the DLQ of a subscription")
        if consumer.queue is None:
            self.queue: sqs.IQueue = self._queue(consumer)
        else:
            self.queue = self._existing("Queue", consumer.queue.arn)

    def _existing(self, id_: str, arn: str) -> sqs.IQueue:
        """Return an existing queue."""
        return sqs.Queue.from_queue_attributes(self, id_, queue_arn=arn, fifo=arn.endswith(limits.FIFO_SUFFIX))

    def _dead_letter_queue(self, consumer: Consumer) -> sqs.Queue:
        """Make the queue's DLQ, which takes messages of that queue only.

        The queue's ARN is a literal: the queue refers to its DLQ, and a reference back would be circular.
        """
        name = naming.queue_name(self._environment, consumer)
        queue_arn = cdk.Stack.of(self).format_arn(service="sqs", resource=name)
        queue = self._new(
            "DeadLetterQueue",
            naming.dead_letter_queue_name(self._environment, consumer),
            is_fifo=consumer.fifo,
            retention_seconds=consumer.dead_letter_retention_seconds,
            redrive_allow_policy=sqs.RedriveAllowPolicy(
                redrive_permission=sqs.RedrivePermission.BY_QUEUE,
                source_queues=[sqs.Queue.from_queue_arn(self, "Source", queue_arn)],
            ),
        )
        _acknowledge_dead_letters(queue)
        return queue

    def _queue(self, consumer: Consumer) -> sqs.Queue:
        """Make the consumer's queue."""
        return self._new(
            "Queue",
            naming.queue_name(self._environment, consumer),
            is_fifo=consumer.fifo,
            retention_seconds=consumer.message_retention_seconds,
            max_message_size_bytes=self._environment.event_bytes_max,
            visibility_timeout=cdk.Duration.seconds(consumer.visibility_timeout_seconds),
            receive_message_wait_time=cdk.Duration.seconds(limits.WAIT_SECONDS_MAX),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letter_queue, max_receive_count=self._environment.max_receive_count(consumer)
            ),
        )

    def _new(
        self,
        id_: str,
        name: str,
        *,
        is_fifo: bool,
        retention_seconds: int,
        max_message_size_bytes: int = limits.MESSAGE_BYTES_MAX,
        **more: object,
    ) -> sqs.Queue:
        """Make a queue; a FIFO queue has high throughput, with deduplication and limits for each message group.

        By default a queue takes messages of any size. A DLQ has to: its queue may have large messages from before
        `event_bytes_max` was lowered.
        """
        high_throughput = {
            "fifo": True,
            "deduplication_scope": sqs.DeduplicationScope.MESSAGE_GROUP,
            "fifo_throughput_limit": sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
        }
        return sqs.Queue(
            self,
            id_,
            queue_name=name,
            retention_period=cdk.Duration.seconds(retention_seconds),
            max_message_size_bytes=max_message_size_bytes,
            encryption=sqs.QueueEncryption.SQS_MANAGED if self._key is None else sqs.QueueEncryption.KMS,
            encryption_master_key=self._key,
            enforce_ssl=True,
            removal_policy=removal_policy(self._environment),
            **(high_throughput if is_fifo else {}),  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]  # arguments of sqs.Queue, as in the calls above
        )


class Fanout(Construct):
    """The topics, and every consumer's queue subscribed to its topic with raw delivery.

    Args:
        environment: the environment with topics, consumers and encryption; its tasks and its database are not made
            here.

    Attributes:
        environment: the environment of the topics and queues.
        topics: the topics by their declared names; `topic` is the only one.
        consumers: the queues by their consumer's name; `queue` and `dead_letter_queue` name one.
        keys: the keys of topics and queues; None if SQS holds them.

    Raw delivery passes the published body to the consumer unchanged; the SNS envelope, and with it the topic's sequence
    number, is not in the queue (promise SNS-14). Policies of existing topics, queues and keys are left to their owners.
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        set_flags(self)
        self.environment = environment
        require_place(self, environment)
        is_cmk = environment.encryption is Encryption.CMK
        self.keys = EncryptionKeys(self, "Keys", environment=environment) if is_cmk else None
        self.topics = {topic.name: self._topic(environment, topic) for topic in environment.topics}
        self.consumers = {
            consumer.name: ConsumerQueue(
                consumer_scope(self, consumer),
                f"Consumer-{consumer.name}",
                environment=environment,
                consumer=consumer,
                key=None if self.keys is None else self.keys.queues,
            )
            for consumer in environment.consumers
        }
        for consumer in environment.consumers:
            self._subscribe(consumer, self.topics[environment.topic(consumer.topic).name])
        for topic in environment.topics:
            if self.keys is not None and environment.consumers_of(topic):
                _attach(self.keys.queues, policies.use_key_for(self.topics[topic.name].topic_arn))

    @property
    def topic(self) -> sns.ITopic:
        """Return the only topic of the environment; with several, read `topics`.

        Raises:
            ConfigError: the environment has several topics.
        """
        if len(self.topics) > 1:
            raise ConfigError(
                f"topic is one of {', '.join(self.topics)}, allowed is the only topic there is; take topics[NAME]"
            )
        return next(iter(self.topics.values()))

    def queue(self, consumer: str) -> sqs.IQueue:
        """Return a consumer's queue.

        Args:
            consumer: its declared name.

        Raises:
            ConfigError: it is not declared.
        """
        return self._queues(consumer).queue

    def dead_letter_queue(self, consumer: str) -> sqs.IQueue:
        """Return the DLQ of a consumer's queue, with the messages that the consumer could not handle.

        Raises:
            ConfigError: it is not declared.
        """
        return self._queues(consumer).dead_letter_queue

    def metric_dead_letters(self, consumer: str, **options: Any) -> cloudwatch.Metric:
        """Return the metric of how many messages the DLQ of a consumer's queue has, the maximum of each period.

        Args:
            consumer: its declared name.
            options: of CDK's `Metric`, such as `period`.
        """
        most = {"statistic": cloudwatch.Stats.MAXIMUM, **options}
        return self.dead_letter_queue(consumer).metric_approximate_number_of_messages_visible(**most)

    def grant_publish(self, grantee: iam.IGrantable, topic: str | None = None) -> iam.Grant:
        """Allow a grantee to publish to a topic and to use its key. With an outbox only the relay needs this.

        Args:
            grantee: the role or user.
            topic: the topic's declared name; None where there is only one.

        Raises:
            ConfigError: there is no such topic, or there are several and none is named.
        """
        arn = (self.topic if topic is None else self.topics[self.environment.topic(topic).name]).topic_arn
        key_arn = topic_key_arn(self.environment.topic(topic), self.keys)
        use_key = [] if key_arn is None else [(policies.USE_KEY, key_arn)]
        return _grant(grantee, (["sns:Publish"], arn), *use_key)

    def grant_consume(self, grantee: iam.IGrantable, consumer: str) -> iam.Grant:
        """Allow a grantee to receive, extend and delete messages of a consumer's queue, and to use its key.

        Where bundles or a Lambda function are declared, a consumer sends dead events to its DLQ itself: also that.

        Args:
            grantee: the role or user.
            consumer: its declared name.

        Raises:
            ConfigError: it is not declared.
        """
        found = next((each for each in self.environment.consumers if each.name == consumer), None)
        queues = self._queues(consumer)
        assert found is not None, "self._queues refuses an unknown consumer"
        key_arn = None if self.keys is None else self.keys.queues.key_arn
        if found.queue is not None:
            key_arn = found.queue.key_arn
        allowed = policies.consume(
            self.environment,
            found,
            queue_arn=queues.queue.queue_arn,
            dead_letter_queue_arn=queues.dead_letter_queue.queue_arn,
            key_arn=key_arn,
        )
        return _grant(grantee, *allowed)

    def _queues(self, consumer: str) -> ConsumerQueue:
        """Return a consumer's queues by its name; refuse an unknown name."""
        if consumer not in self.consumers:
            raise ConfigError(
                f"consumer is {value_text(consumer)}{did_you_mean(nearest(consumer, self.consumers))}, allowed is"
                f" one of {', '.join(self.consumers)}; declare it"
            )
        return self.consumers[consumer]

    def _topic(self, environment: Environment, declared: Topic | ExistingTopic) -> sns.ITopic:
        """Make a topic with the statements for other accounts, or return an existing one."""
        id_ = f"Topic-{declared.name}"
        if isinstance(declared, ExistingTopic):
            return sns.Topic.from_topic_arn(self, id_, declared.arn)
        topic = sns.Topic(
            self,
            id_,
            # CDK appends `.fifo` to a FIFO topic's name by itself.
            topic_name=naming.topic_name(environment, declared.name).removesuffix(limits.FIFO_SUFFIX),
            fifo=True,
            fifo_throughput_scope=sns.FifoThroughputScope.MESSAGE_GROUP,
            master_key=None if self.keys is None else self.keys.topic,
            message_retention_period_in_days=environment.archive_days,
            enforce_ssl=True,
        )
        resource = topic.node.default_child
        assert isinstance(resource, sns.CfnTopic)
        # Written even where it is SNS's default: AWS does not document that removing the property restores the
        # default. It is a text, which CloudFormation converts: LocalStack 4.14.0 fails on a number here.
        resource.add_property_override("MaximumMessageSize", str(environment.event_bytes_max))
        acknowledge(resource, "CloudFormation-Validate::W9003", "CloudFormation takes it for a number")
        topic.apply_removal_policy(removal_policy(environment))
        arn, region = topic.topic_arn, environment.region
        for account in declared.producer_accounts:
            _attach(topic, policies.publish(topic_arn=arn, account=account))
        for account in declared.subscriber_accounts:
            _attach(topic, policies.subscribe(topic_arn=arn, account=account, region=region))
        return topic

    def _subscribe(self, consumer: Consumer, topic: sns.ITopic) -> None:
        """Subscribe a consumer's queue to a topic, after the queue's policy allows SNS to deliver."""
        policy, queues = consumer.filter_policy, self.consumers[consumer.name]
        may_deliver = _attach(
            queues.queue, policies.deliver(queue_arn=queues.queue.queue_arn, topic_arn=topic.topic_arn)
        )
        subscription = sns.Subscription(
            queues,
            "Subscription",
            topic=topic,
            endpoint=queues.queue.queue_arn,
            protocol=sns.SubscriptionProtocol.SQS,
            raw_message_delivery=True,
            dead_letter_queue=queues.undelivered_queue,
            filter_policy=None
            if policy is None
            else {name: sns.SubscriptionFilter(list(conditions)) for name, conditions in policy.items()},
        )
        if may_deliver.policy_dependable is not None:
            subscription.node.add_dependency(may_deliver.policy_dependable)


class Producers(Construct):
    """Managed policies for the roles of producers: `publish_policy` to publish directly, `outbox_policy` for an outbox.

    `outbox_policy` only allows to log in to the database, because the relay publishes; it is None without a database.
    """

    @check_argument_types
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        fanout: Fanout,
        database: DatabaseAccess | None,
    ) -> None:
        super().__init__(scope, id_)
        self.outbox_policy = None
        if database is not None:
            # The description must not change: CloudFormation would replace the policy, and detach it from roles.
            self.outbox_policy = iam.ManagedPolicy(self, "Outbox", description="Read the Sluice database's secret")
            self.outbox_policy.add_statements(*database.statements(DatabaseRole.PRODUCER))
        self.publish_policy = iam.ManagedPolicy(self, "Publish", description="Publish to the Sluice topic")
        published = environment.published_topics
        self.publish_policy.add_statements(
            iam.PolicyStatement(
                actions=["sns:Publish"], resources=[fanout.topics[topic.name].topic_arn for topic in published]
            )
        )
        keys = [key for topic in published if (key := topic_key_arn(topic, fanout.keys)) is not None]
        if keys:
            self.publish_policy.add_statements(
                iam.PolicyStatement(actions=policies.USE_KEY, resources=list(dict.fromkeys(keys)))
            )


def _grant(grantee: iam.IGrantable, *allowed: tuple[Sequence[str], str]) -> iam.Grant:
    """Allow actions, each of them on one resource."""
    first, *others = (
        iam.Grant.add_to_principal(grantee=grantee, actions=list(actions), resource_arns=[arn])
        for actions, arn in allowed
    )
    return reduce(iam.Grant.combine, others, first)


def topic_key_arn(topic: Topic | ExistingTopic, keys: EncryptionKeys | None) -> str | None:
    """Return the ARN of the key that a topic is encrypted with; None if there is none."""
    if isinstance(topic, ExistingTopic):
        return topic.key_arn
    return None if keys is None else keys.topic.key_arn


def _acknowledge_dead_letters(queue: sqs.Queue) -> None:
    acknowledge(queue, "Serverless-SQSRedrivePolicy", "it is a DLQ: what it holds waits for an operator")


def _attach(
    resource: sns.ITopic | sqs.IQueue | kms.IKey, statement: policies.Statement
) -> iam.AddToResourcePolicyResult:
    """Add a statement to a resource's policy; CDK leaves the policy of an existing resource alone."""
    return resource.add_to_resource_policy(iam.PolicyStatement.from_json(statement))
