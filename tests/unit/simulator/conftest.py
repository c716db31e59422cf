"""A simulator, or its model alone, for each test."""

import pytest

from sluice.simulator.hook import Simulator
from sluice.testing.plugin import simulated_aws
from tests.unit.simulator.service import Service

__all__ = ["service", "simulated_aws", "simulator"]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def simulator(simulated_aws: Simulator) -> Simulator:
    return simulated_aws
