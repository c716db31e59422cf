"""From the declaration's words to CDK's, where every stack needs the same ones."""

import aws_cdk as cdk
from aws_cdk import aws_logs as logs
from constructs import Construct

from sluice.declaration import Environment, Removal


def removal_policy(environment: Environment) -> cdk.RemovalPolicy:
    """Return what becomes of a stateful resource of that environment.

    What is retained is deleted all the same when its very creation is rolled back: left behind, its name would be in
    the way of the next attempt.
    """
    is_retained = environment.removal is Removal.RETAIN
    return cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if is_retained else cdk.RemovalPolicy.DESTROY


def log_group(scope: Construct, id_: str, *, environment: Environment, name: str | None = None) -> logs.LogGroup:
    """Make a log group that is kept and removed as declared; without a name CloudFormation gives it one."""
    group = logs.LogGroup(scope, id_, log_group_name=name, removal_policy=removal_policy(environment))
    # By number: CDK's own enumeration is of words.
    group.node.default_child.retention_in_days = environment.log_retention_days  # type: ignore[union-attr]
    return group
