"""Sends that a FIFO queue or topic accepts or refuses, and the words of its refusals."""

import string

import pytest
from botocore.exceptions import ReadTimeoutError

from contract_tests.resources import (
    Refusal,
    Resources,
    bodies,
    invalid_parameter,
    invalid_parameter_value,
    refusal,
    require_accepted,
)

_BAD_IDS = ("", "a" * 129, "a b")
_TRACE = {
    "AWSTraceHeader": {
        "DataType": "String",
        "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
    }
}


def _bad_id(name: str, value: str) -> Refusal:
    """Return SQS's refusal of a group or deduplication id."""
    return invalid_parameter_value(
        f"Value {value} for parameter {name} is invalid. "
        f"Reason: {name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
    )


@pytest.mark.promise("SND-01")
def test_a_send_without_deduplication_id_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    assert refusal(queue.send, "m1", group="g1") == invalid_parameter_value(
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )


@pytest.mark.promise("SND-02")
def test_a_send_without_message_group_id_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = refusal(queue.send, "m1", group=None, id="m1")

    assert refused == ("MissingParameter", 400, "The request must contain the parameter MessageGroupId.")


@pytest.mark.promise("SNS-09")
def test_a_publish_without_message_group_id_is_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()

    assert refusal(topic.publish, "m1", group=None, id="m1") == invalid_parameter(
        "The MessageGroupId parameter is required for FIFO topics"
    )


@pytest.mark.promise("SND-03")
def test_a_deduplication_id_of_other_characters_or_length_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = [refusal(queue.send, "m1", id=bad) for bad in _BAD_IDS]

    assert refused == [_bad_id("MessageDeduplicationId", bad) for bad in _BAD_IDS]


@pytest.mark.promise("SND-04")
def test_a_deduplication_id_of_128_characters_is_accepted_and_kept(resources: Resources) -> None:
    queue = resources.fifo_queue()
    longest = (string.ascii_letters + string.digits + string.punctuation).ljust(128, "x")
    queue.send("m1", id=longest)

    message = queue.await_message()

    assert message["Attributes"]["MessageDeduplicationId"] == longest


@pytest.mark.promise("SND-05")
def test_a_message_group_id_of_other_characters_or_length_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = [refusal(queue.send, "m1", group=bad, id="m1") for bad in _BAD_IDS]

    assert refused == [_bad_id("MessageGroupId", bad) for bad in _BAD_IDS]


@pytest.mark.promise("SND-06")
def test_a_message_cannot_have_a_delay_of_its_own(resources: Resources) -> None:
    queue, delayed = resources.fifo_queue(), resources.fifo_queue(DelaySeconds="5")

    refused = [
        refusal(queue.send, "m1", id="m1", DelaySeconds=2),
        refusal(delayed.send, "m1", id="m1", DelaySeconds=2),
    ]

    expected = invalid_parameter_value(
        "Value 2 for parameter DelaySeconds is invalid. "
        "Reason: The request include parameter that is not valid for this queue type."
    )
    assert refused == [expected, expected]


@pytest.mark.promise("SND-09")
def test_a_changed_delay_holds_for_messages_already_sent(resources: Resources) -> None:
    queue = resources.fifo_queue(DelaySeconds="900")
    queue.send_each("m1")
    delayed = queue.receive(wait=1)

    queue.set_attributes(DelaySeconds="0")

    assert delayed == []
    assert queue.await_message()["Body"] == "m1"


@pytest.mark.promise("SND-11")
def test_a_message_keeps_its_identity_over_receives(resources: Resources) -> None:
    queue = resources.fifo_queue()
    sent = queue.send("m1", group="g1", id="the-id")

    first, second = queue.await_message(visibility=0), queue.await_message(visibility=0)

    kept = ("MessageDeduplicationId", "MessageGroupId", "SenderId", "SentTimestamp", "SequenceNumber")
    assert [first["MessageId"], second["MessageId"]] == [sent["MessageId"], sent["MessageId"]]
    assert first["Attributes"]["SequenceNumber"] == sent["SequenceNumber"]
    assert {name: second["Attributes"][name] for name in kept} == {name: first["Attributes"][name] for name in kept}
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"


@pytest.mark.promise("SND-12")
def test_an_empty_body_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = refusal(queue.send, "", id="m1")

    assert refused == ("MissingParameter", 400, "The request must contain the parameter MessageBody.")


