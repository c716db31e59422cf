"""The simulator behind HTTP, in real time: SQS and SNS for programs in any language, without Docker or a download.

Queues, topics and messages are in memory, and gone when the process ends.
"""

import json
import threading
from collections.abc import Mapping
from typing import Any, Self

import botocore.loaders
from botocore.exceptions import ParamValidationError
from botocore.model import OperationModel, ServiceModel
from botocore.validate import validate_parameters

from sluice.clock import SystemClock
from sluice.simulator import query_protocol, wire
from sluice.simulator.model import Account, AwsRefusal
from sluice.simulator.wire import RefusedError, Request, WireAnswer


class SimulatorServer:
    """Holds a port from its creation on; as a context manager it answers requests inside the `with` block.

    Args:
        port: on the loopback; 0 takes any free port.

    Raises:
        ConfigError: the port is taken.
    """

    def __init__(self, *, port: int) -> None:
        load = botocore.loaders.Loader().load_service_model
        self._models = {name: ServiceModel(load(name, "service-2"), name) for name in ("sqs", "sns")}
        self._server = wire.LoopbackServer(self._respond, port=port)
        self._accounts: dict[str, Account] = {}  # by region
        self._changed = threading.Condition()
        self._clock = SystemClock()
        # The model's instants must never run backwards; the system's clock may, so only its monotonic part is read on.
        self._epoch_seconds = self._clock.now_us() / 1_000_000 - self._clock.monotonic()
        self._calls = 0

    @property
    def url(self) -> str:
        """Return the endpoint URL for clients."""
        return self._server.url

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Answer requests from now on; after a `stop` at the same port, with the same queues, topics and messages."""
        self._server.start()

    def stop(self) -> None:
        """Take no further request, and close every connection."""
        self._server.stop()

    def _now(self) -> float:
        """Return the instant of a call, in seconds since 1970."""
        return self._epoch_seconds + self._clock.monotonic()

    def _respond(self, request: Request) -> WireAnswer:
        """Return the answer to one HTTP request; called in the thread of its connection."""
        wire.require_loopback(request.headers)
        region = wire.signed_region(request.headers, "the simulator does not look at them")
        service, name = wire.named_operation(request)
        is_json = "X-Amz-Target" in request.headers
        if service not in self._models or (service == "sqs") != is_json:
            raise RefusedError(
                501, "NotImplemented", "the simulator speaks SNS, and SQS in JSON; use a newer SDK for SQS"
            )
        model = self._models[service]
        if name not in model.operation_names:
            raise RefusedError(400, "InvalidAction", f"{service.upper()} has no operation {name!r}; correct its name")
        operation = model.operation_model(name)
        answered = self.answer(region, service, name, _params(request, operation, is_json=is_json))
        self._calls += 1
        request_id = f"simulated-{self._calls}"
        if is_json:
            return wire.json_answer(answered, request_id)
        return wire.xml_answer(answered, operation, request_id)

    def answer(
        self, region: str, service: str, operation: str, params: dict[str, Any]
    ) -> Mapping[str, Any] | AwsRefusal:
        """Return the answer or refusal of one call; a receive waits up to its WaitTimeSeconds for a message."""
        with self._changed:
            if region not in self._accounts:
                self._accounts[region] = Account(region=region, base_url=self.url, seed=len(self._accounts))
            account = self._accounts[region]
            answer = account.call(service, operation, params, self._now())
            if operation == "ReceiveMessage" and answer == {}:
                return self._poll(account, params)
            self._changed.notify_all()
            return answer

    def _poll(self, account: Account, params: dict[str, Any]) -> Mapping[str, Any] | AwsRefusal:
        """Return the answer to a long poll: receive again after each change until a message comes or time is up."""
        answer: Mapping[str, Any] | AwsRefusal = {}
        deadline = self._now() + account.sqs.wait_seconds(params)
        while answer == {} and (left_seconds := deadline - self._now()) > 0:
            change_at = account.next_change_at(self._now())
            until_change = left_seconds if change_at is None else max(0.001, change_at - self._now())
            self._changed.wait(min(left_seconds, until_change))
            answer = account.call("sqs", "ReceiveMessage", params, self._now())
        return answer


def _params(request: Request, operation: OperationModel, *, is_json: bool) -> dict[str, Any]:
    """Return the parameters of a request.

    Raises:
        RefusedError: the parameters cannot be read, or are none that botocore's service model knows.
    """
    try:
        params = json.loads(request.body) if is_json else query_protocol.decode(request.body, operation)
        if operation.input_shape is not None and is_json:
            validate_parameters(params, operation.input_shape)
    except (KeyError, ValueError, RecursionError, ParamValidationError) as error:
        raise RefusedError(
            400, "SerializationException", f"the parameters of {operation.name} cannot be read ({error})"
        ) from error
    return dict(params)
