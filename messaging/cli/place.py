"""Where a command acts: an environment's topic and the database of its outbox, or a consumer and that of its inbox."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from sqlalchemy import Engine

from messaging import databases, secret
from messaging.secret import database_url
from sluice import environments, naming
from sluice.declaration import Consumer, Environment
from sluice.endpoint import checked_url
from sluice.errors import ConfigError

_SECRET_VARIABLE = "SLUICE_DATABASE_SECRET_ARN"  # noqa: S105 (its name)


@dataclass(frozen=True, slots=True)
class Place:
    """An environment and its database."""

    environment: Environment
    engine: Engine

    @property
    def topic(self) -> str:
        """Return the name of the environment's topic."""
        return naming.topic_name(self.environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPlace:
    """A consumer of an environment, where SQS is, and the database of its inbox where one is named.

    Args:
        database: None where none is named; `engine` is for commands that cannot do without.
        endpoint_url: of SQS; None means AWS.
    """

    environment: Environment
    consumer: Consumer
    database: Engine | None
    endpoint_url: str | None

    @property
    def engine(self) -> Engine:
        """Return the engine of the inbox's database.

        Raises:
            ConfigError: none is named.
        """
        if self.database is None:
            raise ConfigError(_NO_DATABASE)
        return self.database


def at_place(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--env` and `--dsn`, and hand it the place they name."""

    @environment_option("Declared environment whose topic is meant.")
    @dsn_option("The outbox's database, e.g. sqlite:///outbox.db")
    def placed(environment_name: str, dsn: str | None, **given: Any) -> None:
        environment = environments.environment(environment_name)
        engine = databases.engine(dsn or dsn_from_secret(environment))
        databases.require_there(engine)
        try:
            command(Place(environment, engine), **given)
        finally:
            engine.dispose()

    return as_command(command, placed)


def at_consumer(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--env`, `--consumer`, `--dsn` and `--endpoint-url`, and hand it the consumer's place.

    A database is opened where one is named. A command that needs one asks the place for its `engine`.
    """

    @environment_option("Declared environment whose consumer is meant.")
    @click.option(
        "--consumer",
        "consumer_name",
        envvar="SLUICE_CONSUMER",
        metavar="NAME",
        help="The consumer that is meant.  [$SLUICE_CONSUMER]",
    )
    @dsn_option("The database of the consumer's inbox, e.g. sqlite:///billing.db")
    @endpoint_option
    def placed(
        environment_name: str, consumer_name: str | None, dsn: str | None, endpoint_url: str | None, **given: Any
    ) -> None:
        environment = environments.environment(environment_name)
        consumer = consumer_of(environment, consumer_name)
        endpoint_url = None if endpoint_url is None else checked_url(endpoint_url)
        with inbox_database(environment, dsn) as database:
            place = ConsumerPlace(
                environment=environment, consumer=consumer, database=database, endpoint_url=endpoint_url
            )
            command(place, **given)

    return as_command(command, placed)


def environment_option(meant: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option `--env`."""
    return click.option(
        "--env",
        "environment_name",
        envvar="SLUICE_ENV",
        default="local",
        show_default=True,
        help=f"{meant}  [$SLUICE_ENV]",
    )


def dsn_option(meant: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option `--dsn`."""
    return click.option(
        "--dsn",
        envvar="SLUICE_DSN",
        metavar="URL",
        help=f"{meant} or postgresql://user@host/name.  [default: $SLUICE_DSN, else the secret ${_SECRET_VARIABLE}]",
    )


def endpoint_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--endpoint-url`."""
    option = click.option(
        "--endpoint-url", envvar="AWS_ENDPOINT_URL", metavar="URL", help="Where SQS is.  [default: AWS]"
    )
    return option(command)


def consumer_of(environment: Environment, name: str | None) -> Consumer:
    """Return the consumer of that name.

    Raises:
        ConfigError: there is none in the environment, or none is named.
    """
    found = {one.name: one for one in environment.consumers}
    allowed = f"environment {environment.name!r} has {', '.join(found)}"
    if name is None:
        raise ConfigError(f"no consumer is named, and {allowed}; give --consumer, or set SLUICE_CONSUMER")
    if name not in found:
        raise ConfigError(
            f"consumer is {name!r}, and {allowed}; correct --consumer, or declare it in sluice/environments.py"
        )
    return found[name]


@contextmanager
def inbox_database(environment: Environment, dsn: str | None) -> Iterator[Engine | None]:
    """Yield the engine of the inbox's database; None where neither a URL nor the secret is given."""
    if dsn is None and _SECRET_VARIABLE not in os.environ:
        yield None
        return
    engine = databases.engine(dsn or dsn_from_secret(environment))
    databases.require_there(engine, part="inbox")
    try:
        yield engine
    finally:
        engine.dispose()


def dsn_from_secret(environment: Environment) -> str:
    """Return the database's URL from the secret the stacks name.

    Raises:
        ConfigError: none is named, or it holds something else.
    """
    secret_arn = os.environ.get(_SECRET_VARIABLE)
    if secret_arn is None:
        raise ConfigError(_NO_DATABASE)
    return database_url(secret.client(environment.region), secret_arn, ca=os.environ.get(secret.CA_VARIABLE))


def as_command(command: Callable[..., None], placed: Callable[..., None]) -> Callable[..., None]:
    """Return `placed` under the command's name, with the options of both."""
    placed.__name__, placed.__doc__ = command.__name__, command.__doc__
    placed.__click_params__ = getattr(command, "__click_params__", []) + placed.__click_params__  # type: ignore[attr-defined]
    return placed


_NO_DATABASE = f"no database is named: give --dsn, or set SLUICE_DSN or {_SECRET_VARIABLE}"
