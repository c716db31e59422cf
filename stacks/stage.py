"""One environment as a CDK stage: what is stateful, what is not, and what watches both, in a stack each."""

import aws_cdk as cdk
from constructs import Construct

from sluice.declaration import Environment, Removal, naming
from stacks.consumers import ConsumersStack
from stacks.messaging import MessagingStack
from stacks.observability import ObservabilityStack


class EnvironmentStage(cdk.Stage):
    """Everything one environment consists of, deployed with `cdk deploy -c env=NAME 'NAME/*'`."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
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
            "application": naming.APPLICATION,
            "environment": environment.name,
            **environment.tags,
        }.items():
            cdk.Tags.of(self).add(key, value)
