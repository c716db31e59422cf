"""The body of a bundle: it holds the bodies of its events unchanged, and one event is its own message."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.limits import BUNDLE_EVENTS_MAX
from sluice.messaging import Event
from sluice.messaging.bundle import bundle_bytes, events_of, read_body, write_bundle
from sluice.messaging.envelope import Envelope
from sluice.messaging.errors import EnvelopeError
from tests.support.messaging.outbox.envelope_strategies import events, numbers

SETTINGS = settings(max_examples=40, deadline=None, database=None, print_blob=True)
ENVELOPES = st.lists(st.builds(Envelope, event=events(), seq=numbers, epoch=numbers), min_size=1, max_size=4)


def body_of(seq: int) -> str:
    return Envelope(event=Event(type="order.placed", group="a", data={"n": seq}, id=f"e{seq}"), seq=seq, epoch=1).body


ONE, TWO = body_of(1), body_of(2)


@SETTINGS
@given(ENVELOPES)
def test_a_bundle_gives_back_each_event_with_its_text(envelopes: list[Envelope]) -> None:
    bodies = [envelope.body for envelope in envelopes]

    body = write_bundle(bodies)

    assert [event.body for event in read_body(body)] == bodies
    assert [envelope.body for envelope in events_of(body)] == bodies
    assert bundle_bytes([len(text.encode()) for text in bodies]) == len(body.encode())


def test_one_event_is_the_message_that_it_was_without_bundles() -> None:
    assert write_bundle([ONE]) == ONE


def test_a_bundle_has_a_version_and_the_bodies_of_its_events() -> None:
    assert write_bundle([ONE, TWO]) == f'{{"sluice":2,"events":[{ONE},{TWO}]}}'


def test_a_bundle_of_as_many_events_as_may_be_declared_is_read() -> None:
    assert len(events_of(write_bundle([ONE] * BUNDLE_EVENTS_MAX))) == BUNDLE_EVENTS_MAX


def test_whitespace_of_another_writer_changes_nothing() -> None:
    spaced = f' {{ "sluice" : 2 ,\n "events" : [ {ONE} ,\t{TWO} ] }} '

    assert [envelope.seq for envelope in events_of(spaced)] == [1, 2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"sluice":2,"events":[]}', "the bundle has no event, allowed is one or more"),
        ('{"sluice":2}', "the bundle has other members, allowed are sluice and events"),
        (f'{{"events":[{ONE}],"sluice":2}}', "the bundle has other members, allowed are sluice and events"),
        (f'{{"sluice":2,"events":[{ONE}],"more":1}}', "the bundle has members behind its events"),
        (f'{{"sluice":2,"events":[{ONE},{TWO}', "body is not JSON"),
        ('{"sluice":3,"events":[]}', "sluice is 3, allowed is 1; upgrade whoever is behind"),
        ('{"sluice":true,"events":[]}', "sluice is True, allowed is 1"),
        (write_bundle(["0"] * 251), "the bundle has more than 250 events, allowed are so many"),
        (None, "body is a NoneType, allowed is a text"),
        (ONE.encode(), "body is a bytes, allowed is a text"),
        (write_bundle([ONE, TWO]).encode(), "body is a bytes, allowed is a text"),
    ],
)
def test_a_body_that_is_no_bundle_is_refused(body: Any, message: str) -> None:
    """A bundle of too many events is dead as a whole, and not event by event."""
    with pytest.raises(EnvelopeError) as refused:
        read_body(body)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        ("1", "event 1 of the bundle: sluice is None, allowed is 1"),
        (write_bundle([ONE, TWO]), "event 1 of the bundle: sluice is 2, allowed is 1"),
        (json.dumps(json.loads(TWO) | {"data": 3}), "event 1 of the bundle: hash is"),
    ],
)
def test_an_event_that_cannot_be_read_leaves_the_others_readable(spoiled: str, message: str) -> None:
    body = write_bundle([ONE, spoiled])

    events = read_body(body)
    with pytest.raises(EnvelopeError) as refused:
        events_of(body)

    assert [event.body for event in events] == [ONE, spoiled]
    assert [event.envelope is None for event in events] == [False, True]
    assert message in str(refused.value)
