"""Every physical name and ARN, made from the declaration. Nobody parses a URL or writes a name by hand."""

from sluice import limits
from sluice.declaration.consumer import Consumer
from sluice.declaration.environment import Environment
from sluice.declaration.validation import shown
from sluice.errors import ConfigError


def _name(environment: Environment, *parts: str) -> str:
    return "-".join((environment.application, environment.name, *parts))


def _queue_name(environment: Environment, *parts: str) -> str:
    name = _name(environment, *parts) + limits.FIFO_SUFFIX
    most = limits.QUEUE_NAME_CHARACTERS_MAX
    if len(name) > most:
        raise ConfigError(f"{shown(name)} has {len(name)} characters, allowed are {most}; shorten the names")
    return name


def stage_name(environment: Environment) -> str:
    """Return the CDK stage's id, which begins every path given to `cdk deploy`."""
    return environment.name


def stack_name(environment: Environment, part: str) -> str:
    """Return the CloudFormation name of one of the environment's stacks: messaging, consumers or observability."""
    return _name(environment, part)


def topic_name(environment: Environment) -> str:
    """Return the name of the SNS FIFO topic."""
    return _name(environment, environment.topic) + limits.FIFO_SUFFIX


def queue_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of a consumer's SQS FIFO queue."""
    return _queue_name(environment, consumer.name)


def dead_letter_queue_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of the FIFO DLQ of a consumer's queue: what the consumer could not handle."""
    return _queue_name(environment, consumer.name, "dlq")


def undelivered_queue_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of the FIFO DLQ of a consumer's subscription: what SNS could not deliver to the queue."""
    return _queue_name(environment, consumer.name, "undelivered-dlq")


def operator_topic_name(environment: Environment) -> str:
    """Return the name of the topic, a standard one, that alarms go to."""
    return _name(environment, "operators")


def cluster_name(environment: Environment) -> str:
    """Return the name of the ECS cluster, also that of the dashboard."""
    return _name(environment)


def service_name(environment: Environment, service: str) -> str:
    """Return the name of an ECS service: a consumer's, or `relay`; its log group is called `/ecs/` and this."""
    return _name(environment, service)


def alarm_name(environment: Environment, subject: str, condition: str) -> str:
    """Return the name of an alarm: what it watches (a consumer, `topic`, `relay`), and what is wrong when it rings."""
    return _name(environment, subject, condition)


def key_alias(environment: Environment, encrypted: str) -> str:
    """Return the alias of a KMS key, by what it encrypts: topic or queues."""
    return f"alias/{_name(environment, encrypted)}"


def output_name(consumer: Consumer, output: str) -> str:
    """Return the name of a CloudFormation output about a consumer, where hyphens are not allowed."""
    return "".join(part.capitalize() for part in consumer.name.split("-")) + output


def topic_arn(environment: Environment, account: str) -> str:
    """Return the topic's ARN in `account` (twelve digits). The declaration refuses every partition but `aws`."""
    return f"arn:aws:sns:{environment.region}:{account}:{topic_name(environment)}"


def queue_arn(environment: Environment, name: str, account: str) -> str:
    """Return the ARN in `account` of the queue called `name`."""
    return f"arn:aws:sqs:{environment.region}:{account}:{name}"
