"""`sluice.recorder.recorder.record` on the clients of a service without Sluice: its history can be judged like ours."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from sluice.errors import ConfigError
from sluice.history.bundles import bundled_bodies
from sluice.history.events import (
    Kind,
    detail_of,
    is_sampled,
    recording_detail,
    short_hash,
    stable_idx,
    unseen_detail,
)
from sluice.judge.checker import Finding
from sluice.judge.checker.verdict import PropertyStatus
from sluice.judge.engine import open_in_memory
from sluice.judge.recording import RecordedQueue, check
from sluice.messaging.bundle import write_bundle
from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.sqs.queue import ReceivedMessage
from sluice.messaging.telemetry.recording import WorkerRecording
from sluice.recorder import Recording, record
from sluice.recorder.journal import Journal, events_of, read_journal
from sluice.recorder.recorder import Recorder
from sluice.saboteurs import sabotage
from sluice.simulator.hook import ENDPOINT_URL
from tests.support.endpoints.capturing_server import Reply, capturing
from tests.support.full_disk import files_limited_to
from tests.support.histories.recorded_services import (
    CUSTOMERS,
    DEAD,
    QUEUE,
    RECEIVES_MAX,
    TOPIC,
    VISIBILITY_SECONDS,
    OrderService,
    anomalies,
    doubts,
    judge_groups,
    read_recording,
)
from tests.support.processes.forking import forking


def _order_number(body: str) -> str:
    return str(json.loads(body)["order"])


def _record(shop: OrderService, folder: Path, **more: Any) -> Recording:
    """Record all clients of a shop, on the simulator's clock."""
    return record(shop.clients, folder, clock=shop.simulator.clock, **more)


# --- records ---------------------------------------------------------------------------------------------------------


def test_a_purge_is_recorded_before_its_call_and_at_its_answer(tmp_path: Path) -> None:
    shop = OrderService()
    with _record(shop, tmp_path / "purged"):
        shop.sqs.purge_queue(QueueUrl=shop.url)

    _, _, purge, _ = read_recording(tmp_path / "purged")

    assert purge.kind == Kind.PURGED
    assert purge.queue == QUEUE
    assert purge.outcome == "ok"
    assert purge.message_group_id is None
    assert purge.responded_at_us is not None


_EVENTS = [Envelope(event=Event(type="t", group="ann", data=n, id=f"id-{n}"), seq=n, epoch=1).body for n in (1, 2)]


def test_each_event_of_a_bundle_has_a_row_with_its_own_ids(tmp_path: Path) -> None:
    """In a batch with a message of its own, the position is that among all events of the call."""
    shop = OrderService()
    sent = [("one", _EVENTS[0]), ("two", write_bundle(_EVENTS))]
    with _record(shop, tmp_path / "bundles"):
        shop.sns.publish_batch(
            TopicArn=shop.topic_arn,
            PublishBatchRequestEntries=[
                {"Id": id_, "Message": body, "MessageGroupId": "ann", "MessageDeduplicationId": id_}
                for id_, body in sent
            ],
        )
        handles = shop.receive()
        entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(handles)]
        shop.sqs.delete_message_batch(QueueUrl=shop.url, Entries=entries)

    published, received, deleted = (
        [event for event in read_recording(tmp_path / "bundles") if event.kind == kind]
        for kind in (Kind.PUBLISHED, Kind.RECEIVED, Kind.DELETED)
    )

    ids = ["one", "id-1", "id-2"]
    for events in (published, received, deleted):
        assert [event.idx for event in events] == [*map(stable_idx, ids)]
        assert [event.batch_position for event in events] == [0, 1, 2]
        assert [event.outcome for event in events] == ["ok"] * 3
    for events in (published, received):
        assert [event.deduplication_id for event in events] == ["one", "two.0", "two.1"]
        assert [event.body_hash for event in events] == [short_hash(_EVENTS[number]) for number in (0, 0, 1)]
    alone, first, second = (event.sqs_message_id or "" for event in received)
    assert second == f"{first.removesuffix('.0')}.1"
    assert "." not in alone
    assert [event.sqs_message_id for event in deleted] == [alone, first, second]
    numbers = [event.sqs_sequence_number or "" for event in received]
    assert numbers == sorted({*numbers})
    assert len({event.receipt_handle_hash for event in received}) == 2


