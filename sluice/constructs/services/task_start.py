"""The start of a task from outside: rules of EventBridge, with a role that may start this task and no other."""

from collections.abc import Sequence

from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from sluice.constructs.network import Network
from sluice.declaration.arguments import check_argument_types


class TaskStart:
    """The start of a task by rules, in a network.

    Args:
        scope: what the role is made in, as `Start`.
        task_definition: of the task.
        cluster: where it runs.
        network: its subnets and security group.
    """

    @check_argument_types
    def __init__(
        self,
        scope: Construct,
        *,
        task_definition: ecs.FargateTaskDefinition,
        cluster: ecs.ICluster,
        network: Network,
    ) -> None:
        self._task_definition, self._cluster, self._network = task_definition, cluster, network
        self._role = _starting_role(scope, task_definition, cluster).without_policy_updates()

    def add_to(self, rule: events.Rule, overrides: Sequence[targets.ContainerOverride] | None = None) -> None:
        """Let a rule start the task."""
        rule.add_target(
            targets.EcsTask(
                cluster=self._cluster,
                task_definition=self._task_definition,
                container_overrides=overrides,
                role=self._role,
                launch_type=ecs.LaunchType.FARGATE,
                subnet_selection=self._network.subnets,
                security_groups=[self._network.security_group],
                assign_public_ip=False,
            )
        )


def _starting_role(scope: Construct, task_definition: ecs.FargateTaskDefinition, cluster: ecs.ICluster) -> iam.Role:
    """Make the role with which EventBridge starts this task in this cluster; CDK's own role could also tag any task."""
    role = iam.Role(scope, "Start", assumed_by=iam.ServicePrincipal("events.amazonaws.com"))
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["ecs:RunTask"],
            resources=[task_definition.task_definition_arn],
            conditions={"ArnEquals": {"ecs:cluster": cluster.cluster_arn}},
        )
    )
    passed = [task_definition.obtain_execution_role().role_arn, task_definition.task_role.role_arn]
    role.add_to_policy(iam.PolicyStatement(actions=["iam:PassRole"], resources=passed))
    return role
