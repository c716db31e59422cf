"""An AsyncAPI document: the events that modules declare, each version with the JSON Schema of its envelope.

`sluice events asyncapi` writes the document, and `sluice events check` compares it. So a producer of another repository
keeps it under version control, and is compared without being imported.

https://www.asyncapi.com/docs/reference/specification/v3.0.0,
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md (read 2026-11-27)
"""

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from sluice.cli.events.schemas import CODE, Schema
from sluice.errors import ConfigError
from sluice.messaging.envelope import VERSION
from sluice.messaging.event_types import EventType, adapter, event_type_of

_SCHEMAS = "#/components/schemas/"
_TEXT = {"type": "string"}
_ENVELOPE: Mapping[str, Schema] = {
    "sluice": {"const": VERSION, "description": "version of the envelope"},
    "id": {**_TEXT, "description": "CloudEvents: id"},
    "type": {**_TEXT, "description": "CloudEvents: type"},
    "version": {"type": "integer", "description": "of the data; 1 where it is left out. CloudEvents: in dataschema"},
    "group": {**_TEXT, "description": "message group. CloudEvents: subject; as an extension partitionkey"},
    "seq": {"type": "integer", "minimum": 1, "description": "in its group. CloudEvents: as an extension sequence"},
    "epoch": {"type": "integer", "minimum": 1, "description": "in which the group began to count"},
    "first": {"type": "integer", "minimum": 1, "description": "first number of the group; 1 where it is left out"},
    "at": {"type": ["string", "null"], "format": "date-time", "description": "CloudEvents: time"},
    "trace": {
        "type": "object",
        "additionalProperties": _TEXT,
        "description": "W3C trace context. CloudEvents: as extensions traceparent, tracestate",
    },
    "hash": {**_TEXT, "description": "SHA-256 of type and data"},
}
_REQUIRED = ("sluice", "id", "type", "group", "seq", "epoch", "at", "hash", "data")


class DataSchemas(GenerateJsonSchema):
    """Makes the JSON Schema of an event's data, and adds the names of functions that check more than a schema can say.

    pydantic calls these methods, one for each kind of field or class.
    """

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        """Return whether a field is always there; when data is sent, a field with a default is there as well."""
        if self.mode == "serialization" and field["type"] != "typed-dict-field":
            return field.get("serialization_exclude_if") is None
        return super().field_is_required(field, total)

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        """Return the schema of a value that a function checks before pydantic does."""
        return _with_code(super().function_before_schema(schema), schema["function"]["function"])

    def function_after_schema(self, schema: core_schema.AfterValidatorFunctionSchema) -> JsonSchemaValue:
        """Return the schema of a value that a function checks after pydantic did."""
        return _with_code(super().function_after_schema(schema), schema["function"]["function"])

    def function_wrap_schema(self, schema: core_schema.WrapValidatorFunctionSchema) -> JsonSchemaValue:
        """Return the schema of a value that a function checks before and after pydantic does."""
        return _with_code(super().function_wrap_schema(schema), schema["function"]["function"])

    def function_plain_schema(self, schema: core_schema.PlainValidatorFunctionSchema) -> JsonSchemaValue:
        """Return the schema of a value that only a function reads: any value, unless the function declares a schema."""
        known = "json_schema_input_schema" in schema and self.mode == "validation"
        return _with_code(super().function_plain_schema(schema) if known else {}, schema["function"]["function"])

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """Return the schema of a decimal number; where it is text, with a format that plain text does not have."""
        found = super().decimal_schema(schema)
        branches = [
            {**branch, "format": "decimal"} if branch.get("type") == "string" else branch
            for branch in found.get("anyOf", [found])
        ]
        return {**found, "anyOf": branches} if "anyOf" in found else branches[0]

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Return the schema of a dataclass, with the name of its `__post_init__` if it has one."""
        found = super().dataclass_schema(schema)
        return _with_code(found, schema["cls"].__post_init__) if schema.get("post_init") else found

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a pydantic model, with the name of its `model_post_init` if it has one."""
        found = super().model_schema(schema)
        return _with_code(found, schema["cls"].model_post_init) if schema.get("post_init") else found


