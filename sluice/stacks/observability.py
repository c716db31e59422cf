"""The stack of what watches the others: the operator topic, the alarms and the dashboard."""

from aws_cdk import aws_kms as kms
from constructs import Construct

from sluice.constructs.monitoring.alarms import Alarms, OperatorTopic
from sluice.constructs.monitoring.dashboard import Dashboard
from sluice.declaration import Environment, Removal
from sluice.declaration.arguments import typed
from sluice.declaration.validation import require
from sluice.stacks.environment_stack import EnvironmentStack


class ObservabilityStack(EnvironmentStack):
    """Holds `operators`, `alarms` and `dashboard`. `operators.topic` is for alarms of your own.

    Args:
        environment: what is declared.
        key: of the operator topic, where there are keys.

    Raises:
        ConfigError: the environment keeps its data, and nobody would hear that some is late, dead or about to be
            deleted.
    """

    @typed
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