@pytest.mark.parametrize(
    "body",
    [
        '{"sluice":2,"events":[]}',
        '{"sluice":2,"events":["a","b"]}',
        '{"sluice":2,"events":[{"name":"a"},{"name":"b"}]}',
        f'{{"sluice":2,"events":[{",".join(_EVENTS)}],"more":1}}',
        f'{{"sluice":2,"events":[{",".join(_EVENTS)}',
        f'{{"events":[{",".join(_EVENTS)}],"sluice":2}}',
        f'{{"sluice":3,"events":[{",".join(_EVENTS)}]}}',
        '{"sluice":2,"events":[' + "[" * 100_000,
    ],
)
def test_a_body_that_only_looks_like_a_bundle_is_one_message(body: str) -> None:
    assert bundled_bodies(body) == []


def test_an_unreadable_event_of_a_bundle_is_an_event() -> None:
    assert [event.body for event in bundled_bodies(write_bundle([_EVENTS[0], "7"]))] == [_EVENTS[0], "7"]


def test_an_event_in_the_bundle_of_another_group_names_that_group(tmp_path: Path) -> None:
    shop = OrderService()
    with _record(shop, tmp_path / "mixed"):
        shop.sns.publish(
            TopicArn=shop.topic_arn,
            Message=write_bundle(_EVENTS),
            MessageGroupId="bob",
            MessageDeduplicationId="b",
        )
        shop.receive()

    mixed = [event for event in read_recording(tmp_path / "mixed") if event.kind in (Kind.PUBLISHED, Kind.RECEIVED)]

    assert [(event.message_group_id, detail_of(event.detail)["bundle_group"]) for event in mixed] == [
        ("ann", "bob")
    ] * 4


def test_a_message_has_the_same_idx_in_publish_receive_and_delete(tmp_path: Path) -> None:
    shop = OrderService()
    with _record(shop, tmp_path / "tuesday"):
        shop.order("ann", 1, deduplication_id="ann/1")
        (handle,) = shop.receive()
        shop.sqs.delete_message(QueueUrl=shop.url, ReceiptHandle=handle)

    opened, topology, publish, poll, receive, delete, closed = read_recording(tmp_path / "tuesday")

    assert [event.kind for event in (opened, topology, poll, closed)] == [
        Kind.OPENED,
        Kind.TOPOLOGY,
        Kind.POLL,
        Kind.CLOSED,
    ]
    assert topology.detail == '{"is_planned": false, "one_group_in": 1}'
    assert [(event.kind, event.queue) for event in (publish, receive, delete)] == [
        ("published", TOPIC),
        ("received", QUEUE),
        ("deleted", QUEUE),
    ]
    assert {event.idx for event in (publish, receive, delete)} == {stable_idx("ann/1")}
    assert {event.message_run for event in (publish, receive, delete)} == {"tuesday"}
    assert {event.message_group_id for event in (publish, receive, delete)} == {"ann"}
    assert publish.body_hash == receive.body_hash
    assert publish.attributes_hash == receive.attributes_hash is not None


