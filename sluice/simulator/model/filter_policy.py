"""Filter policies of SNS subscriptions: every operator AWS documents, and the policies that AWS refuses.

For a filter, a message is a list of values at each path. The path `a.b` means the key `b` in the object `a`, and also
the key `a.b`; a list means its elements, however deeply lists are nested: both were recorded from AWS. Nobody knows
whether two keys must match inside the same object of a list; in this model they need not. No maintained Python library
has this language: AWS's own, Event Ruler, is Java.

AWS: sns/latest/dg/string-value-matching.html, numeric-value-matching.html, attribute-key-matching.html,
and-or-logic.html, subscription-filter-policy-constraints.html (read 2026-11-23). Recorded: LocalStack
tests/aws/services/sns/test_sns_filter_policy.py, 2024-05-14 to 2025-03-17.
"""

import ipaddress
import json
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sluice import filter_cost, limits
from sluice.filter_cost import is_or
from sluice.simulator.model.refusal import AwsRefusal, sns_invalid

type FilterPolicy = Mapping[str, Any]
type AttributeValues = Mapping[str, list[Any]]
"""A message's values at each path."""

_COMPARE = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _matches_wildcard(value: str, pattern: str) -> bool:
    """Return whether a value matches a pattern in which `*` stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), value, re.DOTALL) is not None


def _is_in_network(value: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(value) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


_STRINGS: Mapping[str, Callable[[str, str], bool]] = {
    "prefix": lambda value, pattern: value.startswith(pattern),
    "suffix": lambda value, pattern: value.endswith(pattern),
    "equals-ignore-case": lambda value, pattern: value.casefold() == pattern.casefold(),
    "wildcard": _matches_wildcard,
    "cidr": _is_in_network,
}
_NEGATED = ("prefix", "wildcard")  # the operators that anything-but takes, besides plain values


def accepts_attributes(policy: FilterPolicy, attributes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a message with these attributes is delivered.

    A message without any attribute is never delivered, not even by `exists: false`, unless the policy is empty.
    """
    values_by_name = {name: _values(attribute) for name, attribute in attributes.items()}
    present = {name: values for name, values in values_by_name.items() if values}
    return not policy or (bool(attributes) and _accepts(policy, present))


def accepts_body(policy: FilterPolicy, body: str) -> bool:
    """Return whether a message with this body is delivered: an empty policy takes any, others JSON objects."""
    if not policy:
        return True
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(parsed, Mapping):
        return False
    values: dict[str, list[Any]] = defaultdict(list)
    for path, value in _leaves(parsed, ""):
        values[path].append(value)
    return _accepts(policy, values)


def _values(attribute: Mapping[str, Any]) -> list[Any]:
    """Return the values of an attribute that a policy compares; none of a binary one or of malformed JSON."""
    text, kinds = attribute.get("StringValue", ""), filter_cost.compared_kinds(attribute["DataType"])
    try:
        if len(kinds) > 1:
            return [value for _, value in _leaves(json.loads(text), "") if filter_cost.kind_of(value) in kinds]
        return [float(text) if kind == "number" else text for kind in kinds]
    except (ValueError, RecursionError):
        return []


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every value inside a JSON value that is no object and no list."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, _join(path, name))
    elif isinstance(value, list):
        for element in value:
            yield from _leaves(element, path)
    else:
        yield path, value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _accepts(policy: FilterPolicy, values: AttributeValues, path: str = "") -> bool:
    """Return whether a message's values match every key of the policy below `path`."""
    return all(_accepts_key(name, rules, values, path) for name, rules in policy.items())


def _accepts_key(name: str, rules: Any, values: AttributeValues, path: str) -> bool:
    """Return whether a message's values match one key of a policy, which has `$or`, a nested policy, or rules."""
    if is_or(name, rules):
        return any(_accepts(side, values, path) for side in rules)
    if isinstance(rules, Mapping):
        return _accepts(rules, values, _join(path, name))
    values_here = values.get(_join(path, name), [])
    return any(_fits(rule, values_here) for rule in rules)


def _fits(rule: Any, values: list[Any]) -> bool:
    """Return whether one of the values at a path matches a rule; `exists: false` matches no value."""
    if rule == {"exists": False}:
        return not values
    return any(_fits_value(rule, value) for value in values)


def _fits_value(rule: Any, value: Any) -> bool:
    """Return whether one value matches one rule of a policy; a null value matches the rule null only."""
    if not isinstance(rule, Mapping):
        return _is_same(rule, value)
    ((kind, argument),) = rule.items()
    if kind == "exists":
        return value is not None and value != ""
    if kind == "numeric":
        pairs = zip(argument[::2], argument[1::2], strict=True)
        return _is_number(value) and all(_COMPARE[sign](value, bound) for sign, bound in pairs)
    if kind == "anything-but":
        return value is not None and not any(_fits_value(unwanted, value) for unwanted in _as_list(argument))
    return isinstance(value, str) and _STRINGS[kind](value, argument)


def _is_same(rule: Any, value: Any) -> bool:
    """Return whether two JSON values are equal; true and 1 are not, although Python says `True == 1`."""
    return bool(rule == value) and isinstance(rule, bool) == isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_list(argument: Any) -> list[Any]:
    return argument if isinstance(argument, list) else [argument]


