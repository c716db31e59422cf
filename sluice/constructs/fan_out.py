"""One SNS FIFO topic and, for each consumer, an SQS FIFO queue with two FIFO DLQs of its own.

The DLQ of the queue holds what the consumer could not handle; the DLQ of the subscription what SNS could not deliver to
the queue. They are separate because only the first can be moved back (a move task refuses a DLQ whose source is not
SQS), and because SNS keeps group and deduplication id: in one DLQ shared by all subscriptions, the second queue's copy
of a message would be taken for a duplicate of the first's.
AWS: https://docs.aws.amazon.com/sns/latest/dg/sns-dead-letter-queues.html (read 2026-11-20).
"""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from sluice import limits
from sluice.constructs.feature_flags import set_flags
from sluice.constructs.nag import acknowledge
from sluice.constructs.removal import removal_policy
from sluice.declaration import Consumer, Encryption, Environment, naming


class Keys(Construct):
    """The two KMS keys of an environment that holds its own: one for the topics, one for the queues.

    Two, because the queues' key lets SNS in on behalf of the topic, and the topic names its key: one key would close a
    circle in the template.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        self.topic = self._key("Topic", environment)
        self.queues = self._key("Queues", environment)
        stack = cdk.Stack.of(self)
        # CloudWatch publishes alarms to the operator topic.
        self._let_in("cloudwatch.amazonaws.com", {"StringEquals": {"aws:SourceAccount": stack.account}})
        if environment.archive_days is not None:
            # SNS reads its archive to replay it. The literal ARN: the topic itself names this key.
            topic_arn = stack.format_arn(service="sns", resource=naming.topic_name(environment))
            self._let_in("sns.amazonaws.com", {"ArnEquals": {"aws:SourceArn": topic_arn}})

    def _let_in(self, service: str, conditions: dict[str, dict[str, str]]) -> None:
        """Let a service use the topics' key on these conditions.

        AWS: https://docs.aws.amazon.com/sns/latest/dg/message-archiving-and-replay-topic-owner.html (read 2026-11-21).
        """
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=["*"],  # in a key's policy: this key
                principals=[iam.ServicePrincipal(service)],
                conditions=conditions,
            )
        )

    def _key(self, id_: str, environment: Environment) -> kms.Key:
        encrypted = id_.lower()
        return kms.Key(
            self,
            id_,
            alias=naming.key_alias(environment, encrypted),
            description=f"Sluice {environment.name}: {encrypted}",
            enable_key_rotation=True,
            removal_policy=removal_policy(environment),
        )


class ConsumerQueue(Construct):
    """A consumer's FIFO queue, its FIFO DLQ, and the FIFO DLQ of its subscription.

    They are made together so that they cannot differ in type: SQS refuses a standard DLQ for a FIFO queue.
    AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html
    (read 2026-11-20, promise DLQ-01).
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, consumer: Consumer, key: kms.IKey | None
    ) -> None:
        super().__init__(scope, id_)
        self._environment, self._key = environment, key
        queue_name = naming.queue_name(environment, consumer)
        # The literal ARN: the queue itself names its DLQ, so naming the queue here would close a circle.
        queue_arn = cdk.Stack.of(self).format_arn(service="sqs", resource=queue_name)
        self.dead_letter_queue = self._fifo(
            "DeadLetterQueue",
            naming.dead_letter_queue_name(environment, consumer),
            retention_seconds=consumer.dead_letter_retention_seconds,
            redrive_allow_policy=sqs.RedriveAllowPolicy(
                redrive_permission=sqs.RedrivePermission.BY_QUEUE,
                source_queues=[sqs.Queue.from_queue_arn(self, "Source", queue_arn)],
            ),
        )
        # No redriveAllowPolicy: AWS does not say how one acts on what SNS sends, and refusing it would lose messages.
        self.undelivered_queue = self._fifo(
            "UndeliveredQueue",
            naming.undelivered_queue_name(environment, consumer),
            retention_seconds=consumer.dead_letter_retention_seconds,
        )
        self.queue = self._fifo(
            "Queue",
            queue_name,
            retention_seconds=consumer.message_retention_seconds,
            visibility_timeout=cdk.Duration.seconds(consumer.visibility_timeout_seconds),
            receive_message_wait_time=cdk.Duration.seconds(limits.WAIT_SECONDS_MAX),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letter_queue, max_receive_count=consumer.max_attempts
            ),
        )
        for queue in (self.dead_letter_queue, self.undelivered_queue):
            acknowledge(queue, "Serverless-SQSRedrivePolicy", "it is a DLQ: what it holds waits for an operator")
        acknowledge(self.undelivered_queue, "AwsSolutions-SQS3", "it is the DLQ of a subscription")

    def _fifo(self, id_: str, name: str, *, retention_seconds: int, **more: object) -> sqs.Queue:
        """Make a FIFO queue for high throughput: ids are unique, and throughput is limited, per message group."""
        return sqs.Queue(
            self,
            id_,
            queue_name=name,
            fifo=True,
            deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP,
            fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
            retention_period=cdk.Duration.seconds(retention_seconds),
            encryption=sqs.QueueEncryption.SQS_MANAGED if self._key is None else sqs.QueueEncryption.KMS,
            encryption_master_key=self._key,
            enforce_ssl=True,
            removal_policy=removal_policy(self._environment),
            **more,  # type: ignore[arg-type]  # of sqs.Queue, as the calls above give them
        )


