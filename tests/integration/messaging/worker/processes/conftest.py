"""A line to the shared LocalStack."""

from collections.abc import Iterator

import pytest

from emulator import localstack
from tests.support.endpoints.tcp_proxy import TcpProxy


@pytest.fixture
def line(localstack_shared: localstack.Emulator) -> Iterator[TcpProxy]:
    """Yield a TCP proxy to the shared LocalStack, which a test may hold or cut."""
    with TcpProxy(localstack_shared.endpoint_url) as made:
        yield made
