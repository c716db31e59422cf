"""The end of an invocation decides which messages come again and which are deleted."""

import pytest

from contract_tests.functions import FunctionUnderTest, InvocationUnderTest
from contract_tests.resources import QueueUnderTest, Resources, bodies, require_accepted
from contract_tests.targets.binding import Target

pytestmark = pytest.mark.slow  # LocalStack loads its Lambda at the first call, and waits in real time

_VISIBILITY_SECONDS = 3
_TIMEOUT_SECONDS = 2


def _map_queue(resources: Resources, **settings: object) -> tuple[QueueUnderTest, FunctionUnderTest]:
    """Return a queue whose failed messages come again soon, and the function that it is mapped to."""
    queue = resources.fifo_queue(VisibilityTimeout=str(_VISIBILITY_SECONDS))
    function = resources.function(timeout_seconds=_TIMEOUT_SECONDS)
    resources.mapping(queue, function, **settings)
    return queue, function


def _send_at_once(queue: QueueUnderTest, *sent: str, group: str = "g1") -> None:
    """Send messages in one call, so that one batch has them."""
    entries = [
        {"Id": body, "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": body} for body in sent
    ]
    queue.send_batch(*entries)


def _first_receive(invocation: InvocationUnderTest) -> str:
    return str(invocation.record("m1")["attributes"]["ApproximateFirstReceiveTimestamp"])


@pytest.mark.promise("GRP-17")
def test_a_failed_group_is_blocked_and_comes_again_after_its_timeout(resources: Resources, target: Target) -> None:
    queue, function = _map_queue(resources)
    _send_at_once(queue, "m1", "m2")

    first = function.await_invocation()
    began = target.clock.monotonic()
    first.fail()
    queue.send_each("m3")
    again = function.await_invocation()

    assert target.clock.monotonic() - began >= _VISIBILITY_SECONDS - 1
    assert again.bodies[:2] == ["m1", "m2"]
    assert again.record("m1")["messageId"] == first.record("m1")["messageId"]
    assert again.receive_counts[:2] == [2, 2]
    assert _first_receive(again) == _first_receive(first)


@pytest.mark.promise("DLQ-24")
def test_reported_messages_reach_the_dlq_with_their_ids(resources: Resources) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(dead_letters=dead_letters, VisibilityTimeout=str(_VISIBILITY_SECONDS))
    function = resources.function(timeout_seconds=_TIMEOUT_SECONDS)
    _send_at_once(queue, "m1", "m2")
    resources.mapping(queue, function)

    first = function.await_invocation()
    first.report("m2")
    function.await_invocation().report("m2")
    third = function.invocation_within(_VISIBILITY_SECONDS + 3)
    (dead,) = dead_letters.drain(1)

    assert third is None
    assert dead["Body"] == "m2"
    assert dead["MessageId"] == first.record("m2")["messageId"]
    assert dead["Attributes"]["MessageGroupId"] == "g1"


@pytest.mark.promise("DLQ-25")
def test_a_message_of_a_failing_function_keeps_its_id_in_the_dlq(resources: Resources) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(
        dead_letters=dead_letters, max_receive_count=1, VisibilityTimeout=str(_VISIBILITY_SECONDS)
    )
    function = resources.function(timeout_seconds=_TIMEOUT_SECONDS)
    resources.mapping(queue, function)
    sent = queue.send("m1", id="m1")

    function.await_invocation().fail()
    second = function.invocation_within(_VISIBILITY_SECONDS + 3)
    (dead,) = dead_letters.drain(1)

    assert second is None
    assert dead["MessageId"] == sent["MessageId"]


@pytest.mark.promise("ESM-03")
def test_messages_that_an_answer_does_not_report_are_deleted(resources: Resources) -> None:
    queue, function = _map_queue(resources)
    _send_at_once(queue, "m1", "m2")

    function.await_invocation().report("m2")
    again = function.await_invocation()

    assert again.bodies == ["m2"]


@pytest.mark.promise("ESM-04")
def test_a_reported_message_stays_hidden_until_its_timeout_ends(resources: Resources, target: Target) -> None:
    queue, function = _map_queue(resources)
    queue.send_each("m1")

    first = function.await_invocation()
    began = target.clock.monotonic()
    first.report("m1")
    again = function.await_invocation()

    assert target.clock.monotonic() - began >= _VISIBILITY_SECONDS - 1
    assert again.receive_counts == [2]


@pytest.mark.promise("ESM-05")
def test_a_message_behind_a_reported_one_is_deleted_unless_reported_too(resources: Resources) -> None:
    queue, function = _map_queue(resources)
    _send_at_once(queue, "m1", "m2", "m3")

    first = function.await_invocation()
    first.report("m2")
    again = function.await_invocation()
    again.answer(None)
    afterwards = function.invocation_within(_VISIBILITY_SECONDS + 3)

    assert first.bodies == ["m1", "m2", "m3"]
    assert again.bodies == ["m2"]
    assert afterwards is None


@pytest.mark.promise("ESM-06")
def test_failures_are_not_read_unless_the_mapping_asks_for_them(resources: Resources) -> None:
    queue, function = _map_queue(resources, FunctionResponseTypes=None)
    queue.send_each("m1")

    function.await_invocation().report("m1")

    assert function.invocation_within(_VISIBILITY_SECONDS + 3) is None


