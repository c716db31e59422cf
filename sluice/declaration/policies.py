"""The statements of resource policies that allow SNS and other accounts to use topics, queues and keys.

The stacks attach them to what they make; owners of existing resources have to attach them themselves. Each statement
names the principal that it allows, and the resource on whose behalf.
AWS: https://docs.aws.amazon.com/sns/latest/dg/sns-send-message-to-sqs-cross-account.html (read 2026-11-23). That SNS
and SQS set `kms:ViaService`, and SNS `sns:Protocol` and `sns:Endpoint`, was neither read there nor tried on AWS.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sluice.declaration import naming
from sluice.declaration.consumer import Consumer
from sluice.declaration.environment import Encryption, Environment
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.declaration.validation import is_pending

type Statement = dict[str, Any]

USE_KEY = ["kms:Decrypt", "kms:GenerateDataKey"]
"""The actions of KMS that encrypting and decrypting messages needs."""
CONSUME = (
    "sqs:ReceiveMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueUrl",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
)
"""The actions of a worker or a Lambda function on its queue."""
GIVE_UP = ("sqs:GetQueueUrl", "sqs:SendMessage")
"""Its actions on its DLQ, where it sends dead messages there itself."""
_THIS = "*"  # in a key's policy, the key itself


class Grant(NamedTuple):
    """Statements that another owner has to add to a policy so that the environment works, or may add to use it.

    Args:
        owner: the owner's account, twelve digits.
        attached_to: the resource or the role that has the policy.
        statements: to be added to the policy.
    """

    owner: str
    attached_to: str
    statements: Sequence[Statement]


def _statement(
    principal: dict[str, str], actions: str | list[str], resource: str, condition: dict[str, Any] | None = None
) -> Statement:
    """Return a policy's statement that allows a principal these actions on a resource."""
    conditions = {} if condition is None else {"Condition": condition}
    return {"Effect": "Allow", "Principal": principal, "Action": actions, "Resource": resource, **conditions}


def _account(account: str) -> dict[str, str]:
    """Return an account as the principal of a statement; its own policies then say which of its roles are allowed."""
    return {"AWS": f"arn:aws:iam::{account}:root"}


def consume(
    environment: Environment, consumer: Consumer, *, queue_arn: str, dead_letter_queue_arn: str, key_arn: str | None
) -> Iterator[tuple[Sequence[str], str]]:
    """Yield what the role of a consumer's processes may do on queue, DLQ and their key: actions, and a resource."""
    sends_dead_letters = environment.sends_dead_letters(consumer)
    yield CONSUME, queue_arn
    if sends_dead_letters:
        yield GIVE_UP, dead_letter_queue_arn
    if key_arn is not None:
        yield USE_KEY if sends_dead_letters else ["kms:Decrypt"], key_arn


def deliver(*, queue_arn: str, topic_arn: str) -> Statement:
    """Return the statement for a queue's policy that allows SNS to deliver messages of a topic."""
    condition = {"ArnEquals": {"aws:SourceArn": topic_arn}}
    return _statement({"Service": "sns.amazonaws.com"}, "sqs:SendMessage", queue_arn, condition)


def use_key_for(topic_arn: str) -> Statement:
    """Return the statement for a key's policy that allows SNS to use the key for a topic."""
    condition = {"ArnEquals": {"aws:SourceArn": topic_arn}}
    return _statement({"Service": "sns.amazonaws.com"}, USE_KEY, _THIS, condition)


def use_key_for_alarms(account: str) -> Statement:
    """Return the statement for a key's policy that allows CloudWatch to send alarms to an encrypted operator topic."""
    condition = {"StringEquals": {"aws:SourceAccount": account}}
    return _statement({"Service": "cloudwatch.amazonaws.com"}, USE_KEY, _THIS, condition)


