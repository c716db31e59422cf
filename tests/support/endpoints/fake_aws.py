"""SQS and SNS over HTTP on the loopback interface: the simulator's server, which can also fail.

Sluice is tested against LocalStack. This server does what LocalStack cannot do on demand (stall, throttle, die in the
middle of a run), and serves tests of other things that only need queues at once.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, override

import boto3

from sluice.declaration import Environment
from sluice.simulator.model import AwsRefusal
from sluice.simulator.server import SimulatorServer
from sluice.testing import deploy

_REGION = "us-east-1"
_TIMEOUT_SECONDS = 20
THROTTLED = AwsRefusal("ThrottlingException", "Rate exceeded")

type Fault = Callable[[str], AwsRefusal | None]
"""Given the operation of each call: a refusal to answer instead, or None. It may block."""


class Endpoint(SimulatorServer):
    """A simulator behind its own port. A test may replace its `fault` at any time."""

    def __init__(self) -> None:
        super().__init__(port=0)
        self.fault: Fault = lambda _: None
        self.start()

    def deploy(self, environment: Environment, *, visibility_timeout_seconds: int | None = _TIMEOUT_SECONDS) -> None:
        """Make an environment's topic, queues and subscriptions; with a timeout of None the declared one."""
        sqs, sns = (boto3.client(name, endpoint_url=self.url, region_name=_REGION) for name in ("sqs", "sns"))
        deploy(environment, sqs=sqs, sns=sns, visibility_timeout_seconds=visibility_timeout_seconds)

    def lose_messages(self) -> None:
        """Remove the messages of all queues, as a restarted emulator does that keeps only the deployment."""
        listed = super().answer(_REGION, "sqs", "ListQueues", {})
        for url in listed["QueueUrls"]:  # type: ignore[index]
            super().answer(_REGION, "sqs", "PurgeQueue", {"QueueUrl": url})

    @override
    def answer(
        self, region: str, service: str, operation: str, params: dict[str, Any]
    ) -> Mapping[str, Any] | AwsRefusal:
        refused = self.fault(operation)
        return super().answer(region, service, operation, params) if refused is None else refused


@contextmanager
def running() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    try:
        yield endpoint
    finally:
        endpoint.fault = lambda _: None
        endpoint.stop()
