"""`profiles` and `plan`: the profiles, and the estimate of a run, which is confirmed before it costs money."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sluice.cost.prices import PRICE_DATE, PRICE_REGION
from sluice.declaration import Environment
from sluice.errors import ConfigError
from sluice.pages import units
from sluice.terminal import output
from sluice.terminal.exits import REFUSED
from sluice.terminal.options import declaration_option
from spark_load.cli.options import profile_options, schedule_of, shared_declaration
from spark_load.faults.drawing import ScheduledFault, count_by_kind
from spark_load.faults.shapes import FaultKind, as_given, require_possible
from spark_load.profiles import profile
from spark_load.profiles.estimate import ASSUMPTIONS, Estimate
from spark_load.profiles.load_estimate import EstimateTarget
from spark_load.profiles.profile import NamedProfile
from spark_load.runtime.deployment import LoadDeployment

_LOCALSTACK = "http://localhost:4566"
_NEARLY = 0.8  # a use of more than this share of a limit is yellow


@click.command()
def profiles() -> None:
    """List the profiles that come with Sluice, and what each shows."""
    table = Table("profile", "messages", "seconds", "groups", "for", "what it shows", box=None, pad_edge=False)
    for name in profile.names():
        load = profile.load(name).profile
        shows, where = profile.about(name)
        numbers = (f"{load.message_count:,}", f"{load.publish_seconds:,.0f}", f"{load.group_count:,}")
        table.add_row(name, *numbers, where, shows)
    output.console().print(table)


@click.command(short_help="Show what a run of a profile will take.")
@profile_options
@click.option("--env", "environment_name", default="local", show_default=True, help="Declared environment to plan for.")
@declaration_option
@click.option(
    "--target",
    type=click.Choice(["localstack", "aws"]),
    help="What it would run against.  [default: localstack for env local, else aws]",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the faults that are shown.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON on standard output.")
def plan(
    named: NamedProfile,
    environment_name: str,
    declaration: Path | None,
    target: EstimateTarget | None,
    seed: int,
    as_json: bool,
) -> None:
    """Show what a run of PROFILE will take: a name that `profiles` lists, or the path of a YAML file. Nothing is run.

    \b
    Messages, calls, quotas, time, what it costs on AWS by list prices, and the schedule of its faults.
    Ends with 3 when the plan cannot work, because it exceeds a quota of AWS.

    \b
    Examples:
      sluice load plan smoke
      sluice load plan release-gate --env staging
      sluice load plan smoke --consumer worker --faults chaos --seed 7
    """
    environment = shared_declaration(declaration).environment(environment_name)
    faults = schedule_of(named, environment, seed)
    target = target or ("localstack" if environment.name == "local" else "aws")
    estimate = Estimate.of(named.profile, environment, target)
    require_possible(
        faults, endpoint_url=os.environ.get("AWS_ENDPOINT_URL") or (None if target == "aws" else _LOCALSTACK)
    )
    if as_json:
        output.as_json(
            {"profile": named.name, "environment": environment.name, **estimate.as_json(), "faults": as_given(faults)}
        )
    else:
        _show(estimate, named, environment, output.console())
        _show_faults(faults, output.console())
    for reason in estimate.refusals:
        output.line(reason, is_error=True)
    if estimate.refusals:
        sys.exit(REFUSED)


def _show(estimate: Estimate, named: NamedProfile, environment: Environment, console: Console) -> None:
    """Print the estimate: numbers, limits, assumptions and warnings."""
    console.print(f"{escape(named.name)} on {environment.name} ({estimate.target}), {estimate.queue_count} queues\n")
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in _rows(estimate):
        table.add_row(name, value)
    console.print(table)
    when = "on average" if estimate.target == "localstack" else "at the peak"
    limits = Table(when, "used", "allowed", "share", box=None, pad_edge=False)
    for use in estimate.uses:
        colour = "red" if use.share > 1 else "yellow" if use.share > _NEARLY else "green"
        limits.add_row(
            use.name, f"{use.used:,.1f} {use.unit}", f"{use.allowed:,.0f}", f"[{colour}]{use.share:.1%}[/{colour}]"
        )
    console.print()
    console.print(limits)
    console.print(f"\nAssumed: {'; '.join(ASSUMPTIONS)}.")
    for warning in estimate.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")


def _show_faults(faults: Sequence[ScheduledFault[FaultKind]], console: Console) -> None:
    if not faults:
        return
    counts = ", ".join(f"{count} {kind}" for kind, count in count_by_kind(faults).items())
    console.print(f"\n{units.plural(len(faults), 'fault')}, in seconds from the start of the load: {counts}\n")
    for fault in faults:
        console.print(escape(str(fault)), highlight=False)


def _rows(estimate: Estimate) -> list[tuple[str, str]]:
    """Return (name, text) of each number of an estimate."""
    load = estimate.profile
    calls = ", ".join(f"{count:,} {action}" for action, count in estimate.calls.items() if count)
    cost = ", ".join(f"{line} {usd:,.4f}" for line, usd in estimate.cost.items())
    return [
        ("messages", f"{load.measured_count:,}, at most {units.rate(load.peak_per_second)}"),
        (
            "besides",
            f"{load.warm_up_count:,} warm up, {estimate.repeat_count:,} repeats, {load.group_count:,} end markers",
        ),
        ("bytes", f"{estimate.published_bytes:,} published"),
        ("receives", f"{estimate.delivered_count:,} messages"),
        (
            "calls",
            f"{calls} ({estimate.messages_per_publish_call:.1f} messages a publish,"
            f" {estimate.messages_per_receive_call:.1f} a receive)",
        ),
        (
            "hottest group",
            f"{estimate.hottest_share:.1%} of the messages, {estimate.hottest_per_second:,.1f}/s at the peak",
        ),
        (
            "takes",
            f"about {estimate.seconds:,.0f} s: {estimate.publish_seconds:,.0f} s to publish,"
            f" {estimate.drain_seconds:,.0f} s to drain",
        ),
        ("on AWS costs", f"about {estimate.cost_usd:,.2f} US dollars ({cost}; {PRICE_REGION}, {PRICE_DATE})"),
    ]


def require_confirmation(
    deployment: LoadDeployment, environment: Environment, named: NamedProfile, *, confirmed: bool, is_terminal: bool
) -> None:
    """Print the estimate of a run on AWS, and return if `confirmed` is given or somebody confirms on the terminal.

    Raises:
        ConfigError: the profile cannot work on AWS, or there is no terminal to ask on.
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
        f" (list prices of {PRICE_REGION}, {PRICE_DATE})",
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
