"""Log groups, and the key of an environment that has keys of its own: CloudWatch Logs encrypts with it."""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from sluice.constructs.removal import encryption_key, removal_policy
from sluice.declaration import Encryption, Environment, NewDatabase, naming


def log_key(scope: Construct, id_: str, *, environment: Environment) -> kms.Key | None:
    """Make the key of an environment's log groups, of tasks and network; None if SQS holds the keys.

    One of its own also where topics and queues have existing keys: those are there for other services.

    CloudWatch Logs may use it for groups whose names begin with the environment's, and for no other of the account.
    AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html (read 2026-11-23).
    """
    if environment.encryption is not Encryption.CMK:
        return None
    key = encryption_key(scope, id_, environment=environment, encrypts="logs")
    stack, name = cdk.Stack.of(scope), naming.service_name(environment, "*")
    names = [f"/ecs/{name}", name]  # of services, and those that CloudFormation names after their stack
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
            resources=["*"],  # in a key's policy: this key
            principals=[iam.ServicePrincipal(f"logs.{environment.region}.amazonaws.com")],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        )
    )
    return key


def log_group(
    scope: Construct, id_: str, *, environment: Environment, key: kms.IKey | None, name: str | None = None
) -> logs.LogGroup:
    """Make a log group that is kept and removed as declared; without a name CloudFormation gives it one."""
    group = logs.LogGroup(
        scope, id_, log_group_name=name, encryption_key=key, removal_policy=removal_policy(environment)
    )
    # By number: CDK's own enumeration is of words.
    group.node.default_child.retention_in_days = environment.log_retention_days  # type: ignore[union-attr]
    return group
