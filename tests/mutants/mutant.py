"""A mutant, and what its broken rules are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sluice.simulator.model import AwsRefusal


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule.

    Args:
        name: for the report.
        does: what it does, one clause.
        owner: class or module whose rule is overridden.
        rule: name of what is overridden there.
        instead: what stands there instead.
        gap: the deviation it imitates, empty for none.
        read_by: where the rule is a number, who reads it: owner and name of a method or function.
        pair: the cell of the table in `pairs` that it is; None for a rule broken everywhere.
    """

    name: str
    does: str
    owner: Any
    rule: str
    instead: Any
    gap: str = ""
    read_by: tuple[Any, str] | None = None
    pair: tuple[str, str, str] | None = None


def nothing(*_: object, **__: object) -> None:
    """Check nothing."""


def returning(value: Any) -> Callable[..., Any]:
    """Return a rule that always gives this."""
    return lambda *_, **__: value


def after(owner: Any, rule: str, change: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule with its result passed through `change`, which is given the arguments too."""
    original = getattr(owner, rule)

    def call_and_change(*arguments: Any, **named: Any) -> Any:
        return change(original(*arguments, **named), *arguments, **named)

    return call_and_change


def without(owner: Any, rule: str, text: str, *, instead: Any = None) -> Callable[..., Any]:
    """Return the rule without the refusals whose code or text has `text`; where it would refuse so, it gives `instead`.

    What the rule would check after that refusal is not checked either.
    """
    original = getattr(owner, rule)

    def call_without(*arguments: Any, **named: Any) -> Any:
        try:
            return original(*arguments, **named)
        except AwsRefusal as refusal:
            if text in str(refusal):
                return instead
            raise

    return call_without
