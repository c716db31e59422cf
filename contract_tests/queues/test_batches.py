"""A batch is several requests in one call: what fails alone, and what fails together."""

from collections.abc import Sequence

import pytest
from botocore.exceptions import ClientError

from contract_tests.resources import (
    Message,
    QueueUnderTest,
    Resources,
    bodies,
    entry,
    invalid_parameter_value,
    refusal,
    require_accepted,
)

_BAD_ENTRY_ID = (
    "AWS.SimpleQueueService.InvalidBatchEntryId",
    400,
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
    "It can be at most 80 letters long.",
)
_MD5_OF_M2 = "aaf2f89992379705dac844c0a2a1d45f"
_TOO_MANY = (
    "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
    400,
    "Maximum number of entries per request are 10. You have sent 20.",
)


@pytest.mark.promise("BAT-01")
def test_a_batch_of_more_than_ten_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()
    names = [f"m{number}" for number in range(20)]
    deletes = [{"Id": name, "ReceiptHandle": "any"} for name in names]

    refused = [
        refusal(queue.send_batch, *[entry(name) for name in names]),
        refusal(queue.delete_batch, *deletes),
        refusal(queue.change_visibility_batch, *deletes, seconds=1),
    ]

    assert refused == [_TOO_MANY, _TOO_MANY, _TOO_MANY]


@pytest.mark.promise("BAT-02")
def test_an_entry_id_of_other_characters_or_length_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = [
        refusal(queue.send_batch, entry("m1", Id="invalid:id")),
        refusal(queue.send_batch, entry("m1", Id="")),
        refusal(queue.send_batch, entry("m1", Id="x" * 81)),
        refusal(queue.delete_batch, {"Id": "invalid:id", "ReceiptHandle": "any"}),
    ]
    accepted = queue.send_batch(entry("m1", Id="a-Z_0" + "x" * 75))

    assert refused == [_BAD_ENTRY_ID, _BAD_ENTRY_ID, _BAD_ENTRY_ID, _BAD_ENTRY_ID]
    assert [success["Id"] for success in accepted["Successful"]] == ["a-Z_0" + "x" * 75]


@pytest.mark.promise("BAT-03")
def test_an_empty_batch_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    sends = refusal(queue.send_batch)
    deletes = refusal(queue.delete_batch)

    assert sends == (
        "AWS.SimpleQueueService.EmptyBatchRequest",
        400,
        "There should be at least one SendMessageBatchRequestEntry in the request.",
    )
    assert deletes == (
        "AWS.SimpleQueueService.EmptyBatchRequest",
        400,
        "There should be at least one DeleteMessageBatchRequestEntry in the request.",
    )


