"""A mapping is switched on and off, filters, and refuses what cannot be."""

import json
from typing import Any

import pytest

from contract_tests.resources import QueueUnderTest, Resources, bodies, refusal, require_accepted
from contract_tests.targets.binding import Target

pytestmark = pytest.mark.slow  # LocalStack loads its Lambda at the first call, and waits in real time

_VISIBILITY_SECONDS = 3
_ORDER, _NOTE, _REFUND = ('{"kind":"order"}', '{"kind":"note"}', '{"kind":"refund"}')


def _filter_of(*bodies: object) -> dict[str, Any]:
    """Return the filters that want these bodies."""
    return {"Filters": [{"Pattern": json.dumps({"body": body})} for body in bodies]}


_ORDERS = _filter_of({"kind": ["order"]})


@pytest.mark.promise("ESM-18")
def test_a_disabled_mapping_receives_nothing_until_it_is_enabled(resources: Resources) -> None:
    queue, function = resources.fifo_queue(VisibilityTimeout="20"), resources.function()
    mapping = resources.mapping(queue, function, Enabled=False)
    queue.send_each("m1")

    while_disabled = function.invocation_within(2)
    mapping.enable()
    invocation = function.await_invocation()

    assert while_disabled is None
    assert invocation.receive_counts == [1]


@pytest.mark.promise("ESM-19")
def test_a_batch_under_way_ends_as_usual_when_its_mapping_is_disabled(resources: Resources) -> None:
    queue, function = resources.fifo_queue(VisibilityTimeout="20"), resources.function()
    mapping = resources.mapping(queue, function, BatchSize=1)
    queue.send_each("m1", "m2")

    under_way = function.await_invocation()
    mapping.disable()
    under_way.answer(None)
    while_disabled = function.invocation_within(2)
    left = queue.await_batch(most=10)

    assert while_disabled is None
    assert bodies(left) == ["m2"]


@pytest.mark.promise("ESM-20")
def test_messages_of_a_deleted_mapping_stay_in_order_for_others(resources: Resources, target: Target) -> None:
    queue = resources.fifo_queue(VisibilityTimeout=str(_VISIBILITY_SECONDS))
    function = resources.function(timeout_seconds=2)
    mapping = resources.mapping(queue, function, BatchSize=1)
    queue.send_each("m1", "m2")

    under_way = function.await_invocation()
    began = target.clock.monotonic()
    mapping.delete()
    under_way.fail()
    left = queue.drain(2)

    assert target.clock.monotonic() - began >= _VISIBILITY_SECONDS - 1
    assert bodies(left) == ["m1", "m2"]
    assert left[0]["Attributes"]["ApproximateReceiveCount"] == "2"


@pytest.mark.promise("ESM-22")
def test_messages_that_no_filter_wants_are_deleted_without_a_call(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout=str(_VISIBILITY_SECONDS))
    function = resources.function(timeout_seconds=2)
    mapping = resources.mapping(queue, function, FilterCriteria=_filter_of({"kind": ["order"]}, {"kind": ["refund"]}))
    queue.send_each("text", _NOTE, _REFUND)

    invocation = function.await_invocation()
    invocation.answer(None)
    mapping.delete()

    assert [body.replace(" ", "") for body in invocation.bodies] == [_REFUND]
    assert queue.receive(most=10, wait=_VISIBILITY_SECONDS + 3) == []


@pytest.mark.promise("ESM-32")
def test_a_pattern_of_text_wants_text_and_drops_json(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout=str(_VISIBILITY_SECONDS))
    function = resources.function(timeout_seconds=2)
    resources.mapping(queue, function, BatchSize=1, FilterCriteria=_filter_of(["text", _NOTE]))
    queue.send_each(_NOTE, "other", "text")

    assert function.await_invocation().bodies == ["text"]


