"""Recordings of services that a test writes call by call, each with the verdict that AWS's rules require."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sluice.judge.checker.verdict import PropertyStatus, Verdict
from tests.support.histories.written_services import GROUP, WrittenService

_OF_KIND_A = {"kind": ["a"]}
_LONGER_THAN_A_FILTER_NEEDS_SECONDS = 901.0

type _Life = Callable[[WrittenService], None]


def _see_subscription(service: WrittenService, arn: str) -> None:
    """Let the producer read a subscription, so that its filter policy is recorded."""
    service.producer.sns.get_subscription_attributes(SubscriptionArn=arn)


def _set_filter(service: WrittenService, arn: str, policy: Mapping[str, Any]) -> None:
    """Let the producer give a subscription a filter policy."""
    name = "FilterPolicy"
    service.producer.sns.set_subscription_attributes(
        SubscriptionArn=arn, AttributeName=name, AttributeValue=json.dumps(policy)
    )


def _publish_two_kinds(service: WrittenService, url: str) -> None:
    """Publish messages of kinds a and b in turn, and handle all messages of the queue."""
    for number in range(6):
        service.publish(number, "ab"[number % 2])
    service.work(url)


def _publish_and_lose(service: WrittenService, url: str, kind: str | None = None) -> None:
    """Publish nine messages, of which SNS loses each third, and handle all messages of the queue."""
    service.sabotage("drop-messages", every=3)
    for number in range(9):
        service.publish(number, kind)
    service.work(url)


# --- filter policies: what never came ----------------------------------------------------------------------------


def _subscribe_with_filter(service: WrittenService) -> None:
    url = service.create_queue()
    service.record()
    service.subscribe(url, _OF_KIND_A)
    _publish_two_kinds(service, url)


def _read_the_filter(service: WrittenService) -> None:
    url = service.create_queue()
    arn = service.subscribe(url, _OF_KIND_A)
    service.record()
    _see_subscription(service, arn)
    _publish_two_kinds(service, url)


def _filter_bodies(service: WrittenService) -> None:
    url = service.create_queue()
    service.record()
    service.subscribe(url, {"n": [{"numeric": [">", 2]}]}, FilterPolicyScope="MessageBody")
    for number in range(6):
        service.publish(number, Message=json.dumps({"n": number}))
    service.publish(9, Message="no JSON")
    service.publish(10, Message='{"n": 7}')
    service.work(url)


def _set_the_filter_long_before(service: WrittenService) -> None:
    url = service.create_queue()
    arn = service.subscribe(url)
    service.record()
    _see_subscription(service, arn)
    _set_filter(service, arn, _OF_KIND_A)
    service.wait(_LONGER_THAN_A_FILTER_NEEDS_SECONDS)
    _publish_two_kinds(service, url)


def _filter_behind_a_dead_letter(service: WrittenService) -> None:
    """The filter lets no later message into the queue, so the group has nothing to continue with (D4)."""
    url = service.create_queue(receives_max=1)
    service.record()
    service.subscribe(url, _OF_KIND_A)
    service.publish(0, "a")
    service.exhaust(url, 1)
    service.work(service.dead_url(url))
    for number in (1, 2):
        service.publish(number, "b")
    for _ in range(6):
        service.receive(url, WaitTimeSeconds=20)


def _filter_that_nobody_saw(service: WrittenService) -> None:
    url = service.create_queue()
    service.subscribe(url, _OF_KIND_A)
    service.record()
    _publish_two_kinds(service, url)


def _subscribe_meanwhile(service: WrittenService) -> None:
    url = service.create_queue()
    service.record()
    for number in range(3):
        service.publish(number)
    service.subscribe(url)
    service.publish(3)
    service.work(url)


def _change_the_filter_just_before(service: WrittenService) -> None:
    """SNS may use the old filter policy for another fifteen minutes."""
    url = service.create_queue()
    arn = service.subscribe(url)
    service.record()
    _see_subscription(service, arn)
    _set_filter(service, arn, _OF_KIND_A)
    _publish_two_kinds(service, url)


def _change_the_filter_in_another_process(service: WrittenService) -> None:
    url = service.create_queue()
    arn = service.subscribe(url)
    service.record(service.producer, service.consumer, service.operator)
    _see_subscription(service, arn)
    service.operator.sns.set_subscription_attributes(
        SubscriptionArn=arn, AttributeName="FilterPolicy", AttributeValue=json.dumps(_OF_KIND_A)
    )
    _publish_two_kinds(service, url)


def _repeat_what_the_filter_excluded(service: WrittenService) -> None:
    """The topic drops the repeat, whose attribute the filter policy would accept (DED-10)."""
    url = service.create_queue()
    service.record()
    service.subscribe(url, _OF_KIND_A)
    service.wait(_LONGER_THAN_A_FILTER_NEEDS_SECONDS)
    for kind in ("b", "a"):
        service.publish(0, kind)
    service.publish(1, "a")
    service.work(url)


def _lose_what_the_filter_accepts(service: WrittenService) -> None:
    url = service.create_queue()
    service.record()
    service.subscribe(url, _OF_KIND_A)
    _publish_and_lose(service, url, "a")


def _lose_without_a_filter(service: WrittenService) -> None:
    url = service.create_queue()
    arn = service.subscribe(url)
    service.record()
    _see_subscription(service, arn)
    _publish_and_lose(service, url)


def _lose_from_an_unseen_subscription(service: WrittenService) -> None:
    url = service.create_queue()
    service.subscribe(url)
    service.record()
    _publish_and_lose(service, url)


def _lose_what_was_sent_directly(service: WrittenService) -> None:
    """A filter policy does not concern messages that are sent directly to a queue."""
    url = service.create_queue()
    service.subscribe(url, _OF_KIND_A)
    service.record()
    service.sabotage("drop-messages", every=3)
    for number in range(9):
        service.send(url, number)
    service.work(url)


def _reorder_beside_a_filter(service: WrittenService) -> None:
    url = service.create_queue()
    service.subscribe(url, _OF_KIND_A)
    service.record()
    service.sabotage("reverse-batch", every=1)
    _publish_two_kinds(service, url)


# --- settings that change, and queues that are made again ----------------------------------------------------------


def _shorten_the_visibility_timeout(service: WrittenService) -> None:
    url = service.create_queue(seconds=30)
    service.record()
    service.send(url, 0)
    service.producer.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "5"})
    service.receive(url)
    service.wait(6)
    service.work(url)


def _confirm_the_visibility_timeout(service: WrittenService) -> None:
    """A program that sets its queue's attributes at each start changes nothing."""
    url = service.create_queue(seconds=30)
    service.record()
    service.producer.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "30"})
    service.send(url, 0)
    service.sabotage("ignore-delete", every=1)
    service.delete(url, service.receive(url)[0])
    service.wait(31)
    service.receive(url)


