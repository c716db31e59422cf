"""Filter policies of SNS subscriptions: exact values, prefix, suffix, anything-but, exists and numeric.

AWS: sns/latest/dg/string-value-matching.html, numeric-value-matching.html (read 2026-11-20).
"""

import json
import operator
from collections.abc import Mapping
from typing import Any

_COMPARE = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def accepts_attributes(policy: Mapping[str, Any], attributes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a message with these attributes is delivered."""
    return all(_matches(rules, _values(attributes.get(name))) for name, rules in policy.items())


def accepts_body(policy: Mapping[str, Any], body: Any) -> bool:
    """Return whether a message with this JSON body is delivered; anything but an object is not."""
    if not isinstance(body, Mapping):
        return False
    return all(
        accepts_body(rules, body.get(name)) if isinstance(rules, Mapping) else _matches(rules, _listed(body, name))
        for name, rules in policy.items()
    )


def _values(attribute: Mapping[str, Any] | None) -> list[Any]:
    if attribute is None:
        return []
    text = attribute.get("StringValue", "")
    if attribute["DataType"] == "String.Array":
        return list(json.loads(text))
    return [float(text)] if attribute["DataType"].startswith("Number") else [text]


def _listed(body: Mapping[str, Any], name: str) -> list[Any]:
    if name not in body:
        return []
    return body[name] if isinstance(body[name], list) else [body[name]]


def _matches(rules: list[Any], values: list[Any]) -> bool:
    return any(_fits(rule, values) for rule in rules)


def _fits(rule: Any, values: list[Any]) -> bool:
    if not isinstance(rule, Mapping):
        return rule in values
    ((kind, argument),) = rule.items()
    if kind == "exists":
        return bool(values) == bool(argument)
    if kind == "anything-but":
        unwanted = argument if isinstance(argument, list) else [argument]
        return bool(values) and not any(value in unwanted for value in values)
    return any(_fits_one(kind, argument, value) for value in values)


def _fits_one(kind: str, argument: Any, value: Any) -> bool:
    if kind == "numeric":
        pairs = zip(argument[::2], argument[1::2], strict=True)
        return not isinstance(value, str) and all(_COMPARE[sign](value, bound) for sign, bound in pairs)
    text, wanted = str(value), str(argument)
    return text.startswith(wanted) if kind == "prefix" else kind == "suffix" and text.endswith(wanted)
