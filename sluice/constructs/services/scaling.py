"""Scale a consumer's service on the backlog of each task, down to zero tasks if declared.

`sluice/declaration/backlog.py` and docs/decisions/0005-idle-lanes.md explain the expression. The scaling policy
contains it, so that no Lambda and no metric of our own is needed. There is no policy on CPU, which would end tasks that
are at work.
"""

import aws_cdk as cdk
from aws_cdk import aws_applicationautoscaling as autoscaling
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from constructs import Construct

from sluice.constructs.monitoring.alarm import make_alarm
from sluice.declaration import Consumer, Environment, backlog, naming, watched_metrics
from sluice.declaration.alarms import Hearer, of_consumer
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.metric_math import metric_ids
from sluice.declaration.watched_metrics import WatchedMetric


class BacklogScaling(Construct):
    """Target tracking on the clamped backlog per task, and, where min_tasks is 0, a step that starts the first task.

    Target tracking cannot start the first task: its alarm needs three minutes above a target of one message or more.
    AWS: https://docs.aws.amazon.com/autoscaling/application/userguide/application-auto-scaling-target-tracking-metric-math.html
    (read 2026-11-21).
    """

    @check_argument_types
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
        cluster_name = naming.cluster_name(environment)
        service_name = naming.service_name(environment, consumer.name)
        self.target = autoscaling.ScalableTarget(
            self,
            "Target",
            service_namespace=autoscaling.ServiceNamespace.ECS,
            scalable_dimension="ecs:service:DesiredCount",
            resource_id=f"service/{cluster_name}/{service_name}",
            min_capacity=consumer.min_tasks,
            max_capacity=consumer.max_tasks,
            role=iam.Role.from_role_arn(self, "ServiceLinkedRole", _service_linked_role(self)),
        )
        self.target.node.add_dependency(service)
        self._track(environment, consumer)
        if consumer.min_tasks == 0:
            self._wake(environment, consumer)

    def _track(self, environment: Environment, consumer: Consumer) -> None:
        """Make the policy that keeps the expression at its target."""
        # The L2 policy refuses metric math: https://github.com/aws/aws-cdk/issues/34072
        term, inputs = consumer.demand_per_task, watched_metrics.inputs(environment, consumer)
        autoscaling.CfnScalingPolicy(
            self,
            "BacklogPerTask",
            policy_name="backlog-per-task",
            policy_type="TargetTrackingScaling",
            scaling_target_id=self.target.scalable_target_id,
            target_tracking_scaling_policy_configuration={
                "targetValue": consumer.target_backlog,
                "scaleOutCooldown": backlog.SCALE_COOLDOWN_SECONDS,
                "scaleInCooldown": backlog.SCALE_COOLDOWN_SECONDS,
                "customizedMetricSpecification": {
                    "metrics": [
                        *(
                            {"id": id_, "metricStat": _metric_stat(inputs[id_]), "returnData": False}
                            for id_ in metric_ids(term)
                        ),
                        {"id": "result", "expression": term.text(), "returnData": True},
                    ]
                },
            },
        )

    def _wake(self, environment: Environment, consumer: Consumer) -> None:
        """Make the policy that adds one task when its alarm finds messages and no worker."""
        step = autoscaling.StepScalingAction(
            self,
            "WakeFromZero",
            policy_name="wake-from-zero",
            scaling_target=self.target,
            adjustment_type=autoscaling.AdjustmentType.CHANGE_IN_CAPACITY,
            cooldown=cdk.Duration.seconds(backlog.WAKE_COOLDOWN_SECONDS),
        )
        step.add_adjustment(adjustment=1, lower_bound=0)
        (alarm,) = of_consumer(environment, consumer, Hearer.SCALING)
        make_alarm(self, "WorkWithoutWorkers", alarm).add_alarm_action(actions.ApplicationScalingAction(step))


def _service_linked_role(scope: Construct) -> str:
    """Return the ARN of the role that Application Auto Scaling has in each account.

    AWS: https://docs.aws.amazon.com/autoscaling/application/userguide/application-auto-scaling-service-linked-roles.html
    (read 2026-11-21).
    """
    return cdk.Stack.of(scope).format_arn(
        service="iam",
        region="",
        resource="role",
        resource_name="aws-service-role/ecs.application-autoscaling.amazonaws.com/"
        "AWSServiceRoleForApplicationAutoScaling_ECSService",
    )


def _metric_stat(metric: WatchedMetric) -> dict[str, object]:
    """Return a metric and its statistic as a scaling policy in CloudFormation has them."""
    return {
        "stat": metric.statistic,
        "metric": {
            "namespace": metric.namespace,
            "metricName": metric.name,
            "dimensions": [{"name": name, "value": value} for name, value in metric.dimensions.items()],
        },
    }
