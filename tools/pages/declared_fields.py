"""Every field of the declaration as a table: unit, default, effect, and what is refused in the program's own words.

The effect comes from the class's docstring, default and rule from the field. For the rules between fields, the class is
built with the wrong values of `_BREAKING`: the errors that it raises say what is allowed.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from sluice.declaration import (
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
    load_declaration,
)
from sluice.declaration.validation import rule_of
from sluice.errors import ConfigError

# The shipped environments, not those of the project's own environments.py.
ENVIRONMENTS = load_declaration(Path(__file__).parents[2] / "tests" / "support" / "declarations" / "environments.py")
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
    Lambda,
    Hourly,
)

_UNITS = {
    "seconds": "seconds",
    "days": "days",
    "mib": "MiB",
    "mb": "MB, of 1,048,576 bytes each",
    "tasks": "tasks",
    "groups": "message groups",
    "zones": "zones",
    "attempts": "receives",
    "acus": "ACUs, of about 2 GiB each",
    "arn": "ARN",
    "account": "account id",
    "accounts": "account ids",
    "image": "image",
    "topic": "name of a topic",
    "region": "region",
    "emails": "addresses",
    "urls": "HTTPS addresses",
    "port": "TCP port",
    "version": "version",
    "connections": "connections",
}  # by the name's last word
_UNITS_OF = {
    "Consumer.lanes": "message groups per task",
    "Consumer.cpu": "CPU units, 1,024 a vCPU",
    "Consumer.types": "types of events",
    "Consumer.filter_policy": "mapping of attribute to conditions",
    "Consumer.joined_at": "aware datetime",
    "Consumer.handlers": "Python module",
    "Consumer.stack": "name of a stack",
    "AutomaticRedrive.messages_max": "messages",
    "AutomaticRedrive.attempts_max": "times",
    "Topic.bundle_events_max": "events of one message",
    "ExistingTopic.bundle_events_max": "events of one message",
    "Lambda.batch_size": "messages",
    "Lambda.maximum_concurrency": "invocations",
    "Lambda.reserved_concurrency": "invocations",
    "Lambda.pollers_min": "pollers",
    "Lambda.pollers_max": "pollers",
    "Lambda.receives_max": "receives",
    "Lambda.package": "folder of the project",
    "Lambda.entry_point": "Python module and function",
    "Environment.cluster": "name of an ECS cluster",
    "Environment.event_bytes_max": "bytes",
    "Environment.migrate": "Python module, or command and arguments",
    "Environment.tags": "mapping of key to value",
    "SlackChannel.workspace_id": "Slack workspace id",
    "SlackChannel.channel_id": "Slack channel id",
    "NewNetwork.cidr": "IPv4 network",
    "NewNetwork.producer_resources": "ARNs",
    "NewNetwork.availability_zones_max": "zones",
    "NewDatabase.generated_identifier": "identifier of a cluster",
    "ExistingNetwork.vpc_id": "VPC id",
    "ExistingNetwork.subnet_ids": "subnet ids",
    "ExistingDatabase.security_group_id": "security group id",
    "ExistingDatabase.resource_id": "resource id of RDS",
    "ExistingDatabase.host": "host",
    "ExistingDatabase.database_name": "name of a database",
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
# Correct values of each class, to which one wrong value of `_BREAKING` is added.
_SOUND: dict[type, Mapping[str, object]] = {
    Environment: {"name": "demo", "consumers": (Consumer(name="billing"),)},
    Consumer: {"name": "billing"},
    ExistingQueue: {"arn": _QUEUE.arn, "dead_letter_queue_arn": _QUEUE.dead_letter_queue_arn},
    NewDatabase: {},
    NewNetwork: {},
    Lambda: {},
    Topic: {"subscriber_accounts": ("444455556666",)},
    ExistingTopic: {"arn": _TOPIC.arn, "relay": True},
    ExistingDatabase: {"secret_arn": _DATABASE.secret_arn, "security_group_id": _DATABASE.security_group_id},
}
# Values that break a rule between fields. Each mapping has all fields that are needed for the error.
_BREAKING: dict[str, tuple[Mapping[str, object], ...]] = {
    "Environment.consumers": (
        {"consumers": (Consumer(name="a-b"), Consumer(name="ab"))},
        {"consumers": (Consumer(name="billing", stack="more"),)},
    ),
    "Environment.migrate": ({"migrate": "shop.tables"},),
    "Environment.region": ({"region": "cn-north-1"},),
    "Environment.topics": (
        {"topics": (Topic(), Topic())},
        {"topics": (_TOPIC,), "region": "eu-west-1"},
        {"topics": (_TOPIC,), "archive_days": 7},
        {"topics": (Topic(bundle_events_max=73),)},
        {"topics": (Topic(bundle_events_max=72),), "consumers": (Consumer(name="billing", max_attempts=6),)},
        {"topics": (Topic(bundle_events_max=2),), "consumers": (Consumer(name="billing", fifo=False),)},
        {"topics": (Topic(), Topic(name="new")), "consumers": (Consumer(name="billing", topic="events"),)},
    ),
    "Environment.keys": ({"keys": _KEYS}, {"keys": _KEYS, "encryption": Encryption.CMK, "region": "eu-west-1"}),
    "Environment.event_bytes_max": (
        {"event_bytes_max": 262_145, "consumers": tuple(Consumer(name=f"c{number}") for number in range(101))},
    ),
    "Environment.archive_days": ({"archive_days": 7, "removal": Removal.DESTROY},),
    "Environment.image": ({"image": "worker"}, {"image": "docker.io/worker:1"}),
    "Environment.database": (
        {"database": _DATABASE},
        {"database": NewDatabase(), "network": NewNetwork(availability_zones=1)},
        {"database": NewDatabase(max_acus=1, other_connections=100)},
        {"database": NewDatabase(vault_days=7), "removal": Removal.DESTROY},
        {"database": NewDatabase(vault_days=7), "application": "orders-of-the-whole-company", "name": "a" * 30},
        {"database": replace(_DATABASE, connections=1), "network": _NETWORK},
        {"database": _DATABASE, "network": _NETWORK, "region": "eu-west-1"},
        {"database": _DATABASE, "network": _NETWORK, "account": "444455556666"},
    ),
    "Environment.alarm_emails": ({"alarm_emails": ("nobody",)},),
    "Environment.alarm_urls": ({"alarm_urls": ("http://example.com",)},),
    "Environment.alarm_topic_arn": (
        {"alarm_topic_arn": _ON_CALL, "region": "eu-west-1"},
        {"alarm_topic_arn": _ON_CALL, "alarm_emails": ("a@example.com",)},
    ),
    "Environment.tags": (
        {"tags": {"environment": "x"}},
        {"tags": {"Team": "x", "team": "x"}},
        {"tags": {f"key{number}": "" for number in range(46)}},
    ),
    "Topic.bundle_events_max": ({"bundle_events_max": 2},),
    "ExistingTopic.bundle_events_max": ({"bundle_events_max": 2},),
    "ExistingQueue.dead_letter_queue_arn": ({"dead_letter_queue_arn": f"{_SQS}:dead"},),
    "Consumer.name": ({"name": "billing-dlq"}, {"name": "relay"}, {"name": "topic"}),
    "Consumer.fifo": ({"fifo": False, "queue": _QUEUE},),
    "Consumer.database_connections": ({"database_connections": 5},),
    "Consumer.filter_policy": (
        {"filter_policy": {}},
        {"filter_policy": {"region": ()}},
        {"filter_policy": {"$and": ["eu"]}},
        {"filter_policy": {"$or": [{"region": ["eu"]}]}},
        {"filter_policy": {"region": [{"prefx": "eu"}]}},
        {"filter_policy": {"one": ["x"] * 13, "two": ["x"] * 13}},
    ),
    "Consumer.visibility_timeout_seconds": (
        {"visibility_timeout_seconds": 31},
        {"runtime": Lambda(timeout_seconds=11)},
    ),
    "Consumer.max_attempts": ({"runtime": Lambda(receives_max=19)},),
    "Consumer.processing_seconds": ({"runtime": Lambda(batch_size=10, timeout_seconds=9)},),
    "Consumer.message_retention_seconds": ({"message_retention_seconds": 300},),
    "Consumer.dead_letter_retention_seconds": ({"dead_letter_retention_seconds": 3_600},),
    "Consumer.acceptable_latency_seconds": (
        {"acceptable_latency_seconds": 0},
        {"acceptable_latency_seconds": 7_200, "processing_seconds": 0.1},
    ),
    "Consumer.min_tasks": ({"min_tasks": 11}, {"min_tasks": 0}),
    "Consumer.max_tasks": ({"max_tasks": 26},),
    "Consumer.memory_mib": ({"memory_mib": 100},),
    "Consumer.image": ({"image": "worker"},),
    "Consumer.commit": ({"commit": Commit.BUNDLE, "fifo": False},),
    "Consumer.poison": ({"poison": Poison.PARK, "gaps": Gaps.HALT, "filter_policy": {"region": ["eu"]}},),
    "Consumer.gaps": (
        {"poison": Poison.PARK},
        {"gaps": Gaps.WAIT, "filter_policy": {"region": ["eu"]}},
        {"gaps": Gaps.WAIT, "fifo": False},
    ),
    "Consumer.inbox_retention_seconds": ({"inbox_retention_seconds": 86_400},),
    "Consumer.automatic_redrive": (
        {"automatic_redrive": AutomaticRedrive()},
        {"automatic_redrive": AutomaticRedrive(), "fifo": False, "handlers": "orders.billing"},
    ),
    "Consumer.runtime": (
        {"runtime": Lambda()},
        {"runtime": Lambda(), "fifo": False, "handlers": "orders.billing"},
    ),
    "Environment.verification": ({"verification": Hourly()},),
    "Lambda.pollers_min": ({"pollers_min": 3, "pollers_max": 2},),
    "Lambda.pollers_max": ({"pollers_max": 2},),
    "Lambda.maximum_concurrency": ({"maximum_concurrency": 2, "pollers_min": 2, "pollers_max": 2},),
    "Lambda.reserved_concurrency": ({"reserved_concurrency": 2, "maximum_concurrency": 3},),
    "NewNetwork.availability_zones": ({"availability_zones": 2, "availability_zones_max": 1},),
    "ExistingDatabase.users": ({"users": DatabaseUsers.ROLES},),
    "ExistingDatabase.database_name": ({"database_name": "shop"},),
    "NewDatabase.min_acus": ({"min_acus": 4.5},),
    "NewDatabase.max_acus": (),
    "NewDatabase.pause_after_seconds": ({"pause_after_seconds": 300},),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRow:
    """One field, as a row of the page."""

    name: str
    unit: str
    default: str
    effect: str
    allowed: str


def rows(declared: type) -> list[FieldRow]:
    """Return every field of a class of the declaration, in its order."""
    effects, hints = argument_texts(declared), get_type_hints(declared)
    return [
        FieldRow(
            name=field.name,
            unit=_unit(f"{declared.__name__}.{field.name}", hints[field.name]),
            default=_default(field),
            effect=_effect(effects[field.name], hints[field.name]),
            allowed=_allowed_text(declared, field),
        )
        for field in fields(declared)
    ]


def argument_texts(declared: type) -> dict[str, str]:
    """Return each argument's text in the Args section of a class's docstring, as one line."""
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
    """Return every field whose value differs between the environments, with its value in each.

    A value that all consumers of an environment share is shown once.
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
    """Return the effect of an argument; an enumeration's own docstring is added, without repeating its first words."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        meaning = inspect.getdoc(hint) or ""
        first, _, further = text.partition(". ")
        text = f"{meaning} {further}" if meaning.lower().startswith(first.rstrip(".").lower()) else f"{text} {meaning}"
    return text[0].upper() + text[1:].rstrip()


def _default(field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return show(field.default)
    return "required" if field.default_factory is MISSING else show(field.default_factory())


def _unit(name: str, hint: Any) -> str:
    """Return the unit of a field, from its name, from the last word of the name, or from its type."""
    unit = _UNITS_OF.get(name, _UNITS.get(re.split(r"[._]", name)[-1]))
    if unit is not None:
        return unit
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(map(show, hint))
    if hint is bool:
        return "True or False"
    kinds = re.findall(r"\b[A-Z]\w+", str(hint)) if not isinstance(hint, type) else []
    kinds = [f"`{kind}`" for kind in dict.fromkeys(kinds) if kind != "None"]
    if kinds:
        return f"{' and '.join(kinds)} values" if get_origin(hint) is tuple else " or ".join(kinds)
    assert hint is str, f"tools/pages/declared_fields.py knows no unit for {name}"
    return "text"


def _allowed_text(declared: type, field: "Field[Any]") -> str:
    """Return what the field's rule allows, and what the errors for the values of `_BREAKING` allow."""
    rule = rule_of(field)
    lines = [] if rule is None else [rule.allowed]
    for wrong in _BREAKING.get(f"{declared.__name__}.{field.name}", ()):
        try:
            declared(**{**_SOUND[declared], **wrong})
        except ConfigError as error:
            lines.append(str(error).partition(", allowed is ")[2])
        else:
            raise AssertionError(
                f"{declared.__name__} accepts {wrong}: tools/pages/declared_fields.py wants a wrong value there"
            )
    return "; ".join(dict.fromkeys(lines))
