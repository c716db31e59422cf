"""Attributes of a queue: those it is made with, those it reports, the changes it refuses; and its tags."""

import itertools
import json
from typing import Any

import pytest

from contract_tests.resources import (
    QueueUnderTest,
    Resources,
    bodies,
    invalid_parameter_value,
    refusal,
    require_accepted,
)
from contract_tests.targets.binding import Target
from sluice.clock import eventually


def _create(resources: Resources, **attributes: str) -> str:
    return resources.create(f"{resources.name('q')}.fifo", tags=None, FifoQueue="true", **attributes)


@pytest.mark.promise("CRE-01")
def test_a_fifo_queue_made_with_nothing_else_has_the_defaults(resources: Resources) -> None:
    queue = resources.fifo_queue()

    attributes = queue.attributes("All")

    times = ("CreatedTimestamp", "LastModifiedTimestamp")
    assert {name: value for name, value in attributes.items() if name not in times} == {
        "QueueArn": queue.arn,
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
        "DelaySeconds": "0",
        "VisibilityTimeout": "30",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "MaximumMessageSize": "1048576",
        "SqsManagedSseEnabled": "true",
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
    }


@pytest.mark.promise("CRE-02")
def test_the_default_maximum_message_size_is_a_mebibyte(resources: Resources) -> None:
    """Recordings before August 2025 say 262144."""
    queue = resources.fifo_queue()

    assert queue.attributes("MaximumMessageSize") == {"MaximumMessageSize": "1048576"}


@pytest.mark.promise("CRE-04")
def test_creating_a_queue_again_with_the_same_attributes_returns_its_url(resources: Resources) -> None:
    name = f"{resources.name('q')}.fifo"
    first = resources.create(name, FifoQueue="true", ContentBasedDeduplication="true")

    again = resources.create(name, FifoQueue="true", ContentBasedDeduplication="true")

    assert again == first


@pytest.mark.promise("CRE-05")
def test_creating_a_queue_again_with_another_attribute_is_refused(resources: Resources) -> None:
    name = f"{resources.name('q')}.fifo"
    resources.create(name, FifoQueue="true", ContentBasedDeduplication="true")

    assert refusal(resources.create, name, FifoQueue="true", ContentBasedDeduplication="false") == (
        "QueueAlreadyExists",
        400,
        "A queue already exists with the same name and a different value for attribute ContentBasedDeduplication",
    )


@pytest.mark.promise("CRE-06")
def test_creating_a_queue_again_without_attributes_returns_its_url(resources: Resources) -> None:
    name = f"{resources.name('q')}.fifo"
    first = resources.create(name, FifoQueue="true", ContentBasedDeduplication="true", VisibilityTimeout="7")

    again = resources.create(name)

    assert again == first


@pytest.mark.promise("CRE-07")
def test_a_standard_queue_is_made_by_leaving_fifo_queue_out(resources: Resources) -> None:
    refused = refusal(resources.create, resources.name("q"), FifoQueue="false")

    assert refused == ("InvalidAttributeName", 400, "Unknown Attribute FifoQueue.")
    assert "FifoQueue" not in resources.standard_queue().attributes("All")


@pytest.mark.promise("CRE-09")
def test_a_standard_queue_takes_no_fifo_attributes(resources: Resources) -> None:
    scope = refusal(resources.create, resources.name("q"), DeduplicationScope="queue")
    limit = refusal(resources.create, resources.name("q"), FifoThroughputLimit="perQueue")

    assert [scope, limit] == [
        ("InvalidAttributeName", 400, "You can specify the DeduplicationScope only when FifoQueue is set to true."),
        ("InvalidAttributeName", 400, "You can specify the FifoThroughputLimit only when FifoQueue is set to true."),
    ]


@pytest.mark.promise("CRE-10")
def test_a_fifo_queue_whose_name_lacks_the_suffix_is_refused(resources: Resources) -> None:
    refused = refusal(resources.create, resources.name("q"), FifoQueue="true")

    assert refused[:2] == ("InvalidParameterValue", 400)


@pytest.mark.promise("CRE-11")
def test_a_standard_queue_whose_name_has_the_suffix_is_refused(resources: Resources) -> None:
    refused = refusal(resources.create, f"{resources.name('q')}.fifo")

    assert refused[:2] == ("InvalidParameterValue", 400)


