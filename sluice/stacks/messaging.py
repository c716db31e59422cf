"""The stack of what is kept: topics, queues, DLQs and keys."""

from constructs import Construct

from sluice.constructs.database import DatabaseAccess
from sluice.constructs.fan_out import Fanout, Producers
from sluice.declaration import Environment, naming
from sluice.declaration.arguments import typed
from sluice.stacks.environment_stack import EnvironmentStack


class MessagingStack(EnvironmentStack):
    """Holds `fan_out`, the topics and the consumers' queues, and `producers`, the policies of who publishes.

    `producers` is None where nothing is published: every topic is somebody else's.
    """

    @typed
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
        self._say_where_things_are(environment)

    def _say_where_things_are(self, environment: Environment) -> None:
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
            self.output(**{naming.output_name(consumer, name): value for name, value in values.items()})
