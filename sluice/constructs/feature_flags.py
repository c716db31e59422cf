"""CDK's feature flags on which our templates would depend: set by our constructs, whatever the app around them says.

An app made by `cdk init` has most of them, and one made by hand has none. They decide how the same thing is written.
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
    """Set them for a construct and all it holds; called before it holds anything."""
    for flag in FLAGS:
        construct.node.set_context(flag, value=True)