class Fanout(Construct):
    """The topic, and every consumer's queue subscribed to it with raw delivery.

    Raw delivery hands the consumer the published body as it is; the SNS envelope, and with it the topic's sequence
    number, is not in the queue (promise SNS-14).
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        set_flags(self)
        is_cmk = environment.encryption is Encryption.CMK
        self.keys = Keys(self, "Keys", environment=environment) if is_cmk else None
        self.topic = sns.Topic(
            self,
            "Topic",
            # CDK appends `.fifo` to a FIFO topic's name by itself.
            topic_name=naming.topic_name(environment).removesuffix(limits.FIFO_SUFFIX),
            fifo=True,
            fifo_throughput_scope=sns.FifoThroughputScope.MESSAGE_GROUP,
            master_key=None if self.keys is None else self.keys.topic,
            message_retention_period_in_days=environment.archive_days,
            enforce_ssl=True,
        )
        self.topic.apply_removal_policy(removal_policy(environment))
        self.consumers = {
            consumer.name: ConsumerQueue(
                self,
                f"Consumer-{consumer.name}",
                environment=environment,
                consumer=consumer,
                key=None if self.keys is None else self.keys.queues,
            )
            for consumer in environment.consumers
        }
        for consumer in environment.consumers:
            self._subscribe(consumer)

    def _subscribe(self, consumer: Consumer) -> None:
        policy = consumer.filter_policy
        queues = self.consumers[consumer.name]
        self.topic.add_subscription(
            subscriptions.SqsSubscription(
                queues.queue,
                raw_message_delivery=True,
                dead_letter_queue=queues.undelivered_queue,
                filter_policy=None
                if policy is None
                else {name: sns.SubscriptionFilter(list(conditions)) for name, conditions in policy.items()},
            )
        )


class Producers(Construct):
    """What a service needs to publish: a managed policy for its role, for the topic and its key and no more."""

    def __init__(self, scope: Construct, id_: str, *, fanout: Fanout) -> None:
        super().__init__(scope, id_)
        self.publish_policy = iam.ManagedPolicy(self, "Publish", description="Publish to the Sluice topic")
        self.publish_policy.add_statements(
            iam.PolicyStatement(actions=["sns:Publish"], resources=[fanout.topic.topic_arn])
        )
        if fanout.keys is not None:
            self.publish_policy.add_statements(
                iam.PolicyStatement(
                    actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[fanout.keys.topic.key_arn]
                )
            )
