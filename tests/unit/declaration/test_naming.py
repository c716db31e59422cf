"""Every physical name: what it is, that it is legal, and that no two things share one."""

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.declaration import Consumer, Environment, naming
from sluice.errors import ConfigError
from tests.support.declaration import ENVIRONMENTS

LOCAL = ENVIRONMENTS["local"]
PARTS = ("messaging", "consumers", "observability")
TOPIC_CONDITIONS = ("failed", "lost")
CONSUMER_CONDITIONS = ("dead-letters", "undelivered", "late", "expiring", "stuck", "pinned", "asleep")
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
    "watched": r"[A-Za-z0-9-]+",  # ours: an alarm says by it what is wrong
    "output": r"[A-Za-z0-9:]{1,255}",  # CloudFormation, logical ids; of a stack, so with the environment's name here
}


def _names(environments: Iterable[Environment]) -> dict[str, list[str]]:
    """Return every name the stacks of these environments give, by the kind of thing among which it has to be unique."""
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
        names["watched"] += [
            f"{environment.name}-{subject}" for subject in ("topic", *(c.name for c in environment.consumers))
        ]
        outputs = [
            naming.output_name(consumer, what) for consumer in environment.consumers for what in CONSUMER_OUTPUTS
        ]
        names["output"] += [f"{environment.name}:{output}" for output in ("TopicArn", "PublishPolicyArn", *outputs)]
        names["key alias"] += [naming.key_alias(environment, encrypted) for encrypted in ENCRYPTED]
    return names


def _illegal(names: dict[str, list[str]]) -> dict[str, list[str]]:
    return {kind: found for kind in names if (found := [n for n in names[kind] if not re.fullmatch(LEGAL[kind], n)])}


def _shared(names: dict[str, list[str]]) -> dict[str, list[str]]:
    counts = {kind: Counter(ones) for kind, ones in names.items()}
    return {kind: found for kind in counts if (found := [n for n, count in counts[kind].items() if count > 1])}


def _with(consumer: Consumer) -> Environment:
    return Environment(name="local", consumers=(consumer,))


def test_names_of_the_local_environment() -> None:
    """Application, environment and own name with hyphens between, and the FIFO suffix where a thing is FIFO."""
    names = _names([replace(LOCAL, consumers=LOCAL.consumers[:1])])

    assert naming.stage_name(LOCAL) == "local"
    assert names == {
        "queue": [
            "sluice-local-billing.fifo",
            "sluice-local-billing-dlq.fifo",
            "sluice-local-billing-undelivered-dlq.fifo",
        ],
        "topic": ["sluice-local-events.fifo", "sluice-local-operators"],
        "stack": ["sluice-local-messaging", "sluice-local-consumers", "sluice-local-observability"],
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
        ],
        "key alias": ["alias/sluice-local-topic", "alias/sluice-local-queues"],
        "watched": ["local-topic", "local-billing"],
        "output": [
            "local:TopicArn",
            "local:PublishPolicyArn",
            "local:BillingQueueUrl",
            "local:BillingQueueArn",
            "local:BillingDeadLetterQueueArn",
            "local:BillingUndeliveredQueueArn",
        ],
    }


def test_arns_carry_the_region_and_the_account() -> None:
    """The region is the environment's, the account the one that is asked for, the partition the one there is."""
    (billing, _, _) = LOCAL.consumers
    there = replace(LOCAL, region="eu-central-1")

    topic = naming.topic_arn(there, "123456789012")
    queue = naming.queue_arn(there, naming.undelivered_queue_name(there, billing), "210987654321")

    assert topic == "arn:aws:sns:eu-central-1:123456789012:sluice-local-events.fifo"
    assert queue == "arn:aws:sqs:eu-central-1:210987654321:sluice-local-billing-undelivered-dlq.fifo"


def test_all_names_of_all_environments_are_legal_and_none_is_used_twice() -> None:
    """One account could hold all environments at once."""
    names = _names(ENVIRONMENTS.values())

    assert {kind: len(ones) for kind, ones in names.items()} == {
        "queue": 4 * 3 * 3,
        "topic": 4 * 2,
        "stack": 4 * 3,
        "cluster": 4,
        "service": 4 * 4,
        "log group": 4 * 4,
        "alarm": 4 * (2 + 3 * 7),
        "key alias": 4 * 2,
        "watched": 4 * (1 + 3),
        "output": 4 * (2 + 3 * 4),
    }
    assert _illegal(names) == {}
    assert _shared(names) == {}


def test_the_longest_queue_name_is_eighty_characters() -> None:
    """A name of 80 characters with its suffix is a name; one of 81 is refused in one line."""
    fits, too_long = Consumer(name="c" * 62), Consumer(name="c" * 63)

    name = naming.queue_name(_with(fits), fits)
    with pytest.raises(ConfigError) as refused:
        naming.queue_name(_with(too_long), too_long)

    assert name == f"sluice-local-{'c' * 62}.fifo"
    assert len(name) == 80
    assert str(refused.value) == (
        f"'sluice-local-{'c' * 63}.fifo' has 81 characters, allowed are 80; shorten the names"
    )


