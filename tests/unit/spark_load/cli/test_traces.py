"""`sluice load profile-from`: a recording becomes a profile, without names and bodies of the recording."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from sluice import limits
from sluice.cli.main import cli, main
from sluice.errors import ConfigError, MessagingError
from sluice.recorder import record
from sluice.recorder.journal import SCHEMA
from sluice.terminal.exits import REFUSED
from spark_load.judge.arrivals import read_publishes
from spark_load.profiles import profile, trace
from tests.support.histories.recorded_services import OrderService, create_queue


def _call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["load", "profile-from", *arguments])


def _write_publishes(folder: Path, *rows: dict[str, Any]) -> None:
    """Write a history of publishes, one a second; each row has the fields in which its publish differs."""
    common = {"schema_version": 1, "run": "r", "worker": "w", "kind": "published", "outcome": "ok"}
    common |= {"queue": "t.fifo", "message_group_id": "g"}
    events = [{**common, "idx": idx, "invoked_at_us": idx * 1_000_000, **row} for idx, row in enumerate(rows)]
    (folder / "history").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(events, schema=SCHEMA), folder / "history" / "part.parquet")


@pytest.fixture
def recording_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Record twelve orders a second apart: six of zoe, four of ann, two of bob; and repeat the first one."""
    shop = OrderService()
    clock = shop.simulator.clock
    with record(shop.clients, tmp_path / "tuesday", clock=clock):
        for number, customer in enumerate(["ann", "zoe", "bob", "zoe", "ann", "zoe"] * 2):
            shop.order(customer, number, deduplication_id=f"order-{number}")
            if number == 0:
                shop.order(customer, number, deduplication_id="order-0")
            clock.sleep(1)
        shop.bill()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tuesday"


def test_a_profile_has_the_instants_groups_and_sizes_of_a_recording(recording_folder: Path) -> None:
    """Groups are ranked by their number of messages: zoe 0, ann 1, bob 2."""
    called = _call(str(recording_folder), "--json")

    found = json.loads(called.stdout)
    arrivals, _ = trace.read(recording_folder.parent / "tuesday.parquet")
    assert called.exit_code == 0
    assert found["message_count"] == 12
    assert found["group_count"] == 3
    assert found["hottest_share"] == 0.5
    assert arrivals.offset_us / 1e6 == pytest.approx(np.arange(12), abs=0.1)
    assert arrivals.group_rank.tolist() == [1, 0, 2, 0, 1, 0] * 2
    assert arrivals.body_bytes.tolist() == [
        len(json.dumps({"order": number, "customer": customer, "lines": ["a", "b"]}))
        for number, customer in enumerate(["ann", "zoe", "bob", "zoe", "ann", "zoe"] * 2)
    ]


def test_messages_sqs_dropped_become_a_share_of_repeats(recording_folder: Path) -> None:
    """One of thirteen sends was a repeat within five minutes."""
    called = _call(str(recording_folder))

    load = profile.load("tuesday.yaml").profile
    assert "repeats that SQS drops, counted apart as duplicate_share: 1" in called.output
    assert load.duplicate_share == pytest.approx(1 / 12, abs=1e-4)
    assert load.measured_count == 12


def test_a_deduplication_id_is_a_new_message_after_five_minutes(tmp_path: Path) -> None:
    """Of three sends 200 s apart the second is a repeat, and the third a message."""
    shop = OrderService()
    with record(shop.clients, tmp_path / "late", clock=shop.simulator.clock):
        for _ in range(3):
            shop.order("ann", 1, deduplication_id="same")
            shop.simulator.clock.sleep(200)

    found = json.loads(_call(str(tmp_path / "late"), "-o", str(tmp_path / "late.yaml"), "--json").stdout)

    assert found["message_count"] == 2
    assert found["repeat_count"] == 1


def test_repeats_of_one_instant_are_repeats_and_a_standard_queue_drops_none(tmp_path: Path) -> None:
    """Entries of one call have the same instant; of two with one id, the second is a repeat."""
    same = {"idx": 1, "invoked_at_us": 7}
    _write_publishes(tmp_path / "fifo", same, same, same)
    _write_publishes(tmp_path / "standard", *[{**same, "queue": "t"}] * 3)

    fifo, standard = read_publishes(tmp_path / "fifo"), read_publishes(tmp_path / "standard")

    assert len(fifo.arrivals) == 1
    assert fifo.repeat_count == 2
    assert fifo.repeat_seconds == 0
    assert len(standard.arrivals) == 3
    assert standard.repeat_count == 0


@pytest.mark.parametrize("size", [limits.MESSAGE_BYTES_MAX, 10**20])
def test_a_recorded_body_is_cut_to_the_largest_payload_of_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A load's message needs room for its frame, so a body of SQS's limit, or a nonsensical size, is replaced."""
    monkeypatch.chdir(tmp_path)
    _write_publishes(tmp_path / "large", {"detail": json.dumps({"bytes": size})})

    assert _call("large").exit_code == 0
    assert profile.load("large.yaml").profile.payload_bytes == trace.PAYLOAD_BYTES_MAX


def test_a_clock_that_ran_backwards_is_shown_as_a_long_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user can see that the recording's instants are not usable."""
    monkeypatch.chdir(tmp_path)
    _write_publishes(tmp_path / "back", {}, {}, {"invoked_at_us": -3_600_000_000})

    assert "the longest pause is 3,600.0 s" in _call("back").stdout


