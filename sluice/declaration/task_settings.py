"""Declared values as JSON and back: what a task is given by its stack, because its image carries no declaration.

All fields are written, defaults too: the image may be of another version than the stack. A field it does not know is
refused, one it is not given has its default; so what came later is written only where it is declared (`_LATER`).
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
_LATER = ("runtime",)
"""Fields that older images do not know, and that are None for what these do."""


def task_environment(
    environment: Environment, consumer: Consumer | None, topic: Topic | ExistingTopic | None = None
) -> Environment:
    """Return the part of an environment that a task reads: of a consumer, or of a topic's relay.

    What it does not read is left out, so that another tag or address starts no task again. All that a relay reads of
    consumers is for how long the longest inbox remembers a group: so long a group goes on counting in the outbox.
    """
    found = environment.topic(None if consumer is None else consumer.topic) if topic is None else topic
    part = _nobody(environment) if consumer is None else replace(consumer, image=None, stack=None)
    return Environment(
        name=environment.name,
        application=environment.application,
        account=environment.account,
        region=environment.region,
        topics=(found if isinstance(found, ExistingTopic) else Topic(name=found.name),),
        event_bytes_max=environment.event_bytes_max,
        consumers=(part,),
    )


def _nobody(environment: Environment) -> Consumer:
    """Return the consumer a relay is given, as an environment has one at least."""
    nobody = Consumer(name="nobody")
    longest = max(consumer.inbox_retention_seconds for consumer in (nobody, *environment.consumers))
    return replace(nobody, inbox_retention_seconds=longest)


def render(environment: Environment) -> str:
    """Return an environment as one line of JSON."""
    return json.dumps(_encode(environment), separators=(",", ":"))


def parse(text: str) -> Environment:
    """Return the environment that `render` wrote, checked like one that is declared.

    Raises:
        ConfigError: it cannot be read, or holds what cannot be right.
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
    if is_dataclass(value):
        encoded = {field.name: _encode(getattr(value, field.name)) for field in fields(value)}
        return {name: each for name, each in encoded.items() if each is not None or name not in _LATER}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _encode(mapped) for key, mapped in value.items()}
    return [_encode(element) for element in value] if isinstance(value, list | tuple) else value


def _decode(value: Any, kind: Any) -> Any:
    """Return a value of that type; what it cannot be made of is returned as it is, and refused where it is put."""
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
    return is_dataclass(kind) and isinstance(value, dict) and value.keys() <= {field.name for field in fields(kind)}
