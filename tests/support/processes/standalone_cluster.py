"""A standalone Spark cluster on this machine, for tests that need executors in separate processes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from sluice.clock import eventually

SPARK_HOME = Path(pyspark.__file__).parent
_READY_SECONDS = 90
_END_SECONDS = 30
_ALIEN = ("PYTHONPATH", "AWS_ENDPOINT_URL", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


@dataclass(frozen=True, slots=True)
class Standalone:
    """A running cluster: its folder, and the address of its master."""

    folder: Path
    master: str


def variables(folder: Path) -> dict[str, str]:
    """Return the environment of a Spark process: the project is not on its path."""
    own = {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    return {name: value for name, value in os.environ.items() if name not in _ALIEN} | own


@contextmanager
def process(folder: Path, name: str, command: list[str], *, pattern: str) -> Iterator[Callable[[], re.Match[str]]]:
    """Run a program of Spark until the block ends; yield a function that waits until it is ready.

    It is ready when its log matches the pattern.
    """
    log = folder / name
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            env=variables(folder),
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )

    def matches() -> list[re.Match[str]]:
        assert started.poll() is None, log.read_text()
        return list(re.finditer(pattern, log.read_text()))

    def ready() -> re.Match[str]:
        return eventually(matches, timeout_seconds=_READY_SECONDS, describe=f"{name} to say {pattern!r}")[0]

    try:
        yield ready
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(_END_SECONDS)


@contextmanager
def running(folder: Path, *, cores: int, memory: str) -> Iterator[Standalone]:
    """Run a master and a worker with `cores` cores, which may be more than the machine has."""
    deploy, where = "org.apache.spark.deploy", ["--host", "127.0.0.1", "--webui-port", "0"]
    begin = [str(SPARK_HOME / "bin" / "spark-class")]
    command = [*begin, f"{deploy}.master.Master", *where, "--port", "0"]
    with process(folder, "master", command, pattern=r"Starting Spark master at (spark://\S+)") as ready:
        master = ready()[1]
        command = [*begin, f"{deploy}.worker.Worker", *where, "--cores", str(cores), "--memory", memory, master]
        with process(folder, "worker", command, pattern="Successfully registered with master") as is_registered:
            is_registered()
            yield Standalone(folder, master)
