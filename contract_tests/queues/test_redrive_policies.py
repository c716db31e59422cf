"""Which redrive policies a queue accepts, and how it refuses the others.

Texts are compared where AWS's answer was quoted; where only other emulators say a text, code and status are.
"""

import json

import pytest

from contract_tests.resources import QueueUnderTest, Resources, refusal


def _refused(queue: QueueUnderTest, policy: object) -> tuple[str, int, str]:
    """Set a redrive policy that must be refused."""
    text = policy if isinstance(policy, str) else json.dumps(policy)
    return refusal(queue.set_attributes, RedrivePolicy=text)


@pytest.mark.promise("DLQ-09")
def test_the_dlq_of_a_fifo_queue_must_be_a_fifo_queue(resources: Resources) -> None:
    """DLQ-09: a standard queue is refused, and the policy is quoted."""
    queue = resources.fifo_queue()
    policy = json.dumps({"deadLetterTargetArn": resources.standard_queue(hint="dlq").arn, "maxReceiveCount": 2})

    refused = _refused(queue, policy)

    assert refused == (
        "InvalidParameterValue",
        400,
        f"Value {policy} for parameter RedrivePolicy is invalid. "
        "Reason: Dead-letter queue must be same type of queue as the source..",  # two dots
    )


@pytest.mark.promise("DLQ-10")
def test_the_dlq_must_exist(resources: Resources) -> None:
    """DLQ-10: a queue of this account and Region that is not there is refused, and the policy is quoted."""
    queue = resources.fifo_queue()
    policy = json.dumps({"deadLetterTargetArn": queue.arn.removesuffix(".fifo") + "-absent.fifo", "maxReceiveCount": 2})

    refused = _refused(queue, policy)

    assert refused == (
        "InvalidParameterValue",
        400,
        f"Value {policy} for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist.",
    )


@pytest.mark.promise("DLQ-11")
def test_a_redrive_policy_needs_a_target_and_a_number(resources: Resources) -> None:
    """DLQ-11: without the one, without the other, and with a count that is not a number."""
    queue = resources.fifo_queue()
    dead_letters = resources.fifo_queue(hint="dlq")

    without_target = _refused(queue, {"maxReceiveCount": 2})
    without_count = _refused(queue, {"deadLetterTargetArn": dead_letters.arn})
    without_number = _refused(queue, {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": "two"})

    assert without_target[:2] == ("InvalidParameterValue", 400)
    assert without_count[:2] == ("InvalidParameterValue", 400)
    assert without_number[:2] == ("InvalidParameterValue", 400)


@pytest.mark.promise("DLQ-12")
def test_max_receive_count_is_1_to_1000(resources: Resources) -> None:
    """DLQ-12: the bounds are allowed, and what is outside is refused, also when the queue is made."""
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1000)

    too_low = _refused(queue, {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 0})
    too_high = _refused(queue, {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 1001})
    too_high_at_once = refusal(resources.fifo_queue, dead_letters=dead_letters, max_receive_count=1001)

    assert too_low[:2] == ("InvalidParameterValue", 400)
    assert too_high[:2] == ("InvalidParameterValue", 400)
    assert too_high_at_once[:2] == ("InvalidParameterValue", 400)


@pytest.mark.promise("DLQ-13")
def test_max_receive_count_may_be_a_string_and_comes_back_a_number(resources: Resources) -> None:
    """DLQ-13: `"3"` goes in, `3` comes out."""
    queue = resources.fifo_queue()
    dead_letters = resources.fifo_queue(hint="dlq")

    queue.set_attributes(RedrivePolicy=json.dumps({"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": "3"}))

    policy = json.loads(queue.attributes("RedrivePolicy")["RedrivePolicy"])
    assert policy == {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 3}


@pytest.mark.promise("DLQ-14")
def test_the_target_of_a_redrive_policy_must_be_an_arn(resources: Resources) -> None:
    """DLQ-14: a name is refused, before anybody looks for such a queue."""
    queue = resources.fifo_queue()

    refused = _refused(queue, {"deadLetterTargetArn": "dummy", "maxReceiveCount": 2})

    assert refused[:2] == ("InvalidParameterValue", 400)
    assert "does not exist" not in refused[2]


@pytest.mark.promise("DLQ-15")
def test_a_redrive_policy_is_a_json_object_of_two_keys(resources: Resources) -> None:
    """DLQ-15: no JSON, and a third key, are refused as values."""
    queue = resources.fifo_queue()
    dead_letters = resources.fifo_queue(hint="dlq")

    third_key = _refused(queue, {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 2, "more": 1})
    no_json = _refused(queue, "no JSON")

    assert third_key[:2] == ("InvalidParameterValue", 400)
    assert no_json[:2] == ("InvalidParameterValue", 400)


@pytest.mark.promise("DLQ-17")
def test_the_dlq_must_be_in_the_same_region(resources: Resources) -> None:
    """DLQ-17: the DLQ's ARN with another Region in it is refused."""
    queue = resources.fifo_queue()
    *service, _, account, name = resources.fifo_queue(hint="dlq").arn.split(":")
    elsewhere = ":".join([*service, "ap-southeast-4", account, name])

    refused = _refused(queue, {"deadLetterTargetArn": elsewhere, "maxReceiveCount": 2})

    assert refused[:2] == ("InvalidParameterValue", 400)


@pytest.mark.promise("DLQ-18")
def test_a_dlq_says_which_queues_may_name_it(resources: Resources) -> None:
    """DLQ-18: `byQueue` lets in the queues it lists, ten at most, and no other; `denyAll` lets in none."""
    listed, unlisted = resources.fifo_queue(), resources.fifo_queue()
    by_queue = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [listed.arn]})
    choosy = resources.fifo_queue(hint="dlq", RedriveAllowPolicy=by_queue)
    closed = resources.fifo_queue(hint="dlq", RedriveAllowPolicy=json.dumps({"redrivePermission": "denyAll"}))

    listed.set_attributes(RedrivePolicy=json.dumps({"deadLetterTargetArn": choosy.arn, "maxReceiveCount": 2}))
    refused = _refused(unlisted, {"deadLetterTargetArn": choosy.arn, "maxReceiveCount": 2})
    refused_by_closed = _refused(listed, {"deadLetterTargetArn": closed.arn, "maxReceiveCount": 2})
    eleven = {"redrivePermission": "byQueue", "sourceQueueArns": [f"{listed.arn}{number}" for number in range(11)]}
    too_many = refusal(choosy.set_attributes, RedriveAllowPolicy=json.dumps(eleven))
    unknown = refusal(choosy.set_attributes, RedriveAllowPolicy=json.dumps({"redrivePermission": "some"}))

    assert refused[:2] == ("InvalidParameterValue", 400)
    assert refused_by_closed[:2] == ("InvalidParameterValue", 400)
    assert [too_many[1], unknown[1]] == [400, 400]  # codes and texts are not recorded


@pytest.mark.promise("DLQ-19")
def test_a_dlq_lists_the_queues_that_name_it(resources: Resources) -> None:
    """DLQ-19: none at first, then both; the key is `queueUrls`, with a small q."""
    dead_letters = resources.fifo_queue(hint="dlq")
    none = dead_letters.sqs.list_dead_letter_source_queues(QueueUrl=dead_letters.url)["queueUrls"]
    first = resources.fifo_queue(dead_letters=dead_letters)
    second = resources.fifo_queue(dead_letters=dead_letters)

    both = dead_letters.sqs.list_dead_letter_source_queues(QueueUrl=dead_letters.url)["queueUrls"]

    assert none == []
    assert sorted(both) == sorted([first.url, second.url])