@pytest.mark.promise("SND-14")
def test_a_body_longer_than_the_queue_allows_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue(MaximumMessageSize="1024")

    refused = refusal(queue.send, "x" * 1025, id="m1")
    queue.send("x" * 1024, id="m2")

    assert refused == invalid_parameter_value(
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    )
    assert bodies(queue.drain(1)) == ["x" * 1024]


@pytest.mark.promise("SND-32")
def test_message_attributes_count_towards_the_size(resources: Resources) -> None:
    queue = resources.fifo_queue(MaximumMessageSize="1024")
    thirty_bytes = {"kind": {"DataType": "String", "StringValue": "x" * 20}}

    require_accepted(queue.send, "a" * 994, id="m1", MessageAttributes=thirty_bytes)
    too_long = refusal(queue.send, "a" * 995, id="m2", MessageAttributes=thirty_bytes)

    assert too_long[1] == 400  # code and text are recorded for a body alone [SND-14]
    assert bodies(queue.drain(1)) == ["a" * 994]


@pytest.mark.promise("SND-33")
def test_the_trace_header_does_not_count_towards_the_size(resources: Resources) -> None:
    queue = resources.fifo_queue(MaximumMessageSize="1024")

    require_accepted(queue.send, "a" * 1024, id="m1", MessageSystemAttributes=_TRACE)
    (received,) = queue.drain(1)

    assert received["Body"] == "a" * 1024
    assert received["Attributes"].get("AWSTraceHeader") == _TRACE["AWSTraceHeader"]["StringValue"]


@pytest.mark.promise("SND-34")
def test_a_delay_of_none_in_a_send_means_the_queues(resources: Resources) -> None:
    queue = resources.fifo_queue(DelaySeconds="2")

    require_accepted(queue.send, "m1", id="m1", DelaySeconds=0)

    assert queue.receive(wait=1) == []
    assert bodies(queue.drain(1)) == ["m1"]


@pytest.mark.promise("SND-15")
def test_a_body_with_a_control_character_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()
    allowed = " \t\n\r \ufffd\ud7ff\ue000\U00010000\U0010ffff\n "  # white space at its ends is a part of it

    refused = [
        refusal(queue.send, "\x08", id="m1"),
        refusal(queue.send, "m\x1f", id="m2"),
        refusal(queue.send, "\uffff", id="m3"),
    ]
    queue.send(allowed, id="m4")

    assert [answer[:2] for answer in refused] == [("InvalidMessageContents", 400)] * 3
    assert queue.await_message()["Body"] == allowed


@pytest.mark.promise("SND-16")
def test_a_message_attribute_of_type_string_needs_a_value(resources: Resources) -> None:
    queue = resources.fifo_queue()
    attributes = {"ErrorDetails": {"DataType": "String", "StringValue": ""}}

    assert refusal(queue.send, "m1", id="m1", MessageAttributes=attributes) == invalid_parameter_value(
        "Message (user) attribute 'ErrorDetails' must contain a non-empty value of type 'String'."
    )


@pytest.mark.promise("SND-17")
def test_a_message_has_at_most_ten_attributes(resources: Resources) -> None:
    queue = resources.fifo_queue()
    eleven = {f"a{number}": {"DataType": "Number", "StringValue": "1"} for number in range(11)}
    ten = {name: value for name, value in eleven.items() if name != "a10"}

    refused = refusal(queue.send, "m1", id="m1", MessageAttributes=eleven)
    queue.send("m2", id="m2", MessageAttributes=ten)
    message = queue.await_message()

    assert refused[1] == 400
    assert message.get("MessageAttributes") == ten


@pytest.mark.promise("SND-18")
def test_the_one_system_attribute_a_sender_may_set_is_the_trace(resources: Resources) -> None:
    queue = resources.fifo_queue()
    other = {"SenderId": {"DataType": "String", "StringValue": "me"}}

    refused = refusal(queue.send, "m1", id="m1", MessageSystemAttributes=other)
    queue.send("m2", id="m2", MessageSystemAttributes=_TRACE)
    message = queue.await_message()

    assert refused[1:] == (400, "Message system attribute name 'SenderId' is invalid.")
    assert message["Attributes"].get("AWSTraceHeader") == _TRACE["AWSTraceHeader"]["StringValue"]


