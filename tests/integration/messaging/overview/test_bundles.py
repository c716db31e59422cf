"""`sluice outbox bundles` switches bundles on only where every consumer that can be seen reads them."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sluice.declaration import Consumer, Environment, Topic, naming
from sluice.messaging.bundle import events_of
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.operations import OutboxOperator
from tests.support.command_line import Run
from tests.support.declaration import environment
from tests.support.messaging.operated_shop import TOPIC, OperatedShop, operated_shop

_TOPIC = Topic(bundle_events_max=5)
_BILLING = Consumer(name="billing", handlers="examples.services.billing")
DECLARED = replace(environment("local"), topics=(_TOPIC,), consumers=(_BILLING,))
ON = ("outbox", "bundles", "on", "--reason", "orders are hot")
OFF = ("outbox", "bundles", "off", "--reason", "we go back", "--yes")


class HotShop:
    """A shop with one consumer, and its commands on the declaration of a test."""

    def __init__(self, shop: OperatedShop, run: Run, folder: Path) -> None:
        self.shop, self._run, self._file = shop, run, folder / "environments.py"
        self.declare(DECLARED)

    def declare(self, declared: Environment) -> None:
        """Write the file from which the commands read this environment."""
        topic = declared.topics[0]
        assert isinstance(topic, Topic)
        self._file.write_text(
            "from sluice.declaration import Consumer, Environment, Removal, Topic\n"
            "ENVIRONMENTS = (Environment(name='local', account='000000000000', removal=Removal.DESTROY,"
            f" topics=(Topic(bundle_events_max={topic.bundle_events_max},"
            f" foreign_subscribers_read_bundles={topic.foreign_subscribers_read_bundles}),),"
            f" consumers=(Consumer(name='billing', max_attempts=5),)),)\n"
        )

    def deploy(self, declared: Environment) -> None:
        """Deploy an environment with the declared visibility timeout in place of the endpoint's short one."""
        self.shop.endpoint.deploy(declared)
        url = self.shop.url(naming.queue_name(declared, _BILLING))
        self.shop.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "60"})

    def sluice(self, *arguments: str) -> tuple[int, str, str]:
        where = ("--declaration", str(self._file), "--dsn", self.shop.dsn)
        endpoint = (
            ("--endpoint-url", self.shop.endpoint.url) if {"on", "relay", "verify", "worker"} & set(arguments) else ()
        )
        return self._run(*arguments, *where, *endpoint)

    def numbers(self) -> list[list[int]]:
        """Take all messages from the queue of billing, and return the numbers of the events in each."""
        url = self.shop.url(naming.queue_name(DECLARED, _BILLING))
        found: list[list[int]] = []
        while messages := self.shop.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self.shop.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                found.append([event.seq for event in events_of(message["Body"])])
        return found


@pytest.fixture
def hot(engine: Engine, run: Run, tmp_path: Path) -> Iterator[HotShop]:
    """Yield a shop whose topic declares bundles, on either kind of database."""
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    with operated_shop(engine, run, DECLARED) as shop:
        hot = HotShop(shop, run, tmp_path)
        hot.deploy(DECLARED)
        yield hot


def test_a_relay_bundles_from_the_switch_on_until_it_is_off(hot: HotShop) -> None:
    """The first event after a takeover goes alone."""
    for switch in ((), ON, OFF):
        if switch:
            code, _, failed = hot.sluice(*switch, *(() if "--yes" in switch else ("--yes",)))
            assert code == 0, failed
        hot.shop.commit("a", 1, 2, 3, 4)
        assert hot.sluice("relay", "--until-empty")[0] == 0

    assert hot.numbers() == [[1], [2], [3], [4], [5], [6, 7, 8], [9], [10], [11], [12]]


