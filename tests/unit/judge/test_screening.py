"""The parts of screening: hashes of texts, comparison of sequence numbers, measures over several parts, counts."""

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numba.core.errors import NumbaError

from sluice.history.events import HistoryEvent, Kind, answer_detail
from sluice.judge.checker import Activity, Expectation
from sluice.judge.counts import count, facts
from sluice.judge.reading.columns import NONE, Columns, Events, hashes
from sluice.judge.reading.parquet_files import pieces, read
from sluice.judge.screening import compilation, rollup
from sluice.judge.screening.buckets import group_names, screen
from sluice.judge.screening.encode import EncodedRows, drop_left_out, encode_events
from sluice.judge.screening.measures import measures
from sluice.judge.screening.rollup import MessageRollup
from sluice.judge.tally import TALLY, ObservationTally, round_down
from tests.support.histories.builders import EXPECTATION, full, publish_event, receive_event
from tests.support.histories.mutations import mutate
from tests.support.histories.recordings import table_of

_random = np.random.default_rng(5)
_NUMBER = "18".zfill(21) + "000000000123456789"
_FACTOR = 2


def _observations(events: Sequence[HistoryEvent], expectation: Expectation = EXPECTATION) -> pa.Table:
    return _screen(Events(table_of(events)), expectation)[1]


def _screen(events: Events, expectation: Expectation = EXPECTATION) -> tuple[pa.Table, pa.Table]:
    messages = MessageRollup(expectation)
    messages.add(encode_events(events, expectation))
    return screen(messages, group_names(events), expectation)


def _measures_of(*parts: Sequence[HistoryEvent]) -> dict[str, Any]:
    return measures(ObservationTally(pa.concat_tables([_observations(events) for events in parts])), EXPECTATION)


def test_the_hash_of_a_text_does_not_depend_on_its_neighbours() -> None:
    texts = ["", "a", "b", "a\0", "\0a", "abcdefgh", "abcdefghi", "ä", "x" * 128, None, "a"]

    together = hashes(pa.array(texts))

    assert together.tolist() == [int(hashes(pa.array([text], pa.string()))[0]) for text in texts]
    assert together.tolist() == hashes(pa.array(["before", *texts]).slice(1)).tolist()
    assert len(set(together.tolist())) == len(set(texts))
    assert (together == 0).tolist() == [text is None for text in texts]
    plain, coded = (
        Events(pa.table({"queue": array})) for array in (pa.array(texts), pa.array(texts).dictionary_encode())
    )
    assert coded.hashes("queue").tolist() == plain.hashes("queue").tolist() == together.tolist()


def test_numbered_texts_do_not_collide() -> None:
    """300,000 hashes of 32 bits would collide 10 times.

    The hashes' last bits also distribute groups evenly to buckets.
    """
    count = 300_000
    groups = hashes(pa.array([f"group-{number}" for number in range(count)]))
    paths = hashes(pa.array([f"region{n // 10_000:02}/a{n // 100 % 100:02}/c{n % 100:02}" for n in range(count)]))

    shares = np.bincount((groups % np.uint64(16)).astype(np.int64), minlength=16)

    assert len(np.unique(groups)) == count
    assert len(np.unique(paths)) == count
    assert shares.min() > 0.96 * shares.max()


@pytest.mark.parametrize(
    ("text", "low"),
    [
        pytest.param(_NUMBER, 1_234_567_890_000, id="message"),
        pytest.param(f"{_NUMBER}.0007", 1_234_567_890_007, id="event-7-of-a-bundle"),
        pytest.param(f"{_NUMBER}x0007", NONE, id="no-dot-before-the-position"),
        pytest.param(f"{_NUMBER}.007", NONE, id="position-too-short"),
        pytest.param("9" * 39, 999_999_999_999_990_000, id="greatest"),
        pytest.param("0" * 39, 0, id="least"),
        pytest.param(_NUMBER[1:], NONE, id="38-digits"),
        pytest.param(_NUMBER + "0", NONE, id="40-digits"),
        pytest.param(_NUMBER[:-1] + "x", NONE, id="letter"),
        pytest.param(_NUMBER[:-1] + "/", NONE, id="character-before-0"),
        pytest.param("", NONE, id="empty"),
        pytest.param(None, NONE, id="none"),
    ],
)
def test_a_sequence_number_is_compared_by_its_last_digits(text: str | None, low: int) -> None:
    """Its last 14 digits and 4 digits for the position in a bundle make a number, the digits before them a hash.

    A text that is not 39 digits, perhaps with a position, has no number.

    Of several columns the first with a number counts.
    """
    events = Events(pa.table({"one": pa.array([text, None]), "other": pa.array([None, _NUMBER])}))

    lows, highs = events.sequence_numbers("one", "other")

    assert lows.tolist() == [low, 1_234_567_890_000]
    assert (highs[0] == 0) == (text is None)
    assert (highs[0] == highs[1]) == (low != NONE and str(text).startswith(_NUMBER[:25]))


