"""`python -m examples.recording`: run the order service, and record what it does."""

import sys
from pathlib import Path

import boto3
import click

from examples.recording import service
from sluice.errors import MessagingError
from sluice.recorder import record

_INTO = click.option(
    "--into", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder of the recording."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Somebody's order service: one process places orders, another writes invoices; both are recorded.

    \b
      python -m examples.recording place --into tuesday
      python -m examples.recording invoice --into tuesday
    """


@cli.command()
@_INTO
@click.option("--customers", default=20, show_default=True, help="How many customers.")
@click.option("--orders", default=5, show_default=True, help="Of each customer.")
@click.option("--retry-anew", is_flag=True, help="Make the mistake: a repeat gets a deduplication id of its own.")
@click.option("--one-group-in", default=1, show_default=True, help="Record one customer in so many.")
def place(into: Path, customers: int, orders: int, *, retry_anew: bool, one_group_in: int) -> None:
    """Place orders."""
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    topic_arn, _ = service.set_up(sns, sqs)
    with record(sns, into, worker="shop", key=service.order_id, one_group_in=one_group_in):
        count = service.place_orders(
            sns, topic_arn, customer_count=customers, order_count=orders, retries_anew=retry_anew
        )
    click.echo(f"{count} orders placed")


@cli.command()
@_INTO
@click.option("--one-group-in", default=1, show_default=True, help="Record one customer in so many.")
def invoice(into: Path, one_group_in: int) -> None:
    """Write invoices until no order comes any more."""
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    _, url = service.set_up(sns, sqs)
    with record(sqs, into, worker="invoices", key=service.order_id, one_group_in=one_group_in):
        written = list(service.invoices(sqs, url))
    click.echo(f"{len(written)} invoices written, for {len(set(written))} orders")


if __name__ == "__main__":
    try:
        cli(prog_name="python -m examples.recording")
    except MessagingError as error:
        sys.exit(f"recorded: {error}")
