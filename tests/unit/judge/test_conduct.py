"""The verdict names what a recording's consumers do wrong, even if SQS keeps its promises."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sluice.history.events import HistoryEvent, Kind
from sluice.judge import recording
from sluice.judge.checker.verdict import EXIT_CROSSED, PropertyStatus, Verdict
from sluice.judge.engine import open_in_memory
from sluice.judge.report import summary
from sluice.recorder import record
from tests.support.histories.builders import delete_event, receive_event
from tests.support.histories.recorded_services import DEAD, QUEUE, RECEIVES_MAX, VISIBILITY_SECONDS, OrderService
from tests.support.histories.recordings import engine_of


def _delete(shop: OrderService, handle: str) -> None:
    shop.sqs.delete_message(QueueUrl=shop.url, ReceiptHandle=handle)


def _be_late(shop: OrderService) -> None:
    (handle,) = shop.receive(count=1)
    shop.simulator.advance(VISIBILITY_SECONDS + 3)
    with pytest.raises(ClientError):
        _delete(shop, handle)


def _extend(shop: OrderService) -> None:
    (handle,) = shop.receive(count=1)
    shop.simulator.advance(VISIBILITY_SECONDS - 1)
    shop.sqs.change_message_visibility(QueueUrl=shop.url, ReceiptHandle=handle, VisibilityTimeout=60)
    shop.simulator.advance(50)
    _delete(shop, handle)


def _release(shop: OrderService) -> None:
    (handle,) = shop.receive(count=1)
    shop.sqs.change_message_visibility(QueueUrl=shop.url, ReceiptHandle=handle, VisibilityTimeout=0)


def _fail(shop: OrderService) -> None:
    shop.receive(count=1)
    shop.simulator.advance(VISIBILITY_SECONDS + 1)


def _work_in_threads(shop: OrderService) -> None:
    first, second, third = shop.receive(count=3)
    for handle in (second, first, third):
        _delete(shop, handle)


def _be_punctual(shop: OrderService) -> None:
    (handle,) = shop.receive(count=1)
    shop.simulator.advance(VISIBILITY_SECONDS - 1)
    _delete(shop, handle)


def _verdict_of(folder: Path, consume: Callable[[OrderService], None], seconds: int = VISIBILITY_SECONDS) -> Verdict:
    shop = OrderService()
    with record(shop.clients, folder, clock=shop.simulator.clock):
        for number in range(4):
            shop.order("ann", number, deduplication_id=str(number))
        consume(shop)
        shop.bill()
    engine = open_in_memory(folder)
    assert engine is not None, "it is small"
    queues = recording.parse_queues([f"{QUEUE}={seconds}:{DEAD}:{RECEIVES_MAX}"])
    return recording.check(engine, folder, queues, "endpoint")[0]


@pytest.mark.parametrize(
    ("consume", "found", "sentence"),
    [
        (_be_punctual, [], "at most 29 s, of 4 messages"),
        (_extend, [], "at most 79 s, of 4 messages"),
        (_release, [], "1 message received again: the consumer released it"),
        (
            _fail,
            [],
            "1 message received again: its visibility timeout ended before a delete, as of a handler that failed",
        ),
        (
            _be_late,
            [
                "1 message received again before the work on it had ended: work took up to 33 s, the timeout is 30 s",
                "1 receipt handle used after the visibility timeout had ended: work took up to 33 s, the timeout is"
                " 30 s",
                "1 delete refused with InvalidParameterValue: the message was still in the queue, or is again",
            ],
            "at most 33 s",
        ),
        (
            _work_in_threads,
            [
                "1 message deleted before an earlier one of the group that was also at work: by the order of"
                " the deletes two threads or consumers work on one group, and its order ends there"
            ],
            "of 4 messages",
        ),
    ],
)
def test_a_verdict_says_what_the_consumer_did(
    tmp_path: Path, consume: Callable[[OrderService], None], found: list[str], sentence: str
) -> None:
    verdict = _verdict_of(tmp_path, consume)

    assert verdict.status is PropertyStatus.VALID
    assert list(verdict.conduct) == [f"{QUEUE}: {line}" for line in found]
    assert verdict.exit_code == (EXIT_CROSSED if found else 0)
    assert any(sentence in line for line in summary.consumer(verdict)), summary.consumer(verdict)
    assert ("needs mending" in summary.means(verdict)) is bool(found)


def test_a_handle_is_late_only_where_the_timeout_is_known(tmp_path: Path) -> None:
    """For a queue without a declared timeout nobody knows when a lease ended; a refused delete is still known."""
    shop = OrderService()
    with record(shop.clients, tmp_path, clock=shop.simulator.clock):
        shop.order("ann", 1, deduplication_id="1")
        _be_late(shop)
        shop.bill()
    engine = open_in_memory(tmp_path)
    assert engine is not None, "it is small"

    measured: dict[str, Any] = recording.check(engine, tmp_path, {}, "endpoint")[0].measures["consumer"]

    assert measured["queues"][QUEUE]["late"] == 0
    assert measured["queues"][QUEUE]["refused"] == {"InvalidParameterValue": 1}


_ANSWER = [receive_event("billing", idx, 0, call_id="one", batch_position=idx) for idx in range(3)]
_FIRST, _SECOND, _ = _ANSWER


def _refused_delete(receive: HistoryEvent, at_ms: int) -> HistoryEvent:
    return delete_event(receive, at_ms, outcome="fail", error="RequestThrottled")


def _release_event(receive: HistoryEvent, at_ms: int) -> HistoryEvent:
    return replace(delete_event(receive, at_ms), kind=Kind.VISIBILITY_CHANGED.value, visibility_timeout_seconds=0)


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([_refused_delete(_FIRST, 100), delete_event(_FIRST, 200)], []),
        ([_refused_delete(_FIRST, 100), _refused_delete(_FIRST, 200)], ["1 delete refused"]),
        ([_release_event(receive, 100 * place) for place, receive in enumerate(reversed(_ANSWER), 1)], []),
        ([delete_event(_SECOND, 100), _release_event(_FIRST, 200)], ["1 message deleted"]),
        ([delete_event(_SECOND, 100, took_ms=50), delete_event(_FIRST, 101)], []),
        ([delete_event(_SECOND, 100), delete_event(_FIRST, 200)], ["1 message deleted"]),
        ([receive_event("billing", 0, 20_000, receipt_handle_hash="billing 0 0"), delete_event(_FIRST, 40_000)], []),
        ([replace(_SECOND, clock_id="d"), delete_event(_SECOND, 100, clock_id="d"), delete_event(_FIRST, 200)], []),
    ],
    ids=[
        "a delete that is tried again",
        "a delete that is refused each time",
        "the answer is given back from its end",
        "the first is given back and the second deleted",
        "deletes that are sent together",
        "deletes one after the other",
        "a receive that is repeated by its attempt id hides the message anew",
        "deletes by other clocks",
    ],
)
def test_only_unlawful_conduct_of_a_consumer_is_a_finding(events: list[HistoryEvent], found: list[str]) -> None:
    clocks = {event.idx for event in events if event.clock_id == "d"}
    answer = [receive for receive in _ANSWER if receive.idx not in clocks]

    measured = engine_of([*answer, *events]).conduct({"billing": 30})

    assert len(measured["found"]) == len(found)
    assert all(line.startswith(f"billing: {start}") for line, start in zip(measured["found"], found, strict=True))
