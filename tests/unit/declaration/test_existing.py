"""Topics, queues and keys that are somebody else's: what cannot fit is refused in one line, names are its owner's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sluice.declaration import (
    Consumer,
    Encryption,
    Environment,
    ExistingKeys,
    ExistingQueue,
    ExistingTopic,
    Topic,
    naming,
    task_settings,
)
from sluice.errors import ConfigError

ACCOUNT, OTHER = "111122223333", "444455556666"
SQS, SNS = f"arn:aws:sqs:us-east-1:{ACCOUNT}", f"arn:aws:sns:us-east-1:{OTHER}"
KEY = f"arn:aws:kms:us-east-1:{OTHER}:key/0a1b2c3d-1111-2222-3333-444455556666"
KEY_ELSEWHERE = KEY.replace("us-east-1", "eu-west-1")
INVOICES = ExistingQueue(arn=f"{SQS}:invoices.fifo", dead_letter_queue_arn=f"{SQS}:invoices-dead.fifo", key_arn=KEY)
LEGACY = ExistingTopic(arn=f"{SNS}:legacy-orders.fifo", key_arn=KEY)
BILLING = Consumer(name="billing", topic="legacy-orders", queue=INVOICES)
AUDIT = Consumer(name="audit", topic="events")
DEV = Environment(name="dev", account=ACCOUNT, topics=(Topic(), LEGACY), consumers=(BILLING, AUDIT))


def test_names_and_arns_are_the_owners() -> None:
    """Existing resources keep their names; only the DLQ of our subscription is ours."""
    assert naming.topic_name(DEV) == "sluice-dev-events.fifo"
    assert naming.topic_name(DEV, "legacy-orders") == "legacy-orders.fifo"
    assert naming.topic_arn(DEV, ACCOUNT, "legacy-orders") == LEGACY.arn
    assert naming.queue_name(DEV, BILLING) == "invoices.fifo"
    assert naming.dead_letter_queue_name(DEV, BILLING) == "invoices-dead.fifo"
    assert naming.undelivered_queue_name(DEV, BILLING) == "sluice-dev-billing-undelivered-dlq.fifo"
    assert naming.cluster_name(replace(DEV, cluster="shared")) == "shared"
    assert naming.dashboard_name(replace(DEV, cluster="shared")) == "sluice-dev-us-east-1"


def test_the_order_of_topics_means_nothing_to_a_consumer() -> None:
    """Each consumer names its topic."""
    turned = replace(DEV, topics=DEV.topics[::-1])

    assert [turned.consumers_of(topic) for topic in DEV.topics] == [(AUDIT,), (BILLING,)]


def test_a_topic_for_other_accounts_alone_needs_no_consumer() -> None:
    """Other topics without a consumer are refused."""
    shared = Topic(name="shared", subscriber_accounts=(OTHER,))

    assert replace(DEV, topics=(*DEV.topics, shared)).consumers_of(shared) == ()


def test_only_the_subscriptions_dlq_of_a_standard_queue_has_a_suffix() -> None:
    """The topic is FIFO, so the DLQ of its subscription is FIFO, too."""
    search = Consumer(name="search", fifo=False)

    assert naming.queue_name(DEV, search) == "sluice-dev-search"
    assert naming.dead_letter_queue_name(DEV, search) == "sluice-dev-search-dlq"
    assert naming.undelivered_queue_name(DEV, search) == "sluice-dev-search-undelivered-dlq.fifo"


def test_a_standard_queue_has_neither_groups_to_share_nor_a_window() -> None:
    """Both limits are those of FIFO queues, for which the same numbers are refused."""
    many = {"expected_groups": 1, "max_tasks": 100, "acceptable_latency_seconds": 600}

    Consumer(name="search", fifo=False, **many)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match="max_tasks is 100, allowed is at most expected_groups / lanes"):
        Consumer(name="search", **many)  # type: ignore[arg-type]


@pytest.mark.parametrize("consumer", DEV.consumers, ids=lambda consumer: consumer.name)
def test_a_task_knows_the_topic_and_the_queue_of_its_consumer(consumer: Consumer) -> None:
    """It is given a part of the declaration in a variable, from which the same names follow."""
    part = task_settings.parse(task_settings.render(task_settings.task_environment(DEV, consumer)))

    assert naming.topic_arn(part, ACCOUNT) == naming.topic_arn(DEV, ACCOUNT, consumer.topic)
    assert naming.queue_name(part, part.consumers[0]) == naming.queue_name(DEV, consumer)


def test_a_relays_task_knows_its_own_topic() -> None:
    part = task_settings.parse(task_settings.render(task_settings.task_environment(DEV, None, LEGACY)))

    assert part.topics == (LEGACY,)


def test_a_relays_task_knows_the_largest_message() -> None:
    large = replace(DEV, event_bytes_max=1_000_000)

    assert task_settings.task_environment(large, None).event_bytes_max == 1_000_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"topics": (Topic(), Topic(producer_accounts=(OTHER,)))},
            "Environment('dev').topics is ['events', 'events'], allowed is each topic's name once",
        ),
        (
            {"consumers": (Consumer(name="audit", topic="event"),)},
            "Consumer('audit').topic is 'event', allowed is one of events, legacy-orders, the topics of environment"
            " 'dev': with several, every consumer names its own",
        ),
        (
            {"topics": (Topic(name="new"), Topic(), LEGACY), "consumers": (BILLING, Consumer(name="audit"))},
            "Consumer('audit').topic is None, allowed is one of new, events, legacy-orders, the topics of environment"
            " 'dev': with several, every consumer names its own",
        ),
        (
            {"topics": (Topic(name="new"), Topic(), LEGACY)},
            "Environment('dev').topics is 'new', allowed is topics that a consumer gets, or that other accounts may"
            " subscribe to (subscriber_accounts): nobody gets this one",
        ),
        (
            {"consumers": (Consumer(name="relay-legacy-orders", topic="events"),)},
            "Consumer.name is 'relay-legacy-orders', allowed is another name: a topic's relay or its alarms have this"
            " one",
        ),
        (
            {"topics": (Topic(), replace(LEGACY, arn=LEGACY.arn.replace("us-east-1", "eu-west-1")))},
            "ExistingTopic('legacy-orders').arn is 'arn:aws:sns:eu-west-1:444455556666:legacy-orders.fifo', allowed is"
            " an ARN in us-east-1, the region of environment 'dev'",
        ),
        (
            {"topics": (Topic(), replace(LEGACY, key_arn=KEY_ELSEWHERE))},
            f"ExistingTopic('legacy-orders').key_arn is '{KEY_ELSEWHERE}', allowed is an ARN in us-east-1, the region"
            " of environment 'dev'",
        ),
        (
            {"topics": (Topic(subscriber_accounts=(OTHER, ACCOUNT)), LEGACY)},
            f"Topic('events').subscriber_accounts is ('{OTHER}', '{ACCOUNT}'), allowed is other accounts than"
            f" {ACCOUNT}, the environment's own: there a role's policy suffices",
        ),
        (
            {"topics": (LEGACY,), "consumers": (BILLING,), "archive_days": 7},
            "Environment('dev').archive_days is 7, allowed is None without a topic of the environment's own: what an"
            " existing one archives is its owner's part",
        ),
        (
            {"account": None},
            "Environment('dev').account is None, allowed is the account of arn:aws:sqs:us-east-1:111122223333:"
            "invoices.fifo: an environment with existing queues names it",
        ),
        (
            {"account": OTHER},
            "ExistingQueue.arn is 'arn:aws:sqs:us-east-1:111122223333:invoices.fifo', allowed is a queue in"
            " arn:aws:sqs:us-east-1:444455556666:…: those elsewhere have their metrics there, and workers scale on"
            " them; a queue of another account is subscribed by its owner (Topic.subscriber_accounts)",
        ),
        (
            {"consumers": (AUDIT, replace(BILLING, queue=replace(INVOICES, key_arn=KEY_ELSEWHERE)))},
            f"ExistingQueue.key_arn is '{KEY_ELSEWHERE}', allowed is a key in us-east-1, the region of environment"
            " 'dev'",
        ),
        (
            {"consumers": (AUDIT, BILLING, replace(BILLING, name="copy"))},
            f"Environment('dev').consumers is {2 * [INVOICES.arn, INVOICES.dead_letter_queue_arn]}, allowed is each"
            " existing queue and DLQ once: two consumers of one queue would take each other's messages",
        ),
        (
            {"encryption": Encryption.CMK, "keys": ExistingKeys(topic_arn=KEY, queues_arn=KEY_ELSEWHERE)},
            f"ExistingKeys.queues_arn is '{KEY_ELSEWHERE}', allowed is a key in us-east-1, the region of environment"
            " 'dev'",
        ),
    ],
)
def test_a_resource_out_of_reach_or_in_use_is_refused(changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(DEV, **changes)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    "arn",
    [
        f"{SQS}:invoices-dead",
        f"{SQS}:invoices.fifo",
        f"arn:aws:sqs:eu-west-1:{ACCOUNT}:invoices-dead.fifo",
        f"arn:aws:sqs:us-east-1:{OTHER}:invoices-dead.fifo",
    ],
    ids=["standard", "itself", "another region", "another account"],
)
def test_a_dlq_of_another_kind_region_or_account_is_refused(arn: str) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(INVOICES, dead_letter_queue_arn=arn)

    assert str(refused.value) == (
        f"ExistingQueue.dead_letter_queue_arn is '{arn}', allowed is another FIFO queue in"
        " arn:aws:sqs:us-east-1:111122223333: SQS takes no other as the DLQ of invoices.fifo"
    )


@pytest.mark.parametrize(
    ("kind", "right", "field", "value", "allowed"),
    [
        (ExistingTopic, {"arn": LEGACY.arn}, "arn", f"{SNS}:a", "the ARN of an SNS FIFO topic, which ends in '.fifo'"),
        (ExistingTopic, {"arn": LEGACY.arn}, "key_arn", "alias/theirs", "the whole ARN of a KMS key"),
        (ExistingKeys, {"queues_arn": KEY}, "topic_arn", "alias/ours", "the whole ARN of a KMS key"),
        (ExistingQueue, {"dead_letter_queue_arn": f"{SQS}:b"}, "arn", "invoices.fifo", "the ARN of an SQS queue"),
        (ExistingQueue, {"dead_letter_queue_arn": f"{SQS}:b"}, "arn", "${Token[TOKEN.7]}", "the ARN of an SQS queue; a"
            " token of CDK stands for it until it is deployed: write it out"),
    ],
)  # fmt: skip
def test_an_arn_in_place_of_a_name_is_refused(
    kind: type[Any], right: dict[str, str], field: str, value: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        kind(**right | {field: value})

    assert str(refused.value) == f"{kind.__name__}.{field} is {value!r}, allowed is {allowed}"
