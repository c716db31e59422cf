"""What `python -m messaging inbox …` does."""

from messaging import schema
from messaging.cli import output
from messaging.cli.place import ConsumerPlace
from messaging.cli.tables import tell_drift
from messaging.inbox import Inbox, Policy


def check(*, place: ConsumerPlace) -> None:
    """Run `inbox check`."""
    tell_drift(place.engine, schema.INBOX)


def status(*, place: ConsumerPlace, as_json: bool) -> None:
    """Run `inbox status`."""
    counted = Inbox(Policy.declared(place.consumer)).counts(place.engine)
    if as_json:
        output.as_json({"consumer": place.consumer.name, **counted})
        return
    output.line(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counted.items()))