def test_a_change_names_the_message_that_another_process_received(tmp_path: Path) -> None:
    """A Lambda function changes visibility timeouts, and another process polls: without the name it would look held."""
    shop = OrderService()
    shop.order("ann", 1, deduplication_id="ann/1")
    (handle,) = shop.receive()
    message = ReceivedMessage(
        sqs_message_id="m-1", receipt_handle=handle, message_group_id="ann", body="{}", receive_count=1
    )
    with Journal(tmp_path, "function", common={}, clock=shop.simulator.clock) as journal:
        recorder = Recorder(journal, names={shop.url: QUEUE}, clock=shop.simulator.clock)
        recorder.attach(shop.sqs)
        WorkerRecording(recorder, queue_url=shop.url).before_invocation([message])
        shop.sqs.change_message_visibility(QueueUrl=shop.url, ReceiptHandle=handle, VisibilityTimeout=3)
        recorder.detach(shop.sqs)

    _, change, _ = events_of(read_journal(tmp_path / "function.arrows"))
    assert change.kind == Kind.VISIBILITY_CHANGED
    assert change.outcome == "ok"
    assert change.message_group_id == "ann"
    assert change.sqs_message_id == "m-1"


def test_a_message_without_attributes_is_recorded_as_such(tmp_path: Path) -> None:
    """Attributes that it is received with would be somebody's invention."""
    shop = OrderService()
    with _record(shop, tmp_path):
        shop.sqs.send_message(QueueUrl=shop.url, MessageBody="b", MessageGroupId="ann", MessageDeduplicationId="1")
        shop.sqs.receive_message(QueueUrl=shop.url, MessageAttributeNames=["All"])

    hashes = {event.kind: event.attributes_hash for event in read_recording(tmp_path)}

    assert hashes[Kind.PUBLISHED] == hashes[Kind.RECEIVED] is not None


@pytest.mark.parametrize("is_raw", [True, False])
def test_without_a_deduplication_id_the_body_tells_messages_apart(tmp_path: Path, *, is_raw: bool) -> None:
    """With content-based deduplication SNS makes an id of the body.

    A receive has the id, with an envelope or without.
    """
    shop = OrderService(is_raw=is_raw)
    with _record(shop, tmp_path):
        shop.order("ann", 1)
        shop.bill()

    publish, receive = (event for event in read_recording(tmp_path) if event.kind in (Kind.PUBLISHED, Kind.RECEIVED))

    assert publish.deduplication_id is None
    assert receive.deduplication_id is not None
    assert publish.idx == receive.idx is not None


def test_the_idx_of_a_text_never_changes() -> None:
    """It connects the journals of different processes, and is small enough for a number in JSON."""
    assert stable_idx("ann/1") == 0x62D7109354543
    assert max(stable_idx(str(number)) for number in range(1_000)) < 2**52


def test_a_body_is_not_written(tmp_path: Path) -> None:
    shop = OrderService()
    with _record(shop, tmp_path):
        shop.trade()

    (journal,) = tmp_path.glob("*.arrows")

    assert b"lines" not in journal.read_bytes()
    assert b"placed" not in journal.read_bytes()
    assert b"ann/3" in journal.read_bytes()


def _client_losing_answers(shop: OrderService, *lost: Exception, attempts: int) -> Any:
    """Return a client of the shop whose first answers are these errors; it tries each call `attempts` times."""
    session = botocore.session.get_session()
    session.set_credentials("simulator", "simulator")
    config = Config(retries={"total_max_attempts": attempts})
    client = session.create_client("sqs", region_name="us-east-1", endpoint_url=ENDPOINT_URL, config=config)
    answers = iter(lost)

    def lose(**_: object) -> None:
        for error in answers:
            raise error

    client.meta.events.register_first("before-send", lose)
    shop.simulator.attach(client)
    return client


def test_a_receive_that_the_sdk_repeated_counts_as_unanswered_too(tmp_path: Path) -> None:
    """The first try may have leased messages that the lost answer had."""
    shop = OrderService()
    client = _client_losing_answers(shop, _TIMEOUT, attempts=2)
    with record(client, tmp_path, clock=shop.simulator.clock):
        client.receive_message(QueueUrl=shop.url)
    polls = [event for event in read_recording(tmp_path) if event.kind == Kind.POLL]

    assert [(poll.outcome, poll.error) for poll in polls] == [("ok", None), ("info", "Repeated")]


