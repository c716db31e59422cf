"""Check SNS filter policies on message attributes: refuse what SNS refuses, and conditions that can never match.

An operator that SNS does not know makes a deployment fail half-way. Worse is what SNS accepts although nothing can
match it, because the consumer then never gets a message: an attribute name that no message can have; or a condition
on a number, true or null, because an outbox sends all attributes as text. Other producers of a topic may send
attributes of other types, so that second check is only for topics without them.
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
_TYPE = "type"  # the attribute that has the event's type
_PART_OF_TYPE = re.compile(r"[A-Za-z0-9_.-]{0,256}")
_PART_OF_TYPE_WITH_WILDCARDS = re.compile(rf"[A-Za-z0-9_.*-]{{0,{256 + limits.FILTER_POLICY_WILDCARDS_MAX}}}")
_OF_TYPE = "a condition that a type can meet: each event has one, of letters, digits and . _ -"


class FilterFault(NamedTuple):
    """A fault of a filter policy: the place in it, the value seen, the values allowed."""

    where: str
    seen: object
    allowed: str


def fault(policy: Mapping[str, Sequence[object]]) -> FilterFault | None:
    """Return the first fault of a filter policy; None when SNS accepts it."""
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
    """Yield the faults of a policy; `whole` is the policy that an `$or` around it belongs to, and is shown."""
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
    """Yield the faults of an `$or`, and of the policies in it.

    With fewer than two policies, or with an attribute named like an operator, SNS takes `$or` for an attribute's name.
    """
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
    """Return the fault of one condition on an attribute: an unknown operator, or an operand that it does not take."""
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


def find_mismatches(
    policy: Mapping[str, Sequence[object]], around: Mapping[str, set[object]] | None = None
) -> Iterator[FilterFault]:
    """Yield each condition that no event of an outbox can meet, or that each meets; the policy has no other faults.

    Args:
        policy: the policy, or one of several in `$or`.
        around: the only texts that attributes may have by the policy around the `$or`; None is no policy around it.
    """
    around = around or {}
    texts = {
        name: set(conditions) for name, conditions in policy.items() if all(isinstance(c, str) for c in conditions)
    }
    for name, conditions in policy.items():
        if name in texts and name in around and not texts[name] & around[name]:
            allowed = f"one of the texts that '{name}' has outside of '{OR}': {sorted(map(str, around[name]))}"
            yield FilterFault(f"['{OR}'][{name!r}]", conditions, allowed)
        for condition in conditions:
            if name == OR:
                assert isinstance(condition, Mapping)
                yield from find_mismatches(condition, {**around, **texts})
            elif (found := _fault_of_match(name, condition)) is not None:
                yield found


def _is_text(condition: object) -> bool:
    return isinstance(condition, str)


def _fault_of_match(name: str, condition: object) -> FilterFault | None:
    """Return a fault if no event of an outbox can meet a condition, or if an exclusion can exclude no event."""
    operator, operand = next(iter(condition.items())) if isinstance(condition, Mapping) else ("", condition)
    if operator == "exists":
        return None if operand or name != _TYPE else FilterFault(f"[{name!r}]", condition, _OF_TYPE)
    values = list(_operands(operand))
    kinds = {"number"} if operator == "numeric" else set(map(filter_cost.kind_of, values))
    is_compared_with_whole_text = operator in ("", "equals-ignore-case", "wildcard", "anything-but")
    if not kinds <= filter_cost.compared_kinds(filter_cost.SENT_TYPE) or (is_compared_with_whole_text and "" in values):
        return FilterFault(f"[{name!r}]", condition, _MATCHING)
    if operator == "anything-but" and isinstance(operand, Mapping) and not operand.get("wildcard", "-").strip("*"):
        return FilterFault(f"[{name!r}]", condition, _MATCHING)
    pattern = _PART_OF_TYPE_WITH_WILDCARDS if operator == "wildcard" else _PART_OF_TYPE
    if name == _TYPE and operator != "anything-but" and not all(pattern.fullmatch(str(value)) for value in values):
        return FilterFault(f"[{name!r}]", condition, _OF_TYPE)
    return None


def _operands(operand: object) -> Iterator[object]:
    """Yield the values in a condition's operand, also those inside of a list or of `{'prefix': …}`."""
    if isinstance(operand, Mapping):
        yield from operand.values()
    elif isinstance(operand, list | tuple):
        yield from operand
    else:
        yield operand


def _is_value(operand: object) -> bool:
    """Return whether an operand is a text, a boolean or a finite number."""
    return isinstance(operand, str | int) or (isinstance(operand, float) and math.isfinite(operand))


def _is_operand(operator: str, operand: object) -> bool:
    """Return whether SNS accepts an operand for an operator."""
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
    """Return whether SNS accepts an operand for `anything-but`."""
    if isinstance(operand, Mapping):
        return list(operand) in (["prefix"], ["wildcard"]) and _is_operand(*next(iter(operand.items())))
    values = operand if isinstance(operand, list | tuple) else [operand]
    return bool(values) and all(_is_value(value) and not isinstance(value, bool) for value in values)


def _is_comparison(*parts: object) -> bool:
    """Return whether the operand of `numeric` is one comparison, or a lower bound followed by a higher upper bound.

    `parts` are operators and numbers in turn, such as `'>=', 0, '<', 100`.
    """
    numbers = [
        part for part in parts[1::2] if isinstance(part, int | float) and _is_value(part) and type(part) is not bool
    ]
    operators = (("=", "<", "<=", ">", ">="),) if len(parts) == 2 else ((">", ">="), ("<", "<="))
    return (
        len(parts) == 2 * len(operators) == 2 * len(numbers)
        and all(seen in allowed for seen, allowed in zip(parts[::2], operators, strict=True))
        and sorted(set(numbers)) == numbers
    )


def _is_range(text: str) -> bool:
    """Return whether a text is a range of IP addresses."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
