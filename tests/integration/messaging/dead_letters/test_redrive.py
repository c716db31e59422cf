"""The client engine of redrive, on a simulator: nothing lost, nothing doubled, each group in order, and it ends."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import ConfigError
from sluice.messaging.sqs import dead_letter_queue, redrive
from sluice.messaging.sqs.dead_letter_queue import Reading, StoredDeadLetter
from sluice.messaging.sqs.rate_limit import Pace
from sluice.messaging.sqs.redrive import Choice, batch_of
from sluice.simulator.hook import Simulator
from tests.support.messaging.dlq_harness import (
    DEAD,
    QUEUE,
    DlqHarness,
    Forgetful,
    Renaming,
    envelope,
    in_groups,
    move_deleting_first,
    move_ignoring_failures,
)
from tests.support.messaging.faulty_calls import Fault, ProcessKill, failing_at

POINTS = ("before_send", "after_send", "before_delete", "after_delete")


def test_dead_letters_come_back_and_the_dlq_is_empty(harness: DlqHarness) -> None:
    """In the order of each group; each moved message is reported once."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))
    reported: list[StoredDeadLetter] = []

    result = harness.redrive(on_moved=reported.append).work()

    assert harness.places(QUEUE) == [("a", 1), ("a", 2), ("b", 1)]
    assert harness.counts(DEAD) == (0, 0)
    assert sorted(result.moved) == [("a", 1), ("a", 2), ("b", 1)]
    assert result.left == {}
    assert result.is_whole is True
    assert len(reported) == 3


def test_an_empty_dlq_is_done_at_once(harness: DlqHarness) -> None:
    """The run is whole with nothing moved, nothing left and no error."""
    result = harness.redrive().work()

    assert result.moved == []
    assert result.left == {}
    assert result.is_whole is True
    assert result.error is None


def test_d6_a_message_redriven_at_once_is_not_taken_for_a_repeat(harness: DlqHarness) -> None:
    """Inside the five minutes the queue remembers the first send; the copy has an id of its own, of 128 at most."""
    harness.record_dead(("a", 1), ("a", 2))
    started = harness.clock.monotonic()

    harness.redrive(run="x" * 19).work()

    assert harness.clock.monotonic() - started < 300
    assert harness.places(QUEUE) == [("a", 1), ("a", 2)]
    ids = [sent["MessageDeduplicationId"] for sent in harness.sqs_calls.send_calls]
    assert len(set(ids)) == 2
    assert len(dead_letter_queue.deduplication_id("redrive", "x" * 19, "i" * 100)) == 128


