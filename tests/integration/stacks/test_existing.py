"""Existing topics, queues and keys, our relay for their topic, another account, a standard queue, on a real LocalStack.

LocalStack enforces no policy and encrypts nothing; that messages arrive shows the subscriptions, and
tests/unit/constructs the policies. It takes ECS's services, in their cluster, and the database for names only.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from emulator import localstack
from sluice.clock import eventually
from sluice.declaration import loading, naming
from sluice.messaging import Event, Outbox
from tests.integration.stacks import shared_app
from tests.integration.stacks.shared_app import ACCOUNT, INVOICES, KEY_IDS, QUEUE_KEY, SHARED, SUBSCRIBER, TOPIC_KEY
from tests.support.project import PROJECT

pytestmark = pytest.mark.xdist_group("a localstack of its own")  # one at a time
BILLING, SEARCH, LEDGER, WAREHOUSE = SHARED.consumers
FIFO = {"FifoQueue": "true"}
VOLATILE = ("ApproximateNumberOfMessages", "LastModifiedTimestamp")


def _run(*command: str, **variables: str) -> None:
    ended = subprocess.run(
        command,
        cwd=PROJECT,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def _cdk(*arguments: str, **variables: str) -> None:
    _run("cdk", *arguments, "--no-notices", "--progress", "events", **variables)


def _change(action: str, *more: str, **variables: str) -> None:
    app = f"{sys.executable} -m tests.integration.stacks.shared_app"
    _cdk(action, "--app", app, "shared/*", *more, **variables)


def _attributes(name: str) -> dict[str, str]:
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    found: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return {key: value for key, value in found.items() if key not in VOLATILE and not key.startswith("Approximate")}


def _theirs() -> dict[str, Any]:
    """Return what somebody else made, as it is now: queue pair, keys, the topic, and who is subscribed there."""
    kms = boto3.client("kms")
    topic = SHARED.topics[2]
    arn = naming.topic_arn(SHARED, ACCOUNT, topic.name)
    subscribed = boto3.client("sns").list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
    return {
        "queues": {name: _attributes(name) for name in ("invoices.fifo", "invoices-dead.fifo")},
        "keys": [kms.get_key_policy(KeyId=id_, PolicyName="default")["Policy"] for id_ in KEY_IDS],
        "key states": [kms.describe_key(KeyId=id_)["KeyMetadata"]["KeyState"] for id_ in KEY_IDS],
        "topic": json.loads(boto3.client("sns").get_topic_attributes(TopicArn=arn)["Attributes"]["Policy"]),
        "subscribed": sorted(each["Endpoint"] for each in subscribed if each["Endpoint"] != _arn(WAREHOUSE)),
    }


def _arn(consumer: Any) -> str:
    return naming.queue_arn(SHARED, naming.queue_name(SHARED, consumer), ACCOUNT)


def _make_theirs() -> str:
    """Make the things of somebody else, with a subscriber of their own; return its queue's name."""
    sqs, sns = boto3.client("sqs"), boto3.client("sns")
    for id_ in KEY_IDS:
        boto3.client("kms").create_key(Tags=[{"TagKey": "_custom_id_", "TagValue": id_}])  # LocalStack's own tag
    sqs.create_queue(QueueName="invoices-dead.fifo", Attributes=FIFO)
    redrive = json.dumps({"deadLetterTargetArn": INVOICES.dead_letter_queue_arn, "maxReceiveCount": 5})
    attributes = FIFO | {"RedrivePolicy": redrive, "VisibilityTimeout": "60"}
    sqs.create_queue(QueueName="invoices.fifo", Attributes=attributes)
    sqs.create_queue(QueueName="audit.fifo", Attributes=FIFO)
    topic = sns.create_topic(Name="stock.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    endpoint = naming.queue_arn(SHARED, "audit.fifo", ACCOUNT)
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=endpoint, Attributes={"RawMessageDelivery": "true"})
    return "audit.fifo"


def _publish(topic: str, *bodies: str) -> None:
    arn = naming.topic_arn(SHARED, ACCOUNT, topic)
    for body in bodies:
        boto3.client("sns").publish(
            TopicArn=arn, Message=body, MessageGroupId="g1", MessageDeduplicationId=f"{topic}-{body}"
        )


