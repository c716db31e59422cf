"""The targets of the contract tests: each gives clients and says what it can do. Tests do not know their target."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import boto3
import localstack_client.session
from botocore.config import Config

from contract_tests.targets import aws as account
from contract_tests.targets.functions import FunctionHost, LoopbackFunctions, SimulatedFunctions
from sluice import sdk
from sluice.clock import Clock, SystemClock, eventually
from sluice.localstack import MODIFIED
from sluice.simulator.hook import ENDPOINT_URL, Simulator
from sluice.simulator.model.message import SENDER_ID

_CONFIG = sdk.config(connect_seconds=5, answer_seconds=30, connections=20)
_FUNCTIONS = _CONFIG.merge(Config(read_timeout=120))  # a new LocalStack loads its Lambda at the first call
_PATIENT = _CONFIG.merge(Config(retries={"mode": "standard", "total_max_attempts": 5}))  # AWS throttles


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One endpoint under test.

    Args:
        name: by which `sluice.deviations` lists its known deviations.
        make_client: makes a client of an AWS service by its name.
        patience_seconds: how long a test waits for anything that should happen soon.
        computes_metrics: whether GetMetricData computes expressions, as AWS does.
        has_short_window: whether a queue named `…-window3-…` deduplicates for 3 s only, as in the LocalStack that we
            start.
        clock: the target's time, by which every wait goes.
        retention_settles_seconds: how long a changed MessageRetentionPeriod may take to hold.
        caller: the id of the caller, on a target without STS; None calls STS.
        functions: lets a test play a Lambda function; None on a target whose functions cannot call this process.
    """

    name: str
    make_client: Callable[[str], Any]
    patience_seconds: float
    computes_metrics: bool = False
    has_short_window: bool = False
    clock: Clock = field(default_factory=SystemClock)
    retention_settles_seconds: float = 0
    caller: str | None = None
    functions: FunctionHost | None = None

    def caller_id(self) -> str:
        """Return the unique id of the user or role whose credentials the clients have."""
        return self.caller or str(self.make_client("sts").get_caller_identity()["UserId"])

    def await_age(self, seconds: float, *, since: float) -> None:
        """Wait until so many seconds of the target's time have passed since `since`, a value of its monotonic clock."""
        eventually(
            lambda: self.clock.monotonic() - since > seconds,
            timeout_seconds=seconds + 10,
            describe=f"{seconds:g} s to pass",
            interval_seconds=1,
            clock=self.clock,
        )


def sharing_clients(target: Target) -> Target:
    """Return the target with one client for each service, because making clients takes most of a test's time."""
    return replace(target, make_client=cache(target.make_client))


def plays_functions(target: str) -> bool:
    """Return whether tests can play functions there: on the simulator, and on LocalStack with our hooks."""
    return target == "simulator" or (target == "localstack" and MODIFIED in os.environ)


def localstack(endpoint_url: str, *, patience_seconds: float, name: str = "localstack") -> Target:
    """Return LocalStack, or another engine that `emulator` starts, with clients of localstack-client."""
    os.environ["AWS_ENDPOINT_URL"] = endpoint_url  # localstack-client reads this variable
    session = localstack_client.session.Session()
    return Target(
        name=name,
        make_client=lambda service: session.client(service, config=_FUNCTIONS if service == "lambda" else _CONFIG),
        has_short_window=MODIFIED in os.environ,
        patience_seconds=patience_seconds,
        functions=LoopbackFunctions() if plays_functions(name) else None,
    )


def endpoint(endpoint_url: str, *, patience_seconds: float) -> Target:
    """Return the endpoint at this URL, with the caller's own credentials and region."""
    return Target(
        name="endpoint",
        make_client=lambda service: boto3.client(service, endpoint_url=endpoint_url, config=_CONFIG),
        patience_seconds=patience_seconds,
    )


def aws(endpoint_url: str, *, patience_seconds: float, clock: Clock | None = None) -> Target:
    """Return AWS, with the caller's own credentials and region.

    Args:
        endpoint_url: an endpoint of AWS in your own network; a text that is no URL means AWS's public endpoints.
        patience_seconds: raised to at least two minutes.
        clock: None means the machine's clock.
    """
    clock = SystemClock() if clock is None else clock
    url = endpoint_url if "://" in endpoint_url else None
    return Target(
        name="aws",
        computes_metrics=True,
        make_client=lambda service: account.settling(boto3.client(service, endpoint_url=url, config=_PATIENT), clock),
        patience_seconds=max(patience_seconds, account.PATIENCE_SECONDS),
        clock=clock,
        retention_settles_seconds=account.RETENTION_SETTLES_SECONDS,
    )


def simulator(endpoint_url: str, *, patience_seconds: float) -> Target:
    """Return a new simulator in this process, whose clock the tests move."""
    assert endpoint_url == ENDPOINT_URL
    simulated = Simulator()
    return Target(
        name="simulator",
        make_client=simulated.client,
        patience_seconds=patience_seconds,
        clock=simulated.clock,
        caller=SENDER_ID,
        functions=SimulatedFunctions(simulated),
    )


BINDINGS: dict[str, Callable[..., Target]] = {
    "localstack": localstack,
    "localemu": partial(localstack, name="localemu"),
    "endpoint": endpoint,
    "simulator": simulator,
    "aws": aws,
}
