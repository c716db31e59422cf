"""The stateful stack of an environment: what is published to, delivered to and kept in."""

import aws_cdk as cdk
from constructs import Construct

from sluice.constructs.fan_out import Fanout, Producers
from sluice.declaration import Environment, naming


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
