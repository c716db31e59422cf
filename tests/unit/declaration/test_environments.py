"""A declared value refuses what cannot be right, in one line that names the field, the value seen and those allowed."""

import math
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import filter_cost
from sluice.declaration import (
    Architecture,
    AutomaticRedrive,
    Commit,
    Consumer,
    DatabaseUsers,
    Encryption,
    Environment,
    ExistingDatabase,
    ExistingKeys,
    ExistingNetwork,
    ExistingQueue,
    ExistingTopic,
    Gaps,
    Hourly,
    Lambda,
    NewDatabase,
    NewNetwork,
    Poison,
    Removal,
    SlackChannel,
    Topic,
)
from sluice.declaration.fields import filters
from sluice.errors import ConfigError

BILLING = Consumer(name="billing")
CREDENTIALS_ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:sluice/prod/database-AbCdEf"
KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
OTHER_KEY_ARN = KEY_ARN.replace("us-east-1", "us-east-2")
VPC, SUBNET, GROUP = "vpc-0a1b2c3d4e5f60718", "subnet-0a1b2c3d4e5f60718", "sg-0a1b2c3d4e5f60718"
EXISTING = ExistingNetwork(vpc_id=VPC, subnet_ids=(SUBNET,))
BUDGET = (
    "one that takes more than 190 connections, and this one takes 189: twice 60 of workers (max_tasks of each consumer"
    " x its database_connections, or its lanes, and two more; twice the former where it parks) and 8 of relays, while a"
    " deployment runs two versions,"
    " and 54 others; raise it, or lower max_tasks"
)
REACHED = (
    "ARNs of sqs, sns, ecr, logs, secretsmanager, s3, such as"
    " 'arn:aws:logs:eu-central-1:111122223333:log-group:/ecs/shop*'"
)
PAUSE = "a number of seconds with min_acus=0, which pauses, and None with any other"
DATABASE = ExistingDatabase(secret_arn=CREDENTIALS_ARN, security_group_id=GROUP)
QUEUE_ARN = "arn:aws:sqs:us-east-1:123456789012:orders"
ON_CALL = "arn:aws:sns:us-east-1:123456789012:on-call"
SLACK = SlackChannel(workspace_id="T01234ABCDE", channel_id="C01234ABCDE")
DIGEST = "@sha256:" + "0123456789abcdef" * 4
RIGHT: dict[type[Any], dict[str, Any]] = {
    Consumer: {"name": "billing"},
    Environment: {"name": "dev", "consumers": (BILLING,)},
    Topic: {},
    ExistingTopic: {"arn": "arn:aws:sns:us-east-1:123456789012:theirs.fifo", "relay": True},
    NewNetwork: {},
    ExistingNetwork: {"vpc_id": VPC, "subnet_ids": (SUBNET,)},
    NewDatabase: {},
    ExistingDatabase: {"secret_arn": CREDENTIALS_ARN, "security_group_id": GROUP},
    SlackChannel: {"workspace_id": "T01234ABCDE", "channel_id": "C01234ABCDE"},
    AutomaticRedrive: {},
    Hourly: {},
    Lambda: {},
}
LABELS = {Consumer: "Consumer('billing')", Environment: "Environment('dev')", Topic: "Topic"}

SECONDS = "1 to 43200 seconds"
RETENTION = "60 to 1209600 seconds"
NAME = "lower-case letters, digits and single inner hyphens"
RESERVED = "a name not ending in 'dlq', 'dead-letter' or 'undelivered', which its DLQs' names end in"
APPLICATION = "up to 40 lower-case letters, digits and single inner hyphens, a letter first"
LABEL = "up to 32 lower-case letters and digits, a letter first"
POLICY = "attribute names, each with a list of conditions such as ['eu', {'prefix': 'us-'}]"
OPERATOR = "one of SNS's operators: anything-but, cidr, equals-ignore-case, exists, numeric, prefix, suffix, wildcard"
ALTERNATIVES = "'$or' with two or more policies, no attribute in them called like an operator"
ATTRIBUTE = "'$or' and names a message attribute can have: letters, digits, '_', '-', inner '.'"
MATCHING = (
    "a condition that text can meet, as all attributes of events are text, none of it empty: a string, exists, prefix,"
    " suffix, wildcard, equals-ignore-case, cidr, or anything-but with strings"
)
OF_TYPE = "a condition that a type can meet: each event has one, of letters, digits and . _ -"
FILTERED = "Poison.SKIP and Gaps.RECORD with a filter policy: it leaves lawful gaps that look like losses"
IMAGE = "an image with its tag, its digest or both: 'repository:tag' in the environment's own ECR, or a whole URI"
TOGETHER = (
    "Commit.EVENT with a standard queue, which has no bundles, and with max_attempts 1: then each attempt is recorded"
    " before its handler, in a transaction of its own"
)
STANDARD = "Poison.SKIP and Gaps.RECORD with a standard queue: there a missing number is only late"
LATEST = "a tag that stays what it is: a new 'latest' is not deployed, and there is no old one to go back to"
REGISTRY = "an image in ECR in us-east-1: a new network has no way to any other registry"
CIDR = "an IPv4 network from /16 to /24 such as '10.0.0.0/16'"
TAG = "letters, digits, spaces and . : / = + @ - _; not 'aws:…', 'application' or 'environment' in any case"
PARTITION = (
    "a region of the partition 'aws': the names AWS has in China, GovCloud and isolated regions are not known here"
)
ARN_WITH_SUFFIX = (
    "the whole ARN of a Secrets Manager secret, with the six characters AWS appends to its name: '…:secret:NAME-AbCdEf'"
)
STOPPING = "or a stopping task's message is delivered to another while it still works on it"
FOREIGN = (
    "1 with subscribers that the environment does not declare; or foreign_subscribers_read_bundles=True, if all of them"
    " can read bundles"
)
FUNCTION = Consumer(
    name="billing",
    handlers="orders.billing",
    visibility_timeout_seconds=240,
    runtime=Lambda(batch_size=10, timeout_seconds=40),
)
EXPIRES = "or a failing message expires before it is dead-lettered; raise it, or lower max_attempts"


class FieldRefusal(NamedTuple):
    """A wrong value of a field, and the one line it is refused with."""

    kind: type[Any]
    changes: dict[str, Any]
    message: str


def row(kind: type[Any], field: str, allowed: str, *values: Any, **others: Any) -> list[FieldRefusal]:
    """Return the refusal of each of these values of a field, which names what is allowed."""
    label = kind.__name__ if field == "name" else LABELS.get(kind, kind.__name__)
    return [
        FieldRefusal(kind, others | {field: value}, f"{label}.{field} is {value!r}, allowed is {allowed}")
        for value in values
    ]


def refusal_showing(kind: type[Any], seen: str, allowed: str, **changes: Any) -> list[FieldRefusal]:
    """Return a refusal that shows another value than that of the field."""
    return [FieldRefusal(kind, changes, f"{seen}, allowed is {allowed}")]


def condition(allowed: str, *conditions: Any) -> list[FieldRefusal]:
    return [
        FieldRefusal(
            Consumer,
            {"filter_policy": {"r": ["eu", condition]}},
            f"Consumer('billing').filter_policy['r'] is {condition!r}, allowed is {allowed}",
        )
        for condition in conditions
    ]


def mismatch(allowed: str, name: str, *conditions: Any) -> list[FieldRefusal]:
    """Return an environment's refusals of conditions that no event of an outbox can meet."""
    return [
        FieldRefusal(
            Environment,
            {"consumers": (Consumer(name="billing", filter_policy=policy),)},
            f"Consumer('billing').filter_policy[{name!r}] is {condition!r}, allowed is {allowed}",
        )
        for condition in conditions
        for policy in ({name: [condition]}, {"$or": [{"a": ["x"]}, {name: ["eu", condition]}]})
    ]


def operand(operator: str, words: str, *operands: Any) -> list[FieldRefusal]:
    return condition(f"{operator!r} with {words}", *({operator: operand} for operand in operands))