def _lower_the_receive_count(service: WrittenService) -> None:
    url = service.create_queue(receives_max=3)
    service.record()
    service.send(url, 0)
    sqs = service.producer.sqs
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]["RedrivePolicy"]
    changed = json.dumps(json.loads(policy) | {"maxReceiveCount": 1})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": changed})
    service.exhaust(url, 1)
    service.work(service.dead_url(url))


def _remove_the_redrive_policy(service: WrittenService) -> None:
    url = service.create_queue(receives_max=1)
    service.record()
    service.send(url, 0)
    service.receive(url, VisibilityTimeout=0)
    service.producer.sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    service.work(url)


def _shorten_the_retention(service: WrittenService) -> None:
    url = service.create_queue()
    service.record()
    service.producer.sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "60"})
    service.send(url, 0)
    service.wait(61)
    service.send(url, 1)
    service.work(url)


def _make_the_queue_again(service: WrittenService) -> None:
    """The new queue has the old name, begins with sequence number one, and has seen no deduplication id."""
    url = service.create_queue()
    service.record()
    for number in range(4):
        service.send(url, number)
    service.receive(url, 2)
    service.producer.sqs.delete_queue(QueueUrl=url)
    service.wait(61)
    url = service.create_queue()
    for number in range(2, 7):
        service.send(url, number)
    service.work(url)


def _reorder_in_the_queue_made_again(service: WrittenService) -> None:
    """All messages were in the new queue, so the deletion of the old one does not explain their order."""
    url = service.create_queue()
    service.record()
    service.send(url, 0)
    service.producer.sqs.delete_queue(QueueUrl=url)
    service.wait(61)
    url = service.create_queue()
    service.sabotage("reverse-batch", every=1)
    for number in range(10, 14):
        service.send(url, number)
    service.work(url)


# --- copies that a consumer sends to another queue -----------------------------------------------------------------


def _send_copies(service: WrittenService, source: str, target: str, **changes: Any) -> None:
    """Move two messages to another queue: by a copy with the old deduplication id and one more attribute."""
    for message in service.receive(source, 2):
        attributes = {**message["MessageAttributes"], "reason": {"DataType": "String", "StringValue": "bad"}}
        id_ = message["Attributes"]["MessageDeduplicationId"]
        copy = {"MessageBody": message["Body"], "MessageAttributes": attributes, "MessageDeduplicationId": id_}
        service.send(target, 0, by=service.consumer, **{**copy, **changes})
        service.delete(source, message)


def _quarantine_whole(service: WrittenService) -> None:
    url, quarantine = service.create_queue(), service.create_queue("quarantine.fifo")
    service.record()
    for number in range(4):
        service.send(url, number, "a")
    _send_copies(service, url, quarantine)
    service.work(url, quarantine)