_TIMEOUT, _REFUSED = (error(endpoint_url=ENDPOINT_URL) for error in (ReadTimeoutError, EndpointConnectionError))


@pytest.mark.parametrize(
    ("lost", "outcome", "error"),
    [
        ((_REFUSED,), "fail", "EndpointConnectionError"),  # the request was never sent
        ((_TIMEOUT,), "info", "ReadTimeoutError"),  # the request may have arrived
        ((_TIMEOUT, _REFUSED), "info", "EndpointConnectionError"),  # the first try may have arrived
    ],
)
def test_a_send_without_an_answer_may_have_had_its_effect(
    tmp_path: Path, lost: tuple[Exception, ...], outcome: str, error: str
) -> None:
    shop = OrderService()
    client = _client_losing_answers(shop, *lost, attempts=len(lost))
    with record(client, tmp_path, clock=shop.simulator.clock), pytest.raises(type(lost[-1])):
        client.send_message(QueueUrl=shop.url, MessageBody="b", MessageGroupId="g", MessageDeduplicationId="d")

    (sent,) = (event for event in read_recording(tmp_path) if event.kind == Kind.PUBLISHED)

    assert sent.outcome == outcome
    assert sent.error == error
    assert sent.responded_at_us is None or outcome == "fail"


# --- judgement --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_raw", [True, False])
def test_a_correct_service_has_no_violation_and_no_doubt(tmp_path: Path, *, is_raw: bool) -> None:
    shop = OrderService(is_raw=is_raw)
    with _record(shop, tmp_path):
        shop.trade()
        shop.order("ann", 3, deduplication_id="ann/3")
        shop.bill()

    assert judge_groups(read_recording(tmp_path)) == dict.fromkeys(CUSTOMERS, Finding(violations=(), unknowns=()))


def test_publishes_without_a_plan_have_no_intended_order(tmp_path: Path) -> None:
    """SNS's sequence numbers are the order; C7, the intended order, is judged for load tests only."""
    shop = OrderService()
    with _record(shop, tmp_path):
        for number in (9, 1, 5, 2):
            shop.order("ann", number)
        shop.bill()
    events = read_recording(tmp_path)
    idxs = [event.idx for event in events if event.kind == Kind.PUBLISHED]

    assert idxs != sorted(idx for idx in idxs if idx is not None)
    assert anomalies(judge_groups(events)) == set()


@pytest.mark.parametrize(
    ("saboteur", "every", "shows"),
    [
        ("drop-messages", 3, {"A2"}),
        ("deliver-twice", 5, {"B1"}),
        ("reverse-batch", 1, {"C2"}),
        ("corrupt-bodies", 5, {"G1"}),
        ("swap-late-bodies", 1, {"G1"}),
        ("blank-checksums", 1, {"G2"}),
        ("regroup-messages", 1, {"A4"}),
        ("ignore-delete", 4, {"A8"}),
        ("freeze-sequence-numbers", 1, {"C5"}),
    ],
)
def test_the_anomaly_of_a_sabotaged_service_is_found(
    tmp_path: Path, saboteur: str, every: int, shows: set[str]
) -> None:
    shop = OrderService()
    sabotage(shop.clients, saboteur, every=every)
    with _record(shop, tmp_path):
        shop.trade(count=3)

    assert shows <= anomalies(judge_groups(read_recording(tmp_path)))


def test_a_repeat_under_another_deduplication_id_is_found_by_its_key(tmp_path: Path) -> None:
    """To SQS they are two messages; `key` reads from the body that they are the same order."""
    for name, key in (("plain", None), ("keyed", _order_number)):
        shop = OrderService()
        with _record(shop, tmp_path / name, key=key):
            shop.order("ann", 1, deduplication_id="first")
            shop.order("ann", 1, deduplication_id="second")
            shop.bill()

    assert anomalies(judge_groups(read_recording(tmp_path / "plain"))) == set()
    (violation,) = judge_groups(read_recording(tmp_path / "keyed"))["ann"].violations
    assert violation.anomaly == "B1"
    assert (
        violation.sentence == "2 messages of what is one message under 2 deduplication ids, published within the window"
    )