# fmt: off
REFUSALS: list[FieldRefusal] = [
    *row(Consumer, "poison", STANDARD, Poison.PARK, fifo=False, gaps=Gaps.WAIT),
    *row(Consumer, "gaps", STANDARD, Gaps.HALT, fifo=False),
    *row(Consumer, "fifo", "True, as the name of its existing queue says", *(False,),
        queue=ExistingQueue(arn=f"{QUEUE_ARN}.fifo", dead_letter_queue_arn=f"{QUEUE_ARN}-dlq.fifo")),
    *row(Consumer, "fifo", "False, as the name of its existing queue says", *(True,),
        queue=ExistingQueue(arn=QUEUE_ARN, dead_letter_queue_arn=f"{QUEUE_ARN}-dlq")),
    *row(Consumer, "name", NAME, *("", "Billing", "2billing", "bill_ing", "-billing", "billing-", "bill--ing"),
        *("billing.fifo", "bülling", "billing\n")),
    *row(Consumer, "name", RESERVED, *("dlq", "billing-dlq", "billingdlq", "billing-dead-letter", "undelivered"),
        "billing-undelivered"),
    *row(Consumer, "name", "another name: the relay's service has this one", "relay"),
    *row(Consumer, "name", "another name: the topic's alarms have this one", "topic"),
    *row(Consumer, "types", "one or more types such as 'order.placed': letters, digits and . _ -, not beginning with"
        " 'sluice.'; or None", (), ("",), ("a b",), ("sluice.tombstone",), ("a", "é"), ("x" * 257,)),
    *row(Consumer, "filter_policy", "1 to 5 attributes, or None", {}, {name: ["1"] for name in "abcdef"}),
    *row(Consumer, "filter_policy", ATTRIBUTE, {"": ["eu"]}, {"$and": ["eu"]}, {"$": ["eu"]}, {"a b": ["eu"]},
        *({name: ["eu"]} for name in ("é", ".a", "a.", "a..b", "AWS.a", "amazon.a", "a" * 257))),
    *row(Consumer, "filter_policy", POLICY,
        *({"r": []}, {"r": [math.nan]}, {"r": [{}]}, {"r": [b"eu"]}, {"r": "eu"}, {"r": {"prefix": "eu"}}),
        {"$or": [{"a": ["1"]}, {"b": "1"}]}),
    *condition(OPERATOR, {"prefx": "eu"}, {"wildcards": "eu*"}, {"$or": ["eu"]}, {1: 2}),
    *operand("prefix", "a string", 1, None, ["eu"]),
    *operand("suffix", "a string", *(True, {})),
    *operand("equals-ignore-case", "a string", ["eu"]),
    *operand("exists", "True or False", "true", 1, None),
    *operand("cidr", "a range of addresses such as '10.0.0.0/24'", "10.0.0.1", "10.0.0.1/24", "here/24", 10),
    *operand("anything-but", "a string, a number, a list of them, {'prefix': 'us-'} or {'wildcard': 'us-*'}",
        *([], None, [None], [True], {"suffix": "x"}, {"prefix": 1}, {}, math.inf, {"wildcard": "****"})),
    *operand("wildcard", "a string with at most 3 '*'", *(1, "a*b*c*d*")),
    *operand("numeric", "comparisons such as ['>=', 0, '<', 100]",
        *(5, [], [">"], [">", "1"], ["!=", 1], [">", True], [1, ">"], [">", math.nan]),
        *([">", 1, "<"], [">", 5, "<", 5], ["<", 1, ">", 5], [">=", 1, "<=", 2, "<", 3])),
    *mismatch(MATCHING, "r", *(1, 0.5, True, None, ""),
        *({"numeric": comparison} for comparison in ([">", 0], ["=", 0], [">", -1.5, "<=", 2])),
        *({"anything-but": unwanted} for unwanted in (1, ["x", 1], "")), {"equals-ignore-case": ""}, {"wildcard": ""},
        {"anything-but": {"wildcard": "*"}}),
    FieldRefusal(
        Environment,
        {"consumers": (Consumer(name="billing", filter_policy={"r": ["eu"], "$or": [{"r": ["us"]}, {"a": ["x"]}]}),)},
        "Consumer('billing').filter_policy['$or']['r'] is ['us'], allowed is one of the texts that 'r' has outside of"
        " '$or': ['eu']",
    ),
    *mismatch(OF_TYPE, "type", "a b", "é", "order.*", "a" * 257, {"prefix": "order placed"}, {"prefix": "order.*"},
        {"suffix": "/"}, {"exists": False}),
    *row(Consumer, "filter_policy", ALTERNATIVES,
        *({"$or": policies} for policies in ([{"a": ["1"]}], ["a", "b"],
            [{"a": ["1"]}, {}], [{"a": ["1"]}, {"prefix": ["x"]}]))),
    *refusal_showing(Consumer, "Consumer('billing').filter_policy['b'] is {'prefx': 'x'}", OPERATOR,
        filter_policy={"$or": [{"a": ["1"]}, {"b": [{"prefx": "x"}]}]}),
    *row(Consumer, "filter_policy", "at most 150 combinations of conditions (200 here)",
        {"a": ("x",) * 50, "$or": [{"b": ("x", "y")}, {"c": ("x",), "d": ("x", "y")}]}),
    *row(Consumer, "filter_policy", "at most 150 combinations of conditions (152 here)",
        {"a": ("x",) * 8, "b": ("x",) * 19}),
    *row(Consumer, "filter_policy", "at most 100 points for wildcards (108 here): 1 for a pattern with one '*' and 3"
        " for one with more, times the number of the attribute's patterns", {"a": [{"wildcard": "*x*"}] * 6},
        {"$or": [{"a": ["x"]}, {"b": [{"anything-but": {"wildcard": "*x*"}}] * 6}]}),
    *row(Consumer, "visibility_timeout_seconds", SECONDS, 0, 43_201),
    *row(Consumer, "visibility_timeout_seconds",
        f"more than processing_seconds + stop_timeout_seconds (31), {STOPPING}", 31, processing_seconds=1,
        stop_timeout_seconds=30),
    *row(Consumer, "visibility_timeout_seconds",
        f"more than processing_seconds + stop_timeout_seconds (31.5), {STOPPING}", 31, processing_seconds=1.5,
        stop_timeout_seconds=30),
    *row(Consumer, "max_attempts", "1 to 1000 receives", 0, 1_001),
    *row(Consumer, "message_retention_seconds", RETENTION, 59, 1_209_601),
    *row(Consumer, "dead_letter_retention_seconds", RETENTION, 59, 1_209_601),
    *row(Consumer, "dead_letter_retention_seconds", "at least message_retention_seconds (345600)", 345_599,
        message_retention_seconds=345_600),
    *row(Consumer, "message_retention_seconds",
        "more than 14760, which max_attempts (50) may take with visibility_timeout_seconds (60) each, or a wait of up"
        f" to 300 s between two, {EXPIRES}", 3_600, visibility_timeout_seconds=60, max_attempts=50),
    *row(Consumer, "message_retention_seconds",
        "more than 3000, which max_attempts (5) may take with visibility_timeout_seconds (600) each, or a wait of up"
        f" to 300 s between two, {EXPIRES}", 3_000, visibility_timeout_seconds=600, max_attempts=5),
    *row(Consumer, "processing_seconds", "more than 0, at most 43200 seconds", 0, -0.5, 43_201, math.nan, math.inf),
    *row(Consumer, "acceptable_latency_seconds",
        "at least processing_seconds (1.5) and less than half of message_retention_seconds (172800)", 1,
        processing_seconds=1.5),
    *row(Consumer, "acceptable_latency_seconds",
        "at least processing_seconds (1) and less than half of message_retention_seconds (172800)", 172_800),
    *row(Consumer, "acceptable_latency_seconds",
        "a target backlog (latency x lanes / processing_seconds) x max_tasks of at most 120000 messages (120040 here):"
        " behind more, SQS finds no further groups", 3_001, processing_seconds=1, lanes=4, max_tasks=10),
    *refusal_showing(Environment, "Environment('dev').consumers is ['billing in more']",
        "one or more without a stack of their own: the others are beside these",
        consumers=(Consumer(name="billing", stack="more"),)),
    *row(Consumer, "stack", "up to 32 lower-case letters and digits, a letter first, or None", "More", "one-more", ""),
    *row(Consumer, "lanes", "1 to 120000 message groups", 0, 120_001),
    *row(Consumer, "database_connections", "1 or more, or None", 0),
    *row(Consumer, "database_connections", "1 to lanes (4), or None: a lane has one at a time", 5, lanes=4),
    *row(Consumer, "expected_groups", "1 or more", 0),
    *row(Consumer, "max_tasks", "1 to 5000 tasks", 0, 5_001),
    *row(Consumer, "max_tasks",
        "at most expected_groups / lanes (3): a group is worked on by one lane at a time, so further tasks never have"
        " work", 4, expected_groups=9, lanes=3),
    *row(Consumer, "min_tasks", "0 to 10 tasks (max_tasks)", -1),
    *row(Consumer, "min_tasks", "0 to 3 tasks (max_tasks)", 4, max_tasks=3),
    *row(Consumer, "min_tasks",
        "1 or more while acceptable_latency_seconds (1199) is under 1200: an idle queue's metrics, which wake it, come"
        " up to 15 minutes late", 0, acceptable_latency_seconds=1_199, max_tasks=1),
    *row(Consumer, "stop_timeout_seconds", "1 to 120 seconds", 0),
    *row(Consumer, "stop_timeout_seconds", "1 to 120 seconds", 121, visibility_timeout_seconds=600),
    *row(Consumer, "cpu", "one of 256, 512, 1024, 2048, 4096, 8192, 16384", 300),
    *row(Consumer, "memory_mib", "with cpu 256 one of 512, 1024, 2048", 4_096, cpu=256),
    *row(Consumer, "image", IMAGE, *("", "worker", "worker:", ":1", "Worker:1", "worker:a b", "worker:1\n"),
        *("localhost:5000/worker:1", "worker:1@sha256:0", "a//b:1", "a:b:1", "worker@sha256:0123")),
    *row(Consumer, "image", LATEST, "worker:latest"),
    *row(Consumer, "handlers", "the name of a Python module such as 'orders.billing', or None",
        *("orders/billing.py", "", "orders.")),
    *refusal_showing(Consumer, "Consumer('billing').gaps is <Gaps.RECORD: 'record'>",
        "Gaps.WAIT or Gaps.HALT with Poison.PARK: what kills its worker at every try is dead-lettered by the queue"
        " alone, and shows only as a missing number", poison=Poison.PARK),
    *row(Consumer, "commit", TOGETHER, Commit.BUNDLE, fifo=False),
    *row(Consumer, "commit", TOGETHER, Commit.BUNDLE, max_attempts=1),
    *row(Consumer, "poison", FILTERED, Poison.PARK, gaps=Gaps.HALT, filter_policy={"region": ["eu"]}),
    *row(Consumer, "gaps", FILTERED, Gaps.WAIT, filter_policy={"region": ["eu"]}),
    *row(Consumer, "gap_wait_seconds", "1 to 86400 seconds", 0, 86_401),
    *row(Consumer, "joined_at", "an instant with its time zone, such as datetime(2026, 11, 22, tzinfo=UTC), or None",
        datetime.fromisoformat("2026-11-22")),
    *row(Consumer, "inbox_retention_seconds",
        "more than 2 x message_retention_seconds + dead_letter_retention_seconds (14400), the way of a message through"
        " the queue, its DLQ and back, and at most 315360000", 14_400, message_retention_seconds=3_600,
        dead_letter_retention_seconds=7_200),
    *row(Environment, "name", LABEL, "", "Dev", "1dev", "dev-eu", "dev\n", "e" * 33),
    *row(Environment, "application", APPLICATION, "", "Shop", "2shop", "shop_eu", "shop-", "shop--eu", "shop\n",
        "a" * 41),
    *row(Topic, "name", LABEL, "", "events.fifo", "t" * 33),
    *row(Topic, "producer_accounts", "accounts of twelve digits, each once", ("1234",), 2 * ("123456789012",)),
    *row(Topic, "subscriber_accounts", "accounts of twelve digits, each once", ("12345678901a",)),
    *row(Topic, "bundle_events_max", "1 to 250 events", 0, 251),
    *refusal_showing(Topic, "Topic('events').bundle_events_max is 2", FOREIGN,
        bundle_events_max=2, subscriber_accounts=("123456789012",)),
    *refusal_showing(ExistingTopic, "ExistingTopic('theirs').bundle_events_max is 2", FOREIGN, bundle_events_max=2),
    *row(ExistingTopic, "key_arn", "the whole ARN of a KMS key", "alias/topic"),
    *refusal_showing(ExistingTopic, "ExistingTopic.arn is 'orders'",
        "the ARN of an SNS FIFO topic, which ends in '.fifo'", arn="orders"),
    *refusal_showing(Environment, "Topic('events').bundle_events_max is 73",
        "at most 72 with consumer 'billing': 43200 s / (10 x visibility_timeout_seconds, 600 s), which an event may"
        " take", topics=(Topic(bundle_events_max=73),)),
    *refusal_showing(Environment, "Topic('events').bundle_events_max is 51",
        "at most 50 with consumer 'billing': 500 receives / max_attempts + 1 (10), which an event may cost",
        topics=(Topic(bundle_events_max=51),), consumers=(Consumer(name="billing", max_attempts=9),)),
    *refusal_showing(Environment, "Topic('events').bundle_events_max is 3",
        "at most 2 with consumer 'billing': 1000 receives / 8 x batch_size x max_attempts (400), which an event may"
        " cost", topics=(Topic(bundle_events_max=3),), consumers=(FUNCTION,)),
    *refusal_showing(Environment, "Topic('events').bundle_events_max is 5",
        "at most 4 with consumer 'billing': 40 s / (batch_size x processing_seconds, 10 s), which an event may take",
        topics=(Topic(bundle_events_max=5),), consumers=(replace(FUNCTION, max_attempts=2),)),
    *refusal_showing(Environment, "Topic('events').bundle_events_max is 2",
        "1 with consumer 'billing', which has a standard queue: copies of a bundle would be worked on side by side",
        topics=(Topic(bundle_events_max=2),), consumers=(Consumer(name="billing", fifo=False),)),
    *row(Environment, "topics", "at least one Topic", *((),)),
    *row(Environment, "keys", "None without Encryption.CMK: nothing would be encrypted with them",
        ExistingKeys(topic_arn=KEY_ARN, queues_arn=KEY_ARN)),
    *row(Environment, "cluster", "the name of an ECS cluster, or None", "", "arn:aws:ecs:us-east-1:1:cluster/a"),
    *row(Environment, "migrate",
        "a module such as 'shop.tables', a command such as ('alembic', 'upgrade', 'head'), or None",
        "", "shop tables", "shop/tables.py", (), ("",), ("alembic", "a\0b")),
    *row(Environment, "migrate", "None without a database: there are no tables to make", "shop.tables", ("true",)),
    *row(Environment, "account", "twelve digits, or None for the caller's account", "12345678901", "my-account"),
    *row(Environment, "region", "a region name such as 'eu-central-1'",
        *("europe", "eu-central-\u0661", "eu-central-1a")),
    *row(Environment, "region", PARTITION,
        *("cn-north-1", "us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1")),
    *refusal_showing(Environment, "Consumer('audit').image is 'ghcr.io/worker:1'", REGISTRY,
        consumers=(BILLING, Consumer(name="audit", image="ghcr.io/worker:1"))),
    *row(Environment, "alarm_emails", "each address once", ("ops@example.com", "ops@example.com")),
    *refusal_showing(Environment, f"ExistingDatabase.secret_arn is '{CREDENTIALS_ARN}'",
        "an ARN in eu-west-1, the region of environment 'dev'",
        database=DATABASE, network=EXISTING, region="eu-west-1"),
    *refusal_showing(Environment, f"ExistingDatabase.secret_key_arn is '{OTHER_KEY_ARN}'",
        "an ARN in us-east-1, the region of environment 'dev'",
        network=EXISTING, database=replace(DATABASE, secret_key_arn=OTHER_KEY_ARN)),
    *refusal_showing(Environment, f"ExistingDatabase.secret_arn is '{CREDENTIALS_ARN}'",
        "a secret of account 210987654321, or one with a secret_key_arn: without a key of its own no other account"
        " reads it", database=DATABASE, network=EXISTING, account="210987654321"),
    *refusal_showing(Environment, "Environment('dev').database is 'an ExistingDatabase'",
        "a NewDatabase in a NewNetwork: from there nothing leads to a database elsewhere; or declare the VPC that"
        " reaches it, as ExistingNetwork", database=DATABASE),
    *refusal_showing(Environment, "NewNetwork.availability_zones is 1", "2 or more zones for a NewDatabase",
        database=NewDatabase(), network=NewNetwork(availability_zones=1)),
    *refusal_showing(Environment, f"ExistingNetwork.subnet_ids is ('{SUBNET}',)",
        "2 or more subnets, in two zones, for a NewDatabase", database=NewDatabase(), network=EXISTING),
    *row(Environment, "consumers", "at least one Consumer", ()),
    *refusal_showing(Environment, "Environment('dev').consumers is ['billing', 'audit', 'billing']",
        "each consumer name once, hyphens not counted",
        consumers=(BILLING, Consumer(name="audit"), Consumer(name="billing", max_attempts=9))),
    *refusal_showing(Environment, "Environment('dev').consumers is ['a1', 'a-1']",
        "each consumer name once, hyphens not counted", consumers=(Consumer(name="a1"), Consumer(name="a-1"))),
    *row(Environment, "event_bytes_max", "1024 to 1048576 bytes", 1_023, 1_048_577),
    *row(Environment, "event_bytes_max",
        "at most 262144 bytes with 101 consumers: a topic that takes more has 100 subscriptions at most", 262_145,
        consumers=tuple(Consumer(name=f"c{number}") for number in range(101))),
    *row(Environment, "archive_days", "1 to 365 days, or None", 0, 366),
    *row(Environment, "archive_days", "None with Removal.DESTROY: AWS refuses to delete a topic that archives", 7,
        removal=Removal.DESTROY),
    *row(Environment, "image", IMAGE, "worker"),
    *row(Environment, "image", LATEST, "worker:latest"),
    *row(Environment, "image", REGISTRY,
        *("docker.io/worker:1", "123456789012.dkr.ecr.eu-west-1.amazonaws.com/worker:1")),
    *refusal_showing(Environment, "Consumer('billing').stop_timeout_seconds is 30",
        "at least processing_seconds (31) in an environment on spot: a task that is taken back would be killed in the"
        " middle of each message it has", spot=True,
        consumers=(replace(BILLING, processing_seconds=31.0, visibility_timeout_seconds=62),)),
    *row(Environment, "outbox_lag_seconds", "10 to 86400 seconds", 9, 86_401),
    *row(Environment, "log_retention_days",
        "one of 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653"
        " days", 2),
    *refusal_showing(Environment, "Environment('dev').alarm_emails is 'ops'", "e-mail addresses",
        alarm_emails=("ops",)),
    *refusal_showing(Environment, "Environment('dev').alarm_emails is 'on call@example.com'", "e-mail addresses",
        alarm_emails=("ops@example.com", "on call@example.com")),
    *refusal_showing(Environment, "Environment('dev').alarm_emails is 'ops@localhost'", "e-mail addresses",
        alarm_emails=("ops@localhost",)),
    *row(Environment, "alarm_urls", "each address once", ("https://a.example", "https://a.example")),
    *(
        refusal
        for address in ("http://a.example", "https://", "https://a.example/ b", "https://-a.example", "a.example")
        for refusal in refusal_showing(Environment, f"Environment('dev').alarm_urls is {address!r}",
            "addresses that begin with https://", alarm_urls=("https://b.example:8443/x?y=1", address))
    ),
    *row(Environment, "alarm_topic_arn", "the ARN of an SNS topic, or None", "on-call", f"{ON_CALL}:7f1c"),
    *row(Environment, "alarm_topic_arn", "a standard topic in us-east-1: alarms publish to no other",
        *(f"{ON_CALL}.fifo", ON_CALL.replace("us-east-1", "eu-west-1"))),
    *(
        refusal
        for beside in ({"alarm_emails": ("a@b.cc",)}, {"alarm_urls": ("https://b.cc",)}, {"alarm_slack": SLACK})
        for refusal in row(Environment, "alarm_topic_arn", "None beside alarm_emails, alarm_urls and alarm_slack: they"
            " belong to a topic of the environment's own", ON_CALL, **beside)
    ),
    *row(Consumer, "automatic_redrive",
        "None without handlers: what keeps it within its bounds is in the inbox of its workers", AutomaticRedrive()),
    *row(Consumer, "automatic_redrive",
        "None with a standard queue: messages come back in the order of their groups, which it does not have",
        AutomaticRedrive(), fifo=False, handlers="orders.billing"),
    *row(Environment, "verification",
        "None without a database, a relay and a topic that is published to: there is no outbox to compare", Hourly()),
    *row(Environment, "verification",
        "Hourly(in_flight_seconds=…) of up to 601200, as a consumer's queue keeps messages for longer, and relays"
        " delete sent messages after 7 days", Hourly(),
        database=NewDatabase(), consumers=(Consumer(name="billing", message_retention_seconds=604_800),)),
    *row(Hourly, "in_flight_seconds",
        "60 to 601200 seconds, or None: relays delete sent messages after 7 days", 59, 601_201),
    *row(AutomaticRedrive, "quiet_seconds", "whole minutes from 60 to 86400 seconds", 0, 59, 90, 86_460),
    *row(AutomaticRedrive, "messages_max", "1 to 10000 messages", 0, 10_001),
    *row(AutomaticRedrive, "attempts_max", "1 to 10 times", 0, 11),
    *row(Consumer, "runtime", "None without handlers: its function would have nothing to run", Lambda()),
    *row(Consumer, "visibility_timeout_seconds",
        "at least 6 x its function's timeout_seconds (66): AWS tries a throttled batch again for so long", 65,
        runtime=Lambda(timeout_seconds=11), handlers="orders.billing"),
    *row(Consumer, "processing_seconds",
        "at most timeout_seconds / batch_size of its function (0.9), or a whole batch never comes to its end in time",
        1.0, runtime=Lambda(batch_size=10, timeout_seconds=9), handlers="orders.billing"),
    *row(Consumer, "max_attempts",
        "at most receives_max / (8 x batch_size) of its function (4): each attempt at a message is a receive of all"
        " behind it in its batch, and SQS would dead-letter them before they are tried",
        5, runtime=Lambda(receives_max=399, batch_size=10, timeout_seconds=10), handlers="orders.billing"),
    *row(Consumer, "runtime", "None with a standard queue: its handlers run in an ECS service", Lambda(),
        handlers="orders.billing", fifo=False),
    *row(Lambda, "memory_mb", "128 to 10240 MB", 127, 10_241),
    *row(Lambda, "timeout_seconds", "1 to 900 seconds", 0, 901),
    *row(Lambda, "batch_size", "1 to 10 messages", 0, 11),
    *row(Lambda, "maximum_concurrency", "2 to 1000 invocations, or None", 1, 1_001),
    *row(Lambda, "maximum_concurrency",
        "None with provisioned pollers: AWS takes one of the two; set pollers_max", 2, pollers_min=2, pollers_max=3),
    *row(Lambda, "pollers_min", "2 to 200 provisioned pollers, or None", 1, 201),
    *row(Lambda, "pollers_min", "at most pollers_max (2)", 3, pollers_max=2),
    *row(Lambda, "pollers_max", "2 to 2000 provisioned pollers, or None", 1, 2_001),
    *row(Lambda, "pollers_max", "None without pollers_min, and a number with it", 2),
    *row(Lambda, "pollers_max", "None without pollers_min, and a number with it", None, pollers_min=2),
    *row(Lambda, "reserved_concurrency", "1 or more invocations, or None: with 0 none is ever begun", 0, -1),
    *row(Lambda, "reserved_concurrency",
        "more than the invocations that its queue has at once (3), or they are throttled; or None; lower"
        " maximum_concurrency or pollers_max", 2, 3, maximum_concurrency=3),
    *row(Lambda, "reserved_concurrency",
        "more than the invocations that its queue has at once (20), or they are throttled; or None; lower"
        " maximum_concurrency or pollers_max", 20, pollers_min=2, pollers_max=2),
    *row(Lambda, "receives_max", "1 to 1000 receives", 0, 1_001),
    *row(Lambda, "package", "a folder within the project, such as 'build/function', or None",
        "", "/build", "../build"),
    *row(Lambda, "entry_point", "a module and its function, such as 'shop.function.handle', or None",
        "", "handle", "shop/function.handle", "shop.function:handle", "shop..handle"),
    *row(SlackChannel, "workspace_id", "a Slack workspace's id such as 'T01234ABCDE'", "", "t0", "T 0"),
    *row(SlackChannel, "channel_id", "a Slack channel's id such as 'C01234ABCDE'", "", "#alarms"),
    *row(Environment, "tags", TAG, *({"": "x"}, {"team": "a*b"}, {"Aws:team": "x"}, {"application": "x"}),
        *({"environment": "x"}, {"Application": "x"}, {"ENVIRONMENT": "x"}, {"team": "aWS:x"}),
        *({"k" * 129: ""}, {"k": "v" * 257})),
    *refusal_showing(Environment, "Environment('dev').tags is {'te\\nam': 'x'}", TAG,
        tags={"owner": "me", "te\nam": "x"}),
    *refusal_showing(Environment, "Environment('dev').tags is ['team', 'Team']",
        "each key once, in any case: IAM takes 'Team' and 'team' for one", tags={"team": "x", "Team": "x"}),
    *refusal_showing(Environment, "Environment('dev').tags is '46 tags'",
        "at most 45: AWS takes 50 on a resource, and Sluice and CDK add up to 5",
        tags={f"key{number}": "" for number in range(46)}),
    *row(NewNetwork, "cidr", CIDR, *("10.0.0.0/15", "10.0.0.0/25", "10.0.0.1/16", "10.0.0.0/255.255.0.0", "10.0.0.0"),
        *("fd00::/16", "")),
    *row(NewNetwork, "availability_zones", "1 to 3 zones", 0, 4),
    *row(NewNetwork, "availability_zones_max", "1 to 3 zones", 0, 4),
    *row(NewNetwork, "availability_zones", "at most availability_zones_max, 1", 2, availability_zones_max=1),
    *row(NewNetwork, "producer_resources", REACHED, ("logs",), ("arn:aws:ecs:eu-central-1:111122223333:cluster/a",)),
    *row(ExistingNetwork, "vpc_id", "a VPC id such as 'vpc-0a1b2c3d4e5f60718'", "10.0.0.0/16", "vpc-0A1B2C3D"),
    *row(ExistingNetwork, "subnet_ids", "one or more subnet ids such as 'subnet-0a1b2c3d4e5f60718', each once",
        *((), (SUBNET, SUBNET), (SUBNET, VPC))),
    *row(NewDatabase, "min_acus", "0 to 256 Aurora capacity units in steps of 0.5", *(-0.5, 0.7, 256.5)),
    *row(NewDatabase, "min_acus", "at most max_acus, 4", 4.5),
    *row(NewDatabase, "max_acus", "1 to 256 Aurora capacity units in steps of 0.5", *(0.5, 1.25, 257)),
    *row(NewDatabase, "pause_after_seconds", "300 to 86400 seconds, or None", *(299, 86_401)),
    *row(NewDatabase, "pause_after_seconds", PAUSE, 300),
    *row(NewDatabase, "pause_after_seconds", PAUSE, None, min_acus=0),
    *row(NewDatabase, "backup_days", "1 to 35 days", 0, 36),
    *row(NewDatabase, "vault_days", "1 to 36500 days, or None", 0),
    *refusal_showing(Environment, "NewDatabase.vault_days is 7",
        "None with Removal.DESTROY: AWS deletes a vault only while it is empty",
        database=NewDatabase(vault_days=7), removal=Removal.DESTROY),
    *refusal_showing(Environment, "NewDatabase.vault_days is 7",
        f"None in {'a' * 40}-{'b' * 10}, of 51 characters: a vault's name has 50 at most; or shorten application and"
        " name", database=NewDatabase(vault_days=7), application="a" * 40, name="b" * 10),
    *row(NewDatabase, "generated_identifier",
        "the identifier of a cluster, as `aws rds describe-db-clusters` says it, or None",
        *("", "Prod", "prod-", "1prod", "a--b", "a" * 64)),
    *row(NewDatabase, "other_connections", "0 or more", -1),
    *refusal_showing(Environment, "NewDatabase.max_acus is 1.0", BUDGET,
        database=NewDatabase(max_acus=1.0, other_connections=54)),
    *row(NewDatabase, "engine_version", "a version from 16.3 on such as '17.9': those before cannot pause",
        *("17", "16.2", "15.17", "latest", "17.9-limitless")),
    *row(ExistingDatabase, "secret_arn", ARN_WITH_SUFFIX,
        *("sluice/prod/database", CREDENTIALS_ARN.removesuffix("-AbCdEf"), KEY_ARN),
        *(CREDENTIALS_ARN.removesuffix("f"), CREDENTIALS_ARN + "-??????"),
        CREDENTIALS_ARN.replace("arn:aws:", "arn:aws-cn:")),
    *row(ExistingDatabase, "security_group_id", "a security group id such as 'sg-0a1b2c3d4e5f60718'", "database"),
    *row(ExistingDatabase, "port", "1 to 65535", 0, 65_536),
    *row(ExistingDatabase, "secret_key_arn", "the whole ARN of a KMS key, or None",
        *("alias/database", KEY_ARN.replace("arn:aws:", "arn:aws-us-gov:"))),
    *row(ExistingDatabase, "resource_id", "an id such as 'cluster-ABCDEFGHIJKL01234', or None",
        *("shop", "cluster-", "arn:aws:rds:us-east-1:123456789012:cluster:shop")),
    *row(ExistingDatabase, "host", "a host's name, or None", *("", "shop:5432", "postgres://shop", "a..b")),
    *row(ExistingDatabase, "database_name", "a database's name, or None", *("", "1shop", "shop/x")),
    *row(ExistingDatabase, "database_name", "None without host, and the database's name with it", "shop"),
    *row(ExistingDatabase, "database_name", "None without host, and the database's name with it", None, host="shop"),
    *row(ExistingDatabase, "connections", "1 or more, or None", 0),
    *refusal_showing(Environment, "ExistingDatabase.connections is 135",
        "at least 136: twice 60 of workers (max_tasks of each consumer x its database_connections, or its lanes, and"
        " two more; twice the former where it parks) and 8 of relays, while a deployment runs two versions; raise it,"
        " or lower max_tasks",
        network=EXISTING, database=replace(DATABASE, connections=135)),
    *refusal_showing(ExistingDatabase, "ExistingDatabase.users is <DatabaseUsers.ROLES: 'roles'>",
        "DatabaseUsers.OWNER without resource_id, host and database_name: a token of IAM needs all three",
        users=DatabaseUsers.ROLES, host="shop", database_name="shop"),
]
# fmt: on