def test_a_recorder_that_did_not_finish_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its recording may lack messages, so the profile may be too small."""
    monkeypatch.chdir(tmp_path)
    _write_publishes(tmp_path / "killed", {"kind": "opened"}, {}, {"worker": "other", "kind": "closed"})

    assert "recorders that did not finish: 1" in _call("killed").stdout


def test_a_profile_contains_no_name_or_body_of_the_recording(recording_folder: Path) -> None:
    """A recording of production may hold personal data; the profile may be given away."""
    _call(str(recording_folder), "-o", "p.yaml")

    written = Path("p.yaml").read_bytes() + Path("p.parquet").read_bytes()
    assert [
        name for name in (b"ann", b"zoe", b"bob", b"order", b"lines", b"tuesday", b"customer") if name in written
    ] == []


def test_a_profile_of_a_part_begins_with_its_first_message(recording_folder: Path) -> None:
    """Seconds 3 to 6.9 at twice the speed: four messages in 1.5 s."""
    _call(str(recording_folder), "-o", "p.yaml", "--from-seconds", "3", "--until-seconds", "6.9", "--speed", "2")

    arrivals, _ = trace.read(Path("p.parquet").resolve().relative_to(Path.cwd()))
    assert arrivals.offset_us[0] == 0
    assert len(arrivals) == 4
    assert profile.load("p.yaml").profile.duration_seconds == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nowhere"], "nowhere"),
        (["tuesday", "-o", "p.json"], "--output is 'p.json', allowed is a name that ends with .yaml"),
        (["tuesday", "-o", "has space.yaml"], "is not a name for a run"),
        (["tuesday", "-o", "there.yaml"], "there.yaml exists, and is not overwritten"),
        (["tuesday", "-o", "p.yaml", "--from-seconds", "900"], "the recording tuesday lasts 11"),
        (["tuesday", "-o", "p.yaml", "--to", "others.fifo"], "--to is 'others.fifo', allowed is one of orders.fifo"),
        (["tuesday", "-o", "p.yaml", "--speed", "nan"], "nan"),
        (["empty", "-o", "p.yaml"], "nothing was published in the recording empty"),
    ],
)
def test_profile_from_refuses_wrong_input_and_writes_nothing(
    recording_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    Path("there.yaml").write_text("")
    shop = OrderService()
    with record(shop.clients, Path("empty"), clock=shop.simulator.clock):
        shop.sqs.receive_message(QueueUrl=shop.url)

    files_before = set(Path().rglob("*"))

    with pytest.raises(SystemExit) as ended:
        main(["load", "profile-from", *arguments])

    assert ended.value.code == REFUSED
    [line] = capsys.readouterr().err.splitlines()
    assert why in line
    assert set(Path().rglob("*")) == files_before


@pytest.mark.parametrize(
    ("special", "why"),
    [
        ({"invoked_at_us": None}, "1 of 2 publishes in odd have no invoked_at_us, needed is the instant of each"),
        ({"schema_version": 2}, "odd is a history of version 2, allowed is 1"),
        (
            {"invoked_at_us": 86_401_000_000},
            "the trace odd.parquet lasts 86,401 s at speed 1, allowed is at most 86,400 s; cut it with --from-seconds",
        ),
    ],
)
def test_profile_from_refuses_an_unusable_history_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, special: dict[str, Any], why: str
) -> None:
    """Without an instant, of a newer version, or longer than a day."""
    monkeypatch.chdir(tmp_path)
    _write_publishes(tmp_path / "odd", {}, special)

    with pytest.raises(MessagingError, match=why) as refused:
        cli(["load", "profile-from", "odd"], standalone_mode=False)
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]


def test_one_of_several_topics_and_queues_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile is the load of one topic or queue: `--to` names it."""
    monkeypatch.chdir(tmp_path)
    shop = OrderService()
    other = create_queue(shop.sqs, "other.fifo")
    with record(shop.clients, tmp_path / "both", clock=shop.simulator.clock):
        shop.order("ann", 1)
        shop.sqs.send_message(QueueUrl=other, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="1")

    with pytest.raises(ConfigError, match=r"messages to 2 topics and queues \(orders.fifo, other.fifo\), .* --to"):
        cli(["load", "profile-from", "both"], standalone_mode=False)
    assert json.loads(_call("both", "--to", "other.fifo", "--json").stdout)["message_count"] == 1


def test_warm_up_and_end_markers_of_a_load_test_are_left_out(tmp_path: Path) -> None:
    """The size of a body is the one in the run's profile, plus the frame around the payload."""
    phases = ((0, "warm_up"), (1, "measure"), (2, "measure"), (-1, "measure"))
    _write_publishes(
        tmp_path, *({"idx": idx, "phase": phase, "invoked_at_us": (idx + 5) * 1_000_000} for idx, phase in phases)
    )
    (tmp_path / "run.json").write_text('{"described": {"profile": {"payload_bytes": 40}}}')

    found = read_publishes(tmp_path)

    assert found.arrivals.offset_us.tolist() == [0, 1_000_000]
    assert trace.payload_bytes(found.arrivals.body_bytes).tolist() == [40, 40]
    assert not found.has_sizes
