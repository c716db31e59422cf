"""The health check of workers and relays: processes that are frozen, killed or ended, and what is no file of signs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine

from emulator import localstack
from sluice.clock import SystemClock, eventually
from sluice.messaging.liveness import AliveFile
from tests.support.processes import worker_processes
from tests.support.processes.messaging_process import PATIENCE_SECONDS, MessagingProcess, relay_process
from tests.support.project import PROJECT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the file with the signs of life."""
    return tmp_path / "alive"


def check(*arguments: object) -> tuple[int, str]:
    """Run the health check as a container does; return its exit code and its last line."""
    command = [sys.executable, "-m", "sluice", "alive", *map(str, arguments)]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=30, check=False)
    return ended.returncode, (ended.stdout + ended.stderr).splitlines()[-1]


def await_check(path: Path, code: int, text: str, *options: str) -> None:
    """Wait until `sluice alive` ends with this exit code and prints this text."""
    eventually(
        lambda: (found := check(path, *options))[0] == code and text in found[1],
        timeout_seconds=PATIENCE_SECONDS,
        describe=f"the check to end with {code}: {text}",
    )


def assert_check_follows_the_process(start: Callable[[], MessagingProcess], path: Path) -> None:
    """Check what `sluice alive` says of a process that runs, is frozen, goes on, ends, and is killed."""
    with start() as process:
        await_check(path, 0, "is alive, its last sign of life is ")
        process.send(signal.SIGSTOP)
        await_check(path, 2, "gave no sign of life for ", "--within", "7")
        process.send(signal.SIGCONT)
        await_check(path, 0, "is alive, its last sign of life is ", "--within", "7")
        process.stop()
        assert check(path)[1].endswith("(No such file or directory); is it what --alive names?")
    with start() as process:
        await_check(path, 0, "is alive, its last sign of life is ")
        process.send(signal.SIGKILL)
        assert process.wait_for_exit() == -signal.SIGKILL
        await_check(path, 2, "gave no sign of life for ", "--within", "1")


def test_a_worker_that_is_frozen_or_killed_fails_the_check(
    on_file: Engine, localstack_shared: localstack.Emulator, path: Path, tmp_path: Path
) -> None:
    """`sluice alive` reads the file that the worker writes; after an orderly end the file is gone."""
    with worker_processes.open_fleet(on_file, localstack_shared, tmp_path, worker_processes.consumer()) as worker_fleet:
        assert_check_follows_the_process(lambda: worker_fleet.worker(SLUICE_ALIVE_FILE=str(path)), path)


def test_a_relay_that_is_frozen_or_killed_fails_the_check(path: Path, tmp_path: Path) -> None:
    """The relay's loop itself writes the file, so a step that never ends looks like a frozen process."""
    assert_check_follows_the_process(lambda: relay_process(tmp_path, "--alive", str(path)), path)


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    """Otherwise the health check would fail later, for no fault of the relay."""
    with relay_process(tmp_path, "--alive", str(tmp_path / "nowhere" / "alive")) as process:
        assert process.wait_for_exit() == 3
        assert process.log.splitlines() == [
            f"sluice: cannot write to the alive file '{tmp_path}/nowhere/alive' (No such file or directory); change"
            " --alive, for instance to /dev/shm/alive"
        ]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    ids=["folder", "pipe", "no time", "no file"],
    argvalues=[
        (["{folder}"], 2, "sluice: no sign of life in '{folder}' (Is a directory); is it what --alive names?"),
        (["{folder}/pipe"], 2, "sluice: no sign of life in '{folder}/pipe' (0 bytes that no worker or relay has"),
        (
            ["{folder}/alive", "--within", "0"],
            3,
            "sluice: Invalid value for '--within': it is '0', allowed is a number of seconds from 0.001",
        ),
        ([], 3, "sluice: Missing argument 'FILE'"),
    ],
)
def test_the_check_of_a_path_without_signs_of_life_ends_at_once(
    tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    """A folder or a pipe is in the file's place. The check does not wait for a pipe without a writer."""
    os.mkfifo(tmp_path / "pipe")

    ended, line = check(*(argument.format(folder=tmp_path) for argument in arguments))

    assert ended == code
    assert line.startswith(text.format(folder=tmp_path))


def test_the_check_imports_the_standard_library_and_click_only(path: Path) -> None:
    """The check runs every few seconds beside the worker, so it must not load a database driver or a client of AWS."""
    AliveFile(path, SystemClock())
    code = (
        "import json, sys; before = set(sys.modules); sys.argv = ['sluice', 'alive', sys.argv[1]];"
        "from sluice.cli.main import main; main();"
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=PROJECT, capture_output=True, text=True, timeout=30, check=True
    )
    printed, imported = ended.stdout.splitlines()

    assert printed.startswith(f"process {os.getpid()} is alive")
    assert set(json.loads(imported)) - sys.stdlib_module_names == {"click", "sluice"}
