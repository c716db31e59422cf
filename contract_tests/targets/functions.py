"""Lambda functions that a test plays: it takes each invocation of a function and decides how it ends."""

import io
import json
import threading
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from sluice.simulator.hook import Simulator
from sluice.simulator.model.functions import FunctionInvocation
from sluice.simulator.model.mapping import NoAnswer
from sluice.simulator.wire import LoopbackServer, Request, WireAnswer, require_loopback

_ANSWER_SECONDS_MAX = 60.0
FUNCTION_URL = "SLUICE_FUNCTION_URL"
"""Variable of a function in our own LocalStack: where its events are posted."""


class PlayedInvocation(Protocol):
    """An invocation that waits for its end."""

    @property
    def event(self) -> dict[str, Any]:
        """Return what the function is called with."""

    def finish(self, answer: object) -> None:
        """End the invocation: with the value that the function returns, decoded from JSON, or with `NoAnswer.ERROR`."""


class FunctionHost(Protocol):
    """A target's way to let this process play a function."""

    def variables(self, name: str) -> Mapping[str, str]:
        """Return the environment variables that the function is to have."""

    def next_invocation(self, name: str, seconds: float) -> PlayedInvocation | None:
        """Return the next invocation of a function; None where none begins for so long."""


def function_code() -> bytes:
    """Return a zip that is a function by its form: whoever takes the invocations needs no code."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("played.py", "def handle(event, context): ...\n")
    return zipped.getvalue()


class SimulatedFunctions:
    """Functions of the simulator."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def variables(self, name: str) -> Mapping[str, str]:  # noqa: ARG002 (as the protocol has it)
        return {}

    def next_invocation(self, name: str, seconds: float) -> PlayedInvocation | None:
        found = self._simulator.next_invocation(name, seconds)
        return None if found is None else _SimulatedInvocation(self._simulator, found)


class _SimulatedInvocation:
    def __init__(self, simulator: Simulator, invocation: FunctionInvocation) -> None:
        self._simulator, self._invocation = simulator, invocation

    @property
    def event(self) -> dict[str, Any]:
        return self._invocation.invocation.event

    def finish(self, answer: object) -> None:
        self._simulator.finish(self._invocation, answer)


class LoopbackFunctions:
    """Functions of our own LocalStack, which posts their events here."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, SimpleQueue[_PostedInvocation]] = defaultdict(SimpleQueue)

    @cached_property
    def _server(self) -> LoopbackServer:
        server = LoopbackServer(self._answer, port=0)
        server.start()
        return server

    def variables(self, name: str) -> Mapping[str, str]:
        return {FUNCTION_URL: f"{self._server.url}/{name}"}

    def next_invocation(self, name: str, seconds: float) -> PlayedInvocation | None:
        try:
            return self._waiting[name].get(timeout=seconds)
        except Empty:
            return None

    def _answer(self, request: Request) -> WireAnswer:
        require_loopback(request.headers)
        invocation = _PostedInvocation(json.loads(request.body))
        self._waiting[request.path.removeprefix("/")].put(invocation)
        return invocation.answer()


class _PostedInvocation:
    def __init__(self, event: dict[str, Any]) -> None:
        self.event = event
        self._answered, self._answer = threading.Event(), WireAnswer(500, {}, b"{}")

    def finish(self, answer: object) -> None:
        if not isinstance(answer, NoAnswer):
            self._answer = WireAnswer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
        self._answered.set()

    def answer(self) -> WireAnswer:
        """Return the answer, as soon as there is one."""
        self._answered.wait(_ANSWER_SECONDS_MAX)
        return self._answer
