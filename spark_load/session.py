"""The Spark session of a load test."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.errors import EndpointError

_LOGGING = Path(__file__).resolve().parent / "log4j2.properties"


@contextmanager
def running(slots: int) -> Iterator[SparkSession]:
    """Run a local session with room for `slots` tasks at once, more than there are cores: they mostly wait.

    Raises:
        EndpointError: Java or Spark did not start.

    A task is never run twice, neither after a failure nor by speculation: it would publish again.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers start whatever python3 is on PATH
    builder = (
        SparkSession.builder.master(f"local[{slots}]")
        .appName("sluice")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.task.maxFailures", "1")
        .config("spark.speculation", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.requireAllClusterKeysForDistribution", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{_LOGGING}")
    )
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkException as error:
        java = os.environ.get("JAVA_HOME", "not set")
        raise EndpointError(
            f"Spark did not start ({str(error).strip().splitlines()[0]});"
            f" it needs Java 17 or newer, and JAVA_HOME is {java}"
        ) from error
    try:
        yield session
    finally:
        session.stop()
