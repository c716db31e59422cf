"""The topic of the benchmarks answers as SNS does, their queue as SQS does."""

import io
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from benchmarks import sink, source
from sluice.aws.client import BOTO3
from sluice.messaging.envelope import decode
from sluice.messaging.outbox.store import Head, PublishSuccess
from sluice.messaging.relay import publisher
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.queue import Queue


def _head(group: str) -> Head:
    return Head(
        id=1,
        group_id=group,
        group_seq=1,
        event_id="e1",
        body="a & b = <ü>",
        attributes={"type": "a.b"},
        deduplication_id="e1",
        status="pending",
        attempts=0,
        not_before_us=0,
        created_at_us=0,
    )


class _Raw(io.BytesIO):
    """The body of an answer, as botocore reads it."""

    def stream(self) -> list[bytes]:
        return [self.read()]


def _answer_from_sink(request: Any, **_: object) -> AWSResponse:
    return AWSResponse(request.url, 200, {}, _Raw(sink.answer(request.body.encode())))


def test_benchmark_topic_accepts_every_entry_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay's publisher sends a batch in the query protocol; the answer has a message id for each entry."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    sns = publisher.client("http://127.0.0.1:9", "eu-central-1", kind=BOTO3)
    sns.meta.events.register("before-send.sns.PublishBatch", _answer_from_sink)
    publish = Publisher(sns, "arn:aws:sns:eu-central-1:000000000000:t.fifo")

    outcomes = publish.publish([_head("g1"), _head("g2"), _head("g3")])

    assert [type(outcome) for outcome in outcomes] == [PublishSuccess] * 3
    assert (
        len({(sent.sns_message_id, sent.sns_sequence_number) for sent in outcomes if isinstance(sent, PublishSuccess)})
        == 3
    )


def _answer_from_source(request: Any, event_name: str, **_: object) -> AWSResponse:
    answer = source.answer(event_name.rpartition(".")[2], request.body)
    assert answer is not None
    return AWSResponse(request.url, 200, {}, _Raw(answer))


def test_benchmark_queue_delivers_messages_of_its_groups_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is an envelope of its group, received for the first time; the next message is of the next group."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    sqs = queue.client("http://127.0.0.1:9", "eu-central-1", connections=1, kind=BOTO3)
    sqs.meta.events.register("before-send.sqs", _answer_from_source)
    endless = Queue(sqs, "http://127.0.0.1:9/0/q.fifo")

    received = [endless.receive(attempt_id=None, wait_seconds=1) for _ in range(3)]
    endless.delete("handle-0")

    messages = [item for item in received if item is not None]
    events = [decode(message.body).event for message in messages]
    assert [event.group for event in events] == [message.message_group_id for message in messages]
    assert len({event.group for event in events}) == 3
    assert [message.receive_count for message in messages] == [1, 1, 1]
    assert [dict(message.attributes) for message in messages] == [{"type": "order.placed"}] * 3
