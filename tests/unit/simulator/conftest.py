"""A simulator for each test."""

import pytest

from sluice.simulator.hook import Simulator
from sluice.testing.plugin import simulated_aws

__all__ = ["simulated_aws", "simulator"]


@pytest.fixture
def simulator(simulated_aws: Simulator) -> Simulator:
    return simulated_aws
