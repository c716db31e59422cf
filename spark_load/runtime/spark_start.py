"""Start Spark in this process: settings of others are checked first, and a failure is explained by its cause.

Spark takes settings from SPARK_HOME, PYSPARK_SUBMIT_ARGS, spark-defaults.conf and Java's own variables, too. Java says
on standard error why it did not start, so that output is read while it starts, and passed on afterwards.
"""

import os
import re
import shlex
import sys
import threading
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from sluice.errors import ConfigError, EndpointError, MessagingError
from sluice.judge.reading.damage import reason

LOG_LEVEL_VARIABLE = "SLUICE_SPARK_LOG_LEVEL"
"""The variable with the level of Spark's own log; log4j2.properties reads it."""
_HOME, _ARGUMENTS, _SHELL = "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "pyspark-shell"
_CHOOSES = ("spark.master", "spark.remote", "spark.submit.deployMode")
_CHOOSING = ("--master", "--remote", "--deploy-mode", *(f"--conf={name}" for name in _CHOOSES))
_ENDS_AT_ONCE = ("--help", "-h", "--version", "--kill", "--status", "--usage-error")
_IPV6 = "-Djava.net.preferIPv6Addresses=true"
_STRONGER_THAN_OURS = ("_JAVA_OPTIONS", _ARGUMENTS)
_RAISED = (
    PySparkException,
    Py4JError,
    OSError,
    TypeError,
)  # TypeError if the Spark of SPARK_HOME lacks a class of Java
_LINES_MAX = 200
_JOIN_SECONDS = 5
_LAST_LINES = 3
_CHARACTERS_MAX = 500


_CAUSES = {
    r"(?P<seen>Could not reserve enough space for \S+ object heap|There is insufficient memory for the Java Runtime)"
    r"|(?P<other>Cannot allocate memory|unable to create (?:native )?thread\b)": (
        "Java got no memory ({seen}), needed is what spark.driver.memory says, 2 GiB unless you set it; give this"
        " process more (ulimit -v, the container's limit), or the driver less (--driver-memory 1g in"
        " PYSPARK_SUBMIT_ARGS)"
    ),
    r"(?P<seen>System memory \d+ must be at least \d+)": (
        "the driver's memory is too small ({seen} bytes); raise spark.driver.memory in PYSPARK_SUBMIT_ARGS or"
        " spark-defaults.conf, or leave it out"
    ),
    r"deploy\.history\.\w*EventLog": (
        "it cannot write its event log ({seen}), needed is a folder that is there and can be written; create the one"
        " that spark.eventLog.dir names, or set spark.eventLog.enabled to false, in spark-defaults.conf"
    ),
    r"(?P<seen>Unrecognized (?:VM )?option:? \S+)(?=[\s\S]*Could not create the Java Virtual Machine)": (
        "Java has no such option ({seen}), allowed are those of your Java; correct JAVA_TOOL_OPTIONS, _JAVA_OPTIONS,"
        " JDK_JAVA_OPTIONS or PYSPARK_SUBMIT_ARGS"
    ),
    r"Error: (?P<seen>Unrecognized option: \S+|Missing .+)|(?P<other>Missing argument for option .+)": (
        "spark-submit refuses its arguments ({seen}), allowed are its own options and pyspark-shell behind them;"
        " correct PYSPARK_SUBMIT_ARGS, or unset it"
    ),
    r"(?P<seen>UnsupportedClassVersionError|\S*/java: (?:No such file or directory|Permission denied|not found))"
    r"|(?P<other>JAVA_HOME is not set|java: command not found)": (
        "it has no Java that fits ({seen}); it needs Java 17 or newer, and JAVA_HOME is {java_home}"
    ),
    r"(?P<seen>'JavaPackage' object is not callable|\S+ does not exist in the JVM)": (
        "its version is not that of pyspark, {version} ({seen}); correct SPARK_HOME, or unset it"
    ),
    r"(?P<seen>Service 'sparkDriver' could not bind|Cannot assign requested address)": (
        "it cannot listen where it is to ({seen}), allowed is an address of this machine, such as 127.0.0.1; correct"
        " SPARK_LOCAL_IP, which is {local_ip}"
    ),
}
"""Regular expressions that find a cause in the error and in Java's output, each with the sentence for the user."""


