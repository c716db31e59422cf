"""Size of a message on its way through a topic into a queue, and the parts that count towards it."""

import json

import pytest

from contract_tests.resources import Resources, bodies, refusal, require_accepted

_KIB = 1024
_MEBIBYTE = 1024 * _KIB


@pytest.mark.promise("SNS-99")
def test_message_attributes_count_towards_the_size_of_a_publish(resources: Resources) -> None:
    topic = resources.fifo_topic()
    thirty_bytes = {"kind": {"DataType": "String", "StringValue": "x" * 20}}

    fits = require_accepted(topic.publish, "a" * (256 * _KIB - 30), id="m1", MessageAttributes=thirty_bytes)
    too_long = refusal(topic.publish, "a" * (256 * _KIB - 29), id="m2", MessageAttributes=thirty_bytes)

    assert fits["MessageId"]
    assert too_long[:2] == ("InvalidParameter", 400)


@pytest.mark.promise("SNS-100")
def test_a_topic_reports_its_message_size_only_where_one_was_set(resources: Resources) -> None:
    unset, small = resources.fifo_topic(), resources.fifo_topic(MaximumMessageSize="2048")

    assert "MaximumMessageSize" not in unset.attributes()
    assert small.attributes().get("MaximumMessageSize") == "2048"


@pytest.mark.promise("SNS-101")
def test_a_mebibyte_passes_from_topic_to_queue(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue, MaximumMessageSize=str(_MEBIBYTE))
    body = "0123456789abcdef" * (_MEBIBYTE // 16)

    require_accepted(topic.publish, body, id="m1")
    (received,) = queue.drain(1)

    assert len(received["Body"]) == _MEBIBYTE
    assert received["Body"] == body


@pytest.mark.promise("SNS-102")
def test_the_envelope_counts_towards_the_size_of_the_copy(resources: Resources) -> None:
    raw = resources.fifo_queue(MaximumMessageSize="1024")
    wrapped = resources.fifo_queue(MaximumMessageSize="1024")
    undelivered = resources.fifo_queue(hint="dlq")
    topic = resources.fifo_topic(raw)
    topic.subscribe(wrapped, raw=False, RedrivePolicy=json.dumps({"deadLetterTargetArn": undelivered.arn}))
    topic.allow(undelivered)
    body = "a" * 900

    topic.publish(body, id="m1")

    assert bodies(raw.drain(1)) == [body]
    (dead,) = undelivered.drain(1)
    assert json.loads(dead["Body"])["Message"] == body
    assert wrapped.receive(wait=1) == []