def _quarantine_what_is_older(service: WrittenService) -> None:
    url, quarantine = service.create_queue(), service.create_queue("quarantine.fifo")
    for number in range(4):
        service.send(url, number, "a")
    service.wait(20)
    service.record()
    _send_copies(service, url, quarantine, MessageBody="wrapped")
    service.work(url, quarantine)


def _quarantine_past_the_recorder(service: WrittenService) -> None:
    """The copy's deduplication id is the first message's message id, as for a dead letter."""
    url, quarantine = service.create_queue(), service.create_queue("quarantine.fifo")
    service.record()
    service.send(url, 0, "a")
    (message,) = service.receive(url)
    service.send(quarantine, 0, by=service.operator, MessageDeduplicationId=message["MessageId"])
    service.delete(url, message)
    service.work(quarantine)


def _send_a_dead_letter_back(service: WrittenService) -> None:
    url = service.create_queue(receives_max=1)
    service.record()
    service.send(url, 0, "a")
    service.exhaust(url, 1)
    _send_copies(service, service.dead_url(url), url)
    service.work(url, service.dead_url(url))


def _send_an_older_dead_letter_back(service: WrittenService) -> None:
    url = service.create_queue(receives_max=1)
    service.send(url, 0, "a")
    service.exhaust(url, 1)
    service.wait(20)
    service.record()
    _send_copies(service, service.dead_url(url), url)
    service.work(url, service.dead_url(url))


# --- a consumer that is not recorded -------------------------------------------------------------------------------


def _receive_past_the_recorder(service: WrittenService) -> None:
    """Another consumer receives a message and releases it, which the message's receive count shows later."""
    url = service.create_queue()
    service.record()
    service.wait(2)
    service.send(url, 0)
    service.operator.sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)
    service.work(url)


# --- batches, and dead letters ------------------------------------------------------------------------------------


def _reverse_a_batch(service: WrittenService) -> None:
    """The queue numbers the entries of a batch from the last to the first, and delivers them by number."""
    url = service.create_queue()
    service.record()
    service.sabotage("reverse-batch-sends", every=1)
    entries = [
        {"Id": id_, "MessageBody": f"body {id_}", "MessageGroupId": GROUP, "MessageDeduplicationId": id_}
        for id_ in "abc"
    ]
    service.producer.sqs.send_message_batch(QueueUrl=url, Entries=entries)
    service.work(url)


def _reverse_dead_letters(service: WrittenService) -> None:
    """Three messages are received in one answer, die in one receive, and leave the DLQ in one answer."""
    url = service.create_queue(receives_max=1)
    service.record()
    for number in range(3):
        service.send(url, number)
    service.exhaust(url, 1)
    service.sabotage("reverse-batch", every=1)
    service.work(service.dead_url(url))


def _receive_a_deleted_dead_letter(service: WrittenService, **params: int) -> None:
    url = service.create_queue(receives_max=1)
    service.record()
    service.send(url, 0)
    service.exhaust(url, 1)
    service.sabotage("ignore-delete", every=1)
    dead_url = service.dead_url(url)
    service.delete(dead_url, service.receive(dead_url, **params)[0])
    service.wait(31)
    service.receive(dead_url)


def _receive_a_deleted_dead_letter_with_a_timeout(service: WrittenService) -> None:
    _receive_a_deleted_dead_letter(service, VisibilityTimeout=30)


# --- attributes that are lost --------------------------------------------------------------------------------------


def _lose_all_attributes(service: WrittenService) -> None:
    """The receive asks for all attributes, so none is an answer."""
    url = service.create_queue()
    service.record()
    service.sabotage("drop-message-attributes", every=1)
    service.send(url, 0, "a")
    service.work(url)


def _lose_all_attributes_in_the_dead_letter_queue(service: WrittenService) -> None:
    url = service.create_queue(receives_max=1)
    service.record()
    service.send(url, 0, "a")
    service.exhaust(url, 1)
    service.sabotage("drop-message-attributes", every=1)
    service.work(service.dead_url(url))


def _lose_all_attributes_of_a_message_that_dies(service: WrittenService) -> None:
    """The attributes are missing in the queue and in its DLQ, so that the two agree."""
    url = service.create_queue(receives_max=1)
    service.record()
    service.sabotage("drop-message-attributes", every=1)
    service.send(url, 0, "a")
    service.exhaust(url, 1)
    service.work(service.dead_url(url))


def _find_attributes_in_the_envelope(service: WrittenService) -> None:
    url = service.create_queue()
    service.subscribe(url, RawMessageDelivery="false")
    service.record()
    service.publish(0, "a")
    service.work(url)


