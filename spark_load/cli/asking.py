"""What is asked before a load test costs money: whether this account, this region and about so much is meant."""

import click

from sluice.cost import prices
from sluice.declaration import Environment
from sluice.errors import ConfigError
from spark_load.profiles.estimate import Estimate
from spark_load.profiles.profile import NamedProfile
from spark_load.runtime.deployment import Deployment


def require_confirmation(
    deployment: Deployment, environment: Environment, named: NamedProfile, *, confirmed: bool, is_terminal: bool
) -> None:
    """Say what a run on AWS takes and costs, and go on only when somebody confirms it, or has `confirmed` it already.

    Raises:
        ConfigError: the profile cannot work there, or nobody can be asked.
        click.Abort: the answer was no.
    """
    expected = Estimate.of(named.profile, environment, "aws")
    if expected.refusals:
        raise ConfigError(f"profile {named.name!r} cannot work on AWS: {expected.refusals[0]}")
    calls, account = sum(expected.calls.values()), deployment.topic_arn.split(":")[4]
    click.echo(
        f"{named.name} on {environment.name}, account {account}, region {environment.region}:"
        f" {named.profile.message_count:,} messages into {expected.queue_count} queue(s), about {calls:,} calls,"
        f" {expected.seconds / 60:,.0f} minutes, USD {expected.cost_usd:,.2f}"
        f" (list prices of {prices.PRICE_REGION}, {prices.PRICE_DATE})",
        err=True,
    )
    for warning in expected.warnings:
        click.echo(f"  {warning}", err=True)
    if confirmed:
        return
    if not is_terminal:
        raise ConfigError(
            f"a load test of {environment.name!r} costs about USD {expected.cost_usd:,.2f}, and there is no"
            " terminal to confirm it; add --yes to confirm (make load … YES=1)"
        )
    click.confirm("Is that meant?", abort=True, err=True)
