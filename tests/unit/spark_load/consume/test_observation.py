"""Scaled workers are observed, and compared with the prediction of the simulation."""

from typing import Any

import pytest

from sluice.declaration import Consumer, Environment, Removal
from spark_load.consume.scaling import observation, prediction
from spark_load.consume.scaling.observation import (
    HeldMessage,
    Observation,
    ObservedPace,
    QueueRecord,
    RehearsedService,
    Sample,
    rehearsed_services,
)
from spark_load.consume.scaling.task_pool import PooledTask

SECOND_US = 1_000_000
PACE = ObservedPace(begun_us=100 * SECOND_US, minute_seconds=2, poll_seconds=1, handler_seconds=0.5)
QUEUE = "sluice-scaled-billing.fifo"


def _rehearsed_service() -> RehearsedService:
    consumer = Consumer(name="billing", processing_seconds=15, lanes=2, max_tasks=3)
    environment = Environment(name="scaled", account="0" * 12, removal=Removal.DESTROY, consumers=(consumer,))
    return rehearsed_services(environment)[QUEUE]


class EndedProcess:
    """A process that has ended."""

    def poll(self) -> int | None:
        return 0

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def is_polling(self) -> bool:
        return True


def _task(name: str, *, stopped_s: int | None = None, killed_s: int | None = None) -> PooledTask:
    def at_us(second: int | None) -> int | None:
        return None if second is None else second * SECOND_US

    return PooledTask(
        name=name,
        process=EndedProcess(),
        started_us=100 * SECOND_US,
        polls_us=102 * SECOND_US,
        stopped_us=at_us(stopped_s),
        killed_us=at_us(killed_s),
        ended_us=at_us(killed_s or stopped_s),
    )


def test_a_minute_is_the_mean_of_its_samples_and_idle_lanes_poll() -> None:
    """A sample has visible messages, messages in flight and running tasks; None was not measured.

    A minute here takes 2 s.
    """
    series = observation.new_series()
    samples = [Sample(4, 2, 2), Sample(None, None, 2), Sample(2, 1, 2)]

    observation.add_minute(series, samples, desired=3, lanes=2, pace=PACE)

    assert {name: values for name, (values,) in series.items() if values is not None} == {
        "visible": 3.0,
        "inflight": 1.5,
        "running": 2.0,
        "desired": 3.0,
        "empty": 5.0,  # 2.5 lanes without a message, two polls each
        "received": 3.0,
    }


def test_no_running_tasks_are_reported_while_nothing_runs() -> None:
    """ECS reports no metric then, which the scaling treats differently from 0."""
    series = observation.new_series()

    observation.add_minute(series, [Sample(7, 0, 0)], desired=0, lanes=2, pace=PACE)

    assert series["running"] == [None]
    assert series["empty"] == [0.0]
    assert series["received"] == [0.0]


def _event(kind: str, second: float, **fields: Any) -> dict[str, Any]:
    at_us = round(second * SECOND_US)
    named = {"kind": kind, "queue": QUEUE, "outcome": "ok", "worker": "w", "call_id": str(at_us), "receive_count": 1}
    empty = dict.fromkeys(
        ("receipt_handle_hash", "visibility_timeout_seconds", "sqs_message_id", "first_received_at_us", "detail")
    )
    return {**empty, **named, "invoked_at_us": at_us, "responded_at_us": at_us, **fields}


def test_journals_show_held_messages_and_empty_polls() -> None:
    """A message is held from its receive to its first successful delete. Repeats and other queues do not count."""
    received = {"receipt_handle_hash": "h", "sqs_message_id": "m", "first_received_at_us": 103 * SECOND_US}
    events = [
        _event("published", 101, queue="topic", deduplication_id="d", message_group_id="g"),
        _event("published", 102, queue="topic", deduplication_id="d", message_group_id="g"),
        _event("published", 101, queue="elsewhere", deduplication_id="e", message_group_id="g"),
        _event("poll", 102),
        _event("poll", 103),
        _event("received", 103, **received),
        _event("visibility_changed", 104, receipt_handle_hash="h", visibility_timeout_seconds=30),
        _event("deleted", 105, receipt_handle_hash="h", outcome="fail"),
        _event("deleted", 106, receipt_handle_hash="h"),
        _event("received", 107, **received | {"receipt_handle_hash": "i", "queue": "other"}),
    ]

    found = observation.read_records(events, addresses=("topic", QUEUE), queue=QUEUE)

    assert found == QueueRecord(
        sent=[(101 * SECOND_US, "g")],
        held=[HeldMessage(recorder="w", received_us=103 * SECOND_US, ended_us=106 * SECOND_US)],
        empty_us=[102 * SECOND_US],
        unrecorded_us=[],
    )


