"""The model's topics deliver, refuse or ignore the parts of a publish as SNS does."""

import json
from typing import Any

import pytest

from sluice.simulator.model import AwsRefusal
from tests.unit.simulator.service import Service, arn_of


def _subscribe(service: Service, topic: str, url: str, **attributes: str) -> str:
    service.sqs("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": service.allowing(topic)})
    answer = service.sns("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=arn_of(url), Attributes=attributes)
    return str(answer["SubscriptionArn"])


def test_a_fifo_topic_gives_no_group_to_a_standard_queue(service: Service) -> None:
    """A standard topic gives the group to a standard queue.

    Recorded of test_fifo_topic_to_regular_sqs and test_publish_message_group_id, 2025-08-18.
    """
    fifo, standard = service.topic(), str(service.sns("CreateTopic", Name="t")["TopicArn"])
    behind_fifo, behind_standard = service.standard_queue("a"), service.standard_queue("b")
    _subscribe(service, fifo, behind_fifo)
    _subscribe(service, standard, behind_standard)

    service.sns("Publish", TopicArn=fifo, Message="m", MessageGroupId="g", MessageDeduplicationId="1")
    service.sns("Publish", TopicArn=standard, Message="m", MessageGroupId="g")
    (from_fifo,), (from_standard,) = service.receive(behind_fifo), service.receive(behind_standard)

    assert "MessageGroupId" not in from_fifo["Attributes"]
    assert from_standard["Attributes"]["MessageGroupId"] == "g"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("no JSON", "JSON message body failed to parse"),
        ("{}", "No default entry in JSON message body"),
        ('{"sqs": "m"}', "No default entry in JSON message body"),
        ('{"default": 5}', "No default entry in JSON message body"),
        ('{"default": {"a": "b"}}', "No default entry in JSON message body"),
        ("5", "No default entry in JSON message body"),
        ("[]", "No default entry in JSON message body"),
        ('["default"]', "No default entry in JSON message body"),
        ("null", "No default entry in JSON message body"),
    ],
)
def test_a_message_by_protocol_without_a_default_text_is_refused(service: Service, message: str, text: str) -> None:
    """Recorded of test_message_structure_json_exc, 2023-08-24, for JSON objects."""
    topic = service.topic()

    with pytest.raises(AwsRefusal) as refused:
        service.sns("Publish", TopicArn=topic, Message=message, MessageStructure="json", MessageGroupId="g",
                    MessageDeduplicationId="1")  # fmt: skip

    assert refused.value.text == f"Invalid parameter: Message Structure - {text}"


def test_the_text_of_a_protocol_that_is_no_string_is_ignored(service: Service) -> None:
    """API_Publish: `Non-string values will cause the key to be ignored`."""
    topic, url = service.topic(), service.queue()
    _subscribe(service, topic, url, RawMessageDelivery="true")

    service.sns("Publish", TopicArn=topic, Message='{"default": "d", "sqs": 5}', MessageStructure="json",
                MessageGroupId="g", MessageDeduplicationId="1")  # fmt: skip

    assert service.bodies(url) == ["d"]


@pytest.mark.parametrize(("subject", "is_taken"), [("s" * 99, True), ("s" * 101, False), ("", False), ("a\nb", False)])
def test_a_subject_is_short_and_of_one_line(service: Service, subject: str, *, is_taken: bool) -> None:
    """API_Publish: no line breaks or control characters, and less than 100 characters; the empty one is recorded.

    A subject of 100 characters is not tested: the page and emulators disagree about it.
    """
    topic = service.topic()
    publish = {"TopicArn": topic, "Message": "m", "MessageGroupId": "g", "MessageDeduplicationId": "1"}

    try:
        service.sns("Publish", **publish, Subject=subject)
        refusal = ""
    except AwsRefusal as refused:
        refusal = refused.text

    assert refusal == ("" if is_taken else "Invalid parameter: Subject")


@pytest.mark.parametrize("value", ["no JSON", '"a string"', "[]", "{invalidjson}"])
def test_a_subscriptions_redrive_policy_that_is_no_object_is_refused(service: Service, value: str) -> None:
    """The beginning of the text is recorded of test_validate_set_sub_attributes, 2025-10-06."""
    topic, url = service.topic(), service.queue()
    subscription = _subscribe(service, topic, url)

    with pytest.raises(AwsRefusal, match="Invalid parameter: RedrivePolicy: "):
        service.sns("SetSubscriptionAttributes", SubscriptionArn=subscription, AttributeName="RedrivePolicy",
                    AttributeValue=value)  # fmt: skip


