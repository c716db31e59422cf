"""The databases, queues and services of an environment, read so that a failure is an `Unknown` and no exception."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from sluice import sdk
from sluice.cli.targets import consumer_of
from sluice.declaration import Consumer, Environment, naming
from sluice.endpoint import checked_url
from sluice.errors import ConfigError, MessagingError
from sluice.messaging.database import engines
from sluice.messaging.database.rotation import NO_DATABASE, is_named, runtime_engine
from sluice.messaging.sqs.dead_letter_queue import counts
from sluice.messaging.sqs.queue import Queue, url_of
from sluice.terminal.printable import printable

_REASON_CHARACTERS_MAX = 200
_ANSWER_SECONDS = 5
# To open a database, a token or a secret may be fetched from AWS, so its errors count as well.
FAILURES = (MessagingError, SQLAlchemyError, ClientError, *sdk.UNANSWERED)
_UNREACHABLE = (ConnectTimeoutError, EndpointConnectionError)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that could not be read, with the reason."""

    reason: str

    def as_json(self) -> dict[str, str]:
        """Return the JSON fields of an unknown value."""
        return {"unknown": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """A queue as SQS counts it, approximately.

    Args:
        retention_seconds: how long the queue keeps a message.
    """

    name: str
    arn: str
    visible: int
    in_flight: int
    delayed: int
    retention_seconds: int

    @property
    def total(self) -> int:
        """Return how many messages the queue has, visible or not."""
        return self.visible + self.in_flight + self.delayed

    @property
    def fields(self) -> dict[str, int]:
        """Return the three counts as JSON fields."""
        return {"visible": self.visible, "in_flight": self.in_flight, "delayed": self.delayed}


@dataclass(kw_only=True)
class Sources:
    """The databases and the AWS services of an environment, for commands that only read.

    Args:
        environment: as declared.
        outbox: the engine of the outbox's database, or why there is none.
        inboxes: by consumer, the engine of its inbox's database, or why there is none.
        endpoint_url: of AWS's services; None is AWS.
    """

    environment: Environment
    outbox: Engine | Unknown
    inboxes: Mapping[str, Engine | Unknown]
    endpoint_url: str | None
    _session: Any = field(default_factory=boto3.session.Session)
    _clients: dict[str, Any] = field(default_factory=dict)
    _unreachable: dict[str, Unknown] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)  # a session makes one client at a time

    def client(self, service: str) -> Any:
        """Return boto3's client of a service. It tries once, and waits a few seconds for an answer."""
        with self._making:
            if service not in self._clients:
                config = sdk.config(answer_seconds=_ANSWER_SECONDS)
                self._clients[service] = self._session.client(
                    service, region_name=self.environment.region, endpoint_url=self.endpoint_url, config=config
                )
            return self._clients[service]

    def begin_look(self) -> None:
        """Try every service again, also one that could not be reached at the last look."""
        self._unreachable.clear()

    def call[Answer](self, service: str, call: Callable[[Any], Answer]) -> Answer | Unknown:
        """Return the answer of a service to `call`, which gets its client; `Unknown` where the call fails.

        After a service could not be reached once, it is not called again in this look.
        """
        if service in self._unreachable:
            return self._unreachable[service]
        try:
            return call(self.client(service))
        except (MessagingError, ClientError, *sdk.UNANSWERED) as error:
            unknown = Unknown(explain_failure(error))
            if isinstance(error, _UNREACHABLE) or isinstance(error.__cause__, _UNREACHABLE):
                self._unreachable[service] = unknown
            return unknown

    def queue(self, name: str) -> QueueCounts | Unknown:
        """Return a queue's counts as they are now."""
        return self.call("sqs", lambda sqs: _read_queue(sqs, name))


def read[Answer](engine: Engine | Unknown, look: Callable[[Connection], Answer]) -> Answer | Unknown:
    """Return the result of `look` on a database, in a short transaction that only reads; `Unknown` where that fails."""
    if isinstance(engine, Unknown):
        return engine
    try:
        with engines.reading(engine) as connection, engines.explaining_missing_tables():
            return look(connection)
    except FAILURES as error:
        return Unknown(explain_failure(error))


