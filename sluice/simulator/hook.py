"""SQS, SNS and event source mappings behind boto3 without a server: a model answers, and time passes when it must.

The model is `sluice.simulator.model`. The hook is `before-send`, the last before the network: parameters are validated,
saboteurs and recorders take part and errors are raised exactly as with the service. A long poll does not wait. When
nobody else may act, it moves the clock to the next instant at which something can change.

botocore: https://botocore.amazonaws.com/v1/documentation/api/latest/topics/events.html (read 2026-11-20).
"""

import functools
import io
import json
import math
import re
import threading
import weakref
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.client import BaseClient
from botocore.config import Config
from botocore.model import OperationModel

from sluice import sdk
from sluice.clock import VirtualClock
from sluice.simulator import query_protocol
from sluice.simulator.model import Account, AwsRefusal
from sluice.simulator.model.functions import FunctionInvocation
from sluice.simulator.wire import WireAnswer, json_answer, xml_answer

ENDPOINT_URL = "http://simulator.invalid"
_REGION = "us-east-1"
_CALL_SECONDS = 0.001  # virtual time that passes during each call
# A third of a call's time goes into headers that no model reads.
_UNREAD = Config(signature_version=UNSIGNED, user_agent="simulator")
_START_US = 1_767_225_600_000_000  # 2026-01-01
_simulators: "weakref.WeakKeyDictionary[BaseClient, Simulator]" = weakref.WeakKeyDictionary()


@functools.cache
def _session() -> botocore.session.Session:
    return botocore.session.get_session()


class _Body(io.BytesIO):
    """The body of a response, with the `stream` method that botocore calls on urllib3's responses."""

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        """Yield the whole body at once."""
        yield self.read()


class Simulator:
    """An account in memory: it answers the calls of every client that `client` returned or `attach` was given.

    Any number of threads of one process may call at the same time.

    Args:
        clock: moves by `advance`, and when a long poll would wait; None starts a clock on 1 January 2026.

    Attributes:
        grace_seconds: real time for which a long poll waits for a call of another thread before it moves the clock.
    """

    grace_seconds = 0.1

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = VirtualClock(_START_US) if clock is None else clock
        self._changed = threading.Condition()
        self.reset()
        self._calls = 0
        self._callers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._deadlines: list[float] = []

    def reset(self) -> None:
        """Forget every queue, topic and message; the clock stays where it is."""
        with self._changed:
            self.account = Account(region=_REGION, base_url=ENDPOINT_URL)

    def client(self, service: str) -> BaseClient:
        """Return a new boto3-style client, of `sqs`, `sns` or `lambda`."""
        client = _session().create_client(
            service,
            region_name=_REGION,
            endpoint_url=ENDPOINT_URL,
            config=sdk.config().merge(_UNREAD),
        )
        self.attach(client)
        return client

    def attach(self, client: BaseClient) -> None:
        """Answer this client's calls from now on."""
        _simulators[client] = self
        service = client.meta.service_model

        def respond(request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse:
            operation = service.operation_model(event_name.rpartition(".")[2])
            sends_json = service.protocol != "query"
            params = _json_params(request, operation) if sends_json else query_protocol.decode(request.body, operation)
            result = self._answer(service.service_name, operation.name, params)
            request_id = f"simulated-{self._calls}"
            answer = json_answer(result, request_id) if sends_json else xml_answer(result, operation, request_id)
            return _response(request.url, answer)

        client.meta.events.register_last(f"before-send.{service.service_name}", respond)

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and wake the long polls of other threads."""
        with self._changed:
            self.clock.sleep(seconds)
            self._calls += 1
            self._changed.notify_all()

    def next_invocation(self, function: str, seconds: float) -> FunctionInvocation | None:
        """Return the next invocation of a function; None if none begins within `seconds` of the simulator's clock."""
        with self._changed:
            deadline, found = self.clock.monotonic() + seconds, None
            self._deadlines.append(deadline)
            while found is None and self.clock.monotonic() < deadline:
                found = self.account.functions.poll(function, self.clock.monotonic())
                if found is None:
                    self._move_clock()
            self._deadlines.remove(deadline)
            return found

    def finish(self, invocation: FunctionInvocation, answer: object) -> None:
        """End an invocation with the function's return value, parsed from JSON, or with a `NoAnswer`."""
        with self._changed:
            self.account.functions.finish(invocation, answer, self.clock.monotonic())

    def _answer(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any] | AwsRefusal:
        """Return the model's answer to one call of a client; a receive that finds no message becomes a long poll."""
        with self._changed:
            self._callers.add(threading.current_thread())
            self.clock.sleep(_CALL_SECONDS)
            answer = self._call(service, operation, params)
            if operation == "ReceiveMessage" and answer == {}:
                answer = self._poll(params)
            return answer

    def _call(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any] | AwsRefusal:
        self._calls += 1
        self._changed.notify_all()
        return self.account.call(service, operation, params, self.clock.monotonic())

    def _poll(self, params: dict[str, Any]) -> dict[str, Any] | AwsRefusal:
        """Return the answer to a long poll: receive again until a message comes or WaitTimeSeconds are over."""
        deadline = self.clock.monotonic() + self.account.sqs.wait_seconds(params)
        answer: dict[str, Any] | AwsRefusal = {}
        self._deadlines.append(deadline)
        try:
            while answer == {} and self.clock.monotonic() < deadline:
                if not self._another_thread_calls():
                    self._move_clock()
                answer = self.account.call("sqs", "ReceiveMessage", params, self.clock.monotonic())
        finally:
            self._deadlines.remove(deadline)
        return answer

    def _another_thread_calls(self) -> bool:
        """Return whether another thread calls within the grace period; without another thread, return at once."""
        others = [thread for thread in self._callers if thread.is_alive() and thread is not threading.current_thread()]
        calls_before = self._calls
        return bool(others) and self._changed.wait_for(lambda: self._calls != calls_before, timeout=self.grace_seconds)

    def _move_clock(self) -> None:
        """Move the clock to the next instant at which a poll ends or the model changes by itself."""
        now = self.clock.monotonic()
        change_at = self.account.next_change_at(now)
        next_at = min([*self._deadlines, *([] if change_at is None else [change_at])])
        # One microsecond more than needed, so that rounding never leaves the clock before the instant.
        self.advance((math.ceil(max(0, next_at - now) * 1_000_000) + 1) / 1_000_000)


def _json_params(request: AWSPreparedRequest, operation: OperationModel) -> dict[str, Any]:
    """Return the parameters of a request: those in its JSON body, in its path and in its query string."""
    template = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(operation.http["requestUri"]))
    url = urlsplit(request.url)
    found = re.fullmatch(template, url.path)
    assert found is not None, f"{operation.name} is asked for at another path"
    in_path = {name: unquote(value) for name, value in found.groupdict().items()}
    return {**dict(parse_qsl(url.query)), **json.loads(request.body or b"{}"), **in_path}


def simulator_of(client: BaseClient) -> Simulator | None:
    """Return the simulator that answers a client; None if its calls go to the network."""
    return _simulators.get(client)


def _response(url: str, answer: WireAnswer) -> AWSResponse:
    return AWSResponse(url, answer.status_code, HeadersDict(answer.headers), _Body(answer.body))
