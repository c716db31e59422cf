"""Namespaces with a delay between them, where this process may make them; what they leave is nothing."""

import socket
from contextlib import ExitStack
from math import inf

from benchmarks.publishing.namespaces import Network
from sluice.clock import SystemClock

_DELAY_SECONDS = 0.02


def _crossing_seconds(network: Network) -> float:
    """Return how long a byte takes to a second node and back."""
    with network.node() as address:
        server = socket.create_server((address, 0))
    clock = SystemClock()
    with server, socket.create_connection(server.getsockname(), timeout=30) as near:
        far, _ = server.accept()
        with far:
            began = clock.monotonic()
            near.sendall(b"x")
            far.sendall(far.recv(1))
            assert near.recv(1) == b"x"
            return clock.monotonic() - began


def test_what_crosses_to_another_namespace_and_back_is_delayed_twice() -> None:
    """Where namespaces are refused, this thread is where it was."""
    here = socket.if_nameindex()
    network = Network(_DELAY_SECONDS)

    with ExitStack() as stack:
        try:
            stack.enter_context(network.running())
        except OSError:
            found = inf
        else:
            assert socket.if_nameindex() != here
            found = _crossing_seconds(network)

    assert found >= 2 * _DELAY_SECONDS
    assert socket.if_nameindex() == here