def test_a_dead_letter_is_recognised_as_its_message(tmp_path: Path) -> None:
    """It has another deduplication id in the DLQ, but it counts neither as a lost message nor as an unknown one."""
    shop = OrderService()
    with _record(shop, tmp_path):
        for number in range(3):
            shop.order("ann", number, deduplication_id=f"ann/{number}")
        for _ in range(RECEIVES_MAX):
            assert len(shop.receive(count=1)) == 1
            shop.simulator.advance(VISIBILITY_SECONDS + 1)
        shop.bill()
        shop.bill(shop.dead_url)
    events = read_recording(tmp_path)
    (dead,) = (event for event in events if event.kind == Kind.RECEIVED and event.queue == DEAD)

    assert dead.deduplication_id == dead.sqs_message_id
    assert dead.idx == stable_idx(dead.deduplication_id or "")
    assert judge_groups(events)["ann"].violations == ()
    assert judge_groups(events)["ann"].unknowns == ()


def test_a_message_from_nowhere_is_unknown_if_a_producer_is_not_recorded(tmp_path: Path) -> None:
    """A4 if all producers are recorded; otherwise it may be of a producer without a recorder."""
    shop = OrderService()
    with record(shop.sqs, tmp_path, clock=shop.simulator.clock):
        shop.order("ann", 1)
        shop.bill()
    events = read_recording(tmp_path)

    assert anomalies(judge_groups(events)) == {"A4"}
    assert anomalies(judge_groups(events, is_publishing_recorded=False)) == set()
    assert list(doubts(judge_groups(events, is_publishing_recorded=False))) == [
        "group ann: 1 message(s) received whose publishing may not be on record"
    ]


def test_a_receive_that_does_not_request_its_group_has_no_group(tmp_path: Path) -> None:
    """The recorder requests nothing that the caller does not request, so it cannot know the group."""
    shop = OrderService()
    with _record(shop, tmp_path):
        shop.order("ann", 1, deduplication_id="ann/1")
        shop.bill(requests=["ApproximateReceiveCount"])
    received = [event for event in read_recording(tmp_path) if event.kind in (Kind.RECEIVED, Kind.DELETED)]

    assert [(event.kind, event.message_group_id) for event in received] == [("received", None), ("deleted", None)]


# --- some of the groups ----------------------------------------------------------------------------------------------


def test_group_ids_of_a_standard_queue_are_no_groups(tmp_path: Path) -> None:
    """In a fair queue several messages of a group may be in flight, in any order, so no group is judged."""
    shop = OrderService()
    url = shop.sqs.create_queue(QueueName="fair")["QueueUrl"]
    with _record(shop, tmp_path / "fair"):
        for number in range(3):
            shop.sqs.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId="ann")
        handles = [handle for _ in range(3) for handle in shop.receive(url, count=1)]
        for handle in reversed(handles):
            shop.sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)

    engine = open_in_memory(tmp_path / "fair")
    assert engine is not None, "it is small"
    verdict = check(engine, tmp_path / "fair", {"fair": RecordedQueue(visibility_timeout_seconds=30)}, "endpoint")[0]
    assert verdict.status is PropertyStatus.UNKNOWN
    assert verdict.violations == ()
    assert "a standard queue promises no order, within a group neither" in verdict.unknowns[0]
    assert {event.message_group_id for event in read_recording(tmp_path / "fair")} == {None}


