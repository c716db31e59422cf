"""The AWS query protocol, as SNS uses it, from the service's side: requests are form fields, answers are XML.

botocore's service model says how each parameter is written. A nested value has a dotted name, and a list numbers its
entries: `Attributes.entry.1.key=FifoTopic&Attributes.entry.1.value=true`.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree as ET

from botocore.model import OperationModel, Shape


def decode(body: str | bytes, operation: OperationModel) -> dict[str, Any]:
    """Return the parameters of a request from its form; binary values stay base64."""
    form = dict(parse_qsl(body.decode() if isinstance(body, bytes) else body, keep_blank_values=True))
    decoded: dict[str, Any] = _decode(operation.input_shape, "", form)
    return decoded


def _decode(shape: Shape, prefix: str, form: Mapping[str, str]) -> Any:
    """Return the value whose form fields begin with `prefix`, by its shape; the prefix is empty or ends with a dot."""
    if shape.type_name == "structure":
        fields = {name: prefix + _field_name(member, name) for name, member in shape.members.items()}
        return {
            name: _decode(shape.members[name], f"{field}.", form)
            for name, field in fields.items()
            if _is_given(field, form)
        }
    if shape.type_name == "list":
        entries = _numbered_entries(f"{prefix}{_field_name(shape.member, 'member')}.", form)
        return [_decode(shape.member, f"{entry}.", form) for entry in entries]
    if shape.type_name == "map":
        key_name, value_name = _field_name(shape.key, "key"), _field_name(shape.value, "value")
        entries = _numbered_entries(f"{prefix}entry.", form)
        return {form[f"{entry}.{key_name}"]: _decode(shape.value, f"{entry}.{value_name}.", form) for entry in entries}
    value = form[prefix.removesuffix(".")]
    return value == "true" if shape.type_name == "boolean" else value


def _field_name(shape: Shape, default: str) -> str:
    """Return the name that the service model gives a value on the wire."""
    return str(shape.serialization.get("name", default))


def _is_given(name: str, form: Mapping[str, str]) -> bool:
    """Return whether a form has the field, or a part of it: `name.…`."""
    return any(field == name or field.startswith(f"{name}.") for field in form)


def _numbered_entries(prefix: str, form: Mapping[str, str]) -> list[str]:
    """Return the prefix with the number of each entry in the form, in order: `entry.1`, `entry.2`."""
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
    """Write a value into an XML element, by its shape."""
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
