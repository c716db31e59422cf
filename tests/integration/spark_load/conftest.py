"""Queues for load tests: the deployed environment's, and those of a simulated service that can be made to fail."""

from collections.abc import Iterator

import pytest

from emulator import localstack
from spark_load.runtime import deployment
from tests.integration.spark_load import loads
from tests.support.endpoints import fake_aws


@pytest.fixture
def empty(localstack_deployed: localstack.Emulator) -> deployment.LoadDeployment:
    return loads.empty_queues(localstack_deployed)


@pytest.fixture
def endpoint() -> Iterator[fake_aws.Endpoint]:
    """Yield queues of the local environment that do what AWS documents, until they are made to fail."""
    with fake_aws.running() as endpoint:
        endpoint.deploy(loads.LOCAL)
        yield endpoint


@pytest.fixture
def simulated_queues(endpoint: fake_aws.Endpoint) -> deployment.LoadDeployment:
    return deployment.find(loads.LOCAL, endpoint_url=endpoint.url)
