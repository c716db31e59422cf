"""Every physical name and ARN, made from the declaration. Nobody parses a URL or writes a name by hand."""

import re

from sluice import limits
from sluice.declaration.consumer import Consumer
from sluice.declaration.environment import Environment
from sluice.declaration.fields.database import NewDatabase
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.declaration.validation import value_text
from sluice.errors import ConfigError


def _name(environment: Environment, *parts: str) -> str:
    return "-".join((environment.application, environment.name, *parts))


def _queue_name(environment: Environment, *parts: str, is_fifo: bool = True) -> str:
    name = _name(environment, *parts) + (limits.FIFO_SUFFIX if is_fifo else "")
    most = limits.QUEUE_NAME_CHARACTERS_MAX
    if len(name) > most:
        raise ConfigError(f"{value_text(name)} has {len(name)} characters, allowed are {most}; shorten the names")
    return name


def stage_name(environment: Environment) -> str:
    """Return the CDK stage's id, which begins every path given to `cdk deploy`."""
    return environment.name


def stack_name(environment: Environment, part: str) -> str:
    """Return the CloudFormation name of one of the environment's stacks: messaging, consumers or observability."""
    return _name(environment, part)


def stack_parts(environment: Environment) -> list[str]:
    """Return what an environment's stacks are called in `stack_name`, in the order in which they are deployed."""
    parts = ["network", *(["database"] if isinstance(environment.database, NewDatabase) else ())]
    besides = dict.fromkeys(consumer.stack for consumer in environment.consumers if consumer.stack is not None)
    for part in ("messaging", "consumers", "observability"):
        parts += [part, *(f"{part}-{stack}" for stack in besides)]
    return parts


def topic_name(environment: Environment, topic: str | None = None) -> str:
    """Return the name of an SNS FIFO topic, by its declared name; without one of the first.

    Raises:
        ConfigError: the environment has no topic of that name.
    """
    found = environment.topic(topic)
    name = found.name if isinstance(found, ExistingTopic) else _name(environment, found.name)
    return name + limits.FIFO_SUFFIX


def of_topic(environment: Environment, part: str, topic: Topic | ExistingTopic) -> str:
    """Return what a topic's relay or the subject of its alarms is called: `part`, and after the first its name."""
    return part if topic == environment.topics[0] else f"{part}-{topic.name}"


def queue_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of a consumer's queue."""
    if consumer.queue is not None:
        return consumer.queue.arn.rpartition(":")[2]
    return _queue_name(environment, consumer.name, is_fifo=consumer.fifo)


def dead_letter_queue_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of the DLQ of a consumer's queue: what the consumer could not handle."""
    if consumer.queue is not None:
        return consumer.queue.dead_letter_queue_arn.rpartition(":")[2]
    return _queue_name(environment, consumer.name, "dlq", is_fifo=consumer.fifo)


def undelivered_queue_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of the FIFO DLQ of a consumer's subscription: what SNS could not deliver to the queue.

    It is FIFO as the topic is, whatever the queue is, and the environment's own also where the queue is not.
    AWS: https://docs.aws.amazon.com/sns/latest/dg/sns-dead-letter-queues.html (read 2026-11-23).
    """
    return _queue_name(environment, consumer.name, "undelivered-dlq")


def operator_topic_name(environment: Environment) -> str:
    """Return the name of the topic, a standard one, that alarms go to."""
    return _name(environment, "operators")


def cluster_name(environment: Environment) -> str:
    """Return the name of the ECS cluster."""
    return _name(environment) if environment.cluster is None else environment.cluster


def database_name(environment: Environment) -> str:
    """Return the identifier of the database cluster. Every environment whose queues have names has a short enough one.

    It is fixed, or declared as it was generated, so that CloudFormation fails where it would otherwise replace the
    cluster by an empty one.
    AWS: https://docs.aws.amazon.com/AmazonRDS/latest/APIReference/API_CreateDBCluster.html (1 to 63 letters, digits and
    hyphens; read 2026-11-26).
    """
    database = environment.database
    generated = database.generated_identifier if isinstance(database, NewDatabase) else None
    return _name(environment) if generated is None else generated


def vault_name(environment: Environment) -> str:
    """Return the name of the vault with the database's copies, and of the plan that makes them."""
    return _name(environment)


def dashboard_name(environment: Environment, stack: str | None = None) -> str:
    """Return the name of the dashboard, or of that of the consumers in a stack beside.

    With the region: an account has its dashboards in all of them, and one of the same name would be overwritten.
    AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutDashboard.html (read 2026-11-27).
    """
    return _name(environment, *(() if stack is None else (stack,)), environment.region)


def service_name(environment: Environment, service: str) -> str:
    """Return the name of an ECS service: a consumer's, or `relay`; its log group is called `/ecs/` and this."""
    return _name(environment, service)


def function_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of a consumer's Lambda function; its log group is called `/aws/lambda/` and this.

    Raises:
        ConfigError: it is too long.
    """
    name = _name(environment, consumer.name)
    most = limits.FUNCTION_NAME_CHARACTERS_MAX
    if len(name) > most:
        raise ConfigError(
            f"the function {value_text(name)} has a name of {len(name)} characters, allowed are {most}; shorten the"
            " names"
        )
    return name


def alarm_name(environment: Environment, subject: str, condition: str) -> str:
    """Return the name of an alarm: what it watches (a consumer, `topic`, `relay`), and what is wrong when it rings."""
    return _name(environment, subject, condition)


def key_alias(environment: Environment, encrypted: str) -> str:
    """Return the alias of a KMS key, by what it encrypts: topic, queues, logs or database."""
    return f"alias/{_name(environment, encrypted)}"


def output_name(consumer: Consumer, output: str) -> str:
    """Return the name of a CloudFormation output about a consumer, where hyphens are not allowed."""
    return "".join(part.capitalize() for part in consumer.name.split("-")) + output


def topic_output_name(environment: Environment, topic: Topic | ExistingTopic) -> str:
    """Return the name of the CloudFormation output with a topic's ARN."""
    return (
        "".join(part.capitalize() for part in re.findall(r"[A-Za-z0-9]+", of_topic(environment, "", topic)))
        + "TopicArn"
    )


def topic_arn(environment: Environment, account: str, topic: str | None = None) -> str:
    """Return a topic's ARN, where it is the environment's own in `account` (twelve digits); without a name the first's.

    The declaration refuses every partition but `aws`.
    """
    found = environment.topic(topic)
    if isinstance(found, ExistingTopic):
        return found.arn
    return f"arn:aws:sns:{environment.region}:{account}:{topic_name(environment, topic)}"


def queue_arn(environment: Environment, name: str, account: str) -> str:
    """Return the ARN in `account` of the queue called `name`."""
    return f"arn:aws:sqs:{environment.region}:{account}:{name}"
