"""Mutants of every operator and every refusal of filter policies."""

# ruff: noqa: E501 (a table: one row per mutant)
import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from sluice import filter_cost, limits
from sluice.simulator.model import filter_policy
from sluice.simulator.model.filter_policy import accepts_attributes, accepts_body
from sluice.simulator.model.topics import sns, topic
from sluice.simulator.model.topics.topic import Subscription
from tests.mutants.mutant import Mutant, after, nothing, without

_FITS = filter_policy._fits_value
_FITS_ANY = filter_policy._fits
_ACCEPTS_KEY = filter_policy._accepts_key
_STRINGS = filter_policy._STRINGS
_VALUES = filter_policy._values


def _kind(rule: Any) -> str:
    return next(iter(rule)) if isinstance(rule, Mapping) else ""


def _never(kind: str) -> Callable[[Any, Any], bool]:
    return lambda rule, value: _kind(rule) != kind and _FITS(rule, value)


def _always(kind: str) -> Callable[[Any, Any], bool]:
    return lambda rule, value: _kind(rule) == kind or _FITS(rule, value)


def _strings(**changed: Callable[[str, str], bool]) -> dict[str, Callable[[str, str], bool]]:
    return {**_STRINGS, **{name.replace("_", "-"): function for name, function in changed.items()}}


def _exact_prefix_only(rule: Any, value: Any) -> bool:
    """Anything-but knows values only."""
    if _kind(rule) == "anything-but" and isinstance(rule["anything-but"], Mapping):
        return value is not None
    return _FITS(rule, value)


def _first_bound(rule: Any, value: Any) -> bool:
    return _FITS({"numeric": rule["numeric"][:2]} if _kind(rule) == "numeric" else rule, value)


def _strict_bounds(rule: Any, value: Any) -> bool:
    if _kind(rule) != "numeric":
        return _FITS(rule, value)
    return _FITS(
        {"numeric": [sign.rstrip("=") or "=" if isinstance(sign, str) else sign for sign in rule["numeric"]]}, value
    )


def _first_value(rules: Any, values: list[Any]) -> bool:
    return _FITS_ANY(rules, values[:1])


def _any_key(policy: Mapping[str, Any], values: Any, path: str = "") -> bool:
    return any(_ACCEPTS_KEY(name, rules, values, path) for name, rules in policy.items())


def _last_rule(name: str, rules: Any, values: Any, path: str) -> bool:
    is_plain = isinstance(rules, list) and not filter_cost.is_or(name, rules)
    return _ACCEPTS_KEY(name, rules[:1] if is_plain else rules, values, path)


def _without_nesting(name: str, rules: Any, values: Any, path: str) -> bool:
    return isinstance(rules, Mapping) or _ACCEPTS_KEY(name, rules, values, path)


def _or_always(name: str, rules: Any, values: Any, path: str) -> bool:
    return filter_cost.is_or(name, rules) or _ACCEPTS_KEY(name, rules, values, path)


def _absent_everywhere(rule: Any, values: list[Any]) -> bool:
    return rule != {"exists": False} and _FITS_ANY(rule, values)


def _by_attributes(self: Subscription, _body: str, attributes: Mapping[str, Mapping[str, Any]]) -> bool:
    text = self.attributes.get("FilterPolicy")
    return not text or accepts_attributes(json.loads(text), attributes)


def _by_body(self: Subscription, body: str, _attributes: Mapping[str, Mapping[str, Any]]) -> bool:
    text = self.attributes.get("FilterPolicy")
    return not text or accepts_body(json.loads(text), body)


def _read_binary(attribute: Mapping[str, Any]) -> list[Any]:
    """Compare a binary value as the text that it encodes."""
    if "BinaryValue" not in attribute:
        return _VALUES(attribute)
    value = attribute["BinaryValue"]
    return [(base64.b64decode(value) if isinstance(value, str) else bytes(value)).decode()]


def _both_kinds(attribute: Mapping[str, Any]) -> list[Any]:
    """Compare a number as text, too, and a text that is a number as one."""
    text = str(attribute.get("StringValue", ""))
    values = _VALUES(attribute)
    return [*values, text, float(text)] if text.isdecimal() else values


def _without_refusal(text: str) -> Callable[..., Any]:
    return without(sns, "check_policy", text)