def test_a_sample_records_whole_groups_and_shows_their_violations(tmp_path: Path) -> None:
    """The same trade is recorded twice: all groups, and one group in four."""
    customers = [f"customer-{number}" for number in range(24)]
    sampled_customers = {customer for customer in customers if is_sampled(customer, 4)}
    shop, recordings = OrderService(), {}
    sabotage(shop.clients, "deliver-twice")
    with _record(shop, tmp_path / "all"), pytest.raises(ConfigError, match="this client of 'sns' is being recorded"):
        _record(shop, tmp_path / "twice")
    for name, one_group_in in (("all", 1), ("sample", 4)):
        with _record(shop, tmp_path / name, one_group_in=one_group_in):
            for customer in customers:
                shop.order(customer, 1, deduplication_id=f"{name}/{customer}")
            shop.bill()
        recordings[name] = read_recording(tmp_path / name)
    groups = {name: {event.message_group_id for event in events} - {None} for name, events in recordings.items()}
    kinds_of_sampled = {
        name: sorted(event.kind for event in events if event.message_group_id in sampled_customers)
        for name, events in recordings.items()
    }
    polls = {name: sum(event.kind == Kind.POLL for event in events) for name, events in recordings.items()}

    assert 2 < len(sampled_customers) < 12
    assert groups == {"all": set(customers), "sample": sampled_customers}
    assert kinds_of_sampled["all"] == kinds_of_sampled["sample"] != []
    assert polls["all"] == polls["sample"] > 0
    assert recording_detail(4) in {event.detail for event in recordings["sample"]}
    assert {
        group for group, finding in judge_groups(recordings["sample"]).items() if finding.violations
    } == sampled_customers


# --- the host is not harmed -------------------------------------------------------------------------------------------


def test_a_full_disk_stops_the_recording_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shop = OrderService()
    with _record(shop, tmp_path) as recording:
        shop.order("ann", 0)
        (journal,) = tmp_path.glob("*.arrows")
        with files_limited_to(journal.stat().st_size + 100):
            for number in range(1, 20):
                shop.order("ann", number)
            shop.bill()
        assert not recording.is_on
        assert shop.receive() == []

    events = read_recording(tmp_path)
    (line,) = caplog.messages
    assert "File too large" in line
    assert "calls go on unrecorded" in line
    assert sum(event.kind == Kind.PUBLISHED for event in events) == 1
    assert Kind.CLOSED not in {event.kind for event in events}


def test_an_unforeseen_failure_of_the_key_stops_only_the_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def key(body: str) -> str:
        raise RuntimeError(f"cannot read {len(body)} characters")

    shop = OrderService()
    with caplog.at_level(logging.ERROR), _record(shop, tmp_path, key=key) as recording:
        shop.trade()

    assert not recording.is_on
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert Kind.CLOSED not in {event.kind for event in read_recording(tmp_path)}


_forked = forking("tests.support.histories.recorded_services", "sluice.recorder.recorder")


def _start(do: Callable[..., None], *arguments: Any) -> Any:
    """Start a process that calls `do` with these arguments."""
    process = _forked.Process(target=do, args=arguments)
    process.start()
    return process


def _wait_for_exit(process: Any) -> int:
    process.join(60)
    return int(process.exitcode)


def _trade_recorded(folder: Path) -> None:
    shop = OrderService()
    with record(shop.clients, folder):
        shop.order("ann", 1)
        shop.bill()


def test_two_processes_record_into_one_folder(tmp_path: Path) -> None:
    assert [_wait_for_exit(item) for item in [_start(_trade_recorded, tmp_path / "both") for _ in range(2)]] == [0, 0]

    events = read_recording(tmp_path / "both")

    assert len({event.worker for event in events}) == 2
    assert len({event.clock_id for event in events}) == 1
    assert len({event.idx for event in events if event.kind == Kind.PUBLISHED}) == 1


def _die(folder: Path) -> None:
    """Record an order, and kill this process when the next one is about to be sent."""
    shop = OrderService()
    recording = record(shop.clients, folder)
    shop.order("ann", 1)
    shop.sns.meta.events.register("before-send", lambda **_: os.kill(os.getpid(), signal.SIGKILL))
    shop.order("ann", 2)
    recording.close()


