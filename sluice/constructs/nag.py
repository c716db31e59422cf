"""cdk-nag's rules for each synth of an app, and the acknowledgement of findings that are as they should be."""

import aws_cdk as cdk
import cdk_nag
from constructs import IConstruct


def rule_packs(app: cdk.App) -> list[cdk.IPolicyValidationPlugin]:
    """Return the packs of rules that each synth of an app is checked against."""
    return [cdk_nag.AwsSolutionsChecks(app), cdk_nag.ServerlessChecks(app)]


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept the finding of a rule on a construct, for a reason."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule, reason=reason))