def type_row(kind: type[Any], field: str, words: str, *values: Any) -> list[FieldRefusal]:
    return row(kind, field, f"a value of type {words}", *values)


# fmt: off
OF_ANOTHER_TYPE: list[FieldRefusal] = [
    *type_row(Consumer, "name", "str", None),
    *type_row(Consumer, "lanes", "int", "4", 2.5, 4.0),
    *type_row(Consumer, "max_tasks", "int", *(True,)),
    *type_row(Consumer, "max_attempts", "int", None),
    *type_row(Consumer, "processing_seconds", "float", *("1", True)),
    *type_row(Consumer, "cpu", "int", 256.0),
    *type_row(Consumer, "image", "str | None", 1),
    *type_row(Consumer, "types", "tuple[str, ...] | None", "order.placed", (1,)),
    *type_row(Consumer, "filter_policy", "Mapping[str, Sequence[object]] | None", ["eu"], {1: ["eu"]}),
    *type_row(Environment, "consumers", "tuple[Consumer, ...]", ("billing",)),
    *type_row(Environment, "account", "str | None", 123456789012),
    *type_row(Environment, "relay", "bool", "no"),
    *type_row(Environment, "spot", "bool", 1),
    *type_row(Environment, "database", "NewDatabase | ExistingDatabase | None", "aurora"),
    *type_row(Environment, "network", "NewNetwork | ExistingNetwork", "vpc-1"),
    *type_row(Environment, "tags", "Mapping[str, str]", {"team": 1}),
    *type_row(NewNetwork, "cidr", "str", None),
    *type_row(NewNetwork, "availability_zones", "int", 2.5),
    *type_row(ExistingDatabase, "port", "int", "5432"),
    *refusal_showing(Environment, "Environment('dev').removal is 'retain' (did you mean Removal.RETAIN?)",
        "Removal.DESTROY or Removal.RETAIN", removal="retain"),
    *row(Environment, "removal", "Removal.DESTROY or Removal.RETAIN", "keep"),
    *refusal_showing(Environment, "Environment('dev').encryption is 'cmk' (did you mean Encryption.CMK?)",
        "Encryption.SQS_MANAGED or Encryption.CMK", encryption="cmk"),
    *refusal_showing(Environment,
        f"Environment('dev').consumers is {repr(BILLING)[:500]}… (did you mean (Consumer(…),)?)",
        "a value of type tuple[Consumer, ...]", consumers=BILLING),
    *refusal_showing(Environment, "Environment('dev').alarm_emails is 'a@b.cc' (did you mean ('a@b.cc',)?)",
        "a value of type tuple[str, ...]", alarm_emails="a@b.cc"),
    *refusal_showing(ExistingNetwork, f"ExistingNetwork.subnet_ids is '{SUBNET}' (did you mean ('{SUBNET}',)?)",
        "a value of type tuple[str, ...]", subnet_ids=SUBNET),
]
# fmt: on


