"""A standalone Spark cluster of this machine, for what has to run on executors that are processes of their own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
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
    """A running cluster: its folder, the address of its master, and the processes of its workers."""

    folder: Path
    master: str
    worker_pids: tuple[int, ...]


def variables(folder: Path) -> dict[str, str]:
    """Return the environment of a process of Spark's: nothing of the project is on its path."""
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
def process(
    folder: Path, name: str, command: list[str], *, pattern: str, host: str = "127.0.0.1"
) -> Iterator[tuple[int, Callable[[], re.Match[str]]]]:
    """Run a program of Spark's, and what it starts, until the block ends; yield its pid and what awaits it.

    It is ready when its log matches the pattern.
    """
    log = folder / name
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            env=variables(folder) | {"SPARK_LOCAL_IP": host},
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
        yield started.pid, ready
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(_END_SECONDS)


@contextmanager
def running(
    folder: Path,
    *,
    cores: int,
    memory: str,
    workers: int = 1,
    host: str = "127.0.0.1",
    node: Callable[[], AbstractContextManager[str]] | None = None,
) -> Iterator[Standalone]:
    """Run a master, and workers of so many cores, which may be more than there are.

    The master is at `host`; so are the workers, unless a `node` enters the network of the next and yields its address.
    """
    deploy, own = "org.apache.spark.deploy", [str(SPARK_HOME / "bin" / "spark-class")]

    def options(address: str) -> list[str]:
        return ["--host", address, "--webui-port", "0"]

    with ExitStack() as stack:
        command = [*own, f"{deploy}.master.Master", *options(host), "--port", "0"]
        pattern = r"Starting Spark master at (spark://\S+)"
        _, ready = stack.enter_context(process(folder, "master", command, pattern=pattern, host=host))
        master, started = ready()[1], []
        for number in range(workers):
            with nullcontext(host) if node is None else node() as address:
                command = [*own, f"{deploy}.worker.Worker", *options(address)]
                command += ["--cores", str(cores), "--memory", memory, master]
                pattern = "Successfully registered with master"
                made = process(folder, f"worker-{number}", command, pattern=pattern, host=address)
                started.append(stack.enter_context(made))
        for _, ready in started:
            ready()
        yield Standalone(folder, master, tuple(pid for pid, _ in started))
