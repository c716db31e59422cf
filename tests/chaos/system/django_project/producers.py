"""Producers of a Django project: each commit is an `atomic()` block, with its rows and its events."""

import json
import sys
from collections.abc import Sequence

from django.db import Error, connections, transaction
from sqlalchemy.exc import DBAPIError

from sluice.django import AtomicOutbox
from sluice.messaging import Event
from tests.chaos.system import django_project
from tests.chaos.system.django_project import OWN
from tests.chaos.system.producers import RecordedTransactions, Task, produce


class AtomicTransactions(RecordedTransactions):
    """Makes the transactions of one producer in `atomic()` blocks."""

    def transact(self, number: int, events: Sequence[Event], given_up: Sequence[Event], *, is_kept: bool) -> None:
        """Write and commit the events, or roll them back; those given up are in a savepoint that is rolled back."""
        try:
            with transaction.atomic(using=OWN):
                if given_up:
                    place = transaction.savepoint(using=OWN)
                    self._add_to_block(number, given_up, position=len(events))
                    transaction.savepoint_rollback(place, using=OWN)
                self._add_to_block(number, events, position=0)
                transaction.set_rollback(not is_kept, using=OWN)
        except Error as error:
            connections[OWN].close()
            raise DBAPIError("in atomic()", None, error) from error

    def _add_to_block(self, number: int, events: Sequence[Event], *, position: int) -> None:
        columns = "event_id, producer, number, position, group_id, payload"
        with connections[OWN].cursor() as cursor:
            for place, event in enumerate(events, start=position):
                row = (event.id, self.task.name, number, place, event.group, event.data["payload"])
                cursor.execute(f"INSERT INTO chaos_happened ({columns}) VALUES (%s, %s, %s, %s, %s, %s)", row)  # noqa: S608
        AtomicOutbox(self.task.topic, using=OWN).add(*events)


if __name__ == "__main__":
    given = Task(**json.loads(sys.argv[1]))
    django_project.set_up(given.dsn)
    produce(given, AtomicTransactions)
