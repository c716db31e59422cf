"""The stack that watches an environment."""

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from constructs import Construct

from sluice.constructs.alarms import Alarms, OperatorTopic
from sluice.constructs.dashboard import Dashboard
from sluice.declaration import Environment, naming


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
