"""What holds whatever is declared, and that it is noticed when it does not."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from sluice.declaration import Environment
from sluice.environments import ENVIRONMENTS
from tests.unit.stacks import synthesis
from tests.unit.stacks.extra import EXTRA
from tests.unit.stacks.invariants import problems
from tests.unit.stacks.strategies import environments
from tests.unit.stacks.synthesis import Stacks, Template


def _templates(stacks: Stacks) -> dict[str, Template]:
    return {part: stack.template for part, stack in stacks.items()}


@pytest.mark.parametrize("environment", [*ENVIRONMENTS.values(), *EXTRA.values()], ids=[*ENVIRONMENTS, *EXTRA])
def test_nothing_is_wrong_in_any_declared_environment(stacks: Mapping[str, Stacks], environment: Environment) -> None:
    """Nor in those that use every option."""
    assert problems(_templates(stacks[environment.name]), environment) == []


@settings(
    max_examples=15,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # an example takes half a second: shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)
@given(environment=environments())
def test_nothing_is_wrong_in_any_environment_that_may_be_declared(
    tmp_path_factory: pytest.TempPathFactory, environment: Environment
) -> None:
    """Every queue has a FIFO DLQ of its own, nobody may too much, every alarm says what a gap means, and so on."""
    stacks = synthesis.synthesize(environment, tmp_path_factory.mktemp("cdk"))

    assert problems(_templates(stacks), environment) == []