def test_without_yes_nothing_is_switched(hot: HotShop) -> None:
    """Five events a message are declared, and relays still send one."""
    code, printed, _ = hot.sluice(*ON)

    assert code == 0
    assert printed == "would let relays bundle: 5 events a message at most; add --yes to do it\n"
    shown = hot.sluice("outbox", "bundles", "show")[1]
    assert shown.splitlines() == [
        "1 events a message: 5 declared, 1 switched on",
        "0 bundles are stored and not marked as sent",
    ]


def test_the_switch_shows_who_changed_it(hot: HotShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user who ran the command is shown with the reason."""
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    hot.sluice(*ON, "--yes")

    shown = hot.sluice("outbox", "bundles", "show")[1].splitlines()

    assert shown[0] == "5 events a message: 5 declared, 5 switched on"
    assert shown[1].endswith(" by ada: orders are hot")


def test_another_declared_number_has_to_be_switched_on_again(hot: HotShop) -> None:
    """The operator looked at consumers for five events a message."""
    hot.declare(replace(DECLARED, topics=(Topic(bundle_events_max=4),)))
    with hot.shop.engine.begin() as connection:
        OutboxOperator(topic=TOPIC, actor="ada", reason="orders were hot").switch_bundles(connection, 5)

    assert hot.sluice("outbox", "bundles", "show")[1].startswith("1 events a message: 4 declared, 5 switched on\n")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"topics": (Topic(),)},
            "topic 'events' has bundle_events_max 1, allowed is more: declare Topic(bundle_events_max=…), deploy it,"
            " and try again",
        ),
        (
            {"queue": "5"},
            "bundles stay off: sluice-local-billing.fifo: the queue's maxReceiveCount is 5, allowed is that of bundles"
            " (1000), or SQS dead-letters messages by receives that are no attempts; deploy the environment's stacks,"
            " or declare it so",
        ),
        (
            {"subscriber": "theirs.fifo"},
            "bundles stay off: arn:aws:sqs:us-east-1:000000000000:theirs.fifo subscribes"
            " arn:aws:sns:us-east-1:000000000000:sluice-local-events.fifo and is not declared; declare it as a"
            " consumer, or foreign_subscribers_read_bundles=True if all such subscribers read bundles",
        ),
    ],
    ids=["not declared", "a queue of attempts", "another subscriber"],
)
def test_bundles_that_somebody_may_not_read_stay_off(hot: HotShop, changed: dict[str, Any], message: str) -> None:
    """The refusal is one line, and nothing is switched."""
    if "topics" in changed:
        hot.declare(replace(DECLARED, **changed))
    if "queue" in changed:
        hot.deploy(replace(DECLARED, topics=(Topic(),)))
    if "subscriber" in changed:
        _subscribe(hot, changed["subscriber"])

    code, printed, failed = hot.sluice(*ON, "--yes")

    assert printed == ""
    assert failed == f"sluice: {message}\n"
    assert code == 3


def test_subscribers_that_read_bundles_are_declared(hot: HotShop) -> None:
    """A queue that is not ours subscribes, and the declaration says that such subscribers read bundles."""
    _subscribe(hot, "theirs.fifo")
    hot.declare(replace(DECLARED, topics=(replace(_TOPIC, foreign_subscribers_read_bundles=True),)))

    code, _, failed = hot.sluice(*ON, "--yes")

    assert code == 0, failed


def test_a_queue_that_cannot_be_looked_at_keeps_bundles_off(hot: HotShop) -> None:
    """Unknown is not enough."""
    hot.shop.denied.add("GetQueueAttributes")

    code, _, failed = hot.sluice(*ON, "--yes")

    assert code != 0
    assert "you may not" in failed
    assert hot.sluice("outbox", "bundles", "show")[1].startswith("1 events a message")


@pytest.mark.parametrize("bundle_events_max", [1, 5])
def test_a_worker_of_bundles_that_cannot_find_its_dlq_does_not_start(hot: HotShop, bundle_events_max: int) -> None:
    """It would send dead events there. SQS names a queue that is not there, or that the role may not find."""
    declared = replace(DECLARED, topics=(Topic(bundle_events_max=bundle_events_max),))
    hot.declare(declared)
    hot.deploy(declared)
    dead_letter_queue = naming.dead_letter_queue_name(DECLARED, _BILLING)
    hot.shop.sqs.delete_queue(QueueUrl=hot.shop.url(dead_letter_queue))

    where = ("--consumer", "billing", "--handlers", "examples.services.billing")
    code, _, failed = hot.sluice("worker", *where, "--until-idle", "0")

    assert code == (0 if bundle_events_max == 1 else 3), failed
    assert ("workers send dead events of bundles to its DLQ" in failed) == (bundle_events_max > 1)


def test_events_that_wait_in_one_message_are_not_lost(hot: HotShop) -> None:
    """Two messages hold the four events that have not come."""
    assert hot.sluice(*ON, "--yes")[0] == 0
    hot.shop.commit("a", 1)
    hot.sluice("relay", "--until-empty")
    hot.shop.work()
    hot.shop.age()
    hot.shop.commit("a", 2, 3, 4, 5)
    hot.sluice("relay", "--until-empty")

    young = _verify(hot)
    hot.shop.age()
    old = _verify(hot)

    assert young["verdict"] == "VALID"
    assert young["states"] == {"handled": 1, "has not come": 4}
    assert old["verdict"] == "UNKNOWN"
    assert old["shortage"] is None


def test_a_lost_message_of_events_is_a_shortage_of_one_message(hot: HotShop) -> None:
    """Of two messages with four events the queue holds one."""
    assert hot.sluice(*ON, "--yes")[0] == 0
    hot.shop.commit("a", 1)
    hot.sluice("relay", "--until-empty")
    hot.shop.work()
    hot.shop.commit("a", 2, 3, 4, 5)
    hot.sluice("relay", "--until-empty")
    url = hot.shop.url(naming.queue_name(DECLARED, _BILLING))
    message = hot.shop.sqs.receive_message(QueueUrl=url)["Messages"][0]
    hot.shop.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    young = _verify(hot)
    hot.shop.age()
    old = _verify(hot)

    assert young["verdict"] == "UNKNOWN"
    assert old["verdict"] == "INVALID"
    assert old["shortage"]["lost"] == 1
    assert old["shortage"]["missing"] == 2


def test_a_quarantined_bundle_shows_its_events_and_what_an_act_does(hot: HotShop) -> None:
    """It may have arrived, so it is tried again as a whole, and without its first event as other messages."""
    hot.shop.commit("a", 1, 2, 3)
    hot.shop.execute("UPDATE sluice_outbox SET status = 'quarantined' WHERE group_seq = 1")
    hot.shop.execute("INSERT INTO sluice_outbox_bundle SELECT id, 3 FROM sluice_outbox WHERE group_seq = 1")

    (_, again, _), (_, skipped, _) = (
        hot.sluice("outbox", act, "a", "1", "--reason", "mended") for act in ("unquarantine", "skip")
    )
    counts = [row["event_count"] for row in json.loads(hot.sluice("outbox", "ls", "--json")[1])["messages"]]

    assert counts == [3, 1, 1]
    assert " 1-3 " in hot.sluice("outbox", "ls")[1]
    assert "; numbers 1 to 3 are one message, and go again as a whole; add" in again
    assert "; numbers 1 to 3 were one message: the others go again in other messages; add" in skipped


def _verify(hot: HotShop) -> Any:
    """Return the row of billing in the verdict of `outbox verify`."""
    printed = hot.sluice("outbox", "verify", "--in-flight", "10m", "--json")[1]
    return json.loads(printed)["consumers"][0]


def _subscribe(hot: HotShop, name: str) -> None:
    """Subscribe a new queue, which belongs to no declared consumer, to the topic."""
    sqs, sns = hot.shop.sqs, hot.shop.sns
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    topic_arn = naming.topic_arn(DECLARED, "000000000000")
    sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=arn)
