"""Every field of the declaration as a table: unit, default, effect, and what is refused in the program's own words.

The effect comes from the class's docstring, the default from the dataclass. What is allowed is asked of the class
itself: it is built with the wrong values of `_REFUSED`, and the errors it answers with say what they should have been.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from sluice.declaration import (
    AutomaticRedrive,
    Consumer,
    Encryption,
    Environment,
    ExistingDatabase,
    ExistingKeys,
    ExistingNetwork,
    ExistingQueue,
    ExistingTopic,
    Gaps,
    NewDatabase,
    NewNetwork,
    Poison,
    Removal,
    SlackChannel,
    Topic,
    load_declaration,
)
from sluice.errors import ConfigError

# As they are shipped: what a project makes of its own is no matter of these pages.
ENVIRONMENTS = load_declaration(Path(__file__).parents[1] / "tests" / "support" / "declared" / "environments.py")
DECLARED = (
    Environment,
    Consumer,
    Topic,
    ExistingTopic,
    ExistingQueue,
    ExistingKeys,
    NewNetwork,
    ExistingNetwork,
    NewDatabase,
    ExistingDatabase,
    SlackChannel,
    AutomaticRedrive,
)

_UNITS = {
    "seconds": "seconds",
    "days": "days",
    "mib": "MiB",
    "tasks": "tasks",
    "groups": "message groups",
    "zones": "zones",
    "attempts": "receives",
    "acus": "ACUs, of about 2 GiB each",
}  # by the name's last word
_UNITS_OF = {
    "Consumer.lanes": "message groups per task",
    "Consumer.cpu": "CPU units, 1,024 a vCPU",
    "Consumer.filter_policy": "mapping of attribute to conditions",
    "Consumer.image": "image",
    "Consumer.topic": "name of a topic",
    "Consumer.fifo": "True or False",
    "Consumer.queue": "`ExistingQueue`",
    "Environment.topics": "`Topic` and `ExistingTopic` values",
    "Environment.keys": "`ExistingKeys`",
    "Environment.cluster": "name of an ECS cluster",
    "Topic.producer_accounts": "account ids",
    "Topic.subscriber_accounts": "account ids",
    "ExistingTopic.arn": "ARN",
    "ExistingTopic.key_arn": "ARN",
    "ExistingTopic.relay": "True or False",
    "ExistingQueue.arn": "ARN",
    "ExistingQueue.dead_letter_queue_arn": "ARN",
    "ExistingQueue.key_arn": "ARN",
    "ExistingKeys.topic_arn": "ARN",
    "ExistingKeys.queues_arn": "ARN",
    "Consumer.joined_at": "aware datetime",
    "Consumer.handlers": "Python module",
    "Consumer.automatic_redrive": "`AutomaticRedrive`",
    "AutomaticRedrive.messages_max": "messages",
    "AutomaticRedrive.attempts_max": "times",
    "Environment.image": "image",
    "Environment.spot": "True or False",
    "Environment.account": "account id",
    "Environment.region": "region",
    "Environment.event_bytes_max": "bytes",
    "Environment.consumers": "`Consumer` values",
    "Environment.alarm_emails": "addresses",
    "Environment.alarm_urls": "HTTPS addresses",
    "Environment.alarm_slack": "`SlackChannel`",
    "Environment.alarm_topic_arn": "ARN",
    "Environment.silent": "True or False",
    "SlackChannel.workspace_id": "Slack workspace id",
    "SlackChannel.channel_id": "Slack channel id",
    "Environment.tags": "mapping of key to value",
    "Environment.network": "`NewNetwork` or `ExistingNetwork`",
    "Environment.database": "`NewDatabase` or `ExistingDatabase`",
    "Environment.relay": "True or False",
    "NewNetwork.cidr": "IPv4 network",
    "NewNetwork.restrict_default_security_group": "True or False",
    "ExistingNetwork.vpc_id": "VPC id",
    "ExistingNetwork.subnet_ids": "subnet ids",
    "NewDatabase.standby": "True or False",
    "NewDatabase.engine_version": "version",
    "ExistingDatabase.secret_arn": "ARN",
    "ExistingDatabase.security_group_id": "security group id",
    "ExistingDatabase.port": "TCP port",
    "ExistingDatabase.secret_key_arn": "ARN",
}

_ON_CALL = "arn:aws:sns:us-east-1:111122223333:on-call"
_DATABASE = ExistingDatabase(
    secret_arn="arn:aws:secretsmanager:us-east-1:111122223333:secret:sluice-AbCdEf",  # noqa: S106 (its name)
    security_group_id="sg-0a1b2c3d4e5f60718",
)
_SQS, _KEY = "arn:aws:sqs:us-east-1:111122223333", "arn:aws:kms:us-east-1:111122223333:key/0a1b2c3d"
_TOPIC = ExistingTopic(arn="arn:aws:sns:us-east-1:111122223333:theirs.fifo")
_QUEUE = ExistingQueue(arn=f"{_SQS}:orders.fifo", dead_letter_queue_arn=f"{_SQS}:dead.fifo")
_KEYS = ExistingKeys(topic_arn=_KEY, queues_arn=_KEY)
_NETWORK = ExistingNetwork(vpc_id="vpc-0a1b2c3d4e5f60718", subnet_ids=("subnet-0a1b2c3d4e5f60718",))
# What a value is built of when one field of it is wrong.
_SOUND: dict[type, Mapping[str, object]] = {
    Environment: {"name": "demo", "consumers": (Consumer(name="billing"),)},
    Consumer: {"name": "billing"},
    Topic: {},
    ExistingTopic: {"arn": _TOPIC.arn},
    ExistingQueue: {"arn": _QUEUE.arn, "dead_letter_queue_arn": _QUEUE.dead_letter_queue_arn},
    ExistingKeys: {"topic_arn": _KEY, "queues_arn": _KEY},
    NewNetwork: {},
    ExistingNetwork: {"vpc_id": "vpc-0a1b2c3d4e5f60718", "subnet_ids": ("subnet-0a1b2c3d4e5f60718",)},
    NewDatabase: {},
    ExistingDatabase: {"secret_arn": _DATABASE.secret_arn, "security_group_id": _DATABASE.security_group_id},
    SlackChannel: {"workspace_id": "T01234ABCDE", "channel_id": "C01234ABCDE"},
    AutomaticRedrive: {},
}
# The wrong values of each field; with what else it takes to be wrong.
_REFUSED: dict[str, tuple[Mapping[str, object], ...]] = {
    "Environment.name": ({"name": "eu-dev"},),
    "Environment.application": ({"application": "Shop"},),
    "Environment.consumers": ({"consumers": ()}, {"consumers": (Consumer(name="a-b"), Consumer(name="ab"))}),
    "Environment.account": ({"account": "1"},),
    "Environment.region": ({"region": "here"}, {"region": "cn-north-1"}),
    "Environment.topics": (
        {"topics": ()},
        {"topics": (Topic(), Topic())},
        {"topics": (_TOPIC,), "region": "eu-west-1"},
        {"topics": (_TOPIC,), "archive_days": 7},
    ),
    "Environment.keys": (
        {"keys": _KEYS},
        {"keys": _KEYS, "encryption": Encryption.CMK, "region": "eu-west-1"},
    ),
    "Environment.cluster": ({"cluster": "arn:aws:ecs:us-east-1:111122223333:cluster/shared"},),
    "Topic.name": ({"name": "my-events"},),
    "Topic.producer_accounts": ({"producer_accounts": ("1",)},),
    "Topic.subscriber_accounts": ({"subscriber_accounts": ("1",)},),
    "ExistingTopic.arn": ({"arn": "arn:aws:sns:us-east-1:111122223333:events"},),
    "ExistingTopic.key_arn": ({"key_arn": "alias/theirs"},),
    "ExistingTopic.relay": (),
    "ExistingQueue.arn": ({"arn": "orders.fifo"},),
    "ExistingQueue.dead_letter_queue_arn": (
        {"dead_letter_queue_arn": "dead.fifo"},
        {"dead_letter_queue_arn": f"{_SQS}:dead"},
    ),
    "ExistingQueue.key_arn": ({"key_arn": "alias/theirs"},),
    "ExistingKeys.topic_arn": ({"topic_arn": "alias/ours"},),
    "ExistingKeys.queues_arn": ({"queues_arn": "alias/ours"},),
    "Consumer.topic": (),
    "Consumer.fifo": ({"fifo": False, "queue": _QUEUE},),
    "Consumer.queue": (),
    "Environment.removal": (),
    "Environment.encryption": (),
    "Environment.event_bytes_max": (
        {"event_bytes_max": 1_023},
        {"event_bytes_max": 262_145, "consumers": tuple(Consumer(name=f"c{number}") for number in range(101))},
    ),
    "Environment.archive_days": ({"archive_days": 0}, {"archive_days": 7, "removal": Removal.DESTROY}),
    "Environment.network": (),
    "Environment.image": ({"image": "worker"}, {"image": "docker.io/worker:1"}),
    "Environment.architecture": (),
    "Environment.spot": (),
    "Environment.database": (
        {"database": _DATABASE},
        {"database": NewDatabase(), "network": NewNetwork(availability_zones=1)},
        {"database": _DATABASE, "network": _NETWORK, "region": "eu-west-1"},
        {"database": _DATABASE, "network": _NETWORK, "account": "444455556666"},
    ),
    "Environment.relay": (),
    "Environment.outbox_lag_seconds": ({"outbox_lag_seconds": 9},),
    "Environment.log_retention_days": ({"log_retention_days": 2},),
    "Environment.alarm_emails": ({"alarm_emails": ("nobody",)},),
    "Environment.alarm_urls": ({"alarm_urls": ("http://example.com",)},),
    "Environment.alarm_slack": (),
    "Environment.alarm_topic_arn": (
        {"alarm_topic_arn": "on-call"},
        {"alarm_topic_arn": _ON_CALL, "region": "eu-west-1"},
        {"alarm_topic_arn": _ON_CALL, "alarm_emails": ("a@example.com",)},
    ),
    "Environment.silent": (),
    "SlackChannel.workspace_id": ({"workspace_id": ""},),
    "SlackChannel.channel_id": ({"channel_id": ""},),
    "Environment.tags": (
        {"tags": {"environment": "x"}},
        {"tags": {"Team": "x", "team": "x"}},
        {"tags": {f"key{number}": "" for number in range(46)}},
    ),
    "Consumer.name": ({"name": "Billing"}, {"name": "billing-dlq"}, {"name": "relay"}, {"name": "topic"}),
    "Consumer.filter_policy": (
        {"filter_policy": {}},
        {"filter_policy": {"region": ()}},
        {"filter_policy": {"$and": ["eu"]}},
        {"filter_policy": {"$or": [{"region": ["eu"]}]}},
        {"filter_policy": {"region": [{"prefx": "eu"}]}},
        {"filter_policy": {"one": ["x"] * 13, "two": ["x"] * 13}},
    ),
    "Consumer.visibility_timeout_seconds": ({"visibility_timeout_seconds": 0}, {"visibility_timeout_seconds": 31}),
    "Consumer.max_attempts": ({"max_attempts": 0},),
    "Consumer.message_retention_seconds": ({"message_retention_seconds": 1}, {"message_retention_seconds": 300}),
    "Consumer.dead_letter_retention_seconds": (
        {"dead_letter_retention_seconds": 1},
        {"dead_letter_retention_seconds": 3_600},
    ),
    "Consumer.processing_seconds": ({"processing_seconds": 0},),
    "Consumer.acceptable_latency_seconds": (
        {"acceptable_latency_seconds": 0},
        {"acceptable_latency_seconds": 7_200, "processing_seconds": 0.1},
    ),
    "Consumer.lanes": ({"lanes": 0},),
    "Consumer.expected_groups": ({"expected_groups": 0},),
    "Consumer.min_tasks": ({"min_tasks": 11}, {"min_tasks": 0}),
    "Consumer.max_tasks": ({"max_tasks": 0}, {"max_tasks": 26}),
    "Consumer.stop_timeout_seconds": ({"stop_timeout_seconds": 121},),
    "Consumer.cpu": ({"cpu": 100},),
    "Consumer.memory_mib": ({"memory_mib": 100},),
    "Consumer.image": ({"image": "worker"},),
    "Consumer.handlers": ({"handlers": "orders/billing.py"},),
    "Consumer.poison": ({"poison": Poison.PARK, "gaps": Gaps.HALT, "filter_policy": {"region": ["eu"]}},),
    "Consumer.gaps": (
        {"poison": Poison.PARK},
        {"gaps": Gaps.WAIT, "filter_policy": {"region": ["eu"]}},
        {"gaps": Gaps.WAIT, "fifo": False},
    ),
    "Consumer.gap_wait_seconds": ({"gap_wait_seconds": 0},),
    "Consumer.joined_at": ({"joined_at": datetime.fromisoformat("2026-11-22")},),
    "Consumer.inbox_retention_seconds": ({"inbox_retention_seconds": 86_400},),
    "Consumer.automatic_redrive": (
        {"automatic_redrive": AutomaticRedrive()},
        {"automatic_redrive": AutomaticRedrive(), "fifo": False, "handlers": "orders.billing"},
    ),
    "AutomaticRedrive.quiet_seconds": ({"quiet_seconds": 90},),
    "AutomaticRedrive.messages_max": ({"messages_max": 0},),
    "AutomaticRedrive.attempts_max": ({"attempts_max": 0},),
    "NewNetwork.cidr": ({"cidr": "10.0.0.0/8"},),
    "NewNetwork.availability_zones": ({"availability_zones": 4},),
    "NewNetwork.restrict_default_security_group": (),
    "ExistingNetwork.vpc_id": ({"vpc_id": "mine"},),
    "ExistingNetwork.subnet_ids": ({"subnet_ids": ()},),
    "NewDatabase.min_acus": ({"min_acus": 0.7}, {"min_acus": 4.5}),
    "NewDatabase.max_acus": ({"max_acus": 0.5},),
    "NewDatabase.pause_after_seconds": ({"pause_after_seconds": 299}, {"pause_after_seconds": 300}),
    "NewDatabase.standby": (),
    "NewDatabase.backup_days": ({"backup_days": 0},),
    "NewDatabase.engine_version": ({"engine_version": "15.4"},),
    "ExistingDatabase.secret_arn": ({"secret_arn": "sluice"},),
    "ExistingDatabase.security_group_id": ({"security_group_id": "database"},),
    "ExistingDatabase.port": ({"port": 0},),
    "ExistingDatabase.secret_key_arn": ({"secret_key_arn": "sluice"},),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One field as the page tells it."""

    name: str
    unit: str
    default: str
    effect: str
    allowed: str


