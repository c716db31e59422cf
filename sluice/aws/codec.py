"""Requests and answers of one operation, by botocore's own models, compiled once into plain functions.

SQS speaks AWS JSON 1.0 and SNS the query protocol. Whatever these functions do not know, or botocore would refuse, is
`Unusual`: then botocore itself does the call or reads the answer, and says what there is to say.
"""

import base64
import json
import re
import string
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import repeat
from typing import Any
from urllib.parse import quote_plus

from botocore.parsers import ResponseParserError

_INTEGERS = ("integer", "long")
_DISTINCT_MAX = 40  # beyond, replacing one character after the other is slower than going through the text
_SAFE = (string.ascii_letters + string.digits + "_.-~").encode()
_PERCENT, _SPACE = ord("%"), ord(" ")
_PLAIN_XML = bytes(sorted({*range(ord(" "), 127), *b"\n\t"} - {*b"&]"}))
"""Characters of XML that mean what they are."""
_TAG = re.compile(r"<(\w+)>")
_ORDERS_KEPT = 16
_GROUPS_MIN = 2  # of one group alone, findall returns no tuple
_to_json = json.JSONEncoder().encode  # as json.dumps, which botocore uses


class Unusual(Exception):
    """Raised for a request or an answer that only botocore can treat."""


type Encode = Callable[[Any], Any]
type EncodeForm = Callable[[str, Any, list[str]], None]
type Decode = Callable[[Any], Any]


def request_body(operation: Any) -> Callable[[Mapping[str, Any]], bytes]:
    """Return a function from an operation's parameters to the body of its request; both may raise Unusual."""
    if operation.service_model.resolved_protocol == "json":
        encode = _json_structure(operation.input_shape)
        return lambda params: _to_json(encode(params)).encode("ascii")
    start = f"Action={operation.name}&Version={operation.metadata['apiVersion']}"
    encode_form = _form_structure(operation.input_shape)

    def form(params: Mapping[str, Any]) -> bytes:
        pieces = [start]
        encode_form("", params, pieces)
        return "".join(pieces).encode("ascii")

    return form


def request_headers(operation: Any) -> tuple[tuple[str, str], ...]:
    """Return the headers that the protocol prescribes for every request of an operation, in lower case."""
    model = operation.service_model
    if model.resolved_protocol == "query":
        return (("content-type", "application/x-www-form-urlencoded; charset=utf-8"),)
    if model.resolved_protocol != "json":
        raise Unusual
    compatible = (("x-amzn-query-mode", "true"),) if model.is_query_compatible else ()
    return (
        ("content-type", f"application/x-amz-json-{operation.metadata['jsonVersion']}"),
        ("x-amz-target", f"{operation.metadata['targetPrefix']}.{operation.name}"),
        *compatible,
    )


