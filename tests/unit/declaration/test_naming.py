"""Every physical name is the expected one, is legal, and is unique."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.declaration import Consumer, Environment, Topic, naming
from sluice.errors import ConfigError
from tests.support.declaration import ENVIRONMENTS

LOCAL = ENVIRONMENTS["local"]
PARTS = ("network", "messaging", "consumers", "observability")
TOPIC_CONDITIONS = ("failed", "lost")
CONSUMER_CONDITIONS = (
    "dead-letters",
    "undelivered",
    "late",
    "expiring",
    "stuck",
    "pinned",
    "asleep",
    "failing",
    "dying",
    "delayed",
)
ENCRYPTED = ("topic", "queues")
CONSUMER_OUTPUTS = ("QueueUrl", "QueueArn", "DeadLetterQueueArn", "UndeliveredQueueArn")

# What AWS allows, written again here: the limits are not to be judged by themselves. Read on 2026-11-21.
LEGAL = {
    "queue": r"[A-Za-z0-9_-]{1,75}\.fifo",  # SQS API_CreateQueue: 80 with the suffix
    "topic": r"[A-Za-z0-9_-]{1,251}\.fifo|[A-Za-z0-9_-]{1,256}",  # SNS API_CreateTopic
    "stack": r"[A-Za-z][A-Za-z0-9-]{0,127}",  # CloudFormation API_CreateStack
    "cluster": r"[A-Za-z0-9_-]{1,255}",  # ECS API_CreateCluster; as a dashboard's name CloudWatch takes as many
    "service": r"[A-Za-z0-9_-]{1,255}",  # ECS API_CreateService, and API_RegisterTaskDefinition for the family
    "log group": r"[A-Za-z0-9_./#-]{1,512}",  # CloudWatch Logs API_CreateLogGroup
    "alarm": r"[ -~]{1,255}",  # CloudWatch API_PutMetricAlarm
    "key alias": r"alias/(?!aws/)[A-Za-z0-9/_-]{1,250}",  # KMS API_CreateAlias
    "output": r"[a-z0-9-]+:[A-Za-z0-9]{1,255}",  # CloudFormation, logical ids; of a stack, so with its name here
}


def _names(environments: Iterable[Environment]) -> dict[str, list[str]]:
    """Return every name in the stacks of these environments, by the kind of thing within which it has to be unique."""
    names: dict[str, list[str]] = {kind: [] for kind in LEGAL}
    for environment in environments:
        services = [
            naming.service_name(environment, name) for name in (*(c.name for c in environment.consumers), "relay")
        ]
        alarms = [("topic", condition) for condition in TOPIC_CONDITIONS]
        alarms += [
            (consumer.name, condition) for consumer in environment.consumers for condition in CONSUMER_CONDITIONS
        ]
        names["queue"] += [naming.queue_name(environment, consumer) for consumer in environment.consumers]
        names["queue"] += [naming.dead_letter_queue_name(environment, consumer) for consumer in environment.consumers]
        names["queue"] += [naming.undelivered_queue_name(environment, consumer) for consumer in environment.consumers]
        names["topic"] += [naming.topic_name(environment), naming.operator_topic_name(environment)]
        names["stack"] += [naming.stack_name(environment, part) for part in PARTS]
        names["cluster"].append(naming.cluster_name(environment))
        names["service"] += services
        names["log group"] += [f"/ecs/{service}" for service in services]
        names["alarm"] += [naming.alarm_name(environment, subject, condition) for subject, condition in alarms]
        outputs = [
            naming.output_name(consumer, output) for consumer in environment.consumers for output in CONSUMER_OUTPUTS
        ]
        names["output"] += [
            f"{naming.stack_name(environment, 'messaging')}:{output}"
            for output in ("TopicArn", "PublishPolicyArn", *outputs)
        ]
        names["key alias"] += [naming.key_alias(environment, encrypted) for encrypted in ENCRYPTED]
    return names


def _illegal(names: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the names that AWS refuses, by kind."""
    return {kind: found for kind in names if (found := [n for n in names[kind] if not re.fullmatch(LEGAL[kind], n)])}