@pytest.mark.promise("CRE-12")
def test_a_queue_name_has_at_most_80_characters_and_no_slash(resources: Resources) -> None:
    stem = f"{resources.name('q')}-"

    longest = resources.create(f"{stem:x<75}.fifo", FifoQueue="true")
    too_long = refusal(resources.create, f"{stem:x<76}.fifo", FifoQueue="true")
    slash = refusal(resources.create, f"{stem}/x.fifo", FifoQueue="true")

    assert longest.endswith(f"/{stem:x<75}.fifo")
    assert [too_long[1], slash[1]] == [400, 400]  # codes and texts are not recorded


@pytest.mark.promise("CRE-13")
def test_a_standard_queue_does_not_know_the_attribute_fifo_queue(resources: Resources) -> None:
    queue = resources.standard_queue()

    refused = [refusal(queue.set_attributes, FifoQueue=value) for value in ("true", "false")]

    assert refused == [("InvalidAttributeName", 400, "Unknown Attribute FifoQueue.")] * 2


@pytest.mark.promise("CRE-14")
def test_a_fifo_queue_takes_fifo_queue_true_and_refuses_false(resources: Resources) -> None:
    queue = resources.fifo_queue()

    queue.set_attributes(FifoQueue="true")
    refused = refusal(queue.set_attributes, FifoQueue="false")

    assert queue.attributes("FifoQueue") == {"FifoQueue": "true"}
    assert refused == (
        "InvalidAttributeValue",
        400,
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    )


@pytest.mark.promise("CRE-28")
def test_a_queue_stays_of_the_type_it_was_made(resources: Resources) -> None:
    fifo, standard = resources.fifo_queue(), resources.standard_queue()

    refused = [
        refusal(fifo.set_attributes, FifoQueue="false"),
        refusal(standard.set_attributes, FifoQueue="true"),
    ]

    assert [status for _, status, _ in refused] == [400, 400]
    assert fifo.attributes("All")["FifoQueue"] == "true"
    assert "FifoQueue" not in standard.attributes("All")


@pytest.mark.promise("CRE-16")
def test_throughput_per_group_needs_deduplication_per_group(resources: Resources) -> None:
    together: dict[str, Any] = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}

    alone = refusal(_create, resources, FifoThroughputLimit="perMessageGroupId")
    queue = resources.fifo_queue(**together)

    assert alone[1] == 400
    assert queue.attributes(*together) == together


@pytest.mark.promise("CRE-17")
def test_deduplication_per_group_does_not_need_throughput_per_group(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="messageGroup")

    assert queue.attributes("DeduplicationScope", "FifoThroughputLimit") == {
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perQueue",
    }


@pytest.mark.promise("CRE-18")
def test_an_attribute_out_of_its_range_is_refused(resources: Resources) -> None:
    refused = [
        refusal(_create, resources, DelaySeconds="901"),
        refusal(_create, resources, MaximumMessageSize="1023"),
        refusal(_create, resources, MessageRetentionPeriod="59"),
        refusal(_create, resources, VisibilityTimeout="43201"),
        refusal(_create, resources, ReceiveMessageWaitTimeSeconds="21"),
    ]

    assert [status for _, status, _ in refused] == [400, 400, 400, 400, 400]


@pytest.mark.promise("CRE-20")
def test_a_deleted_queue_keeps_its_name_for_a_minute(resources: Resources) -> None:
    """AWS was seen to put a prefix before the code."""
    name = f"{resources.name('q')}.fifo"
    queue = resources.fifo_queue()
    url = resources.create(name, FifoQueue="true")
    queue.sqs.delete_queue(QueueUrl=url)

    code, status, text = refusal(resources.create, name, FifoQueue="true")

    assert code.endswith("QueueDeletedRecently")
    assert status == 400
    assert text == "You must wait 60 seconds after deleting a queue before you can create another with the same name."


@pytest.mark.promise("CRE-22")
def test_a_queue_that_is_not_there_is_refused_by_every_call(resources: Resources) -> None:
    """The text is that of the JSON protocol."""
    queue = resources.fifo_queue()
    name = f"{resources.name('nowhere')}.fifo"
    url = queue.url.replace(queue.name, name)

    refused = [
        refusal(queue.sqs.get_queue_url, QueueName=name),
        refusal(queue.sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["All"]),
        refusal(
            queue.sqs.send_message, QueueUrl=url, MessageBody="m1", MessageGroupId="g1", MessageDeduplicationId="m1"
        ),
        refusal(queue.sqs.receive_message, QueueUrl=url),
    ]

    expected = ("AWS.SimpleQueueService.NonExistentQueue", 400, "The specified queue does not exist.")
    assert refused == [expected, expected, expected, expected]


@pytest.mark.promise("CRE-26")
def test_a_queue_has_one_kind_of_encryption(resources: Resources) -> None:
    queue = resources.fifo_queue()

    assert refusal(queue.set_attributes, KmsMasterKeyId="alias/aws/sqs", SqsManagedSseEnabled="true") == (
        "InvalidAttributeName",
        400,
        "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.",
    )