def _with_code(schema: JsonSchemaValue, function: object) -> JsonSchemaValue:
    """Return a schema that also names a function which checks the value; pydantic's own functions are left out."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", repr(function))
    if module is not None and module.partition(".")[0] in ("pydantic", "pydantic_core"):
        return schema
    return {**schema, CODE: [*schema.get(CODE, ()), name if module is None else f"{module}.{name}"]}


def data_schemas(types: Iterable[EventType], mode: JsonSchemaMode) -> tuple[dict[tuple[str, int], Schema], Schema]:
    """Return the schema of each version's data, by type and version, and the schemas that they refer to by name.

    Args:
        types: versions of event types.
        mode: `serialization` for data that is sent, `validation` for data that is read.

    Raises:
        ConfigError: a class has a field that JSON Schema has no words for.
    """
    listed = list(types)
    inputs: list[tuple[tuple[str, int], JsonSchemaMode, TypeAdapter[Any]]] = [
        ((event_type.type_, event_type.version), mode, adapter(event_type.model)) for event_type in listed
    ]
    try:
        found, named = TypeAdapter.json_schemas(
            inputs, ref_template=f"{_SCHEMAS}{{model}}", schema_generator=DataSchemas
        )
    except PydanticInvalidForJsonSchema as error:
        names = ", ".join(event_type.model.__name__ for event_type in listed)
        message = str(error).partition("\n")[0]
        raise ConfigError(f"one of {names} has a field that JSON Schema has no words for: {message}") from error
    return {key: schema for (key, _), schema in found.items()}, named.get("$defs", {})


def find_schema(named: Mapping[str, Schema], reference: str) -> Schema:
    """Return the schema that a `$ref` of our document names."""
    return named[reference.removeprefix(_SCHEMAS)]


def event_types_of(module: ModuleType) -> list[EventType]:
    """Return the event types of a module's classes, and their earlier versions, whose events may still be in queues.

    Raises:
        ConfigError: the module has no event type, or two classes for one version of a type.
    """
    found: dict[tuple[str, int], EventType] = {}
    for value in vars(module).values():
        if isinstance(value, type):
            for event_type in _versions(value):
                other = found.setdefault((event_type.type_, event_type.version), event_type)
                if other is not event_type:
                    names = f"{other.model.__name__} and {event_type.model.__name__}"
                    raise ConfigError(
                        f"module {module.__name__} has two classes of {event_type}, {names}; allowed is one"
                    )
    if not found:
        raise ConfigError(f"module {module.__name__} has no class under @event_type, allowed is one or more")
    return [found[key] for key in sorted(found)]


def _versions(model: type) -> Iterable[EventType]:
    """Return all versions of a class's event type; none for a class without `@event_type`."""
    try:
        return event_type_of(model).versions.values()
    except ConfigError:
        return ()


def load_module(name: str) -> ModuleType:
    """Import a module by its name.

    Raises:
        ConfigError: the module cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever a module does when it is imported
        raise ConfigError(
            f"{name!r} cannot be imported ({type(error).__name__}: {error}); name a module with classes under"
            " @event_type, or a file of `sluice events asyncapi`"
        ) from error


def write_document(types: Iterable[EventType], topic: str) -> dict[str, Any]:
    """Return the AsyncAPI document of the events that a topic's producers send."""
    data, named = data_schemas(types, "serialization")
    messages = {f"{type_}.{version}": _message(type_, version, schema) for (type_, version), schema in data.items()}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": topic, "version": "1.0.0", "description": "Written by `sluice events asyncapi`."},
        "channels": {
            "events": {
                "address": topic,
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
            }
        },
        "operations": {"send": {"action": "send", "channel": {"$ref": "#/channels/events"}}},
        "components": {"messages": messages, "schemas": dict(named)},
    }


def _message(type_: str, version: int, data: Schema) -> dict[str, Any]:
    """Return AsyncAPI's message object for one version of an event: our envelope around data of this schema."""
    is_first = version == 1
    fixed = {"type": {**_ENVELOPE["type"], "const": type_}, "version": {**_ENVELOPE["version"], "const": version}}
    return {
        "name": type_,
        "title": type_ if is_first else f"{type_}, version {version}",
        "contentType": "application/json",
        "headers": {"type": "object", "properties": {"type": {"type": "string", "const": type_}}, "required": ["type"]},
        "payload": {
            "type": "object",
            "properties": {**_ENVELOPE, **fixed, "data": data},
            "required": [*_REQUIRED] if is_first else [*_REQUIRED, "version"],
        },
    }


def read_document(path: Path) -> dict[str, Any]:
    """Read a document that `sluice events asyncapi` has written.

    Raises:
        ConfigError: the file is no such document.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read as JSON ({error}); give a file of `sluice events asyncapi`"
        ) from error
    try:
        list(sent_messages(document))
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no document of `sluice events asyncapi`; write it again") from error
    return cast("dict[str, Any]", document)


def sent_messages(document: Mapping[str, Any]) -> Iterator[tuple[str, int, Schema]]:
    """Yield type, version and the data's schema of each message of a document."""
    for message in document["components"]["messages"].values():
        properties = message["payload"]["properties"]
        yield properties["type"]["const"], properties["version"]["const"], properties["data"]