def test_the_longest_dead_letter_queue_name_is_eighty_characters() -> None:
    """A queue's name may fit where its DLQ's, four characters longer, is refused."""
    fits, too_long = Consumer(name="c" * 58), Consumer(name="c" * 59)

    name = naming.dead_letter_queue_name(_with(fits), fits)
    with pytest.raises(ConfigError) as refused:
        naming.dead_letter_queue_name(_with(too_long), too_long)

    assert name == f"sluice-local-{'c' * 58}-dlq.fifo"
    assert len(name) == 80
    assert str(refused.value) == (
        f"'sluice-local-{'c' * 59}-dlq.fifo' has 81 characters, allowed are 80; shorten the names"
    )


def test_the_longest_undelivered_queue_name_is_eighty_characters() -> None:
    """It is the longest of a consumer's three: what fits here, fits everywhere."""
    fits, too_long = Consumer(name="c" * 46), Consumer(name="c" * 47)

    name = naming.undelivered_queue_name(_with(fits), fits)
    with pytest.raises(ConfigError) as refused:
        naming.undelivered_queue_name(_with(too_long), too_long)

    assert name == f"sluice-local-{'c' * 46}-undelivered-dlq.fifo"
    assert len(name) == 80
    assert str(refused.value) == (
        f"'sluice-local-{'c' * 47}-undelivered-dlq.fifo' has 81 characters, allowed are 80; shorten the names"
    )


def test_the_longest_names_an_environment_may_have_are_legal_everywhere() -> None:
    """Thirty-two characters each for environment and topic, and nineteen for a consumer, the most its queues allow."""
    longest = Environment(name="e" * 32, topic="t" * 32, consumers=(Consumer(name="c" * 19),))

    names = _names([longest])

    assert _illegal(names) == {}
    assert {kind: max(map(len, ones)) for kind, ones in names.items()} == {
        "queue": 80,
        "topic": 77,
        "stack": 53,
        "cluster": 39,
        "service": 59,
        "log group": 64,
        "alarm": 72,
        "key alias": 52,
        "watched": 52,
        "output": 71,
    }


_RESERVED = ["dlq", "fifo", "undelivered", "dead", "letter", "letters", "relay", "topic", "late", "operators", "asleep"]
_RESERVED += ["queue", "arn", "publish", "policy", "consumer"]
_WORDS = st.text("abz059", min_size=1, max_size=8) | st.sampled_from(_RESERVED)
_NAMES = st.lists(_WORDS, min_size=1, max_size=3).map("-".join)
_SETTINGS = settings(deadline=None, database=None, print_blob=True)


def _accepted(names: Iterable[str]) -> tuple[Consumer, ...]:
    """Return a consumer for each name the declaration accepts, beside those before it."""
    consumers: tuple[Consumer, ...] = ()
    for name in names:
        with suppress(ConfigError):
            environment = Environment(name="local", consumers=(*consumers, Consumer(name=name)))
            consumers = environment.consumers
    return consumers


@_SETTINGS
@given(names=st.lists(_NAMES, max_size=6, unique=True))
def test_names_of_any_consumers_are_legal_and_none_is_used_twice(names: list[str]) -> None:
    """Whatever the declaration accepts, and be it called like another one's DLQ or alarm, gets names of its own."""
    siblings = [f"{name}-{suffix}" for name in names for suffix in ("dlq", "undelivered", "undelivered-dlq", "dead")]
    environment = Environment(name="local", consumers=_accepted(["billing", "topic", "relay", *names, *siblings]))

    names_given = _names([environment])

    assert _illegal(names_given) == {}
    assert _shared(names_given) == {}
    assert len(names_given["queue"]) == 3 * len(environment.consumers)


_LABELS = st.text("abz059", min_size=1, max_size=5).map(lambda text: "e" + text)


@_SETTINGS
@given(
    labels=st.lists(_LABELS, min_size=2, max_size=4, unique=True),
    topic=_LABELS,
    names=st.lists(_NAMES, max_size=4, unique=True),
)
def test_environments_of_one_account_share_no_name(labels: list[str], topic: str, names: list[str]) -> None:
    """Even where one's name begins another's, or a consumer is called like an environment, or the topic is."""
    consumers = _accepted(["billing", topic, *labels, *names, *(f"{label}-billing" for label in labels)])
    environments = [Environment(name=label, topic=topic, consumers=consumers) for label in labels]

    names_given = _names(environments)

    assert _illegal(names_given) == {}
    assert _shared(names_given) == {}


@_SETTINGS
@given(environment=_LABELS | st.just("e" * 32), characters=st.integers(1, 70))
def test_a_consumer_whose_queues_can_be_named_has_legal_names_everywhere(environment: str, characters: int) -> None:
    """The queues' limit is the tightest; beyond it, one line says so before anything is deployed."""
    item = Environment(name=environment, consumers=(Consumer(name="c" * characters),))
    fits = len(f"sluice-{environment}-{'c' * characters}-undelivered-dlq.fifo") <= 80

    names: dict[str, list[str]] = {}
    message = ""
    try:
        names = _names([item])
    except ConfigError as refused:
        message = str(refused)

    assert bool(names) == fits
    assert _illegal(names) == {}
    assert fits or re.fullmatch(r"'.+' has \d+ characters, allowed are 80; shorten the names", message)