def test_the_operators_of_a_filter_policy_are_those_the_simulator_has() -> None:
    """An operator that SNS has and a declaration refuses, or the other way round."""
    assert set(filters._OPERANDS) == filter_cost.OPERATORS


@pytest.mark.parametrize(("kind", "changes", "message"), [*REFUSALS, *OF_ANOTHER_TYPE])
def test_a_value_refuses_what_cannot_be_right(kind: type[Any], changes: dict[str, Any], message: str) -> None:
    """One line names the field, the value seen and the values allowed; types come before the relations they break."""
    with pytest.raises(ConfigError) as refused:
        kind(**RIGHT[kind] | changes)

    assert str(refused.value) == message
    assert len(message.splitlines()) == 1


def test_numbers_are_filtered_where_others_publish() -> None:
    """Other producers may send numbers as attributes; our outbox sends text."""
    consumer = Consumer(name="billing", filter_policy={"amount": [{"numeric": [">", 0]}]})
    theirs = ExistingTopic(arn="arn:aws:sns:us-east-1:123456789012:theirs.fifo")
    for topic in (Topic(producer_accounts=("210987654321",)), theirs, replace(theirs, relay=True)):
        assert Environment(name="dev", consumers=(consumer,), topics=(topic,)).consumers == (consumer,)