def check_policy(text: str, *, is_of_body: bool, reason: str = "") -> None:
    """Refuse a filter policy that SNS would refuse [SNS-78..SNS-81].

    Args:
        text: the policy as JSON.
        is_of_body: whether the policy filters by the body, and not by attributes.
        reason: the first words of the error's reason. Subscribe has some, SetSubscriptionAttributes has none.
    """

    def invalid(problem: str) -> AwsRefusal:
        return sns_invalid(f"{reason}FilterPolicy: {problem}")

    policy = _parse(text, invalid)
    if len(policy) > limits.FILTER_POLICY_ATTRIBUTES_MAX:
        raise invalid(f"Filter policy can not have more than {limits.FILTER_POLICY_ATTRIBUTES_MAX} keys")
    for rules in _rules(policy, invalid):
        for rule in rules:
            _check_rule(rule, invalid)
    if not is_of_body and _is_nested(policy):  # attributes have no parts [SNS-81]
        raise sns_invalid(f"{reason}Filter policy scope MessageAttributes does not support nested filter policy")
    has_many_combinations = filter_cost.combinations(policy) > limits.FILTER_POLICY_COMBINATIONS_MAX
    if has_many_combinations or filter_cost.wildcard_points(policy) > limits.FILTER_POLICY_WILDCARD_POINTS_MAX:
        raise invalid("Filter policy is too complex")


type _Invalid = Callable[[str], AwsRefusal]


def _parse(text: str, invalid: _Invalid) -> FilterPolicy:
    """Return the policy in a text that is short enough and a JSON object."""
    if len(text.encode()) > limits.FILTER_POLICY_BYTES_MAX:  # text not recorded
        raise invalid("Filter policy is too long")
    try:
        policy = json.loads(text)
    except (ValueError, RecursionError):
        raise invalid("failed to parse JSON.") from None
    if not isinstance(policy, Mapping):  # text not recorded
        raise invalid("Filter policy must be a JSON object")
    return policy


def _rules(policy: FilterPolicy, invalid: _Invalid) -> Iterator[list[Any]]:
    """Yield the list of rules of every key, also of keys in nested policies and in the sides of an `$or`."""
    for name, rules in policy.items():
        if is_or(name, rules):
            for side in rules:
                yield from _rules(side, invalid)
        elif isinstance(rules, Mapping):
            yield from _rules(rules, invalid)
        elif not isinstance(rules, list):
            raise invalid(f'"{name}" must be an object or an array')
        elif not rules:
            raise invalid("Empty arrays are not allowed")
        else:
            yield rules


def _is_nested(policy: FilterPolicy) -> bool:
    """Return whether a key has a policy below it, instead of a list of rules; the sides of an `$or` do not count."""
    return any(
        any(map(_is_nested, rules)) if is_or(name, rules) else isinstance(rules, Mapping)
        for name, rules in policy.items()
    )


def _check_rule(rule: Any, invalid: _Invalid) -> None:
    """Refuse a malformed rule with the error that `invalid` makes of a problem's text."""
    if isinstance(rule, list):
        raise invalid("Match value must be String, number, true, false, or null")
    if not isinstance(rule, Mapping):
        return
    if len(rule) != 1:
        raise invalid("Only one key allowed in match expression")
    ((kind, argument),) = rule.items()
    if kind in _STRINGS:
        _check_pattern(kind, argument, invalid)
    elif kind == "exists":
        if not isinstance(argument, bool):
            raise invalid("exists match pattern must be either true or false.")
    elif kind == "numeric":
        _check_numeric(argument, invalid)
    elif kind == "anything-but":
        _check_anything_but(argument, invalid)
    else:
        raise invalid(f"Unrecognized match type {kind}")


def _check_pattern(kind: str, argument: Any, invalid: _Invalid) -> None:
    if not isinstance(argument, str):
        raise invalid(f"{'prefix' if kind == 'cidr' else kind} match pattern must be a string")
    if kind == "cidr":
        _check_network(argument, invalid)


def _check_network(text: str, invalid: _Invalid) -> None:
    address, *masks = text.split("/")
    if len(masks) != 1:
        raise invalid("Malformed CIDR, one '/' required")
    if not masks[0].isdecimal():
        raise invalid("Malformed CIDR, mask bits must be an integer")
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise invalid(f"Nonstandard IP address: {address}") from None


def _check_anything_but(argument: Any, invalid: _Invalid) -> None:
    for unwanted in _as_list(argument):
        if isinstance(unwanted, Mapping):
            for kind in unwanted:
                if kind not in _NEGATED:
                    raise invalid(f"Unsupported anything-but pattern: {kind}")
        _check_rule(unwanted, invalid)


def _check_numeric(members: Any, invalid: _Invalid) -> None:
    """Refuse a numeric match that is not of the form `["=", 5]`, `[">", 5]` or a range: `[">", 0, "<=", 100]`."""
    first = (
        [*members, "]"][0] if isinstance(members, list) else members
    )  # AWS's text names the bracket of an empty list
    if not isinstance(members, list) or not members or not isinstance(first, str):
        raise invalid(f"Invalid member in numeric match: {first}")
    if members[0] not in _COMPARE:
        raise invalid(f"Unrecognized numeric range operator: {members[0]}")
    _check_bound(members, invalid)
    upper = members[2:]
    if not upper:
        return
    if not members[0].startswith(">"):
        raise invalid("Too many elements in numeric expression")
    if not isinstance(upper[0], str):
        raise invalid(f"Bad value in numeric range: {upper[0]}")
    if upper[0] not in ("<", "<="):
        raise invalid(f"Bad numeric range operator: {upper[0]}")
    _check_bound(upper, invalid)
    if upper[1] <= members[1]:
        raise invalid("Bottom must be less than top")
    if len(upper) > 2:
        raise invalid("Too many terms in numeric range expression")


def _check_bound(members: list[Any], invalid: _Invalid) -> None:
    """Refuse an operator that no number follows."""
    if len(members) < 2 or not _is_number(members[1]):
        raise invalid(f"Value of {'equals' if members[0] == '=' else members[0]} must be numeric")
