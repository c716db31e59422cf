"""A TCP proxy in front of an endpoint, which fails when a test says so."""

import contextlib
import socket
import socketserver
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_HOLD_SECONDS_MAX = 60


class TcpProxy:
    """A TCP proxy between a process and its endpoint: it can be cut and mended, lose answers, and hold requests."""

    def __init__(self, endpoint_url: str) -> None:
        parts = urlsplit(endpoint_url)
        self._target = (parts.hostname or "", parts.port or 0)
        self._port = 0
        self._server: socketserver.ThreadingTCPServer | None = None
        self._open: set[socket.socket] = set()
        self._passes = threading.Event()
        self._passes.set()
        self.is_losing = self.is_requested = False
        self.lost_count = self.requested_count = 0
        self.mend()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()
        self.cut()

    @property
    def url(self) -> str:
        """Return the URL of the endpoint through the proxy."""
        return f"http://127.0.0.1:{self._port}"

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        if self._server is not None:
            self._server.shutdown()
            for item in list(self._open):
                _shut(item)
            self._server.server_close()  # waits for the threads of its connections
            self._server = None

    def mend(self) -> None:
        """Accept connections again, at the same port."""
        line = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                line._carry(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", self._port), Connection)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def hold(self) -> None:
        self.is_requested = False
        self._passes.clear()

    def let_go(self) -> None:
        self._passes.set()

    def _reach(self) -> socket.socket:
        return socket.create_connection(self._target)

    def _carry(self, client: socket.socket) -> None:
        with self._reach() as server:
            self._open |= {client, server}
            back = threading.Thread(target=self._answer, args=(server, client), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                while requested := client.recv(65_536):
                    self.is_requested = True
                    self.requested_count += 1
                    self._passes.wait(_HOLD_SECONDS_MAX)
                    server.sendall(requested)
            _shut(server)
            back.join()
            self._open -= {client, server}

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Pass the server's answers on to the client until one is to be lost."""
        with contextlib.suppress(OSError):
            while answered := server.recv(65_536):
                if self.is_losing:
                    self.lost_count += 1
                    break
                client.sendall(answered)
        _shut(client)


def _shut(entry: socket.socket) -> None:
    with contextlib.suppress(OSError):
        entry.shutdown(socket.SHUT_RDWR)
