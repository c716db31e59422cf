"""The removal policy of resources that hold data, and KMS keys that have it."""

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from constructs import Construct

from sluice.declaration import Environment, Removal, naming


def removal_policy(environment: Environment) -> cdk.RemovalPolicy:
    """Return the removal policy of an environment's resources that hold data.

    A resource that is to be retained is still deleted when its creation is rolled back: otherwise its name would be
    taken when the deployment is tried again.
    """
    is_retained = environment.removal is Removal.RETAIN
    return cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if is_retained else cdk.RemovalPolicy.DESTROY


def encryption_key(scope: Construct, id_: str, *, environment: Environment, encrypts: str | None = None) -> kms.Key:
    """Make a KMS key that is rotated; its alias and description name what it `encrypts`, by default its id."""
    encrypted = id_.lower() if encrypts is None else encrypts
    return kms.Key(
        scope,
        id_,
        alias=naming.key_alias(environment, encrypted),
        description=f"Sluice {environment.name}: {encrypted}",
        enable_key_rotation=True,
        removal_policy=removal_policy(environment),
    )
