"""A deployed environment, found by the names of its declaration."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from contract_tests.resources import QueueUnderTest
from contract_tests.targets.binding import Target
from sluice.declaration import Environment, Topic, naming
from sluice.errors import EndpointError

_PROJECT = Path(__file__).resolve().parents[2]
_VOLATILE = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedEnvironment:
    """A declared environment, and clients of the account where it is deployed. Each method calls the service."""

    environment: Environment
    sqs: Any
    sns: Any
    cloudwatch: Any
    cloudformation: Any
    kms: Any
    functions: Any
    iam: Any
    events: Any
    account: str
    patience_seconds: float

    def queue(self, name: str) -> QueueUnderTest:
        """Return the queue of this name."""
        url = self.sqs.get_queue_url(QueueName=name)["QueueUrl"]
        return QueueUnderTest(self.sqs, name, url, self.queue_arn(name), self.patience_seconds)

    def queue_arn(self, name: str) -> str:
        """Return the ARN of a queue by its name."""
        return naming.queue_arn(self.environment, name, self.account)

    @property
    def topic_arn(self) -> str:
        """Return the ARN of the first topic."""
        return naming.topic_arn(self.environment, self.account)

    @property
    def own_topics(self) -> dict[str, Topic]:
        """Return the topics that the stacks made, by ARN; existing topics are configured by their owner."""
        made = [topic for topic in self.environment.topics if isinstance(topic, Topic)]
        return {naming.topic_arn(self.environment, self.account, topic.name): topic for topic in made}

    @property
    def operator_topic_arn(self) -> str:
        """Return the ARN of the topic that alarms are sent to."""
        own = self.topic_arn.rpartition(":")[0] + ":" + naming.operator_topic_name(self.environment)
        return self.environment.alarm_topic_arn or own

    def queue_attributes(self, name: str) -> dict[str, str]:
        """Return every attribute of a queue that does not change by itself."""
        answer = self.sqs.get_queue_attributes(QueueUrl=self.queue(name).url, AttributeNames=["All"])
        return {key: value for key, value in answer["Attributes"].items() if key not in _VOLATILE}

    def topic_attributes(self, arn: str) -> dict[str, str]:
        """Return every attribute of a topic."""
        attributes: dict[str, str] = self.sns.get_topic_attributes(TopicArn=arn)["Attributes"]
        return attributes

    def subscriptions(self, topic_arn: str) -> dict[str, dict[str, str]]:
        """Return the attributes of every subscription of a topic, by its endpoint."""
        pages = self.sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic_arn)
        arns = [subscription["SubscriptionArn"] for page in pages for subscription in page["Subscriptions"]]
        found = [self.sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"] for arn in arns]
        assert len({entry["Endpoint"] for entry in found}) == len(found), f"an endpoint is subscribed twice: {found}"
        return {entry["Endpoint"]: entry for entry in found}

    def alarms(self) -> dict[str, dict[str, Any]]:
        """Return every alarm of the environment, by its name."""
        prefix = naming.alarm_name(self.environment, "", "").rstrip("-") + "-"
        pages = self.cloudwatch.get_paginator("describe_alarms").paginate(AlarmNamePrefix=prefix)
        return {alarm["AlarmName"]: alarm for page in pages for alarm in page["MetricAlarms"]}

    def template(self, part: str) -> dict[str, Any]:
        """Return the deployed template of one of the environment's stacks."""
        name = naming.stack_name(self.environment, part)
        template: dict[str, Any] = self.cloudformation.get_template(StackName=name)["TemplateBody"]
        return template

    def key_id(self, encrypted: str) -> str:
        """Return the id of the KMS key that encrypts the topic, or the queues."""
        keys = self.environment.keys
        if keys is not None:
            return (keys.topic_arn if encrypted == "topic" else keys.queues_arn).rpartition("/")[2]
        alias = naming.key_alias(self.environment, encrypted)
        return str(self.kms.describe_key(KeyId=alias)["KeyMetadata"]["KeyId"])


def require(target: Target, environment: Environment, *, is_own: bool) -> None:
    """Return when the environment is deployed. To a LocalStack that this run started it is deployed now, if needed.

    Runs: in each worker of pytest-xdist; the first one deploys while the others wait.

    Args:
        target: the endpoint.
        environment: as declared.
        is_own: whether this run started the target.

    Raises:
        EndpointError: the environment is not deployed, and the target is not ours; or the deployment failed.
    """
    with _alone():
        if _is_deployed(target, environment):
            return
        how = f"make deploy ENV={environment.name}"
        if not is_own or environment.name != "local":
            raise EndpointError(
                f"environment {environment.name!r} is not deployed there; deploy it with: {how}, or leave its contracts"
                " out with: -m 'not deployment'"
            )
        ended = subprocess.run(
            [_PROJECT / "scripts" / "deploy-local.sh"], env=os.environ, capture_output=True, text=True, check=False
        )
        if ended.returncode != 0:
            output = "\n".join((ended.stdout + ended.stderr).splitlines()[-20:])
            raise EndpointError(f"{how} failed with exit code {ended.returncode}; its last lines:\n{output}")


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock that all workers share."""
    path = _PROJECT / "runs" / "deploying.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_deployed(target: Target, environment: Environment) -> bool:
    """Return whether the last stack of the environment is complete, which is deployed after all others."""
    name = naming.stack_name(environment, "observability")
    try:
        (stack,) = target.make_client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    except ClientError:
        return False
    return stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
