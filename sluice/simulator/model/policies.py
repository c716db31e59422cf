"""Decides by the rules of IAM whether a resource policy allows one request; knows the elements that such policies use.

The simulator enforces the decision. LocalStack stores policies and enforces none of them, so on LocalStack the contract
tests ask this module. A statement without `Principal`, `Action` or `Resource` is about all of them.
AWS: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html (read 2026-11-21) and
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any


class PolicyDecision(Enum):
    """A policy's decision: an explicit deny wins over an allow; NOT_STATED leaves it to the caller's permissions."""

    ALLOW = "allow"
    DENY = "deny"
    NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """One request to a service.

    Args:
        principal: the caller: a service such as `sns.amazonaws.com`, or the ARN of an identity.
        action: `service:Operation`.
        resource: the ARN of the queue or topic.
        context: the values of condition keys, by the key in lower case.
    """

    principal: str
    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)


def decide(policy: Mapping[str, Any], request: PolicyRequest) -> PolicyDecision:
    """Return the decision of the policy about the request.

    Raises:
        ValueError: the policy uses an element or operator that this module does not know; no decision can be made.
    """
    statements = _as_list(policy.get("Statement", []))
    effects = {statement["Effect"] for statement in statements if _matches(statement, request)}
    if "Deny" in effects:
        return PolicyDecision.DENY
    return PolicyDecision.ALLOW if "Allow" in effects else PolicyDecision.NOT_STATED


def _matches(statement: Mapping[str, Any], request: PolicyRequest) -> bool:
    """Return whether a statement is about a request: its principal, action, resource and all conditions match."""
    if unknown := sorted(statement.keys() - _KNOWN):
        raise ValueError(f"the policy has {unknown}, known are {sorted(_KNOWN)}")
    actions, resources = (_as_list(statement.get(name, "*")) for name in ("Action", "Resource"))
    return (
        not {"*", request.principal}.isdisjoint(_principals(statement.get("Principal", "*")))
        and any(_is_like(request.action.lower(), pattern.lower()) for pattern in actions)
        and any(_is_like(request.resource, pattern) for pattern in resources)
        and all(
            _is_condition_met(operator, request.context.get(key.lower()), list(map(str, _as_list(allowed))))
            for operator, conditions in statement.get("Condition", {}).items()
            for key, allowed in conditions.items()
        )
    )


def _principals(principal: str | Mapping[str, Any]) -> Iterable[str]:
    """Return the principals of a statement: `"*"`, or the names of each kind in `{"AWS": […], "Service": …}`."""
    if isinstance(principal, str):
        return [principal]
    return [name for names in principal.values() for name in _as_list(names)]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_condition_met(operator: str, seen: str | None, allowed: list[str]) -> bool:
    """Return whether a condition is met.

    Args:
        operator: the name of a comparison, perhaps with Not inside and IfExists at its end.
        seen: the request's value of the condition key; None if the request has none.
        allowed: the values in the policy.
    """
    without_suffix = operator.rpartition(":")[2].removesuffix("IfExists")
    comparison = without_suffix.replace("Not", "")
    is_negated = comparison != without_suffix
    if comparison not in _COMPARISONS:
        raise ValueError(f"the policy has condition operator {operator}, which is not known here")
    if seen is None:
        return is_negated or operator.endswith("IfExists")
    return any(_COMPARISONS[comparison](seen, value) for value in allowed) != is_negated


def _is_like(seen: str, pattern: str) -> bool:
    """Return whether a value matches a pattern with `*` and `?`; a bracket stands for itself, unlike in fnmatch."""
    return fnmatchcase(seen, pattern.replace("[", "[[]"))


_KNOWN = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {
    "Bool": lambda seen, value: seen.lower() == value.lower(),
    "StringEquals": str.__eq__,
    "StringLike": _is_like,
    "ArnEquals": _is_like,
    "ArnLike": _is_like,
}
