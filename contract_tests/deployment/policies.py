"""Decides what a resource policy says of one request, by the rules of IAM, for the few operators our policies use.

LocalStack stores policies and enforces none of them; so what a policy permits is read, not tried.
AWS: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html (read 2026-11-21).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any


class Decision(Enum):
    """What a policy says: an explicit deny wins over an allow; NOT_STATED leaves it to the caller's own permissions."""

    ALLOW = "allow"
    DENY = "deny"
    NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Args:
        principal: who asks: a service such as `sns.amazonaws.com`, or the ARN of an identity.
        action: `service:Operation`.
        resource: ARN of what it is asked of.
        context: condition keys to values.
    """

    principal: str
    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)


def decide(policy: Mapping[str, Any], request: Request) -> Decision:
    """Return what the policy says of the request.

    Raises:
        ValueError: the policy uses something this evaluator does not know; then nothing is known.
    """
    effects = {statement["Effect"] for statement in policy["Statement"] if _matches(statement, request)}
    if "Deny" in effects:
        return Decision.DENY
    return Decision.ALLOW if "Allow" in effects else Decision.NOT_STATED


def _matches(statement: Mapping[str, Any], request: Request) -> bool:
    known = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
    if unknown := sorted(statement.keys() - known):
        raise ValueError(f"the policy has {unknown}, known are {sorted(known)}")
    return (request.principal in (names := set(_principals(statement["Principal"]))) or "*" in names) and (
        any(fnmatchcase(request.action.lower(), pattern.lower()) for pattern in _listed(statement["Action"]))
        and any(fnmatchcase(request.resource, pattern) for pattern in _listed(statement["Resource"]))
        and all(
            _holds(operator, request.context.get(key), _listed(allowed))
            for operator, conditions in statement.get("Condition", {}).items()
            for key, allowed in conditions.items()
        )
    )


def _principals(principal: str | Mapping[str, Any]) -> Iterable[str]:
    if isinstance(principal, str):
        return [principal]
    return [name for names in principal.values() for name in _listed(names)]


def _listed(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _holds(operator: str, seen: str | None, allowed: list[str]) -> bool:
    if operator not in ("Bool", "StringEquals", "ArnEquals", "ArnLike"):
        raise ValueError(f"the policy has condition operator {operator}, which is not known here")
    if seen is None:
        return False
    if operator == "Bool":
        return seen.lower() in [name.lower() for name in allowed]
    if operator == "StringEquals":
        return seen in allowed
    return any(fnmatchcase(seen, pattern) for pattern in allowed)
