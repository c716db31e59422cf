"""One alarm, by the name of its environment, subject and condition."""

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from sluice.declaration import Environment, naming

IGNORE, NOT_BREACHING = cloudwatch.TreatMissingData.IGNORE, cloudwatch.TreatMissingData.NOT_BREACHING
BREACHING = cloudwatch.TreatMissingData.BREACHING
AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
MORE_THAN = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
LESS_THAN = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


def make_alarm(
    scope: Construct,
    id_: str,
    *,
    environment: Environment,
    subject: str,
    condition: str,
    metric: cloudwatch.IMetric,
    threshold: float,
    missing: cloudwatch.TreatMissingData,
    description: str,
    operator: cloudwatch.ComparisonOperator = AT_LEAST,
    minutes: int = 1,
    of_minutes: int | None = None,
) -> cloudwatch.Alarm:
    """Make an alarm without actions, which rings when so many of the last minutes breach; all of them by default."""
    return cloudwatch.Alarm(
        scope,
        id_,
        alarm_name=naming.alarm_name(environment, subject, condition),
        alarm_description=description,
        metric=metric,
        threshold=threshold,
        comparison_operator=operator,
        datapoints_to_alarm=minutes,
        evaluation_periods=minutes if of_minutes is None else of_minutes,
        treat_missing_data=missing,
    )
