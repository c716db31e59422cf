"""Attributes of a FIFO topic, and those that cannot be changed."""

import json
from typing import Any

import pytest

from contract_tests.resources import Resources, TopicUnderTest, bodies, invalid_parameter, refusal, require_accepted
from sluice.clock import eventually


@pytest.mark.promise("SNS-01")
def test_a_fifo_topic_says_so_in_its_attributes_and_in_its_name(resources: Resources) -> None:
    sns = resources.fifo_topic().sns

    without_suffix = refusal(sns.create_topic, Name=resources.name("t"), Attributes={"FifoTopic": "true"})
    without_attribute = refusal(sns.create_topic, Name=f"{resources.name('t')}.fifo")
    too_long = refusal(sns.create_topic, Name="a" * 257 + ".fifo", Attributes={"FifoTopic": "true"})

    assert [without_suffix, without_attribute, too_long] == [invalid_parameter("Topic Name")] * 3


@pytest.mark.promise("SLU-46")
def test_a_topic_name_has_at_most_256_characters_with_its_suffix(resources: Resources) -> None:
    stem = f"{resources.name('t')}-"

    longest = resources.create_topic(f"{stem:x<251}.fifo", FifoTopic="true")
    too_long = refusal(resources.create_topic, f"{stem:x<252}.fifo", FifoTopic="true")

    assert longest.arn.endswith(f":{stem:x<251}.fifo")
    assert too_long[1] == 400  # code and text are recorded for a standard topic [SNS-01]


@pytest.mark.promise("SNS-04")
def test_a_fifo_topic_stays_one(resources: Resources) -> None:
    topic = resources.fifo_topic()

    assert refusal(topic.set_attribute, "FifoTopic", "false") == invalid_parameter("AttributeName")
    assert topic.attributes()["FifoTopic"] == "true"


@pytest.mark.promise("SNS-46")
def test_a_new_fifo_topic_deduplicates_by_id_and_has_no_subscription(resources: Resources) -> None:
    attributes = resources.fifo_topic().attributes()

    new = {
        "FifoTopic": "true",
        "ContentBasedDeduplication": "false",
        "SubscriptionsConfirmed": "0",
        "SubscriptionsPending": "0",
        "SubscriptionsDeleted": "0",
    }
    assert {name: attributes.get(name) for name in new} == new


@pytest.mark.promise("SNS-84")
def test_a_topic_counts_its_confirmed_subscriptions(resources: Resources) -> None:
    first, second = resources.fifo_queue(), resources.fifo_queue()

    topic = resources.fifo_topic(first, second)

    eventually(
        lambda: topic.attributes().get("SubscriptionsConfirmed"),
        until=lambda counted: counted == "2",
        timeout_seconds=first.patience_seconds,
        describe="the topic to count two subscriptions",
    )


@pytest.mark.promise("SNS-47")
def test_making_a_topic_again_answers_the_topic_there_is(resources: Resources) -> None:
    topic = resources.fifo_topic()
    name = topic.arn.rsplit(":", maxsplit=1)[-1]

    again = topic.sns.create_topic(Name=name, Attributes={"FifoTopic": "true"})["TopicArn"]

    assert again == topic.arn


@pytest.mark.promise("SNS-105")
def test_making_a_topic_again_with_other_attributes_is_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()
    name = topic.arn.rsplit(":", maxsplit=1)[-1]

    other = {"FifoTopic": "true", "ContentBasedDeduplication": "true"}
    refused = refusal(topic.sns.create_topic, Name=name, Attributes=other)

    assert refused == invalid_parameter("Attributes Reason: Topic already exists with different attributes")


@pytest.mark.promise("SNS-106")
def test_a_change_of_a_topic_attribute_has_an_effect(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)

    topic.set_attribute("ContentBasedDeduplication", "true")
    topic.set_attribute("MaximumMessageSize", "1024")

    longest = require_accepted(topic.publish, "a" * 1_024)
    repeat = require_accepted(topic.publish, "a" * 1_024)
    assert repeat["MessageId"] == longest["MessageId"]
    assert refusal(topic.publish, "b" * 1_025)[1] == 400
    assert bodies(queue.drain(1)) == ["a" * 1_024]


@pytest.mark.promise("SNS-48")
def test_making_a_topic_again_with_other_tags_is_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()
    name = topic.arn.rsplit(":", maxsplit=1)[-1]

    tags = [{"Key": "k1", "Value": "v1"}]
    refused = refusal(topic.sns.create_topic, Name=name, Attributes={"FifoTopic": "true"}, Tags=tags)

    assert refused == invalid_parameter("Tags Reason: Topic already exists with different tags")