def answer(operation: Any) -> Callable[[bytes, Mapping[str, str]], dict[str, Any]]:
    """Return a function from body and headers of an answer with status 200 to boto3's result; both may raise Unusual.

    The function raises ResponseParserError for a body that should be JSON and is not.
    """
    parse = _json_answer if operation.service_model.resolved_protocol == "json" else _xml_answer
    parsed = parse(operation)

    def answer_of(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        result, found = parsed(body, headers)
        result["ResponseMetadata"] = {**found, "HTTPStatusCode": 200, "HTTPHeaders": headers, "RetryAttempts": 0}
        return result

    return answer_of


type _Parse = Callable[[bytes, Mapping[str, str]], tuple[dict[str, Any], dict[str, Any]]]


def _json_answer(operation: Any) -> _Parse:
    """Return a parser of an operation's answers in JSON, to the result and the metadata of the answer."""
    decode = _json_decoder(operation.output_shape) if operation.output_shape is not None else None

    def parse(body: bytes, headers: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        request_id = headers.get("x-amzn-requestid")
        metadata = {} if request_id is None else {"RequestId": request_id}
        # That there is nothing has to be said: a connection that ended after the head would be an empty queue.
        if decode is None or (not body and "content-length" in headers):
            return {}, metadata
        try:
            content = json.loads(body)
        except ValueError:
            content = None
        if type(content) is not dict:  # a page, or half an answer, which botocore takes for one that has nothing in it
            raise ResponseParserError("the answer is no object of JSON")
        try:
            return decode(content), metadata
        except (ValueError, TypeError, AttributeError):
            raise Unusual from None

    return parse


def _json_decoder(shape: Any) -> Decode:
    """Return a function that decodes a shape's value from JSON for boto3's results.

    Shapes not known here are Unusual.
    """
    if shape.type_name == "structure":
        return _json_structure_decoder(shape)
    if shape.type_name == "list":
        entry = _json_decoder(shape.member)
        return lambda value: [entry(item) for item in value]
    if shape.type_name == "map":
        content = _json_decoder(shape.value)
        return lambda value: {name: content(item) for name, item in value.items()}
    if shape.type_name == "blob":
        return base64.b64decode
    if shape.type_name in ("string", "boolean", *_INTEGERS):
        return _same
    raise Unusual


def _json_structure_decoder(shape: Any) -> Decode:
    """Return a decoder of a structure; a value whose members need no conversion is only copied."""
    if shape.is_document_type or shape.is_tagged_union:
        raise Unusual
    members = [
        (member.serialization.get("name", name), name, _json_decoder(member)) for name, member in shape.members.items()
    ]
    plain = frozenset(name for wire, name, of in members if wire == name and of is _same)

    def decode(value: Any) -> dict[str, Any]:
        if value.keys() <= plain and None not in value.values():
            return dict(value)
        get = value.get
        return {name: of(member) for wire, name, of in members if (member := get(wire)) is not None}

    return decode


def _same(value: Any) -> Any:
    """Return a value as it is: the decoder of strings, numbers and booleans."""
    return value


def _xml_answer(operation: Any) -> _Parse:
    """Return a parser of lists whose entries have plain fields; other XML, also with escapes, is left to botocore."""
    shape = operation.output_shape
    for member in shape.members.values():
        if (
            member.type_name != "list"
            or member.member.type_name != "structure"
            or member.member.serialization.get("name")
        ):
            raise Unusual
    lists = [
        (member.serialization.get("name", name), name, _xml_entries(member)) for name, member in shape.members.items()
    ]
    wrapper = shape.serialization["resultWrapper"]
    whole = re.compile(
        rf'(?:<\?xml version="1\.0"(?: encoding="(?i:utf-8)")?\?>)?\s*<{operation.name}Response(?: xmlns="[^"<>]*")?>'
        rf"\s*<{wrapper}>(.*)</{wrapper}>"
        r"\s*<ResponseMetadata>\s*<RequestId>([^<>]*)</RequestId>\s*</ResponseMetadata>"
        rf"\s*</{operation.name}Response>\s*",
        re.DOTALL,
    )

    def parse(body: bytes, _: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        found = None if body.translate(None, _PLAIN_XML) else whole.fullmatch(body.decode("ascii"))
        if found is None:
            raise Unusual
        result: dict[str, Any] = {}
        content, tags_count = found[1], 0
        for tag, name, entries in lists:
            _before, begin, rest = content.partition(f"<{tag}>")
            listed, end, _after = rest.partition(f"</{tag}>")
            if begin and end:
                result[name], its_count = entries(listed)
                tags_count += 2 + its_count
            elif f"<{tag}/>" in content:
                result[name] = []
                tags_count += 1
        if content.count("<") != tags_count:
            raise Unusual  # there is something else
        return result, {"RequestId": found[2]}

    return parse


def _xml_entries(shape: Any) -> Callable[[str], tuple[list[dict[str, Any]], int]]:
    """Return a parser of a list whose entries all have the same fields in one order; it also counts their tags."""
    entry = shape.member
    members = {its.serialization.get("name", name): (name, its) for name, its in entry.members.items()}
    kinds = {its.type_name for _, its in members.values()}
    marks = [shape.serialization, entry.serialization, *(its.serialization for _, its in members.values())]
    if not kinds <= {"string", "boolean"} or any("flattened" in mark or "xmlAttribute" in mark for mark in marks):
        raise Unusual
    flags = {name for name, its in members.values() if its.type_name == "boolean"}

    @lru_cache(_ORDERS_KEPT)
    def reader(tags: tuple[str, ...], gap: str) -> tuple[re.Pattern[str], list[str]]:
        known = [tag for tag in tags if tag in members]
        if len(set(tags)) < len(tags) or len(known) < _GROUPS_MIN:
            raise Unusual
        fields = [f"{gap}<{tag}>{'([^<]*)' if tag in members else '[^<]*'}</{tag}>" for tag in tags]
        return re.compile(f"<member>{''.join(fields)}{gap}</member>"), [members[tag][0] for tag in known]

    def entries(listed: str) -> tuple[list[dict[str, Any]], int]:
        first, end, _ = listed.partition("</member>")
        if not end:
            return [], 0
        tags = _TAG.findall(first)[1:]
        pattern, names = reader(tuple(tags), "" if first.startswith("<member><") else r"\s*")
        # No comprehension, and no `strict`, which takes longer than the rest: a group of the pattern has a name each.
        found: list[dict[str, Any]] = list(map(dict, map(zip, repeat(names), pattern.findall(listed))))
        for name in flags.intersection(names):
            for its in found:
                its[name] = its[name] == "true"
        return found, len(found) * 2 * (1 + len(tags))

    return entries


def _json_structure(shape: Any) -> Encode:
    """Return an encoder of a structure that refuses unknown members and missing required ones as Unusual."""
    if shape.is_document_type or shape.is_tagged_union:
        raise Unusual
    members = {
        name: (member.serialization.get("name", name), _json_encoder(member)) for name, member in shape.members.items()
    }
    required = tuple(shape.required_members)

    def encode(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Unusual
        try:
            encoded = {(of := members[name])[0]: of[1](member) for name, member in value.items()}
        except KeyError:
            raise Unusual from None
        for name in required:
            if name not in value:
                raise Unusual
        return encoded

    return encode


def _json_encoder(shape: Any) -> Encode:
    """Return a function from a parameter of a shape to its value in JSON."""
    if shape.type_name == "structure":
        return _json_structure(shape)
    if shape.type_name == "list":
        entry = _json_encoder(shape.member)
        return lambda value: [entry(item) for item in _require_type(value, list, shape)]
    if shape.type_name == "map":
        content, key = _json_encoder(shape.value), _json_encoder(shape.key)
        return lambda value: {key(name): content(item) for name, item in _require_type(value, dict, shape).items()}
    return _scalar(shape)


def _scalar(shape: Any) -> Encode:
    """Return an encoder of a bytes, string, boolean or integer value, which must be of that very type."""
    if shape.type_name == "blob":
        return lambda value: base64.b64encode(_require_type(value, bytes, shape)).decode("ascii")
    of_type: Any = {"string": str, "boolean": bool}.get(shape.type_name, int if shape.type_name in _INTEGERS else None)
    if of_type is None or shape.serialization.get("jsonvalue"):
        raise Unusual
    if "min" in shape.metadata:
        return lambda value: _require_type(value, of_type, shape)

    def encode(value: Any) -> Any:
        if type(value) is not of_type:
            raise Unusual
        return value

    return encode


def _require_type(value: Any, of_type: Any, shape: Any) -> Any:
    """Return a value of that very type, within the bound that botocore checks."""
    if type(value) is not of_type:
        raise Unusual
    least = shape.metadata.get("min")
    if least is not None and (value if of_type is int else len(value)) < least:
        raise Unusual
    return value


def _form_structure(shape: Any) -> EncodeForm:
    """Return a function that appends a structure's members to the pieces of a form, each under its prefix."""
    members = {
        name: (member.serialization.get("name", name), _form_encoder(member)) for name, member in shape.members.items()
    }
    required = tuple(shape.required_members)

    def encode(prefix: str, value: Any, pieces: list[str]) -> None:
        if type(value) is not dict:
            raise Unusual
        for name in required:
            if name not in value:
                raise Unusual
        for name, member in value.items():
            found = members.get(name)
            if found is None:
                raise Unusual
            found[1](f"{prefix}.{found[0]}" if prefix else found[0], member, pieces)

    return encode


def _form_encoder(shape: Any) -> EncodeForm:
    """Return a function that appends a value of a shape to the pieces of a form."""
    if shape.serialization.get("flattened"):
        raise Unusual
    if shape.type_name == "structure":
        return _form_structure(shape)
    if shape.type_name == "list":
        return _form_list(shape)
    if shape.type_name == "map":
        return _form_map(shape)
    scalar, is_flag = _scalar(shape), shape.type_name == "boolean"

    def encode(prefix: str, value: Any, pieces: list[str]) -> None:
        encoded = scalar(value)
        pieces.append(f"&{prefix}={('true' if encoded else 'false') if is_flag else quote_form_value(str(encoded))}")

    return encode


def _form_list(shape: Any) -> EncodeForm:
    """Return a function that appends the entries of a list to the pieces of a form, numbered from 1."""
    entry, name = _form_encoder(shape.member), shape.member.serialization.get("name", "member")

    def encode(prefix: str, value: Any, pieces: list[str]) -> None:
        if not _require_type(value, list, shape):
            raise Unusual
        for position, its in enumerate(value, 1):
            entry(f"{prefix}.{name}.{position}", its, pieces)

    return encode


def _form_map(shape: Any) -> EncodeForm:
    """Return a function that appends keys and values of a map to the pieces of a form, numbered from 1."""
    key, content = _form_encoder(shape.key), _form_encoder(shape.value)
    key_name = shape.key.serialization.get("name", "key")
    content_name = shape.value.serialization.get("name", "value")

    def encode(prefix: str, value: Any, pieces: list[str]) -> None:
        for position, (name, its) in enumerate(_require_type(value, dict, shape).items(), 1):
            key(f"{prefix}.entry.{position}.{key_name}", name, pieces)
            content(f"{prefix}.entry.{position}.{content_name}", its, pieces)

    return encode


def quote_form_value(text: str) -> str:
    """Return a text quoted as `quote_plus` does it.

    For texts with few distinct unsafe characters, such as JSON, this takes a tenth of its time.
    """
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise Unusual from None  # half a surrogate pair
    unsafe = set(encoded.translate(None, _SAFE))
    if not unsafe:
        return text
    if len(unsafe) > _DISTINCT_MAX:
        return quote_plus(text)
    for code in (_PERCENT, *(unsafe - {_PERCENT, _SPACE})):  # what replaces them has a percent sign itself
        encoded = encoded.replace(bytes((code,)), b"%%%02X" % code)
    return encoded.replace(b" ", b"+").decode("ascii")
