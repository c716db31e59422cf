"""The declaration that a stack gives its task as JSON in a variable, because an image has no `environments.py`.

The version in the image may differ from that of the stack. So all fields are written, defaults too. The image refuses
a field that it does not know; so a field of later versions (`_LATER`) is written only where it has another
value. A field that is not written has the image's default.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from enum import Enum, EnumType
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from sluice.declaration.consumer import Consumer
from sluice.declaration.environment import Environment
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.errors import ConfigError

VARIABLE = "SLUICE_TASK_SETTINGS"
_ALLOWED = "what the environment's stacks wrote there; deploy them again, or unset it"
_SHOWN_CHARACTERS_MAX = 200
_LATER: Mapping[str, Any] = {
    "types": None,
    "database_connections": None,
    "migrate": None,
    "availability_zones_max": 3,
    "producer_resources": [],
    "runtime": None,
    "stack": None,
    "commit": "event",
    "verification": None,
    "entry_point": None,
    "bundle_events_max": 1,
    "foreign_subscribers_read_bundles": False,
}
"""Fields that older images do not know, each with the value that means the behaviour of those images."""
_ONE_TRY = Consumer(
    name="nobody", max_attempts=1, visibility_timeout_seconds=12, processing_seconds=1, stop_timeout_seconds=1
)
"""A consumer that takes bundles of as many events as any other does."""


def task_environment(
    environment: Environment, consumer: Consumer | None, topic: Topic | ExistingTopic | None = None
) -> Environment:
    """Return the part of an environment that a task reads.

    The rest is left out, so that a change of a tag or an address restarts no task.

    Args:
        environment: as declared.
        consumer: whose worker the task runs; None for a relay. A relay only reads how long the longest inbox remembers
            a group, because so long it keeps the group's counter.
        topic: the topic of the relay.
    """
    found = environment.topic(None if consumer is None else consumer.topic) if topic is None else topic
    part = _nobody(environment, found) if consumer is None else replace(consumer, image=None, stack=None)
    return Environment(
        name=environment.name,
        application=environment.application,
        account=environment.account,
        region=environment.region,
        topics=(_topic_of(found),),
        event_bytes_max=environment.event_bytes_max,
        consumers=(part,),
    )


def verified_environment(environment: Environment, topic: Topic | ExistingTopic) -> Environment:
    """Return the part of an environment that the comparison of a topic's outbox with all of its consumers reads."""
    part = task_environment(environment, None, topic)
    consumers = (replace(each, image=None, stack=None) for each in environment.consumers_of(topic))
    return replace(part, consumers=tuple(consumers) or part.consumers)


def _topic_of(topic: Topic | ExistingTopic) -> Topic | ExistingTopic:
    """Return the part of a topic that a task reads."""
    if isinstance(topic, ExistingTopic):
        return topic
    return Topic(name=topic.name, bundle_events_max=topic.bundle_events_max)


def _nobody(environment: Environment, topic: Topic | ExistingTopic) -> Consumer:
    """Return the placeholder for all consumers in a relay's settings; an environment needs at least one."""
    nobody = Consumer(name="nobody") if topic.bundle_events_max == 1 else _ONE_TRY
    longest = max(consumer.inbox_retention_seconds for consumer in (nobody, *environment.consumers))
    return replace(nobody, inbox_retention_seconds=longest)


def render(environment: Environment) -> str:
    """Return an environment as one line of JSON."""
    return json.dumps(_encode(environment), separators=(",", ":"))


def parse(text: str) -> Environment:
    """Return the environment that `render` wrote; it is checked like a declared one.

    Raises:
        ConfigError: the text is no such JSON, or a value in it is wrong.
    """
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            environment: Environment = _decode(found, Environment)
            return environment
    except ConfigError as error:
        raise ConfigError(f"{VARIABLE} is wrong: {error}; allowed is {_ALLOWED}") from error
    except (ValueError, RecursionError):
        pass
    raise ConfigError(f"{VARIABLE} is {text[:_SHOWN_CHARACTERS_MAX]!r}, allowed is {_ALLOWED}")


def _encode(value: Any) -> Any:
    """Return a declared value as JSON has it, with all its fields."""
    if is_dataclass(value):
        encoded = {field.name: _encode(getattr(value, field.name)) for field in fields(value)}
        return {name: each for name, each in encoded.items() if name not in _LATER or each != _LATER[name]}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _encode(mapped) for key, mapped in value.items()}
    return [_encode(element) for element in value] if isinstance(value, list | tuple) else value


def _decode(value: Any, kind: Any) -> Any:
    """Return a value of the declared type `kind` from its JSON.

    A value that does not fit is returned unchanged; the class whose field it is then refuses it.
    """
    if get_origin(kind) is UnionType:
        kinds = [arg for arg in get_args(kind) if arg is not NoneType]
        kind = next((member for member in kinds if _fits(value, member)), kinds[0])
    if isinstance(value, dict) and is_dataclass(kind):
        types = {field.name: field.type for field in fields(kind)}
        return kind(**{name: _decode(encoded, types.get(name)) for name, encoded in value.items()})  # type: ignore[operator]
    if isinstance(value, list) and get_origin(kind) is tuple:
        return tuple(_decode(element, get_args(kind)[0]) for element in value)
    if isinstance(value, str) and (isinstance(kind, EnumType) or kind is datetime):
        with suppress(ValueError):
            return kind(value) if isinstance(kind, EnumType) else datetime.fromisoformat(value)
    return value


def _fits(value: Any, kind: Any) -> bool:
    """Return whether JSON is of this declared class: it has no other fields."""
    return is_dataclass(kind) and isinstance(value, dict) and value.keys() <= {field.name for field in fields(kind)}
