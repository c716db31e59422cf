"""Checks of declared values: names and types of the fields, then the rule of each field, then relations of fields.

Python's dataclasses check nothing. Pydantic would, but its import takes a quarter of a second, while a command answers
`--help` in less than a tenth; and workers would need it in their image.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from enum import Enum, EnumType
from functools import wraps
from types import UnionType
from typing import Any, NamedTuple, NoReturn, dataclass_transform, get_args, get_origin

from sluice.errors import FieldError
from sluice.terminal.printable import text_of

_RULE = "rule"
_SEEN_CHARACTERS_MAX = 500
PENDING = r"\$\{Token\[[^\]]+\]\}"
"""Pattern of a CDK token, which stands for a value that is known later: at deployment, or after a context lookup.

AWS: https://docs.aws.amazon.com/cdk/v2/guide/tokens.html (read 2026-11-27).
"""
_NAME_CHARACTERS_MAX = 300
"""Length to which a refusal cuts a name; all allowed names are shorter."""


class Rule(NamedTuple):
    """A condition that a field's values have to meet, and the allowed values in words."""

    is_met: Callable[[Any], object]
    allowed: str


def rule_of(declared_field: Field[Any]) -> Rule | None:
    """Return the rule of a field; None if only its type is checked."""
    return declared_field.metadata.get(_RULE)


def satisfying(is_met: Callable[[Any], object], allowed: str, *, default: Any = MISSING) -> Any:
    """Return a field whose values have to meet a condition; None always meets it where the field's type allows None."""
    return field(default=default, metadata={_RULE: Rule(is_met, allowed)})


def between(lowest: float, highest: float, unit: str = "", *, default: Any = MISSING) -> Any:
    """Return a field of numbers from `lowest` to `highest`, both included."""
    return satisfying(lambda seen: lowest <= seen <= highest, f"{lowest} to {highest} {unit}".strip(), default=default)


def matching(pattern: str, allowed: str, *, default: Any = MISSING) -> Any:
    """Return a field of texts that a pattern matches as a whole; `allowed` are its words."""
    return satisfying(lambda seen: re.fullmatch(pattern, seen), allowed, default=default)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, satisfying, between, matching))
def declaration_class[T](cls: type[T]) -> type[T]:
    """Decorate a class: a frozen, slotted, keyword-only dataclass that refuses wrong fields in one line.

    When `__post_init__` of the class runs, each field is right by itself; it only has to check relations of fields.

    Raises:
        FieldError: when a value is made with an unknown field, or a field of a wrong type or value.
    """
    data_class = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    unchecked_init = data_class.__init__

    @wraps(unchecked_init)
    def checked_init(self: T, *unnamed: object, **values: Any) -> None:
        _check_fields(data_class, unnamed, values)
        unchecked_init(self, **values)

    data_class.__init__ = checked_init  # type: ignore[assignment]
    return data_class


def require(value: Any, is_met: object, *, field: str, allowed: str, seen: Any = MISSING) -> None:
    """Refuse a declared value unless a condition on one of its fields is met.

    Args:
        value: the declared value.
        is_met: whether the condition is met.
        field: the name of the field to blame.
        allowed: the allowed values in words.
        seen: shown as the wrong value, in place of the field's value.
    """
    if not is_met:
        found = getattr(value, field) if seen is MISSING else seen
        refuse(type(value), getattr(value, "name", None), field=field, seen=found, allowed=allowed)


def refuse(
    kind: type, name: object, *, field: str, seen: object, allowed: str, intended: str | None = None
) -> NoReturn:
    """Raise a FieldError about a declared value's field: in one line the value seen and the values allowed.

    `kind` is the value's class and `name` the value's own name; `intended` is a value that was probably meant.
    """
    label = kind.__name__ if name is None or field == "name" else f"{kind.__name__}({value_text(name)})"
    found = value_text(seen, characters_max=_SEEN_CHARACTERS_MAX)
    raise FieldError(
        f"{label}.{field} is {found}{did_you_mean(intended)}, allowed is {allowed}",
        field=field.partition("[")[0],
    )


def is_pending(seen: object) -> bool:
    """Return whether a value is, or contains, a token of CDK."""
    return isinstance(seen, str) and re.search(PENDING, seen) is not None


