"""The statements of resource policies that let SNS and other accounts in: ours, and those that others have to write.

The stacks attach the same statements to what is ours. Every statement names whom it lets in, and on whose behalf.
AWS: https://docs.aws.amazon.com/sns/latest/dg/sns-send-message-to-sqs-cross-account.html (read 2026-11-23). That SNS
and SQS set `kms:ViaService`, and SNS `sns:Protocol` and `sns:Endpoint`, was neither read there nor tried on AWS.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sluice.declaration import naming
from sluice.declaration.environment import Encryption, Environment
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.declaration.validation import is_pending

type Statement = dict[str, Any]

USE_KEY = ["kms:Decrypt", "kms:GenerateDataKey"]
"""What takes a key to encrypt and to decrypt messages."""
CONSUME = (
    "sqs:ReceiveMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueUrl",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
)
"""What a worker does with its queue."""
GIVE_UP = ("sqs:GetQueueUrl", "sqs:SendMessage")
"""What a function does with its DLQ: it sends a message there itself when it gives that message up."""
_THIS = "*"  # in a key's policy: this key


class Grant(NamedTuple):
    """A grant that somebody else has to make, so that the environment works, or may make because it allows that.

    Args:
        owner: twelve digits, whose part it is.
        attached_to: the resource or the role whose policy it belongs to.
        statements: of that policy.
    """

    owner: str
    attached_to: str
    statements: Sequence[Statement]


def _statement(
    principal: dict[str, str], actions: str | list[str], resource: str, condition: dict[str, Any] | None = None
) -> Statement:
    conditions = {} if condition is None else {"Condition": condition}
    return {"Effect": "Allow", "Principal": principal, "Action": actions, "Resource": resource, **conditions}


def _account(account: str) -> dict[str, str]:
    return {"AWS": f"arn:aws:iam::{account}:root"}


def deliver(*, queue_arn: str, topic_arn: str) -> Statement:
    """Return the queue's statement that lets SNS send to it for the topic."""
    condition = {"ArnEquals": {"aws:SourceArn": topic_arn}}
    return _statement({"Service": "sns.amazonaws.com"}, "sqs:SendMessage", queue_arn, condition)


def use_key_for(topic_arn: str) -> Statement:
    """Return a key's statement that lets SNS use it for the topic."""
    condition = {"ArnEquals": {"aws:SourceArn": topic_arn}}
    return _statement({"Service": "sns.amazonaws.com"}, USE_KEY, _THIS, condition)


def use_key_for_alarms(account: str) -> Statement:
    """Return a key's statement that lets CloudWatch use it for the account's alarms, which go to the operator topic."""
    condition = {"StringEquals": {"aws:SourceAccount": account}}
    return _statement({"Service": "cloudwatch.amazonaws.com"}, USE_KEY, _THIS, condition)


def publish(*, topic_arn: str, account: str) -> Statement:
    """Return the topic's statement that lets roles of another account publish, as far as their own policies do."""
    return _statement(_account(account), "sns:Publish", topic_arn)


def use_key_through(service: str, *, account: str, region: str) -> Statement:
    """Return a key's statement that lets roles of another account use it, through `sns` or through `sqs` alone."""
    condition = {"StringEquals": {"kms:ViaService": f"{service}.{region}.amazonaws.com"}}
    return _statement(_account(account), USE_KEY, _THIS, condition)


def subscribe(*, topic_arn: str, account: str, region: str) -> Statement:
    """Return the topic's statement that lets another account subscribe SQS queues of its own, and nothing else."""
    condition = {
        "StringEquals": {"sns:Protocol": "sqs"},
        "StringLike": {"sns:Endpoint": f"arn:aws:sqs:{region}:{account}:*"},
    }
    return _statement(_account(account), "sns:Subscribe", topic_arn, condition)


def for_others(environment: Environment, account: str) -> list[Grant]:
    """Return what others have to allow, and what they may attach to their own roles and queues.

    Args:
        environment: which of its things are somebody else's.
        account: twelve digits; where it is deployed.
    """
    grants = [
        *_existing_queues(environment, account),
        *_existing_keys(environment, account),
        *(grant for topic in environment.topics for grant in _of_topic(environment, account, topic)),
    ]
    return [grant for grant in grants if grant.statements]


