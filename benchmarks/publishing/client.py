"""Measure the processor time of a call to AWS: the light client beside boto3.

One thread calls a server on the loopback that answers at once. Only the time of this process is counted.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import sink
from benchmarks.publishing.certificates import certificate
from benchmarks.report import ResultTable, Section, table
from benchmarks.rounds import Measurement, interleave
from sluice import sdk
from sluice.aws.client import BOTO3, LIGHT, LightSns, LightSqs, open_client

_CALLS = {"boto3": 100, "light": 600}
_WARM_UP_CALLS = 20
_TOPIC = "arn:aws:sns:us-east-1:000000000000:t.fifo"
_QUEUE = "http://localhost/000000000000/q.fifo"
_BODY = json.dumps({"data": {"payload": "x" * 920, "name": "ä", "numbers": [1, 2, 3]}, "group": "g", "seq": 1})


def measure(_: Mapping[str, str], rounds: int) -> Section:
    """Measure processor microseconds a call, plain and over TLS."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        pair = certificate(Path(folder))
        with _trusting(pair[0]), sink.running(0) as plain, sink.running(0, pair) as tls:
            cells: dict[tuple[str, str, str], Callable[[], float]] = {}
            for wire, url in (("plain", plain), ("TLS", tls)):
                for who, count in _CALLS.items():
                    for name, call in _calls_by_name(url, is_light=who == "light").items():
                        cells[name, wire, who] = partial(_microseconds, call, count)
            found = interleave(cells, rounds)
    return Section(tables={"client": _table(found)}, plots={})


@contextmanager
def _trusting(bundle: Path) -> Iterator[None]:
    """Let botocore and the light client trust the certificate for the length of the block."""
    before = os.environ.get("AWS_CA_BUNDLE")
    os.environ["AWS_CA_BUNDLE"] = str(bundle)
    try:
        yield
    finally:
        del os.environ["AWS_CA_BUNDLE"]
        os.environ |= {} if before is None else {"AWS_CA_BUNDLE": before}


def _calls_by_name(url: str, *, is_light: bool) -> dict[str, Callable[[], Any]]:
    """Return calls that publish, send, receive and delete, by name; they can be repeated as often as wanted."""
    sns, sqs = (
        open_client(
            service, endpoint_url=url, region="us-east-1", config=sdk.config(), kind=LIGHT if is_light else BOTO3
        )
        for service in ("sns", "sqs")
    )
    assert isinstance(sns, LightSns) == isinstance(sqs, LightSqs) == is_light, (
        "the environment variables of this shell force boto3"
    )
    received = sqs.receive_message(QueueUrl=_QUEUE, MaxNumberOfMessages=10)["Messages"]
    handles = [
        {"Id": str(position), "ReceiptHandle": message["ReceiptHandle"]} for position, message in enumerate(received)
    ]
    return {
        "PublishBatch, 10 of 1 KiB": partial(
            sns.publish_batch, TopicArn=_TOPIC, PublishBatchRequestEntries=_entries("Message")
        ),
        "SendMessageBatch, 10 of 1 KiB": partial(
            sqs.send_message_batch, QueueUrl=_QUEUE, Entries=_entries("MessageBody")
        ),
        f"ReceiveMessage, {len(received)}": partial(
            sqs.receive_message,
            QueueUrl=_QUEUE,
            MaxNumberOfMessages=10,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        ),
        "DeleteMessage": partial(sqs.delete_message, QueueUrl=_QUEUE, ReceiptHandle=handles[0]["ReceiptHandle"]),
        f"DeleteMessageBatch, {len(handles)}": partial(sqs.delete_message_batch, QueueUrl=_QUEUE, Entries=handles),
    }


def _entries(body: str) -> list[dict[str, Any]]:
    return [
        {
            "Id": str(position),
            body: _BODY,
            "MessageGroupId": f"g{position}",
            "MessageDeduplicationId": f"d{position}",
            "MessageAttributes": {"type": {"DataType": "String", "StringValue": "order.placed"}},
        }
        for position in range(10)
    ]


def _microseconds(call: Callable[[], Any], count: int) -> float:
    for _ in range(_WARM_UP_CALLS):
        call()
    began = time.process_time()
    for _ in range(count):
        call()
    return 1e6 * (time.process_time() - began) / count


def _table(found: Mapping[tuple[str, str, str], Measurement]) -> ResultTable:
    rows = []
    for (name, wire, who), light in found.items():
        if who == "light":
            plain = found[name, wire, "boto3"]
            costs = (f"{plain.median:,.0f}", plain.noise, f"{light.median:,.0f}", light.noise)
            rows.append((name, wire, *costs, plain.over(light).ratio))
    head = ("call", "wire", "boto3, µs", "noise", "light, µs", "noise", "boto3 to light")
    return table(head, sorted(rows), text_columns=2)
