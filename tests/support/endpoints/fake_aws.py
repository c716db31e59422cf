"""SQS and SNS over HTTP on the loopback interface: the simulator's model answers, in real time, and can fail.

LocalStack is what Sluice is tested against. This is for what LocalStack does not do on demand (stall, throttle, die in
the middle of a run), and for tests of something else that only need queues which are there at once.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import botocore.session

from sluice.clock import SystemClock
from sluice.declaration import Environment
from sluice.simulator import query_protocol
from sluice.simulator.model import Account, Refusal
from sluice.testing import deploy

_REGION = "us-east-1"
_TIMEOUT_SECONDS = 20
_SNS = botocore.session.get_session().get_service_model("sns")
THROTTLED = Refusal("ThrottlingException", "Rate exceeded")

type Fault = Callable[[str], Refusal | None]
"""Given the operation of each call: a refusal to answer instead, or None. It may block."""


class Endpoint:
    """One account behind a port of its own. Its `fault` may be replaced at any time."""

    def __init__(self) -> None:
        self.fault: Fault = lambda _: None
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._account = Account(region=_REGION, base_url=self.url)
        self._changed = threading.Condition()
        self._clock = SystemClock()

    def deploy(self, environment: Environment, *, visibility_timeout_seconds: int | None = _TIMEOUT_SECONDS) -> None:
        """Make an environment's topic, queues and subscriptions; a timeout of None is as declared."""
        sqs, sns = (boto3.client(name, endpoint_url=self.url, region_name=_REGION) for name in ("sqs", "sns"))
        deploy(environment, sqs=sqs, sns=sns, visibility_timeout_seconds=visibility_timeout_seconds)

    def die(self) -> None:
        self._server.stop()

    def come_back(self) -> None:
        """Be there again, at the same port, with everything that was."""
        self._server = _Server(self, port=self._server.server_address[1])

    def lose_messages(self) -> None:
        """Have nothing in any queue any more, as an emulator that was restarted and kept only what was deployed."""
        with self._changed:
            for url in self._request("sqs", "ListQueues", {})["QueueUrls"]:  # type: ignore[index]
                self._request("sqs", "PurgeQueue", {"QueueUrl": url})

    def answer(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any] | Refusal:
        """Answer one call; a receive waits as long as it was asked to."""
        refused = self.fault(operation)
        if refused is not None:
            return refused
        with self._changed:
            answered = self._request(service, operation, params)
            if operation == "ReceiveMessage" and answered == {}:
                return self._wait(params)
            self._changed.notify_all()
            return answered

    def _request(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any] | Refusal:
        return self._account.call(service, operation, params, self._clock.now_us() / 1e6)

    def _wait(self, params: dict[str, Any]) -> dict[str, Any] | Refusal:
        deadline = self._clock.monotonic() + self._account.sqs.wait_seconds(params)
        answered: dict[str, Any] | Refusal = {}
        while answered == {} and (left := deadline - self._clock.monotonic()) > 0:
            self._changed.wait(min(left, 0.25))  # leases end without anybody saying so
            answered = self._request("sqs", "ReceiveMessage", params)
        return answered


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, endpoint: Endpoint, *, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.endpoint = endpoint
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted, address = super().get_request()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.add(accepted)
        return accepted, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients go away, and this endpoint cuts connections."""

    def stop(self) -> None:
        if not self._thread.is_alive():
            return
        self.shutdown()
        self._thread.join()
        self.server_close()
        for entry in list(self._open):
            with suppress(OSError):
                entry.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        """Answer SQS's JSON, or SNS's form."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        target = self.headers.get("X-Amz-Target")
        if target is not None:
            answered = self.server.endpoint.answer("sqs", target.rpartition(".")[2], json.loads(body))
            self._answer_json(answered)
        else:
            operation = _SNS.operation_model(dict(p.split(b"=", 1) for p in body.split(b"&"))[b"Action"].decode())
            answered = self.server.endpoint.answer("sns", operation.name, query_protocol.decode(body, operation))
            self._answer_xml(answered, operation)

    def _answer_json(self, answered: dict[str, Any] | Refusal) -> None:
        if isinstance(answered, Refusal):
            body = {"__type": f"com.amazonaws.sqs#{answered.shape}", "message": answered.text}
            self._answer_text(
                answered.status, json.dumps(body).encode(), {"x-amzn-query-error": f"{answered.code};Sender"}
            )
        else:
            self._answer_text(200, json.dumps(answered).encode(), {"Content-Type": "application/x-amz-json-1.0"})

    def _answer_xml(self, answered: dict[str, Any] | Refusal, operation: Any) -> None:
        if isinstance(answered, Refusal):
            self._answer_text(
                answered.status, query_protocol.encode_error(answered.code, answered.text, "loopback"), {}
            )
        else:
            self._answer_text(200, query_protocol.encode(answered, operation, "loopback"), {"Content-Type": "text/xml"})

    def _answer_text(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def running() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    try:
        yield endpoint
    finally:
        endpoint.fault = lambda _: None
        endpoint.die()