@pytest.mark.promise("BAT-04")
def test_a_batch_with_an_entry_id_twice_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = refusal(queue.send_batch, entry("m1", Id="id_1"), entry("m2", Id="id_2"), entry("m3", Id="id_2"))

    assert refused == ("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400, "Id id_2 repeated.")


@pytest.mark.promise("BAT-05")
def test_one_entry_without_deduplication_id_fails_the_whole_batch(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = refusal(queue.send_batch, entry("good"), entry("bad", MessageDeduplicationId=None))
    queue.send("after", id="after")

    assert refused == invalid_parameter_value(
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )
    assert bodies(queue.drain(1)) == ["after"]


@pytest.mark.promise("BAT-06")
def test_an_entry_without_message_group_id_fails_and_is_not_delivered(resources: Resources) -> None:
    """A recording of 2024 has the whole call refused; others say that only the entry fails. Both are accepted here."""
    queue = resources.fifo_queue()

    try:
        answer = queue.send_batch(entry("good"), entry("bad", MessageGroupId=None))
        refused = [failure["Id"] for failure in answer.get("Failed", [])]
    except ClientError:
        refused = ["bad"]
    queue.send("after", id="after")
    delivered = bodies(queue.drain(1))

    assert refused == ["bad"]
    assert "bad" not in delivered
    assert delivered[-1] == "after"


@pytest.mark.promise("BAT-07")
def test_a_batch_of_more_than_a_mebibyte_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()
    half, too_much = "x" * 524_288, "x" * 524_289

    refused = refusal(queue.send_batch, entry("m1", MessageBody=half), entry("m2", MessageBody=too_much))
    accepted = queue.send_batch(entry("m3", MessageBody=half), entry("m4", MessageBody=half))

    assert refused == (
        "AWS.SimpleQueueService.BatchRequestTooLong",
        400,
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
    )
    assert [success["Id"] for success in accepted["Successful"]] == ["m3", "m4"]


@pytest.mark.promise("BAT-08")
def test_an_entry_that_is_too_long_fails_alone(resources: Resources) -> None:
    queue = resources.fifo_queue(MaximumMessageSize="1024")

    answer = require_accepted(
        queue.send_batch,
        entry("m1", MessageBody="x" * 1024),
        entry("m2", MessageBody="x" * 1025),
        entry("m3", MessageBody="y" * 1024),
    )

    assert [success["Id"] for success in answer["Successful"]] == ["m1", "m3"]
    assert answer.get("Failed") == [
        {
            "Id": "m2",
            "SenderFault": True,
            "Code": "InvalidParameterValue",
            "Message": "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.",
        }
    ]


@pytest.mark.promise("SLU-30")
def test_the_entries_beside_a_failed_one_are_delivered(resources: Resources) -> None:
    queue = resources.fifo_queue(MaximumMessageSize="1024")

    answer = require_accepted(queue.send_batch, entry("m1"), entry("m2", MessageBody="x" * 1025), entry("m3"))

    assert [failure["Id"] for failure in answer.get("Failed", [])] == ["m2"]
    assert bodies(queue.drain(2)) == ["m1", "m3"]


@pytest.mark.promise("BAT-09")
def test_the_entries_of_a_batch_are_enqueued_in_their_order(resources: Resources) -> None:
    queue = resources.fifo_queue()
    sent = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"]

    answer = queue.send_batch(*[entry(body) for body in sent])
    received = queue.drain(10)

    numbers = {success["Id"]: int(success["SequenceNumber"]) for success in answer["Successful"]}
    in_order = [numbers[body] for body in sent]
    assert in_order == sorted(set(in_order)), "the numbers do not rise"
    assert bodies(received) == sent


@pytest.mark.promise("BAT-12")
def test_one_deduplication_id_twice_in_a_batch_is_one_message(resources: Resources) -> None:
    queue = resources.fifo_queue()

    answer = queue.send_batch(
        entry("first", MessageDeduplicationId="same"), entry("again", MessageDeduplicationId="same")
    )

    assert [success["Id"] for success in answer["Successful"]] == ["first", "again"]
    assert answer["Successful"][0]["MessageId"] == answer["Successful"][1]["MessageId"]
    assert bodies(queue.drain(1)) == ["first"]


@pytest.mark.promise("BAT-13")
def test_a_bad_handle_in_a_batch_of_deletes_is_the_senders_fault(resources: Resources) -> None:
    queue = resources.fifo_queue()

    answer = require_accepted(queue.delete_batch, {"Id": "bad", "ReceiptHandle": "garbage"})

    assert [(failure["Id"], failure["Code"], failure["SenderFault"]) for failure in answer.get("Failed", [])] == [
        ("bad", "ReceiptHandleIsInvalid", True)
    ]


@pytest.mark.promise("BAT-14")
def test_a_bad_handle_in_a_batch_of_deletes_fails_alone(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2")
    message = queue.await_message(visibility=30)

    answer = require_accepted(
        queue.delete_batch,
        {"Id": "bad", "ReceiptHandle": "garbage"},
        {"Id": "good", "ReceiptHandle": message["ReceiptHandle"]},
    )

    assert [success["Id"] for success in answer.get("Successful", [])] == ["good"]
    assert [failure["Id"] for failure in answer.get("Failed", [])] == ["bad"]
    assert bodies(queue.drain(1)) == ["m2"]


@pytest.mark.promise("BAT-15")
def test_a_bad_handle_in_a_batch_of_visibility_changes_fails_alone(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    message = queue.await_message(visibility=600)

    answer = require_accepted(
        queue.change_visibility_batch,
        {"Id": "bad", "ReceiptHandle": "garbage"},
        {"Id": "good", "ReceiptHandle": message["ReceiptHandle"]},
    )

    assert [success["Id"] for success in answer.get("Successful", [])] == ["good"]
    assert [failure["Id"] for failure in answer.get("Failed", [])] == ["bad"]
    assert bodies(queue.drain(1)) == ["m1"]


@pytest.mark.promise("BAT-16")
def test_the_answer_to_a_batch_is_about_the_messages_that_come(resources: Resources) -> None:
    """The MD5 were worked out by hand."""
    queue = resources.fifo_queue()
    attributes = {
        "Hello.a": {"DataType": "String", "StringValue": "1"},
        "Hello.b": {"DataType": "Number", "StringValue": "2"},
    }

    answer = queue.send_batch(entry("hello", MessageAttributes=attributes), entry("m2"))
    received = queue.drain(2)

    by_id = {success["Id"]: success for success in answer["Successful"]}
    answered = [by_id[message["Body"]] for message in received]
    assert bodies(received) == ["hello", "m2"]
    assert [each["MessageId"] for each in answered] == [message["MessageId"] for message in received]
    assert [each["SequenceNumber"] for each in answered] == [
        message["Attributes"]["SequenceNumber"] for message in received
    ]
    checksums = [("5d41402abc4b2a76b9719d911017c592", "52d4b268b31bf7ffcd66c7bd860fb6df"), (_MD5_OF_M2, None)]
    assert [(each["MD5OfMessageBody"], each.get("MD5OfMessageAttributes")) for each in answered] == checksums
    assert [(message["MD5OfBody"], message.get("MD5OfMessageAttributes")) for message in received] == checksums


@pytest.mark.promise("SLU-31")
def test_a_batch_of_deletes_deletes_every_message(resources: Resources) -> None:
    """Ten: the next of each group is delivered once those before it are deleted."""
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", "m3")
    in_flight = [*queue.hold("m1", "m2", visibility=600), *_receive_one_of_each_group(queue, 8)]
    for number in range(8):
        queue.send_each(f"next-{number}", group=f"group-{number}")

    answer = queue.delete_batch(*_entries_of(in_flight))

    assert sorted(success["Id"] for success in answer["Successful"]) == sorted(bodies(in_flight))
    assert sorted(bodies(queue.drain(9))) == ["m3", *(f"next-{number}" for number in range(8))]


@pytest.mark.promise("SLU-32")
def test_a_batch_of_visibility_changes_changes_every_message(resources: Resources) -> None:
    queue = resources.fifo_queue()
    in_flight = _receive_one_of_each_group(queue, 10)

    answer = queue.change_visibility_batch(*_entries_of(in_flight))

    assert sorted(success["Id"] for success in answer["Successful"]) == sorted(bodies(in_flight))
    assert sorted(bodies(queue.drain(10))) == sorted(bodies(in_flight))


def _receive_one_of_each_group(queue: QueueUnderTest, groups: int) -> list[Message]:
    """Send a message to each group and receive them all; they stay in flight."""
    for number in range(groups):
        queue.send_each(f"first-{number}", group=f"group-{number}")
    return [queue.await_message(visibility=600) for _ in range(groups)]


def _entries_of(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"Id": message["Body"], "ReceiptHandle": message["ReceiptHandle"]} for message in messages]