def test_a_filter_policy_is_refused_in_the_words_of_the_call(service: Service) -> None:
    """Subscribe names the parameter, Attributes; SetSubscriptionAttributes does not. Recorded 2024-05-14."""
    topic, url = service.topic(), service.queue()
    subscription = _subscribe(service, topic, url)
    refused: list[str] = []

    for operation, params in _calls_with_an_invalid_filter_policy(topic, subscription, arn_of(service.queue("r.fifo"))):
        with pytest.raises(AwsRefusal) as caught:
            service.sns(operation, **params)
        refused.append(caught.value.text)

    assert refused == [
        "Invalid parameter: Attributes Reason: FilterPolicy: Empty arrays are not allowed",
        "Invalid parameter: FilterPolicy: Empty arrays are not allowed",
    ]


def _calls_with_an_invalid_filter_policy(
    topic: str, subscription: str, endpoint: str
) -> list[tuple[str, dict[str, Any]]]:
    """Return (operation, parameters) of the two calls that set a filter policy."""
    policy = json.dumps({"key": []})
    named = {"SubscriptionArn": subscription, "AttributeName": "FilterPolicy", "AttributeValue": policy}
    subscribed = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": endpoint, "Attributes": {"FilterPolicy": policy}}
    return [("Subscribe", subscribed), ("SetSubscriptionAttributes", named)]


def test_unsubscribing_after_the_topic_was_deleted_succeeds(service: Service) -> None:
    topic, url = service.topic(), service.queue()
    subscription = _subscribe(service, topic, url)
    service.sns("DeleteTopic", TopicArn=topic)

    assert service.sns("Unsubscribe", SubscriptionArn=subscription) == {}


@pytest.mark.parametrize("name", ["Policy", "DeliveryPolicy"])
@pytest.mark.parametrize("text", ["x", "[]", "null", '"a"', "1"])
def test_a_policy_that_is_no_object_is_refused(service: Service, name: str, text: str) -> None:
    """AWS's text is not recorded; the model's names the attribute."""
    topic = service.sns("CreateTopic", Name="t")["TopicArn"]

    with pytest.raises(AwsRefusal, match=f"InvalidParameter.*{name}"):
        service.sns("SetTopicAttributes", TopicArn=topic, AttributeName=name, AttributeValue=text)
    with pytest.raises(AwsRefusal, match=f"InvalidParameter.*{name}"):
        service.sns("CreateTopic", Name="other", Attributes={name: text})

    service.sns("GetTopicAttributes", TopicArn=topic)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Policy", ""),
        ("Policy", '{"Statement":null}'),
        ("Policy", '{"Statement":["a"]}'),
        ("DeliveryPolicy", ""),
        ("DeliveryPolicy", '{"http":null}'),
        ("DeliveryPolicy", '{"http":[]}'),
        ("DeliveryPolicy", '{"http":{"defaultHealthyRetryPolicy":1}}'),
    ],
)
def test_permissions_can_be_added_to_a_topic_with_a_malformed_policy(service: Service, name: str, text: str) -> None:
    """The model keeps such a policy, so no later call may fail on it."""
    topic = service.sns("CreateTopic", Name="t")["TopicArn"]
    service.sns("SetTopicAttributes", TopicArn=topic, AttributeName=name, AttributeValue=text)

    service.sns("GetTopicAttributes", TopicArn=topic)
    service.sns("AddPermission", TopicArn=topic, Label="l", AWSAccountId=["111122223333"], ActionName=["Publish"])
    service.sns("RemovePermission", TopicArn=topic, Label="l")


@pytest.mark.parametrize("text", ["", '{"Statement":null}', '{"Statement":["a"]}', '{"Statement":"a"}'])
def test_permissions_can_be_added_to_a_queue_with_a_malformed_policy(service: Service, text: str) -> None:
    url = service.queue(Policy=text)

    service.sqs("AddPermission", QueueUrl=url, Label="l", AWSAccountIds=["111122223333"], Actions=["SendMessage"])
    service.sqs("RemovePermission", QueueUrl=url, Label="l")
