"""The alarms that operators receive, and the topic that sends them."""

import aws_cdk as cdk
from aws_cdk import aws_chatbot as chatbot
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from sluice.constructs.monitoring.alarm import make_alarm
from sluice.constructs.nag import acknowledge
from sluice.constructs.place import consumer_scope
from sluice.declaration import Environment, naming
from sluice.declaration.alarms import Hearer, alarms, of_consumer
from sluice.declaration.arguments import check_argument_types


class OperatorTopic(Construct):
    """The topic that alarms are sent to: an existing one, or the environment's own with its declared subscribers.

    It is a standard topic, because CloudWatch does not publish to FIFO topics.

    AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Notify_Users_Alarm_Changes.html
    (read 2026-11-21).
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment, key: kms.IKey | None) -> None:
        super().__init__(scope, id_)
        if environment.alarm_topic_arn is None:
            self.topic: sns.ITopic = self._own_topic(environment, key)
        else:
            self.topic = sns.Topic.from_topic_arn(self, "Topic", environment.alarm_topic_arn)

    def _own_topic(self, environment: Environment, key: kms.IKey | None) -> sns.Topic:
        """Make the topic, allow CloudWatch to publish to it, and subscribe addresses and Slack channel."""
        topic = sns.Topic(
            self, "Topic", topic_name=naming.operator_topic_name(environment), master_key=key, enforce_ssl=True
        )
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AllowAlarms",
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                conditions={"StringEquals": {"aws:SourceAccount": cdk.Stack.of(self).account}},
            )
        )
        subscribers: list[sns.ITopicSubscription] = [
            *map(subscriptions.EmailSubscription, environment.alarm_emails),
            *map(subscriptions.UrlSubscription, environment.alarm_urls),
        ]
        for subscription in subscribers:
            acknowledge(
                topic.add_subscription(subscription),
                "Serverless-SNSRedrivePolicy",
                "what does not arrive is still in CloudWatch",
            )
        if environment.alarm_slack is not None:
            chatbot.SlackChannelConfiguration(
                self,
                "Slack",
                slack_channel_configuration_name=naming.operator_topic_name(environment),
                slack_workspace_id=environment.alarm_slack.workspace_id,
                slack_channel_id=environment.alarm_slack.channel_id,
                notification_topics=[topic],
            )
        return topic


class Alarms(Construct):
    """The alarms of an environment that operators receive, both when an alarm begins and when it ends."""

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment, topic: sns.ITopic) -> None:
        super().__init__(scope, id_)
        action = actions.SnsAction(topic)
        scope_by_alarm = {
            alarm.name: consumer_scope(self, consumer)
            for consumer in environment.consumers
            for alarm in of_consumer(environment, consumer, Hearer.OPERATORS)
        }
        for alarm in alarms(environment):
            if alarm.hearer is Hearer.OPERATORS:
                alarm_scope = scope_by_alarm.get(alarm.name, self)
                resource = make_alarm(alarm_scope, f"{alarm.subject}-{alarm.condition}", alarm)
                resource.add_alarm_action(action)
                resource.add_ok_action(action)
