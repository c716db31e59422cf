"""Every physical name and ARN, made from the declaration. No other module builds a name."""

import re

from sluice import limits
from sluice.declaration.consumer import Consumer
from sluice.declaration.environment import Environment
from sluice.declaration.fields.database import NewDatabase
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.declaration.validation import value_text
from sluice.errors import ConfigError


def _name(environment: Environment, *parts: str) -> str:
    """Return application, environment and parts, joined by hyphens."""
    return "-".join((environment.application, environment.name, *parts))


def _queue_name(environment: Environment, *parts: str, is_fifo: bool = True) -> str:
    """Return a queue's name, with `.fifo` if it is FIFO; refuse a name that is too long for SQS."""
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
    """Return the `part` in `stack_name` of each stack of an environment, in the order of deployment.

    Consumers with `stack` have three further stacks: `messaging-STACK`, `consumers-STACK`, `observability-STACK`.
    """
    parts = ["network", *(["database"] if isinstance(environment.database, NewDatabase) else ())]
    other_stacks = dict.fromkeys(consumer.stack for consumer in environment.consumers if consumer.stack is not None)
    for part in ("messaging", "consumers", "observability"):
        parts += [part, *(f"{part}-{stack}" for stack in other_stacks)]
    return parts


def topic_name(environment: Environment, topic: str | None = None) -> str:
    """Return SNS's name of the topic with this declared name; None is the environment's first topic.

    Raises:
        ConfigError: the environment has no topic of this name.
    """
    found = environment.topic(topic)
    name = found.name if isinstance(found, ExistingTopic) else _name(environment, found.name)
    return name + limits.FIFO_SUFFIX


def of_topic(environment: Environment, part: str, topic: Topic | ExistingTopic) -> str:
    """Return the name of a topic's relay, or the subject of its alarms.

    It is `part` for the environment's first topic, and `part-TOPIC` for the others.
    """
    return part if topic == environment.topics[0] else f"{part}-{topic.name}"


def queue_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of a consumer's queue."""
    if consumer.queue is not None:
        return consumer.queue.arn.rpartition(":")[2]
    return _queue_name(environment, consumer.name, is_fifo=consumer.fifo)


def dead_letter_queue_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of the DLQ of a consumer's queue, which gets messages that the consumer could not handle."""
    if consumer.queue is not None:
        return consumer.queue.dead_letter_queue_arn.rpartition(":")[2]
    return _queue_name(environment, consumer.name, "dlq", is_fifo=consumer.fifo)


def undelivered_queue_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of the DLQ of a consumer's subscription, which gets messages that SNS could not deliver.

    This DLQ is FIFO because the topic is, even for a standard queue. The stacks make it, even for an existing queue.
    AWS: https://docs.aws.amazon.com/sns/latest/dg/sns-dead-letter-queues.html (read 2026-11-23).
    """
    return _queue_name(environment, consumer.name, "undelivered-dlq")


def operator_topic_name(environment: Environment) -> str:
    """Return the name of the standard topic that alarms are sent to."""
    return _name(environment, "operators")


def cluster_name(environment: Environment) -> str:
    """Return the name of the ECS cluster."""
    return _name(environment) if environment.cluster is None else environment.cluster


def database_name(environment: Environment) -> str:
    """Return the identifier of the database cluster; it is short enough wherever the queues' names are.

    A fixed identifier makes CloudFormation fail where it would otherwise replace the cluster by an empty one. For a
    cluster whose identifier CloudFormation once generated, that one is declared (`generated_identifier`).
    AWS: https://docs.aws.amazon.com/AmazonRDS/latest/APIReference/API_CreateDBCluster.html (1 to 63 letters, digits and
    hyphens; read 2026-11-26).
    """
    database = environment.database
    generated = database.generated_identifier if isinstance(database, NewDatabase) else None
    return _name(environment) if generated is None else generated


def vault_name(environment: Environment) -> str:
    """Return the name of the backup vault with copies of the database, and of the plan that makes the copies."""
    return _name(environment)


def dashboard_name(environment: Environment, stack: str | None = None) -> str:
    """Return the name of the environment's dashboard; with `stack`, that of the consumers with this `stack`.

    The name has the region: an account's dashboards are the same in all regions, and equal names would overwrite each
    other.
    AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutDashboard.html (read 2026-11-27).
    """
    return _name(environment, *(() if stack is None else (stack,)), environment.region)


def service_name(environment: Environment, service: str) -> str:
    """Return the name of an ECS service: a consumer's, or `relay`. Its log group is `/ecs/NAME`."""
    return _name(environment, service)


def function_name(environment: Environment, consumer: Consumer) -> str:
    """Return the name of a consumer's Lambda function. Its log group is `/aws/lambda/NAME`.

    Raises:
        ConfigError: the name is too long for Lambda.
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
    """Return the name of a CloudFormation output about a consumer; it has no hyphens, which are not allowed there."""
    return "".join(part.capitalize() for part in consumer.name.split("-")) + output


def topic_output_name(environment: Environment, topic: Topic | ExistingTopic) -> str:
    """Return the name of the CloudFormation output with a topic's ARN."""
    return (
        "".join(part.capitalize() for part in re.findall(r"[A-Za-z0-9]+", of_topic(environment, "", topic)))
        + "TopicArn"
    )


def topic_arn(environment: Environment, account: str, topic: str | None = None) -> str:
    """Return a topic's ARN.

    Args:
        environment: as declared; its region is of the partition `aws`, or the declaration refuses it.
        account: twelve digits; where the environment is deployed.
        topic: declared name; None is the environment's first topic.
    """
    found = environment.topic(topic)
    if isinstance(found, ExistingTopic):
        return found.arn
    return f"arn:aws:sns:{environment.region}:{account}:{topic_name(environment, topic)}"


def queue_arn(environment: Environment, name: str, account: str) -> str:
    """Return the ARN in `account` of the queue called `name`."""
    return f"arn:aws:sqs:{environment.region}:{account}:{name}"
