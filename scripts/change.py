"""Show, deploy or destroy a declared environment: `make deploy ENV=…`, `make diff ENV=…`, `make destroy ENV=…`.

The local environment goes to the LocalStack that AWS_ENDPOINT_URL names. Anything else changes an account, so its name
has to be typed after account and region were said; without a terminal, CONFIRM has to hold it. It is deployed as
`sluice env deploy` does it.
"""

import ipaddress
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from emulator import localstack
from sluice.declaration import Environment, load_declaration, loading, naming
from sluice.deployment.confirmation import caller, require_confirmation
from sluice.deployment.deploy import deploy_stacks
from sluice.errors import EndpointError, MessagingError
from sluice.terminal.exits import COULD_NOT, REFUSED, STOPPED
from sluice.terminal.options import declaration_option

_PROJECT = Path(__file__).resolve().parent.parent


def _is_loopback(url: str | None) -> bool:
    """Return whether a URL leads to this machine."""
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


def _cdk(declared: Environment, variables: Mapping[str, str], *arguments: str) -> int:
    """Run the cdk command for the declared environment, and return its exit code."""
    context = ["-c", f"env={declared.name}"]
    if declared.account is not None:
        context += ["-c", f"account={declared.account}"]
    command = ["cdk", *arguments, "--no-notices", *context, f"{naming.stage_name(declared)}/*"]
    try:
        return subprocess.run(command, cwd=_PROJECT, env=variables, check=False).returncode
    except FileNotFoundError as error:
        raise EndpointError("there is no cdk on PATH; run this through make") from error


def _diff(declared: Environment, variables: Mapping[str, str]) -> int:
    """Show what a deployment would change, and return cdk's exit code."""
    return _cdk(declared, variables, "diff")


def _deploy_local(_: Environment, variables: Mapping[str, str]) -> int:
    """Deploy the local environment to this machine's LocalStack, and return the script's exit code."""
    return subprocess.run([_PROJECT / "scripts" / "deploy-local.sh"], env=variables, check=False).returncode


def _destroy(declared: Environment, variables: Mapping[str, str]) -> int:
    """Destroy the environment's stacks, and return cdk's exit code."""
    return _cdk(declared, variables, "destroy", "--force")  # it was asked above, and once is enough


_ACTIONS = {"diff": _diff, "deploy": _deploy_local, "destroy": _destroy}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("action", type=click.Choice(list(_ACTIONS)))
@click.argument("name", metavar="ENV")
@click.option("--allow", "allowed", multiple=True, metavar="LOGICAL_ID", help="Of what `deploy` may harm.")
@declaration_option
def main(action: str, name: str, allowed: tuple[str, ...], declaration: Path | None) -> None:
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
            declared = replace(declared, account=caller(declared))
            if action != "diff":
                require_confirmation(action, declared)
            if action == "deploy":
                deploy_stacks(declared, found.path, allowed=allowed)
                return
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
