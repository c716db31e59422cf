"""`sluice env …`: the declared environments, their names, what they cost, what a change does, and their deployment."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from sluice.cli.options import json_option
from sluice.cost.bill import NOT_COUNTED, Bill, MonthlyMessages, bill
from sluice.cost.prices import PRICE_DATE, PRICE_REGION
from sluice.declaration import Environment, load_declaration, naming, policies
from sluice.errors import ConfigError
from sluice.limits import BUNDLE_EVENTS_MAX
from sluice.terminal import output
from sluice.terminal.groups import CommandGroup, Lazy
from sluice.terminal.options import declaration_option
from sluice.terminal.values import COUNT, SIZE, NumberType

_LAZY = {
    "dashboard": Lazy("sluice.cli.env.dashboard:dashboard", "A dashboard as a file, for CloudWatch or Grafana."),
    "deploy": Lazy("sluice.cli.env.deploy:deploy", "Deploy ENV; refuse what would lose data."),
    "diff": Lazy("sluice.cli.env.diff:diff", "What a change of the declaration does, before it is deployed."),
}


@click.group(cls=CommandGroup, lazy=_LAZY, default="show")
def env() -> None:
    """List the declared environments, show the names of one, or what it costs.

    \b
      sluice env
      sluice env prod
      sluice env cost prod --messages-per-month 50M --size 2k
    """


@env.command(short_help="List the declared environments, or the names of one.")
@click.argument("name", metavar="[ENV]", required=False)
@click.option("--policies", "shows_policies", is_flag=True, help="Print what owners of other things have to allow.")
@declaration_option
@json_option
def show(name: str | None, declaration: Path | None, shows_policies: bool, as_json: bool) -> None:
    """List the declared environments, or the names of what ENV consists of. `sluice env` alone does the same.

    \b
    It calls nothing: stacks, workers and tests derive these names from environments.py.
      sluice env
      sluice env prod --json
      sluice env prod --policies
    """
    declared = load_declaration(declaration)
    if name is None:
        _list(list(declared.values()), as_json=as_json)
    elif shows_policies:
        _show_policies(declared.environment(name), as_json=as_json)
    else:
        _show(declared.environment(name), as_json=as_json)


def _show_policies(environment: Environment, *, as_json: bool) -> None:
    """Print the policy statements that the owners of existing keys, topics and queues have to add for an environment.

    Raises:
        ConfigError: the environment declares no account.
    """
    if environment.account is None:
        raise ConfigError(
            f"Environment({environment.name!r}).account is None, allowed is twelve digits: policies name the account;"
            " declare it"
        )
    grants = policies.for_others(environment, environment.account)
    if as_json:
        output.as_json([grant._asdict() for grant in grants])
        return
    for grant in grants:
        output.line(f"{grant.owner}: policy of {grant.attached_to}")
        output.as_json(grant.statements)
    if not grants:
        output.line(f"environment {environment.name!r} has nothing that somebody else would have to allow")


def _list(environments: list[Environment], *, as_json: bool) -> None:
    """Print each environment's name, account, region and consumers."""
    rows: list[dict[str, Any]] = [
        {
            "environment": environment.name,
            "account": environment.account,
            "region": environment.region,
            "consumers": [consumer.name for consumer in environment.consumers],
        }
        for environment in environments
    ]
    if as_json:
        output.as_json(rows)
        return
    shown = [(row["environment"], row["account"] or "-", row["region"], ", ".join(row["consumers"])) for row in rows]
    output.table(("environment", "account", "region", "consumers"), shown)


def _show(environment: Environment, *, as_json: bool) -> None:
    """Print the names of an environment's topics, and of each consumer's queues and service."""
    queues = [
        {
            "consumer": consumer.name,
            "topic": naming.topic_name(environment, consumer.topic),
            "queue": naming.queue_name(environment, consumer),
            "dlq": naming.dead_letter_queue_name(environment, consumer),
            "undelivered_dlq": naming.undelivered_queue_name(environment, consumer),
            "service": naming.service_name(environment, consumer.name),
        }
        for consumer in environment.consumers
    ]
    topics = [naming.topic_name(environment, topic.name) for topic in environment.topics]
    if as_json:
        output.as_json({"environment": environment.name, "topics": topics, "consumers": queues})
        return
    output.line(f"topics: {', '.join(topics)}")
    output.table(tuple(queues[0]), [tuple(queue.values()) for queue in queues])


