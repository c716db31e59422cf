"""A server in SNS's place, which says what a test wants it to."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl


class Endpoint:
    """A server in SNS's place: gives the answers it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = []
        self.requests: list[dict[str, str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request_body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append(dict(parse_qsl(request_body.decode())))
                status, body = endpoint.answers.pop(0)
                if status == 0:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def serving() -> Iterator[Endpoint]:
    """Yield a server that answers what a test says."""
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()
