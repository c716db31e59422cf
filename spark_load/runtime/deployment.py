"""The deployment that a load test uses: an environment's topic and queues, found by name, and checked first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
)
from botocore.exceptions import (
    ConnectionError as ConnectionFailure,
)
from botocore.parsers import ResponseParserError

from sluice import limits, sdk
from sluice.declaration import Environment, ExistingTopic, naming
from sluice.endpoint import checked_url
from sluice.error_codes import CREDENTIALS_REFUSED
from sluice.errors import SET_CREDENTIALS, ConfigError, EndpointError

CONNECT_SECONDS_MAX = 5
ANSWER_SECONDS_MAX = 30
# Clients never retry: the publisher decides about retries, and each is an event of its own in the history.
_CONFIG = sdk.config(connect_seconds=CONNECT_SECONDS_MAX, answer_seconds=ANSWER_SECONDS_MAX)
_NOT_THERE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NotFound", "NotFoundException")
_ANOTHER = "name an SQS endpoint with --endpoint-url"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDeployment:
    """Addresses of one environment's deployed resources. Keys are names of queues; `queue_urls` has the declared order.

    Args:
        endpoint_url: None means AWS itself.
        undelivered_queues: the DLQ of each queue's subscription, for messages that SNS could not deliver; if deployed.
        further_urls: URLs of the DLQs and undelivered queues.
        consumers: queue to the name of the consumer.
        functions: names of the consumers whose handlers run in Lambda functions, as declared.
        visibility_timeout_seconds: as deployed.
        retention_seconds: as deployed, of DLQs too.
        event_bytes_max: as declared, of a message and of a whole call.
        max_receive_count: receives after which a message is dead-lettered.
    """

    endpoint_url: str | None
    region: str
    topic_arn: str
    topic: str
    queue_urls: Mapping[str, str]
    dead_letter_queues: Mapping[str, str]
    visibility_timeout_seconds: Mapping[str, int]
    max_receive_count: Mapping[str, int]
    undelivered_queues: Mapping[str, str] = field(default_factory=dict)
    further_urls: Mapping[str, str] = field(default_factory=dict)
    arns: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""
    consumers: Mapping[str, str] = field(default_factory=dict)
    functions: frozenset[str] = frozenset()
    retention_seconds: Mapping[str, int] = field(default_factory=dict)
    event_bytes_max: int = limits.PUBLISH_BYTES_MAX

    @property
    def urls(self) -> dict[str, str]:
        """Return the URL of each queue of any kind, by its name."""
        return {**self.queue_urls, **self.further_urls}

    def client(self, service: str) -> Any:
        """Return a boto3 client that never retries by itself."""
        return _client(service, self.endpoint_url, self.region)

    def names(self) -> dict[str, str]:
        """Return the name of each address, for the recorder."""
        return {self.topic_arn: self.topic} | {url: name for name, url in self.urls.items()}


def _client(service: str, endpoint_url: str | None, region: str) -> Any:
    return boto3.client(service, endpoint_url=endpoint_url, region_name=region, config=_CONFIG)


def find(environment: Environment, *, endpoint_url: str | None, is_used: bool = False) -> LoadDeployment:
    """Find the first topic of an environment and its queues as deployed, and make sure that they are there and empty.

    If `is_used`, a run is resumed, whose messages may be in the queues.

    Raises:
        ConfigError: the endpoint is no URL; the topic is somebody else's, or a queue of it is standard or filtered.
        EndpointError: unreachable, not SQS, credentials refused, not deployed, or not empty.
    """
    _check_loadable(environment)
    endpoint_url = None if endpoint_url is None else checked_url(endpoint_url)
    where = endpoint_url or f"AWS in {environment.region}"
    try:
        return _find(environment, endpoint_url, is_used=is_used)
    except KeyError as error:
        raise EndpointError(f"{where} answers, but not as SQS does (no {error}); {_ANOTHER}") from error
    except (NoCredentialsError, BotoCoreError, ClientError) as error:
        raise EndpointError(_explain(error, where, environment)) from error


def _check_loadable(environment: Environment) -> None:
    """Refuse a topic of somebody else, which a load would harm, and standard or filtered queues."""
    topic = environment.topics[0]
    if isinstance(topic, ExistingTopic):
        raise ConfigError(
            f"Environment({environment.name!r}).topics begins with {topic.arn}, allowed for a load test is a topic of"
            " the environment's own: others are subscribed to this one; load another environment"
        )
    standard = [consumer.name for consumer in environment.consumers_of(topic) if not consumer.fifo]
    if standard:
        raise ConfigError(
            f"Consumer({standard[0]!r}).fifo is False, allowed for a load test is True: a standard queue promises no"
            " order to judge; load an environment without it"
        )
    filtered = [consumer for consumer in environment.consumers_of(topic) if consumer.filter_policy is not None]
    if filtered:
        raise ConfigError(
            f"Consumer({filtered[0].name!r}).filter_policy is {filtered[0].filter_policy!r}, allowed for a load test is"
            " None: what a filter holds back would look lost; load an environment without it"
        )


def _find(environment: Environment, endpoint_url: str | None, *, is_used: bool) -> LoadDeployment:
    sqs = _client("sqs", endpoint_url, environment.region)
    sns = _client("sns", endpoint_url, environment.region)
    loaded = environment.consumers_of(environment.topics[0])
    queues = {naming.queue_name(environment, consumer): consumer for consumer in loaded}
    dead_letters = {name: naming.dead_letter_queue_name(environment, queue) for name, queue in queues.items()}
    undelivered = {name: naming.undelivered_queue_name(environment, queue) for name, queue in queues.items()}
    urls = {name: sqs.get_queue_url(QueueName=name)["QueueUrl"] for name in (*queues, *dead_letters.values())}
    urls |= {name: url for name in undelivered.values() if (url := _url_if_there(sqs, name)) is not None}
    attributes = {
        name: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"] for name, url in urls.items()
    }
    if not is_used:
        for name, its in attributes.items():
            _check_empty(its, name, urls[name])
    arn = naming.topic_arn(environment, attributes[next(iter(queues))]["QueueArn"].split(":")[4])
    sns.get_topic_attributes(TopicArn=arn)
    return LoadDeployment(
        endpoint_url=endpoint_url,
        region=environment.region,
        topic_arn=arn,
        topic=naming.topic_name(environment),
        queue_urls={name: urls[name] for name in queues},
        dead_letter_queues=dead_letters,
        # As deployed, which may not be as declared.
        visibility_timeout_seconds={name: int(attributes[name]["VisibilityTimeout"]) for name in queues},
        retention_seconds={
            name: int(its["MessageRetentionPeriod"])
            for name, its in attributes.items()
            if "MessageRetentionPeriod" in its
        },
        max_receive_count={name: environment.max_receive_count(consumer) for name, consumer in queues.items()},
        undelivered_queues={name: its for name, its in undelivered.items() if its in urls},
        further_urls={name: url for name, url in urls.items() if name not in queues},
        arns={name: its["QueueArn"] for name, its in attributes.items()},
        environment=environment.name,
        event_bytes_max=environment.event_bytes_max,
        consumers={name: consumer.name for name, consumer in queues.items()},
        functions=frozenset(consumer.name for consumer in loaded if consumer.runtime is not None),
    )


def _url_if_there(sqs: Any, name: str) -> str | None:
    try:
        return str(sqs.get_queue_url(QueueName=name)["QueueUrl"])
    except ClientError as error:
        if error.response["Error"].get("Code", "") in _NOT_THERE:
            return None
        raise


def _check_empty(attributes: Mapping[str, str], name: str, url: str) -> None:
    counts = {key: int(attributes.get(f"ApproximateNumberOfMessages{key}", 0)) for key in ("", "NotVisible", "Delayed")}
    if sum(counts.values()):
        raise EndpointError(
            f"queue {name} holds {sum(counts.values())} message(s); a load test needs it empty: let its consumer finish"
            " or another load test end, handle its dead letters (sluice dlq), or purge it if nobody needs"
            f" them (aws sqs purge-queue --queue-url {url})"
        )


def _explain(error: Exception, where: str, environment: Environment) -> str:
    if isinstance(error, NoCredentialsError):
        sentence = f"there are no AWS credentials; {SET_CREDENTIALS}"
    elif isinstance(error, ResponseParserError):
        sentence = f"{where} answers, but not as SQS does; {_ANOTHER}"
    elif isinstance(error, ConnectionFailure | HTTPClientError):
        sentence = f"{where} cannot be reached ({type(error).__name__}); start it, or {_ANOTHER}"
    elif isinstance(error, ClientError):
        sentence = _explain_refusal(error, where, environment)
    else:
        sentence = f"{where}: {error}"
    return sentence


def _explain_refusal(error: ClientError, where: str, environment: Environment) -> str:
    code, status = error.response["Error"].get("Code", ""), error.response["ResponseMetadata"].get("HTTPStatusCode")
    name = environment.name
    if code.startswith((*CREDENTIALS_REFUSED, "AccessDenied")):
        sentence = f"{where} refuses these credentials ({code}); check AWS_ACCESS_KEY_ID and its secret"
    elif code in _NOT_THERE:
        sentence = f"environment {name!r} is not deployed at {where}; deploy its stacks there first"
    elif code.isdecimal() or not code:
        sentence = f"{where} answers, but not as SQS does (HTTP {status}); {_ANOTHER}"
    else:
        sentence = f"{where} refused: {code}: {error.response['Error'].get('Message', '')}"
    return sentence
