"""The benchmarks measure what they say: their topic answers as SNS does."""

import io
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from benchmarks import sink
from messaging import publisher
from messaging.publisher import Publisher
from messaging.store import Head, Sent


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


def _answered(request: Any, **_: object) -> AWSResponse:
    return AWSResponse(request.url, 200, {}, _Raw(sink.answer(request.body.encode())))


def test_the_benchmarks_topic_takes_every_entry_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the relay's own publisher sends is answered, in the query protocol, with a message id for each entry."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    sns = publisher.client("http://127.0.0.1:9", "eu-central-1")
    sns.meta.events.register("before-send.sns.PublishBatch", _answered)
    publish = Publisher(sns, "arn:aws:sns:eu-central-1:000000000000:t.fifo")

    outcomes = publish.publish([_head("g1"), _head("g2"), _head("g3")])

    assert [type(outcome) for outcome in outcomes] == [Sent] * 3
    assert len({(one.sns_message_id, one.sns_sequence_number) for one in outcomes if isinstance(one, Sent)}) == 3
