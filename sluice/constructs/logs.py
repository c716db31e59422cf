"""Log groups, and the KMS key with which CloudWatch Logs encrypts them in an environment with `Encryption.CMK`."""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from sluice.constructs.removal import encryption_key, removal_policy
from sluice.declaration import Encryption, Environment, NewDatabase, naming


def log_key(scope: Construct, id_: str, *, environment: Environment) -> kms.Key | None:
    """Make the key of an environment's log groups; None without `Encryption.CMK`.

    The key is made even where topics and queues have existing keys, whose policies are for other services. CloudWatch
    Logs may use it only for groups whose names begin with the environment's name.
    AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html (read 2026-11-23).
    """
    if environment.encryption is not Encryption.CMK:
        return None
    key = encryption_key(scope, id_, environment=environment, encrypts="logs")
    stack, name = cdk.Stack.of(scope), naming.service_name(environment, "*")
    names = [f"/ecs/{name}", name]  # log groups of services, and those that CloudFormation names after their stack
    if any(consumer.runtime is not None for consumer in environment.consumers):
        names.append(f"/aws/lambda/{name}")
    if isinstance(environment.database, NewDatabase):
        names.append(f"/aws/rds/cluster/{naming.database_name(environment)}/*")
    groups = [
        stack.format_arn(
            service="logs",
            resource="log-group",
            resource_name=group,
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )
        for group in names
    ]
    key.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
            resources=["*"],  # in a key's policy, the key itself
            principals=[iam.ServicePrincipal(f"logs.{environment.region}.amazonaws.com")],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        )
    )
    return key


def log_group(
    scope: Construct, id_: str, *, environment: Environment, key: kms.IKey | None, name: str | None = None
) -> logs.LogGroup:
    """Make a log group with the declared retention and removal; without a name CloudFormation gives it one."""
    group = logs.LogGroup(
        scope, id_, log_group_name=name, encryption_key=key, removal_policy=removal_policy(environment)
    )
    # The number of days is set on the resource, because CDK's own argument takes a member of an enumeration.
    group.node.default_child.retention_in_days = environment.log_retention_days  # type: ignore[union-attr]
    return group
