"""`make demo` runs its parts side by side where they may be, counts what fails, and leaves no process."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.demo import Demo, Part, faults_done, parts
from sluice.clock import eventually
from sluice.judge import report
from tests.support.histories import finished_runs
from tests.support.project import PROJECT

_AWAITS = "timeout 20 sh -c 'until test -e {path}; do sleep 0.1; done'"
_WAITS = "echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 100"


def _part(name: str, script: str, folder: Path, *after: str, shown: str = ".*") -> Part:
    return Part(
        name=name, does=f"{name} things", command=("sh", "-c", script), log=folder / name, after=after, shown=shown
    )


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_failing_part_is_counted_and_the_next_parts_run(tmp_path: Path) -> None:
    lines: list[str] = []
    demo = Demo(
        [
            _part("deployment", "echo done 8 s", tmp_path, shown="done.*"),
            _part("contracts", "echo one; echo two is broken; exit 3", tmp_path, "deployment"),
            _part("orders", f"test -s {tmp_path / 'contracts'}", tmp_path, "contracts"),
        ],
        show=lambda line: lines.append(line.partition("] ")[2] or line),
    )

    demo.run()

    assert demo.codes == {"deployment": 0, "contracts": 3, "orders": 0}
    assert lines == [
        f"deployment: deployment things (log: {tmp_path / 'deployment'})",
        "deployment: done; done 8 s",
        f"contracts: contracts things (log: {tmp_path / 'contracts'})",
        "    one",
        "    two is broken",
        "contracts: BROKEN (exit code 3)",
        f"orders: orders things (log: {tmp_path / 'orders'})",
        "orders: done",
    ]


def test_parts_that_need_nothing_of_each_other_run_at_once(tmp_path: Path) -> None:
    """Each of two parts waits for a file that the other part writes."""
    first, second = tmp_path / "a", tmp_path / "b"
    demo = Demo(
        [
            _part("first", f"touch {first}; {_AWAITS.format(path=second)}", tmp_path),
            _part("second", f"touch {second}; {_AWAITS.format(path=first)}", tmp_path),
        ],
        show=lambda _: None,
    )

    demo.run()

    assert demo.codes == {"first": 0, "second": 0}


def test_a_failed_deployment_ends_the_rest(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    demo = Demo(
        [
            _part("contracts", _WAITS.format(pid=pid), tmp_path),
            _part("deployment", f"{_AWAITS.format(path=pid)}; exit 1", tmp_path),
            _part("orders", "true", tmp_path, "deployment"),
        ],
        show=lambda _: None,
    )

    demo.run()

    assert demo.codes == {"deployment": 1}
    assert not _is_there(int(pid.read_text()))


def test_lines_wait_while_a_part_has_the_terminal(tmp_path: Path) -> None:
    """The part that has the terminal ends after the end of another part was noted; only then that end is printed."""
    shown: list[tuple[str, bool]] = []
    noted, ended = tmp_path / "noted", tmp_path / "ended"
    on_terminal = Part(name="load", does="load", command=("sh", "-c", f"{_AWAITS.format(path=noted)}; touch {ended}"))
    demo = Demo(
        [
            on_terminal,
            _part("contracts", "true", tmp_path),
            _part("orders", f"touch {noted}; {_AWAITS.format(path=ended)}", tmp_path, "contracts"),
        ],
        show=lambda line: shown.append((line.partition("] ")[2], ended.exists())),
    )

    demo.run()

    assert shown[0] == ("load: load", False)
    assert dict(shown)["contracts: done"]


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    pids = [tmp_path / "first.pid", tmp_path / "second.pid"]
    scripts = [_WAITS.format(pid=pid) for pid in pids]
    program = (
        "import sys; from pathlib import Path; from scripts.demo import Demo, Part; "
        f"Demo([Part(name=s, does='waits', command=('sh', '-c', s), log=Path({str(tmp_path)!r}) / str(n)) "
        f"for n, s in enumerate({scripts!r})]).run()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    eventually(lambda: all(pid.exists() and pid.read_text() for pid in pids), timeout_seconds=30, describe="both parts")
    started = [int(pid.read_text()) for pid in pids]
    assert all(map(_is_there, started))

    os.kill(process.pid, signal.SIGINT)

    assert process.wait(timeout=60) != 0
    assert not any(map(_is_there, started))


def test_parts_that_use_the_queues_of_local_run_in_turn() -> None:
    """The load test and the poison message of the contracts both need empty queues."""
    after = {part.name: part.after for part in parts("smoke")}

    assert after == {
        "deployment": (),
        "contracts": ("deployment",),
        "contracts of the deployment": ("deployment",),
        "scaling": ("deployment",),
        "orders": ("contracts of the deployment",),
        "load test": ("orders",),
    }


def test_the_result_says_what_was_done_to_the_load_test_on_purpose(tmp_path: Path) -> None:
    report.write(finished_runs.faulty(), tmp_path)
    assert faults_done(tmp_path).startswith("; 4 of 5 faults done (2 kill, 1 slow, 1 answer), recovered after at most")

    report.write(finished_runs.valid(), tmp_path)
    assert faults_done(tmp_path) == ""


@pytest.mark.parametrize(
    ("arguments", "profile"), [(["demo"], "demo"), (["demo", "PROFILE=tiny"], "tiny"), (["load"], "smoke")]
)
def test_only_the_demo_has_faults_unless_a_profile_is_named(arguments: list[str], profile: str) -> None:
    variables = subprocess.run(
        ["make", "--print-data-base", "--question", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert re.findall(r"^PROFILE := (.*)$", variables.stdout, re.MULTILINE) == [profile]
