"""A server on the loopback that answers with exactly the given bytes, or not at all."""

import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum

_PAUSE_MILLISECONDS = 50
_SECONDS_MAX = 300  # of a connection that its client keeps


class End(Enum):
    """The fate of a connection after its bytes were sent."""

    KEPT = "kept"
    CLOSED = "closed"
    RESET = "reset"
    SILENT = "silent"
    SLOW = "slow"


@dataclass(slots=True)
class Server:
    url: str
    answer: bytes = b""
    end: End = End.KEPT
    requests_count: int = 0
    ended_count: int = 0


@contextmanager
def serving() -> Iterator[Server]:
    """Yield a server; the test may replace its answer before each request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}")
        threading.Thread(target=_accept, args=(listener, server), daemon=True).start()
        yield server


def _accept(listener: socket.socket, server: Server) -> None:
    with suppress(OSError):
        while True:
            connected, _ = listener.accept()
            threading.Thread(target=_serve, args=(connected, server), daemon=True).start()


def _serve(connected: socket.socket, server: Server) -> None:
    try:
        _answer(connected, server)
    finally:
        server.ended_count += 1


def _answer(connected: socket.socket, server: Server) -> None:
    connected.settimeout(_SECONDS_MAX)
    with connected, suppress(OSError):
        while _is_whole_request(connected):
            server.requests_count += 1
            answer, end = server.answer, server.end  # read now: the test may replace them after the answer is sent
            if end is End.SLOW:
                _send_slowly(connected, answer)
                return
            connected.sendall(answer)
            if end is End.SILENT:
                connected.recv(1)  # until its client gives up
            if end is End.RESET:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if end is not End.KEPT:
                return


def _send_slowly(connected: socket.socket, answer: bytes) -> None:
    """Send a byte at a time, until the client hangs up."""
    hung_up = select.poll()
    hung_up.register(connected, select.POLLIN)
    for position in range(len(answer)):
        connected.sendall(answer[position : position + 1])
        if hung_up.poll(_PAUSE_MILLISECONDS):
            return


def _is_whole_request(connected: socket.socket) -> bool:
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        if not (more := connected.recv(65_536)):
            return False
        received += more
    head = received[:end].lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    missing = end + 4 + length - len(received)
    while missing > 0:
        if not (more := connected.recv(65_536)):
            return False
        missing -= len(more)
    return True
