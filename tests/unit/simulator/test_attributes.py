"""The model treats attributes of queues, subscriptions and messages as AWS does.

"Recorded" means that LocalStack ran the named test on AWS and keeps AWS's answers
(tests/aws/services/sqs/test_sqs.py and sns/test_sns.py); the date stands at each test.
"""

import json
from typing import Any

import pytest

from sluice.simulator.model import AwsRefusal
from tests.unit.simulator.service import Service, arn_of

_TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


def test_true_may_begin_with_a_capital(service: Service) -> None:
    """CRE-02: AWS accepts `True` and returns `true` (test_sqs_fifo_same_dedup_id_different_message_groups)."""
    requested = {"FifoQueue": "True", "ContentBasedDeduplication": "True", "SqsManagedSseEnabled": "False"}

    url = service.sqs("CreateQueue", QueueName="q.fifo", Attributes=requested)["QueueUrl"]
    service.sqs("SendMessage", QueueUrl=url, MessageBody="m", MessageGroupId="g")
    service.sqs("SetQueueAttributes", QueueUrl=url, Attributes={"FifoQueue": "TRUE"})
    attributes = service.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]

    assert {name: attributes[name] for name in requested} == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "true",
        "SqsManagedSseEnabled": "false",
    }
    assert service.sqs("CreateQueue", QueueName="q.fifo", Attributes=requested)["QueueUrl"] == url


def test_true_may_begin_with_a_capital_for_a_topic(service: Service) -> None:
    """Not recorded of topics; the model treats them as it treats queues and subscriptions."""
    attributes = {"FifoTopic": "True", "ContentBasedDeduplication": "True"}

    topic = service.sns("CreateTopic", Name="t.fifo", Attributes=attributes)["TopicArn"]
    service.sns("Publish", TopicArn=topic, Message="m", MessageGroupId="g")

    read = service.sns("GetTopicAttributes", TopicArn=topic)["Attributes"]
    assert read["FifoTopic"] == "true"
    assert read["ContentBasedDeduplication"] == "true"
    with pytest.raises(AwsRefusal, match="FifoTopic: Invalid value"):
        service.sns("CreateTopic", Name="u.fifo", Attributes={"FifoTopic": "yes"})


def test_true_may_begin_with_a_capital_for_raw_delivery(service: Service) -> None:
    """AWS returns `true`, and takes both spellings for one subscription.

    Recorded of test_create_subscriptions_with_attributes, 2025-10-06.
    """
    url = service.queue()
    topic = service.topic()
    service.sqs("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": service.allowing(topic)})
    subscribe = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": arn_of(url)}

    first = service.sns("Subscribe", **subscribe, Attributes={"RawMessageDelivery": "True"})
    again = service.sns("Subscribe", **subscribe, Attributes={"RawMessageDelivery": "true"})
    read = service.sns("GetSubscriptionAttributes", **first)["Attributes"]
    service.sns("Publish", TopicArn=topic, Message="m", MessageGroupId="g", MessageDeduplicationId="1")

    assert again == first
    assert read["RawMessageDelivery"] == "true"
    assert service.bodies(url) == ["m"]


@pytest.mark.parametrize("policy", ["no JSON", '"a string"', "[]"])
def test_the_policy_of_a_queue_is_a_json_object(service: Service, policy: str) -> None:
    """API_SetQueueAttributes asks for `a valid AWS policy`; AWS's text is not recorded."""
    url = service.queue()

    with pytest.raises(AwsRefusal, match=r"Invalid value for the parameter Policy\."):
        service.sqs("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": policy})


