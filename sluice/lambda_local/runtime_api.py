"""Lambda's Runtime API on the loopback, for one process, which asks for one event after the other and answers each.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html (read 2026-11-27)
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Self

from sluice.simulator.wire import LoopbackServer, RefusedError, Request, WireAnswer, require_loopback

_PREFIX = "/2018-06-01/runtime/"
_ENDED = re.compile(r"invocation/([^/]+)/(response|error)")
_ACCEPTED = 202
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionAnswer:
    """The answer of a process to an invocation.

    Args:
        request_id: the id of the invocation; None if the process failed before its first one.
        body: the function's return value as JSON; None if it raised.
        error: the runtime's text of the exception; None if it returned.
    """

    request_id: str | None
    body: bytes | None = None
    error: str | None = None


class RuntimeApi:
    """Holds a port from its creation on; as a context manager it answers the process inside the `with` block.

    Attributes:
        is_ready: whether the process has asked for its first event, so that its start is over.
    """

    def __init__(self) -> None:
        self._server = LoopbackServer(self._answer, port=0)
        self._events: SimpleQueue[tuple[Mapping[str, str], bytes] | None] = SimpleQueue()
        self._answers: SimpleQueue[FunctionAnswer] = SimpleQueue()
        self.is_ready = False

    @property
    def address(self) -> str:
        """Return host and port, the value for the environment variable AWS_LAMBDA_RUNTIME_API."""
        return self._server.url.removeprefix("http://")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._events.put(None)  # ends the wait of a process for its next event
        self._server.stop()

    def give(self, request_id: str, event: Mapping[str, Any], *, deadline_ms: int, function_arn: str) -> None:
        """Give the process an event when it next asks for one.

        Args:
            request_id: the id of the invocation.
            event: the event that the function is called with.
            deadline_ms: the end of the function's time, milliseconds since 1970.
            function_arn: the function's ARN.
        """
        headers = {
            "Lambda-Runtime-Aws-Request-Id": request_id,
            "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": function_arn,
            "Lambda-Runtime-Trace-Id": _trace_header(request_id, deadline_ms // 1_000),
        }
        self._events.put(({**_JSON, **headers}, json.dumps(event).encode()))

    def take(self, seconds: float) -> FunctionAnswer | None:
        """Wait up to `seconds` for the next answer and return it; None if there is none."""
        try:
            return self._answers.get(timeout=seconds)
        except Empty:
            return None

    def _answer(self, request: Request) -> WireAnswer:
        """Answer a request of the process: with its next event, or by taking its answer or error."""
        require_loopback(request.headers)
        path = request.path.removeprefix(_PREFIX)
        if path == "invocation/next":
            self.is_ready = True
            event = self._events.get()
            if event is None:
                raise ConnectionAbortedError("the execution environment ends")
            return WireAnswer(200, *event)
        ended = _ENDED.fullmatch(path)
        if ended is not None and ended[2] == "response":
            self._answers.put(FunctionAnswer(request_id=ended[1], body=request.body))
        elif ended is not None or path == "init/error":
            error = request.body.decode(errors="replace")
            self._answers.put(FunctionAnswer(request_id=None if ended is None else ended[1], error=error))
        else:
            raise RefusedError(404, "NotFound", f"the Runtime API has no {request.path}")
        return WireAnswer(_ACCEPTED, _JSON, b'{"status":"OK"}')


def _trace_header(request_id: str, at_seconds: int) -> str:
    """Return X-Ray's header of an invocation, which says that no trace is recorded.

    https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader (read 2026-11-27)
    """
    digits = request_id.replace("-", "")
    return f"Root=1-{at_seconds:08x}-{digits[:24]};Parent={digits[-16:]};Sampled=0"
