"""The part of the ECS agent that a worker calls, on the loopback: task scale-in protection.

Each task has an address of its own, its ECS_AGENT_URI. Like the real agent, this one refuses unknown fields, and an
expiry that ECS does not allow.
AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html
(read 2026-11-23).
"""

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from sluice.clock import Clock

_STATE = "/task-protection/v1/state"
_FIELDS = {"ProtectionEnabled", "ExpiresInMinutes"}
_DEFAULT_MINUTES, _MINUTES_MAX = 120, 2_880
_BODY_BYTES_MAX = 10_000


class EcsAgent:
    """Grants every request for protection, and knows which tasks are protected. Any thread may call it."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._until: dict[str, float] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def uri(self, task: str) -> str:
        """Return the ECS_AGENT_URI of a task."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{task}"

    def is_protected(self, task: str) -> bool:
        """Return whether a task is protected from scale-in now."""
        with self._lock:
            return self._until.get(task, 0.0) > self._clock.monotonic()

    def answer(self, task: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Set a task's protection by a request; return the HTTP status and the response."""
        try:
            wanted = json.loads(body)
            is_wanted, minutes = wanted["ProtectionEnabled"], wanted.get("ExpiresInMinutes", _DEFAULT_MINUTES)
            is_valid = wanted.keys() <= _FIELDS and isinstance(is_wanted, bool) and 1 <= minutes <= _MINUTES_MAX
        except (ValueError, KeyError, TypeError, AttributeError):
            is_valid = False
        if not is_valid:
            return 400, {"error": {"Arn": task, "Code": "InvalidParameterException", "Message": "malformed request"}}
        with self._lock:
            self._until[task] = self._clock.monotonic() + minutes * 60 if is_wanted else 0.0
        expires_at = datetime.fromtimestamp(self._clock.now_us() / 1e6 + minutes * 60, tz=UTC)
        expiry = {"ExpirationDate": f"{expires_at:%Y-%m-%dT%H:%M:%SZ}"} if is_wanted else {}
        return 200, {"protection": {"ProtectionEnabled": is_wanted, "TaskArn": task, **expiry}}

    def _handler(agent) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (its own `self` is the request's)
        class AgentHandler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                task = self.path.removesuffix(_STATE).removeprefix("/")
                body = self.rfile.read(min(_BODY_BYTES_MAX, int(self.headers.get("Content-Length", 0))))
                status, answer = (404, {}) if not self.path.endswith(_STATE) else agent.answer(task, body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as it is called)
                """Say nothing."""

        return AgentHandler
