"""Decorators that open the place a command acts at, and hand it over."""

from functools import wraps
from typing import Any

import click

from sluice.cli.options import Command, dsn_option, endpoint_option, environment_option


def database_options(command: Command) -> Command:
    """Give a command `--env`, `--declaration` and `--dsn`, and hand it the `DatabaseTarget` they name."""

    @environment_option("Declared environment whose topic is meant.")
    @dsn_option("The outbox's database, e.g. sqlite:///outbox.db")
    @wraps(command)
    def placed(environment: Any, dsn: str | None, **given: Any) -> None:
        from sluice.cli import place

        with place.outbox_target(environment, dsn) as found:
            command(place=found, **given)

    return placed


def consumer_options(command: Command) -> Command:
    """Give a command the options of a consumer, its database and SQS, and hand it the `ConsumerTarget`.

    A database is opened where one is named. A command that needs one asks the place for its `engine`.
    """

    @environment_option("Declared environment whose consumer is meant.")
    @click.option(
        "--consumer",
        "consumer_name",
        envvar="SLUICE_CONSUMER",
        metavar="NAME",
        help="The consumer.  [$SLUICE_CONSUMER]",
    )
    @dsn_option("The database of the consumer's inbox, e.g. sqlite:///billing.db")
    @endpoint_option("SQS")
    @wraps(command)
    def placed(
        environment: Any, consumer_name: str | None, dsn: str | None, endpoint_url: str | None, **given: Any
    ) -> None:
        from sluice.cli import place

        with place.consumer_target(environment, consumer_name, dsn, endpoint_url) as found:
            command(place=found, **given)

    return placed
