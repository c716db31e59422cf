"""Every environment that may be declared keeps all invariants."""

from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

from sluice.declaration import Environment
from tests.support.templates.invariants import problems
from tests.support.templates.resources import resources
from tests.support.templates.strategies import environments
from tests.support.templates.synthesis import synthesize


@settings(
    max_examples=4,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # an example takes half a second: shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(environment=environments())
def test_every_environment_that_may_be_declared_keeps_all_invariants(tmp_path: Path, environment: Environment) -> None:
    """For example, every queue has a DLQ of its own, and every alarm is there.

    A worker has only the rights that it needs.
    """
    found = resources(synthesize(environment, tmp_path / environment.name))

    assert problems(found, environment) == []