def value_text(seen: object, *, characters_max: int = _NAME_CHARACTERS_MAX) -> str:
    """Return a value as a refusal shows it: as Python writes it, cut at a length."""
    text = text_of(seen)
    return text if len(text) <= characters_max else f"{text[:characters_max]}…"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like `name`, in quotes; None if none is like it."""
    found = get_close_matches(name, list(known), n=1)
    return repr(found[0]) if found else None


def did_you_mean(intended: str | None) -> str:
    """Return the question "did you mean …?" with a leading space, for a message; empty for None."""
    return "" if intended is None else f" (did you mean {intended}?)"


def _check_fields(kind: Any, unnamed: tuple[object, ...], values: dict[str, Any]) -> None:
    """Refuse arguments for a declared class: without names, of unknown names, of wrong values, or missing ones."""
    known: dict[str, Any] = {declared_field.name: declared_field for declared_field in fields(kind)}
    if unnamed:
        raise FieldError(
            f"{kind.__name__} is given {value_text(unnamed[0])} without a name, allowed is NAME=VALUE, such as"
            f" {next(iter(known))}={value_text(unnamed[0])}",
            field="",
        )
    for name in values:
        if name not in known:
            raise FieldError(
                f"{kind.__name__} has no field {value_text(name)}{did_you_mean(nearest(name, known))}, allowed is"
                f" one of {', '.join(known)}",
                field=name,
            )
    for name, declared_field in known.items():
        if name in values:
            _check_field(kind, values.get("name"), declared_field, values[name])
        elif declared_field.default is MISSING and declared_field.default_factory is MISSING:
            raise FieldError(
                f"{kind.__name__}.{name} is missing, allowed is {allowed_type(declared_field.type)}", field=name
            )


def _check_field(kind: type, name: object, declared_field: Any, seen: object) -> None:
    """Refuse a field's value of a wrong type, or one that breaks the field's rule."""
    field_type, rule = declared_field.type, rule_of(declared_field)
    if not is_a(seen, field_type):
        intended = _probable_value(seen, field_type)
        refuse(kind, name, field=declared_field.name, seen=seen, allowed=allowed_type(field_type), intended=intended)
    if rule is not None and seen is not None and not rule.is_met(seen):
        token_remark = "; a token of CDK stands for it until it is deployed: write it out" if is_pending(seen) else ""
        refuse(kind, name, field=declared_field.name, seen=seen, allowed=f"{rule.allowed}{token_remark}")


def allowed_type(kind: Any) -> str:
    """Return the values that an annotation allows, in words."""
    if isinstance(kind, EnumType):
        return " or ".join(map(str, kind))
    text = kind.__name__ if isinstance(kind, type) else re.sub(r"[\w.]+\.(?=[A-Z])", "", str(kind))
    return f"a value of type {text}"


def _probable_value(seen: object, kind: Any) -> str | None:
    """Return the text of the value that was probably meant instead of one of a wrong type.

    For the word of an Enum's member that is the member; for a single element in place of a tuple, the tuple of it.
    """
    found = None
    if isinstance(kind, EnumType) and isinstance(seen, str):
        members: list[Enum] = list(kind)
        found = next((str(enum) for enum in members if seen.lower() in (enum.value, enum.name.lower())), None)
    elif get_origin(kind) is tuple and is_a(seen, get_args(kind)[0]):
        found = f"({value_text(seen)},)" if isinstance(seen, str) else f"({type(seen).__name__}(…),)"
    return found


def is_a(seen: object, kind: Any) -> bool:
    """Return whether a value is of a declared type. Unlike in Python, True and False are no numbers."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        is_met = any(is_a(seen, member) for member in inner)
    elif origin is tuple:
        is_met = isinstance(seen, tuple) and all(is_a(element, inner[0]) for element in seen)
    elif origin is Mapping:
        is_met = isinstance(seen, Mapping) and all(
            is_a(key, inner[0]) and is_a(value, inner[1]) for key, value in seen.items()
        )
    elif kind in (int, float):
        is_met = type(seen) is int or type(seen) is kind
    else:
        is_met = origin is not None or isinstance(seen, kind)  # other generics, as Sequence, are checked by their user
    return is_met