def test_d6_a_copy_under_its_own_id_would_be_lost(harness: DlqHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: SQS drops a copy under its own deduplication id, and the redrive deletes the original."""
    harness.record_dead(("a", 1))
    monkeypatch.setattr(redrive, "deduplication_id", lambda *_: envelope("a", 1).deduplication_id)

    harness.redrive().work()

    assert harness.counts(QUEUE) == (0, 0)
    assert harness.counts(DEAD) == (0, 0)


def test_d7_a_message_comes_back_unchanged(harness: DlqHarness) -> None:
    """Body, group, ten attributes of each type, and the trace header of X-Ray."""
    attributes = {
        "type": {"DataType": "String", "StringValue": "order.placed"},
        "weight": {"DataType": "Number.kg", "StringValue": "1.50"},
        "blob": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        **{f"more{n}": {"DataType": "String", "StringValue": str(n)} for n in range(7)},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = {"MessageAttributes": attributes, "MessageSystemAttributes": trace}
    harness.send(DEAD, envelope("a", 1, data={"ü": "\n\t✓"}), **sent)

    harness.redrive().work()

    (message,) = harness.drain(QUEUE)
    assert message["Body"] == envelope("a", 1, data={"ü": "\n\t✓"}).body
    assert message["MessageAttributes"] == attributes
    assert message["Attributes"]["MessageGroupId"] == "a"
    assert message["Attributes"]["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"]


def test_d7_a_message_without_an_envelope_comes_back_unchanged(harness: DlqHarness) -> None:
    """The tool moves messages; whether they can be read is for whoever receives them."""
    harness.send(DEAD, envelope("a", 1), MessageBody="<xml/>")

    result = harness.redrive().work()

    assert [message["Body"] for message in harness.drain(QUEUE)] == ["<xml/>"]
    assert result.moved == [("a", None)]


def _dying_again(harness: DlqHarness) -> Any:
    """Return a callback of a redrive that lets the messages that were moved back die again at once."""
    return lambda _: harness.kill()


def test_d8_a_redriven_message_that_dies_again_stays_and_the_run_ends(harness: DlqHarness) -> None:
    """Otherwise a run would move the same message for ever; its result counts it as bounced."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))

    result = harness.redrive(on_moved=_dying_again(harness)).work()

    assert len(harness.sqs_calls.send_calls) == 3
    assert len(result.moved) == 3
    assert result.left_counts() == {"bounced": 3}
    assert result.is_whole is True
    assert harness.counts(DEAD) == (3, 0)


def test_d8_a_message_that_dies_again_is_recognized_by_its_deduplication_id(harness: DlqHarness) -> None:
    """Should SQS give a dead letter another message id: its deduplication id in the DLQ is the one it had."""
    harness.record_dead(("a", 1), ("b", 1))
    Renaming().attach(harness.tools_sqs)

    result = harness.redrive(on_moved=_dying_again(harness)).work()

    assert len(harness.sqs_calls.send_calls) == 2
    assert result.left_counts() == {"bounced": 2}


def test_d8_a_run_that_forgets_its_copies_never_ends(harness: DlqHarness) -> None:
    """Negative control: a run that forgets which copies it sent ends only at its bound of twenty messages."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))
    run = harness.redrive(on_moved=_dying_again(harness), most=20)
    run._copies = Forgetful()

    run.work()

    assert len(harness.sqs_calls.send_calls) == 20


def test_d8_the_next_run_brings_back_messages_that_died_again(harness: DlqHarness) -> None:
    """The copies that died were of an earlier run, so the next run, after the cause was mended, takes them."""
    harness.record_dead(("a", 1))
    harness.redrive(on_moved=_dying_again(harness)).work()

    harness.redrive(run="r2").work()

    assert harness.places(QUEUE) == [("a", 1)]


@st.composite
def _disasters(draw: st.DrawFn) -> tuple[list[tuple[str, int]], list[Fault], list[Fault], float | None]:
    """Draw dead letters, the faults of sends, the faults of deletes, and the rate of the redrive."""
    groups = draw(st.lists(st.integers(1, 15), min_size=1, max_size=4))
    places = [(f"g{number}", seq) for number, length in enumerate(groups) for seq in range(1, length + 1)]
    fault = [Fault(), Fault(), Fault(unreachable=True), Fault(lost=True), Fault(refused="InternalError")]
    faults = st.lists(st.sampled_from(fault), max_size=30)
    return places, draw(faults), draw(faults), draw(st.sampled_from([None, 0.5, 5.0, 200.0]))


def _assert_in_order(harness: DlqHarness, places: list[tuple[str, int]]) -> None:
    """Assert that nothing was lost or doubled, and each group arrived in the order of the DLQ."""
    arrived, left = harness.places(QUEUE), harness.places(DEAD)
    for group, numbers in in_groups(places):
        came = [seq for its_group, seq in arrived if its_group == group]
        stayed = [seq for its_group, seq in left if its_group == group]
        assert came == numbers[: len(came)]
        assert [*came, *[seq for seq in stayed if seq not in came]] == numbers


@given(_disasters())
@settings(max_examples=8, deadline=None, derandomize=True)
def test_d12_every_group_arrives_in_order_whatever_fails(disaster: Any) -> None:
    """Sends and deletes fail at any rate, with or without an effect.

    Messages sent twice because of that arrive once.
    """
    places, send_faults, delete_faults, rate = disaster
    harness = DlqHarness(Simulator())
    for group, seq in places:
        harness.send(DEAD, envelope(group, seq))
    for operation, faults in (("SendMessage", send_faults), ("DeleteMessage", delete_faults)):
        harness.sqs_calls.faults += [replace(fault, operation=operation) for fault in faults]
    pace = Pace(rate, clock=harness.clock)

    harness.redrive(pace=pace, batch=batch_of(rate, 120)).work()

    harness.simulator.advance(200)  # what was deleted unanswered, or is held by nobody
    _assert_in_order(harness, places)


def test_d16_messages_behind_an_unsendable_message_stay_behind_it(harness: DlqHarness) -> None:
    """The send of a-1 fails once. a-2 and a-3 wait until it succeeds; b-1 does not."""
    harness.record_dead(("a", 1), ("a", 2), ("a", 3), ("b", 1))
    harness.sqs_calls.refuse("InternalError")

    result = harness.redrive().work()

    sent = [sent["MessageBody"] for sent in harness.sqs_calls.send_calls]
    expected = [("a", 1), ("b", 1), ("a", 1), ("a", 2), ("a", 3)]
    assert sent == [envelope(group, seq).body for group, seq in expected]
    assert len(result.moved) == 4
    assert result.left == {}


def test_d16_a_pass_without_progress_is_the_last(harness: DlqHarness) -> None:
    """Every send is refused: one try for each group, and then the run ends with the error."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))
    harness.sqs_calls.refuse("AccessDenied", 9)

    result = harness.redrive().work()

    assert result.left_counts() == {"failed": 2, "behind": 1}
    assert "AccessDenied" in (result.error or "")
    assert len(harness.sqs_calls.send_calls) == 2
    assert harness.counts(DEAD) == (3, 0)


def test_a_run_gives_up_after_ten_failures_one_after_the_other(harness: DlqHarness) -> None:
    """A run does not try each group of a large DLQ against a queue that refuses every send."""
    harness.record_dead(*[(f"g{number}", 1) for number in range(25)])
    harness.sqs_calls.refuse("AccessDenied", 25)

    result = harness.redrive().work()

    assert len(harness.sqs_calls.send_calls) == 10
    assert result.is_whole is False
    assert harness.counts(DEAD) == (25, 0)


def test_failures_between_which_something_came_back_are_not_counted_together(harness: DlqHarness) -> None:
    """A run ends after ten failures in a row; here are nine, a success, and nine."""
    harness.record_dead(*[(f"g{number:02}", 1) for number in range(19)])
    harness.sqs_calls.refuse("ServiceUnavailable", 9)
    harness.sqs_calls.faults.append(Fault(operation="SendMessage"))
    harness.sqs_calls.refuse("ServiceUnavailable", 9)

    result = harness.redrive().work()

    assert len(result.moved) == 19
    assert result.left == {}
    assert result.is_whole is True


def test_a_message_whose_delete_failed_is_not_sent_again(harness: DlqHarness) -> None:
    """Its next receive in the run only deletes it."""
    harness.record_dead(("a", 1), ("b", 1))
    harness.sqs_calls.refuse("InternalError", operation="DeleteMessage")

    result = harness.redrive().work()

    assert len(harness.sqs_calls.send_calls) == 2
    assert len(result.moved) == 2
    assert result.left == {}
    assert harness.counts(DEAD) == (0, 0)


def _survivors(harness: DlqHarness) -> set[tuple[str, int]]:
    """Return group and number of every message in the queue or the DLQ, once all are visible."""
    harness.simulator.advance(200)
    return set(harness.places(QUEUE)) | set(harness.places(DEAD))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_d3_a_message_is_always_in_one_of_the_queues(harness: DlqHarness, point: str, count: int) -> None:
    """The run is killed at each step of its first or second message."""
    places = {("a", 1), ("a", 2), ("b", 1)}
    harness.record_dead(*sorted(places))

    with pytest.raises(ProcessKill):
        harness.redrive(failpoint=failing_at(point, count)).work()

    assert _survivors(harness) == places


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_d4_a_run_that_died_is_finished_under_its_id(harness: DlqHarness, point: str, count: int) -> None:
    """The same id makes the same deduplication ids, so that a second copy is dropped."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))
    with pytest.raises(ProcessKill):
        harness.redrive(failpoint=failing_at(point, count)).work()

    harness.redrive().work()

    assert harness.places(QUEUE) == [("a", 1), ("a", 2), ("b", 1)]
    assert harness.counts(DEAD) == (0, 0)


def test_d4_a_dead_run_finished_under_another_id_would_send_twice(harness: DlqHarness) -> None:
    """Negative control: a run with another id sends the message again, and only the inbox drops the second copy."""
    harness.record_dead(("a", 1))
    with pytest.raises(ProcessKill):
        harness.redrive(failpoint=failing_at("after_send")).work()

    harness.redrive(run="r2").work()

    assert harness.places(QUEUE) == [("a", 1), ("a", 1)]


def test_d3_deleting_before_the_send_is_caught(harness: DlqHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a redrive that deletes first and is killed before the send loses the message."""
    harness.record_dead(("a", 1), ("b", 1))
    monkeypatch.setattr(dead_letter_queue, "move", move_deleting_first)

    with pytest.raises(ProcessKill):
        harness.redrive(failpoint=failing_at("before_send")).work()

    assert _survivors(harness) == {("b", 1)}


def test_d16_ignoring_what_a_send_met_is_caught(harness: DlqHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: this broken redrive deletes a message although its send failed."""
    harness.record_dead(("a", 1), ("a", 2))
    harness.sqs_calls.refuse("InternalError")
    monkeypatch.setattr(dead_letter_queue, "move", move_ignoring_failures)

    harness.redrive().work()

    with pytest.raises(AssertionError):
        _assert_in_order(harness, [("a", 1), ("a", 2)])


@pytest.mark.parametrize(
    ("choice", "moved", "left"),
    [
        (Choice(groups=frozenset("a")), [("a", 1), ("a", 2)], {"unwanted": 1}),
        (Choice(types=frozenset({"order.placed"})), [("a", 1), ("a", 2), ("b", 1)], {}),
        (Choice(types=frozenset({"order.paid"})), [], {"unwanted": 3}),
        (Choice(event_ids=frozenset({"a-1", "b-1"})), [("a", 1), ("b", 1)], {"unwanted": 1}),
        (Choice(event_ids=frozenset({"a-2"})), [], {"behind": 1, "unwanted": 2}),
        (Choice(groups=frozenset("a"), event_ids=frozenset({"b-1"})), [], {"unwanted": 3}),
        (Choice(before_us=0), [], {"unwanted": 3}),
        (Choice(before_us=2**60), [("a", 1), ("a", 2), ("b", 1)], {}),
    ],
)
def test_only_selected_messages_come_back_and_none_overtakes_another(
    harness: DlqHarness, choice: Choice, moved: list[tuple[str, int]], left: dict[str, int]
) -> None:
    """`left` counts unselected messages, and selected ones behind them in their group."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))

    result = harness.redrive(choice=choice).work()

    assert sorted(result.moved) == moved
    assert result.left_counts() == left
    assert harness.counts(DEAD) == (3 - len(moved), 0)
    assert harness.places(QUEUE) == moved


def test_a_body_without_envelope_has_neither_type_nor_event(harness: DlqHarness) -> None:
    """So a filter by type leaves it, and one by group, which SQS knows, selects it."""
    harness.send(DEAD, envelope("a", 1), MessageBody="{}")

    assert harness.redrive(choice=Choice(types=frozenset({"order.placed"}))).work().moved == []
    assert harness.redrive(choice=Choice(groups=frozenset("a"))).work().moved == [("a", None)]


def test_a_canary_moves_so_many_and_stops(harness: DlqHarness) -> None:
    """The next run brings the rest back."""
    harness.record_dead(("a", 1), ("a", 2), ("a", 3))

    result = harness.redrive(most=1).work()

    assert result.moved == [("a", 1)]
    assert result.is_whole is True
    assert harness.counts(DEAD) == (2, 0)
    harness.redrive().work()
    assert harness.places(QUEUE) == [("a", 1), ("a", 2), ("a", 3)]


def test_a_stopped_run_releases_the_messages_that_it_holds(harness: DlqHarness) -> None:
    """It is stopped after its first send."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))
    run = harness.redrive(is_stopped=lambda: bool(harness.sqs_calls.send_calls))

    result = run.work()

    assert len(result.moved) == 1
    assert result.is_whole is False
    assert harness.counts(DEAD) == (2, 0)


def test_a_dlq_that_goes_away_ends_the_run(harness: DlqHarness) -> None:
    """The second receive does not arrive. The result says what was moved, and the error."""
    harness.record_dead(("a", 1))
    harness.sqs_calls.faults = [Fault(operation="ReceiveMessage", unreachable=is_away) for is_away in (False, True)]

    result = harness.redrive().work()

    assert result.moved == [("a", 1)]
    assert result.is_whole is False
    assert "EndpointConnectionError" in (result.error or "")


def test_a_slow_run_leaves_letters_that_others_may_have_received(harness: DlqHarness) -> None:
    """The pace is slower than the run expected. Messages that it received too long ago are left for the next pass."""
    for seq in (1, 2, 3):
        harness.send(DEAD, envelope("a", seq))
    pace = Pace(0.1, clock=harness.clock)

    result = harness.redrive(pace=pace, source=harness.dead_letters(hold_seconds=20)).work()

    assert result.moved == [("a", 1), ("a", 2), ("a", 3)]
    assert result.left == {}
    assert harness.places(QUEUE) == [("a", 1), ("a", 2), ("a", 3)]
    assert len(harness.sqs_calls.send_calls) == 3


def test_d15_a_run_keeps_to_its_rate(harness: DlqHarness) -> None:
    """Twenty messages at two a second take at least 9.5 s."""
    for seq in range(1, 21):
        harness.send(DEAD, envelope(f"g{seq % 3}", seq))
    started = harness.clock.monotonic()
    times: list[float] = []

    harness.redrive(
        pace=Pace(2, clock=harness.clock),
        batch=batch_of(2, 120),
        on_moved=lambda _: times.append(harness.clock.monotonic()),
    ).work()

    assert len(times) == 20
    assert times[0] - started < 1
    assert times[-1] - times[0] >= 9.49
    assert times[-1] - times[0] < 10.5


@pytest.mark.parametrize("run", ["", "x" * 20, "a b", "a:b"], ids=["empty", "too long", "a space", "a colon"])
def test_a_run_that_cannot_be_one_is_refused(harness: DlqHarness, run: str) -> None:
    """The run's id is part of every deduplication id, whose length and characters SQS limits."""
    with pytest.raises(ConfigError, match="allowed are 1 to 19 letters"):
        harness.redrive(run=run)


def test_reading_a_dlq_ends_when_the_first_message_is_visible_again(harness: DlqHarness) -> None:
    """The hold was too short for the reading: each message is shown once, and the reading ends."""
    harness.record_dead(("a", 1), ("b", 1))
    looks = iter(range(20))

    with Reading(harness.dead_letters(hold_seconds=0), clock=harness.clock) as reading:
        seen = dead_letter_queue.peek(reading, 5, is_stopped=lambda: next(looks) >= 10)

    assert sorted(dead_letter.message_group_id for dead_letter in seen) == ["a", "b"]
    assert next(looks) < 5
    assert harness.counts(DEAD) == (2, 0)