@pytest.mark.promise("CRE-27")
def test_content_based_deduplication_can_be_switched_later(resources: Resources) -> None:
    queue = resources.fifo_queue()

    queue.set_attributes(ContentBasedDeduplication="true")
    switched_on = queue.attributes("ContentBasedDeduplication")
    queue.set_attributes(ContentBasedDeduplication="false")
    switched_off = queue.attributes("ContentBasedDeduplication")

    assert switched_on == {"ContentBasedDeduplication": "true"}
    assert switched_off == {"ContentBasedDeduplication": "false"}


@pytest.mark.promise("CRE-29")
def test_a_changed_visibility_timeout_holds_for_later_receives(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout="600")

    queue.set_attributes(VisibilityTimeout="1")
    queue.send_each("m1")
    first = queue.await_message()
    again = queue.await_message(visibility=600)

    assert again["MessageId"] == first["MessageId"]
    assert again["ReceiptHandle"] != first["ReceiptHandle"]


@pytest.mark.promise("CRE-30")
def test_a_changed_maximum_message_size_holds_for_later_sends(resources: Resources) -> None:
    queue = resources.fifo_queue(MaximumMessageSize="2048")

    queue.set_attributes(MaximumMessageSize="1024")
    refused = refusal(queue.send, "x" * 1025, id="m1")
    queue.set_attributes(MaximumMessageSize="1025")
    queue.send("x" * 1025, id="m2")

    assert refused[:2] == ("InvalidParameterValue", 400)
    assert bodies(queue.drain(1)) == ["x" * 1025]


@pytest.mark.promise("CRE-31")
def test_a_changed_wait_time_holds_for_later_receives(resources: Resources) -> None:
    queue = resources.fifo_queue()

    queue.set_attributes(ReceiveMessageWaitTimeSeconds="20")
    queue.send_each("m1")
    queue.await_message(visibility=1)
    waited_for = queue.sqs.receive_message(QueueUrl=queue.url).get("Messages", [])

    assert bodies(waited_for) == ["m1"]


@pytest.mark.slow
@pytest.mark.promise("CRE-32")
def test_a_shortened_retention_holds_for_messages_already_sent(resources: Resources, target: Target) -> None:
    shortened, unchanged = resources.fifo_queue(), resources.fifo_queue()
    shortened.send_each("m1")
    unchanged.send_each("m1")

    shortened.set_attributes(MessageRetentionPeriod="60")
    settling_seconds = 60 + target.retention_settles_seconds
    shortened.await_attributes({"ApproximateNumberOfMessages": "0"}, settling_seconds=settling_seconds)

    assert shortened.receive() == []
    assert bodies(unchanged.drain(1)) == ["m1"]


@pytest.mark.promise("CRE-33")
def test_a_changed_delay_holds_for_later_sends(resources: Resources) -> None:
    delayed, unchanged = resources.fifo_queue(), resources.fifo_queue()

    delayed.set_attributes(DelaySeconds="900")
    delayed.send_each("m1")
    unchanged.send_each("m1")

    assert bodies(unchanged.drain(1)) == ["m1"]
    assert delayed.receive() == []


@pytest.mark.promise("CRE-34")
def test_content_based_deduplication_that_is_switched_later_has_its_effect(resources: Resources) -> None:
    queue = resources.fifo_queue()

    queue.set_attributes(ContentBasedDeduplication="true")
    require_accepted(queue.send, "same body")
    require_accepted(queue.send, "same body")
    queue.set_attributes(ContentBasedDeduplication="false")
    refused = refusal(queue.send, "other body")

    assert refused[1] == 400
    assert bodies(queue.drain(1)) == ["same body"]


@pytest.mark.promise("CRE-46")
def test_a_queue_says_when_it_was_changed_last(resources: Resources) -> None:
    """LastModifiedTimestamp is compared to the second."""
    queue = resources.fifo_queue()
    (created_at,) = queue.attributes("LastModifiedTimestamp").values()
    seconds = itertools.count(1)

    def change_attributes() -> int:
        queue.set_attributes(DelaySeconds=str(next(seconds)))
        return int(queue.attributes("LastModifiedTimestamp")["LastModifiedTimestamp"])

    eventually(
        change_attributes,
        until=lambda changed_at: changed_at > int(created_at),
        timeout_seconds=queue.patience_seconds,
        describe=f"a change later than {created_at}",
        interval_seconds=0.5,
    )


