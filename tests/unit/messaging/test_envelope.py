"""The envelope: which events are valid, what the body contains of them, and how a foreign body is refused."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.messaging import Event
from sluice.messaging.envelope import TOMBSTONE, Envelope, decode
from sluice.messaging.errors import EnvelopeError
from sluice.messaging.outbox.store import PublishSuccess
from sluice.messaging.relay.publisher import Publisher
from sluice.simulator.hook import Simulator
from sluice.simulator.model.message import size_bytes
from tests.support.messaging.outbox.envelope_strategies import events, numbers
from tests.support.messaging.outbox.simulated_relays import head

LIMIT = 262_144
COMMITTED_AT = datetime(2026, 11, 21, 9, 30, tzinfo=timezone(timedelta(hours=2)))
PLACED = Event(
    type="order.placed", group="order-7", data={"sum": 12}, id="e1", at=COMMITTED_AT, trace={"traceparent": "00-1"}
)
PLACED_BODY = (
    '{"sluice":1,"id":"e1","type":"order.placed","group":"order-7","seq":3,"epoch":2,"at":"2026-11-21T07:30:00+00:00",'
    '"trace":{"traceparent":"00-1"},"hash":"HASH","data":{"sum":12}}'
)
PLACED_HASH = "19c0517716596bd5d7e94dfd4379b3a89705c9c21112289eb7bf710229597d93"  # sha256sum of [type,data]
IDENTIFIER = "1 to 128 ASCII letters, digits and punctuation"
NAME = (
    "names of 1 to 256 letters, digits and . _ -, without 'AWS.' or 'Amazon.' in front, single inner dots, and"
    " not 'type'"
)
INSTANT = "an aware datetime in the years 1 to 9999 UTC, or None"
XML = "allowed is what XML 1.0 allows: tab, newline, return and all from U+0020 on but surrogates, U+FFFE and U+FFFF"
SETTINGS = settings(max_examples=40, deadline=None, database=None, print_blob=True)
TRACE = "text by name, as a propagator writes it"


def sns_attributes(envelope: Envelope) -> dict[str, dict[str, str]]:
    """Return message attributes as SNS is given them."""
    named = envelope.event.message_attributes
    return {name: {"DataType": "String", "StringValue": value} for name, value in named.items()}


def body_with(**fields: Any) -> str:
    """Return the body of PLACED with these fields changed, as another program may write it.

    `...` leaves a field out.
    """
    found = json.loads(Envelope(event=PLACED, seq=3, epoch=2).body) | fields
    return json.dumps({name: value for name, value in found.items() if value is not ...})


def test_a_body_has_event_number_epoch_and_hash() -> None:
    envelope = Envelope(event=PLACED, seq=3, epoch=2)

    assert envelope.body == PLACED_BODY.replace("HASH", PLACED_HASH)
    assert PLACED.content_hash == PLACED_HASH
    assert envelope.deduplication_id == "e1"
    assert PLACED.message_attributes == {"type": "order.placed"}


def test_the_content_hash_depends_on_type_and_data_alone() -> None:
    """Neither on group, attributes, time, nor on the order of keys."""
    event = Event(type="t", group="g", data={"a": 1, "b": 2})
    same = Event(type="t", group="h", data={"b": 2, "a": 1}, attributes={"x": "y"}, at=COMMITTED_AT)
    others = [Event(type="u", group="g", data={"a": 1, "b": 2}), Event(type="t", group="g", data={"a": 1, "b": 3})]

    assert same.content_hash == event.content_hash
    assert len({event.content_hash, *(other.content_hash for other in others)}) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": ""}, "type is '', allowed is 1 to 256 letters, digits and . _ -"),
        ({"type": "a b"}, "type is 'a b', allowed is 1 to 256 letters, digits and . _ -"),
        ({"type": "a" * 257}, f"type is '{'a' * 198}…, allowed is 1 to 256 letters, digits and . _ -"),
        (
            {"type": "sluice.tombstone"},
            "type is 'sluice.tombstone', allowed is one that does not begin with 'sluice.', as Sluice's own do",
        ),
        ({"type": None}, "type is None, allowed is 1 to 256 letters, digits and . _ -"),
        ({"group": ""}, f"group is '', allowed is {IDENTIFIER}"),
        ({"group": "a" * 129}, f"group is '{'a' * 129}', allowed is {IDENTIFIER}"),
        ({"group": "ä"}, f"group is 'ä', allowed is {IDENTIFIER}"),
        ({"group": "a\n"}, f"group is 'a\\n', allowed is {IDENTIFIER}"),
        ({"group": 7}, f"group is 7, allowed is {IDENTIFIER}"),
        ({"id": "two words"}, f"id is 'two words', allowed is {IDENTIFIER}"),
        ({"at": "now"}, f"at is 'now', allowed is {INSTANT}"),
        (
            {"at": COMMITTED_AT.replace(tzinfo=None)},
            f"at is datetime.datetime(2026, 11, 21, 9, 30), allowed is {INSTANT}",
        ),
        (
            {"at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))},
            "at is datetime.datetime(1, 1, 1, 0, 0, tzinfo=datetime.timezone(datetime.timedelta(seconds=7200))),"
            f" allowed is {INSTANT}",
        ),
        ({"attributes": ["a"]}, "attributes is ['a'], allowed is text by name"),
        (
            {"attributes": {f"a{n}": "x" for n in range(10)}},
            "attributes are 10, allowed are 9: `type` is one too, and SNS loses a message with more than 10",
        ),
        ({"attributes": {"type": "x"}}, f"attributes is 'type', allowed is {NAME}"),
        ({"attributes": {"AWS.x": "x"}}, f"attributes is 'AWS.x', allowed is {NAME}"),
        ({"attributes": {"amazon.x": "x"}}, f"attributes is 'amazon.x', allowed is {NAME}"),
        ({"attributes": {".x": "x"}}, f"attributes is '.x', allowed is {NAME}"),
        ({"attributes": {"x.": "x"}}, f"attributes is 'x.', allowed is {NAME}"),
        ({"attributes": {"x..y": "x"}}, f"attributes is 'x..y', allowed is {NAME}"),
        ({"attributes": {1: "x"}}, f"attributes is 1, allowed is {NAME}"),
        ({"attributes": {"x": ""}}, "attributes['x'] is '', allowed is text that is not empty"),
        ({"attributes": {"x": 1}}, "attributes['x'] is 1, allowed is text that is not empty"),
        ({"attributes": {"x": "a\x00"}}, f"attributes['x'] has U+0000 at character 1, {XML}"),
        ({"trace": {"x": 1}}, f"trace is {{'x': 1}}, allowed is {TRACE}"),
        ({"trace": "x"}, f"trace is 'x', allowed is {TRACE}"),
        ({"trace": {"x": "\ufffe"}}, f"trace['x'] has U+FFFE at character 0, {XML}"),
        ({"data": {"a": ["b", "c\ud800"]}}, f"data['a'][1] has U+D800 at character 1, {XML}"),
        ({"data": {"\uffff": 1}}, f"a name in data has U+FFFF at character 0, {XML}"),
        (
            {"data": {1, 2}},
            "data is nothing JSON can say (Object of type set is not JSON serializable); allowed is what json.dumps"
            " takes",
        ),
        (
            {"data": float("nan")},
            "data is nothing JSON can say (Out of range float values are not JSON compliant: nan); allowed is what"
            " json.dumps takes",
        ),
    ],
)
def test_an_unsendable_event_is_refused_before_it_is_stored(fields: dict[str, Any], message: str) -> None:
    valid: dict[str, Any] = {"type": "t", "group": "g", "data": None}

    with pytest.raises(EnvelopeError) as refused:
        Event(**valid | fields)

    assert str(refused.value) == message


def test_data_too_deep_for_json_is_refused() -> None:
    """100,000 nested lists."""
    data: list[Any] = []
    for _ in range(100_000):
        data = [data]

    with pytest.raises(EnvelopeError, match=r"^data is nothing JSON can say \(maximum recursion depth exceeded"):
        Event(type="t", group="g", data=data)


def test_the_beginning_of_a_restored_group_travels_and_of_others_does_not() -> None:
    """A consumer whose first number is 58 must know whether the numbers before it are missing."""
    restored = Envelope(event=PLACED, seq=60, epoch=1_763_839_801, first=58)

    assert decode(restored.body).first == 58
    assert decode(Envelope(event=PLACED, seq=60, epoch=1).body).first == 1
    assert "first" not in json.loads(Envelope(event=PLACED, seq=60, epoch=1).body)


def test_deep_data_that_json_can_say_is_decoded() -> None:
    """Two thousand nested lists exceed the limit of recursion in Python, but not of its JSON."""
    body = Envelope(event=PLACED, seq=1, epoch=1).body
    data: list[Any] = []
    for _ in range(2_000):
        data = [data]

    decoded = decode(Envelope(event=Event(type="t", group="g", data=data), seq=1, epoch=1).body)

    assert json.dumps(decoded.event.data) == "[" * 2_001 + "]" * 2_001
    assert decode(body).event == PLACED


def test_later_changes_by_the_caller_change_no_message() -> None:
    """An event holds copies: it is checked when it is made, and written only at the commit."""
    data, attributes, trace = {"a": [1]}, {"x": "y"}, {"t": "1"}
    event = Event(type="t", group="g", data=data, attributes=attributes, trace=trace)

    data["a"].append(2)
    attributes["x"] = ""
    trace.clear()

    assert event.data == {"a": [1]}
    assert event.attributes == {"x": "y"}
    assert event.trace == {"t": "1"}


@pytest.mark.parametrize("instant", [None, COMMITTED_AT, COMMITTED_AT.replace(microsecond=1)])
def test_an_event_of_the_limit_is_sent_and_a_larger_one_refused(instant: datetime | None) -> None:
    """256 KiB, counted in bytes, with attributes, and with the longest numbers that its group may reach."""
    empty = Event(type="t", group="g", data="", attributes={"x": "ä"}, at=instant).size_bytes
    sized: dict[str, Any] = {"type": "t", "group": "g", "attributes": {"x": "ä"}, "at": instant}

    largest = Event(data="ä" * ((LIMIT - empty) // 2) + "a" * ((LIMIT - empty) % 2), **sized)
    largest.check_size(LIMIT)
    with pytest.raises(EnvelopeError) as refused:
        Event(data="a" * (LIMIT - empty + 1), **sized).check_size(LIMIT)

    assert largest.size_bytes == LIMIT
    assert str(refused.value) == (
        "data makes a message of 262145 bytes with its attributes, allowed are 262144; keep what is large elsewhere and"
        " send where it is, or raise event_bytes_max of the environment"
    )
    assert decode(Envelope(event=largest, seq=2**63 - 2, epoch=2**63 - 2).body).event.data == largest.data


@SETTINGS
@given(event=events(), seq=numbers, epoch=numbers, instant=st.datetimes(timezones=st.just(UTC)))
@example(
    event=Event(type="t", group="g", data=1), seq=2**63 - 2, epoch=2**63 - 2, instant=datetime.max.replace(tzinfo=UTC)
)
def test_a_message_is_never_larger_than_its_event(event: Event, seq: int, epoch: int, instant: datetime) -> None:
    """The event is checked before its number, epoch and time are known."""
    happened = Event(
        type=event.type,
        group=event.group,
        data=event.data,
        attributes=event.attributes,
        id=event.id,
        at=event.at or instant,
        trace=event.trace,
    )
    envelope = Envelope(event=happened, seq=seq, epoch=epoch)

    counted = size_bytes({"MessageBody": envelope.body, "MessageAttributes": sns_attributes(envelope)})

    assert counted <= happened.size_bytes <= event.size_bytes


@SETTINGS
@given(event=events(), seq=numbers, epoch=numbers)
def test_a_body_is_decoded_to_what_was_encoded(event: Event, seq: int, epoch: int) -> None:
    envelope = Envelope(event=event, seq=seq, epoch=epoch)

    decoded = decode(envelope.body)

    assert decoded.body == envelope.body
    assert decoded.seq == seq
    assert decoded.epoch == epoch
    assert decoded.event.data == event.data
    assert decoded.event.attributes == {}


def test_sns_and_sqs_accept_every_valid_event() -> None:
    """Random events go through a simulated topic into a queue, and arrive unchanged."""
    simulator = Simulator()
    sns, sqs = simulator.client("sns"), simulator.client("sqs")
    topic_arn = sns.create_topic(Name="t.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    allow = '{"Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:SendMessage","Resource":"*"}]}'
    url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true", "Policy": allow})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    raw = {"RawMessageDelivery": "true"}
    sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=arn, Attributes=raw)
    publisher = Publisher(sns, topic_arn)

    @SETTINGS
    @given(event=events(), seq=numbers)
    def is_taken(event: Event, seq: int) -> None:
        simulator.advance(301)  # ids are drawn more than once
        envelope = Envelope(event=event, seq=seq, epoch=1)

        (outcome,) = publisher.publish(
            [
                head(
                    group_id=event.group,
                    body=envelope.body,
                    attributes=event.message_attributes,
                    deduplication_id=envelope.deduplication_id,
                )
            ]
        )
        answer = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"])
        (message,) = answer["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

        assert isinstance(outcome, PublishSuccess)
        assert message["Body"] == envelope.body
        assert message["MessageAttributes"] == sns_attributes(envelope)
        assert message["Attributes"]["MessageGroupId"] == event.group
        assert message["Attributes"]["MessageDeduplicationId"] == event.id

    is_taken()


def test_a_tombstone_keeps_its_messages_place_and_nothing_else() -> None:
    """It has the same group, number and epoch, so that no consumer waits.

    Its id differs, or SNS could drop it as a repeat.
    """
    skipped = Envelope(
        event=Event(type="t", group="g", data={"a": 1}, attributes={"x": "y"}, at=COMMITTED_AT), seq=4, epoch=2
    )

    tombstone = skipped.as_tombstone()

    assert tombstone.event.group == "g"
    assert tombstone.seq == 4
    assert tombstone.epoch == 2
    assert tombstone.event.at == COMMITTED_AT
    assert tombstone.event.type == TOMBSTONE
    assert tombstone.event.data is None
    assert tombstone.event.attributes == {}
    assert tombstone.event.id != skipped.event.id
    assert decode(tombstone.body).event.type == "sluice.tombstone"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("hello", "body is not JSON (Expecting value: line 1 column 1 (char 0)); it is not from a Sluice outbox"),
        (PLACED_BODY[:60], "body is not JSON ("),
        ("[" * 100_000, "body is not JSON (maximum recursion depth exceeded"),
        ("[1]", "sluice is None, allowed is 1; upgrade whoever is behind"),
        ('{"Type": "Notification"}', "sluice is None, allowed is 1; upgrade whoever is behind"),
        (body_with(sluice=2), "sluice is 2, allowed is 1; upgrade whoever is behind"),
        (body_with(sluice=True), "sluice is True, allowed is 1; upgrade whoever is behind"),
        (body_with(id=...), "id is None, allowed is a value of type str"),
        (body_with(id=7), "id is 7, allowed is a value of type str"),
        (body_with(id="two words"), f"id is 'two words', allowed is {IDENTIFIER}"),
        (body_with(type=...), "type is None, allowed is a value of type str"),
        (body_with(type="order.lost"), "hash is "),
        (body_with(group=None), "group is None, allowed is a value of type str"),
        (body_with(group=""), f"group is '', allowed is {IDENTIFIER}"),
        (body_with(first=4), "first is 4, allowed is 1 to seq, which is 3"),
        (body_with(first=0), "first is 0, allowed is 1 to seq, which is 3"),
        (body_with(first=True), "first is True, allowed is 1 to seq, which is 3"),
        (body_with(seq="3"), "seq is '3', allowed is a value of type int"),
        (body_with(seq=True), "seq is True, allowed is a value of type int"),
        (body_with(seq=0), "seq is 0, allowed is 1 to 9223372036854775806"),
        (body_with(seq=2**63), "seq is 9223372036854775808, allowed is 1 to 9223372036854775806"),
        (body_with(epoch=...), "epoch is None, allowed is a value of type int"),
        (body_with(epoch=-1), "epoch is -1, allowed is 1 to 9223372036854775806"),
        (body_with(hash=...), "hash is None, allowed is a value of type str"),
        (body_with(hash="0"), "hash is '0', allowed is "),
        (body_with(data=...), "data is None, allowed is a value"),
        (body_with(data={"sum": 13}), "hash is "),
        (
            body_with(data=float("inf")),
            "data is nothing JSON can say (Out of range float values are not JSON compliant",
        ),
        (body_with(at="yesterday"), "at is 'yesterday', allowed is an instant as ISO 8601 writes it, or null"),
        (body_with(at="2026-11-21T07:30:00"), "at is datetime.datetime(2026, 11, 21, 7, 30), allowed is an aware"),
        (body_with(at="0001-01-01T00:00:00+12:00"), "at is datetime.datetime(1, 1, 1, 0, 0, tzinfo="),
        (body_with(at=7), "at is 7, allowed is an instant as ISO 8601 writes it, or null"),
        (body_with(trace=None), f"trace is None, allowed is {TRACE}"),
        (body_with(trace={"traceparent": 1}), f"trace is {{'traceparent': 1}}, allowed is {TRACE}"),
    ],
)
def test_a_body_of_another_program_is_refused_with_the_wrong_field(body: str, message: str) -> None:
    """Each field is missing, of another type, out of bounds, or does not fit the hash."""
    with pytest.raises(EnvelopeError) as refused:
        decode(body)

    assert str(refused.value).startswith(message)


@SETTINGS
@given(body=st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_every_malformed_body_raises_an_envelope_error(body: str) -> None:
    with pytest.raises(EnvelopeError):
        decode(body)


@SETTINGS
@given(name=st.sampled_from(list(json.loads(PLACED_BODY))), value=st.none() | st.booleans() | st.floats() | st.text())
def test_a_changed_field_is_an_envelope_still_or_an_envelope_error(name: str, value: object) -> None:
    """The code for poison messages catches this error only."""
    try:
        decoded = decode(body_with(**{name: value}))
    except EnvelopeError as refused:
        assert str(refused).startswith((f"{name} is ", f"{name} has ", "hash is ", "trace["))  # noqa: PT017
    else:
        assert decoded.event.id or name == "id"