@pytest.mark.promise("SNS-49")
def test_tags_of_a_topic_are_kept_replaced_and_removed(resources: Resources) -> None:
    topic = resources.fifo_topic()

    topic.sns.tag_resource(ResourceArn=topic.arn, Tags=[{"Key": "k1", "Value": "v1"}, {"Key": "k2", "Value": "v2"}])
    both = topic.sns.list_tags_for_resource(ResourceArn=topic.arn)["Tags"]
    topic.sns.untag_resource(ResourceArn=topic.arn, TagKeys=["k1"])
    removed = topic.sns.list_tags_for_resource(ResourceArn=topic.arn)["Tags"]
    topic.sns.tag_resource(ResourceArn=topic.arn, Tags=[{"Key": "k2", "Value": "v2b"}])
    replaced = topic.sns.list_tags_for_resource(ResourceArn=topic.arn)["Tags"]

    assert sorted(both, key=str) == [{"Key": "k1", "Value": "v1"}, {"Key": "k2", "Value": "v2"}]
    assert removed == [{"Key": "k2", "Value": "v2"}]
    assert replaced == [{"Key": "k2", "Value": "v2b"}]


@pytest.mark.promise("SNS-50")
def test_two_tags_of_one_key_are_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()
    twice = [{"Key": "k1", "Value": "v1"}, {"Key": "k1", "Value": "v2"}]

    assert refusal(topic.sns.tag_resource, ResourceArn=topic.arn, Tags=twice) == invalid_parameter(
        "Duplicated keys are not allowed."
    )


@pytest.mark.promise("SNS-90")
def test_content_based_deduplication_of_a_topic_can_be_switched_later(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)

    topic.set_attribute("ContentBasedDeduplication", "true")
    require_accepted(topic.publish, "same body")
    require_accepted(topic.publish, "same body")
    topic.set_attribute("ContentBasedDeduplication", "false")
    refused = refusal(topic.publish, "other body")

    assert refused[1] == 400
    assert bodies(queue.drain(1)) == ["same body"]


@pytest.mark.promise("SNS-51")
def test_the_scope_of_deduplication_is_one_of_two(resources: Resources) -> None:
    topic = resources.fifo_topic(FifoThroughputScope="MessageGroup")

    assert refusal(topic.set_attribute, "FifoThroughputScope", "Queue")[1] == 400  # code and text are not recorded
    assert topic.attributes().get("FifoThroughputScope") == "MessageGroup"


@pytest.mark.promise("SNS-30")
def test_a_topic_takes_messages_of_the_size_it_declares(resources: Resources) -> None:
    largest = resources.fifo_topic(MaximumMessageSize="1048576")
    smallest = resources.fifo_topic(MaximumMessageSize="1024")

    published = [
        require_accepted(largest.publish, "a" * 1_048_576, id="m1"),
        require_accepted(smallest.publish, "a" * 1_024, id="m1"),
    ]
    refused = [
        refusal(largest.publish, "a" * 1_048_577, id="m2"),
        refusal(smallest.publish, "a" * 1_025, id="m2"),
    ]

    assert all(answer["MessageId"] for answer in published)
    assert [status for _, status, _ in refused] == [400, 400]  # codes and texts are not recorded


@pytest.mark.promise("SNS-40")
def test_an_archive_keeps_messages_for_1_to_365_days(resources: Resources) -> None:
    topic = resources.fifo_topic(ArchivePolicy='{"MessageRetentionPeriod": "30"}')

    too_short = refusal(topic.set_attribute, "ArchivePolicy", '{"MessageRetentionPeriod": "0"}')
    too_long = refusal(topic.set_attribute, "ArchivePolicy", '{"MessageRetentionPeriod": "366"}')

    assert [too_short[1], too_long[1]] == [400, 400]  # codes and texts are not recorded
    attributes = topic.attributes()
    assert json.loads(attributes["ArchivePolicy"]) == {"MessageRetentionPeriod": "30"}
    assert "BeginningArchiveTime" in attributes


@pytest.mark.promise("SNS-41")
def test_a_topic_with_an_archive_cannot_be_deleted(resources: Resources) -> None:
    topic = resources.fifo_topic(ArchivePolicy='{"MessageRetentionPeriod": "30"}')

    refused = refusal(topic.sns.delete_topic, TopicArn=topic.arn)

    assert refused == ("InvalidState", 400, "Invalid state: Cannot delete a topic with an ArchivePolicy")
    assert topic.attributes()["ArchivePolicy"] != "{}"


def _statements(topic: TopicUnderTest) -> list[dict[str, Any]]:
    """Return the statements of the policy of a topic."""
    return list(json.loads(topic.attributes().get("Policy", '{"Statement": []}'))["Statement"])


def _permit(topic: TopicUnderTest, label: str, *actions: str) -> None:
    """Allow the topic's own account some actions."""
    account = topic.arn.split(":")[4]
    topic.sns.add_permission(TopicArn=topic.arn, Label=label, AWSAccountId=[account], ActionName=list(actions))


