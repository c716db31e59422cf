"""Alarms, and the topic they tell operators by.

Missing data. What a queue holds is not reported once nobody has touched the queue for six hours, whatever it holds; so
those alarms *ignore* gaps: a forgotten dead letter goes on ringing, and an idle queue stays silent. What SNS counts is
not reported while there is nothing to count; those alarms take a gap for zero. The leading relay reports twice a
minute whatever there is to report, so a gap in the outbox's lag *is* the failure: nobody publishes.
AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/monitoring-using-cloudwatch.html
(read 2026-11-21).
"""

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_chatbot as chatbot
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from sluice.constructs.monitoring import metrics
from sluice.constructs.monitoring.alarm import BREACHING, IGNORE, LESS_THAN, MORE_THAN, NOT_BREACHING, make_alarm
from sluice.constructs.nag import acknowledge
from sluice.declaration import Consumer, Environment, ExistingTopic, Gaps, Topic, backlog, naming
from sluice.declaration.arguments import typed
from sluice.declaration.metrics import OUTBOX_LAG, OUTBOX_QUARANTINED, PARKED_GROUPS, REDRIVE_OFF
from sluice.declaration.topics import RELAY_TASKS

_PINNED_MINUTES = 15
_PARKED_MINUTES = 10
_ALONE_MINUTES = 15


