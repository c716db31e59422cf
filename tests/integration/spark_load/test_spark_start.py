"""Spark beside what others have set up for it: it works all the same, or one line says what is in the way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import PROJECT

pytestmark = pytest.mark.spark
_OTHERS = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "HADOOP_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
)
_WORK = """
import sys
from sluice.errors import MessagingError
from spark_load.runtime.spark_session import running
try:
    with running(1) as spark:
        spark.range(10).write.parquet(sys.argv[1])
        print(spark.read.parquet(sys.argv[1]).mapInArrow(lambda batches: batches, "id bigint").count())
except MessagingError as error:
    print(error)
"""


def _work(folder: Path, **others: str) -> str:
    """Return what a process printed last that writes ten rows with Spark and counts them in a Python task."""
    ended = subprocess.run(
        [sys.executable, "-c", _WORK, str(folder / "rows")],
        cwd=PROJECT,
        env={name: value for name, value in os.environ.items() if name not in _OTHERS} | others,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return ended.stdout.strip()


@pytest.mark.slow  # a Spark of its own
def test_a_bare_path_is_a_file_of_this_machine(tmp_path: Path) -> None:
    """The path is local, whichever file system HADOOP_CONF_DIR names for the cluster."""
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://namenode.invalid:8020</value></property>"
        "</configuration>",
        encoding="utf-8",
    )

    assert _work(tmp_path, HADOOP_CONF_DIR=str(tmp_path)) == "10"
    assert (tmp_path / "rows" / "_SUCCESS").exists()


@pytest.mark.slow  # a Spark of its own
def test_java_and_python_connect_although_java_prefers_ipv6(tmp_path: Path) -> None:
    """Python listens on an address of IPv4; Spark counts the ten rows all the same."""
    assert _work(tmp_path, JAVA_TOOL_OPTIONS="-Djava.net.preferIPv6Addresses=true") == "10"


@pytest.mark.slow  # a Spark of its own
def test_an_event_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The settings are in a spark-defaults.conf, as an administrator leaves them."""
    settings = "spark.eventLog.enabled true\nspark.eventLog.dir file:/nowhere/events\n"
    (tmp_path / "spark-defaults.conf").write_text(settings, encoding="utf-8")

    assert _work(tmp_path, SPARK_CONF_DIR=str(tmp_path)) == (
        "Spark did not start: it cannot write its event log (File file:/nowhere/events does not exist), needed is a"
        " folder that is there and can be written; create the one that spark.eventLog.dir names, or set"
        " spark.eventLog.enabled to false, in spark-defaults.conf"
    )


@pytest.mark.slow  # a Spark of its own
def test_too_little_memory_is_named(tmp_path: Path) -> None:
    """The driver is given 100 MB, which is less than Spark's own minimum."""
    printed = _work(tmp_path, PYSPARK_SUBMIT_ARGS="--driver-memory 100m pyspark-shell")

    assert printed.startswith("Spark did not start: the driver's memory is too small (System memory ")
    assert printed.endswith(
        "; raise spark.driver.memory in PYSPARK_SUBMIT_ARGS or spark-defaults.conf, or leave it out"
    )


def test_an_option_that_spark_submit_does_not_know_is_named(tmp_path: Path) -> None:
    """The options come from the variable PYSPARK_SUBMIT_ARGS."""
    assert _work(tmp_path, PYSPARK_SUBMIT_ARGS="--nonsense pyspark-shell") == (
        "Spark did not start: spark-submit refuses its arguments (Unrecognized option: --nonsense), allowed are its own"
        " options and pyspark-shell behind them; correct PYSPARK_SUBMIT_ARGS, or unset it"
    )