def _existing_queues(environment: Environment, account: str) -> Iterator[Grant]:
    for consumer in environment.consumers:
        queue = consumer.queue
        if queue is not None:
            topic_arn = naming.topic_arn(environment, account, consumer.topic)
            yield Grant(account, queue.arn, [deliver(queue_arn=queue.arn, topic_arn=topic_arn)])
            if queue.key_arn is not None:
                yield _of_queues_key(environment, account, queue.key_arn, [topic_arn])


def _existing_keys(environment: Environment, account: str) -> Iterator[Grant]:
    keys = environment.keys
    if keys is None:
        return
    own = [topic for topic in environment.topics if isinstance(topic, Topic)]
    archived = own if environment.archive_days is not None else []
    publishers = [account, *(producer for topic in own for producer in topic.producer_accounts)]
    yield Grant(
        _owner(keys.topic_arn),
        keys.topic_arn,
        [
            use_key_for_alarms(account),
            *(use_key_for(naming.topic_arn(environment, account, topic.name)) for topic in archived),
            *_through("sns", keys.topic_arn, publishers, environment.region),
        ],
    )
    delivered = [topic.name for topic in environment.topics if environment.consumers_of(topic)]
    topic_arns = [naming.topic_arn(environment, account, name) for name in delivered]
    yield _of_queues_key(environment, account, keys.queues_arn, topic_arns)


def _of_queues_key(environment: Environment, account: str, key_arn: str, topic_arns: Sequence[str]) -> Grant:
    delivery = [use_key_for(topic_arn) for topic_arn in topic_arns]
    return Grant(_owner(key_arn), key_arn, [*delivery, *_through("sqs", key_arn, [account], environment.region)])


def _through(service: str, key_arn: str, accounts: Sequence[str], region: str) -> list[Statement]:
    """Return what a key says to other accounts than its own, where a role's policy suffices."""
    others = dict.fromkeys(account for account in accounts if account != _owner(key_arn))
    return [use_key_through(service, account=account, region=region) for account in others]


def _of_topic(environment: Environment, account: str, topic: Topic | ExistingTopic) -> Iterator[Grant]:
    if isinstance(topic, ExistingTopic):
        yield from _of_existing_topic(environment, account, topic)
        return
    arn, region = naming.topic_arn(environment, account, topic.name), environment.region
    for subscriber in topic.subscriber_accounts:
        queue_arn = f"arn:aws:sqs:{region}:{subscriber}:QUEUE"
        yield Grant(subscriber, queue_arn, [deliver(queue_arn=queue_arn, topic_arn=arn)])
        yield Grant(subscriber, "the key of that queue, where it has one", [use_key_for(arn)])
    for producer in topic.producer_accounts:
        statements: list[Statement] = [{"Effect": "Allow", "Action": "sns:Publish", "Resource": arn}]
        if environment.encryption is Encryption.CMK:
            key = f"arn:aws:kms:{region}:{account}:key/*" if environment.keys is None else environment.keys.topic_arn
            through_sns = use_key_through("sns", account=producer, region=region)["Condition"]
            statements.append({"Effect": "Allow", "Action": USE_KEY, "Resource": key, "Condition": through_sns})
        yield Grant(producer, "the producer's role", statements)


def _of_existing_topic(environment: Environment, account: str, topic: ExistingTopic) -> Iterator[Grant]:
    if topic.account != account:
        is_consumed = bool(environment.consumers_of(topic))
        subscribed = [subscribe(topic_arn=topic.arn, account=account, region=environment.region)] if is_consumed else []
        published = [publish(topic_arn=topic.arn, account=account)] if topic.relay else []
        yield Grant(topic.account, topic.arn, [*subscribed, *published])
    if topic.relay and topic.key_arn is not None:
        through_sns = _through("sns", topic.key_arn, [account], environment.region)
        yield Grant(_owner(topic.key_arn), topic.key_arn, through_sns)


def _owner(arn: str) -> str:
    return "the key's owner" if is_pending(arn) else arn.split(":")[4]
