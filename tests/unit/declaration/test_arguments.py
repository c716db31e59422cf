"""A public class or function refuses an argument of a wrong type where it is given, in one line."""

import ast
from typing import Any, cast

import pytest

from sluice.declaration import Consumer, Environment
from sluice.declaration.arguments import check_argument_types
from sluice.errors import FieldError
from sluice.messaging.handlers import Handlers
from sluice.messaging.waiting import Wait
from sluice.messaging.worker.build import build_worker
from tests.support.project import PROJECT


class SampleConstruct:
    @check_argument_types
    def __init__(
        self,
        scope: Any,
        *,
        environment: Environment,
        count: int | None = None,
        wait: Wait | None = None,
        **more: int,
    ) -> None:
        self.given = (scope, environment, count, wait, more)


_CONSTRUCTS = sorted((PROJECT / "sluice" / "constructs").rglob("*.py"))
ENVIRONMENT = Environment(name="dev", consumers=(Consumer(name="billing"),))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            {"environment": "dev"},
            "SampleConstruct.environment is 'dev', allowed is a value of type Environment;"
            " load_declaration().environment('dev') returns one",
        ),
        ({"environment": None}, "SampleConstruct.environment is None, allowed is a value of type Environment"),
        (
            {"environment": ENVIRONMENT, "count": "2"},
            "SampleConstruct.count is '2', allowed is a value of type int | None",
        ),
    ],
)
def test_a_wrong_type_is_refused_in_one_line(arguments: dict[str, Any], line: str) -> None:
    with pytest.raises(FieldError) as refused:
        SampleConstruct("scope", **arguments)

    assert str(refused.value) == line


def test_right_arguments_arrive_unchanged() -> None:
    """Types that are protocols are not checked."""
    wait = cast(Wait, object())  # what a protocol asks for is not looked at

    made = SampleConstruct("scope", environment=ENVIRONMENT, wait=wait, more=1)

    assert made.given == ("scope", ENVIRONMENT, None, wait, {"more": 1})


def test_build_worker_refuses_a_name_in_place_of_a_consumer() -> None:
    with pytest.raises(FieldError, match=r"build_worker\.consumer is 'billing', allowed is a value of type Consumer"):
        build_worker(cast(Consumer, "billing"), queue="q", database="sqlite://", handlers=Handlers({}))


def test_every_construct_and_stack_refuses_wrong_types() -> None:
    """The decorator is on each constructor, as its source shows."""
    unchecked = [
        f"{path.name}: {found.name}"
        for path in (PROJECT / "sluice/stacks.py", PROJECT / "stacks/stage.py", *_CONSTRUCTS)
        for found in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(found, ast.ClassDef)
        for method in found.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        if [ast.unparse(decorator) for decorator in method.decorator_list] != ["check_argument_types"]
    ]

    assert unchecked == []
