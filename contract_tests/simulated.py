"""A pytest plugin for your own tests: `pytest_plugins = ["contract_tests.simulated"]` gives them a `simulator`."""

from collections.abc import Iterator

import pytest

from sluice.clock import waiting_on
from sluice.simulator.hook import Simulator


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """Yield SQS and SNS for one test: empty, without a server, with time that passes only when the test lets it.

    `sluice.clock.eventually` goes by the simulator's clock meanwhile.
    """
    simulated = Simulator()
    with waiting_on(simulated.clock):
        yield simulated
