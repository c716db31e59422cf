"""Codes of refusals that a handler has to know."""

import pytest

from contract_tests.resources import Resources, entry, invalid_parameter, invalid_parameter_value, refusal


@pytest.mark.promise("ERR-02")
def test_a_missing_group_has_different_codes_in_a_send_and_a_batch(resources: Resources) -> None:
    queue = resources.fifo_queue()

    single = refusal(queue.send, "m1", group=None, id="m1")
    batch = refusal(queue.send_batch, entry("m1"), entry("m2", MessageGroupId=None))

    assert single == ("MissingParameter", 400, "The request must contain the parameter MessageGroupId.")
    assert batch == invalid_parameter_value("The request must contain the parameter MessageGroupId.")


@pytest.mark.promise("ERR-03")
def test_a_wrong_attribute_name_and_a_wrong_value_have_different_codes(resources: Resources) -> None:
    fifo, standard = resources.fifo_queue(), resources.standard_queue()

    name = refusal(standard.set_attributes, FifoQueue="true")
    value = refusal(fifo.set_attributes, FifoQueue="false")

    assert name == ("InvalidAttributeName", 400, "Unknown Attribute FifoQueue.")
    assert value == (
        "InvalidAttributeValue",
        400,
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    )


@pytest.mark.promise("ERR-05")
def test_a_topic_that_is_not_there_is_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()

    unknown = refusal(
        topic.sns.publish,
        TopicArn=topic.arn.replace(".fifo", "-nowhere.fifo"),
        Message="m1",
        MessageGroupId="g1",
        MessageDeduplicationId="m1",
    )
    malformed = refusal(topic.sns.publish, TopicArn="nowhere", Message="m1")

    assert unknown == ("NotFound", 404, "Topic does not exist")
    assert malformed == invalid_parameter("TopicArn Reason: An ARN must have at least 6 elements, not 1")


@pytest.mark.promise("ERR-06")
def test_codes_of_sqs_have_a_prefix_where_those_of_sns_have_none(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()

    codes = [
        refusal(queue.sqs.get_queue_url, QueueName="nowhere.fifo")[0],
        refusal(queue.send, "m1", id="")[0],
        refusal(topic.sns.get_topic_attributes, TopicArn=f"{topic.arn[:-5]}-nowhere.fifo")[0],
        refusal(topic.publish, "m1", group=None, id="m1")[0],
    ]

    assert codes == ["AWS.SimpleQueueService.NonExistentQueue", "InvalidParameterValue", "NotFound", "InvalidParameter"]
