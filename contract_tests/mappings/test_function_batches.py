"""A function gets the messages of its queue in batches: each group in order, groups beside each other."""

import itertools

import pytest

from contract_tests.functions import FunctionUnderTest
from contract_tests.resources import Resources

pytestmark = pytest.mark.slow  # LocalStack loads its Lambda at the first call, and waits in real time


def _take_all(function: FunctionUnderTest, count: int) -> list[list[str]]:
    """Let invocations succeed until they have brought so many messages; return the bodies of each batch."""
    batches: list[list[str]] = []
    while len(list(itertools.chain.from_iterable(batches))) < count:
        invocation = function.await_invocation()
        batches.append(invocation.bodies)
        invocation.answer(None)
    return batches


@pytest.mark.promise("ORD-07")
def test_a_function_gets_a_group_one_batch_at_a_time_in_order(resources: Resources) -> None:
    queue, function = resources.fifo_queue(), resources.function()
    queue.send_each("m1", "m2", "m3", group="g1")
    resources.mapping(queue, function, BatchSize=1)

    first = function.await_invocation()
    beside_the_first = function.invocation_within(2)
    first.answer(None)
    rest = _take_all(function, 2)

    assert first.bodies == ["m1"]
    assert beside_the_first is None
    assert rest == [["m2"], ["m3"]]


@pytest.mark.promise("ESM-01")
def test_batches_of_different_groups_are_worked_on_at_the_same_time(resources: Resources) -> None:
    queue, function = resources.fifo_queue(), resources.function()
    queue.send_each("a1", group="a")
    queue.send_each("b1", group="b")
    resources.mapping(queue, function, BatchSize=1)

    under_way = [function.await_invocation(), function.await_invocation()]

    assert sorted(invocation.bodies for invocation in under_way) == [["a1"], ["b1"]]


@pytest.mark.promise("ESM-02")
def test_groups_keep_their_order_in_a_batch_and_over_batches(resources: Resources) -> None:
    """AWS does not promise how many groups are in a batch, nor how many messages."""
    queue, function = resources.fifo_queue(), resources.function()
    of_a, of_b = [[f"{group}{number}" for number in range(7)] for group in "ab"]
    for a, b in zip(of_a, of_b, strict=True):
        queue.send_each(a, group="a")
        queue.send_each(b, group="b")
    resources.mapping(queue, function, BatchSize=10)

    received = list(itertools.chain.from_iterable(_take_all(function, 14)))

    assert [body for body in received if body in of_a] == of_a
    assert [body for body in received if body in of_b] == of_b


@pytest.mark.promise("ESM-17")
def test_a_batch_has_no_more_messages_than_its_mapping_says(resources: Resources) -> None:
    queue, function = resources.fifo_queue(), resources.function()
    queue.send_each("m1", "m2", "m3", "m4", "m5")
    resources.mapping(queue, function, BatchSize=3)

    batches = _take_all(function, 5)

    assert max(map(len, batches)) <= 3


@pytest.mark.promise("ESM-21")
def test_no_more_batches_are_under_way_than_the_maximum_concurrency(resources: Resources) -> None:
    queue, function = resources.fifo_queue(), resources.function()
    for group in "abc":
        queue.send_each(f"{group}1", group=group)
    resources.mapping(queue, function, BatchSize=1, ScalingConfig={"MaximumConcurrency": 2})

    first, second = function.await_invocation(), function.await_invocation()
    beside_two = function.invocation_within(2)
    first.answer(None)
    third = function.await_invocation()

    assert beside_two is None
    assert sorted([*first.bodies, *second.bodies, *third.bodies]) == ["a1", "b1", "c1"]


@pytest.mark.promise("ESM-27")
def test_a_record_has_the_ids_and_attributes_of_its_message(resources: Resources) -> None:
    queue, function = resources.fifo_queue(), resources.function()
    kind = {"DataType": "String", "StringValue": "order"}
    sent = queue.send("m1", group="g1", id="d1", MessageAttributes={"kind": kind})
    resources.mapping(queue, function)

    record = function.await_invocation().record("m1")
    system = record["attributes"]

    assert record["messageId"] == sent["MessageId"]
    assert system.get("MessageGroupId") == "g1"
    assert system.get("MessageDeduplicationId") == "d1"
    assert system.get("SequenceNumber") == sent["SequenceNumber"]
    assert system.get("ApproximateReceiveCount") == "1"
    assert record["messageAttributes"].get("kind", {}).get("dataType") == "String"
    assert record["messageAttributes"].get("kind", {}).get("stringValue") == "order"
    assert record["eventSource"] == "aws:sqs"
    assert record["eventSourceARN"] == queue.arn


@pytest.mark.promise("ESM-33")
def test_a_record_has_the_body_of_its_message_to_the_byte(resources: Resources) -> None:
    """A checksum of the body, or a deduplication id by its content, would be another one otherwise."""
    queue, function = resources.fifo_queue(), resources.function()
    queue.send('{"total":1.0,"kind":"order"}', id="m1")
    resources.mapping(queue, function)

    assert function.await_invocation().bodies == ['{"total":1.0,"kind":"order"}']