def explaining[Answer](look: Callable[[], Answer]) -> Answer | Unknown:
    """Return the result of `look`, which opens its own connection; `Unknown` where the database fails."""
    try:
        with engines.explaining_missing_tables():
            return look()
    except FAILURES as error:
        return Unknown(explain_failure(error))


@contextmanager
def opening(
    environment: Environment, dsn: str | None, inboxes: tuple[str, ...], endpoint_url: str | None
) -> Iterator[Sources]:
    """Yield the sources of an environment, and close its databases at the end.

    Args:
        environment: as declared.
        dsn: URL of the database of outbox and inboxes; None is the database that the variables name.
        inboxes: `CONSUMER=URL` of each consumer whose inbox is in another database.
        endpoint_url: of AWS's services; None is AWS.

    Raises:
        ConfigError: a URL is wrong, SQLite's file is not there, or there is no such consumer.
    """
    with ExitStack() as stack:

        def open_database(url: str | None, part: str) -> Engine | Unknown:
            if url is None and not is_named():
                return Unknown(NO_DATABASE)
            try:
                engine = runtime_engine(environment.region, url)
            except (ClientError, *sdk.UNANSWERED) as error:
                return Unknown(explain_failure(error))
            engines.require_there(engine, part=part)
            stack.callback(engine.dispose)
            return engine

        shared_database = open_database(dsn, "outbox")
        url_by_consumer = dict(_named_inbox(environment, each) for each in inboxes)
        yield Sources(
            environment=environment,
            outbox=shared_database,
            inboxes={
                consumer.name: open_database(url_by_consumer[consumer.name], "inbox")
                if consumer.name in url_by_consumer
                else shared_database
                for consumer in environment.consumers
            },
            endpoint_url=None if endpoint_url is None else checked_url(endpoint_url),
        )


def chosen_consumers(environment: Environment, name: str | None) -> tuple[Consumer, ...]:
    """Return the consumer of this name; all consumers if the name is None.

    Raises:
        ConfigError: there is no consumer of this name.
    """
    return environment.consumers if name is None else (consumer_of(environment, name),)


def topic_arn(sources: Sources, topic: str) -> str | Unknown:
    """Return the ARN of a declared topic, in the declared account or in that of the credentials."""
    account = sources.environment.account
    if account is None:
        identity = sources.call("sts", lambda sts: sts.get_caller_identity())
        if isinstance(identity, Unknown):
            return identity
        account = str(identity["Account"])
    return naming.topic_arn(sources.environment, account, topic)


def _named_inbox(environment: Environment, text: str) -> tuple[str, str]:
    """Return the consumer's name and the URL of an option `--inbox CONSUMER=URL`."""
    name, equals, url = text.partition("=")
    if not equals or not url:
        raise ConfigError(
            f"--inbox is {name!r}, allowed is CONSUMER=URL, such as billing=postgresql://user@host/billing"
        )
    return consumer_of(environment, name).name, url


def _read_queue(sqs: Any, name: str) -> QueueCounts:
    """Return a queue's counts and retention from its attributes."""
    attributes = Queue(sqs, url_of(sqs, name)).attributes()
    retention_seconds = int(attributes["MessageRetentionPeriod"])
    return QueueCounts(name=name, arn=attributes["QueueArn"], retention_seconds=retention_seconds, **counts(attributes))


def explain_failure(error: BaseException) -> str:
    """Return the reason of a failure in one short line."""
    if isinstance(error, ClientError):
        failed = error.response.get("Error", {})
        text = f"{error.operation_name}: {failed.get('Code', '')} {failed.get('Message', '')}".strip()
    elif isinstance(error, SQLAlchemyError):
        text = next(iter(str(getattr(error, "orig", None) or error).strip().splitlines()), type(error).__name__)
    else:
        text = str(error)
    return printable(text, characters_max=_REASON_CHARACTERS_MAX)