@env.command(short_help="What it costs a month, for your messages.")
@click.argument("name", metavar="ENV")
@click.option(
    "--messages-per-month", type=COUNT, default="0", show_default=True, metavar="N", help="Published messages: 50M."
)
@click.option(
    "--size", "message_bytes", type=SIZE, default="1KiB", show_default=True, metavar="BYTES", help="Of a message: 2k."
)
@click.option(
    "--events-per-message",
    type=NumberType("events", 1, BUNDLE_EVENTS_MAX),
    metavar="N",
    help="Events a bundle has on average, as measured; without it the cost is a range.",
)
@declaration_option
@json_option
def cost(
    name: str,
    messages_per_month: int,
    message_bytes: int,
    events_per_message: float | None,
    declaration: Path | None,
    as_json: bool,
) -> None:
    """Estimate what a month of ENV costs on AWS, line by line, the largest first, and what would cost less.

    It calls nothing. Consumers, tasks and handler times are those of environments.py: a message occupies a lane for
    processing_seconds, so N messages a second need N x processing_seconds lanes, between min_tasks and max_tasks. SQS
    counts a request for each 64 KiB of a message, SNS counts messages and gigabytes. Prices are the list prices of
    us-east-1; other regions cost more or less. Without messages, it is what the environment costs idle. On a topic
    with bundles messages are events: a bundle is what waits, so at a low rate it is one event.

    \b
    Examples:
      sluice env cost dev
      sluice env cost prod --messages-per-month 50M --size 2k
      sluice env cost prod --messages-per-month 1.5B --size 900 --json
    """
    environment = load_declaration(declaration).environment(name)
    if message_bytes > environment.event_bytes_max:
        raise ConfigError(
            f"--size is {message_bytes:,} bytes, allowed in {name} is at most {environment.event_bytes_max:,}, its"
            " event_bytes_max; lower it, or raise event_bytes_max"
        )
    volume = MonthlyMessages(
        messages=messages_per_month, message_bytes=message_bytes, events_per_message=events_per_message
    )
    monthly_bill = bill(environment, volume)
    if as_json:
        _print_json(environment, volume, monthly_bill)
    else:
        _print_bill(environment, volume, monthly_bill)
    for warning in monthly_bill.warnings:
        output.line(warning, is_error=True)


def _print_json(environment: Environment, volume: MonthlyMessages, monthly_bill: Bill) -> None:
    """Print a bill as JSON, with the environment and the volume that it was made for."""
    output.as_json(
        {
            "environment": environment.name,
            "region": environment.region,
            "price_region": PRICE_REGION,
            "price_date": PRICE_DATE,
            **asdict(volume),
            **asdict(monthly_bill),
            "usd": monthly_bill.usd,
            "not_counted": NOT_COUNTED,
            "warnings": monthly_bill.warnings,
        }
    )


def _print_bill(environment: Environment, volume: MonthlyMessages, monthly_bill: Bill) -> None:
    """Print a bill as tables: its lines, tasks beside Lambda, Fargate's quota, and what would cost less."""
    paid = sorted(((usd, name) for name, usd in monthly_bill.lines.items() if usd), reverse=True)
    rows = [(name, f"{usd:,.2f}", f"{usd / monthly_bill.usd:.0%}") for usd, name in paid]
    output.line(
        f"{environment.name}: about {monthly_bill.usd:,.2f} US dollars a month for {volume.messages:,} messages of"
        f" {volume.message_bytes:,} bytes; the most is {paid[0][1]}"
    )
    output.table(("line", "US dollars", "share"), rows)
    if monthly_bill.usd_with_full_bundles is not None:
        output.line(
            f"that is with one event a message, as at a low rate; {monthly_bill.usd_with_full_bundles:,.2f} US dollars"
            " if every bundle is full. Between the two it is unknown: measure, and say --events-per-message"
        )
    if monthly_bill.services:
        tasks = ", ".join(f"{service.consumer} {service.tasks}" for service in monthly_bill.services)
        output.line(f"tasks, at an even rate: {tasks}")
    output.table(
        ("consumer", "as tasks", "on Lambda", "tasks cost less"),
        [
            (
                f"{each.consumer}, {'on Lambda' if each.is_function else 'as tasks'}",
                f"{each.tasks_usd:,.2f}",
                f"{each.function_usd:,.2f}",
                "never, up to max_tasks"
                if each.break_even_messages is None
                else f"from {each.break_even_messages:,} messages a month",
            )
            for each in monthly_bill.runtimes
        ],
    )
    quota = f"Fargate {'Spot' if environment.spot else 'On-Demand'}"
    output.line(
        f"up to {monthly_bill.vcpus_max:g} vCPUs of Fargate at once, twice while a deployment runs two versions: the"
        " account's quota has to allow them, which is small in a new account (Service Quotas:"
        f" {quota} vCPU resource count)"
    )
    output.table(
        ("instead", "US dollars", "difference"),
        [(name, f"{usd:,.2f}", f"{usd - monthly_bill.usd:+,.2f}") for name, usd in monthly_bill.instead.items()],
    )
    other_region = "" if environment.region == PRICE_REGION else f", not of {environment.region}"
    output.line(f"list prices of {PRICE_REGION}{other_region}, read {PRICE_DATE}; not counted: {NOT_COUNTED}")
