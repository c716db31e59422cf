"""What a FIFO topic accepts, what it refuses, and how it says so."""

import pytest

from contract_tests.resources import Resources, Topic, refusal

_KIB = 1024


def _with_attribute(name: str, **value: object) -> dict[str, object]:
    return {"MessageAttributes": {name: value}}


@pytest.mark.promise("SNS-10")
def test_a_publish_without_deduplication_id_is_refused(resources: Resources) -> None:
    """SNS-10: without content-based deduplication an id is needed."""
    topic = resources.fifo_topic()

    refused = refusal(topic.publish, "m1")

    assert refused == (
        "InvalidParameter",
        400,
        "Invalid parameter: The topic should either have ContentBasedDeduplication enabled or "
        "MessageDeduplicationId provided explicitly",
    )


@pytest.mark.promise("SNS-11")
def test_a_standard_topic_takes_a_group_and_no_deduplication_id(resources: Resources) -> None:
    """SNS-11: with a group, for fair queues, it answers a message id and no sequence number; the id is refused."""
    topic = resources.standard_topic()

    accepted = topic.publish("m1", group="g1")
    refused = refusal(topic.publish, "m1", group=None, id="m1")

    assert sorted(accepted.keys() - {"ResponseMetadata"}) == ["MessageId"]
    assert refused == (
        "InvalidParameter",
        400,
        "Invalid parameter: MessageDeduplicationId Reason: The request includes MessageDeduplicationId parameter that "
        "is not valid for this topic type",
    )


@pytest.mark.promise("SNS-25")
def test_a_batch_has_at_most_ten_entries_with_ids_of_their_own(resources: Resources) -> None:
    """SNS-25: ten are published; eleven, and two of one id, are refused as a whole."""
    topic = resources.fifo_topic()

    ten = topic.publish_batch(*({"Message": f"m{number}"} for number in range(10)))
    eleven = refusal(topic.publish_batch, *({"Message": f"m{number}"} for number in range(11)))
    same_id = refusal(topic.publish_batch, {"Id": "1", "Message": "m1"}, {"Id": "1", "Message": "m2"})

    assert [entry["Id"] for entry in ten["Successful"]] == ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
    assert eleven == (
        "TooManyEntriesInBatchRequest",
        400,
        "The batch request contains more entries than permissible.",
    )
    assert same_id == (
        "BatchEntryIdsNotDistinct",
        400,
        "Two or more batch entries in the request have the same Id.",
    )


@pytest.mark.promise("SNS-26")
def test_a_batch_with_an_entry_without_group_or_deduplication_id_is_refused(resources: Resources) -> None:
    """SNS-26: as a whole, with the text of a single publish; recorded with a batch of one entry, as here."""
    topic = resources.fifo_topic()
    publish_batch = topic.sns.publish_batch

    without_group = refusal(
        publish_batch,
        TopicArn=topic.arn,
        PublishBatchRequestEntries=[{"Id": "1", "Message": "m1", "MessageDeduplicationId": "m1"}],
    )
    without_id = refusal(
        publish_batch,
        TopicArn=topic.arn,
        PublishBatchRequestEntries=[{"Id": "1", "Message": "m1", "MessageGroupId": "g1"}],
    )

    assert without_group == (
        "InvalidParameter",
        400,
        "Invalid parameter: The MessageGroupId parameter is required for FIFO topics",
    )
    assert without_id == (
        "InvalidParameter",
        400,
        "Invalid parameter: The topic should either have ContentBasedDeduplication enabled or "
        "MessageDeduplicationId provided explicitly",
    )