def rows(declared: type) -> list[Row]:
    """Return every field of a class of the declaration, in its order."""
    effects, hints = argument_texts(declared), get_type_hints(declared)
    return [
        Row(
            name=field.name,
            unit=_unit(f"{declared.__name__}.{field.name}", hints[field.name]),
            default=_default(field),
            effect=_effect(effects[field.name], hints[field.name]),
            allowed=_allowed(declared, field.name),
        )
        for field in fields(declared)
    ]


def argument_texts(declared: type) -> dict[str, str]:
    """Return what the docstring's Args section says of each argument, in one line each."""
    _, _, section = (inspect.getdoc(declared) or "").partition("\nArgs:\n")
    texts: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        started = re.fullmatch(r"    (\w+): (.*)", line)
        if started:
            name, texts[started[1]] = started[1], started[2]
        elif line.strip():
            texts[name] += " " + line.strip()
    return texts


def differences() -> list[tuple[str, list[str]]]:
    """Return every field that some declared environment sets otherwise than its default, with its value in each.

    Fields of the consumers count once where all consumers of an environment agree.
    """
    table: dict[str, list[str]] = {}
    for field in fields(Environment):
        if field.name not in ("name", "consumers", "network", "database"):
            table[field.name] = [show(getattr(environment, field.name)) for environment in ENVIRONMENTS.values()]
    parts: tuple[tuple[str, list[list[Any]]], ...] = (
        ("network", [[environment.network] for environment in ENVIRONMENTS.values()]),
        ("database", [[environment.database] for environment in ENVIRONMENTS.values()]),
        ("consumers", [list(environment.consumers) for environment in ENVIRONMENTS.values()]),
    )
    for prefix, values in parts:
        names = dict.fromkeys(field.name for group in values for value in group for field in fields(value))
        for name in names:
            table[f"{prefix}.{name}"] = [
                ", ".join(dict.fromkeys(show(getattr(value, name, None)) for value in group)) for group in values
            ]
    del table["consumers.name"]
    return [(name, shown) for name, shown in table.items() if len(set(shown)) > 1]


