"""`check`: its arguments for queues and history are read as given, and impossible ones are refused."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.errors import ConfigError, HistoryError
from sluice.judge.reading.folders import require_history
from sluice.judge.recording import (
    RecordedQueue,
    _expectation,
    _Topology,
    declared_queues,
    parse_queue,
    parse_queues,
    with_retention,
)
from sluice.recorder.journal import SCHEMA
from tests.support.declaration import environment


@pytest.mark.parametrize(
    ("text", "name", "queue"),
    [
        ("a.fifo=30", "a.fifo", RecordedQueue(visibility_timeout_seconds=30)),
        ("a.fifo=0:d.fifo", "a.fifo", RecordedQueue(visibility_timeout_seconds=0, dead_letter_queue="d.fifo")),
        (
            "a.fifo=30:d.fifo:5",
            "a.fifo",
            RecordedQueue(visibility_timeout_seconds=30, dead_letter_queue="d.fifo", max_receive_count=5),
        ),
    ],
)
def test_a_queue_is_named_with_its_timeout(text: str, name: str, queue: RecordedQueue) -> None:
    assert parse_queue(text) == (name, queue)


@pytest.mark.parametrize(
    "text",
    [
        "a.fifo",
        "a.fifo=",
        "=30",
        "a.fifo=30s",
        "a.fifo=30:d:x",
        "a.fifo=30:d:5:6",
        "",
        "a.fifo=43201",
        "a.fifo=30:d:1001",
        "a.fifo=30:d:0",
        "a.fifo=30:a.fifo",
    ],
)
def test_a_malformed_queue_argument_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_queue(text)

    assert str(refused.value) == (
        f"queue is {text!r}, allowed is NAME=VISIBILITY_SECONDS[:DLQ[:MAX_RECEIVE_COUNT]],"
        " such as orders.fifo=30:orders-dlq.fifo:5, with at most 43200 seconds and 1000 receives"
    )


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a=30", "b=30", "a=60"], "queue 'a' is given twice, allowed is once"),
        (["a=30:d", "d=30"], "queue 'd' is the DLQ of 'a', and given as a queue of its own; leave one of the two out"),
    ],
)
def test_queues_that_contradict_each_other_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_queues(texts)

    assert str(refused.value) == message


def test_a_declared_environment_knows_its_queues() -> None:
    queues = declared_queues(environment("local"))

    assert set(queues) == {"sluice-local-billing.fifo", "sluice-local-shipping.fifo", "sluice-local-audit.fifo"}
    billing = queues["sluice-local-billing.fifo"]
    assert billing.dead_letter_queue == "sluice-local-billing-dlq.fifo"
    assert billing.undelivered_queue == "sluice-local-billing-undelivered-dlq.fifo"


def test_the_dlq_of_a_subscription_is_no_judged_queue() -> None:
    """The load test reads it, and so a recording may, too; the declaration says what it is."""
    queues = declared_queues(environment("local"))
    looked_into = [*queues, "sluice-local-billing-undelivered-dlq.fifo"]
    found = _Topology(run="r", recorders=[], is_whole=True, queues=looked_into, is_planned=False, one_group_in=1)

    expectation = _expectation(found, queues, has_other_producers=False)

    assert expectation.queues == tuple(queues)
    assert expectation.subscription_dead_letter_queues["sluice-local-billing.fifo"] == looked_into[-1]


@pytest.mark.parametrize(
    ("name", "type_", "message"),
    [
        ("idx", pa.string(), "idx in part.parquet is BYTE_ARRAY (String), allowed is INT64"),
        ("kind", pa.int64(), "kind in part.parquet is INT64, allowed is BYTE_ARRAY (String)"),
        ("invoked_at_us", pa.timestamp("us"), "invoked_at_us in part.parquet is INT64 (Timestamp), allowed is INT64"),
        ("md5_ok", pa.null(), "md5_ok in part.parquet is INT32 (Null), allowed is BOOLEAN"),
    ],
)
def test_a_column_of_another_type_is_named_before_spark_starts(
    tmp_path: Path, name: str, type_: pa.DataType, message: str
) -> None:
    other = SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, type_))
    pq.write_table(SCHEMA.empty_table(), tmp_path / "a.parquet")
    pq.write_table(other.empty_table(), tmp_path / "part.parquet")

    with pytest.raises(HistoryError) as refused:
        require_history(tmp_path)

    assert str(refused.value) == f"{tmp_path} is not a history of Sluice: {message}; write it as that"


def test_every_arrow_type_of_text_is_accepted(tmp_path: Path) -> None:
    """Other libraries write large strings and dictionaries, which are the same in Parquet."""
    other = SCHEMA.set(SCHEMA.get_field_index("kind"), pa.field("kind", pa.large_string()))
    other = other.set(SCHEMA.get_field_index("queue"), pa.field("queue", pa.dictionary(pa.int32(), pa.string())))
    pq.write_table(other.empty_table(), tmp_path / "part.parquet")

    require_history(tmp_path)


def test_a_missing_history_is_refused_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.touch()

    def refusal_of(place: Path) -> str:
        with pytest.raises(ConfigError) as refused:
            require_history(place)
        return str(refused.value)

    assert refusal_of(tmp_path / "gone") == f"{tmp_path}/gone is not there, allowed is a history's folder"
    assert refusal_of(file) == f"{file} is a file, allowed is a history's folder"
    assert refusal_of(tmp_path) == (
        f"{tmp_path} holds no history, allowed are journals (*.arrows) or Parquet; name another folder"
    )


def test_the_retention_of_a_queue_and_of_its_dlq_is_read() -> None:
    queues = with_retention(parse_queues(["a=30:d", "b=30"]), ["a=60", "d=1209600"])

    expectation = _expectation(
        _Topology(run="r", recorders=(), is_whole=True, queues=(), is_planned=True, one_group_in=1),
        queues,
        has_other_producers=False,
    )

    assert expectation.retention_seconds == {"a": 60, "d": 1_209_600}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=59", "retention is 'a=59', allowed is NAME=SECONDS, with 60 to 1209600 seconds"),
        ("a", "retention is 'a', allowed is NAME=SECONDS, with 60 to 1209600 seconds"),
        ("a=1209601", "retention is 'a=1209601', allowed is NAME=SECONDS, with 60 to 1209600 seconds"),
        ("c=60", "retention is of 'c', which --queue does not name; name it with --queue"),
    ],
)
def test_an_impossible_retention_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_retention(parse_queues(["a=30:d"]), [text])

    assert str(refused.value) == message
