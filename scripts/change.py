"""Show, deploy or destroy a declared environment: `make deploy ENV=…`, `make diff ENV=…`, `make destroy ENV=…`.

The local environment goes to the LocalStack that AWS_ENDPOINT_URL names. Anything else changes an account, so its name
has to be typed after account and region were said; without a terminal, CONFIRM has to hold it.
"""

import ipaddress
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import click
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from emulator import localstack
from sluice.declaration import Environment, NewDatabase, load_declaration, loading, naming
from sluice.errors import ConfigError, EndpointError, MessagingError
from sluice.terminal.exits import COULD_NOT, REFUSED, STOPPED
from sluice.terminal.options import declaration_option

_PROJECT = Path(__file__).resolve().parent.parent
_CONFIG = Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 2})


def _is_loopback(url: str | None) -> bool:
    host = urlsplit(url).hostname if url else None
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _local(endpoint_url: str | None) -> dict[str, str]:
    """Return an environment in which nothing but the LocalStack of this machine can be reached.

    A profile of the caller's, or an endpoint for one service, would win over AWS_ENDPOINT_URL and lead to an account.
    """
    if endpoint_url is None or not _is_loopback(endpoint_url):
        raise EndpointError(
            f"AWS_ENDPOINT_URL is {endpoint_url!r}, allowed for the local environment is a LocalStack on this machine;"
            " start one with: make emulator, and paste the exports it prints"
        )
    return localstack.with_endpoint(localstack.attach(endpoint_url))


def _caller(declared: Environment) -> str:
    """Return the account that the caller's credentials belong to."""
    try:
        client = boto3.client("sts", region_name=declared.region, config=_CONFIG)
        account = str(client.get_caller_identity()["Account"])
    except (BotoCoreError, ClientError) as error:
        reason = str(error).splitlines()[0][:160]
        raise EndpointError(f"AWS does not say who you are ({reason}); log in, or set AWS_PROFILE") from error
    if declared.account not in (None, account):
        raise ConfigError(
            f"your credentials are for account {account}, environment {declared.name!r} is declared for"
            f" {declared.account}; use credentials of that account"
        )
    return account


def _confirm(action: str, declared: Environment) -> None:
    parts = ["network", "database", "messaging", "consumers", "observability"]
    if not isinstance(declared.database, NewDatabase):
        parts.remove("database")
    names = ", ".join(naming.stack_name(declared, part) for part in parts)
    where = f"account {declared.account}, region {declared.region}"
    endpoint_url = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint_url:
        where += f", at {endpoint_url}"
    click.echo(f"{action} {declared.name}: {names}\n  in {where}", err=True)
    if not sys.stdin.isatty():
        given = os.environ.get("CONFIRM")
    else:  # a CONFIRM left over from yesterday says nothing today
        given = click.prompt(f"type {declared.name} to go on", default="", show_default=False, err=True)
    if given != declared.name:
        raise ConfigError(
            f"the confirmation is {given!r}, allowed is {declared.name!r}; type it, or without a terminal set CONFIRM"
        )


def _cdk(declared: Environment, variables: Mapping[str, str], *arguments: str) -> int:
    context = ["-c", f"env={declared.name}"]
    if declared.account is not None:
        context += ["-c", f"account={declared.account}"]
    command = ["cdk", *arguments, "--no-notices", *context, f"{naming.stage_name(declared)}/*"]
    try:
        return subprocess.run(command, cwd=_PROJECT, env=variables, check=False).returncode
    except FileNotFoundError as error:
        raise EndpointError("there is no cdk on PATH; run this through make") from error


def _diff(declared: Environment, variables: Mapping[str, str]) -> int:
    return _cdk(declared, variables, "diff")


def _deploy(declared: Environment, variables: Mapping[str, str]) -> int:
    if declared.name == "local":
        return subprocess.run([_PROJECT / "scripts" / "deploy-local.sh"], env=variables, check=False).returncode
    # cdk can ask about wider permissions only on a terminal; CONFIRM has said yes already.
    return _cdk(
        declared, variables, "deploy", "--require-approval", "never" if "CONFIRM" in variables else "broadening"
    )


def _destroy(declared: Environment, variables: Mapping[str, str]) -> int:
    return _cdk(declared, variables, "destroy", "--force")  # it was asked above, and once is enough


_ACTIONS = {"diff": _diff, "deploy": _deploy, "destroy": _destroy}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("action", type=click.Choice(list(_ACTIONS)))
@click.argument("name", metavar="ENV")
@declaration_option
def main(action: str, name: str, declaration: Path | None) -> None:
    """Show what a deployment of ENV would change, deploy it, or destroy it.

    Exit codes: 0 done, 2 could not, 3 refused, 130 stopped with Ctrl-C.
    """
    try:
        found = load_declaration(declaration)
        declared = found.environment(name)
        if declared.name == "local":
            variables = _local(os.environ.get("AWS_ENDPOINT_URL"))
        else:
            variables = dict(os.environ)
            # From here on for this account only: cdk looks for credentials by rules of its own, and refuses any other.
            declared = replace(declared, account=_caller(declared))
            if action != "diff":
                _confirm(action, declared)
        # cdk runs elsewhere, and has to read the same.
        ended = _ACTIONS[action](declared, {**variables, loading.VARIABLE: str(found.path)})
    except MessagingError as error:
        click.echo(f"{action}: {error}", err=True)
        sys.exit(COULD_NOT if isinstance(error, EndpointError) else REFUSED)
    except (KeyboardInterrupt, click.Abort):
        click.echo(
            f"\n{action}: stopped; CloudFormation goes on with a change it has begun: see it end, then make diff",
            err=True,
        )
        sys.exit(STOPPED)
    sys.exit(0 if ended == 0 else COULD_NOT)


if __name__ == "__main__":
    click.UsageError.exit_code = REFUSED
    main()