@pytest.mark.parametrize(
    ("comparison", "source", "is_allowed"),
    [
        ("ArnLike", "arn:aws:sns:*:t.fifo", True),
        ("ArnEquals", "arn:aws:sns:*:t.fif?", True),
        ("StringLike", "*t.fifo", True),
        ("StringEquals", "*t.fifo", False),
        ("ArnLike", "arn:aws:sns:*:other.fifo", False),
        ("ArnNotLike", "*t.fifo", False),
        ("ArnNotLike", "*other.fifo", True),
    ],
)
def test_the_operator_of_a_condition_decides_whether_it_has_wildcards(
    service: Service, comparison: str, source: str, *, is_allowed: bool
) -> None:
    """`ArnEquals` has wildcards, `StringEquals` has none (IAM's reference_policies_elements_condition_operators)."""
    topic, url = service.topic(), service.queue()
    policy = service.allowing(topic).replace("ArnEquals", comparison).replace(f'"{topic}"', f'"{source}"')
    service.sqs("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": policy})
    service.sns("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=arn_of(url))

    service.sns("Publish", TopicArn=topic, Message="m", MessageGroupId="g", MessageDeduplicationId="1")

    assert len(service.bodies(url)) == is_allowed


@pytest.mark.parametrize(
    "statements",
    [
        None,
        [],
        ["Allow"],
        [{"Principal": "*", "Action": "*"}],
        [{"Effect": "Allow", "NotAction": "sqs:DeleteQueue"}],
        [{"Effect": "Allow", "Condition": {"DateLessThan": {"aws:CurrentTime": "2030-01-01"}}}],
        [{"Effect": "Allow", "Resource": "arn:aws:sqs:us-east-1:000000000000:other.fifo"}],
    ],
)
def test_a_policy_that_forbids_the_topic_keeps_its_messages_out(service: Service, statements: object) -> None:
    topic, url = service.topic(), service.queue()
    policy = {} if statements is None else {"Statement": statements}
    service.sqs("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": json.dumps(policy)})
    service.sns("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=arn_of(url))

    published = service.sns("Publish", TopicArn=topic, Message="m", MessageGroupId="g", MessageDeduplicationId="1")

    assert "MessageId" in published
    assert service.bodies(url) == []


@pytest.mark.parametrize(("operation", "names"), [("ListQueues", ()), ("ListDeadLetterSourceQueues", ("QueueUrl",))])
@pytest.mark.parametrize("paging", [{"MaxResults": 0}, {"MaxResults": 1_001}, {"NextToken": "x", "MaxResults": 1}])
def test_an_invalid_page_size_or_page_token_is_refused(
    service: Service, operation: str, names: tuple[str, ...], paging: dict[str, Any]
) -> None:
    """API_ListQueues allows 1 to 1,000; AWS's texts are not recorded."""
    url = service.queue()

    with pytest.raises(AwsRefusal) as refused:
        service.sqs(operation, **dict.fromkeys(names, url), **paging)

    assert refused.value.code == "InvalidParameterValue"


def _attribute(**changed: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": "v"} | changed


@pytest.mark.parametrize(
    ("name", "attribute", "text"),
    [
        ("a" * 256, _attribute(), "names must be shorter than 256 Bytes"),
        ("a b", _attribute(), "name can only contain"),
        ("ä", _attribute(), "name can only contain"),
        (".a", _attribute(), "cannot start or end with '.'"),
        ("a.", _attribute(), "cannot start or end with '.'"),
        ("a..b", _attribute(), "successive"),
        ("AWS.a", _attribute(), "reserved"),
        ("amazon.a", _attribute(), "reserved"),
        ("a", _attribute(DataType="Text"), 'must be prefixed with "String", "Binary", or "Number"'),
        ("a", _attribute(DataType="Strings"), 'must be prefixed with "String", "Binary", or "Number"'),
        ("a", _attribute(DataType="String." + "x" * 249), "types must be shorter than 256 Bytes"),
        ("a", _attribute(StringValue=""), "must contain a non-empty value of type 'String'"),
        ("a", _attribute(StringValue="\x00"), "Invalid characters found"),
        ("a", {"DataType": "Binary", "BinaryValue": ""}, "must contain a non-empty value of type 'Binary'"),
        ("a", {"DataType": "Binary", "StringValue": "v"}, "must contain a non-empty value of type 'Binary'"),
        ("a", {"DataType": "String", "BinaryValue": "AA=="}, "must contain a non-empty value of type 'String'"),
        ("a", _attribute(DataType="Number", StringValue="five"), "to a number"),
    ],
)
def test_an_invalid_message_attribute_is_refused_and_the_message_not_sent(
    service: Service, name: str, attribute: dict[str, str], text: str
) -> None:
    """Documented (sqs-message-metadata); only the text about an empty value is recorded (2024-04-30)."""
    url = service.queue()

    with pytest.raises(AwsRefusal, match=text) as refused:
        service.sqs("SendMessage", QueueUrl=url, MessageBody="m", MessageGroupId="g", MessageDeduplicationId="1",
                    MessageAttributes={name: attribute})  # fmt: skip

    assert refused.value.code == "InvalidParameterValue"
    assert service.bodies(url) == []


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("a" * 255, _attribute()),
        ("A-b_c.9", _attribute()),
        ("awsome", _attribute()),
        ("a", _attribute(DataType="String.Array")),
        ("a", _attribute(DataType="Number.int", StringValue="-5e10")),
        ("a", {"DataType": "Binary.gif", "BinaryValue": "AA=="}),
    ],
)
def test_a_valid_message_attribute_is_delivered(service: Service, name: str, attribute: dict[str, str]) -> None:
    url = service.standard_queue()

    service.sqs("SendMessage", QueueUrl=url, MessageBody="m", MessageAttributes={name: attribute})

    (message,) = service.receive(url, MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == {name: attribute}


def test_a_trace_header_has_a_checksum_of_its_own(service: Service) -> None:
    """The checksum is AWS's own, recorded of test_system_attributes_have_no_effect_on_attr_md5."""
    url = service.standard_queue()
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": _TRACE}}
    attributes = {"timestamp": {"DataType": "Number", "StringValue": "1493147359900"}}
    entry: dict[str, Any] = {"MessageBody": "test", "MessageAttributes": attributes}

    without = service.sqs("SendMessage", QueueUrl=url, **entry)
    traced = service.sqs("SendMessage", QueueUrl=url, **entry, MessageSystemAttributes=trace)
    in_batch = service.sqs(
        "SendMessageBatch", QueueUrl=url, Entries=[{"Id": "1", **entry, "MessageSystemAttributes": trace}]
    )

    assert "MD5OfMessageSystemAttributes" not in without
    assert traced["MD5OfMessageSystemAttributes"] == "5ae4d5d7636402d80f4eb6d213245a88"
    assert in_batch["Successful"][0]["MD5OfMessageSystemAttributes"] == "5ae4d5d7636402d80f4eb6d213245a88"
    assert traced["MD5OfMessageAttributes"] == without["MD5OfMessageAttributes"]


@pytest.mark.parametrize("attribute", [_attribute(DataType="Number", StringValue="1"), _attribute(StringValue="")])
def test_a_trace_header_that_is_no_filled_string_is_refused(service: Service, attribute: dict[str, str]) -> None:
    """SND-18: `its type must be String` (API_MessageSystemAttributeValue); AWS's text is not recorded."""
    url = service.standard_queue()

    with pytest.raises(AwsRefusal, match="AWSTraceHeader"):
        service.sqs("SendMessage", QueueUrl=url, MessageBody="m", MessageSystemAttributes={"AWSTraceHeader": attribute})