def show(value: object) -> str:
    """Return a value as it is written in the declaration, long numbers with their thousands."""
    if isinstance(value, Enum):
        return f"`{type(value).__name__}.{value.name}`"
    if isinstance(value, NewNetwork):
        return "`NewNetwork()`" if value == NewNetwork() else f"`{value}`"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return f"`{value!r}`"


def _effect(text: str, hint: object) -> str:
    """Return what the argument does; where it takes words, with what their class says, and nothing said twice."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        meaning = inspect.getdoc(hint) or ""
        first, _, further = text.partition(". ")
        text = f"{meaning} {further}" if meaning.lower().startswith(first.rstrip(".").lower()) else f"{text} {meaning}"
    return text[0].upper() + text[1:].rstrip()


def _default(field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return show(field.default)
    return "required" if field.default_factory is MISSING else show(field.default_factory())


def _unit(name: str, hint: object) -> str:
    if name in _UNITS_OF:
        return _UNITS_OF[name]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(map(show, hint))
    unit = _UNITS.get(name.rpartition("_")[2])
    if unit is None and hint is str:
        return "text"
    assert unit is not None, f"tools/declared_fields.py knows no unit for {name}"
    return unit


def _allowed(declared: type, name: str) -> str:
    """Return what the class says is allowed, for every wrong value of the field."""
    lines = []
    field = f"{declared.__name__}.{name}"
    assert field in _REFUSED, (
        f"tools/declared_fields.py has no wrong value of {field}: give it one, or () if none is refused"
    )
    for wrong in _REFUSED[field]:
        try:
            declared(**{**_SOUND[declared], **wrong})
        except ConfigError as error:
            lines.append(str(error).partition(", allowed is ")[2])
        else:
            raise AssertionError(
                f"{declared.__name__} accepts {wrong}: tools/declared_fields.py wants a wrong value there"
            )
    return "; ".join(dict.fromkeys(lines))
