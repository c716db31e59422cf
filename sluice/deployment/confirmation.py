"""Confirmation of a change to an account: of the credentials' account, and by typing the environment's name."""

import os
import sys

import boto3
import click
from botocore.exceptions import BotoCoreError, ClientError

from sluice import sdk
from sluice.declaration import Environment, naming
from sluice.errors import ConfigError, EndpointError
from sluice.terminal import output

_CONFIG = sdk.config(answer_seconds=30, tries=2)


def caller(environment: Environment) -> str:
    """Return the id of the account that the caller's credentials belong to.

    Raises:
        EndpointError: AWS does not answer.
        ConfigError: it is not the declared account.
    """
    try:
        client = boto3.client("sts", region_name=environment.region, config=_CONFIG)
        account = str(client.get_caller_identity()["Account"])
    except (BotoCoreError, ClientError) as error:
        reason = str(error).splitlines()[0][:160]
        raise EndpointError(f"AWS does not say who you are ({reason}); log in, or set AWS_PROFILE") from error
    if environment.account not in (None, account):
        raise ConfigError(
            f"your credentials are for account {account}, environment {environment.name!r} is declared for"
            f" {environment.account}; use credentials of that account"
        )
    return account


def require_confirmation(action: str, environment: Environment) -> None:
    """Show account, region and stacks, and require that somebody types the environment's name.

    Without a terminal the variable CONFIRM must have it.

    Raises:
        ConfigError: another name was typed.
    """
    names = ", ".join(naming.stack_name(environment, part) for part in naming.stack_parts(environment))
    where = f"account {environment.account}, region {environment.region}"
    endpoint_url = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint_url:
        where += f", at {endpoint_url}"
    output.line(f"{action} {environment.name}: {names}", is_error=True)
    output.line(f"  in {where}", is_error=True)
    if not sys.stdin.isatty():
        given = os.environ.get("CONFIRM")
    else:  # a CONFIRM left over from yesterday says nothing today
        given = click.prompt(f"type {environment.name} to go on", default="", show_default=False, err=True)
    if given != environment.name:
        raise ConfigError(
            f"the confirmation is {given!r}, allowed is {environment.name!r}; type it, or without a terminal set"
            " CONFIRM"
        )