def publish(*, topic_arn: str, account: str) -> Statement:
    """Return the statement for a topic's policy that allows another account to publish, as its roles' policies say."""
    return _statement(_account(account), "sns:Publish", topic_arn)


def use_key_through(service: str, *, account: str, region: str) -> Statement:
    """Return the statement for a key's policy that allows another account to use it only through `sns` or `sqs`."""
    condition = {"StringEquals": {"kms:ViaService": f"{service}.{region}.amazonaws.com"}}
    return _statement(_account(account), USE_KEY, _THIS, condition)


def subscribe(*, topic_arn: str, account: str, region: str) -> Statement:
    """Return the statement for a topic's policy that allows another account to subscribe its own SQS queues only."""
    condition = {
        "StringEquals": {"sns:Protocol": "sqs"},
        "StringLike": {"sns:Endpoint": f"arn:aws:sqs:{region}:{account}:*"},
    }
    return _statement(_account(account), "sns:Subscribe", topic_arn, condition)


def for_others(environment: Environment, account: str) -> list[Grant]:
    """Return the statements that other owners have to add to their policies, or may add to use the environment.

    Args:
        environment: as declared, with its existing resources and the accounts of other producers and subscribers.
        account: twelve digits; where the environment is deployed.
    """
    grants = [
        *_existing_queues(environment, account),
        *_existing_keys(environment, account),
        *(grant for topic in environment.topics for grant in _of_topic(environment, account, topic)),
    ]
    return [grant for grant in grants if grant.statements]


def _existing_queues(environment: Environment, account: str) -> Iterator[Grant]:
    """Yield what the owners of existing queues have to add: SNS may deliver, and may use the queue's key."""
    for consumer in environment.consumers:
        queue = consumer.queue
        if queue is not None:
            topic_arn = naming.topic_arn(environment, account, consumer.topic)
            yield Grant(account, queue.arn, [deliver(queue_arn=queue.arn, topic_arn=topic_arn)])
            if queue.key_arn is not None:
                yield _of_queues_key(environment, account, queue.key_arn, [topic_arn])


def _existing_keys(environment: Environment, account: str) -> Iterator[Grant]:
    """Yield what the owners of the existing keys of topics and queues have to add."""
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
    """Return what the owner of a queues' key has to add: SNS may use it for these topics, and `account` through SQS."""
    delivery = [use_key_for(topic_arn) for topic_arn in topic_arns]
    return Grant(_owner(key_arn), key_arn, [*delivery, *_through("sqs", key_arn, [account], environment.region)])


def _through(service: str, key_arn: str, accounts: Sequence[str], region: str) -> list[Statement]:
    """Return the statements that allow accounts to use a key through SNS or SQS.

    The key's own account needs none: there the policies of its roles are enough.
    """
    others = dict.fromkeys(account for account in accounts if account != _owner(key_arn))
    return [use_key_through(service, account=account, region=region) for account in others]


def _of_topic(environment: Environment, account: str, topic: Topic | ExistingTopic) -> Iterator[Grant]:
    """Yield what others add for a topic: the owner of an existing one, or subscribers and producers of ours."""
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
    """Yield what the owners of an existing topic and of its key have to add so that the environment uses them."""
    if topic.account != account:
        is_consumed = bool(environment.consumers_of(topic))
        to_subscribe = (
            [subscribe(topic_arn=topic.arn, account=account, region=environment.region)] if is_consumed else []
        )
        to_publish = [publish(topic_arn=topic.arn, account=account)] if topic.relay else []
        yield Grant(topic.account, topic.arn, [*to_subscribe, *to_publish])
    if topic.relay and topic.key_arn is not None:
        through_sns = _through("sns", topic.key_arn, [account], environment.region)
        yield Grant(_owner(topic.key_arn), topic.key_arn, through_sns)


def _owner(arn: str) -> str:
    """Return the account in a key's ARN; words where the ARN is a token, which has no account yet."""
    return "the key's owner" if is_pending(arn) else arn.split(":")[4]