@pytest.mark.promise("SNS-27")
def test_the_id_of_a_batch_entry_is_80_letters_digits_hyphens_and_underscores(resources: Resources) -> None:
    """SNS-27: a blank and an 81st character are refused, and the id is quoted."""
    topic = resources.fifo_topic()
    longest = "a-b_" * 20

    accepted = topic.publish_batch({"Id": longest, "Message": "m1"})
    blank = refusal(topic.publish_batch, {"Id": "a b", "Message": "m2", "MessageDeduplicationId": "m2"})
    too_long = refusal(topic.publish_batch, {"Id": "a" * 81, "Message": "m3"})

    assert [entry["Id"] for entry in accepted["Successful"]] == [longest]
    assert blank == (
        "InvalidBatchEntryId",
        400,
        "The Id of a batch entry in the batch request contains an impermissible character: a b",
    )
    assert too_long == (
        "InvalidBatchEntryId",
        400,
        f"The Id of a batch entry in the batch request is too long: {'a' * 81}",
    )


@pytest.mark.promise("SNS-28")
def test_a_batch_that_is_too_long_in_all_is_refused(resources: Resources) -> None:
    """SNS-28: two messages of 200 KiB are each allowed, and together more than 256 KiB."""
    topic = resources.fifo_topic()
    body = "a" * 200 * _KIB

    refused = refusal(topic.publish_batch, {"Message": body}, {"Message": body})

    assert refused == (
        "BatchRequestTooLong",
        400,
        "The length of all the messages put together is more than the limit.",
    )


@pytest.mark.promise("SNS-29")
def test_a_message_has_at_most_256_kib(resources: Resources) -> None:
    """SNS-29: 256 KiB are published, a byte more is refused."""
    topic = resources.fifo_topic()

    accepted = topic.publish("a" * 256 * _KIB, id="m1")
    refused = refusal(topic.publish, "a" * 256 * _KIB + "a", id="m2")

    assert accepted["MessageId"]
    assert refused == ("InvalidParameter", 400, "Invalid parameter: Message too long")


@pytest.mark.promise("SNS-52")
def test_an_empty_message_is_refused(resources: Resources) -> None:
    """SNS-52: as a message, and so is an empty subject."""
    topic = resources.fifo_topic()

    empty_message = refusal(topic.publish, "", id="m1")
    empty_subject = refusal(topic.publish, "m2", id="m2", Subject="")

    assert empty_message == ("InvalidParameter", 400, "Invalid parameter: Empty message")
    assert empty_subject == ("InvalidParameter", 400, "Invalid parameter: Subject")


@pytest.mark.promise("SNS-53")
def test_a_message_by_protocol_needs_a_default(resources: Resources) -> None:
    """SNS-53: MessageStructure json wants a JSON object with the entry `default`."""
    topic = resources.fifo_topic()

    no_json = refusal(topic.publish, "no JSON", id="m1", MessageStructure="json")
    no_default = refusal(topic.publish, '{"sqs": "m2"}', id="m2", MessageStructure="json")

    assert no_json == (
        "InvalidParameter",
        400,
        "Invalid parameter: Message Structure - JSON message body failed to parse",
    )
    assert no_default == (
        "InvalidParameter",
        400,
        "Invalid parameter: Message Structure - No default entry in JSON message body",
    )


@pytest.mark.promise("SNS-54")
def test_a_message_attribute_has_a_value_of_its_type(resources: Resources) -> None:
    """SNS-54: no value, the value of another type, and a type there is not, are refused."""
    topic = resources.fifo_topic()

    empty = refusal(topic.publish, "m1", id="m1", **_with_attribute("attr1", DataType="String", StringValue=""))
    other = refusal(topic.publish, "m2", id="m2", **_with_attribute("attr1", DataType="Number", BinaryValue=b"2"))
    unknown = refusal(topic.publish, "m3", id="m3", **_with_attribute("attr1", DataType="Date", StringValue="x"))

    assert empty == (
        "ParameterValueInvalid",
        400,
        "The message attribute 'attr1' must contain non-empty message attribute value for message attribute type "
        "'String'.",
    )
    assert other == (
        "ParameterValueInvalid",
        400,
        "The message attribute 'attr1' with type 'Number' must use field 'String'.",
    )
    assert unknown == (
        "ParameterValueInvalid",
        400,
        "The message attribute 'attr1' has an invalid message attribute type, the set of supported type prefixes is "
        "Binary, Number, and String.",
    )


