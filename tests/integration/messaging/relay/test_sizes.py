"""A message of exactly the declared size goes from the outbox into the queue; one byte more is refused by us."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import boto3
import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from emulator import localstack
from sluice.declaration import Consumer, Environment, naming
from sluice.errors import ConfigError
from sluice.messaging import Event, Outbox
from sluice.messaging.envelope import decode
from sluice.messaging.errors import EnvelopeError
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.store import Store
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.relay.relay import Relay, RelaySettings
from sluice.simulator.hook import Simulator
from sluice.topology import Topology, deploy
from tests.support.messaging.outbox.simulated_relays import work
from tests.support.messaging.world import CallsInTurn, World


def _event(bytes_max: int, *, over: int = 0) -> Event:
    """Return an event whose message is `over` bytes larger than the limit of `bytes_max`."""
    small = Event(type="order.placed", group="a", data="", attributes={"region": "eu"})
    return replace(small, data="x" * (bytes_max + over - small.size_bytes))


def _environment(bytes_max: int) -> Environment:
    """Return an environment whose events may have up to `bytes_max` bytes."""
    return Environment(name="sizes", event_bytes_max=bytes_max, consumers=(Consumer(name="billing"),))


def _publish(engine: Engine, environment: Environment, event: Event, clients: Mapping[str, Any]) -> dict[str, Any]:
    """Commit an event, let a relay of the environment publish it, and return the message that the queue gets."""
    topic = naming.topic_name(environment)
    deployed: Topology = deploy(environment, sqs=clients["sqs"], sns=clients["sns"])
    with Session(engine) as session:
        Outbox(topic, event_bytes_max=environment.event_bytes_max).add(session, event)
        session.commit()
    settings = RelaySettings(event_bytes_max=environment.event_bytes_max)
    publisher = Publisher(clients["sns"], deployed.topic_arn)
    lease = Lease(engine, topic, lease_seconds=30)
    work(Relay(Store(engine, topic), lease, publisher, settings=settings, calls=CallsInTurn))
    receive = {"QueueUrl": deployed.queues["billing"], "WaitTimeSeconds": 20, "MessageAttributeNames": ["All"]}
    (received,) = clients["sqs"].receive_message(**receive)["Messages"]
    return dict(received)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("bytes_max", [1_024, 262_144, 1_048_576])
def test_an_event_of_the_declared_size_reaches_the_queue(engine: Engine, bytes_max: int) -> None:
    """The simulator holds topics and queues to their MaximumMessageSize, as AWS does."""
    simulator = Simulator()
    clients = {name: simulator.client(name) for name in ("sns", "sqs")}
    event = _event(bytes_max)

    received = _publish(engine, _environment(bytes_max), event, clients)

    assert decode(received["Body"]).event.data == event.data
    assert received["MessageAttributes"]["region"]["StringValue"] == "eu"


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_an_event_of_256_kib_reaches_a_queue_of_localstack(
    engine: Engine, localstack_shared: localstack.Emulator
) -> None:
    """LocalStack stores a topic's MaximumMessageSize, and still enforces 256 KiB [GAP-42]."""
    reached = {"endpoint_url": localstack_shared.endpoint_url, "region_name": "us-east-1"}
    clients = {name: boto3.client(name, **reached) for name in ("sns", "sqs")}
    event = _event(262_144)

    received = _publish(engine, _environment(262_144), event, clients)

    assert decode(received["Body"]).event.data == event.data


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("bytes_max", [1_024, 262_144, 1_048_576])
def test_an_event_above_the_declared_size_is_refused(engine: Engine, bytes_max: int) -> None:
    """It is one byte too large. The transaction can be committed without it."""
    outbox = Outbox("t.fifo", event_bytes_max=bytes_max)
    allowed, too_large = _event(bytes_max), _event(bytes_max, over=1)
    expected = (
        f"data makes a message of {bytes_max + 1} bytes with its attributes, allowed are {bytes_max}; keep what is"
        " large elsewhere and send where it is, or raise event_bytes_max of the environment"
    )

    with Session(engine) as session:
        outbox.add(session, allowed)
        with pytest.raises(EnvelopeError) as not_added:
            outbox.add(session, too_large)
        session.commit()
    with engine.begin() as connection, pytest.raises(EnvelopeError) as not_written:
        outbox.write(connection, [too_large])

    assert str(not_added.value) == expected
    assert str(not_written.value) == expected
    assert Store(engine, "t.fifo").lag().pending_count == 1


def test_a_stored_event_above_the_size_is_quarantined_without_a_call(world: World) -> None:
    """The size may have been lowered after its commit. Attributes count. Other groups are published."""
    world.commit("a", "b")
    world.change(body="x" * (262_144 - len("type" + "String" + "order.placed") + 1))
    world.commit("c")

    work(world.relay())

    assert world.statuses() == {("a", 1): "quarantined", ("b", 1): "quarantined", ("c", 1): "sent"}
    assert [[entry["MessageGroupId"] for entry in request] for request in world.sns_calls.requests] == [["c"]]
    quarantined = select(tables.messages.c.last_error).where(tables.messages.c.status == tables.QUARANTINED)
    with world.engine.connect() as connection:
        errors = list(connection.scalars(quarantined))
    assert (
        errors
        == [
            "it has 262145 bytes with its attributes, allowed are 262144; raise event_bytes_max of the environment and"
            " `sluice outbox unquarantine` it, or `sluice outbox skip` it"
        ]
        * 2
    )


@pytest.mark.parametrize("bytes_max", [1_023, 1_048_577, 0])
def test_an_outbox_refuses_a_size_that_no_topic_has(bytes_max: int) -> None:
    """A FIFO topic's limit is 1 KiB to 1 MiB."""
    with pytest.raises(ConfigError) as refused:
        Outbox("t.fifo", event_bytes_max=bytes_max)

    assert str(refused.value) == (
        f"event_bytes_max of Outbox is {bytes_max}, allowed is 1024 to 1048576 bytes; give the environment's"
        " event_bytes_max"
    )
