"""The check of arguments of public classes and functions: one of a wrong type is refused in one line.

Of a name in place of an environment Python would complain far below, of an attribute that a text does not have.
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

_UNKNOWN = (inspect.Parameter.empty, Any)  # classes to Python


def check_argument_types[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """Return a function, or an `__init__`, that refuses arguments of other types than it is annotated with.

    Classes are checked, and unions of classes. What a sequence holds and what a protocol asks for are not.

    Raises:
        FieldError: when it is called with an argument of a wrong type.
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
    members = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    is_one = parameter_kind not in {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    return is_one and all(
        isinstance(member, type) and member not in _UNKNOWN and not getattr(member, "_is_protocol", False)
        for member in members
    )


def _check(function: Callable[..., object], kinds: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for name, kind in kinds.items():
        if not is_a(given[name], kind):
            called: Any = type(given["self"]) if function.__name__ == "__init__" else function
            allowed = allowed_type(kind)
            if kind is Environment and isinstance(given[name], str):
                allowed += f"; load_declaration().environment({value_text(given[name])}) returns one"
            refuse(called, None, field=name, seen=given[name], allowed=allowed)
