"""Where a command acts: an environment's topic, and the database of its outbox."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
import click
from sqlalchemy import Engine

from messaging import databases
from messaging.secret import database_url
from sluice import environments, naming
from sluice.declaration import Environment
from sluice.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Place:
    """An environment and its database."""

    environment: Environment
    engine: Engine

    @property
    def topic(self) -> str:
        """Return the name of the environment's topic."""
        return naming.topic_name(self.environment)


def at_place(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--env` and `--dsn`, and hand it the place they name."""

    @click.option(
        "--env",
        "environment_name",
        envvar="SLUICE_ENV",
        default="local",
        show_default=True,
        help="Declared environment whose topic is meant.  [$SLUICE_ENV]",
    )
    @click.option(
        "--dsn",
        envvar="SLUICE_DSN",
        metavar="URL",
        help="The outbox's database, e.g. sqlite:///outbox.db or postgresql://user@host/name.  [default: $SLUICE_DSN,"
        " else the secret $SLUICE_DATABASE_SECRET_ARN]",
    )
    def placed(environment_name: str, dsn: str | None, **given: Any) -> None:
        environment = environments.environment(environment_name)
        engine = databases.engine(dsn or dsn_from_secret(environment))
        databases.require_there(engine)
        try:
            command(Place(environment, engine), **given)
        finally:
            engine.dispose()

    placed.__name__, placed.__doc__ = command.__name__, command.__doc__
    placed.__click_params__ = getattr(command, "__click_params__", []) + placed.__click_params__  # type: ignore[attr-defined]
    return placed


def dsn_from_secret(environment: Environment) -> str:
    """Return the database's URL from the secret the stacks name.

    Raises:
        ConfigError: none is named, or it holds something else.
    """
    secret_arn = os.environ.get("SLUICE_DATABASE_SECRET_ARN")
    if secret_arn is None:
        raise ConfigError("no database is named: give --dsn, or set SLUICE_DSN or SLUICE_DATABASE_SECRET_ARN")
    return database_url(boto3.client("secretsmanager", region_name=environment.region), secret_arn)
