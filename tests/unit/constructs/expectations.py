"""Values that the tests of several constructs expect to find."""

from typing import Any

from sluice.declaration import DatabaseRole, Encryption, Environment
from tests.support.templates.environments import database_access
from tests.support.templates.resources import ResourceProperties

CONSUMERS = ("billing", "shipping", "audit")
"""Of each declared environment."""
QUEUE_METRICS = {
    "visible": ("ApproximateNumberOfMessagesVisible", "Average"),
    "inflight": ("ApproximateNumberOfMessagesNotVisible", "Average"),
    "empty": ("NumberOfEmptyReceives", "Sum"),
    "received": ("NumberOfMessagesReceived", "Sum"),
    "deleted": ("NumberOfMessagesDeleted", "Sum"),
    "age": ("ApproximateAgeOfOldestMessage", "Maximum"),
}


def account(environment: Environment) -> str:
    """Return the account as templates have it: declared of local alone."""
    return "000000000000" if environment.name == "local" else "<AWS::AccountId>"


def log_encryption(environment: Environment) -> ResourceProperties:
    """Return the further properties of log groups if the environment has its own keys."""
    return {"KmsKeyId": "Arn(NetworkLogKey)"} if environment.encryption is Encryption.CMK else {}


def allow(actions: str | list[str], resources: str | list[str]) -> dict[str, Any]:
    """Return a statement of a role's policy."""
    return {"Effect": "Allow", "Action": actions, "Resource": resources}


def log_in(environment: Environment, role: DatabaseRole) -> list[dict[str, Any]]:
    """Return the IAM statements with which a role gets into the environment's own database as a user."""
    return [allow(action, arn) for action, arn in database_access(environment, role).items()]


def of_queue(id_: str, queue: str, **more: int) -> ResourceProperties:
    """Return the query for a metric of a queue; an alarm's has a period more."""
    name, statistic = QUEUE_METRICS[id_]
    return _query(id_, "AWS/SQS", name, {"QueueName": queue}, statistic, **more)


def of_service(cluster: str, service: str, **more: int) -> ResourceProperties:
    """Return the query for the number of a service's running tasks; an alarm's has a period more."""
    dimensions = {"ClusterName": cluster, "ServiceName": service}
    return _query("running", "ECS/ContainerInsights", "RunningTaskCount", dimensions, "Average", **more)


def _query(
    id_: str, namespace: str, name: str, dimensions: dict[str, str], statistic: str, **more: int
) -> ResourceProperties:
    metric = {
        "Namespace": namespace,
        "MetricName": name,
        "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
    }
    return {"Id": id_, "MetricStat": {"Metric": metric, "Stat": statistic, **more}, "ReturnData": False}