@pytest.mark.parametrize(
    ("kind", "unnamed", "given_values", "message"),
    [
        (
            NewNetwork,
            (),
            {"availabilty_zones": 2},
            "NewNetwork has no field 'availabilty_zones' (did you mean 'availability_zones'?), allowed is one of cidr,"
            " availability_zones, availability_zones_max, restrict_default_security_group, producer_resources",
        ),
        (
            ExistingDatabase,
            (),
            {"xyz": 1},
            "ExistingDatabase has no field 'xyz', allowed is one of secret_arn, security_group_id, port,"
            " secret_key_arn, users, resource_id, host, database_name, connections",
        ),
        (Consumer, (), {"lanes": 4}, "Consumer.name is missing, allowed is a value of type str"),
        (
            Environment,
            (),
            {"name": "dev"},
            "Environment.consumers is missing, allowed is a value of type tuple[Consumer, ...]",
        ),
        (
            Consumer,
            ("billing",),
            {},
            "Consumer is given 'billing' without a name, allowed is NAME=VALUE, such as name='billing'",
        ),
    ],
)
def test_a_field_that_is_misspelt_missing_or_not_named_is_refused(
    kind: type[Any], unnamed: tuple[object, ...], given_values: dict[str, Any], message: str
) -> None:
    """The refusal suggests the probable name; `replace` refuses the same."""
    with pytest.raises(ConfigError) as refused:
        kind(*unnamed, **given_values)

    assert str(refused.value) == message


