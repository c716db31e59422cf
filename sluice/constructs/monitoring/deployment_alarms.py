"""Alarms for ECS alone, which takes a new version back if one of them rings while it is deployed.

The circuit breaker sees only tasks that do not start. A version that starts and then fails every message shows in what
its workers count and in the queues: it gives messages up, dead letters increase, or messages get late. What operators
hear of it is in `sluice/constructs/monitoring/alarms.py`.

An alarm that rings when a deployment starts makes ECS watch none of them during that deployment. So these do not ring
for as long as a dead letter lies there, which may be weeks, but only for some minutes after there are more of them. The
version that mends a late queue is not taken back either.
AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/deployment-alarm-failure.html and
https://aws.github.io/copilot-cli/docs/manifest/backend-service/ (rollback_alarms), read 2026-11-23.
"""

from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sluice.constructs.monitoring import metrics
from sluice.constructs.monitoring.alarm import MORE_THAN, NOT_BREACHING, make_alarm
from sluice.declaration import Consumer, Environment, backlog, naming
from sluice.declaration.arguments import typed
from sluice.declaration.metrics import DEAD

_CONDITIONS = ("failing", "dying", "delayed")
_MINUTES = 15
"""How long an increase counts: ECS goes on watching after the last task was replaced, longer for a longer alarm, and a
message takes some minutes to use up its attempts."""


class DeploymentAlarms(Construct):
    """Three alarms about a consumer, by which ECS judges a new version of its workers.

    `failing` is of what workers count themselves and write within a minute or two. A worker that is killed by its
    message counts nothing; for that there is `dying`, of the DLQ. An increase is one since the minute before. A DLQ
    that nobody has used for six hours reports nothing, and then up to 15 minutes late. Its first minute with dead
    letters has nothing that it could have increased from; the next minute that brings more has.
    AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/monitoring-using-cloudwatch.html
    (read 2026-11-23).
    """

    @typed
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        consumer: Consumer,
        service: ecs.FargateService,
    ) -> None:
        super().__init__(scope, id_)
        self._environment, self._consumer = environment, consumer
        dead_letters = metrics.queue_metric(
            naming.dead_letter_queue_name(environment, consumer), "ApproximateNumberOfMessagesVisible", "Maximum"
        )
        self._alarm(
            "failing",
            metrics.inbox_metric(environment, consumer, DEAD),
            threshold=1,
            of_minutes=_MINUTES,
            description="Workers give messages up. While a version is deployed, ECS takes it back.",
        )
        self._alarm(
            "dying",
            cloudwatch.MathExpression(
                expression="DIFF(FILL(dead, REPEAT))",
                using_metrics={"dead": dead_letters},
                label="more dead letters than a minute before",
                period=metrics.MINUTE,
            ),
            threshold=1,
            of_minutes=_MINUTES,
            description="Dead letters increase. While a version is deployed, ECS takes it back.",
        )
        self._alarm(
            "delayed",
            metrics.inputs(environment, consumer)[backlog.AGE],
            threshold=consumer.acceptable_latency_seconds,
            operator=MORE_THAN,
            minutes=3,
            of_minutes=5,
            description="Messages are late. While a version is deployed, ECS takes it back.",
        )
        names = [naming.alarm_name(environment, consumer.name, condition) for condition in _CONDITIONS]
        service.enable_deployment_alarms(names, behavior=ecs.AlarmBehavior.ROLLBACK_ON_ALARM)
        service.node.add_dependency(self)

    def _alarm(self, condition: str, metric: cloudwatch.IMetric, **more: Any) -> None:
        make_alarm(
            self,
            condition,
            environment=self._environment,
            subject=self._consumer.name,
            condition=condition,
            metric=metric,
            missing=NOT_BREACHING,  # an idle queue reports nothing
            **more,
        )