_HALF = "\ud800"  # half of a surrogate pair: valid in JSON's escapes, not in UTF-8
_MESSAGE = {"MessageBody": "{}", "MessageGroupId": "ann", "MessageDeduplicationId": "1"}


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("receive_message", {"VisibilityTimeout": 2**40}),
        ("receive_message", {"VisibilityTimeout": True}),
        ("receive_message", {"WaitTimeSeconds": -(2**70)}),
        ("receive_message", {"ReceiveRequestAttemptId": _HALF}),
        ("change_message_visibility", {"ReceiptHandle": _HALF, "VisibilityTimeout": 2**70}),
        ("delete_message", {"ReceiptHandle": _HALF}),
        *(("send_message", _MESSAGE | {name: _HALF}) for name in _MESSAGE),
        ("send_message_batch", {"Entries": [{"Id": "1", **_MESSAGE}, {"Id": "2", **_MESSAGE, "MessageBody": _HALF}]}),
    ],
)
def test_a_value_that_no_journal_holds_does_not_stop_the_recording(
    tmp_path: Path, operation: str, params: dict[str, Any]
) -> None:
    """SQS or botocore refuses the call, but the recorder sees its values first."""
    shop = OrderService()
    with _record(shop, tmp_path):
        with contextlib.suppress(ClientError, UnicodeEncodeError):
            getattr(shop.sqs, operation)(QueueUrl=shop.url, **params)
        shop.order("ann", 1)

    assert [event.kind for event in read_recording(tmp_path)][-2:] == [Kind.PUBLISHED, Kind.CLOSED]


def test_a_killed_process_leaves_its_journal_open(tmp_path: Path) -> None:
    assert _wait_for_exit(_start(_die, tmp_path / "killed")) == -signal.SIGKILL

    events = read_recording(tmp_path / "killed")

    assert [(event.kind, event.outcome) for event in events][2:] == [("published", "ok"), ("published", "info")]


def _fork(folder: Path) -> None:
    """Record one order before a fork, and one in each of the two processes after it."""
    shop = OrderService()
    recording = record(shop.clients, folder, worker="front")
    shop.order("ann", 1)
    child = os.fork()
    shop.order("bob" if child == 0 else "cid", 2)
    recording.close()
    if child != 0:
        os.waitpid(child, 0)
    os._exit(0)


def test_a_forked_child_writes_into_a_journal_of_its_own(tmp_path: Path) -> None:
    assert _wait_for_exit(_start(_fork, tmp_path / "forked")) == 0

    of_journal = {
        tuple(event["message_group_id"] for event in events if event["kind"] == Kind.PUBLISHED): events[-1]["kind"]
        for path in (tmp_path / "forked").glob("front-*.arrows")
        if (events := read_journal(path).to_pylist())
    }

    assert of_journal == {("ann", "cid"): Kind.CLOSED, ("bob",): Kind.CLOSED}