def _ask_for_no_attributes(service: WrittenService) -> None:
    url = service.create_queue()
    service.record()
    service.send(url, 0, "a")
    for message in service.receive(url, MessageAttributeNames=["other"]):
        service.delete(url, message)


_VALID: tuple[_Life, ...] = (
    _find_attributes_in_the_envelope,
    _ask_for_no_attributes,
    _subscribe_with_filter,
    _read_the_filter,
    _filter_bodies,
    _set_the_filter_long_before,
    _filter_behind_a_dead_letter,
    _quarantine_whole,
    _send_a_dead_letter_back,
)
_UNKNOWN: Mapping[_Life, str] = {
    _filter_that_nobody_saw: "nothing on record says that they are for it",
    _subscribe_meanwhile: "nothing on record says that they are for it",
    _change_the_filter_just_before: "nothing on record says that they are for it",
    _change_the_filter_in_another_process: "another process changed the subscription",
    _repeat_what_the_filter_excluded: "nothing on record says that they are for it",
    _lose_from_an_unseen_subscription: "nothing on record says that they are for it",
    _shorten_the_visibility_timeout: "q.fifo got other settings meanwhile, and on these rests whether it shows B7",
    _lower_the_receive_count: "q.fifo got other settings meanwhile, and on these rests whether it shows F1",
    _remove_the_redrive_policy: "q.fifo got other settings meanwhile, and on these rests whether it shows F2",
    _shorten_the_retention: "its retention may have ended",
    _make_the_queue_again: "its queue was deleted meanwhile, and another has its name",
    _quarantine_what_is_older: "before the recording began, or was not recorded, rests whether it shows A4",
    _receive_past_the_recorder: "another consumer may have had its messages; record it, or say --other-consumers",
    _receive_a_deleted_dead_letter: "on the visibility timeout there rests whether it shows A8",
    _send_an_older_dead_letter_back: "before the recording began, or was not recorded, rests whether it shows A4",
}
_INVALID: Mapping[_Life, set[str]] = {
    _lose_all_attributes: {"G3"},
    _lose_all_attributes_in_the_dead_letter_queue: {"F6"},
    _lose_all_attributes_of_a_message_that_dies: {"F6", "G3"},
    _lose_what_the_filter_accepts: {"A2"},
    _lose_without_a_filter: {"A2"},
    _lose_what_was_sent_directly: {"A2"},
    _reorder_beside_a_filter: {"C2"},
    _confirm_the_visibility_timeout: {"A8"},
    _reorder_in_the_queue_made_again: {"C2"},
    _reverse_a_batch: {"C5"},
    _reverse_dead_letters: {"F7"},
    _receive_a_deleted_dead_letter_with_a_timeout: {"A8"},
}


def _name(life: object) -> str:
    return getattr(life, "__name__", "")


def _judge(life: _Life, folder: Path, **options: bool) -> Verdict:
    service = WrittenService(folder)
    life(service)
    return service.check(**options)


@pytest.mark.parametrize("life", _VALID, ids=_name)
def test_a_lawful_service_is_valid(life: _Life, tmp_path: Path) -> None:
    verdict = _judge(life, tmp_path)

    assert verdict.status is PropertyStatus.VALID, verdict.unknowns


@pytest.mark.parametrize("life", _UNKNOWN, ids=_name)
def test_an_open_question_has_its_reason(life: _Life, tmp_path: Path) -> None:
    verdict = _judge(life, tmp_path)

    assert verdict.violations == ()
    assert verdict.status is PropertyStatus.UNKNOWN
    assert _UNKNOWN[life] in "\n".join(verdict.unknowns)


@pytest.mark.parametrize("life", _INVALID, ids=_name)
def test_a_violation_is_found_beside_lawful_circumstances(life: _Life, tmp_path: Path) -> None:
    verdict = _judge(life, tmp_path)

    assert {violation.anomaly for violation in verdict.violations} == _INVALID[life]


def test_queues_declared_unfiltered_lose_what_never_came(tmp_path: Path) -> None:
    verdict = _judge(_lose_from_an_unseen_subscription, tmp_path, is_unfiltered=True)

    assert {violation.anomaly for violation in verdict.violations} == {"A2"}


def test_a_declared_consumer_explains_the_receives_that_are_not_on_record(tmp_path: Path) -> None:
    verdict = _judge(_receive_past_the_recorder, tmp_path, has_other_consumers=True)

    assert verdict.status is PropertyStatus.VALID


def test_beside_other_producers_a_copy_may_be_theirs(tmp_path: Path) -> None:
    verdict = _judge(_quarantine_past_the_recorder, tmp_path, has_other_producers=True)

    assert verdict.violations == ()
    assert verdict.unknowns == (f"group {GROUP}: 1 message(s) received whose publishing may not be on record",)
