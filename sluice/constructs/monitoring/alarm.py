"""Make CDK's alarms and metrics from those of the declaration."""

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from sluice.declaration.alarms import Alarm
from sluice.declaration.watched_metrics import Expression, WatchedMetric

MINUTE = cdk.Duration.minutes(1)


def make_alarm(scope: Construct, id_: str, alarm: Alarm) -> cloudwatch.Alarm:
    """Make an alarm without actions; the caller adds them."""
    return cloudwatch.Alarm(
        scope,
        id_,
        alarm_name=alarm.name,
        alarm_description=alarm.description,
        metric=to_cloudwatch(alarm.watches),
        threshold=alarm.threshold,
        comparison_operator=cloudwatch.ComparisonOperator[alarm.comparison.name],
        datapoints_to_alarm=alarm.minutes,
        evaluation_periods=alarm.evaluated_minutes,
        treat_missing_data=cloudwatch.TreatMissingData[alarm.missing.name],
    )


def to_cloudwatch(watched: WatchedMetric | Expression) -> cloudwatch.IMetric:
    """Return CDK's metric, or expression of metrics, with one value for each minute."""
    if isinstance(watched, Expression):
        return cloudwatch.MathExpression(
            expression=watched.text,
            using_metrics={id_: to_cloudwatch(metric) for id_, metric in watched.metrics.items()},
            label=watched.label,
            period=MINUTE,
        )
    return cloudwatch.Metric(
        namespace=watched.namespace,
        metric_name=watched.name,
        dimensions_map=watched.dimensions,
        statistic=watched.statistic,
        period=MINUTE,
    )