def test_a_message_of_a_stopped_worker_is_reported_with_the_workers_name() -> None:
    """A killed worker's journal lacks its last receive; the receive count of the next receive shows it."""
    again = {"receipt_handle_hash": "h", "sqs_message_id": "m", "first_received_at_us": 103 * SECOND_US}
    events = [
        _event("received", 103, worker="of-0", receipt_handle_hash="k", sqs_message_id="n"),
        _event("deleted", 106, worker="of-0", receipt_handle_hash="k"),
        _event("received", 120, worker="of-2", receive_count=2, **again),
    ]
    tasks = [
        _task("billing-0", stopped_s=105),
        _task("billing-1", stopped_s=104, killed_s=105),
        _task("billing-2", stopped_s=110),
        _task("billing-3"),
    ]
    seen = Observation(rehearsed=_rehearsed_service(), tasks=tasks)
    seen.recorders = {"billing-0": "of-0", "billing-1": "of-1", "billing-2": "of-2"}

    stopped = prediction.stops(seen, observation.read_records(events, addresses=(QUEUE,), queue=QUEUE), PACE)

    assert [(stop["task"], stop["held_messages"], stop["is_killed"], stop["minute"]) for stop in stopped] == [
        ("billing-0", 1, False, 2.5),
        ("billing-1", 1, True, 2.0),
        ("billing-2", 0, False, 5.0),
    ]
    assert prediction.stops_sentence(stopped) == (
        "3 stopped, at work: billing-0 (1 messages), billing-1 (1 messages), killed: billing-1"
    )
    assert prediction.stops_sentence(stopped[2:]) == "1 stopped, none at work, none killed"


def test_observed_tasks_are_compared_with_the_prediction() -> None:
    """One task ran for six minutes of 2 s.

    The prediction, from the recorded messages, is the same except for the backlog.
    """
    seen, minutes = Observation(rehearsed=_rehearsed_service(), tasks=[_task("billing-0")], is_back=True), 6
    for _ in range(minutes):
        observation.add_minute(seen.series, [Sample(0, 1, 1)], desired=1, lanes=2, pace=PACE)
    held = [HeldMessage(recorder="w", received_us=101 * SECOND_US, ended_us=101_600_000)]
    journals = QueueRecord(sent=[(101 * SECOND_US, "g"), (103 * SECOND_US, "g")], held=held, empty_us=[104 * SECOND_US])

    found = prediction.result(seen, journals, PACE)

    assert found["measured"]["recorded"] == {
        "sent": [1, 1, 0, 0, 0, 0],
        "received": [1, 0, 0, 0, 0, 0],
        "empty": [0, 0, 1, 0, 0, 0],
    }
    assert found["start_seconds"] == 60.0
    assert found["overhead_seconds"] == 3.0
    assert found["predicted"]["received"] == [1, 1, 0, 0, 0, 0]
    assert found["tasks_apart"] == 0.0
    assert found["task_minutes"] == [6.0, 6.0]
    assert found["backlog_minutes"][0] == 6.0
    assert found["backlog_minutes"][1] == pytest.approx(0.5, abs=0.1)  # two handlers of a quarter of a minute
    assert prediction.sentences({"billing": found}, PACE) == [
        "billing: tasks 1 in 6 minutes of 2 s, predicted 1; 0.00 tasks apart on average, 6 task-minutes (predicted 6),"
        f" 6 message-minutes of backlog (predicted {found['backlog_minutes'][1]:g});"
        " 0 stopped, none at work, none killed"
    ]
