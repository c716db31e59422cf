"""The ECS cluster the tasks run in: the environment's own, or an existing one, of which nothing is changed."""

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sluice.declaration import Environment, naming


def cluster(scope: Construct, id_: str, *, environment: Environment, vpc: ec2.IVpc) -> ecs.ICluster:
    """Return the environment's cluster. Container Insights are on: scaling counts running tasks with them.

    An existing one has them, and the capacity provider FARGATE_SPOT where the environment's tasks run on it.

    AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Container-Insights-metrics-ECS.html
    (read 2026-11-21).
    """
    name = naming.cluster_name(environment)
    if environment.cluster is not None:
        return ecs.Cluster.from_cluster_attributes(scope, id_, cluster_name=name, vpc=vpc)
    return ecs.Cluster(
        scope,
        id_,
        cluster_name=name,
        vpc=vpc,
        container_insights_v2=ecs.ContainerInsights.ENABLED,
        enable_fargate_capacity_providers=environment.spot,
    )
