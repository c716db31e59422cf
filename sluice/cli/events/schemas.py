"""Compare two JSON Schemas: whether the consumer's schema allows every value that the producer's schema allows.

In names, `sent` is the producer's schema and `read` the consumer's. Only keywords that pydantic writes are understood;
any other keyword has to be equal on both sides. A producer sends no field that its schema does not name, unless the
schema has `additionalProperties`.

https://json-schema.org/draft/2020-12/json-schema-validation (read 2026-11-27)
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

type Schema = Mapping[str, Any]

CODE = "x-checked-by"
"""A keyword of ours in a schema: the names of functions that check more than the schema says."""
_REMARKS = {"title", "description", "default", "examples", "deprecated", "discriminator", "readOnly", "writeOnly"} | {
    "uniqueItems"  # pydantic reads a set of any list
}
_UNIONS = ("anyOf", "oneOf")
_STRUCTURE = {"type", "enum", "const", "$ref", *_UNIONS}
_OF_TYPE: Mapping[str, set[str]] = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems"},
}
_ANY_TEXT = {"binary", "password", "path"}
"""Formats as which pydantic accepts any text."""
_FORMATS = {"date", "date-time", "decimal", "duration", "email", "ipv4", "ipv6", "time", "uri", "uuid"}
"""Formats as which pydantic accepts only some texts."""
_AT_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_AT_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_NUMBERS = {"integer", "number"}
_WITHOUT: Mapping[str, float] = {"minLength": 0, "minItems": 0, "minProperties": 0}
"""The bound that holds where a schema does not have the keyword."""


class Answer(Enum):
    """The result of a comparison, the worst first."""

    MISTAKE = "mistake"
    UNKNOWN = "unknown"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """A field whose values the consumer may be unable to read, or of which that cannot be told.

    Args:
        field: its path, such as `data.items[].price`; empty for the event as a whole.
        reason: in words.
    """

    answer: Answer
    field: str
    reason: str


def worst(answers: Iterable[Answer]) -> Answer:
    """Return the worst of several answers; OK where there are none."""
    found = set(answers)
    return next((answer for answer in Answer if answer in found), Answer.OK)


class Comparison:
    """Compares a producer's schema with a consumer's.

    Args:
        sent: looks up a `$ref` of the producer's schema.
        read: looks up a `$ref` of the consumer's schema.
    """

    def __init__(self, sent: Callable[[str], Schema], read: Callable[[str], Schema]) -> None:
        self._sent, self._read = sent, read
        self._under_way: set[tuple[str, str]] = set()

    def compare(self, sent: Schema | bool, read: Schema | bool, field: str = "data") -> list[Finding]:
        """Return the fields whose sent values may not be read; none where every sent value can be read."""
        here = (json.dumps(sent, sort_keys=True), json.dumps(read, sort_keys=True))
        if here in self._under_way:  # a class that contains itself: this pair is compared further up
            return []
        self._under_way.add(here)
        try:
            given, wanted = _resolve(sent, self._sent), _resolve(read, self._read)
            schema = {keyword: kept for keyword, kept in wanted.items() if keyword != CODE}
            return [*_compare_code(given, wanted, field), *self._compare(given, schema, field)]
        finally:
            self._under_way.remove(here)

    def _compare(self, sent: Schema, read: Schema, field: str) -> Iterator[Finding]:
        """Compare two schemas without references; unions and choices first, because they have no single type."""
        if not read.keys() - _REMARKS or sent.get("not") == {}:  # anything is read, or nothing is sent
            return
        if read.get("not") == {}:
            yield Finding(Answer.MISTAKE, field, "something is sent where nothing is read")
        elif (union := _union(sent)) is not None:
            for branch in union:
                yield from self.compare(branch, read, field)
        elif (choices := _choices(sent)) is not None:
            for choice in choices:
                yield from self._compare_value(choice, read, field)
        elif (union := _union(read)) is not None:
            yield from self._compare_with_any(sent, union, field)
        elif "type" not in sent:
            yield Finding(Answer.UNKNOWN, field, f"anything may be sent, and {_words(read)} is read")
        elif (choices := _choices(read)) is not None:
            yield Finding(Answer.MISTAKE, field, f"any {_words(sent)} may be sent, read is {_list_text(choices)}")
        else:
            yield from self._compare_types(sent, read, field)

    def _compare_value(self, value: object, read: Schema, field: str) -> Iterator[Finding]:
        """Compare one value of a producer's `const` or `enum` with the consumer's schema."""
        read = _resolve(read, self._read)
        if (union := _union(read)) is not None:
            tried = [list(self._compare_value(value, each, field)) for each in union]
            if all(tried):
                may_be = any(finding.answer is Answer.UNKNOWN for findings in tried for finding in findings)
                answer = Answer.UNKNOWN if may_be else Answer.MISTAKE
                yield Finding(answer, field, f"{value!r} may be sent, read is {_words(read)}")
        elif (choices := _choices(read)) is not None:
            if not any(type(choice) is type(value) and choice == value for choice in choices):
                yield Finding(Answer.MISTAKE, field, f"{value!r} may be sent, read is {_list_text(choices)}")
        else:
            sent: dict[str, Any] = {"type": _type_of(value)}
            if sent["type"] in _NUMBERS:
                sent |= {"minimum": value, "maximum": value}
            # No text is matched with a pattern or format: a finding about a value of the right type is unknown.
            is_right_type = sent["type"] not in _NUMBERS and _is_within(sent["type"], read.get("type", sent["type"]))
            for found in self._compare_types(sent, read, field):
                unknown = Finding(Answer.UNKNOWN, field, f"{value!r} may be sent: {found.reason}")
                yield unknown if is_right_type else found

    def _compare_with_any(self, sent: Schema, read: list[Schema], field: str) -> Iterator[Finding]:
        """Compare a producer's schema with a consumer's union, of which each branch may read some of the values."""
        findings_by_branch = [(_resolve(each, self._read), self.compare(sent, each, field)) for each in read]
        if not all(findings for _, findings in findings_by_branch):
            return
        findings_of_overlapping = [findings for each, findings in findings_by_branch if _overlaps(sent, each)]
        if not findings_of_overlapping:
            words = " or ".join(_words(each) for each, _ in findings_by_branch)
            yield Finding(Answer.MISTAKE, field, f"{_words(sent)} is sent, read is {words}")
        elif len(findings_of_overlapping) == 1:
            yield from findings_of_overlapping[0]
        else:
            yield Finding(Answer.UNKNOWN, field, "several that are read may take what is sent, each a part of it")

    def _compare_types(self, sent: Schema, read: Schema, field: str) -> Iterator[Finding]:
        """Compare two schemas of one type each: the type, its keywords, and the fields or items."""
        kind, wanted = sent["type"], read.get("type")
        if wanted is not None and not _is_within(kind, wanted):
            yield Finding(Answer.MISTAKE, field, f"{_words(sent)} is sent, read is {_words(read)}")
            return
        yield from _compare_keywords(sent, read, field)
        if kind == "object":
            yield from self._compare_fields(sent, read, field)
        elif kind == "array":
            yield from self._compare_items(sent, read, field)

    def _compare_fields(self, sent: Schema, read: Schema, field: str) -> Iterator[Finding]:
        """Compare the fields of two objects; `more_…` is the schema of fields that are not named, False where none is.

        A producer that does not say so sends no further fields, a consumer that does not say so reads them.
        """
        sends, reads = sent.get("properties", {}), read.get("properties", {})
        more_sent, more_read = sent.get("additionalProperties", False), read.get("additionalProperties", True)
        for name in read.get("required", ()):
            if name not in sends and more_sent is False:
                yield Finding(Answer.MISTAKE, f"{field}.{name}", "it is not sent, and has to be there")
            elif name not in sent.get("required", ()):
                yield Finding(Answer.MISTAKE, f"{field}.{name}", "it may be missing, and has to be there")
        for name, schema in sends.items():
            if name in reads or more_read is not False:
                yield from self.compare(schema, reads.get(name, more_read), f"{field}.{name}")
            else:
                yield Finding(Answer.MISTAKE, f"{field}.{name}", "it is sent, and no further field is read")
        if more_sent is not False:
            for name, schema in reads.items():
                if name not in sends:
                    yield from self.compare(more_sent, schema, f"{field}.{name}")
            if more_read is False:
                yield Finding(Answer.MISTAKE, field, "further fields may be sent, and none is read")
            else:
                yield from self.compare(more_sent, more_read, f"{field}.*")

    def _compare_items(self, sent: Schema, read: Schema, field: str) -> Iterator[Finding]:
        """Compare the items of two arrays: those with a schema for their position, then all that follow."""
        sends, reads = sent.get("prefixItems", []), read.get("prefixItems", [])
        for index in range(max(len(sends), len(reads))):
            sent_item, wanted = _item(sent, index), _item(read, index)
            if sent_item is not False:
                yield from self.compare(sent_item, wanted, f"{field}[{index}]")
        if len(sends) < sent.get("maxItems", float("inf")):
            yield from self.compare(sent.get("items", True), read.get("items", True), f"{field}[]")


def _compare_code(sent: Schema, read: Schema, field: str) -> Iterator[Finding]:
    """Yield a finding where functions check what is read, and did not check what is sent."""
    unknown = [name for name in read.get(CODE, ()) if name not in sent.get(CODE, ())]
    if unknown:
        yield Finding(Answer.UNKNOWN, field, f"{', '.join(unknown)} checks it, and what that allows is in no schema")


def _compare_keywords(sent: Schema, read: Schema, field: str) -> Iterator[Finding]:
    """Compare bounds, formats and other keywords of one type; a keyword that is not understood has to be equal."""
    done = _REMARKS | _STRUCTURE | _OF_TYPE.get(sent["type"], set())
    for keyword, wanted in read.items():
        given = sent.get(keyword, _WITHOUT.get(keyword))
        if keyword in done or keyword.startswith("x-") or given == wanted:
            continue
        if keyword in _AT_LEAST or keyword in _AT_MOST:
            if not _is_bounded(sent, keyword, wanted):
                shown = "without such a bound" if given is None else f"with {given}"
                yield Finding(Answer.MISTAKE, field, f"it is sent {shown}, read is {keyword} {wanted}")
        elif keyword == "format" and wanted in _ANY_TEXT:
            continue
        elif keyword == "format" and given is None and "pattern" not in sent and wanted in _FORMATS:
            yield Finding(Answer.MISTAKE, field, f"any {_words(sent)} may be sent, read is {_words(read)}")
        else:
            yield Finding(Answer.UNKNOWN, field, f"{keyword} is {given!r} in what is sent, {wanted!r} in what is read")


def _is_bounded(sent: Schema, keyword: str, wanted: float) -> bool:
    """Return whether every sent value keeps the consumer's bound, by the producer's inclusive or exclusive bound.

    Args:
        sent: the producer's schema.
        keyword: the consumer's bound, such as `exclusiveMinimum`.
        wanted: its value.
    """
    sign = 1 if keyword in _AT_LEAST else -1  # so that an upper bound is compared like a lower one
    inclusive = keyword.replace("exclusiveM", "m")
    exclusive = f"exclusive{inclusive[0].upper()}{inclusive[1:]}"
    bound, exclusive_bound = sent.get(inclusive, _WITHOUT.get(inclusive)), sent.get(exclusive)
    if exclusive_bound is not None and sign * exclusive_bound >= sign * wanted:
        return True
    return bound is not None and (sign * bound > sign * wanted or (bound == wanted and keyword == inclusive))


def _resolve(schema: Schema | bool, look_up: Callable[[str], Schema]) -> Schema:
    """Return the schema that a reference leads to, with the keywords beside the reference added to it."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    while "$ref" in schema or len(schema.get("allOf", ())) == 1:
        target = look_up(schema["$ref"]) if "$ref" in schema else schema["allOf"][0]
        beside = {keyword: kept for keyword, kept in schema.items() if keyword not in ("$ref", "allOf")}
        code = {CODE: [*target.get(CODE, ()), *schema.get(CODE, ())]} if CODE in target or CODE in schema else {}
        schema = {**target, **beside, **code}
    return schema