@pytest.mark.promise("ESM-07")
def test_an_answer_without_failures_is_a_success(resources: Resources) -> None:
    queue, function = _map_queue(resources)
    answers: list[object] = [None, {}, {"batchItemFailures": None}, {"batchItemFailures": []}]
    for number, answer in enumerate(answers):
        queue.send_each(f"m{number}", group=f"g{number}")
        function.await_invocation().answer(answer)

    assert function.invocation_within(_VISIBILITY_SECONDS + 3) is None


def _fail_by_answer(resources: Resources, *failures: object) -> list[list[str]]:
    """Answer one batch of two messages with each of these failures; return what comes again."""
    queue, function = _map_queue(resources)
    batches = []
    for number, failure in enumerate(failures):
        _send_at_once(queue, f"{number}a", f"{number}b", group=str(number))
        function.await_invocation().answer({"batchItemFailures": [failure]})
        again = function.await_invocation()
        batches.append(again.bodies)
        again.answer(None)
    return batches


@pytest.mark.promise("ESM-08")
def test_an_unreadable_failure_fails_the_whole_batch(resources: Resources) -> None:
    failures = {"itemIdentifier": ""}, {"itemIdentifier": None}, {"foo": "notvalid"}

    assert _fail_by_answer(resources, *failures) == [["0a", "0b"], ["1a", "1b"], ["2a", "2b"]]


@pytest.mark.promise("ESM-09")
def test_an_unknown_id_fails_the_whole_batch(resources: Resources) -> None:
    assert _fail_by_answer(resources, {"itemIdentifier": "unknown"}) == [["0a", "0b"]]


@pytest.mark.promise("ESM-10")
def test_a_function_that_raises_fails_the_whole_batch(resources: Resources) -> None:
    queue, function = _map_queue(resources)
    _send_at_once(queue, "m1", "m2")

    function.await_invocation().fail()

    assert function.await_invocation().bodies == ["m1", "m2"]


@pytest.mark.promise("ESM-11")
def test_an_answer_after_the_timeout_deletes_nothing(resources: Resources, target: Target) -> None:
    queue, function = resources.fifo_queue(VisibilityTimeout="8"), resources.function(timeout_seconds=2)
    resources.mapping(queue, function)
    queue.send_each("m1")

    late = function.await_invocation()
    target.await_age(4, since=target.clock.monotonic())
    late.answer(None)
    again = function.await_invocation()

    assert again.bodies == ["m1"]
    assert again.receive_counts == [2]


@pytest.mark.promise("ESM-12")
def test_a_throttled_function_is_not_called_while_receives_count(resources: Resources) -> None:
    queue, function = _map_queue(resources)
    function.throttle()
    queue.send_each("m1")

    throttled = function.invocation_within(2 * _VISIBILITY_SECONDS + 2)
    function.release_throttle()
    first = function.await_invocation()

    assert throttled is None
    assert first.receive_counts[0] >= 2


@pytest.mark.promise("ESM-13")
def test_a_message_of_a_throttled_function_reaches_the_dlq_untried(resources: Resources) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(dead_letters=dead_letters, VisibilityTimeout=str(_VISIBILITY_SECONDS))
    function = resources.function(timeout_seconds=_TIMEOUT_SECONDS)
    function.throttle()
    resources.mapping(queue, function)
    queue.send_each("m1")

    invoked = function.invocation_within(3 * _VISIBILITY_SECONDS + 3)
    dead = dead_letters.drain(1)

    assert invoked is None
    assert bodies(dead) == ["m1"]


@pytest.mark.promise("ESM-14")
def test_a_throttled_batch_is_tried_again_without_another_receive(resources: Resources) -> None:
    queue, function = resources.fifo_queue(VisibilityTimeout="60"), resources.function()
    function.throttle()
    resources.mapping(queue, function)
    queue.send_each("m1")

    throttled = function.invocation_within(5)
    function.release_throttle()
    invocation = function.await_invocation()

    assert throttled is None
    assert invocation.receive_counts == [1]


@pytest.mark.promise("ESM-28")
def test_a_function_may_let_reported_messages_come_again_sooner(resources: Resources, target: Target) -> None:
    queue, function = resources.fifo_queue(VisibilityTimeout="60"), resources.function()
    resources.mapping(queue, function)
    queue.send_each("m1")

    first = function.await_invocation()
    queue.change_visibility({"ReceiptHandle": first.record("m1")["receiptHandle"]}, 2)
    first.report("m1")
    began = target.clock.monotonic()
    again = function.await_invocation()

    assert target.clock.monotonic() - began < 20
    assert again.receive_counts == [2]


@pytest.mark.promise("ESM-29")
def test_a_function_may_delete_messages_of_its_batch_itself(resources: Resources) -> None:
    """A deleted message may be reported or not: it does not come again, and a second delete harms nothing."""
    queue, function = _map_queue(resources)
    _send_at_once(queue, "m1", "m2", "m3")

    first = function.await_invocation()
    for body in ("m1", "m2"):
        require_accepted(queue.delete, {"ReceiptHandle": first.record(body)["receiptHandle"]})
    first.report("m2", "m3")
    again = function.await_invocation()

    assert again.bodies == ["m3"]