def check_surroundings(environment: Mapping[str, str]) -> None:
    """Refuse settings of others with which Spark would not start, or would start in another place.

    Raises:
        ConfigError: SPARK_HOME, PYSPARK_SUBMIT_ARGS or an option of Java cannot be right.
    """
    if _HOME in environment:
        _check_home(environment[_HOME])
    if _ARGUMENTS in environment:
        _check_arguments(environment[_ARGUMENTS])
    for name in _STRONGER_THAN_OURS:
        if _IPV6 in environment.get(name, ""):
            raise ConfigError(
                f"{name} has {_IPV6}, with which Spark's Java and Python do not find each other, allowed is false on"
                " this machine; take it out"
            )


def _check_home(home: str) -> None:
    """Refuse a SPARK_HOME without Spark, or with another version, because its Java would not fit our Python package."""
    needed = f"needed is Spark {pyspark.__version__}; correct it, or unset it to use the Spark that came with pyspark"
    if not os.access(Path(home) / "bin" / "spark-submit", os.X_OK):
        raise ConfigError(f"{_HOME} is {home!r}, where there is no bin/spark-submit to run, {needed}")
    for jar in (Path(home) / "jars").glob("spark-core_*.jar"):
        version = jar.stem.rpartition("-")[2]
        if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
            raise ConfigError(f"{_HOME} is {home!r}, which is Spark {version}, {needed}")


def _check_arguments(text: str) -> None:
    needed = f"allowed are options of spark-submit and {_SHELL} behind them"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{_ARGUMENTS} is {text!r} ({error}), {needed}; correct it, or unset it") from error
    if not words or words[-1] != _SHELL:
        raise ConfigError(f"{_ARGUMENTS} is {text!r}, {needed}; add {_SHELL} at its end, or unset it")
    options = [f"--conf={other}" if option in {"--conf", "-c"} else option for option, other in pairwise(words)]
    for option in options:
        if option in _ENDS_AT_ONCE:
            raise ConfigError(f"{_ARGUMENTS} has {option}, with which Spark ends at once, {needed}; take it out")
        if option.startswith(tuple(f"{name}=" for name in _CHOOSING)) or option in _CHOOSING:
            raise ConfigError(
                f"{_ARGUMENTS} has {option}, allowed is no choice of a cluster there; name one with --master or"
                " --remote, or run spark-submit … load.py"
            )


def start(settings: Mapping[str, str]) -> SparkSession:
    """Start Java, unless it runs, and return a session with these settings.

    Raises:
        ConfigError: a setting of others cannot be right.
        EndpointError: Spark did not start; the message has the cause, or Java's last lines.
    """
    check_surroundings(os.environ)
    conf = SparkConf().setAll(list(settings.items()))
    try:
        _java.run(conf)
        SparkContext(conf=conf, gateway=_java.gateway)
        session: SparkSession = SparkSession.builder.getOrCreate()
    except _RAISED as error:
        raise explain(error, _java.last_words) from error
    return session


def explain(error: Exception, printed: str) -> MessagingError:
    """Return why Spark did not start: a sentence of ours if the cause is known, otherwise Java's last lines."""
    printed_lines = f"{error}\n{printed}"
    surroundings = {
        "java_home": os.environ.get("JAVA_HOME", "not set"),
        "version": pyspark.__version__,
        "local_ip": os.environ.get("SPARK_LOCAL_IP", "not set"),
    }
    for pattern, sentence in _CAUSES.items():
        if (found := re.search(pattern, printed_lines)) is not None:
            words = next(filter(None, found.groups()), reason(error))
            return EndpointError(f"Spark did not start: {sentence.format(seen=words, **surroundings)}")
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    last = " | ".join(lines[-_LAST_LINES:])[:_CHARACTERS_MAX] or "nothing, as a process does that was killed"
    return EndpointError(
        f"Spark did not start ({reason(error)}), and the cause is none of those known here. Java said last: {last}."
        f" Its own log: {LOG_LEVEL_VARIABLE}=error"
    )


class _Java:
    """The Java process, which is started once. Its output is collected while it starts, and passed on afterwards."""

    def __init__(self) -> None:
        self.gateway: Any = None
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)

    def run(self, conf: SparkConf) -> None:
        """Start Java, unless it runs, or spark-submit has started it."""
        if self.gateway is not None:
            return
        self._lines.clear()
        reading, writing = os.pipe()
        thread = threading.Thread(target=self._pass_on, args=(reading,), daemon=True, name="java-stderr")
        thread.start()
        try:
            self.gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
        except BaseException:
            os.close(writing)
            thread.join(timeout=_JOIN_SECONDS)
            raise
        os.close(writing)

    @property
    def last_words(self) -> str:
        """Return the last lines that it printed."""
        return "".join(self._lines)

    def _pass_on(self, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._lines.append(line)
                if self.gateway is not None:
                    sys.stderr.write(line)


_java = _Java()
