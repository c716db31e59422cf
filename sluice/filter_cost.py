"""Filter policies, as declaration, simulator and relay all know them: what can match what, and what one costs SNS.

SNS refuses a policy by its combinations of values, and by the points of its wildcards.

AWS: https://docs.aws.amazon.com/sns/latest/dg/subscription-filter-policy-constraints.html (read 2026-11-23); the points
through chaosreload.github.io/aws-hands-on-lab/serverless/sns-message-filtering-operators (2026-03-28).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from sluice import limits

OR = "$or"
SENT_TYPE = "String"
"""The data type of all message attributes that an outbox sends."""
COMPARED: Mapping[str, frozenset[str]] = {
    "String": frozenset({"string"}),
    "Number": frozenset({"number"}),
    "String.Array": frozenset({"string", "number", "boolean", "null"}),
    "Binary": frozenset(),
}
"""Data type of a message attribute to the kinds of JSON values that a filter policy compares with it.

AWS: sns/latest/dg/sns-message-attributes.html, string-value-matching.html, numeric-value-matching.html (read
2026-11-26).
"""
OPERATORS = frozenset(
    ("anything-but", "cidr", "equals-ignore-case", "exists", "numeric", "prefix", "suffix", "wildcard")
)


def compared_kinds(data_type: str) -> frozenset[str]:
    """Return the kinds of values of an attribute; a type may have a name of one's own behind it: Number.int."""
    return COMPARED[data_type if data_type in COMPARED else data_type.partition(".")[0]]


def kind_of(value: object) -> str:
    """Return the kind of a JSON value that is no object and no list."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    return "string" if isinstance(value, str) else "number"


def is_or(name: str, rules: Any) -> bool:
    """Return whether `$or` is the operator: two objects or more, and no operator among their keys; else it is a key."""
    return (
        name == OR
        and isinstance(rules, list | tuple)
        and len(rules) > 1
        and all(isinstance(side, Mapping) and not OPERATORS & side.keys() for side in rules)
    )


def combinations(policy: Mapping[str, Any], level: int = 1) -> int:
    """Return how many combinations of values there are: a value counts its level, and the sides of an $or add up."""
    return math.prod(
        sum(combinations(side, level) for side in rules)
        if is_or(name, rules)
        else combinations(rules, level + 1)
        if isinstance(rules, Mapping)
        else len(rules) * level
        for name, rules in policy.items()
    )


def wildcard_points(policy: Mapping[str, Any]) -> float:
    """Return what a policy's wildcards cost: a key's patterns together, times their number.

    A pattern with one `*` costs 1, with two or three 3; one with more is refused alone, so it costs infinitely much.
    """
    points = 0.0
    for name, rules in policy.items():
        if isinstance(rules, Mapping) or is_or(name, rules):
            points += sum(map(wildcard_points, [rules] if isinstance(rules, Mapping) else rules))
        else:
            costs = [_points(pattern) for rule in rules for pattern in _patterns(rule)]
            points += sum(costs) * len(costs)
    return points


def _points(pattern: str) -> float:
    """Return what a pattern with wildcards costs; infinity if it has more than SNS takes."""
    count = pattern.count("*")
    return math.inf if count > limits.FILTER_POLICY_WILDCARDS_MAX else min(count, 1) if count < 2 else 3


def _patterns(rule: Any) -> Iterator[str]:
    """Yield the wildcard patterns of a rule of a filter policy, nested ones included."""
    if isinstance(rule, Mapping):
        for kind, argument in rule.items():
            if kind == "wildcard":
                yield argument
            else:
                yield from _patterns(argument)