@pytest.mark.promise("SNS-55")
def test_the_name_of_a_message_attribute_is_checked(resources: Resources) -> None:
    """SNS-55: 257 characters, a caret, a dot at the start, at the end, or two of them, are refused."""
    topic = resources.fifo_topic()
    of = {"DataType": "String", "StringValue": "x"}

    too_long = refusal(topic.publish, "m1", id="m1", **_with_attribute("a" * 257, **of))
    caret = refusal(topic.publish, "m1", id="m1", **_with_attribute("a^b", **of))
    starts = refusal(topic.publish, "m1", id="m1", **_with_attribute(".a", **of))
    ends = refusal(topic.publish, "m1", id="m1", **_with_attribute("a.", **of))
    double = refusal(topic.publish, "m1", id="m1", **_with_attribute("a..b", **of))

    assert [refused[:2] for refused in (too_long, caret, starts, ends, double)] == [("ParameterValueInvalid", 400)] * 5
    assert [refused[2] for refused in (too_long, caret, starts, ends, double)] == [
        "Length of message attribute name must be less than 256 bytes.",
        "Invalid non-alphanumeric character '#x5E' was found in the message attribute name. "
        "Can only include alphanumeric characters, hyphens, underscores, or dots.",
        "Invalid message attribute name starting with character '.' was found.",
        "Invalid message attribute name ending with character '.' was found.",
        "Message attribute name can not have successive '.' character.",
    ]


@pytest.mark.promise("SNS-56")
def test_a_batch_to_a_topic_that_does_not_exist_is_refused(resources: Resources) -> None:
    """SNS-56: as a whole, nothing in `Failed`."""
    topic = resources.fifo_topic()
    absent = Topic(topic.sns, topic.arn.removesuffix(".fifo") + "-absent.fifo")

    refused = refusal(absent.publish_batch, {"Message": "m1"})

    assert refused == ("NotFound", 404, "Topic does not exist")


@pytest.mark.promise("SNS-57")
def test_the_ids_of_a_publish_are_128_letters_digits_and_punctuation(resources: Resources) -> None:
    """SNS-57: 128 characters are accepted; 129, and a blank, are refused, in the id and in the group."""
    topic = resources.fifo_topic()

    accepted = topic.publish("m1", group="g" * 128, id="m" * 128)
    long_id = refusal(topic.publish, "m2", id="m" * 129)
    blank_id = refusal(topic.publish, "m3", id="m 3")
    long_group = refusal(topic.publish, "m4", id="m4", group="g" * 129)

    assert accepted["MessageId"]
    assert long_id[:2] == ("InvalidParameter", 400)
    assert blank_id[:2] == ("InvalidParameter", 400)
    assert long_group[:2] == ("InvalidParameter", 400)


@pytest.mark.promise("SNS-58")
def test_a_batch_answers_every_entry_with_its_ids(resources: Resources) -> None:
    """SNS-58: in the order given, sequence numbers rising, nothing failed."""
    topic = resources.fifo_topic()

    answer = topic.publish_batch({"Message": "m1"}, {"Message": "m2"}, {"Message": "m3"})

    assert answer["Failed"] == []
    assert [sorted(entry) for entry in answer["Successful"]] == [["Id", "MessageId", "SequenceNumber"]] * 3
    assert [entry["Id"] for entry in answer["Successful"]] == ["1", "2", "3"]
    numbers = [int(entry["SequenceNumber"]) for entry in answer["Successful"]]
    assert numbers[0] < numbers[1] < numbers[2]


@pytest.mark.promise("SNS-59")
def test_a_batch_published_again_answers_the_first_ids(resources: Resources) -> None:
    """SNS-59: entry by entry, message id and sequence number are those of the first."""
    topic = resources.fifo_topic()
    first = topic.publish_batch({"Message": "m1"}, {"Message": "m2"})

    again = topic.publish_batch({"Message": "m1"}, {"Message": "m2"})

    assert again["Failed"] == []
    assert again["Successful"] == first["Successful"]
