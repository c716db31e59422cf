"""The Spark session of a load test: local, on a cluster, under spark-submit, or with Spark Connect.

The load test uses only the functions of Spark that Spark Connect has, so that one code runs on all four.
"""

import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluice.clock import NotReachedError, eventually
from sluice.errors import ConfigError, EndpointError
from sluice.judge.reading.damage import reason
from spark_load.runtime import spark_start
from spark_load.runtime.spark_start import LOG_LEVEL_VARIABLE

_PROJECT = Path(__file__).resolve().parents[2]
_LOGGING = _PROJECT / "spark_load" / "log4j2.properties"
_PACKAGES = ("sluice", "spark_load")
_OF_SPARK = (PySparkException, Py4JError, ConnectionRefusedError)  # Py4J raises the last after Spark has ended
_CONNECT_SECONDS = 5
_REGISTERED_SECONDS = 30  # allowed for all executors of a new application to register
_PROBED_SLOTS_MAX = 100_000
_NEVER_TWICE = {"spark.task.maxFailures": "1", "spark.speculation": "false"}
_DEFAULTS = {"spark.task.maxFailures": "4", "spark.speculation": "false"}
_FILE_SYSTEM, _LOCAL_FILES = (
    "fs.defaultFS",
    "file:///",
)  # so that the path of a run's folder is a local path on every machine
_QUERIES = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.requireAllClusterKeysForDistribution": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.session.timeZone": "UTC",
    # Without this rule Spark skips a job without rows. A resumed run needs each publisher's journal, even an empty one.
    "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
}
_DRIVER = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    # If a variable of Java prefers IPv6, Java would listen at an address to which Python does not connect.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOGGING} -Djava.net.preferIPv6Addresses=false",
    f"spark.hadoop.{_FILE_SYSTEM}": _LOCAL_FILES,
}
_WORKERS = {
    # Spark's Python workers keep freed memory. Otherwise glibc and Arrow return it to the system after every column and
    # get it back page by page, which takes a quarter of the time of judging.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": "33554432",  # the largest value that every glibc accepts
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "500000000",  # more than this is returned, as after the hottest group
}
_DAEMON = {"spark.python.daemon.module": "spark_load.runtime.daemon"}
PRELOAD_VARIABLE = "SLUICE_PRELOAD"
"""The variable with the modules that Spark's Python daemon imports before it forks, separated by commas."""
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_PORTS = {"spark": 7077, "sc": 15002}
_RUNS_ONCE = re.compile(r"local(\[[^,]*\])?")  # these masters never restart a task, whatever the settings say


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster of the tasks: `spark://host:port` of a standalone master, or `sc://host:port` of Spark Connect.

    With neither, tasks run where spark-submit says, or on this machine.

    Raises:
        ConfigError: both are given, or one under spark-submit, or one is no such address.
    """

    master: str | None = None
    remote: str | None = None

    def __post_init__(self) -> None:
        addresses = [address for address in (self.master, self.remote) if address is not None]
        if len(addresses) > 1:
            raise ConfigError(f"master is {self.master!r} and remote is {self.remote!r}, allowed is one of them")
        if addresses and _is_submitted():
            raise ConfigError(
                f"{addresses[0]!r} is given under spark-submit, which has chosen the cluster already; leave it out"
            )
        for address, scheme in ((self.master, "spark"), (self.remote, "sc")):
            if address is not None:
                _host_and_port(address, scheme)

    @property
    def is_here(self) -> bool:
        """Return whether this process brings its own Spark."""
        return self.master is None and self.remote is None and not _is_submitted()


HERE = Cluster()


@contextmanager
def running(
    slots: int, cluster: Cluster = HERE, preload: Sequence[str] = (), *, task_restarts_max: int = 0
) -> Iterator[SparkSession]:
    """Run a session in which `slots` tasks run at once. There may be more slots than cores, because tasks mostly wait.

    Modules to `preload` are loaded once for all tasks of this machine; on a cluster each task loads them.
    A task never runs twice, neither after a failure nor by speculation, because it would publish again. Only on this
    machine Spark may restart a task that a fault ended, `task_restarts_max` times; the task itself refuses more.

    Raises:
        ConfigError: the cluster has fewer slots, or would run a task twice.
        EndpointError: it cannot be reached, Java or Spark did not start, or Spark failed in the block.
    """
    session = _start(cluster, slots, preload, task_restarts_max)
    try:
        with _interruptible():
            if cluster.is_here:
                yield session
                return
            _check(session, slots)
            with _shipped_code(session):
                yield session
    except _OF_SPARK as error:
        raise EndpointError(f"Spark did not do it: {reason(error)}; its own log: {LOG_LEVEL_VARIABLE}=error") from error
    finally:
        with suppress(Py4JError, PySparkException, OSError):  # if Spark has died, stopping it fails, which is no error
            session.stop()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise an exception, and do nothing else.

    Spark's own handler kills the tasks before they have closed their journals, and calls Java in the middle of another
    answer. Py4J logs a traceback of either.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loggers = [logging.getLogger(name) for name in (None, "py4j.java_gateway", "py4j.clientserver")]
    for logger in loggers:  # a filter of a logger does not hold for its children
        logger.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_no_interrupt)
        signal.signal(signal.SIGINT, before)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Return whether a log record is not about Ctrl-C, after which Py4J may fail to close its sockets."""
    error = record.exc_info and record.exc_info[1]
    while error and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return not error


