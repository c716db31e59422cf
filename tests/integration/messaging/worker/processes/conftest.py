"""A line to the shared LocalStack."""

from collections.abc import Iterator

import pytest

from emulator import localstack
from tests.support.endpoints.tcp_proxy import TcpProxy


@pytest.fixture
def line(emulated: localstack.Running) -> Iterator[TcpProxy]:
    with TcpProxy(emulated.endpoint_url) as made:
        yield made
