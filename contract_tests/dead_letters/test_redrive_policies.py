"""Redrive policies that a queue accepts, and its refusals of others.

Where AWS's answer is recorded, code and text are compared; else only the HTTP status.
"""

import json

import pytest

from contract_tests.resources import QueueUnderTest, Resources, invalid_parameter_value, refusal, require_accepted

_INVALID = ("InvalidParameterValue", 400)


def _set_refused_policy(queue: QueueUnderTest, policy: object) -> tuple[str, int, str]:
    """Set a redrive policy that the queue has to refuse; return the refusal."""
    text = policy if isinstance(policy, str) else json.dumps(policy)
    return refusal(queue.set_attributes, RedrivePolicy=text)


@pytest.mark.promise("DLQ-09")
def test_the_dlq_of_a_fifo_queue_must_be_a_fifo_queue(resources: Resources) -> None:
    queue = resources.fifo_queue()
    policy = json.dumps({"deadLetterTargetArn": resources.standard_queue(hint="dlq").arn, "maxReceiveCount": 2})

    refused = _set_refused_policy(queue, policy)

    assert refused == invalid_parameter_value(
        f"Value {policy} for parameter RedrivePolicy is invalid. "
        "Reason: Dead-letter queue must be same type of queue as the source.."  # ends with two dots
    )


@pytest.mark.promise("DLQ-10")
def test_the_dlq_must_exist(resources: Resources) -> None:
    queue = resources.fifo_queue()
    policy = json.dumps({"deadLetterTargetArn": queue.arn.removesuffix(".fifo") + "-absent.fifo", "maxReceiveCount": 2})

    refused = _set_refused_policy(queue, policy)

    assert refused == invalid_parameter_value(
        f"Value {policy} for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist."
    )


