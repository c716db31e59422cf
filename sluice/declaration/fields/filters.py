"""SNS filter policies on message attributes: what SNS takes, and takes as it is meant.

An operator SNS does not know fails a deployment half-way. A name no message attribute can have is worse: SNS takes it,
and the consumer never gets a message. So is a condition that no attribute of an event can meet: an outbox sends all of
them as text, which is never a number, true or null. Who else publishes to a topic may send attributes of other types.
AWS: https://docs.aws.amazon.com/sns/latest/dg/string-value-matching.html, numeric-value-matching.html,
attribute-key-matching.html and and-or-logic.html there (read 2026-11-26).
"""

import ipaddress
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sluice import filter_cost, limits
from sluice.filter_cost import OR

_OPERANDS = {
    "anything-but": "a string, a number, a list of them, {'prefix': 'us-'} or {'wildcard': 'us-*'}",
    "cidr": "a range of addresses such as '10.0.0.0/24'",
    "equals-ignore-case": "a string",
    "exists": "True or False",
    "numeric": "comparisons such as ['>=', 0, '<', 100]",
    "prefix": "a string",
    "suffix": "a string",
    "wildcard": f"a string with at most {limits.FILTER_POLICY_WILDCARDS_MAX} '*'",
}
_CONDITIONS = "attribute names, each with a list of conditions such as ['eu', {'prefix': 'us-'}]"
# https://docs.aws.amazon.com/sns/latest/dg/sns-message-attributes.html (read 2026-11-21)
_NAME = re.compile(r"(?!(aws|amazon)\.)(?=.{1,256}\Z)[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII | re.IGNORECASE)
_MATCHING = (
    "a condition that text can meet, as all attributes of events are text, none of it empty: a string, exists, prefix,"
    " suffix, wildcard, equals-ignore-case, cidr, or anything-but with strings"
)
_TYPE = "type"  # of each event, which is an attribute too
_OF_TYPE = "a condition that a type can meet: each event has one, of letters, digits and . _ -"


class FilterFault(NamedTuple):
    """A fault of a filter policy: the place in it, the value seen, the values allowed."""

    where: str
    seen: object
    allowed: str


def fault(policy: Mapping[str, Sequence[object]]) -> FilterFault | None:
    """Return the first thing that is wrong with a filter policy; None when SNS takes it."""
    if not 1 <= len(policy) <= limits.FILTER_POLICY_ATTRIBUTES_MAX:
        return FilterFault("", policy, f"1 to {limits.FILTER_POLICY_ATTRIBUTES_MAX} attributes, or None")
    found = next(_faults(policy, policy), None)
    if found is not None:
        return found
    if (count := filter_cost.combinations(policy)) > (most := limits.FILTER_POLICY_COMBINATIONS_MAX):
        return FilterFault("", policy, f"at most {most} combinations of conditions ({count} here)")
    if (points := filter_cost.wildcard_points(policy)) > (most := limits.FILTER_POLICY_WILDCARD_POINTS_MAX):
        return FilterFault(
            "",
            policy,
            f"at most {most} points for wildcards ({points:g} here): 1 for a pattern with one '*' and 3 for one with"
            " more, times the number of the attribute's patterns",
        )
    return None


def _faults(policy: Mapping[str, Sequence[object]], whole: object) -> Iterator[FilterFault]:
    for name, conditions in policy.items():
        if not isinstance(conditions, list | tuple) or not conditions:
            yield FilterFault("", whole, _CONDITIONS)
        elif name == OR:
            yield from _faults_of_alternatives(conditions, whole)
        elif not isinstance(name, str) or not _NAME.fullmatch(name):
            yield FilterFault(
                "", whole, f"'{OR}' and names a message attribute can have: letters, digits, '_', '-', inner '.'"
            )
        else:
            yield from (found for condition in conditions if (found := _fault_of_condition(name, condition, whole)))


def _faults_of_alternatives(alternatives: Sequence[object], whole: object) -> Iterator[FilterFault]:
    """Find what makes SNS take '$or' for the name of an attribute, and what is wrong inside."""
    policies = [
        alternative
        for alternative in alternatives
        if isinstance(alternative, Mapping) and alternative and not _OPERANDS.keys() & alternative.keys()
    ]
    if len(policies) < len(alternatives) or len(policies) < 2:
        yield FilterFault("", whole, f"'{OR}' with two or more policies, no attribute in them called like an operator")
    for policy in policies:
        yield from _faults(policy, whole)


def _fault_of_condition(name: str, condition: object, whole: object) -> FilterFault | None:
    found = None
    if isinstance(condition, Mapping) and len(condition) == 1:
        ((operator, operand),) = condition.items()
        if operator not in _OPERANDS:
            found = FilterFault(f"[{name!r}]", condition, f"one of SNS's operators: {', '.join(_OPERANDS)}")
        elif not _is_operand(operator, operand):
            found = FilterFault(f"[{name!r}]", condition, f"{operator!r} with {_OPERANDS[operator]}")
    elif condition is not None and not _is_value(condition):
        found = FilterFault("", whole, _CONDITIONS)
    return found


def find_mismatches(policy: Mapping[str, Sequence[object]]) -> Iterator[FilterFault]:
    """Yield the conditions of a policy without faults that mean nothing for a topic to which only outboxes publish."""
    for name, conditions in policy.items():
        for condition in conditions:
            if name == OR:
                assert isinstance(condition, Mapping)
                yield from find_mismatches(condition)
            elif (found := _fault_of_match(name, condition)) is not None:
                yield found


def _fault_of_match(name: str, condition: object) -> FilterFault | None:
    """Return a fault where no event can meet a condition, or each does though it seems to leave some out."""
    operator, operand = next(iter(condition.items())) if isinstance(condition, Mapping) else ("", condition)
    if operator == "exists":
        return None if operand or name != _TYPE else FilterFault(f"[{name!r}]", condition, _OF_TYPE)
    values = list(_operands(operand))
    kinds = {"number"} if operator == "numeric" else set(map(filter_cost.kind_of, values))
    is_whole = operator in ("", "equals-ignore-case", "wildcard", "anything-but")
    if not kinds <= filter_cost.compared_kinds(filter_cost.SENT_TYPE) or (is_whole and "" in values):
        return FilterFault(f"[{name!r}]", condition, _MATCHING)
    if (
        name == _TYPE
        and operator != "anything-but"
        and not all(re.fullmatch(r"[A-Za-z0-9_.*-]*", str(value)) for value in values)
    ):
        return FilterFault(f"[{name!r}]", condition, _OF_TYPE)
    return None


def _operands(operand: object) -> Iterator[object]:
    """Yield the values that a condition names, also those of a prefix or a wildcard that it excludes."""
    if isinstance(operand, Mapping):
        yield from operand.values()
    elif isinstance(operand, list | tuple):
        yield from operand
    else:
        yield operand


def _is_value(operand: object) -> bool:
    return isinstance(operand, str | int) or (isinstance(operand, float) and math.isfinite(operand))


def _is_operand(operator: str, operand: object) -> bool:
    match operator:
        case "exists":
            return isinstance(operand, bool)
        case "numeric":
            return isinstance(operand, list | tuple) and _is_comparison(*operand)
        case "cidr":
            return isinstance(operand, str) and "/" in operand and _is_range(operand)
        case "anything-but":
            return _is_excluded(operand)
        case "wildcard":
            return isinstance(operand, str) and operand.count("*") <= limits.FILTER_POLICY_WILDCARDS_MAX
    return isinstance(operand, str)


def _is_excluded(operand: object) -> bool:
    if isinstance(operand, Mapping):
        return list(operand) in (["prefix"], ["wildcard"]) and _is_operand(*next(iter(operand.items())))
    values = operand if isinstance(operand, list | tuple) else [operand]
    return bool(values) and all(_is_value(value) and not isinstance(value, bool) for value in values)


def _is_comparison(*parts: object) -> bool:
    """Tell whether it is one comparison with a number, or a lower bound and an upper one above it."""
    numbers = [
        part for part in parts[1::2] if isinstance(part, int | float) and _is_value(part) and type(part) is not bool
    ]
    words = (("=", "<", "<=", ">", ">="),) if len(parts) == 2 else ((">", ">="), ("<", "<="))
    return (
        len(parts) == 2 * len(words) == 2 * len(numbers)
        and all(seen in known for seen, known in zip(parts[::2], words, strict=True))
        and sorted(set(numbers)) == numbers
    )


def _is_range(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
