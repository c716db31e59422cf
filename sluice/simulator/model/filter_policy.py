"""Filter policies of SNS subscriptions: exact values, prefix, suffix, anything-but, exists and numeric.

AWS: sns/latest/dg/string-value-matching.html, numeric-value-matching.html (read 2026-11-20).
"""

import json
import math
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from sluice import limits
from sluice.simulator.model.refusal import sns_invalid

_START = "Attributes Reason: FilterPolicy: "
_TEXTS = ("prefix", "suffix", "equals-ignore-case", "wildcard", "cidr")
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
    return any(_fits_condition(kind, argument, value) for value in values)


def _fits_condition(kind: str, argument: Any, value: Any) -> bool:
    if kind == "numeric":
        pairs = zip(argument[::2], argument[1::2], strict=True)
        return not isinstance(value, str) and all(_COMPARE[sign](value, bound) for sign, bound in pairs)
    text, wanted = str(value), str(argument)
    return text.startswith(wanted) if kind == "prefix" else kind == "suffix" and text.endswith(wanted)


def check_policy(text: str, *, is_of_body: bool) -> None:
    """Refuse a filter policy SNS would not take [SNS-78..SNS-81]."""
    policy = json.loads(text)
    rules = list(_rules(policy, is_of_body=is_of_body))
    if len(rules) > limits.FILTER_POLICY_ATTRIBUTES_MAX:
        raise sns_invalid(f"{_START}Filter policy can not have more than {limits.FILTER_POLICY_ATTRIBUTES_MAX} keys")
    for rule in (rule for listed in rules for rule in listed):
        _check_rule(rule)
    if math.prod(len(listed) for listed in rules) > limits.FILTER_POLICY_COMBINATIONS_MAX:
        raise sns_invalid(f"{_START}Filter policy is too complex")


def _rules(policy: Mapping[str, Any], *, is_of_body: bool) -> Iterator[list[Any]]:
    """Yield the list of every key; attributes have no parts, so theirs cannot be nested [SNS-81]."""
    for name, rules in policy.items():
        if isinstance(rules, list):
            yield rules
        elif not isinstance(rules, Mapping):
            raise sns_invalid(f'{_START}"{name}" must be an object or an array')
        else:
            yield from _rules(rules, is_of_body=True)
            if not is_of_body:
                raise sns_invalid("Filter policy scope MessageAttributes does not support nested filter policy")


def _check_rule(rule: Any) -> None:
    if isinstance(rule, list):
        raise sns_invalid(f"{_START}Match value must be String, number, true, false, or null")
    if not isinstance(rule, Mapping):
        return
    if len(rule) != 1:
        raise sns_invalid(f"{_START}Only one key allowed in match expression")
    ((kind, argument),) = rule.items()
    if kind not in (*_TEXTS, "exists", "numeric", "anything-but"):
        raise sns_invalid(f"{_START}Unrecognized match type {kind}")
    if kind in _TEXTS and not isinstance(argument, str):
        raise sns_invalid(f"{_START}{kind} match pattern must be a string")
    if kind == "exists" and not isinstance(argument, bool):
        raise sns_invalid(f"{_START}exists match pattern must be either true or false.")
    if kind == "numeric" and len(argument) == 4 and argument[1] >= argument[3]:
        raise sns_invalid(f"{_START}Bottom must be less than top")