@pytest.mark.promise("DLQ-11")
def test_a_redrive_policy_needs_a_target_and_a_number(resources: Resources) -> None:
    queue = resources.fifo_queue()
    dead_letters = resources.fifo_queue(hint="dlq")

    refused = [
        _set_refused_policy(queue, {"maxReceiveCount": 2}),
        _set_refused_policy(queue, {"deadLetterTargetArn": dead_letters.arn}),
        _set_refused_policy(queue, {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": "two"}),
    ]

    assert [answer[:2] for answer in refused] == [_INVALID] * 3


@pytest.mark.promise("DLQ-12")
def test_max_receive_count_is_1_to_1000(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1000)

    refused = [
        _set_refused_policy(queue, {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 0}),
        _set_refused_policy(queue, {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 1001}),
        refusal(resources.fifo_queue, dead_letters=dead_letters, max_receive_count=1001),
    ]

    assert [status for _, status, _ in refused] == [400, 400, 400]  # codes and texts are not recorded


@pytest.mark.promise("DLQ-13")
def test_max_receive_count_may_be_a_string_and_numbers_stay_numbers(resources: Resources) -> None:
    """It is not recorded whether a string comes back as a string or a number [DLQ-40]."""
    queue = resources.fifo_queue()
    dead_letters = resources.fifo_queue(hint="dlq")

    require_accepted(
        queue.set_attributes,
        RedrivePolicy=json.dumps({"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": "3"}),
    )
    as_string = json.loads(queue.attributes("RedrivePolicy")["RedrivePolicy"])
    queue.set_attributes(RedrivePolicy=json.dumps({"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 4}))
    as_number = json.loads(queue.attributes("RedrivePolicy")["RedrivePolicy"])

    assert int(as_string["maxReceiveCount"]) == 3
    assert as_number == {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 4}


@pytest.mark.promise("DLQ-14")
def test_the_target_of_a_redrive_policy_must_be_an_arn(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = _set_refused_policy(queue, {"deadLetterTargetArn": "dummy", "maxReceiveCount": 2})

    assert refused[1] == 400  # code and text are not recorded


@pytest.mark.promise("DLQ-15")
def test_a_redrive_policy_is_a_json_object_of_two_keys(resources: Resources) -> None:
    queue = resources.fifo_queue()
    dead_letters = resources.fifo_queue(hint="dlq")

    third_key = _set_refused_policy(queue, {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 2, "more": 1})
    no_json = _set_refused_policy(queue, "no JSON")

    assert [third_key[1], no_json[1]] == [400, 400]  # codes and texts are not recorded


@pytest.mark.promise("DLQ-38")
def test_an_empty_redrive_policy_takes_the_dlq_away(resources: Resources) -> None:
    queue, _ = resources.queue_with_dlq(max_receive_count=1)
    queue.send_each("m1")

    queue.set_attributes(RedrivePolicy="")
    received = [queue.await_message(visibility=0)["Body"] for _ in range(3)]

    assert "RedrivePolicy" not in queue.attributes("All")
    assert received == ["m1", "m1", "m1"]


@pytest.mark.promise("DLQ-18")
def test_a_dlq_refuses_queues_that_its_redrive_allow_policy_leaves_out(resources: Resources) -> None:
    listed, unlisted = resources.fifo_queue(), resources.fifo_queue()
    by_queue = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [listed.arn]})
    open_to_listed = resources.fifo_queue(hint="dlq", RedriveAllowPolicy=by_queue)
    open_to_none = resources.fifo_queue(hint="dlq", RedriveAllowPolicy=json.dumps({"redrivePermission": "denyAll"}))

    listed.set_attributes(RedrivePolicy=json.dumps({"deadLetterTargetArn": open_to_listed.arn, "maxReceiveCount": 2}))
    refused = _set_refused_policy(unlisted, {"deadLetterTargetArn": open_to_listed.arn, "maxReceiveCount": 2})
    refused_by_all = _set_refused_policy(listed, {"deadLetterTargetArn": open_to_none.arn, "maxReceiveCount": 2})
    eleven = {"redrivePermission": "byQueue", "sourceQueueArns": [f"{listed.arn}{number}" for number in range(11)]}
    too_many = refusal(open_to_listed.set_attributes, RedriveAllowPolicy=json.dumps(eleven))
    unknown = refusal(open_to_listed.set_attributes, RedriveAllowPolicy=json.dumps({"redrivePermission": "some"}))

    statuses = [answer[1] for answer in (refused, refused_by_all, too_many, unknown)]
    assert statuses == [400, 400, 400, 400]  # codes and texts are not recorded


@pytest.mark.promise("DLQ-26")
def test_a_changed_redrive_allow_policy_has_its_effect(resources: Resources) -> None:
    queue, dead_letters = resources.fifo_queue(), resources.fifo_queue(hint="dlq")
    policy = {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": 2}

    dead_letters.set_attributes(RedriveAllowPolicy=json.dumps({"redrivePermission": "denyAll"}))
    refused = _set_refused_policy(queue, policy)
    dead_letters.set_attributes(RedriveAllowPolicy=json.dumps({"redrivePermission": "allowAll"}))
    queue.set_attributes(RedrivePolicy=json.dumps(policy))

    assert refused[1] == 400  # code and text are not recorded
    assert json.loads(queue.attributes("RedrivePolicy")["RedrivePolicy"]) == policy


@pytest.mark.promise("DLQ-19")
def test_a_dlq_lists_the_queues_that_name_it(resources: Resources) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    none = dead_letters.sqs.list_dead_letter_source_queues(QueueUrl=dead_letters.url)["queueUrls"]
    first = resources.fifo_queue(dead_letters=dead_letters)
    second = resources.fifo_queue(dead_letters=dead_letters)
    resources.fifo_queue(dead_letters=resources.fifo_queue(hint="other-dlq"))

    both = dead_letters.sqs.list_dead_letter_source_queues(QueueUrl=dead_letters.url)["queueUrls"]

    assert none == []
    assert sorted(both) == sorted([first.url, second.url])
