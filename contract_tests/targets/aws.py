"""The target `aws`: its region and credentials, the user's consent to the cost, and waits for slow changes.

It was never run against AWS: `docs/contract-tests.md` lists what was tried and what was not.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import boto3

from sluice.clock import Clock
from sluice.errors import SET_CREDENTIALS, ConfigError, EndpointError

PATIENCE_SECONDS = 120.0
TEST_SECONDS_MAX = 3_600
SETTLES_SECONDS: Mapping[str, float] = {
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html
    "sqs.CreateQueue": 1,
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html
    "sqs.SetQueueAttributes": 60,
    # https://docs.aws.amazon.com/sns/latest/dg/sns-message-filtering-apply.html
    "sns.SetSubscriptionAttributes": 900,
}
"""By operation: seconds until AWS promises that a change holds everywhere. No call tells whether it does."""
RETENTION_SETTLES_SECONDS = 900.0
"""Seconds until a changed MessageRetentionPeriod holds, by the page of SetQueueAttributes."""

# The whole suite makes 10 requests a test on the simulator, which answers at once; 400 of its 2,600 are receives.
_REQUESTS_PER_TEST_MAX = 40
_USD_PER_REQUEST_MAX = 0.5e-6  # the most expensive request: to a FIFO queue, us-east-1, of up to 64 KB
_SECONDS_PER_TEST = 60  # two tests in five change attributes and wait; the others take seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteEstimate:
    """The most time, requests and money that a run on AWS takes.

    Args:
        tests: how many tests are run.
        workers: how many tests run at a time.
    """

    tests: int
    workers: int

    def __str__(self) -> str:
        requests = self.tests * _REQUESTS_PER_TEST_MAX
        usd = math.ceil(requests * _USD_PER_REQUEST_MAX * 100) / 100
        minutes = math.ceil(self.tests * _SECONDS_PER_TEST / self.workers / 60)
        return (
            f"at most {self.tests} tests with {self.workers} worker(s): about {minutes} min,"
            f" up to {requests:,} requests, at most ${usd:.2f}"
        )


def require_region(session: "boto3.Session", estimate: SuiteEstimate, *, is_agreed: bool) -> str:
    """Return the region of the run, after checking that it may begin.

    Raises:
        EndpointError: no region is configured, or there are no credentials.
        ConfigError: nobody has agreed to the cost.
    """
    if session.region_name is None:
        raise EndpointError("target aws has no region; set AWS_DEFAULT_REGION or name a profile in AWS_PROFILE")
    if session.get_credentials() is None:
        raise EndpointError(f"target aws has no credentials; {SET_CREDENTIALS}")
    if not is_agreed:
        raise ConfigError(f"target aws costs money: {estimate}; agree with --i-will-pay or SLUICE_AWS=1")
    return str(session.region_name)


def settling(client: Any, clock: Clock) -> Any:
    """Make a client wait after each change for as long as AWS may need to apply it; return the client."""
    for operation, seconds in SETTLES_SECONDS.items():
        service, name = operation.split(".")
        if client.meta.service_model.service_name == service:
            client.meta.events.register(f"after-call.{operation}", _wait(clock, seconds), unique_id=f"settling-{name}")
    return client


def _wait(clock: Clock, seconds: float) -> Callable[..., None]:
    """Return a hook of botocore that sleeps after a successful call."""

    def wait(http_response: Any, **_: object) -> None:
        if http_response.status_code == 200:
            clock.sleep(seconds)

    return wait
