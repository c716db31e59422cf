"""Automatic redrive of a consumer: an alarm on its DLQ, a rule on the alarm, a schedule, and the task that both start.

The alarm starts a run when an empty DLQ gets messages. While messages stay in the DLQ the alarm does not change; the
schedule then starts the further runs, for messages that a run left and for messages that died later.

The task is `sluice dlq automatic-redrive`, in the image of the consumer's workers, with a role of its own. EventBridge
starts it from outside, so a network without internet needs no further endpoint. The guard in the inbox's database
(`sluice.messaging.inbox.redrive_guard`) decides what a run may do.

AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch-and-eventbridge.html,
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-identity-based.html,
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-create-rule-schedule.html (read 2026-11-23): which calls
rules with a schedule legacy, but one role then starts the task for both, and EventBridge Scheduler would need another.
"""

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from sluice.constructs.monitoring.alarm import make_alarm
from sluice.constructs.nag import acknowledge
from sluice.constructs.network import Network
from sluice.constructs.services.task_start import TaskStart
from sluice.declaration import AutomaticRedrive, Consumer, Environment, naming
from sluice.declaration.alarms import Hearer, of_consumer
from sluice.declaration.arguments import check_argument_types


class AutomaticRedriveRule(Construct):
    """Starts a task when the DLQ has held messages for the declared quiet time, and then again by a schedule.

    Args:
        environment: as declared.
        consumer: whose dead letters the task brings back.
        declared: the consumer's bounds of automatic redrive.
        task_definition: of the task, whose role gets the rights on the queues here.
        cluster: in which the task runs.
        network: in which the task runs.
        key_arn: the KMS key of the queues; None if SQS holds the keys.
    """

    @check_argument_types
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        consumer: Consumer,
        declared: AutomaticRedrive,
        task_definition: ecs.FargateTaskDefinition,
        cluster: ecs.ICluster,
        network: Network,
        key_arn: str | None,
    ) -> None:
        super().__init__(scope, id_)
        _grant_queues(task_definition.task_role, environment, consumer, key_arn)
        (alarm,) = of_consumer(environment, consumer, Hearer.REDRIVE)
        rule = events.Rule(
            self,
            "Rule",
            description=f"Bring dead letters of {consumer.name} back",
            event_pattern=events.EventPattern(
                source=["aws.cloudwatch"],
                detail_type=["CloudWatch Alarm State Change"],
                resources=[make_alarm(self, "Alarm", alarm).alarm_arn],
                detail={"state": {"value": ["ALARM"]}},
            ),
        )
        schedule = events.Rule(
            self,
            "Schedule",
            description=f"Bring dead letters of {consumer.name} back that are left",
            schedule=events.Schedule.rate(cdk.Duration.minutes(declared.repeat_minutes)),
        )
        start = TaskStart(self, task_definition=task_definition, cluster=cluster, network=network)
        for starting_rule, overrides in {rule: None, schedule: [_older_only(task_definition, declared)]}.items():
            start.add_to(starting_rule, overrides)
            acknowledge(
                starting_rule,
                "Serverless-EventBusDLQ",
                "a run that does not start leaves dead letters, and their alarm goes on ringing",
            )


def _older_only(task_definition: ecs.FargateTaskDefinition, declared: AutomaticRedrive) -> targets.ContainerOverride:
    """Return the command of a scheduled run, which leaves messages that died less than the quiet time ago."""
    container = task_definition.default_container
    assert container is not None, "the task has a container"
    command = ["python", "-m", "sluice", "dlq", "automatic-redrive", "--older-than", f"{declared.quiet_seconds}s"]
    return targets.ContainerOverride(container_name=container.container_name, command=command)


def _grant_queues(role: iam.IRole, environment: Environment, consumer: Consumer, key_arn: str | None) -> None:
    """Allow the task to receive and delete in the DLQ, and to send to the queue.

    The ARNs are literals: a reference to another stack's export would keep that stack from removing the consumer.
    """
    stack = cdk.Stack.of(role)
    queue, dead_letters = (
        stack.format_arn(service="sqs", resource=name)
        for name in (naming.queue_name(environment, consumer), naming.dead_letter_queue_name(environment, consumer))
    )
    reading = ("ReceiveMessage", "ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl")
    for arn, actions in {dead_letters: reading, queue: ("SendMessage", "GetQueueUrl")}.items():
        role.add_to_principal_policy(
            iam.PolicyStatement(actions=[f"sqs:{action}" for action in actions], resources=[arn])
        )
    if key_arn is not None:
        role.add_to_principal_policy(
            iam.PolicyStatement(actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[key_arn])
        )