def _shared_names(names: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the names that stand twice, by kind."""
    counts = {kind: Counter(of_kind) for kind, of_kind in names.items()}
    return {kind: found for kind in counts if (found := [n for n, count in counts[kind].items() if count > 1])}


def _with(consumer: Consumer) -> Environment:
    return Environment(name="local", consumers=(consumer,))


def test_names_of_the_local_environment() -> None:
    """All names of one consumer, by hand: operators and IAM policies of users contain them."""
    names = _names([replace(LOCAL, consumers=LOCAL.consumers[:1])])

    assert naming.stage_name(LOCAL) == "local"
    assert names == {
        "queue": [
            "sluice-local-billing.fifo",
            "sluice-local-billing-dlq.fifo",
            "sluice-local-billing-undelivered-dlq.fifo",
        ],
        "topic": ["sluice-local-events.fifo", "sluice-local-operators"],
        "stack": [
            "sluice-local-network",
            "sluice-local-messaging",
            "sluice-local-consumers",
            "sluice-local-observability",
        ],
        "cluster": ["sluice-local"],
        "service": ["sluice-local-billing", "sluice-local-relay"],
        "log group": ["/ecs/sluice-local-billing", "/ecs/sluice-local-relay"],
        "alarm": [
            "sluice-local-topic-failed",
            "sluice-local-topic-lost",
            "sluice-local-billing-dead-letters",
            "sluice-local-billing-undelivered",
            "sluice-local-billing-late",
            "sluice-local-billing-expiring",
            "sluice-local-billing-stuck",
            "sluice-local-billing-pinned",
            "sluice-local-billing-asleep",
            "sluice-local-billing-failing",
            "sluice-local-billing-dying",
            "sluice-local-billing-delayed",
        ],
        "key alias": ["alias/sluice-local-topic", "alias/sluice-local-queues"],
        "output": [
            "sluice-local-messaging:TopicArn",
            "sluice-local-messaging:PublishPolicyArn",
            "sluice-local-messaging:BillingQueueUrl",
            "sluice-local-messaging:BillingQueueArn",
            "sluice-local-messaging:BillingDeadLetterQueueArn",
            "sluice-local-messaging:BillingUndeliveredQueueArn",
        ],
    }


def test_arns_carry_the_region_and_the_account() -> None:
    """The queue's account is another one than the topic's."""
    (billing, _, _) = LOCAL.consumers
    there = replace(LOCAL, region="eu-central-1")

    topic = naming.topic_arn(there, "123456789012")
    queue = naming.queue_arn(there, naming.undelivered_queue_name(there, billing), "210987654321")

    assert topic == "arn:aws:sns:eu-central-1:123456789012:sluice-local-events.fifo"
    assert queue == "arn:aws:sqs:eu-central-1:210987654321:sluice-local-billing-undelivered-dlq.fifo"


def test_all_names_of_all_environments_are_legal_and_none_is_used_twice() -> None:
    """One account could hold all environments at once."""
    names = _names(ENVIRONMENTS.values())

    assert {kind: len(of_kind) for kind, of_kind in names.items()} == {
        "queue": 4 * 3 * 3,
        "topic": 4 * 2,
        "stack": 4 * 4,
        "cluster": 4,
        "service": 4 * 4,
        "log group": 4 * 4,
        "alarm": 4 * (2 + 3 * 10),
        "key alias": 4 * 2,
        "output": 4 * (2 + 3 * 4),
    }
    assert _illegal(names) == {}
    assert _shared_names(names) == {}


@pytest.mark.parametrize(
    ("queue_name", "suffix", "characters_max"),
    [
        (naming.queue_name, ".fifo", 62),
        (naming.dead_letter_queue_name, "-dlq.fifo", 58),
        (naming.undelivered_queue_name, "-undelivered-dlq.fifo", 46),  # the longest: what fits here fits everywhere
    ],
)
def test_the_longest_queue_name_is_eighty_characters(
    queue_name: Callable[[Environment, Consumer], str], suffix: str, characters_max: int
) -> None:
    """The suffix counts. A name of 81 characters is refused in one line."""
    fits, too_long = Consumer(name="c" * characters_max), Consumer(name="c" * (characters_max + 1))

    name = queue_name(_with(fits), fits)
    with pytest.raises(ConfigError) as refused:
        queue_name(_with(too_long), too_long)

    assert name == f"sluice-local-{fits.name}{suffix}"
    assert len(name) == 80
    assert str(refused.value) == (
        f"'sluice-local-{too_long.name}{suffix}' has 81 characters, allowed are 80; shorten the names"
    )


def test_the_longest_names_an_environment_may_have_are_legal_everywhere() -> None:
    """The queues' limit is the tightest, whichever name takes most of its room."""
    long_consumer = Environment(name="e" * 32, topics=(Topic(name="t" * 32),), consumers=(Consumer(name="c" * 19),))
    long_application = Environment(
        name="e" * 16, topics=(Topic(name="t" * 32),), application="a" * 40, consumers=(Consumer(name="c"),)
    )

    names = [_names([longest]) for longest in (long_consumer, long_application)]

    assert [max(map(len, of_one["queue"])) for of_one in names] == [80, 80]
    assert list(map(_illegal, names)) == [{}, {}]


_RESERVED = ["dlq", "fifo", "undelivered", "dead", "letter", "letters", "relay", "topic", "late", "operators", "dying"]
_RESERVED += ["failing", "queue", "arn", "publish", "policy", "consumer"]
_WORDS = st.text("abz059", min_size=1, max_size=8) | st.sampled_from(_RESERVED)
_NAMES = st.lists(_WORDS, min_size=1, max_size=3).map("-".join)


def _accepted_consumers(names: Iterable[str]) -> tuple[Consumer, ...]:
    """Return a consumer for each name the declaration accepts, beside those before it."""
    consumers: tuple[Consumer, ...] = ()
    for name in names:
        with suppress(ConfigError):
            environment = Environment(name="local", consumers=(*consumers, Consumer(name=name)))
            consumers = environment.consumers
    return consumers


_LABELS = st.text("abz059", min_size=1, max_size=5).map(lambda text: "e" + text)


@settings(deadline=None, database=None, print_blob=True)
@given(
    labels=st.lists(_LABELS, min_size=2, max_size=4, unique=True),
    topic=_LABELS,
    names=st.lists(_NAMES, max_size=4, unique=True),
    applications=st.sampled_from([("sluice",), ("shop", "sluice"), ("shop-eu", "eshop", "shop2")]),
)
def test_environments_and_projects_of_one_account_share_no_name(
    labels: list[str], topic: str, names: list[str], applications: tuple[str, ...]
) -> None:
    """This holds even where a name begins another name, or is that of another environment's DLQ, alarm or topic."""
    siblings = [f"{name}-{suffix}" for name in names for suffix in ("dlq", "undelivered", "undelivered-dlq", "dead")]
    of_labels = [*labels, *(f"{label}-billing" for label in labels)]
    consumers = _accepted_consumers(["billing", "topic", "relay", topic, *of_labels, *names, *siblings])
    environments = [
        Environment(name=label, application=application, topics=(Topic(name=topic),), consumers=consumers)
        for application in applications
        for label in labels
    ]

    names_given = _names(environments)

    assert _illegal(names_given) == {}
    assert _shared_names(names_given) == {}
    assert len(names_given["queue"]) == 3 * len(consumers) * len(environments)
