"""The container that makes or upgrades the database's tables, before a task takes a message."""

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs

_START_SECONDS = 120
_WAIT_SECONDS = 90  # shorter, so that the command itself says what is in the way


def apply_schema_first(
    task_definition: ecs.TaskDefinition,
    container: ecs.ContainerDefinition,
    *,
    image: ecs.ContainerImage,
    variables: dict[str, str],
    logging: ecs.LogDriver,
    user: str,
) -> None:
    """Let `sluice schema apply` succeed in a container of its own before `container` starts.

    It waits for a database that is away or wakes up. Where it fails the task does not start, and a deployment whose
    tasks do not start is rolled back.
    AWS: https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDependency.html and startTimeout in
    https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html (read 2026-11-23).
    """
    schema = task_definition.add_container(
        "Schema",
        container_name="apply_schema",
        image=image,
        command=["python", "-m", "sluice", "schema", "apply", "--wait", str(_WAIT_SECONDS)],
        environment=variables,
        logging=logging,
        essential=False,
        readonly_root_filesystem=True,
        user=user,
        start_timeout=cdk.Duration.seconds(_START_SECONDS),
    )
    container.add_container_dependencies(
        ecs.ContainerDependency(container=schema, condition=ecs.ContainerDependencyCondition.SUCCESS)
    )
