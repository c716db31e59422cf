"""The recorder records move tasks, and the checker then accepts a dead letter that comes back."""

from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from sluice.history.events import HistoryEvent, Kind
from sluice.recorder import record
from sluice.recorder.move_tasks import RecordedMoveTasks
from tests.support.histories.recorded_services import (
    DEAD,
    QUEUE,
    RECEIVES_MAX,
    VISIBILITY_SECONDS,
    OrderService,
    anomalies,
    judge_groups,
    queue_arn,
    read_recording,
)


def _record_return_from_dlq(folder: Path, *, is_move_recorded: bool = True) -> list[HistoryEvent]:
    """Return the recording of an order whose message dies, is received from the DLQ, moved back, and billed."""
    shop = OrderService()
    arn = queue_arn(shop.sqs, shop.dead_url)
    mover = shop.sqs if is_move_recorded else shop.simulator.client("sqs")
    with record(shop.clients, folder, clock=shop.simulator.clock):
        shop.order("ann", 0, deduplication_id="ann/0")
        for _ in range(RECEIVES_MAX):
            assert len(shop.receive(count=1)) == 1
            shop.simulator.advance(VISIBILITY_SECONDS + 1)
        assert shop.receive() == []
        assert len(shop.receive(shop.dead_url)) == 1
        shop.simulator.advance(VISIBILITY_SECONDS + 1)
        mover.start_message_move_task(SourceArn=arn)
        shop.simulator.advance(60)
        mover.list_message_move_tasks(SourceArn=arn)
        shop.bill()
    return read_recording(folder)


def test_a_recorded_move_task_has_an_end_and_lawful_messages(tmp_path: Path) -> None:
    events = _record_return_from_dlq(tmp_path)
    (move,) = (event for event in events if event.kind == Kind.REDRIVEN)

    assert move.queue == DEAD
    assert move.outcome == "ok"
    assert move.moved_count == 1
    assert move.error is None
    assert move.detail == '{"destination": null}'
    assert (move.responded_at_us or 0) > (move.invoked_at_us or 0) + 60_000_000
    assert judge_groups(events)["ann"].violations == ()
    assert judge_groups(events)["ann"].unknowns == ()


@pytest.mark.parametrize("body_hash", ["as published", "unlike any"])
def test_messages_moved_by_a_task_are_no_phantoms(tmp_path: Path, body_hash: str) -> None:
    """AWS does not say which deduplication id a moved message gets.

    Its body shows which message it is. If the body is unlike any, the checker says that it cannot know.
    """
    events = _record_return_from_dlq(tmp_path)
    moved_us = next(event.invoked_at_us or 0 for event in events if event.kind == Kind.REDRIVEN)
    events = [
        replace(event, deduplication_id="fresh", idx=7, body_hash=event.body_hash if "as" in body_hash else body_hash)
        if event.kind == Kind.RECEIVED and event.queue == QUEUE and (event.invoked_at_us or 0) > moved_us
        else event
        for event in events
    ]

    finding = judge_groups(events)["ann"]

    assert finding.violations == ()
    assert [*finding.unknowns] == (
        [] if "as" in body_hash else ["group ann: 1 message(s) nobody published may have come with a move task"]
    )


def test_a_dead_letter_that_returns_without_a_recorded_move_task_escaped(tmp_path: Path) -> None:
    """F13; if move tasks of others are not recorded, the checker says that it cannot know."""
    events = _record_return_from_dlq(tmp_path, is_move_recorded=False)

    assert anomalies(judge_groups(events)) == {"F13"}
    finding = judge_groups(events, is_publishing_recorded=False)["ann"]
    assert finding.violations == ()
    assert finding.unknowns == ("group ann: 1 dead letter(s) came back, and the move task may not be on record",)


def test_a_copy_that_a_tool_sent_is_no_escaped_dead_letter(tmp_path: Path) -> None:
    """The copy's deduplication id names the dead letter, as `sluice dlq redrive` sends it.

    The tool's calls are not recorded.
    """
    events = _record_return_from_dlq(tmp_path, is_move_recorded=False)
    dead = next(event for event in events if event.kind == Kind.RECEIVED and event.queue == DEAD)
    events = [
        replace(event, sqs_message_id="copy", deduplication_id=f"redrive:1:{dead.sqs_message_id}")
        if event.queue == QUEUE and (event.invoked_at_us or 0) > (dead.invoked_at_us or 0) and event.idx is not None
        else event
        for event in events
    ]

    assert "F13" not in anomalies(judge_groups(events))


def test_the_end_of_a_move_task_is_unknown_before_it_is_listed(tmp_path: Path) -> None:
    """Four tasks: one that ended before, one that is refused, one that is cancelled, and one that still runs."""
    shop = OrderService()
    arn, target_arn = queue_arn(shop.sqs, shop.dead_url), queue_arn(shop.sqs, shop.url)
    with record(shop.clients, tmp_path, clock=shop.simulator.clock):
        shop.sqs.start_message_move_task(SourceArn=arn, DestinationArn=target_arn)
        shop.sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10)
        with pytest.raises(ClientError):
            shop.sqs.start_message_move_task(SourceArn=target_arn)
        for number in range(5):
            shop.sqs.send_message(
                QueueUrl=shop.dead_url, MessageBody="x", MessageGroupId="g", MessageDeduplicationId=str(number)
            )
        slow = {"SourceArn": arn, "DestinationArn": target_arn, "MaxNumberOfMessagesPerSecond": 1}
        shop.simulator.advance(1)
        handle = shop.sqs.start_message_move_task(**slow)["TaskHandle"]
        shop.sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10)
        shop.sqs.cancel_message_move_task(TaskHandle=handle)
        shop.simulator.advance(5)
        shop.sqs.start_message_move_task(**slow)

    moves = [event for event in read_recording(tmp_path) if event.kind == Kind.REDRIVEN]

    assert [(move.queue, move.outcome, move.error, move.responded_at_us is not None) for move in moves] == [
        (DEAD, "ok", None, True),
        (QUEUE, "fail", "InvalidParameterValue", True),
        (DEAD, "info", "CANCELLED", True),
        (DEAD, "info", None, False),
    ]
    assert {move.detail for move in moves} == {'{"destination": "billing.fifo"}', '{"destination": null}'}


def test_the_end_of_another_processes_task_is_not_this_ones() -> None:
    """Another process's task started within the seconds that two clocks may differ, and has ended.

    The own task runs.
    """
    tasks = RecordedMoveTasks()
    tasks.start("dlq", "handle", {"invoked_at_us": 100_000_000})
    earlier, own = (
        {"StartedTimestamp": 70_000, "Status": "COMPLETED"},
        {"StartedTimestamp": 100_010, "Status": "RUNNING"},
    )

    assert tasks.find_end("dlq", [own, earlier]) == []
    assert len(tasks.find_end("dlq", [{**own, "Status": "COMPLETED"}, earlier])) == 1
