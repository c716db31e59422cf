"""Targets of a command: a topic with the database of its outbox, or a consumer with the database of its inbox."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import click
from click.core import ParameterSource
from sqlalchemy import Engine

from sluice.declaration import Consumer, Environment, naming
from sluice.declaration.validation import did_you_mean, nearest, value_text
from sluice.endpoint import checked_url
from sluice.errors import ConfigError
from sluice.messaging.database import engines
from sluice.messaging.database.rotation import NO_DATABASE, is_named, runtime_engine


@dataclass(frozen=True, slots=True)
class DatabaseTarget:
    """An environment, whose first topic is the one that the command names, and the engine of its outbox's database."""

    environment: Environment
    engine: Engine

    @property
    def topic(self) -> str:
        """Return the name of the topic."""
        return naming.topic_name(self.environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTarget:
    """A consumer of an environment, where SQS is, and the database of its inbox where one is named.

    Args:
        environment: as declared.
        consumer: as declared.
        database: None where no database is named. A command that needs one reads `engine`.
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
            ConfigError: no database is named.
        """
        if self.database is None:
            raise ConfigError(NO_DATABASE)
        return self.database


@contextmanager
def outbox_target(environment: Environment, dsn: str | None, topic: str | None) -> Iterator[DatabaseTarget]:
    """Yield an environment with the named topic as its first, and the database of its outbox.

    Args:
        environment: as declared.
        dsn: URL of the database; None is the database that the variables name.
        topic: declared name of a topic; None is the environment's first.

    Raises:
        ConfigError: the environment has no topic of this name, or no database is named.
    """
    found = environment.topic(topic)
    environment = replace(environment, topics=(found, *(other for other in environment.topics if other != found)))
    engine = _engine(environment, dsn)
    engines.require_there(engine)
    try:
        yield DatabaseTarget(environment, engine)
    finally:
        engine.dispose()


@contextmanager
def consumer_target(
    environment: Environment, consumer_name: str | None, dsn: str | None, endpoint_url: str | None
) -> Iterator[ConsumerTarget]:
    """Yield a consumer with the database of its inbox, where one is named."""
    consumer = consumer_of(environment, consumer_name)
    endpoint_url = None if endpoint_url is None else checked_url(endpoint_url)
    with inbox_database(environment, dsn) as database:
        yield ConsumerTarget(environment=environment, consumer=consumer, database=database, endpoint_url=endpoint_url)


def consumer_of(environment: Environment, name: str | None) -> Consumer:
    """Return the consumer of this name.

    Raises:
        ConfigError: the environment has no consumer of this name, or the name is None.
    """
    found = {consumer.name: consumer for consumer in environment.consumers}
    allowed = f"environment {environment.name!r} has {', '.join(found)}"
    if name is None:
        raise ConfigError(f"no consumer is named, and {allowed}; give --consumer, or set SLUICE_CONSUMER")
    if name not in found:
        intended = did_you_mean(nearest(name, found))
        raise ConfigError(f"consumer is {value_text(name)}{intended}, and {allowed}; correct --consumer, or declare it")
    return found[name]


@contextmanager
def inbox_database(environment: Environment, dsn: str | None) -> Iterator[Engine | None]:
    """Yield the engine of the inbox's database; None where neither a URL nor a variable names a database."""
    if dsn is None and not is_named() and _database_opener() is None:
        yield None
        return
    engine = _engine(environment, dsn)
    engines.require_there(engine, part="inbox")
    try:
        yield engine
    finally:
        engine.dispose()


def _engine(environment: Environment, dsn: str | None) -> Engine:
    """Open the database of `--dsn` or of the variables; in a Django project's command, the project's database."""
    open_database = _database_opener()
    if open_database is None:
        return runtime_engine(environment.region, dsn)
    if click.get_current_context().get_parameter_source("dsn") is ParameterSource.COMMANDLINE:
        raise ConfigError("--dsn is given, allowed is --database with an alias of the project's DATABASES")
    return open_database()


def _database_opener() -> Callable[[], Engine] | None:
    """Return the function that the caller of `sluice.cli.main.main` gave to open the database; None if it gave none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.obj
