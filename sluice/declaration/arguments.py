"""Check the arguments of public classes and functions: an argument of a wrong type is refused in one line.

Without the check, a name that is given in place of an `Environment` would raise an AttributeError deep in our code.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from types import UnionType
from typing import Any, get_args

from sluice.declaration.environment import Environment
from sluice.declaration.validation import allowed_type, is_a, refuse, value_text
from sluice.old_names import forward_names

__getattr__ = forward_names(__name__, typed=f"{__name__}:check_argument_types")

_UNCHECKED = (inspect.Parameter.empty, Any)  # annotations that are classes, and that every value fits


def check_argument_types[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function or an `__init__` so that it refuses arguments that do not fit its annotations.

    Annotations that are classes, or unions of classes, are checked. Elements of a sequence, and protocols, are not.

    Raises:
        FieldError: when the function is called with an argument of a wrong type.
    """
    signature = inspect.signature(function)
    kinds = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    kinds = {name: kind for name, kind in kinds.items() if _is_checked(kind, signature.parameters[name].kind)}

    @wraps(function)
    def checking(*arguments: P.args, **named: P.kwargs) -> T:
        _check(function, kinds, inspect.getcallargs(function, *arguments, **named))
        return function(*arguments, **named)

    return checking


def _is_checked(kind: Any, parameter_kind: Any) -> bool:
    """Return whether a parameter's annotation `kind` can be checked; not for `*arguments` and `**named`."""
    members = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    is_single_value = parameter_kind not in {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    return is_single_value and all(
        isinstance(member, type) and member not in _UNCHECKED and not getattr(member, "_is_protocol", False)
        for member in members
    )


def _check(function: Callable[..., object], kinds: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse the first of the given arguments that does not fit its annotation in `kinds`."""
    for name, kind in kinds.items():
        if not is_a(given[name], kind):
            called: Any = type(given["self"]) if function.__name__ == "__init__" else function
            allowed = allowed_type(kind)
            if kind is Environment and isinstance(given[name], str):
                allowed += f"; load_declaration().environment({value_text(given[name])}) returns one"
            refuse(called, None, field=name, seen=given[name], allowed=allowed)
