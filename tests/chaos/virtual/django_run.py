"""Virtual runs whose producer commits by Django's `atomic()`, and whose handler uses Django's ORM connection.

Relay, workers and inbox are the same; a worker's connections are those that `manage.py sluice_worker` opens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import Error, connections, transaction
from django.db import OperationalError as DjangoOperationalError
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from sluice.django import AtomicOutbox, orm_handler
from sluice.django.databases import worker_engine
from sluice.messaging import Context, Event
from sluice.messaging.handlers import Handler
from tests.chaos.virtual.schedules import Publish
from tests.chaos.virtual.virtual_run import VirtualRun, event_of
from tests.support import shop
from tests.support.messaging.broken_workers import InboxApart
from tests.support.messaging.database_errors import busy
from tests.support.messaging.world import TOPIC

_ALIAS = "default"


class Django(VirtualRun):
    """The product in a Django project on SQLite."""

    def new_engine(self, file: Path) -> Engine:
        """Return the engine of the project's workers, once the file is the project's database."""
        shop.set_up()
        shop.use(_ALIAS, NAME=str(file), OPTIONS={"transaction_mode": "IMMEDIATE", "timeout": 0})
        return worker_engine(_ALIAS)

    def produce(self, publish: Publish) -> None:
        """Commit an event and its row together, in `atomic()`."""
        with self.djangos_errors():
            with transaction.atomic(using=_ALIAS):
                self.write_committed(publish)
                AtomicOutbox(TOPIC, using=_ALIAS).add(event_of(publish))
                self.reach("before_commit")
            self.reach("after_commit")

    def handler(self) -> Handler:
        """Return a handler that writes its effect by Django's cursor."""

        @orm_handler("*", using=_ALIAS)
        def handle(of: Event, _: Context) -> None:
            lent = connections[_ALIAS]
            with lent.execute_wrapper(self._refuse_while_locked), lent.cursor() as cursor:
                row = (of.data["number"], of.group)
                cursor.execute("INSERT INTO effect (number, group_id) VALUES (%s, %s)", row)
            self.fail_if_badly_deployed()

        return handle

    def write_committed(self, publish: Publish) -> None:
        """Write the producer's own row."""
        with connections[_ALIAS].cursor() as cursor:
            row = (publish.number, publish.group)
            cursor.execute("INSERT INTO committed (number, group_id) VALUES (%s, %s)", row)

    @contextmanager
    def djangos_errors(self) -> Iterator[None]:
        """Refuse statements while a fault locks the database, and raise Django's errors as SQLAlchemy's."""
        found = connections[_ALIAS]
        try:
            with found.execute_wrapper(self._refuse_while_locked):
                yield
        except Error as error:
            raise OperationalError("in atomic()", None, error) from error
        finally:
            found.close()

    def _refuse_while_locked(self, execute: Callable[..., Any], *given: Any) -> Any:
        if self.is_locked():
            raise DjangoOperationalError("database is locked") from busy()
        return execute(*given)


class DjangoMarksBefore(Django):
    """Broken: the inbox's mark is committed before the handler, so what fails then has no effect."""

    processor = InboxApart


class DjangoOutsideAtomic(Django):
    """Broken: the event is added in a second `atomic()` block, so it is lost where the process dies between them."""

    def produce(self, publish: Publish) -> None:
        """Commit the row, then the event."""
        with self.djangos_errors():
            with transaction.atomic(using=_ALIAS):
                self.write_committed(publish)
                self.reach("before_commit")
            self.reach("between")
            with transaction.atomic(using=_ALIAS):
                AtomicOutbox(TOPIC, using=_ALIAS).add(event_of(publish))
            self.reach("after_commit")