def _relay(folder: Path, number: int) -> None:
    """Commit an event to the outbox for their topic, and run our relay until it is published."""
    dsn = f"sqlite:///{folder / 'outbox.db'}"
    variables = {loading.VARIABLE: str(shared_app.__file__), "SLUICE_ENV": "shared", "SLUICE_DSN": dsn}
    _run("sluice", "schema", "apply", "outbox", **variables)
    engine = create_engine(dsn)
    with Session(engine) as session:
        outbox = Outbox(naming.topic_name(SHARED, "stock"))
        outbox.add(session, Event(type="stock.counted", group="g1", data={"number": number}))
        session.commit()
    engine.dispose()
    _run("sluice", "relay", "--topic", "stock", "--until-empty", **variables)


def _keys_in_use() -> dict[str, str | None]:
    """Return the key of each topic and queue that the environment made."""
    sns = boto3.client("sns")
    topics = [topic["TopicArn"] for topic in sns.list_topics()["Topics"] if ":sluice-shared-" in topic["TopicArn"]]
    queues = [url.rpartition("/")[2] for url in boto3.client("sqs").list_queues(QueueNamePrefix="sluice-")["QueueUrls"]]
    return {
        **{arn: sns.get_topic_attributes(TopicArn=arn)["Attributes"].get("KmsMasterKeyId") for arn in topics},
        **{name: _attributes(name).get("KmsMasterKeyId") for name in queues},
    }


def _drain(name: str, count: int, sqs: Any = None) -> list[str]:
    """Return the bodies of so many messages, in the order in which they came, and delete them."""
    sqs = boto3.client("sqs") if sqs is None else sqs
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    bodies: list[str] = []

    def take() -> bool:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", []):
            bodies.append(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return len(bodies) >= count

    eventually(take, timeout_seconds=30, describe=f"{count} messages in {name}")
    return bodies


def _subscriber(service: str) -> Any:
    """Return a client of the other account: LocalStack takes an access key of twelve digits for an account."""
    return boto3.client(service, aws_access_key_id=SUBSCRIBER, aws_secret_access_key="secret")  # noqa: S106


def _subscribe_from_another_account() -> Any:
    sqs = _subscriber("sqs")
    sqs.create_queue(QueueName="theirs.fifo", Attributes=FIFO)
    arn = f"arn:aws:sqs:us-east-1:{SUBSCRIBER}:theirs.fifo"
    topic = naming.topic_arn(SHARED, ACCOUNT, "orders")
    raw = {"RawMessageDelivery": "true"}
    _subscriber("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes=raw)
    return sqs


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_existing_resources_are_used_and_left_alone(empty: localstack.Emulator, tmp_path: Path) -> None:
    """Every queue gets the messages of its topic and no others; update and destruction change nothing of theirs.

    All stacks are deployed. Topics and queues of our own have their keys; our relay publishes to their topic.
    """
    audit = _make_theirs()
    before = _theirs()
    _cdk("bootstrap", f"aws://{ACCOUNT}/us-east-1")

    _change("deploy", "--require-approval", "never")

    others = _subscribe_from_another_account()
    _publish("orders", "o1", "o2", "o3")
    _publish("payments", "p1", "p2")
    _publish("stock", "s1")
    assert _drain("invoices.fifo", 3) == ["o1", "o2", "o3"]
    assert sorted(_drain("sluice-shared-search", 3)) == ["o1", "o2", "o3"]
    assert _drain("theirs.fifo", 3, others) == ["o1", "o2", "o3"]
    assert _drain("sluice-shared-ledger.fifo", 2) == ["p1", "p2"]
    assert _drain("sluice-shared-warehouse.fifo", 1) == ["s1"]
    assert _drain(audit, 1) == ["s1"]
    _relay(tmp_path, 7)
    for name in ("sluice-shared-warehouse.fifo", audit):
        (relayed,) = _drain(name, 1)
        assert '"number":7' in relayed.replace(" ", "")
    encrypted = _keys_in_use()
    assert (
        len(encrypted) == 3 + 10
    )  # operators' topic; queue and two DLQs of three, the subscription's DLQ of the other
    assert {name: TOPIC_KEY if name.startswith("arn:") else QUEUE_KEY for name in encrypted} == encrypted
    assert _theirs() == before

    _change("deploy", "--require-approval", "never", EDITED="1")

    _publish("orders", "o4")
    _publish("stock", "s2")
    assert _drain("invoices.fifo", 1) == ["o4"]
    assert _drain(audit, 1) == ["s2"]
    assert _theirs() == before

    _change("destroy", "--force")

    assert _theirs() == before
    urls = boto3.client("sqs").list_queues()["QueueUrls"]
    assert sorted(url.rpartition("/")[2] for url in urls) == ["audit.fifo", "invoices-dead.fifo", "invoices.fifo"]