def test_a_process_that_does_not_close_keeps_its_records_without_an_end(tmp_path: Path) -> None:
    """At its exit all records are written, but no `closed`: nobody said that no more would come."""
    code = (
        "from tests.support.histories.recorded_services import OrderService; from sluice.recorder import record;"
        " from pathlib import Path; shop = OrderService();"
        f"record(shop.clients, Path({str(tmp_path / 'open')!r})); shop.order('ann', 1)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())})

    assert [(event.kind, event.outcome) for event in read_recording(tmp_path / "open")][2:] == [("published", "ok")]


def test_a_call_that_is_signed_and_sent_by_something_else_is_named(tmp_path: Path) -> None:
    """As kombu's receives are, and calls by a presigned URL; each operation is recorded once."""
    shop = OrderService()
    with _record(shop, tmp_path):
        for _ in range(2):
            shop.sqs.generate_presigned_url("receive_message", Params={"QueueUrl": shop.url})
        shop.sqs.generate_presigned_url("get_queue_url", Params={"QueueName": QUEUE})
        shop.order("ann", 1)

    (opened, unseen) = (event for event in read_recording(tmp_path) if event.kind == Kind.TOPOLOGY)
    assert opened.detail == recording_detail(1)
    assert unseen.detail == unseen_detail("ReceiveMessage was signed by a client of boto3, and sent by something else")


_CHILDREN = """
import multiprocessing, os, sys, warnings
from pathlib import Path
from sluice.recorder import record
from tests.support.histories.recorded_services import OrderService
warnings.simplefilter("ignore")  # that threads and fork do not go together
shop = OrderService()
def order(number): shop.order(str(os.getpid()), number)
with record(shop.clients, Path(sys.argv[1]), clock=shop.simulator.clock):
    order(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(order, range(2), chunksize=1); pool.close(); pool.join()
    if os.fork() == 0: sys.exit(order(1))
    os.wait()
    if os.fork() == 0: order(2); os._exit(0)
    os.wait()
"""


def test_forked_children_close_their_journals_unless_they_call_os_exit(tmp_path: Path) -> None:
    """The parent opened the recording. Of the children of `_CHILDREN` one calls `os._exit`, which looks like a kill."""
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    subprocess.run([sys.executable, "-c", _CHILDREN, str(tmp_path)], check=True, env=environment, timeout=60)

    journals = [events_of(read_journal(path)) for path in tmp_path.glob("*.arrows")]
    ends = [journal[-1].kind for journal in journals if any(event.kind == Kind.PUBLISHED for event in journal)]
    assert ends.count(Kind.CLOSED) == len(ends) - 1
    assert ends.count(Kind.PUBLISHED) == 1
    assert len(ends) >= 4


# --- refusals --------------------------------------------------------------------------------------------------------


def test_wrong_arguments_of_a_recording_are_refused(tmp_path: Path) -> None:
    shop, occupied = OrderService(), tmp_path / "occupied"
    occupied.write_text("a file", encoding="utf-8")

    with pytest.raises(ConfigError, match="one_group_in is 0, allowed is a whole number from 1"):
        _record(shop, tmp_path, one_group_in=0)
    with pytest.raises(ConfigError, match="worker is 'a/b', allowed are letters"):
        _record(shop, tmp_path, worker="a/b")
    with pytest.raises(ConfigError, match=r"str is not a client of boto3; of a resource pass its meta.client"):
        record(["sqs"], tmp_path)
    with pytest.raises(ConfigError, match=r"cannot write to .*occupied.*; choose another folder"):
        record(shop.clients, occupied)
    with record(shop.clients, tmp_path / "fine"):  # a refusal leaves the clients as they were
        shop.order("ann", 1)


@pytest.mark.parametrize("kept_bytes", [0, 12])
def test_a_receive_whose_answer_was_cut_is_no_empty_receive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    """Only `kept_bytes` of the body arrive, and botocore takes that for an answer without messages."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    body = b'{"Messages": []}'
    cut = Reply(body=body[:kept_bytes], missing_bytes=len(body) - kept_bytes)
    replies = iter([cut, Reply(body=body)])
    with capturing(lambda _: next(replies)) as server:
        config = Config(retries={"total_max_attempts": 1})
        sqs = botocore.session.get_session().create_client("sqs", "us-east-1", endpoint_url=server.url, config=config)
        with record([sqs], tmp_path / "cut"):
            for _ in range(2):
                sqs.receive_message(QueueUrl=f"{server.url}/1/{QUEUE}")

    polls = [event for event in read_recording(tmp_path / "cut") if event.kind == Kind.POLL]
    assert [(event.outcome, event.error) for event in polls] == [("info", "IncompleteRead"), ("ok", None)]