def test_a_changed_copy_is_checked_like_the_first() -> None:
    """`dataclasses.replace` makes it."""
    with pytest.raises(ConfigError, match=r"Consumer has no field 'lane' .did you mean 'lanes'"):
        replace(BILLING, lane=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"Consumer\('billing'\).lanes is 0, allowed is 1 to 120000"):
        replace(BILLING, lanes=0)


_ANYTHING = st.sampled_from(
    [None, True, "4", 2.5, 4.0, math.nan, math.inf, -1, 10**400, b"x", [], {}, (), 1 + 2j, object, ["x"], (1,), {1: 2}]
)


@settings(deadline=None, database=None, print_blob=True)
@given(kind=st.sampled_from(list(RIGHT)), value=_ANYTHING, data=st.data())
def test_anything_at_all_is_accepted_or_refused_in_one_line(
    kind: type[Any], value: object, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([field.name for field in fields(kind)]))

    refusal = _refusal(kind, RIGHT[kind] | {name: value})

    assert refusal is None or (", allowed is " in refusal and len(refusal.splitlines()) == 1 and name in refusal)


def test_every_field_that_can_be_wrong_is_refused_above() -> None:
    """A field nobody refuses anything of is one of the few whose every value of its type is right."""
    refused = {(refusal.kind, name) for refusal in REFUSALS for name in refusal.changes}

    never = {
        f"{kind.__name__}.{field.name}" for kind in RIGHT for field in fields(kind) if (kind, field.name) not in refused
    }
    assert never == {
        "Environment.architecture",
        "Consumer.topic",  # its environment refuses it: tests/unit/declaration/test_existing.py
        "Environment.encryption",
        "Environment.relay",
        "Environment.silent",
        "ExistingTopic.relay",
        "ExistingTopic.foreign_subscribers_read_bundles",
        "Topic.foreign_subscribers_read_bundles",
        "NewDatabase.standby",
        "NewDatabase.users",
        "NewNetwork.restrict_default_security_group",
    }