@pytest.mark.promise("SLU-34")
def test_the_trace_header_of_a_send_arrives(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send("m1", id="m1", MessageSystemAttributes=_TRACE)

    message = queue.await_message()

    assert message["Attributes"].get("AWSTraceHeader") == _TRACE["AWSTraceHeader"]["StringValue"]
    assert "MessageAttributes" not in message


@pytest.mark.promise("SLU-35")
def test_send_and_receive_state_the_checksums_of_what_was_sent(resources: Resources) -> None:
    """The MD5 sums were computed without Sluice, by AWS's documented rule."""
    queue = resources.fifo_queue()
    attributes = {
        "Hello.a": {"DataType": "String", "StringValue": "1"},
        "Hello.b": {"DataType": "Number", "StringValue": "2"},
    }

    sent = queue.send("hello", id="m1", MessageAttributes=attributes)
    received = queue.await_message()

    checksums = ("5d41402abc4b2a76b9719d911017c592", "52d4b268b31bf7ffcd66c7bd860fb6df")
    assert (sent["MD5OfMessageBody"], sent["MD5OfMessageAttributes"]) == checksums
    assert (received["MD5OfBody"], received["MD5OfMessageAttributes"]) == checksums
    assert received["Body"] == "hello"
    assert received.get("MessageAttributes") == attributes


@pytest.mark.promise("SND-21")
def test_a_send_whose_answer_is_lost_can_be_repeated(resources: Resources) -> None:
    queue = resources.fifo_queue()

    def lose(**_: object) -> None:
        raise ReadTimeoutError(endpoint_url=queue.url)

    queue.sqs.meta.events.register_last("after-call.sqs.SendMessage", lose)
    with pytest.raises(ReadTimeoutError):
        queue.send("m1", id="m1")
    queue.sqs.meta.events.unregister("after-call.sqs.SendMessage", lose)
    queue.send("m1", id="m1")

    assert bodies(queue.drain(1)) == ["m1"]


@pytest.mark.promise("SLU-40")
def test_message_attributes_of_every_type_arrive_as_they_were_sent(resources: Resources) -> None:
    queue = resources.fifo_queue()
    attributes = {
        "text": {"DataType": "String", "StringValue": "\u00e9\U0001f600"},
        "number": {"DataType": "Number", "StringValue": "-1.50"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        "labelled": {"DataType": "Number.int", "StringValue": "7"},
    }
    queue.send("m1", id="m1", MessageAttributes=attributes)

    message = queue.await_message()

    assert message.get("MessageAttributes") == attributes


@pytest.mark.promise("SND-36")
def test_the_name_of_a_message_attribute_is_checked(resources: Resources) -> None:
    """AWS documents up to 256 characters, and emulators allow 255: a name of 256 characters is not tried."""
    queue = resources.fifo_queue()
    text = {"DataType": "String", "StringValue": "x"}
    names = ["a^b", ".a", "a.", "a..b", "a" * 257]

    refused = {name: refusal(queue.send, "m1", id="m1", MessageAttributes={name: text})[1] for name in names}
    longest = require_accepted(queue.send, "m1", id="m1", MessageAttributes={f"A-b_1.{'c' * 249}": text})

    assert refused == dict.fromkeys(names, 400)  # codes and texts are not recorded
    assert longest["MessageId"]


@pytest.mark.promise("SLU-41")
def test_names_of_message_attributes_that_aws_reserves_are_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()
    value = {"DataType": "String", "StringValue": "1"}

    refused = [
        refusal(queue.send, "m1", id="m1", MessageAttributes={"AWS.trace": value}),
        refusal(queue.send, "m1", id="m1", MessageAttributes={"amazon.trace": value}),
    ]

    assert [status for _, status, _ in refused] == [400, 400]  # codes and texts are not recorded


@pytest.mark.promise("SND-39")
def test_an_id_has_no_control_character_and_is_ascii(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = [
        refusal(queue.send, "m1", group="g\n1", id="m1"),
        refusal(queue.send, "m1", group="g\x7f", id="m1"),
        refusal(queue.send, "m1", group="gr\u00fcn", id="m1"),
        refusal(queue.send, "m1", id="m\t1"),
        refusal(queue.send, "m1", id="m\x011"),
        refusal(queue.send, "m1", id="m\u00fc1"),
    ]

    assert [status for _, status, _ in refused] == [400] * 6  # codes and texts are not recorded