@pytest.mark.promise("CRE-39")
def test_a_queue_keeps_its_kms_key_with_the_encryption_of_sqs_off(resources: Resources) -> None:
    queue = resources.fifo_queue()
    wanted = {"KmsMasterKeyId": "testKeyId", "KmsDataKeyReusePeriodSeconds": "6000", "SqsManagedSseEnabled": "false"}

    queue.set_attributes(**wanted)

    queue.await_attributes(wanted)


@pytest.mark.promise("CRE-40")
def test_a_queue_keeps_its_policy_until_an_empty_one_is_set(resources: Resources) -> None:
    queue = resources.fifo_queue()
    *_, account, _ = queue.arn.split(":")
    statement = {
        "Sid": "s1",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
        "Action": "sqs:SendMessage",
        "Resource": queue.arn,
    }
    queue.set_attributes(Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    kept = queue.attributes("All").get("Policy")

    queue.set_attributes(Policy="")

    assert kept is not None
    assert json.loads(kept)["Statement"][0]["Action"].lower() == "sqs:sendmessage"
    assert "Policy" not in queue.attributes("All")


@pytest.mark.promise("CRE-41")
def test_a_deleted_queue_is_gone_with_its_messages(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")

    queue.delete_queue()

    def is_gone() -> bool:
        try:
            queue.receive()
        except queue.sqs.exceptions.QueueDoesNotExist:
            return True
        return False

    eventually(is_gone, timeout_seconds=queue.patience_seconds, describe="the queue to be gone")


@pytest.mark.promise("CRE-42")
def test_names_of_queues_are_case_sensitive(resources: Resources) -> None:
    name = resources.name("q")

    small = resources.create(f"{name}.fifo", FifoQueue="true")
    capital = resources.create(f"{name.upper()}.fifo", FifoQueue="true")

    assert small.endswith(f"/{name}.fifo")
    assert capital.endswith(f"/{name.upper()}.fifo")


@pytest.mark.promise("SLU-42")
def test_delayed_messages_are_counted_apart(resources: Resources) -> None:
    queue = resources.fifo_queue(DelaySeconds="900")
    queue.send_each("m1", "m2")

    queue.await_attributes({"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesDelayed": "2"})

    assert queue.receive(most=10) == []


@pytest.mark.promise("SLU-43")
def test_only_the_attributes_asked_for_are_told(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout="7")

    two = queue.attributes("VisibilityTimeout", "FifoQueue")
    none = queue.sqs.get_queue_attributes(QueueUrl=queue.url)
    unknown = refusal(queue.sqs.get_queue_attributes, QueueUrl=queue.url, AttributeNames=["Colour"])

    assert two == {"VisibilityTimeout": "7", "FifoQueue": "true"}
    assert "Attributes" not in none
    assert unknown[1] == 400  # code and text are not recorded


@pytest.mark.promise("SLU-44")
def test_a_queue_is_found_by_its_name(resources: Resources) -> None:
    queue = resources.fifo_queue()
    other = resources.fifo_queue()

    found = queue.sqs.get_queue_url(QueueName=queue.name)["QueueUrl"]
    listed = queue.sqs.list_queues(QueueNamePrefix=queue.name.removesuffix(".fifo")).get("QueueUrls", [])

    assert found == queue.url
    assert listed == [queue.url]
    assert other.url != queue.url


@pytest.mark.promise("SLU-58")
def test_queues_are_listed_in_pages(resources: Resources) -> None:
    queues = [resources.fifo_queue(hint="page") for _ in range(3)]
    sqs = queues[0].sqs
    prefix = queues[0].name.rpartition("-")[0]

    first = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=2)
    token = first.get("NextToken")
    assert token is not None
    second = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=2, NextToken=token)

    assert len(first["QueueUrls"]) == 2
    assert "NextToken" not in second
    assert sorted(first["QueueUrls"] + second["QueueUrls"]) == sorted(queue.url for queue in queues)


@pytest.mark.promise("TAG-01")
def test_tags_are_kept_until_they_are_taken_off(resources: Resources) -> None:
    queue = resources.fifo_queue()

    before = queue.sqs.list_queue_tags(QueueUrl=queue.url)
    queue.sqs.tag_queue(QueueUrl=queue.url, Tags={"team": "orders", "empty": ""})
    tagged = queue.sqs.list_queue_tags(QueueUrl=queue.url)
    queue.sqs.tag_queue(QueueUrl=queue.url, Tags={"team": "billing", "stage": "test"})
    more = queue.sqs.list_queue_tags(QueueUrl=queue.url)
    queue.sqs.untag_queue(QueueUrl=queue.url, TagKeys=["team", "empty"])
    fewer = queue.sqs.list_queue_tags(QueueUrl=queue.url)
    queue.sqs.untag_queue(QueueUrl=queue.url, TagKeys=["stage"])
    after = queue.sqs.list_queue_tags(QueueUrl=queue.url)

    assert tagged.get("Tags") == {"team": "orders", "empty": ""}
    assert more.get("Tags") == {"team": "billing", "empty": "", "stage": "test"}
    assert fewer.get("Tags") == {"stage": "test"}
    assert "Tags" not in before
    assert "Tags" not in after