AT_BOUNDS: Mapping[type[Any], list[dict[str, Any]]] = {
    Consumer: [
        {"name": "b"},
        {"name": "billing-2-eu"},
        {"name": "dlq-reader"},
        {"name": "undelivered-reader"},
        {"name": "dead-letters"},
        {"name": "relay-2"},
        {"filter_policy": {"a": ["1"], "b": ["1"], "c": ["1"], "d": ["1"], "e": ["1"]}},
        {"filter_policy": {"a": ("x",) * 10, "b": ("x",) * 15}},
        {"filter_policy": {"a": ["x"] * 150}},
        {"types": ("order.placed", "x" * 256)},
        {"filter_policy": {"region": ["eu", {"prefix": "us-"}], "amount": [{"exists": True}]}},
        {"filter_policy": {"a" * 256: ["x"], "a_-.b": ["true"], "prefix": ["0.5"]}},
        {"filter_policy": {"r": [{"prefix": ""}, {"suffix": "x"}, {"equals-ignore-case": "x"}, {"exists": False}]}},
        {"filter_policy": {"r": [{"cidr": "10.0.0.0/24"}, {"cidr": "2001:db8::/32"}]}},
        {"filter_policy": {"r": [{"anything-but": operand} for operand in ("x", ["x", "1"], {"prefix": "x"})]}},
        {"filter_policy": {"r": [{"wildcard": "*eu*x*"}, {"anything-but": {"wildcard": "eu*"}}]}},
        {"filter_policy": {"r": [{"wildcard": "eu*"}] * 10}},
        {
            "filter_policy": {
                "type": ["order.placed", {"prefix": "order."}, {"wildcard": "*.paid"}, {"anything-but": "x y"}]
            }
        },
        {"filter_policy": {"a": ("x",) * 50, "$or": [{"b": ["x"]}, {"c": ["x"], "$or": [{"d": ["1"]}, {"e": ["1"]}]}]}},
        {"visibility_timeout_seconds": 2, "processing_seconds": 0.99, "stop_timeout_seconds": 1},
        {"visibility_timeout_seconds": 32, "processing_seconds": 1, "stop_timeout_seconds": 30},
        {"visibility_timeout_seconds": 43_200, "max_attempts": 7},
        {"max_attempts": 1},
        {"max_attempts": 1_000, "visibility_timeout_seconds": 60},
        {
            "message_retention_seconds": 60,
            "dead_letter_retention_seconds": 60,
            "visibility_timeout_seconds": 11,
            "stop_timeout_seconds": 1,
            "acceptable_latency_seconds": 29,
            "max_attempts": 1,
        },
        {"message_retention_seconds": 1_209_600, "dead_letter_retention_seconds": 1_209_600},
        {"message_retention_seconds": 1_261, "visibility_timeout_seconds": 60, "max_attempts": 5},
        {"processing_seconds": 0.03, "acceptable_latency_seconds": 1},
        {
            "processing_seconds": 43_198.5,
            "visibility_timeout_seconds": 43_200,
            "stop_timeout_seconds": 1,
            "acceptable_latency_seconds": 43_199,
            "max_attempts": 1,
        },
        {"acceptable_latency_seconds": 1, "processing_seconds": 1},
        {"acceptable_latency_seconds": 172_799, "processing_seconds": 25, "lanes": 1},
        {"acceptable_latency_seconds": 3_000, "processing_seconds": 1, "lanes": 4, "max_tasks": 10},
        {"acceptable_latency_seconds": 120_000, "processing_seconds": 1, "lanes": 1, "max_tasks": 1},
        {"lanes": 1},
        {"lanes": 120_000, "acceptable_latency_seconds": 1, "max_tasks": 1},
        {"expected_groups": 1, "max_tasks": 1},
        {"expected_groups": 10, "lanes": 3, "max_tasks": 4},
        {"max_tasks": 5_000, "expected_groups": 5_000, "lanes": 1, "acceptable_latency_seconds": 24},
        {"max_tasks": 1, "min_tasks": 1},
        {"min_tasks": 10, "max_tasks": 10},
        {"min_tasks": 0, "acceptable_latency_seconds": 1_200},
        {"stop_timeout_seconds": 1},
        {"stop_timeout_seconds": 120, "visibility_timeout_seconds": 122},
        {"image": None},
        {"image": "w:1"},
        {"image": "team/sluice-worker:2026-11-21_rc.1"},
        {"image": "worker" + DIGEST},
        {"image": "team/worker:1" + DIGEST},
        {"image": "worker:latest" + DIGEST},
        {"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/worker:1"},
    ],
    Environment: [
        {"name": "e" * 32},
        {"name": "e2"},
        {"topics": (Topic(name="t" * 32),)},
        {"topics": (Topic(bundle_events_max=72),)},
        {"topics": (Topic(bundle_events_max=50),), "consumers": (replace(BILLING, max_attempts=9),)},
        {"topics": (Topic(bundle_events_max=2),), "consumers": (FUNCTION,)},
        {"topics": (Topic(bundle_events_max=4),), "consumers": (replace(FUNCTION, max_attempts=2),)},
        {
            "topics": (
                Topic(
                    bundle_events_max=2, foreign_subscribers_read_bundles=True, subscriber_accounts=("123456789012",)
                ),
            )
        },
        {"cluster": "c" * 255},
        {"account": None},
        {"account": "123456789012"},
        {"region": "eu-central-1"},
        {"region": "ap-southeast-5"},
        {"consumers": (BILLING,)},
        {"consumers": (Consumer(name="a1"), Consumer(name="a-2"))},
        {"removal": Removal.DESTROY},
        {"removal": Removal.DESTROY, "archive_days": None},
        {"event_bytes_max": 1_024},
        {"event_bytes_max": 1_048_576},
        {"event_bytes_max": 1_048_576, "consumers": tuple(Consumer(name=f"c{number}") for number in range(100))},
        {"event_bytes_max": 262_144, "consumers": tuple(Consumer(name=f"c{number}") for number in range(101))},
        {"archive_days": 1},
        {"archive_days": 365},
        {"encryption": Encryption.CMK},
        {"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/worker:1"},
        {"image": "worker:1.4"},
        {"image": "team.worker:1"},
        {"image": None},
        {"architecture": Architecture.ARM64},
        {"spot": True, "architecture": Architecture.ARM64},
        {
            "spot": True,
            "consumers": (Consumer(name="billing", processing_seconds=30.0, visibility_timeout_seconds=61),),
        },
        {"network": EXISTING, "image": "docker.io/sluice/worker:1"},
        {"network": EXISTING, "consumers": (Consumer(name="billing", image="ghcr.io/worker" + DIGEST),)},
        {"relay": False},
        {"relay": False, "database": NewDatabase()},
        {"database": NewDatabase(max_acus=1.0, other_connections=52)},
        {"database": NewDatabase(vault_days=7), "application": "a" * 40, "name": "b" * 9},
        {"network": replace(EXISTING, subnet_ids=(SUBNET, "subnet-0a1b2c3d")), "database": NewDatabase()},
        {"network": NewNetwork(availability_zones=2), "database": NewDatabase()},
        {"network": EXISTING, "account": "123456789012", "database": DATABASE},
        {"network": EXISTING, "database": replace(DATABASE, connections=136)},
        {
            "network": EXISTING,
            "account": "123456789012",
            "database": replace(DATABASE, secret_key_arn=KEY_ARN.replace("1234", "4321")),
        },
        {"network": EXISTING, "account": "210987654321", "database": replace(DATABASE, secret_key_arn=KEY_ARN)},
        {"alarm_emails": ("ops@example.com", "on-call+sluice@example.co.uk")},
        {"alarm_urls": ("https://events.pagerduty.com/integration/0123/enqueue", "https://a.b:8443"), "silent": True},
        {"alarm_topic_arn": ON_CALL},
        {"alarm_slack": SLACK},
        {"tags": {}},
        {"tags": {"k" * 128: "v" * 256, "team": "", "cost centre": "a.b:c/d=e+f@g-h_1", "owner": "Zoë"}},
        {"tags": {f"key{number}": "" for number in range(45)}},
    ],
    NewNetwork: [
        {"cidr": "10.0.0.0/16"},
        {"cidr": "192.168.7.0/24"},
        {"availability_zones": 1},
        {"availability_zones": 3},
        {"availability_zones": 2, "availability_zones_max": 2},
        {"restrict_default_security_group": False},
        {"producer_resources": ("arn:aws:s3:::shop/*", "arn:aws:logs:eu-central-1:123456789012:log-group:/ecs/shop*")},
    ],
    ExistingNetwork: [  # eight digits, as AWS gave them before 2016, and seventeen
        {"vpc_id": "vpc-0a1b2c3d"},
        {"subnet_ids": ("subnet-0a1b2c3d",)},
        {"subnet_ids": (SUBNET, "subnet-0a1b2c3d")},
    ],
    NewDatabase: [
        {"min_acus": 0, "pause_after_seconds": 300},
        {"min_acus": 0, "pause_after_seconds": 86_400},
        {"min_acus": 256, "max_acus": 256},
        {"min_acus": 4},
        {"max_acus": 1},
        {"other_connections": 0},
        {"vault_days": 1},
        {"generated_identifier": "a" * 63},
        {"backup_days": 1},
        {"backup_days": 35},
        {"engine_version": "16.3"},
        {"engine_version": "18.10"},
    ],
    ExistingDatabase: [
        {"port": 1},
        {"port": 65_535},
        {"secret_key_arn": None},
        {"secret_key_arn": KEY_ARN},
        {"secret_key_arn": "arn:aws:kms:us-east-1:123456789012:key/mrk-0a1b2c3d4e5f60718293a4b5c6d7e8f9"},
        {"security_group_id": "sg-0a1b2c3d"},
        {"connections": 1},
        {"host": "shop.cluster-abc.eu-central-1.rds.amazonaws.com", "database_name": "shop"},
        {"users": DatabaseUsers.EITHER, "resource_id": "db-ABC", "host": "shop", "database_name": "_shop-1"},
        {"secret_arn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:a/b+c=d.e@f_g-AbCd01"},
    ],
}