@pytest.mark.promise("SNS-146")
def test_permissions_of_a_topic_come_and_go(resources: Resources) -> None:
    topic = resources.fifo_topic()

    _permit(topic, "one", "Publish")
    _permit(topic, "two", "Publish", "Subscribe")
    added = _statements(topic)[-2:]
    topic.sns.remove_permission(TopicArn=topic.arn, Label="one")

    root = {"AWS": f"arn:aws:iam::{topic.arn.split(':')[4]}:root"}
    allowed = {"Effect": "Allow", "Principal": root, "Resource": topic.arn}
    publish = {"Sid": "one", "Action": "SNS:Publish", **allowed}
    both = {"Sid": "two", "Action": ["SNS:Publish", "SNS:Subscribe"], **allowed}
    assert added == [publish, both]
    assert [statement["Sid"] for statement in _statements(topic)] == ["__default_statement_ID", "two"]


@pytest.mark.promise("SNS-147")
def test_a_permission_of_a_topic_is_checked(resources: Resources) -> None:
    topic = resources.fifo_topic()
    absent = TopicUnderTest(topic.sns, topic.arn.removesuffix(".fifo") + "-absent.fifo")
    _permit(topic, "one", "Publish")

    refused = [
        refusal(_permit, topic, "one", "AddPermission"),
        refusal(_permit, topic, "two", "InvalidAction"),
        refusal(_permit, absent, "two", "AddPermission"),
        refusal(topic.sns.remove_permission, TopicArn=absent.arn, Label="one"),
    ]

    assert refused == [
        invalid_parameter("Statement already exists"),
        invalid_parameter("Policy statement action out of service scope!"),
        ("NotFound", 404, "Topic does not exist"),
        ("NotFound", 404, "Topic does not exist"),
    ]


@pytest.mark.promise("SNS-148")
def test_a_recreated_topic_has_no_tags_of_its_predecessor(resources: Resources) -> None:
    name = f"{resources.name('t')}.fifo"
    topic = resources.create_topic(name, FifoTopic="true")
    topic.sns.tag_resource(ResourceArn=topic.arn, Tags=[{"Key": "k1", "Value": "v1"}, {"Key": "k2", "Value": "v2"}])
    topic.sns.delete_topic(TopicArn=topic.arn)

    again = resources.create_topic(name, FifoTopic="true")

    assert again.arn == topic.arn
    assert again.sns.list_tags_for_resource(ResourceArn=again.arn)["Tags"] == []


@pytest.mark.promise("SNS-149")
def test_a_new_topic_has_a_policy_for_its_owner_and_for_deliveries(resources: Resources) -> None:
    topic = resources.fifo_topic()

    attributes = topic.attributes()

    assert json.loads(attributes.get("Policy", "{}")) == {
        "Version": "2008-10-17",
        "Id": "__default_policy_ID",
        "Statement": [
            {
                "Sid": "__default_statement_ID",
                "Effect": "Allow",
                "Principal": {"AWS": "*"},
                "Action": [
                    "SNS:GetTopicAttributes",
                    "SNS:SetTopicAttributes",
                    "SNS:AddPermission",
                    "SNS:RemovePermission",
                    "SNS:DeleteTopic",
                    "SNS:Subscribe",
                    "SNS:ListSubscriptionsByTopic",
                    "SNS:Publish",
                ],
                "Resource": topic.arn,
                "Condition": {"StringEquals": {"AWS:SourceOwner": topic.arn.split(":")[4]}},
            }
        ],
    }
    assert json.loads(attributes.get("EffectiveDeliveryPolicy", "{}")) == {
        "http": {
            "defaultHealthyRetryPolicy": {
                "minDelayTarget": 20,
                "maxDelayTarget": 20,
                "numRetries": 3,
                "numMaxDelayRetries": 0,
                "numNoDelayRetries": 0,
                "numMinDelayRetries": 0,
                "backoffFunction": "linear",
            },
            "disableSubscriptionOverrides": False,
            "defaultRequestPolicy": {"headerContentType": "text/plain; charset=UTF-8"},
        }
    }


@pytest.mark.promise("SNS-157")
def test_a_policy_that_is_set_replaces_the_one_before(resources: Resources) -> None:
    topic = resources.fifo_topic()
    only_publish = {
        "Sid": "only-publish",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{topic.arn.split(':')[4]}:root"},
        "Action": "SNS:Publish",
        "Resource": topic.arn,
    }

    topic.set_attribute("Policy", json.dumps({"Version": "2012-10-17", "Statement": [only_publish]}))

    assert [statement["Sid"] for statement in _statements(topic)] == ["only-publish"]