class OperatorTopic(Construct):
    """Where alarms go: an existing topic, or one of the environment's own with whoever is subscribed to it.

    A standard topic: CloudWatch does not publish to FIFO topics.

    AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Notify_Users_Alarm_Changes.html
    (read 2026-11-21).
    """

    @typed
    def __init__(self, scope: Construct, id_: str, *, environment: Environment, key: kms.IKey | None) -> None:
        super().__init__(scope, id_)
        if environment.alarm_topic_arn is None:
            self.topic: sns.ITopic = self._own_topic(environment, key)
        else:
            self.topic = sns.Topic.from_topic_arn(self, "Topic", environment.alarm_topic_arn)

    def _own_topic(self, environment: Environment, key: kms.IKey | None) -> sns.Topic:
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
    """Every alarm of an environment, each with what it means and what to do about it in its description."""

    @typed
    def __init__(self, scope: Construct, id_: str, *, environment: Environment, topic: sns.ITopic) -> None:
        super().__init__(scope, id_)
        self._environment = environment
        self._action = actions.SnsAction(topic)
        for watched in environment.topics:
            if isinstance(watched, Topic):  # of an existing one the metrics count what others subscribed, too
                self._watch_topic(watched)
        for published in environment.published_topics if environment.has_relay else ():
            self._watch_outbox(published)
        for consumer in environment.consumers:
            self._watch_queues(consumer)
            self._watch_latency(consumer)
            self._watch_service(consumer)
            if consumer.fifo:
                self._watch_groups(consumer)
            if consumer.parks:
                self._watch_inbox(consumer)
            if consumer.automatic_redrive is not None:
                self._watch_redrive(consumer)

    def _alarm(self, subject: str, condition: str, metric: cloudwatch.IMetric, **more: Any) -> None:
        """Make an alarm that operators hear of, when it rings and when it is over; see `make_alarm`."""
        made = make_alarm(
            self,
            f"{subject}-{condition}",
            environment=self._environment,
            subject=subject,
            condition=condition,
            metric=metric,
            **more,
        )
        made.add_alarm_action(self._action)
        made.add_ok_action(self._action)

    def _watch_topic(self, topic: Topic) -> None:
        name = naming.topic_name(self._environment, topic.name)
        subject = naming.of_topic(self._environment, "topic", topic)
        self._alarm(
            subject,
            "failed",
            metrics.topic_metric(name, "NumberOfNotificationsFailed"),
            threshold=1,
            missing=NOT_BREACHING,
            description="SNS could not deliver to a queue. See which undelivered DLQ fills, then its queue's policy and"
            " key.",
        )
        self._alarm(
            subject,
            "lost",
            metrics.topic_metric(name, "NumberOfNotificationsFailedToRedriveToDlq"),
            threshold=1,
            missing=NOT_BREACHING,
            description="Messages are lost: SNS could neither deliver them nor put them into the undelivered DLQ."
            " Publish them again; consumers that had them need an inbox.",
        )

    def _watch_outbox(self, topic: Topic | ExistingTopic) -> None:
        subject = naming.of_topic(self._environment, "relay", topic)
        self._alarm(
            subject,
            "lagging",
            metrics.outbox_metric(self._environment, topic, OUTBOX_LAG, "Maximum"),
            threshold=self._environment.outbox_lag_seconds,
            operator=MORE_THAN,
            minutes=3,  # a relay that dies is replaced sooner
            of_minutes=5,
            missing=BREACHING,
            description=f"A committed message has waited longer than {self._environment.outbox_lag_seconds} s to be"
            " published, or no relay leads. See the relay's log: SNS refuses, the database does not answer, no task"
            " starts, or a message is quarantined.",
        )
        self._alarm(
            subject,
            "quarantined",
            metrics.outbox_metric(self._environment, topic, OUTBOX_QUARANTINED, "Maximum"),
            threshold=1,
            missing=NOT_BREACHING,  # without a relay `lagging` rings
            description="SNS refuses a message as it is, and its group waits behind it. See `sluice"
            " outbox ls`, mend what refuses it, then unquarantine or skip it.",
        )
        self._alarm(
            subject,
            "alone",
            metrics.running_tasks(self._environment, subject),
            threshold=RELAY_TASKS,
            operator=LESS_THAN,
            minutes=_ALONE_MINUTES,
            missing=BREACHING,  # with no task there is no number
            description=f"Fewer than {RELAY_TASKS} relays have run for {_ALONE_MINUTES} minutes, so nobody takes over"
            " when the last one fails. See the events of its ECS service, and its log.",
        )

    def _watch_inbox(self, consumer: Consumer) -> None:
        minutes = _PARKED_MINUTES + consumer.gap_wait_seconds // 60 if consumer.gaps is Gaps.WAIT else _PARKED_MINUTES
        self._alarm(
            consumer.name,
            "parked",
            metrics.inbox_metric(self._environment, consumer, PARKED_GROUPS),
            threshold=1,
            minutes=minutes,
            missing=IGNORE,
            description=f"A group has been parked for {minutes} minutes: a message is missing, dead or held, and what"
            " follows it is set aside. See `sluice dlq ls`, then redrive, replace, retry or skip it.",
        )

    def _watch_redrive(self, consumer: Consumer) -> None:
        self._alarm(
            consumer.name,
            "redrive-off",
            metrics.inbox_metric(self._environment, consumer, REDRIVE_OFF),
            threshold=1,
            missing=IGNORE,
            description="Automatic redrive is off: a message that it brought back died again, a run died, or an"
            " operator switched it off. See `sluice dlq audit`, mend the cause, then `sluice dlq automatic-on`.",
        )

    def _watch_queues(self, consumer: Consumer) -> None:
        for condition, name, description in (
            (
                "dead-letters",
                naming.dead_letter_queue_name(self._environment, consumer),
                f"A message failed {consumer.max_attempts} times. Inspect it, fix the cause, redrive it.",
            ),
            (
                "undelivered",
                naming.undelivered_queue_name(self._environment, consumer),
                "SNS could not deliver a message to the queue: its policy or its key is wrong. Fix it, then send"
                " these messages to that queue.",
            ),
        ):
            self._alarm(
                consumer.name,
                condition,
                # Not NumberOfMessagesSent: it does not count what SQS moves itself.
                metrics.queue_metric(name, "ApproximateNumberOfMessagesVisible", "Maximum"),
                threshold=1,
                missing=IGNORE,
                description=description,
            )

    def _watch_latency(self, consumer: Consumer) -> None:
        age = metrics.inputs(self._environment, consumer)[backlog.AGE]
        self._alarm(
            consumer.name,
            "late",
            age,
            threshold=consumer.acceptable_latency_seconds,
            operator=MORE_THAN,
            minutes=3,
            of_minutes=5,
            missing=IGNORE,
            description=f"A message has waited longer than {consumer.acceptable_latency_seconds} s. See the dashboard:"
            " failing tasks, too few tasks, or a stuck group.",
        )
        self._alarm(
            consumer.name,
            "expiring",
            age,
            threshold=consumer.message_retention_seconds / 2,
            missing=IGNORE,
            description=f"A message has waited half of the {consumer.message_retention_seconds} s after which SQS"
            " deletes it.",
        )

    def _watch_groups(self, consumer: Consumer) -> None:
        self._alarm(
            consumer.name,
            "stuck",
            metrics.evaluated(consumer.group_stuck, self._environment, consumer, label="late while lanes are idle"),
            threshold=1,
            minutes=8,  # while tasks start, or one metric is late, lanes look idle for some minutes
            of_minutes=10,
            missing=IGNORE,
            description="The oldest message is late though tasks are idle: its group is blocked by a failing or slow"
            " message, or holds most of the load. More tasks do not help.",
        )

    def _watch_service(self, consumer: Consumer) -> None:
        self._alarm(
            consumer.name,
            "pinned",
            metrics.evaluated(
                consumer.capacity_pinned, self._environment, consumer, label="behind with all tasks at work"
            ),
            threshold=1,
            minutes=_PINNED_MINUTES,
            missing=IGNORE,
            description=f"All {consumer.max_tasks} tasks have had more than they can do in time for"
            f" {_PINNED_MINUTES} minutes. Raise max_tasks, or make the handler faster.",
        )
