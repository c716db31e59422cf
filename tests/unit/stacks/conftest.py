"""One synthesis for all tests: every environment, declared or extra, is built and synthesized once per session."""

from collections.abc import Mapping
from pathlib import Path

import aws_cdk as cdk
import pytest

from sluice.declaration import Environment
from tests.support.declaration import ENVIRONMENTS
from tests.unit.stacks import synthesis
from tests.unit.stacks.extra import EXTRA
from tests.unit.stacks.synthesis import Resource, Stacks


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> cdk.App:
    """Return the app with a stage for every environment, synthesized."""
    app = cdk.App(context=synthesis.CONTEXT, outdir=str(tmp_path_factory.mktemp("cdk")))
    synthesis.build(app, [*ENVIRONMENTS.values(), *EXTRA.values()])
    app.synth()
    return app


@pytest.fixture(scope="session")
def stacks(app: cdk.App) -> Mapping[str, Stacks]:
    """Return every environment's stacks by its name."""
    return {name: synthesis.read(Path(app.outdir), name) for name in (*ENVIRONMENTS, *EXTRA)}


@pytest.fixture(scope="session")
def resources(stacks: Mapping[str, Stacks]) -> Mapping[str, list[Resource]]:
    """Return every environment's resources, in all of its stacks, by its name."""
    return {
        name: synthesis.resources({part: stack.template for part, stack in parts.items()})
        for name, parts in stacks.items()
    }


@pytest.fixture(params=ENVIRONMENTS)
def environment(request: pytest.FixtureRequest) -> Environment:
    """Return each declared environment in turn."""
    return ENVIRONMENTS[request.param]


@pytest.fixture
def declared(resources: Mapping[str, list[Resource]], environment: Environment) -> list[Resource]:
    """Return the resources of the declared environment whose turn it is."""
    return resources[environment.name]


@pytest.fixture(scope="session")
def full(resources: Mapping[str, list[Resource]]) -> list[Resource]:
    """Return the resources of the environment that uses every option."""
    return resources["full"]


@pytest.fixture(scope="session")
def hosted(resources: Mapping[str, list[Resource]]) -> list[Resource]:
    """Return the resources of the environment in somebody else's network."""
    return resources["hosted"]


@pytest.fixture(scope="session")
def plain(resources: Mapping[str, list[Resource]]) -> list[Resource]:
    """Return the resources of the environment in somebody else's network that declares nothing more."""
    return resources["plain"]
