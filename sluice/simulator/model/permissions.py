"""AddPermission and RemovePermission of queues and topics: statements of a resource policy, each under its label."""

from collections.abc import Iterable, Mapping
from typing import Any

type ResourcePolicy = dict[str, Any]


def statement(
    *, service: str, label: str, accounts: Iterable[str], actions: Iterable[str], resource: str
) -> ResourcePolicy:
    """Return the policy statement that AddPermission adds; a single account or action is no list [CRE-47]."""
    return {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_list(f"arn:aws:iam::{account}:root" for account in accounts)},
        "Action": _one_or_list(f"{service}:{action}" for action in actions),
        "Resource": resource,
    }


def _one_or_list(values: Iterable[str]) -> str | list[str]:
    all_values = list(values)
    return all_values[0] if len(all_values) == 1 else all_values


def statements(policy: Mapping[str, Any]) -> list[ResourcePolicy]:
    """Return the statements of a policy, which may be a list or a single one; anything else in it is left out."""
    found = policy.get("Statement")
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]


def has_label(policy: Mapping[str, Any], label: str) -> bool:
    """Return whether a statement of the policy has that label."""
    return any(each.get("Sid") == label for each in statements(policy))


def with_statement(policy: Mapping[str, Any], added: ResourcePolicy) -> ResourcePolicy:
    """Return the policy with one more statement at the end."""
    return {**policy, "Statement": [*statements(policy), added]}


def without_label(policy: Mapping[str, Any], label: str) -> ResourcePolicy:
    """Return the policy without the statements of that label."""
    return {**policy, "Statement": [each for each in statements(policy) if each.get("Sid") != label]}