@pytest.mark.parametrize(("kind", "changes"), [(kind, case) for kind, cases in AT_BOUNDS.items() for case in cases])
def test_a_value_may_be_at_its_bounds(kind: type[Any], changes: dict[str, Any]) -> None:
    """Every bound is itself allowed, and so is the first value beyond a relation."""
    made = kind(**RIGHT[kind] | changes)

    assert {name: getattr(made, name) for name in changes} == changes


_MEMORY_MIB = {
    256: {512, 1_024, 2_048},
    512: set(range(1_024, 4_097, 1_024)),
    1_024: set(range(2_048, 8_193, 1_024)),
    2_048: set(range(4_096, 16_385, 1_024)),
    4_096: set(range(8_192, 30_721, 1_024)),
    8_192: set(range(16_384, 61_441, 4_096)),
    16_384: set(range(32_768, 122_881, 8_192)),
}
_LOG_DAYS = {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}


def _refusal(kind: type[Any], values: dict[str, Any]) -> str | None:
    """Return the refusal of these values; None if they are accepted."""
    try:
        kind(**values)
    except ConfigError as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("cpu", _MEMORY_MIB)
def test_memory_is_limited_to_what_fargate_offers_for_the_cpu(cpu: int) -> None:
    memories = range(256, 131_073, 256)

    accepted = {mib for mib in memories if _refusal(Consumer, {"name": "b", "cpu": cpu, "memory_mib": mib}) is None}

    assert accepted == _MEMORY_MIB[cpu]


def test_log_retention_is_one_of_cloudwatchs_periods() -> None:
    declared = RIGHT[Environment]

    accepted = {days for days in range(3_655) if _refusal(Environment, declared | {"log_retention_days": days}) is None}

    assert accepted == _LOG_DAYS


def test_a_task_has_as_many_connections_as_are_declared() -> None:
    """Lanes whose handlers wait for other services need none meanwhile; the drainers have as many again."""
    lanes = Consumer(name="billing", lanes=300, max_tasks=1, acceptable_latency_seconds=30, expected_groups=1_000)
    few = replace(lanes, database_connections=20)
    parking = replace(few, gaps=Gaps.HALT)

    assert [consumer.connections_per_task for consumer in (lanes, few, parking)] == [302, 22, 42]
    assert replace(lanes, database_connections=300).connections_per_task == 302


def test_the_target_backlog_counts_the_lanes() -> None:
    """60 s of acceptable latency: 60 messages of 1 s for each of four lanes."""
    assert Consumer(name="billing").target_backlog == 240
    assert Consumer(name="billing", lanes=1).target_backlog == 60
    assert Consumer(name="billing", processing_seconds=0.5).target_backlog == 480


def test_consumers_and_environments_can_be_keys_though_they_hold_mappings() -> None:
    """Equal values hash alike; filter policy and tags do not count, and cannot be hashed."""
    filtered = Consumer(name="billing", filter_policy={"region": ["eu"]})
    tagged = Environment(name="dev", consumers=(filtered,), tags={"team": "a"})

    assert hash(filtered) == hash(Consumer(name="billing", filter_policy={"region": ["eu"]}))
    assert hash(tagged) == hash(replace(tagged, tags={"team": "a"}))


# A default that changes is seen here.

CONSUMER = {
    "name": "billing",
    "topic": None,
    "fifo": True,
    "queue": None,
    "types": None,
    "filter_policy": None,
    "visibility_timeout_seconds": 60,
    "max_attempts": 5,
    "message_retention_seconds": 345_600,
    "dead_letter_retention_seconds": 1_209_600,
    "processing_seconds": 1.0,
    "acceptable_latency_seconds": 60,
    "lanes": 4,
    "database_connections": None,
    "expected_groups": 100,
    "min_tasks": 1,
    "max_tasks": 10,
    "stop_timeout_seconds": 30,
    "cpu": 256,
    "memory_mib": 512,
    "image": None,
    "handlers": None,
    "commit": Commit.EVENT,
    "poison": Poison.SKIP,
    "gaps": Gaps.RECORD,
    "gap_wait_seconds": 300,
    "joined_at": None,
    "inbox_retention_seconds": 5_184_000,
    "automatic_redrive": None,
    "runtime": None,
    "stack": None,
}
ENVIRONMENT = {
    "name": "dev",
    "application": "sluice",
    "consumers": (CONSUMER,),
    "account": None,
    "region": "us-east-1",
    "topics": (
        {
            "name": "events",
            "producer_accounts": (),
            "subscriber_accounts": (),
            "bundle_events_max": 1,
            "foreign_subscribers_read_bundles": False,
        },
    ),
    "removal": Removal.RETAIN,
    "encryption": Encryption.SQS_MANAGED,
    "event_bytes_max": 262_144,
    "keys": None,
    "archive_days": None,
    "network": {
        "cidr": "10.0.0.0/16",
        "availability_zones": 2,
        "availability_zones_max": 3,
        "restrict_default_security_group": True,
        "producer_resources": (),
    },
    "image": None,
    "architecture": Architecture.X86_64,
    "spot": False,
    "cluster": None,
    "database": None,
    "migrate": None,
    "relay": True,
    "verification": None,
    "outbox_lag_seconds": 60,
    "log_retention_days": 30,
    "alarm_emails": (),
    "alarm_urls": (),
    "alarm_slack": None,
    "alarm_topic_arn": None,
    "silent": False,
    "tags": {},
}


def test_an_undeclared_field_has_its_default() -> None:
    """All defaults, by hand: a change of a default changes deployments of users."""
    assert asdict(Hourly()) == {"in_flight_seconds": None}
    assert asdict(AutomaticRedrive()) == {"quiet_seconds": 300, "messages_max": 100, "attempts_max": 1}
    assert asdict(Lambda()) == {
        "memory_mb": 512,
        "timeout_seconds": 10,
        "batch_size": 1,
        "maximum_concurrency": None,
        "pollers_min": None,
        "pollers_max": None,
        "reserved_concurrency": None,
        "receives_max": 1_000,
        "package": None,
        "entry_point": None,
    }
    assert asdict(Environment(name="dev", consumers=(BILLING,))) == ENVIRONMENT
    assert asdict(NewDatabase()) == {
        "min_acus": 0.5,
        "max_acus": 4.0,
        "pause_after_seconds": None,
        "standby": False,
        "backup_days": 7,
        "vault_days": None,
        "generated_identifier": None,
        "engine_version": "17.9",
        "users": DatabaseUsers.ROLES,
        "other_connections": 50,
    }
    assert asdict(DATABASE) == {
        "secret_arn": CREDENTIALS_ARN,
        "security_group_id": GROUP,
        "port": 5432,
        "secret_key_arn": None,
        "users": DatabaseUsers.OWNER,
        "resource_id": None,
        "host": None,
        "database_name": None,
        "connections": None,
    }


@pytest.mark.parametrize(("timeout_seconds", "minutes"), [(60, 1), (61, 2), (900, 15)])
def test_a_schedule_invokes_a_function_once_the_invocation_before_has_ended(timeout_seconds: int, minutes: int) -> None:
    """An invocation takes up to its timeout; connections and concurrency are reserved for one."""
    declared = replace(
        FUNCTION, visibility_timeout_seconds=6 * timeout_seconds, runtime=Lambda(timeout_seconds=timeout_seconds)
    )

    assert replace(declared, poison=Poison.PARK, gaps=Gaps.HALT).maintenance_minutes == minutes
    assert declared.maintenance_minutes == 60
