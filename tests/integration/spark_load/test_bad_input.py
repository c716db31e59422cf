"""A user's mistake after queues are deployed is one line and an exit code, without traceback or verdict."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from emulator import localstack
from sluice.clock import eventually
from tests.support.endpoints import fake_aws
from tests.support.project import PROJECT

pytestmark = pytest.mark.spark
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


def _sluice(*arguments: str, **more: str) -> tuple[int, list[str]]:
    """Return exit code and the lines on standard error."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    ended = subprocess.run(
        [sys.executable, "-m", "sluice", *arguments],
        cwd=PROJECT,
        env={**plain, **KEYS, **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr.strip().splitlines()


def test_an_environment_that_is_not_deployed_is_named(endpoint: fake_aws.Endpoint) -> None:
    """The endpoint has the queues of `local` only."""
    ended, lines = _sluice("load", "run", "smoke", "--env", "dev", "--endpoint-url", endpoint.url)

    assert ended == 2
    assert lines == [f"sluice: environment 'dev' is not deployed at {endpoint.url}; deploy its stacks there first"]


def test_a_spark_that_does_not_start_is_named(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """A wrong JAVA_HOME: one line, and exit code 2, because 1 would say INVALID."""
    options = ["--endpoint-url", endpoint.url, "--runs-dir", str(tmp_path)]

    ended, lines = _sluice("load", "run", "tiny", *options, JAVA_HOME="/nowhere")

    assert ended == 2
    assert lines[-1].startswith(
        "sluice: Spark did not start: it has no Java that fits (/nowhere/bin/java: No such file"
    )
    assert lines[-1].endswith("; it needs Java 17 or newer, and JAVA_HOME is /nowhere")


def test_a_history_folder_that_cannot_be_written_is_named(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """A file is in the place of the folder above it."""
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    options = ["--endpoint-url", endpoint.url, "--runs-dir", str(in_the_way / "runs")]

    ended, lines = _sluice("load", "run", "tiny", *options)

    assert ended == 3
    assert lines == [
        f"sluice: cannot write to {in_the_way / 'runs'} (Not a directory);"
        " name a folder you can write to with --runs-dir"
    ]


ASKING = """
import os, signal, threading
from spark_load.runtime.spark_session import running
with running(1) as spark:
    threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
    print(spark.range(10**15).where("id % 7 = 8").count())
"""


@pytest.mark.slow  # a Spark of its own
def test_ctrl_c_while_spark_answers_is_an_exception_and_no_more() -> None:
    """Ctrl-C comes during a judgement, or before the load begins. Neither Spark's handler nor Py4J prints anything."""
    ended = subprocess.run(
        [sys.executable, "-c", ASKING], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False
    )

    assert ended.stdout == ""
    assert ended.stderr.endswith("KeyboardInterrupt\n")
    assert "ERROR" not in ended.stderr


@pytest.mark.slow
def test_an_interrupted_run_leaves_no_verdict_and_no_process(
    localstack_deployed: localstack.Emulator, tmp_path: Path
) -> None:
    """Ctrl-C reaches the whole process group, as in a terminal, when the load has begun."""
    running = subprocess.Popen(
        [sys.executable, "-m", "sluice", "load", "run", "tiny", "--runs-dir", str(tmp_path)],
        cwd=PROJECT,
        env={**os.environ, **KEYS, "AWS_ENDPOINT_URL": localstack_deployed.endpoint_url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    eventually(lambda: list(tmp_path.glob("*/board-*/start.json")), timeout_seconds=90, describe="the load to start")

    os.killpg(running.pid, signal.SIGINT)
    _, printed = running.communicate(timeout=60)

    assert running.returncode == 130
    (folder,) = tmp_path.iterdir()
    assert printed.endswith(f"sluice load resume {folder}\n")
    assert "Traceback" not in printed
    assert not (folder / "verdict.json").exists()
    eventually(lambda: _is_gone(running.pid), timeout_seconds=20, describe="the process group to be empty")


def _is_gone(group: int) -> bool:
    """Return whether no process of the group runs any more; one that init has yet to reap does not."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, its_group = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return False
    return True
