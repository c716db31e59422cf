"""The templates of every environment, which are synthesized once, as resources."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sluice.declaration import Environment
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.environments import EDITED, EXTRA
from tests.support.templates.resources import Resource, StackTemplates, read, resources


@pytest.fixture(scope="session")
def stacks(templates_folder: Path) -> Mapping[str, StackTemplates]:
    """Return every environment's stacks by its name."""
    return {name: read(templates_folder / name) for name in (*ENVIRONMENTS, *EXTRA)}


@pytest.fixture(scope="session")
def edited_stacks(templates_folder: Path) -> Mapping[str, StackTemplates]:
    """Return the stacks of environments after an edit, by what was edited."""
    return {name: read(templates_folder / name) for name in EDITED}


@pytest.fixture(scope="session")
def by_environment(stacks: Mapping[str, StackTemplates]) -> Mapping[str, list[Resource]]:
    """Return every environment's resources, in all of its stacks, by its name."""
    return {name: resources(parts) for name, parts in stacks.items()}


@pytest.fixture(params=ENVIRONMENTS)
def environment(request: pytest.FixtureRequest) -> Environment:
    """Return each declared environment in turn."""
    return ENVIRONMENTS[request.param]


@pytest.fixture
def declared_resources(by_environment: Mapping[str, list[Resource]], environment: Environment) -> list[Resource]:
    """Return the resources of the declared environment of the current parameter."""
    return by_environment[environment.name]


@pytest.fixture(scope="session")
def full(by_environment: Mapping[str, list[Resource]]) -> list[Resource]:
    """Return the resources of the environment that uses every option."""
    return by_environment["full"]


@pytest.fixture(scope="session")
def hosted_resources(by_environment: Mapping[str, list[Resource]]) -> list[Resource]:
    """Return the resources of the environment in an existing network."""
    return by_environment["hosted"]


@pytest.fixture(scope="session")
def plain(by_environment: Mapping[str, list[Resource]]) -> list[Resource]:
    """Return the resources of the environment that declares only an existing network."""
    return by_environment["plain"]
