"""Wrong settings for Spark are refused before Java starts, and Java's output explains a failed start."""

from pathlib import Path

import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError

from sluice.errors import ConfigError, EndpointError
from spark_load.runtime.spark_start import check_surroundings, explain

OTHER_END = f"needed is Spark {pyspark.__version__}; correct it, or unset it to use the Spark that came with pyspark"
EXITED = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
NOISE = "WARNING: Using incubator modules: jdk.incubator.vector\n"


def _home(folder: Path, version: str) -> str:
    """Return a folder with those files of a Spark of this version that the check reads."""
    for name in ("bin", "jars"):
        (folder / name).mkdir()
    (folder / "bin" / "spark-submit").touch(mode=0o755)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return str(folder)


def test_a_missing_spark_home_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        check_surroundings({"SPARK_HOME": "/nowhere/spark"})

    assert str(refused.value) == (
        f"SPARK_HOME is '/nowhere/spark', where there is no bin/spark-submit to run, {OTHER_END}"
    )


@pytest.mark.parametrize("version", ["3.5.4", "4.0.1"])
def test_a_spark_home_of_another_version_is_refused(tmp_path: Path, version: str) -> None:
    home = _home(tmp_path, version)

    with pytest.raises(ConfigError) as refused:
        check_surroundings({"SPARK_HOME": home})

    assert str(refused.value) == f"SPARK_HOME is {home!r}, which is Spark {version}, {OTHER_END}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--name 'x pyspark-shell", r"PYSPARK_SUBMIT_ARGS is .* \(No closing quotation\), allowed are .*; correct it"),
        ("--name x", r"PYSPARK_SUBMIT_ARGS is '--name x', allowed are options of spark-submit and pyspark-shell"),
        ("", r"PYSPARK_SUBMIT_ARGS is '', allowed are .*; add pyspark-shell at its end, or unset it"),
        (
            "--version pyspark-shell",
            r"PYSPARK_SUBMIT_ARGS has --version, with which Spark ends at once, .*; take it out",
        ),
        ("--master yarn pyspark-shell", r"PYSPARK_SUBMIT_ARGS has --master, allowed is no choice of a cluster there;"),
        ("--master=yarn pyspark-shell", r"PYSPARK_SUBMIT_ARGS has --master=yarn, allowed is no choice of a cluster"),
        ("--conf spark.master=k8s://x pyspark-shell", r"PYSPARK_SUBMIT_ARGS has --conf=spark.master=k8s://x, allowed"),
        ("--deploy-mode cluster pyspark-shell", r"PYSPARK_SUBMIT_ARGS has --deploy-mode, allowed is no choice"),
        (
            "--driver-java-options -Djava.net.preferIPv6Addresses=true pyspark-shell",
            r"PYSPARK_SUBMIT_ARGS has -Djava.net.preferIPv6Addresses=true, .* allowed is false on this machine;",
        ),
    ],
)
def test_wrong_pyspark_submit_args_are_refused(arguments: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_surroundings({"PYSPARK_SUBMIT_ARGS": arguments})


def test_a_java_option_that_would_override_ours_is_refused() -> None:
    """_JAVA_OPTIONS takes precedence over Spark's own options."""
    with pytest.raises(ConfigError, match=r"^_JAVA_OPTIONS has -Djava.net.preferIPv6Addresses=true, "):
        check_surroundings({"_JAVA_OPTIONS": "-Xmx1g -Djava.net.preferIPv6Addresses=true"})


def test_possible_settings_for_spark_are_accepted(tmp_path: Path) -> None:
    """Another patch release of Spark, options without a cluster, and Java options that ours override."""
    check_surroundings({})
    check_surroundings(
        {
            "SPARK_HOME": _home(tmp_path, f"{pyspark.__version__.rpartition('.')[0]}.99"),
            "PYSPARK_SUBMIT_ARGS": "--name x --conf spark.ui.enabled=false --driver-memory 3g pyspark-shell",
            "JAVA_TOOL_OPTIONS": "-Djava.net.preferIPv6Addresses=true",
        }
    )


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        (
            "Error occurred during initialization of VM\nCould not reserve enough space for 2097152KB object heap\n",
            "Java got no memory (Could not reserve enough space for 2097152KB object heap), needed is what ",
        ),
        (
            "Error: Unrecognized option: --nonsense\n\nUsage: spark-submit [options] <app jar>\n",
            "spark-submit refuses its arguments (Unrecognized option: --nonsense), allowed are its own options and ",
        ),
        (
            "Unrecognized option: -Xnonsense\nError: Could not create the Java Virtual Machine.\n",
            "Java has no such option (Unrecognized option: -Xnonsense), allowed are those of your Java; correct ",
        ),
        (
            "/pyspark/bin/spark-class: line 101: /nowhere/bin/java: No such file or directory\n",
            "it has no Java that fits (/nowhere/bin/java: No such file or directory); it needs Java 17 or newer, and ",
        ),
        (
            'Exception in thread "main" java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has\n',
            "it has no Java that fits (UnsupportedClassVersionError); it needs Java 17 or newer, and JAVA_HOME is ",
        ),
    ],
)
def test_javas_last_lines_explain_why_it_did_not_start(printed: str, sentence: str) -> None:
    found = explain(EXITED, NOISE + printed)

    assert isinstance(found, EndpointError)
    assert str(found).startswith(f"Spark did not start: {sentence}")


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (
            Py4JError("System memory 104857600 must be at least 471859200. Please increase heap size"),
            "the driver's memory is too small (System memory 104857600 must be at least 471859200 bytes); raise ",
        ),
        (
            TypeError("'JavaPackage' object is not callable"),
            f"its version is not that of pyspark, {pyspark.__version__} ",
        ),
    ],
)
def test_sparks_error_says_why_it_did_not_start(raised: Exception, sentence: str) -> None:
    assert str(explain(raised, NOISE)).startswith(f"Spark did not start: {sentence}")


@pytest.mark.parametrize(
    ("printed", "last"),
    [
        ("one\ntwo\n  at org.apache.X\nthree\n\nfour\n", "two | three | four"),
        ("", "nothing, as a process does that was killed"),
    ],
)
def test_a_cause_nobody_knows_is_reported_as_unknown(printed: str, last: str) -> None:
    """With Java's last lines, and without a guess: a hint at Java 17 would mislead."""
    assert str(explain(EXITED, printed)) == (
        "Spark did not start (Java gateway process exited before sending its port number.), and the cause is none of"
        f" those known here. Java said last: {last}. Its own log: SLUICE_SPARK_LOG_LEVEL=error"
    )