_RULE = (filter_policy, "_fits_value")
_READ_BY = (filter_policy, "_fits_value")
MUTANTS = (
    Mutant("prefix-anywhere", "a prefix may be anywhere", filter_policy, "_STRINGS", _strings(prefix=lambda value, pattern: pattern in value), read_by=_READ_BY),
    Mutant("prefix-never", "a prefix matches nothing", *_RULE, _never("prefix")),
    Mutant("suffix-anywhere", "a suffix may be anywhere", filter_policy, "_STRINGS", _strings(suffix=lambda value, pattern: pattern in value), read_by=_READ_BY),
    Mutant("suffix-never", "a suffix matches nothing", *_RULE, _never("suffix")),
    Mutant("ignore-case-never", "equals-ignore-case matches nothing", *_RULE, _never("equals-ignore-case")),
    Mutant("ignore-case-minds-case", "equals-ignore-case minds the case", filter_policy, "_STRINGS", _strings(equals_ignore_case=lambda value, pattern: value == pattern), read_by=_READ_BY),
    Mutant("wildcard-never", "a wildcard matches nothing", *_RULE, _never("wildcard")),
    Mutant("wildcard-as-prefix", "a wildcard is a prefix", filter_policy, "_STRINGS", _strings(wildcard=lambda value, pattern: value.startswith(pattern.partition("*")[0])), read_by=_READ_BY),
    Mutant("cidr-never", "cidr matches nothing", *_RULE, _never("cidr")),
    Mutant("cidr-always", "cidr matches everything", *_RULE, _always("cidr")),
    Mutant("numeric-never", "a range matches nothing", *_RULE, _never("numeric")),
    Mutant("numeric-first-bound", "a range has one bound", *_RULE, _first_bound),
    Mutant("numeric-strict", "a bound is not in its range", *_RULE, _strict_bounds),
    Mutant("anything-but-never", "anything-but matches nothing", *_RULE, _never("anything-but")),
    Mutant("anything-but-always", "anything-but matches everything", *_RULE, _always("anything-but")),
    Mutant("anything-but-values-only", "anything-but knows no prefix", *_RULE, _exact_prefix_only),
    Mutant("exists-never", "exists matches nothing that is there", *_RULE, _never("exists")),
    Mutant("absent-never", "exists: false matches nothing", filter_policy, "_fits", _absent_everywhere),
    Mutant("array-first-element", "of an array the first element counts", filter_policy, "_fits", _first_value),
    Mutant("binary-matches-text", "a binary attribute is compared as text", filter_policy, "_values", _read_binary),
    Mutant("text-matches-number", "a text matches a number, and a number a text", filter_policy, "_values", _both_kinds),
    Mutant("any-key-matches", "one matching key is enough", filter_policy, "_accepts", _any_key),
    Mutant("first-rule-only", "the first rule of a key counts", filter_policy, "_accepts_key", _last_rule),
    Mutant("nesting-ignored", "nested keys are not looked at", filter_policy, "_accepts_key", _without_nesting),
    Mutant("or-ignored", "$or is always fulfilled", filter_policy, "_accepts_key", _or_always),
    Mutant("scope-attributes-always", "FilterPolicyScope has no effect", Subscription, "wants", _by_attributes),
    Mutant("scope-body-always", "every filter policy looks at the body", Subscription, "wants", _by_body),
    Mutant("no-attributes-accepted", "a message without attributes passes every filter", topic, "accepts_attributes", lambda policy, attributes: not attributes or accepts_attributes(policy, attributes)),
    Mutant("no-json-accepted", "a body that is no JSON passes every filter", topic, "accepts_body", lambda policy, body: not body.startswith("{") or accepts_body(policy, body)),
    Mutant("policy-unchecked", "filter policies are not checked", sns, "check_policy", nothing),
    Mutant("policy-six-keys", "a filter policy may have any number of keys", limits, "FILTER_POLICY_ATTRIBUTES_MAX", 10**6, read_by=(sns, "check_policy")),
    Mutant("policy-complex", "a filter policy may be as complex as it likes", limits, "FILTER_POLICY_COMBINATIONS_MAX", 10**9, read_by=(sns, "check_policy")),
    Mutant("policy-nested", "a filter policy of attributes may be nested", sns, "check_policy", _without_refusal("does not support nested")),
    Mutant("policy-unknown-operator", "an unknown operator is taken", sns, "check_policy", _without_refusal("Unrecognized match type")),
    Mutant("policy-two-operators", "two operators may stand in one rule", sns, "check_policy", _without_refusal("Only one key allowed")),
    Mutant("policy-no-list", "rules need not be a list", sns, "check_policy", _without_refusal("must be an object or an array")),
    Mutant("policy-no-json", "a filter policy need not be JSON", sns, "check_policy", _without_refusal("failed to parse JSON")),
    Mutant("policy-pattern-of-any-type", "a pattern may be a number", sns, "check_policy", _without_refusal("match pattern must be a string")),
    Mutant("policy-range-backwards", "a range may be empty", sns, "check_policy", _without_refusal("Bottom must be less than top")),
    Mutant("policy-combinations-added", "combinations are added, not multiplied", filter_cost, "combinations", after(filter_cost, "combinations", lambda _product, policy, *_: sum(len(rules) for rules in policy.values()))),
    Mutant("policy-level-ignored", "the level of a key does not count", filter_cost, "combinations", after(filter_cost, "combinations", lambda product, policy, level=1: product // level ** len(policy))),
)  # fmt: skip
