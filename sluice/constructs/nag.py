"""cdk-nag at the app's root: every synth is checked, and every finding is either none or acknowledged with a reason."""

import aws_cdk as cdk
import cdk_nag
from constructs import IConstruct


def rule_packs(app: cdk.App) -> list[cdk.IPolicyValidationPlugin]:
    """Return the rule packs every synth of `app` is checked against."""
    return [cdk_nag.AwsSolutionsChecks(app), cdk_nag.ServerlessChecks(app)]


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Say why a finding of `rule` on `construct` is as it should be."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule, reason=reason))
