"""From the declaration's words to CDK's, where every stack needs the same ones."""

import aws_cdk as cdk

from sluice.declaration import Environment, Removal


def removal_policy(environment: Environment) -> cdk.RemovalPolicy:
    """Return what becomes of a stateful resource of that environment.

    What is retained is deleted all the same when its very creation is rolled back: left behind, its name would be in
    the way of the next attempt.
    """
    is_retained = environment.removal is Removal.RETAIN
    return cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if is_retained else cdk.RemovalPolicy.DESTROY
