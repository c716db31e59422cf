"""`sluice topology apply`: make an environment's topics and queues by calls, without CloudFormation."""

from typing import TYPE_CHECKING

import click

from sluice.cli.options import endpoint_option, environment_option, json_option
from sluice.errors import ConfigError
from sluice.terminal import output
from sluice.terminal.groups import CommandGroup

if TYPE_CHECKING:
    from sluice.declaration import Environment

_AWS_SUFFIXES = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_PLACEHOLDER = "test"  # credentials that no account has
_ACCOUNT_CHARACTERS = 12


@click.group(cls=CommandGroup)
def topology() -> None:
    """Make an environment's topics and queues on an emulator, without CloudFormation and the cdk command."""


@topology.command()
@environment_option("Declared environment to make.")
@endpoint_option("the emulator")
@json_option
def apply(environment: "Environment", endpoint_url: str | None, as_json: bool) -> None:
    """Make topics, queues, DLQs, filters and subscriptions as declared; what is there is changed to that.

    It is for emulators and the simulator. On AWS they belong to the stacks: deploy those. No real credentials are sent.
    Keys, alarms, database and tasks are not made, and what is not declared any more is left.

    \b
      sluice simulator serve --port 4566 &
      sluice topology apply --env local --endpoint-url http://127.0.0.1:4566
    """
    from sluice.topology import deploy

    url = _emulator_url(endpoint_url)
    region = environment.region
    made_topology = deploy(environment, sqs=_client("sqs", url, region), sns=_client("sns", url, region))
    if as_json:
        output.as_json(
            {
                "topic_arn": made_topology.topic_arn,
                "queues": dict(made_topology.queues),
                "dead_letter_queues": dict(made_topology.dead_letter_queues),
                "undelivered_queues": dict(made_topology.undelivered_queues),
            }
        )
        return
    output.line(f"topic {made_topology.topic_arn}")
    output.table(("consumer", "queue"), list(made_topology.queues.items()))


def _emulator_url(url: str | None) -> str:
    """Return the endpoint's URL.

    Raises:
        ConfigError: the endpoint is AWS's, or none is named.
    """
    from urllib.parse import urlsplit

    from sluice.endpoint import checked_url

    if url is None:
        raise ConfigError(
            "no endpoint is named, allowed is an emulator's; give --endpoint-url, as of `sluice simulator serve`"
        )
    url = checked_url(url)
    if f".{urlsplit(url).hostname}".rstrip(".").endswith(_AWS_SUFFIXES):
        raise ConfigError(f"endpoint is {url}, allowed is an emulator's; on AWS deploy the stacks: sluice env deploy")
    return url


def _client(service: str, url: str, region: str) -> object:
    """Return a boto3 client with false credentials: AWS refuses its calls, even if a proxy should lead them there."""
    import os

    import boto3

    from sluice import sdk

    # Emulators take a key of twelve digits for an account, so such a key has to be the one that workers use.
    key = os.environ.get("AWS_ACCESS_KEY_ID", "")
    is_account = len(key) == _ACCOUNT_CHARACTERS and key.isdecimal()
    return boto3.session.Session().client(
        service,
        region_name=region,
        endpoint_url=url,
        aws_access_key_id=key if is_account else _PLACEHOLDER,
        aws_secret_access_key=_PLACEHOLDER,
        config=sdk.config(tries=3),
    )