@pytest.mark.promise("ESM-23")
def test_a_message_that_a_filter_drops_does_not_block_its_group(resources: Resources) -> None:
    queue, function = resources.fifo_queue(VisibilityTimeout="60"), resources.function()
    resources.mapping(queue, function, FilterCriteria=_ORDERS, BatchSize=1)
    queue.send_each(_NOTE, _ORDER)

    assert [body.replace(" ", "") for body in function.await_invocation().bodies] == [_ORDER]


@pytest.mark.promise("ESM-31")
def test_a_message_that_a_filter_drops_is_deleted_although_its_batch_fails(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout=str(_VISIBILITY_SECONDS))
    function = resources.function(timeout_seconds=2)
    mapping = resources.mapping(queue, function, FilterCriteria=_ORDERS, Enabled=False)
    queue.send_each(_ORDER, _NOTE)
    mapping.enable()

    function.await_invocation().fail()
    mapping.delete()
    left = queue.drain(1)

    assert bodies(left) == [_ORDER]


@pytest.mark.promise("ESM-15")
def test_a_mapping_of_a_fifo_queue_takes_at_most_ten_messages(resources: Resources) -> None:
    queue, function = resources.fifo_queue(), resources.function()

    refused = refusal(resources.create_mapping, queue, function, BatchSize=11)
    accepted = resources.create_mapping(queue, function, BatchSize=10)

    assert refused[:2] == ("InvalidParameterValueException", 400)
    assert accepted["BatchSize"] == 10


@pytest.mark.promise("ESM-16")
def test_a_mapping_of_a_fifo_queue_has_no_batching_window(resources: Resources) -> None:
    queue, function = resources.fifo_queue(), resources.function()

    refused = refusal(resources.create_mapping, queue, function, MaximumBatchingWindowInSeconds=1)

    assert refused[1:] == (400, "Batching window is not supported for FIFO queues")


@pytest.mark.promise("ESM-24")
def test_a_filter_that_is_none_is_refused(resources: Resources) -> None:
    queue, function = resources.fifo_queue(), resources.function()
    patterns = ["null", "simple string", '{"eventSource": "aws:sqs"}', '{"eventSource": []}']

    refused = [
        refusal(resources.create_mapping, queue, function, FilterCriteria={"Filters": [{"Pattern": pattern}]})
        for pattern in patterns
    ]

    assert set(refused) == {("InvalidParameterValueException", 400, "Invalid filter pattern definition.")}


@pytest.mark.promise("ESM-25")
def test_a_queue_that_does_not_exist_is_refused(resources: Resources) -> None:
    queue, function = resources.fifo_queue(), resources.function()
    missing = QueueUnderTest(queue.sqs, "missing", queue.url, f"{queue.arn.removesuffix('.fifo')}-gone.fifo", 1)

    refused = refusal(resources.create_mapping, missing, function)

    assert refused == (
        "InvalidParameterValueException",
        400,
        "Error occurred while ReceiveMessage. SQS Error Code: AWS.SimpleQueueService.NonExistentQueue. SQS Error"
        " Message: The specified queue does not exist.",
    )


@pytest.mark.promise("ESM-26")
def test_a_queue_is_mapped_to_one_function_once(resources: Resources) -> None:
    queue, function, other = resources.fifo_queue(), resources.function(), resources.function()
    made = resources.create_mapping(queue, function)

    refused = refusal(resources.create_mapping, queue, function)
    of_other = require_accepted(resources.create_mapping, queue, other)

    assert refused[:2] == ("ResourceConflictException", 409)
    assert refused[2].endswith(f"Please update or delete the existing mapping with UUID {made['UUID']}")
    assert of_other["UUID"] != made["UUID"]


@pytest.mark.promise("ESM-30")
def test_a_queue_that_hides_messages_for_less_than_the_timeout_is_refused(resources: Resources) -> None:
    queue, function = resources.fifo_queue(VisibilityTimeout="19"), resources.function(timeout_seconds=20)

    refused = refusal(resources.create_mapping, queue, function)

    assert refused == (
        "InvalidParameterValueException",
        400,
        "Queue visibility timeout: 19 seconds is less than Function timeout: 20 seconds",
    )