def _union(schema: Schema) -> list[Schema] | None:
    """Return the branches of a union; None where the schema is none."""
    return next((schema[name] for name in _UNIONS if name in schema), None)


def _choices(schema: Schema) -> list[object] | None:
    """Return the values of `const` or `enum`; None where the schema has neither."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _item(schema: Schema, index: int) -> Schema | bool:
    """Return the schema of the item at an index; False where an array may not be so long."""
    if index >= schema.get("maxItems", float("inf")):
        return False
    prefix: list[Schema] = schema.get("prefixItems", [])
    rest: Schema | bool = schema.get("items", True)
    return prefix[index] if index < len(prefix) else rest


def _is_within(kind: str, wanted: str) -> bool:
    """Return whether each value of one JSON type is also of the other; integers are numbers."""
    return kind == wanted or (kind == "integer" and wanted == "number")


def _overlaps(sent: Schema, read: Schema) -> bool:
    """Return whether a value may fit both schemas.

    It cannot where the types differ, or where a field of both is a constant with different values (a discriminator).
    """
    choices = _choices(read)
    kinds = {read.get("type", sent["type"])} if choices is None else set(map(_type_of, choices))
    for name, schema in sent.get("properties", {}).items():
        sends, reads = _choices(schema), _choices(read.get("properties", {}).get(name, {}))
        if sends is not None and reads is not None and not any(choice in reads for choice in sends):
            return False
    return any(kind == sent["type"] or {kind, sent["type"]} == _NUMBERS for kind in kinds)


def _type_of(value: object) -> str:
    """Return the JSON type of a Python value."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    found = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return found[type(value)]


def _words(schema: Schema) -> str:
    """Return a schema in a few words, for a finding's reason."""
    if (choices := _choices(schema)) is not None:
        return _list_text(choices)
    if (union := _union(schema)) is not None:
        return " or ".join(_words(each) for each in union)
    if "title" in schema and schema.get("type") == "object":
        return str(schema["title"])
    kind = schema.get("type", str(schema.get("$ref", "anything")).rpartition("/")[2])
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


def _list_text(choices: list[object]) -> str:
    return ", ".join(map(repr, choices))