def test_the_hash_of_a_sequence_number_does_not_depend_on_its_neighbours() -> None:
    texts = ["7" * length for length in range(50)] + [_NUMBER, _NUMBER[:-1] + "x"]

    together, alone = (
        [[*zip(*Events(pa.table({"one": part})).sequence_numbers("one"), strict=True)] for part in parts]
        for parts in ([pa.array(texts)], [pa.array([text]) for text in texts])
    )

    assert together[0] == [pair for (pair,) in alone]
    assert len(set(together[0])) == len(texts)


def _messages(parts: Sequence[Columns]) -> dict[str, list[Any]]:
    messages = MessageRollup(EXPECTATION)
    for part in parts:
        messages.add(part)
    return {name: column.tolist() for name, column in messages.rows().items()}


def _mutated_rows() -> Columns:
    rng = random.Random(11)  # noqa: S311 (a test)
    groups = {f"g{number}": mutate(full(), rng) for number in range(300)}
    events = [replace(event, message_group_id=name) for name, events in groups.items() for event in events]
    return encode_events(Events(table_of(events)), EXPECTATION)


def test_compiled_and_interpreted_loops_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _mutated_rows()
    monkeypatch.setattr(compilation, "INTERPRETED_MAX", sys.maxsize)
    found = _messages([rows])

    monkeypatch.setattr(compilation, "INTERPRETED_MAX", 0)

    assert _messages([rows]) == found


def test_without_numba_the_loop_runs_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "INTERPRETED_MAX", 0)
    monkeypatch.setitem(sys.modules, "numba", None)

    loop = compilation.compile_loop(lambda rows: repr(rows.tolist()))  # numba cannot compile this

    assert loop(np.arange(2)) == "[0, 1]"


def _times(rows: np.ndarray) -> np.ndarray:
    return rows * _FACTOR


def test_an_unreadable_numba_cache_is_compiled_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compilation, "INTERPRETED_MAX", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compilation.compile_loop(_times)(np.arange(2)).tolist() == [0, 2]
    torn = list(tmp_path.rglob("*.nbi"))
    for file in torn:
        file.write_bytes(b"")

    assert len(torn) == 1
    assert compilation.compile_loop(_times)(np.arange(2)).tolist() == [0, 2]


def test_the_file_of_numbas_cache_depends_on_the_classes_of_the_parameters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Numba finds a cache by `co_filename`, and unpickles the parameters' classes by name.

    So the cache of before a class moved must not be found. Another annotation stands for a class that moved.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    moved = FunctionType(_times.__code__, globals(), "_times")
    moved.__annotations__ = {"rows": EncodedRows}

    assert (
        compilation.with_stable_file(moved).__code__.co_filename
        != compilation.with_stable_file(_times).__code__.co_filename
    )


