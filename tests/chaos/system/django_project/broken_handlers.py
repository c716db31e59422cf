"""Broken handlers of a Django project, the negative control: they write by another alias, which commits by itself."""

from sluice.django import orm_handler
from sluice.messaging import Ack, Context, Event, Outcome
from sluice.testing.load import poison
from tests.chaos.system.django_project import APART, OWN
from tests.chaos.system.django_project.handlers import suffer, write_effect


@orm_handler("*", using=OWN)
def do(event: Event, context: Context) -> Outcome:
    """Commit the effect in a transaction of its own, then fail as the others do."""
    way = poison.way_of(event)
    write_effect(APART, event, context, is_doomed=way is not None)
    return Ack() if way is None else suffer(way)
