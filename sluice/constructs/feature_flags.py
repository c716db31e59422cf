"""CDK's feature flags that change our templates. Our constructs set them, so that templates are equal in every app.

An app of `cdk init` has most of them set, an app made by hand none. They decide how CDK writes the same resources.
AWS: https://github.com/aws/aws-cdk/blob/main/packages/aws-cdk-lib/cx-api/FEATURE_FLAGS.md (read 2026-11-23).
"""

from constructs import Construct

FLAGS = (
    "@aws-cdk/aws-iam:minimizePolicies",
    "@aws-cdk/aws-ecs:disableExplicitDeploymentControllerForCircuitBreaker",
    "@aws-cdk/aws-ecs:removeDefaultDeploymentAlarm",
    "@aws-cdk/aws-ecs:removeEmptyLoadBalancers",
)


def set_flags(construct: Construct) -> None:
    """Set the flags for a construct and all its children; call it before the construct has children."""
    for flag in FLAGS:
        construct.node.set_context(flag, value=True)