def test_the_numba_cache_is_found_by_code_and_constants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An executor has the module in another zip each time, and another module's constant may have changed."""
    monkeypatch.setattr(compilation, "INTERPRETED_MAX", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compilation.compile_loop(_times)(np.arange(2)).tolist() == [0, 2]
    (made,) = tmp_path.rglob("*.nbc")
    kept = made.stat().st_mtime_ns
    elsewhere = FunctionType(_times.__code__.replace(co_filename="/a.zip/b.py", co_firstlineno=7), globals(), "_times")
    elsewhere.__annotations__ = _times.__annotations__

    assert compilation.compile_loop(elsewhere)(np.arange(2)).tolist() == [0, 2]
    assert [file.stat().st_mtime_ns for file in tmp_path.rglob("*.nbc")] == [kept]

    for factor in (3, 2.5, 3.5):
        monkeypatch.setattr(sys.modules[__name__], "_FACTOR", factor)

        assert compilation.compile_loop(_times)(np.arange(2)).tolist() == [0, factor]


def test_the_numba_cache_is_where_its_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user whose home folder is read-only names another folder."""
    monkeypatch.setattr(compilation, "INTERPRETED_MAX", 0)
    (tmp_path / "home").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))

    assert compilation.compile_loop(_times)(np.arange(2)).tolist() == [0, 2]
    assert len([*(tmp_path / "kept").rglob("*.nbc")]) == 1


def test_many_calls_with_few_rows_are_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The blocks of an exchange are many, and each has few rows."""
    monkeypatch.setattr(compilation, "INTERPRETED_MAX", 5)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    loop = compilation.compile_loop(lambda rows: repr(rows.tolist()))  # numba cannot compile this

    assert loop(np.arange(3)) == "[0, 1, 2]"
    with pytest.raises(NumbaError):
        loop(np.arange(3))


def test_messages_are_the_same_however_many_rows_come_at_a_time() -> None:
    rows = _mutated_rows()
    parts = [{name: column[begin : begin + 500] for name, column in rows.items()} for begin in range(0, 20_000, 500)]

    assert _messages(parts) == _messages([rows])


def test_messages_with_one_hash_are_two_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drop_left_out(_mutated_rows())
    rows = {name: column[:1_000] for name, column in rows.items()}
    expected = _messages([rows])

    monkeypatch.setattr(rollup, "hash_numbers", lambda *columns: np.full(len(columns[0]), 7, dtype=np.uint64))

    assert _messages([rows]) == expected


def test_the_order_of_events_and_chunks_does_not_matter() -> None:
    events = full()
    shuffled = [events[index] for index in _random.permutation(len(events))]
    chunks = pa.concat_tables([table_of(shuffled[index : index + 3]) for index in range(0, len(shuffled), 3)])

    maybe, seen = _screen(Events(chunks))

    assert seen == _observations(events)
    assert not maybe.column("is_suspect").to_pylist().count(True)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_the_encoding_of_texts_in_a_file_does_not_matter(type_: pa.DataType, tmp_path: Path) -> None:
    table = table_of(full())
    other = table.cast(
        pa.schema([(field.name, type_ if field.type == pa.string() else field.type) for field in table.schema])
    )
    pq.write_table(other, tmp_path / "events.parquet")

    (events,) = read(pieces(tmp_path)[0])
    rows, expected = (encode_events(each, EXPECTATION) for each in (events, Events(table)))

    assert all(np.array_equal(rows[name], expected[name]) for name in ("group", *EncodedRows._fields))


def test_a_redelivered_message_is_not_behind_itself() -> None:
    events = [publish_event(0, 0), receive_event("billing", 0, 100), receive_event("billing", 0, 200, receive_count=2)]

    assert ObservationTally(_observations(events)).total("later") == 0


def test_measures_equal_those_computed_by_hand() -> None:
    events = [
        publish_event(0, 0, took_ms=5),
        publish_event(1, 20, took_ms=7, intended_at_us=10_000),
        publish_event(1, 30, took_ms=9, intended_at_us=10_000),
        publish_event(2, 40, phase="warm_up"),
        publish_event(-1, 50),
        *(
            receive_event("billing", idx, received_ms)
            for idx, received_ms in ((0, 100), (1, 120), (1, 150), (2, 160), (-1, 180))
        ),
        receive_event("shipping", 0, 200),
    ]

    found = _measures_of(events)

    assert found["published"] == {"count": 2, "seconds": 0.027, "per_second": 2 / 0.027}
    assert found["lateness_us"] == {"p50": 0, "p95": 20_000, "p99": 20_000, "max": 20_000}
    assert found["publish_latency_us"] == {"p50": 5_000, "p95": 9_000, "p99": 9_000, "max": 9_000}
    billing, shipping = found["queues"]["billing"], found["queues"]["shipping"]
    assert billing["received"] == {"count": 2, "seconds": 0.02, "per_second": 100.0}
    assert billing["latency_us"] == {"p50": 105_000, "p95": 115_000, "p99": 115_000, "max": 115_000}
    assert billing["drain_seconds"] == 0.105
    assert shipping["received"] == {"count": 1, "seconds": 0.0, "per_second": None}
    assert found["percentiles"] == "exact"


def test_a_history_without_messages_has_no_measures() -> None:
    found = measures(ObservationTally(TALLY.empty_table()), EXPECTATION)

    assert found["published"] == {"count": 0, "seconds": None, "per_second": None}
    assert found["queues"]["billing"] == {
        "received": {"count": 0, "seconds": None, "per_second": None},
        "drain_seconds": None,
        "latency_us": None,
    }


def _late(latenesses_us: Sequence[int], group: str) -> list[HistoryEvent]:
    return [
        publish_event(idx, 10_000 + idx, intended_at_us=(10_000 + idx) * 1_000 - late_us, message_group_id=group)
        for idx, late_us in enumerate(latenesses_us)
    ]


def test_percentiles_of_parts_are_those_of_the_whole() -> None:
    values = _random.permutation(1_000_000)[:6_000].tolist()
    parts = [_late(values[:2_500], "one"), _late(values[2_500:], "other")]

    found = _measures_of(*parts)

    in_order = sorted(values)
    assert found["percentiles"] == "exact"
    assert found["lateness_us"] == {
        **{f"p{q}": in_order[math.ceil(q / 100 * 6_000) - 1] for q in (50, 95, 99)},
        "max": in_order[-1],
    }


def test_many_values_are_rounded_and_say_so() -> None:
    values = [round(math.exp(power)) - 50 for power in _random.uniform(0, 20, 6_000)]

    found = _measures_of(_late(values, "one"))

    in_order = sorted(values)
    assert found["percentiles"] == "each at most 1/4,096 below the value"
    assert found["lateness_us"]["max"] == in_order[-1]
    for q in (50, 95, 99):
        true = in_order[math.ceil(q / 100 * 6_000) - 1]
        assert 0 <= true - found["lateness_us"][f"p{q}"] <= abs(true) / 4_096


def test_a_value_is_rounded_down_to_its_first_thirteen_bits() -> None:
    values = [0, 1, -1, 8_191, 8_192, 8_193, -8_193, 16_387, 2**40 + 1]

    shortened = round_down(np.array(values))

    assert shortened.tolist() == [0, 1, -1, 8_191, 8_192, 8_192, -8_194, 16_384, 2**40]


def test_parts_that_overlap_are_joined_in_the_order_of_their_values() -> None:
    many = [round(math.exp(power)) for power in _random.uniform(0, 20, 5_001)]

    assert _measures_of(_late([5, 5, 5], "one"), _late([1], "other"))["lateness_us"]["p50"] == 5
    assert _measures_of(_late([5], "one"), _late(many, "other"))["percentiles"] != "exact"


def test_publishing_began_with_the_first_measured_message() -> None:
    refused = publish_event(9, 50, outcome="fail", error="Throttling")
    warm_up = publish_event(8, 0, phase="warm_up")

    found = _measures_of([warm_up, refused, publish_event(0, 100, took_ms=5), publish_event(1, 120, took_ms=7)])

    assert found["published"] == {"count": 2, "seconds": 0.027, "per_second": 2 / 0.027}


@pytest.mark.parametrize("kinds", [("opened", "closed"), ("closed", "opened")])
def test_a_recorder_has_finished_in_either_order_of_its_files(kinds: tuple[str, str]) -> None:
    """The first and the last event of a recorder may be in different files."""
    parts = [
        count(Events(table_of([HistoryEvent(kind=kind, worker="one", task_attempt=0)])), EXPECTATION) for kind in kinds
    ]

    assert facts(pa.concat_tables(parts), EXPECTATION).recorded == {"one": {0: True}}


def test_events_are_counted_by_hand() -> None:
    poll = HistoryEvent(
        kind=Kind.POLL.value,
        queue="billing",
        call_id="p",
        clock_id="c",
        invoked_at_us=7_900_000,
        responded_at_us=8_100_000,
        wait_time_seconds=1,
        detail=answer_detail(0),
    )
    polls = [
        poll,
        replace(poll, detail=answer_detail(3), responded_at_us=8_000_000),
        replace(poll, wait_time_seconds=0),
        replace(poll, outcome="info", responded_at_us=None, detail=None),
        replace(poll, detail="torn {", clock_id="d"),
        replace(poll, detail='{"received": 1000000000000000000000}'),
    ]
    frames = [
        HistoryEvent(kind=kind, worker=worker, task_attempt=attempt)
        for kind, worker, attempt in (
            ("opened", "one", 0),
            ("opened", "one", 1),
            ("closed", "one", 1),
            ("opened", "two", None),
        )
    ]
    failed = publish_event(3, 90, outcome="fail", error="Throttling", took_ms=5)
    foreign = receive_event("billing", 9, 300, message_run="another")
    events = [*full(), *polls, *frames, failed, foreign]

    parts = [count(Events(table_of(events[index::2])), EXPECTATION) for index in range(2)]
    found = facts(pa.concat_tables(parts), EXPECTATION)

    assert found.recorded == {"one": {0: False, 1: True}, "two": {0: False}}
    assert found.failed_calls == {"Throttling": 1}
    assert found.unanswered_receives == {"billing": 1}
    assert found.clocks == {"c", "d"}
    assert found.activity == {
        "billing": [Activity(second=7, served_count=1, empty_count=1, answered_by_us=8_100_000)],
    }
    expected = {"received": 8, "ended": 2, "foreign": 1, "publishes": 5, "deleted": 8, "numbered": 8, "handled": 3}
    assert {name: found.counts[name] for name in expected} == expected
    assert found.counts["events"] == len(events)
    assert found.counts["throttled"] == 1
