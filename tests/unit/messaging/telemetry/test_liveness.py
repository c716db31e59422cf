"""A part promises its next sign of life, is overdue after that time, and a file shows overdue parts."""

import json
import os
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.clock import VirtualClock, clock_id
from sluice.errors import ConfigError
from sluice.messaging import alive
from sluice.messaging.alive import NoSign, Sign
from sluice.messaging.liveness import SLACK_SECONDS, AliveFile, Liveness, LivenessWatch
from sluice.messaging.worker.signs import Deadlines, Signs


@pytest.fixture
def clock() -> VirtualClock:
    """Return the clock that the test moves; it begins at second 86,400."""
    return VirtualClock(86_400_000_000)


@pytest.fixture
def liveness(clock: VirtualClock) -> Liveness:
    """Return a Liveness to which no part has promised anything yet."""
    return Liveness(clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the file with the signs of life."""
    return tmp_path / "alive"


@pytest.fixture
def log_entries() -> Iterator[list[Any]]:
    """Yield the list that takes the log's entries."""
    with capture_logs() as entries:
        yield entries


OVERDUE = {"lane-0": 12.4, "drain-1\n\x1b": 3.0, **{f"lane-{number}": 1.0 for number in range(1, 6)}}
BEFORE_THIS_BOOT = "wrote its last sign of life at 2026-11-22T10:00:00Z, before this boot"


def sign(**changed: Any) -> Sign:
    """Return a sign of life of process 7, written at second 100, valid for 30 s."""
    given: dict[str, Any] = {
        "pid": 7,
        "clock_id": "boot",
        "monotonic_seconds": 100.0,
        "written_at": "2026-11-22T10:00:00Z",
        "within_seconds": 30,
        "overdue": {},
    }
    return Sign(**(given | changed))


def test_a_part_is_overdue_once_its_promise_has_passed(clock: VirtualClock, liveness: Liveness) -> None:
    """At exactly ten seconds the promise of ten still holds."""
    liveness.expect("lane-1", 10)
    liveness.expect("lane-0", 5)
    liveness.expect("heartbeat", 60)

    clock.sleep(10)
    at_ten = liveness.overdue()
    clock.sleep(2)

    assert at_ten == {"lane-0": 5}
    assert liveness.overdue() == {"lane-0": 7, "lane-1": 2}


def test_a_new_promise_replaces_the_last_one(clock: VirtualClock, liveness: Liveness) -> None:
    """The new one may be later or, as lane-1's, sooner."""
    liveness.expect("lane-0", 5)
    clock.sleep(4)
    liveness.expect("lane-0", 5)
    liveness.expect("lane-1", 600)
    liveness.expect("lane-1", 1)

    clock.sleep(4)

    assert liveness.overdue() == {"lane-1": 3}


def test_nothing_is_expected_of_a_part_that_has_ended(clock: VirtualClock, liveness: Liveness) -> None:
    """A part that ends without ever promising anything raises no error."""
    liveness.expect("lane-0", 5)
    liveness.forget("lane-0")
    liveness.forget("lane-1")

    clock.sleep(100)

    assert liveness.overdue() == {}


def test_a_worker_promises_what_its_calls_and_handlers_may_take() -> None:
    """A poll with its pause, a handler with its deadline and the end of its message, a heartbeat with all its calls."""
    deadlines = Deadlines.of_worker(lanes=21, rest_seconds_max=20, timeout_seconds=60, handler_seconds_max=600)

    assert deadlines == Deadlines(
        polling=4 + 20 + 10 + 20 + SLACK_SECONDS,
        working=600 + 15 + 3 * 34 + SLACK_SECONDS,
        beating=1 + 3 * (4 + 5) + SLACK_SECONDS,
    )


def test_signs_of_life_have_the_name_of_their_thread(clock: VirtualClock, liveness: Liveness) -> None:
    """Polling, working and beating each have a deadline of their own; working has none here."""
    signs = Signs(liveness, Deadlines(polling=1, working=inf, beating=3))
    signs.expect_end_of_poll()
    clock.sleep(2)
    polled = liveness.overdue()
    signs.expect_end_of_work()
    worked = liveness.overdue()
    signs.expect_beat()
    clock.sleep(4)
    beaten = liveness.overdue()
    signs.end()

    assert polled == {"MainThread": 1}
    assert worked == {}
    assert beaten == {"MainThread": 1}
    assert liveness.overdue() == {}


def test_a_part_is_logged_once_when_it_becomes_overdue(
    clock: VirtualClock, liveness: Liveness, log_entries: list[Any]
) -> None:
    """And once when it gives signs again, although the watch looks every second."""
    watch = LivenessWatch(liveness, None, within_seconds=30, clock=clock)
    liveness.expect("lane-0", 5)
    for _ in range(10):
        clock.sleep(1)
        watch.look()
    liveness.expect("lane-0", 5)
    watch.look()
    clock.sleep(6)
    watch.look()

    stuck, back = "no sign of life: it is stuck or gone", "signs of life again, or ended"
    assert [(entry["event"], entry["log_level"], entry["part"]) for entry in log_entries] == [
        (stuck, "error", "lane-0"),
        (back, "warning", "lane-0"),
        (stuck, "error", "lane-0"),
    ]
    assert log_entries[0]["overdue_seconds"] == 1


def test_the_file_is_written_at_the_start_and_every_five_seconds(clock: VirtualClock, path: Path) -> None:
    """The watch looks each second. The sign is valid for 30 s and the five of the next write."""
    watch = LivenessWatch(Liveness(clock), AliveFile(path, clock), within_seconds=30, clock=clock)
    watch.look()
    first = alive.read(path)
    written = []
    for _ in range(12):
        clock.sleep(1)
        watch.look()
        written.append(alive.read(path).monotonic_seconds - 86_400)

    assert first == Sign(
        pid=os.getpid(),
        clock_id=clock_id(),
        monotonic_seconds=86_400.0,
        written_at="1970-01-02T00:00:00.000+00:00",
        within_seconds=35.0,
        overdue={},
    )
    assert written == [0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10, 10]


def test_the_file_is_written_at_once_when_overdue_parts_change(clock: VirtualClock, path: Path) -> None:
    """A health check reads it at any time; `look(60)` makes the sign valid for a longer step."""
    liveness = Liveness(clock)
    watch = LivenessWatch(liveness, AliveFile(path, clock), within_seconds=30, clock=clock)
    watch.look()
    liveness.expect("lane-0", 0.5)
    clock.sleep(1)
    watch.look()
    stuck = dict(alive.read(path).overdue)
    liveness.forget("lane-0")
    watch.look()
    well = dict(alive.read(path).overdue)
    watch.look(60)

    assert stuck == {"lane-0": 0.5}
    assert well == {}
    assert alive.read(path).within_seconds == 95


def test_a_file_that_cannot_be_written_is_logged_once(
    clock: VirtualClock, path: Path, log_entries: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the old file stays, so the check fails when it is too old."""
    watch = LivenessWatch(Liveness(clock), AliveFile(path, clock), within_seconds=30, clock=clock)
    before = path.read_bytes()
    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", _no_space)
        for _ in range(3):
            clock.sleep(5)
            watch.look()
    during = path.read_bytes()
    clock.sleep(5)
    watch.look()

    assert [(entry["event"], entry["log_level"]) for entry in log_entries] == [
        ("the alive file is not written, and grows old", "error")
    ]
    assert during == before
    assert list(path.parent.iterdir()) == [path]
    assert alive.read(path).monotonic_seconds == 86_420


def _no_space(*_: object, **__: object) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", ["", "nowhere/alive", "file/alive"])
def test_a_file_nobody_can_write_is_refused(tmp_path: Path, clock: VirtualClock, name: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"cannot write to the alive file .*; change --alive"):
        AliveFile(tmp_path / name, clock)


def test_a_file_is_removed_at_the_end(clock: VirtualClock, path: Path, log_entries: list[Any]) -> None:
    """A second removal is no error."""
    file = AliveFile(path, clock)
    file.remove()
    file.remove()

    assert path.exists() is False
    assert log_entries == []


@pytest.mark.parametrize(("now_seconds", "within_seconds"), [(130, None), (199, 99)])
def test_a_fresh_sign_without_overdue_parts_means_alive(now_seconds: float, within_seconds: float | None) -> None:
    assert alive.problem(sign(), now_seconds=now_seconds, clock_id="boot", within_seconds=within_seconds) is None


@pytest.mark.parametrize(
    ("given", "now_seconds", "clock_id", "within_seconds", "problem"),
    [
        (sign(), 131, "boot", None, "process 7 gave no sign of life for 31.0 s, allowed is 30 s: it is stuck, "),
        (sign(), 111, "boot", 10, "process 7 gave no sign of life for 11.0 s, allowed is 10 s: it is stuck, "),
        (sign(), 101, "next", None, f"process 7 {BEFORE_THIS_BOOT}"),
        (sign(), 99, "boot", None, f"process 7 {BEFORE_THIS_BOOT}"),
        (sign(overdue=OVERDUE), 101, "boot", None, "no sign of life from lane-0 (12 s overdue), drain-1\\n\\x1b (3 s"),
    ],
    ids=["old", "the check's own bound", "another boot", "of the future", "overdue"],
)
def test_an_old_foreign_or_overdue_sign_means_not_alive(
    given: Sign, now_seconds: float, clock_id: str, within_seconds: float | None, problem: str
) -> None:
    """The clock counts from the boot, so a sign of another boot says nothing."""
    found = alive.problem(given, now_seconds=now_seconds, clock_id=clock_id, within_seconds=within_seconds)

    assert found is not None
    assert found.startswith(problem)
    assert found.isprintable()
    assert found.endswith(("it is stuck, stopped or dead", "before this boot", "and 2 more of process 7, see its log"))


WHOLE = {
    "pid": 7,
    "clock_id": "boot",
    "monotonic_seconds": 1,
    "written_at": "now",
    "within_seconds": 1,
    "overdue": {},
}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[1]",
        b"{}",
        b"[" * 60_000,
        b'{"pid": 7' + b" " * 100_000 + b"}",
        *(
            json.dumps(WHOLE | changed).encode()
            for changed in (
                {"pid": "7"},
                {"pid": True},
                {"monotonic_seconds": None},
                {"monotonic_seconds": float("nan")},
                {"within_seconds": 10**400},
                {"written_at": 3},
                {"clock_id": ["boot"]},
                {"overdue": ["lane-0"]},
                {"overdue": {"lane-0": "long"}},
            )
        ),
    ],
    ids=lambda content: content[:30].decode(errors="replace"),
)
def test_a_file_with_anything_else_is_no_sign_of_life(path: Path, content: bytes) -> None:
    """The check ends with its own error, and without a traceback, whatever somebody has put there."""
    path.write_bytes(content)

    with pytest.raises(NoSign):
        alive.read(path)


def test_a_written_sign_is_read(path: Path) -> None:
    written = sign(overdue={"lane-0": 1.5})
    alive.write(path, written)

    assert alive.read(path) == written
