"""The target of a run, from its options: `--target`, `--endpoint-url`, and options that name the user's resources."""

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from contract_tests.byo_queues import ByoQueues
from contract_tests.promises import PROMISES, Promiser
from contract_tests.targets import aws, binding
from sluice.endpoint import checked_url
from sluice.errors import ConfigError, EndpointError
from sluice.localstack import identify
from sluice.simulator.hook import ENDPOINT_URL

OWN = "SLUICE_CONTRACT_OWN"
"""Name of the variable that is set where the run started its own LocalStack."""
_AGREED = "SLUICE_AWS"  # name of the variable by which somebody agrees to the cost of AWS


@dataclass(frozen=True, slots=True, kw_only=True)
class ListChoice:
    """The target of a run, chosen by its options.

    Args:
        name: of the binding.
        endpoint: its URL, or for AWS the region.
        notice: printed before the run begins; may be empty.
    """

    name: str
    endpoint: str
    notice: str = ""


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options that this module reads."""
    group.addoption("--endpoint-url", metavar="URL", help="run against this endpoint instead of starting LocalStack")
    group.addoption(
        "--target",
        metavar="{" + ",".join(binding.BINDINGS) + "}",
        help="what to run against; by default the endpoint given, or else a LocalStack of the run's own",
    )
    group.addoption("--i-will-pay", action="store_true", help=f"agree to what --target aws costs; so does {_AGREED}=1")
    group.addoption(
        "--queue-url", metavar="URL", help="run what needs no more against this FIFO queue, and leave it as it is"
    )
    group.addoption("--dlq-url", metavar="URL", help="with --queue-url: its DLQ")
    group.addoption("--topic-arn", metavar="ARN", help="with --queue-url: the FIFO topic it is subscribed to")


def target(config: pytest.Config, stack: ExitStack) -> ListChoice:
    """Return the target that the options name, after it has answered; start LocalStack where they name none.

    Raises:
        ConfigError: there is no such target, or the options contradict each other.
        EndpointError: the target cannot be used.
    """
    choice, url = config.getoption("--target"), _url(config)
    if choice is not None and choice not in binding.BINDINGS:
        raise ConfigError(f"target is {choice!r}, allowed is one of {', '.join(binding.BINDINGS)}; correct --target")
    if choice == "simulator":
        if config.getoption("--endpoint-url"):
            raise ConfigError("--target simulator and --endpoint-url are both given, allowed is one of them")
        return ListChoice(name=choice, endpoint=ENDPOINT_URL)
    if choice == "aws":
        return _aws(config, url)
    if url is None and choice == "endpoint":
        raise ConfigError("--target endpoint has no URL; give one with --endpoint-url")
    if url is None:
        return _own(stack)
    name = choice or (identify(url) or ("endpoint", {}))[0]
    return _answering(ListChoice(name=name, endpoint=url))


def _own(stack: ExitStack) -> ListChoice:
    """Start a LocalStack for this run; only a checkout of Sluice can."""
    try:
        from emulator import localstack  # noqa: PLC0415 (is in no package)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "no target is named, and only a checkout of Sluice starts LocalStack by itself; give --target simulator,"
            " or --endpoint-url"
        ) from error
    running = stack.enter_context(localstack.running(log=Path("runs") / "localstack-contracts.log"))
    os.environ.update(running.environment() | {OWN: "1"})
    return ListChoice(name=running.engine.name, endpoint=running.endpoint_url)


def _url(config: pytest.Config) -> str | None:
    """Return the endpoint that the option or the variable names; None where neither does."""
    given = config.getoption("--endpoint-url") or os.environ.get("AWS_ENDPOINT_URL")
    return checked_url(given) if given else None


def _aws(config: pytest.Config, url: str | None) -> ListChoice:
    """Return AWS as the target, if credentials are there and somebody has agreed to the cost."""
    tests = sum(promise.promiser is Promiser.SERVICE for promise in PROMISES.values())
    estimate = aws.SuiteEstimate(tests=tests, workers=config.getoption("numprocesses", None) or 1)
    is_agreed = config.getoption("--i-will-pay") or os.environ.get(_AGREED) == "1"
    region = aws.require_region(boto3.Session(), estimate, is_agreed=is_agreed)
    return _answering(ListChoice(name="aws", endpoint=url or region, notice=f"target aws, {estimate}"))


def _answering(choice: ListChoice) -> ListChoice:
    """Return the target after a call of SQS has succeeded there."""
    try:
        bound = binding.BINDINGS[choice.name](choice.endpoint, patience_seconds=1)
        bound.make_client("sqs").list_queues(MaxResults=1)
    except (BotoCoreError, ClientError, KeyError) as error:
        reason = str(error).splitlines()[0][:120]
        raise EndpointError(
            f"{choice.endpoint} does not answer as SQS does ({reason}); name an SQS endpoint, and keys and a region"
            " for it"
        ) from error
    return choice


def byo_queues(config: pytest.Config) -> ByoQueues | None:
    """Return the user's own resources that the options name; None where they name none.

    Raises:
        ConfigError: the options contradict each other.
    """
    queue_url, dlq_url, topic_arn = (config.getoption(name) for name in ("--queue-url", "--dlq-url", "--topic-arn"))
    if queue_url is None:
        if dlq_url or topic_arn:
            raise ConfigError("--dlq-url and --topic-arn go with --queue-url; name the queue too")
        return None
    if config.getoption("numprocesses", None) or config.getoption("--prove") or config.getoption("--mutants"):
        raise ConfigError("--queue-url is one queue for all tests; run without -n, --prove and --mutants")
    if config.getoption("--target") != "aws" and _url(config) is None:
        raise ConfigError("--queue-url has no URL; give one with --endpoint-url or --target aws")
    return ByoQueues(queue_url=queue_url, dlq_url=dlq_url, topic_arn=topic_arn)