def _start(cluster: Cluster, slots: int, preload: Sequence[str], task_restarts_max: int) -> SparkSession:
    """Return a new session; settings that others made for a cluster stay."""
    settings = {"spark.app.name": "sluice", **_QUERIES}
    if LOG_LEVEL_VARIABLE not in os.environ:
        PySparkLogger.getLogger("DataFrameQueryContextLogger").disabled = True  # it would log Java's stack traces
    if cluster.is_here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise workers use the python3 on PATH
        settings["spark.master"] = f"local[{slots},{1 + task_restarts_max}]"
        settings |= _LOOPBACK | _DAEMON | {f"spark.executorEnv.{PRELOAD_VARIABLE}": ",".join(preload)}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if cluster.master is not None:
        _reach(cluster.master, "spark")
        settings["spark.master"] = cluster.master
    if cluster.is_here or cluster.master is not None:
        session = spark_start.start(settings | _DRIVER | _WORKERS | _NEVER_TWICE)
    else:
        session = _join(cluster, settings)
    session.conf.set(_FILE_SYSTEM, _LOCAL_FILES)
    return session


def _join(cluster: Cluster, settings: Mapping[str, str]) -> SparkSession:
    """Return a session of a Spark that others have started."""
    builder = SparkSession.builder
    if cluster.remote is not None:
        _reach(cluster.remote, "sc")
        builder = builder.remote(cluster.remote)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except _OF_SPARK as error:
        where = cluster.remote or "the cluster of spark-submit"
        raise EndpointError(f"{where} gives no session ({reason(error)}); look at its log") from error
    return session


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit started a JVM, and that started this process


def _host_and_port(address: str, scheme: str) -> tuple[str, int]:
    refused = ConfigError(f"cluster is {address!r}, allowed is an address such as {scheme}://host:{_PORTS[scheme]}")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refused from None
    if parts.scheme != scheme or host is None or (port is None and scheme == "spark"):
        raise refused
    return host, _PORTS[scheme] if port is None else port


def _reach(address: str, scheme: str) -> None:
    """Connect to the address first: Spark would try for a minute, and then fail in the middle of the first query."""
    try:
        socket.create_connection(_host_and_port(address, scheme), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise EndpointError(f"{address} cannot be reached ({error}); start it, or leave it out to run here") from error


def _check(session: SparkSession, slots: int) -> None:
    """Require that the cluster can run enough tasks at once, and runs each at most once."""
    _check_settings(session)

    def is_enough() -> bool:
        return _slots(session) >= slots

    try:
        eventually(is_enough, timeout_seconds=_REGISTERED_SECONDS, interval_seconds=1, describe="executors")
    except NotReachedError:
        raise ConfigError(
            f"the cluster runs {_slots(session)} tasks at once, and this needs {slots}; add executors or cores"
            " (SPARK_WORKER_CORES may be more than there are: the tasks mostly wait), or lower publish_tasks or"
            " consumers_per_queue"
        ) from None


def _check_settings(session: SparkSession) -> None:
    if _RUNS_ONCE.fullmatch(session.conf.get("spark.master", "") or ""):
        return
    for name, wanted in _NEVER_TWICE.items():
        seen = session.conf.get(name, _DEFAULTS[name])
        if seen != wanted:
            raise ConfigError(
                f"{name} is {seen}, allowed is {wanted}, because a task that is run again publishes again; give"
                f" --conf {name}={wanted} to spark-submit, or to the Spark Connect server"
            )


def _slots(session: SparkSession) -> int:
    """Return how many tasks the cluster runs at once: the number of partitions that it makes by default."""
    found = session.range(_PROBED_SLOTS_MAX).select(F.spark_partition_id().alias("part")).distinct().count()
    return found // int(session.conf.get("spark.task.cpus", "1") or 1)


@contextmanager
def _shipped_code(session: SparkSession) -> Iterator[None]:
    """Send the tasks' code to the executors. The packages of requirements.txt must already be installed there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sluice_tasks.zip"
        with zipfile.ZipFile(path, "w") as packed:
            for file in sorted(path for package in _PACKAGES for path in (_PROJECT / package).rglob("*.py")):
                packed.write(file, file.relative_to(_PROJECT))
        own = list(sys.path)
        session.addArtifacts(str(path), pyfile=True)
        sys.path[:] = own  # addArtifacts also adds the archive to this process's path, which lacks other files
        yield  # the folder stays until the end: executors that start later fetch the archive from it
