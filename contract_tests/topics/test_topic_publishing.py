"""Publishes that a FIFO topic accepts, those it refuses, and the words of its refusals."""

import pytest

from contract_tests.resources import Refusal, Resources, TopicUnderTest, bodies, invalid_parameter, refusal

_KIB = 1024


def _with_attribute(name: str, **value: object) -> dict[str, object]:
    return {"MessageAttributes": {name: value}}


def _parameter_value_invalid(text: str) -> Refusal:
    return ("ParameterValueInvalid", 400, text)


@pytest.mark.promise("SNS-10")
def test_a_publish_without_deduplication_id_is_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()

    assert refusal(topic.publish, "m1") == invalid_parameter(
        "The topic should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )


@pytest.mark.promise("SNS-11")
def test_a_standard_topic_takes_a_group_and_no_deduplication_id(resources: Resources) -> None:
    topic = resources.standard_topic()

    accepted = topic.publish("m1", group="g1")
    refused = refusal(topic.publish, "m1", group=None, id="m1")

    assert sorted(accepted.keys() - {"ResponseMetadata"}) == ["MessageId"]
    assert refused == invalid_parameter(
        "MessageDeduplicationId Reason: The request includes MessageDeduplicationId parameter that "
        "is not valid for this topic type"
    )


@pytest.mark.promise("SNS-25")
def test_a_batch_has_at_most_ten_entries_with_ids_of_their_own(resources: Resources) -> None:
    topic = resources.fifo_topic()

    ten = topic.publish_batch(*({"Message": f"m{number}"} for number in range(10)))
    eleven = refusal(topic.publish_batch, *({"Message": f"m{number}"} for number in range(11)))
    same_id = refusal(topic.publish_batch, {"Id": "1", "Message": "m1"}, {"Id": "1", "Message": "m2"})

    assert [entry["Id"] for entry in ten["Successful"]] == ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
    assert eleven == ("TooManyEntriesInBatchRequest", 400, "The batch request contains more entries than permissible.")
    assert same_id == ("BatchEntryIdsNotDistinct", 400, "Two or more batch entries in the request have the same Id.")


@pytest.mark.promise("SNS-114")
def test_a_batch_has_an_entry(resources: Resources) -> None:
    topic = resources.fifo_topic()

    assert refusal(topic.publish_batch)[:2] == ("EmptyBatchRequest", 400)


@pytest.mark.promise("SNS-26")
def test_a_batch_with_an_entry_without_group_or_deduplication_id_is_refused(resources: Resources) -> None:
    """Recorded with a batch of one entry."""
    topic = resources.fifo_topic()

    without_group = refusal(topic.publish_batch, {"Message": "m1", "MessageGroupId": None})
    without_id = refusal(topic.publish_batch, {"Message": "m1", "MessageDeduplicationId": None})

    assert without_group == invalid_parameter("The MessageGroupId parameter is required for FIFO topics")
    assert without_id == invalid_parameter(
        "The topic should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )


@pytest.mark.promise("SNS-27")
def test_a_batch_entry_id_has_80_letters_digits_hyphens_and_underscores(resources: Resources) -> None:
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
    topic = resources.fifo_topic()
    half = "a" * 128 * _KIB

    accepted = topic.publish_batch({"Message": half}, {"Message": half})
    refused = refusal(topic.publish_batch, {"Id": "3", "Message": half}, {"Id": "4", "Message": half + "a"})

    assert [entry["Id"] for entry in accepted["Successful"]] == ["1", "2"]
    assert refused == (
        "BatchRequestTooLong",
        400,
        "The length of all the messages put together is more than the limit.",
    )


@pytest.mark.promise("SNS-29")
def test_a_message_has_at_most_256_kib(resources: Resources) -> None:
    topic = resources.fifo_topic()

    accepted = topic.publish("a" * 256 * _KIB, id="m1")
    refused = refusal(topic.publish, "a" * 256 * _KIB + "a", id="m2")

    assert accepted["MessageId"]
    assert refused == invalid_parameter("Message too long")


@pytest.mark.promise("SNS-52")
def test_an_empty_message_is_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()

    empty_message = refusal(topic.publish, "", id="m1")
    empty_subject = refusal(topic.publish, "m2", id="m2", Subject="")

    assert empty_message == invalid_parameter("Empty message")
    assert empty_subject == invalid_parameter("Subject")


@pytest.mark.promise("SNS-128")
def test_a_subject_is_one_line_of_100_characters_at_most(resources: Resources) -> None:
    """AWS says less than 100; the hundredth is left open."""
    topic = resources.fifo_topic()

    long = topic.publish("m1", id="m1", Subject="a" * 99)
    too_long = refusal(topic.publish, "m2", id="m2", Subject="a" * 101)
    two_lines = refusal(topic.publish, "m3", id="m3", Subject="a\nb")

    assert long["MessageId"]
    assert [too_long[1], two_lines[1]] == [400, 400]  # codes and texts are not recorded


@pytest.mark.promise("SNS-53")
def test_a_message_by_protocol_needs_a_default(resources: Resources) -> None:
    topic = resources.fifo_topic()

    no_json = refusal(topic.publish, "no JSON", id="m1", MessageStructure="json")
    no_default = refusal(topic.publish, '{"sqs": "m2"}', id="m2", MessageStructure="json")

    assert no_json == invalid_parameter("Message Structure - JSON message body failed to parse")
    assert no_default == invalid_parameter("Message Structure - No default entry in JSON message body")


@pytest.mark.promise("SNS-107")
def test_a_queue_gets_what_a_message_by_protocol_has_for_it(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)

    topic.publish('{"default": "for all", "sqs": "for queues"}', id="m1", MessageStructure="json")
    topic.publish('{"default": "for others", "email": "for mail"}', id="m2", MessageStructure="json")

    assert bodies(queue.drain(2)) == ["for queues", "for others"]


@pytest.mark.promise("SNS-54")
def test_a_message_attribute_has_a_value_of_its_type(resources: Resources) -> None:
    topic = resources.fifo_topic()

    empty = refusal(topic.publish, "m1", id="m1", **_with_attribute("attr1", DataType="String", StringValue=""))
    other = refusal(topic.publish, "m2", id="m2", **_with_attribute("attr1", DataType="Number", BinaryValue=b"2"))
    unknown = refusal(topic.publish, "m3", id="m3", **_with_attribute("attr1", DataType="Date", StringValue="x"))

    assert empty == _parameter_value_invalid(
        "The message attribute 'attr1' must contain non-empty message attribute value for message attribute type "
        "'String'."
    )
    assert other == _parameter_value_invalid(
        "The message attribute 'attr1' with type 'Number' must use field 'String'."
    )
    assert unknown == _parameter_value_invalid(
        "The message attribute 'attr1' has an invalid message attribute type, the set of supported type prefixes is "
        "Binary, Number, and String."
    )


@pytest.mark.promise("SNS-55")
def test_the_name_of_a_message_attribute_is_checked(resources: Resources) -> None:
    topic = resources.fifo_topic()
    text_of_name = {
        "a" * 257: "Length of message attribute name must be less than 256 bytes.",
        "a^b": "Invalid non-alphanumeric character '#x5E' was found in the message attribute name. "
        "Can only include alphanumeric characters, hyphens, underscores, or dots.",
        ".a": "Invalid message attribute name starting with character '.' was found.",
        "a.": "Invalid message attribute name ending with character '.' was found.",
        "a..b": "Message attribute name can not have successive '.' character.",
    }

    refused = {
        name: refusal(topic.publish, "m1", id="m1", **_with_attribute(name, DataType="String", StringValue="x"))
        for name in text_of_name
    }

    assert refused == {name: _parameter_value_invalid(text) for name, text in text_of_name.items()}


@pytest.mark.promise("SNS-56")
def test_a_batch_to_a_topic_that_does_not_exist_is_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()
    absent = TopicUnderTest(topic.sns, topic.arn.removesuffix(".fifo") + "-absent.fifo")

    assert refusal(absent.publish_batch, {"Message": "m1"}) == ("NotFound", 404, "Topic does not exist")


@pytest.mark.promise("SNS-57")
def test_the_ids_of_a_publish_are_128_letters_digits_and_punctuation(resources: Resources) -> None:
    topic = resources.fifo_topic()

    accepted = topic.publish("m1", group="g" * 128, id="m" * 128)
    long_id = refusal(topic.publish, "m2", id="m" * 129)
    blank_id = refusal(topic.publish, "m3", id="m 3")
    long_group = refusal(topic.publish, "m4", id="m4", group="g" * 129)

    assert accepted["MessageId"]
    assert [long_id[1], blank_id[1], long_group[1]] == [400, 400, 400]  # codes and texts are not recorded


@pytest.mark.promise("SNS-58")
def test_a_batch_answers_every_entry_with_its_ids(resources: Resources) -> None:
    topic = resources.fifo_topic()

    answer = topic.publish_batch(*({"Message": f"m{number}"} for number in range(1, 9)))

    assert answer["Failed"] == []
    assert [sorted(entry) for entry in answer["Successful"]] == [["Id", "MessageId", "SequenceNumber"]] * 8
    assert [entry["Id"] for entry in answer["Successful"]] == [str(number) for number in range(1, 9)]
    numbers = [int(entry["SequenceNumber"]) for entry in answer["Successful"]]
    assert numbers == sorted(set(numbers))


@pytest.mark.promise("SNS-59")
def test_a_batch_published_again_answers_the_first_ids(resources: Resources) -> None:
    topic = resources.fifo_topic()
    first = topic.publish_batch({"Message": "m1"}, {"Message": "m2"})

    again = topic.publish_batch({"Message": "m1"}, {"Message": "m2"})

    assert again["Failed"] == []
    assert again["Successful"] == first["Successful"]


@pytest.mark.promise("SNS-143")
def test_nobody_publishes_to_a_topic_of_another_region(resources: Resources) -> None:
    elsewhere = resources.fifo_topic().elsewhere()

    refused = [refusal(elsewhere.publish, "m1", id="m1"), refusal(elsewhere.publish_batch, {"Message": "m1"})]

    assert refused == [invalid_parameter("TopicArn")] * 2
