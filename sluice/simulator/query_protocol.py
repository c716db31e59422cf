"""SNS's wire format, from the service's side: form fields in, XML out, as the service model has them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree as ET

from botocore.model import OperationModel, Shape


def decode(body: str | bytes, operation: OperationModel) -> dict[str, Any]:
    """Return the parameters of a request; binary values stay base64."""
    form = dict(parse_qsl(body.decode() if isinstance(body, bytes) else body, keep_blank_values=True))
    decoded: dict[str, Any] = _decode(operation.input_shape, "", form)
    return decoded


def _decode(shape: Shape, prefix: str, form: Mapping[str, str]) -> Any:
    if shape.type_name == "structure":
        named = {name: prefix + _field_name(member, name) for name, member in shape.members.items()}
        return {
            name: _decode(shape.members[name], f"{key}.", form) for name, key in named.items() if _is_given(key, form)
        }
    if shape.type_name == "list":
        keys = _entry_prefixes(f"{prefix}{_field_name(shape.member, 'member')}.", form)
        return [_decode(shape.member, f"{key}.", form) for key in keys]
    if shape.type_name == "map":
        key_name, value_name = _field_name(shape.key, "key"), _field_name(shape.value, "value")
        keys = _entry_prefixes(f"{prefix}entry.", form)
        return {form[f"{key}.{key_name}"]: _decode(shape.value, f"{key}.{value_name}.", form) for key in keys}
    value = form[prefix.removesuffix(".")]
    return value == "true" if shape.type_name == "boolean" else value


def _field_name(shape: Shape, name: str) -> str:
    return str(shape.serialization.get("name", name))


def _is_given(key: str, form: Mapping[str, str]) -> bool:
    return any(field == key or field.startswith(f"{key}.") for field in form)


def _entry_prefixes(prefix: str, form: Mapping[str, str]) -> list[str]:
    numbers = {int(field[len(prefix) :].split(".")[0]) for field in form if field.startswith(prefix)}
    return [f"{prefix}{number}" for number in sorted(numbers)]


def encode(answer: Mapping[str, Any], operation: OperationModel, request_id: str) -> bytes:
    """Return the XML of an answer."""
    root = ET.Element(f"{operation.name}Response")
    if operation.output_shape is not None:
        _encode(answer, operation.output_shape, ET.SubElement(root, f"{operation.name}Result"))
    metadata = ET.SubElement(root, "ResponseMetadata")
    ET.SubElement(metadata, "RequestId").text = request_id
    return ET.tostring(root)


def encode_error(code: str, text: str, request_id: str) -> bytes:
    """Return the XML of a refusal."""
    root = ET.Element("ErrorResponse")
    error = ET.SubElement(root, "Error")
    for name, value in (("Type", "Sender"), ("Code", code), ("Message", text)):
        ET.SubElement(error, name).text = value
    ET.SubElement(root, "RequestId").text = request_id
    return ET.tostring(root)


def _encode(value: Any, shape: Shape, into: ET.Element) -> None:
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if value.get(name) is not None:
                _encode(value[name], member, ET.SubElement(into, _field_name(member, name)))
    elif shape.type_name == "list":
        for element in value:
            _encode(element, shape.member, ET.SubElement(into, _field_name(shape.member, "member")))
    elif shape.type_name == "map":
        for key, mapped in value.items():
            entry = ET.SubElement(into, "entry")
            ET.SubElement(entry, _field_name(shape.key, "key")).text = key
            _encode(mapped, shape.value, ET.SubElement(entry, _field_name(shape.value, "value")))
    else:
        into.text = str(value)
