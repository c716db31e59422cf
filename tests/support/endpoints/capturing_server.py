"""A server on the loopback that keeps every request, and answers with a reply that the test gives."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import batched
from pathlib import Path
from typing import NamedTuple


class CapturedRequest(NamedTuple):
    """A request as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """The answer to send; status 0 closes the connection without a word. With `chunk_bytes` it comes in such chunks.

    With `missing_bytes` the connection ends that much before the answer does.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()
    chunk_bytes: int | None = None
    missing_bytes: int = 0


@dataclass(slots=True)
class Server:
    url: str
    reply: Callable[[CapturedRequest], Reply]
    captured: list[CapturedRequest] = field(default_factory=list)


@contextmanager
def capturing(reply: Callable[[CapturedRequest], Reply], *, certificate: Path | None = None) -> Iterator[Server]:
    """Yield a server; it uses TLS if `certificate`, a file with certificate and key, is given."""

    class CapturingHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = CapturedRequest(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            server.captured.append(request)
            answer = server.reply(request)
            if answer.status == 0:
                self.close_connection = True
                return
            self.send_response(answer.status)
            size = answer.chunk_bytes
            whole = len(answer.body) + answer.missing_bytes
            length = ("Content-Length", str(whole)) if size is None else ("Transfer-Encoding", "chunked")
            for name, value in (length, *answer.headers):
                self.send_header(name, value)
            self.end_headers()
            self.close_connection = answer.missing_bytes > 0
            if size is None:
                self.wfile.write(answer.body)
            else:
                for part in (*batched(answer.body, size), ()):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(part), bytes(part)))

        do_PUT = do_POST  # noqa: N815 (as it has to be called)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Listener(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: a client may refuse the certificate."""

    with Listener(("127.0.0.1", 0), CapturingHandler) as listener:
        scheme = "http" if certificate is None else "https"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            listener.socket = context.wrap_socket(listener.socket, server_side=True)
        server = Server(f"{scheme}://127.0.0.1:{listener.server_address[1]}", reply)
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
