"""The reason of a failure in our words, made of texts that Spark 4.1 and Py4J printed on 2026-11-23."""

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PythonException

from sluice.judge.reading.damage import error_in_task, reason

_AT = "\n\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.hasNext(PythonRunner.scala:1034)"
_FILE = "Encountered error while reading file file:///runs/history/e-000.parquet."
_CALLED = "An error occurred while calling o136.collectToPython."
_TASK = (
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times,"
    " most recent failure: Lost task 0.0 in stage 2.0 (TID 4) (localhost executor driver): "
)


def _of_python(text: str) -> str:
    return (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        f'  File "e.py", line 18, in g\n    exc()\n    ~~~^^\n{text}'
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            PythonException(_of_python("sluice.errors.HistoryError: e.arrows is bad; do this")),
            "e.arrows is bad; do this",
        ),
        (PythonException(_of_python("pyarrow.lib.ArrowInvalid: no number")), "no number"),
        (PythonException(_of_python("KeyError: 'k'")), "KeyError: 'k'"),
        (
            Py4JError(
                f"{_CALLED}\n{_TASK}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)."
                f" Consider setting 'spark.sql.execution.pyspark.udf.faulthandler.enabled'{_AT}"
            ),
            "a Python process of Spark was killed, or had no memory left",
        ),
        (
            Py4JError(f"{_CALLED}\n{_TASK}java.lang.OutOfMemoryError: Java heap space{_AT}"),
            "Spark has no memory left; lower the load, or give it more (spark.driver.memory)",
        ),
        (
            Py4JError(
                f"{_CALLED}\n: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] {_FILE}  SQLSTATE: KD{_AT}"
            ),
            "/runs/history/e-000.parquet cannot be read",
        ),
        (
            Py4JError(f"{_CALLED}\n{_TASK}java.lang.IllegalStateException: 7 is odd{_AT}\nDriver stacktrace:{_AT}"),
            "7 is odd",
        ),
        (Py4JError("An error occurred while calling o49.sc"), "Spark has ended, or does not say why"),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark has ended"),
        (
            PythonException(_of_python("ConnectionRefusedError: [Errno 111] Connection refused")),
            "ConnectionRefusedError: [Errno 111] Connection refused",
        ),
        (ConnectionRefusedError(111, "Connection refused"), "Spark has ended"),
        (
            AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/runs/nope. SQLSTATE: 42K03"),
            "Path does not exist: file:/runs/nope.",
        ),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (ValueError("two\n  lines"), "two lines"),
        (KeyError(), "KeyError"),
    ],
)
def test_an_error_is_reported_without_spark_and_java(error: Exception, expected: str) -> None:
    assert reason(error) == expected


def test_an_error_outside_a_task_is_no_error_of_a_task() -> None:
    assert error_in_task(ValueError("no")) is None
    assert error_in_task(PythonException(_of_python("sluice.errors.HistoryError: e is bad"))) == "e is bad"