@pytest.mark.promise("TAG-17")
def test_tag_keys_are_case_sensitive_and_a_later_value_replaces_the_earlier(resources: Resources) -> None:
    queue = resources.fifo_queue()

    queue.sqs.tag_queue(QueueUrl=queue.url, Tags={"MyTag": "1", "mytag": "2", "other": "3"})
    queue.sqs.tag_queue(QueueUrl=queue.url, Tags={"mytag": "replaced"})
    queue.sqs.untag_queue(QueueUrl=queue.url, TagKeys=["other", "never there"])

    assert queue.sqs.list_queue_tags(QueueUrl=queue.url).get("Tags") == {"MyTag": "1", "mytag": "replaced"}


@pytest.mark.promise("TAG-03")
def test_tags_given_at_creation_are_there_at_once(resources: Resources) -> None:
    queue = resources.fifo_queue()

    url = resources.create(f"{resources.name('q')}.fifo", tags={"team": "orders"}, FifoQueue="true")

    assert queue.sqs.list_queue_tags(QueueUrl=url).get("Tags") == {"team": "orders"}


def _statements(queue: QueueUnderTest) -> list[dict[str, Any]]:
    """Return the statements of the policy of a queue."""
    answer = queue.sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["Policy"])
    policy = answer.get("Attributes", {}).get("Policy")
    return list(json.loads(policy)["Statement"]) if policy else []


@pytest.mark.promise("CRE-47")
def test_permissions_of_a_queue_come_and_go(resources: Resources) -> None:
    queue = resources.fifo_queue()
    account = queue.arn.split(":")[4]
    allowed = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{account}:root"}, "Resource": queue.arn}
    first = {"Sid": "first", "Action": "SQS:ReceiveMessage", **allowed}
    second = {"Sid": "second", "Action": "SQS:SendMessage", **allowed}

    for label, action in (("first", "ReceiveMessage"), ("second", "SendMessage")):
        queue.sqs.add_permission(QueueUrl=queue.url, Label=label, AWSAccountIds=[account], Actions=[action])
    assert _statements(queue) == [first, second]
    queue.sqs.remove_permission(QueueUrl=queue.url, Label="first")
    assert _statements(queue) == [second]
    queue.sqs.remove_permission(QueueUrl=queue.url, Label="second")
    assert _statements(queue) == []


@pytest.mark.promise("CRE-48")
def test_a_permission_that_is_not_there_cannot_be_removed(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = refusal(queue.sqs.remove_permission, QueueUrl=queue.url, Label="absent")

    assert refused == invalid_parameter_value("Value absent for parameter Label is invalid. Reason: can't find label.")


@pytest.mark.promise("CRE-51")
def test_two_permissions_of_a_queue_do_not_have_one_label(resources: Resources) -> None:
    queue = resources.fifo_queue()
    permission = {"QueueUrl": queue.url, "Label": "first", "AWSAccountIds": [queue.arn.split(":")[4]]}

    queue.sqs.add_permission(**permission, Actions=["ReceiveMessage"])
    refused = refusal(queue.sqs.add_permission, **permission, Actions=["SendMessage"])

    assert refused == invalid_parameter_value("Value first for parameter Label is invalid. Reason: Already exists.")


@pytest.mark.slow  # a name is free a minute after its queue was deleted [CRE-20]
@pytest.mark.promise("CRE-49")
def test_a_queue_that_is_made_again_has_nothing_of_the_one_before(resources: Resources, target: Target) -> None:
    queue = resources.fifo_queue(VisibilityTimeout="7")
    queue.sqs.tag_queue(QueueUrl=queue.url, Tags={"team": "before"})
    queue.send("before", id="same")
    deleted = target.clock.monotonic()
    queue.delete_queue()
    target.await_age(65, since=deleted)

    require_accepted(resources.create, queue.name, FifoQueue="true")
    queue.send("after", id="same")

    assert queue.sqs.list_queue_tags(QueueUrl=queue.url).get("Tags", {}) == {}
    assert queue.attributes("VisibilityTimeout") == {"VisibilityTimeout": "30"}
    assert bodies(queue.drain(1)) == ["after"]
