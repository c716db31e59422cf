"""The cluster of a session: wrong addresses are refused, and a missing cluster is reported, before Java starts."""

import logging
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException

from sluice.errors import ConfigError, EndpointError
from spark_load.runtime import spark_session


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"master": "yarn"}, r"cluster is 'yarn', allowed is an address such as spark://host:7077"),
        ({"master": "spark://host"}, r"cluster is 'spark://host', allowed is an address such as spark://host:7077"),
        ({"remote": "sc://host:port"}, r"cluster is 'sc://host:port', allowed is an address such as sc://host:15002"),
        ({"master": "spark://a:1", "remote": "sc://a:2"}, r"allowed is one of them"),
    ],
)
def test_an_invalid_address_of_a_cluster_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spark_session.Cluster(**given)


def test_naming_a_cluster_under_spark_submit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    with pytest.raises(ConfigError, match="given under spark-submit, which has chosen the cluster already"):
        spark_session.Cluster(master="spark://127.0.0.1:7077")


@pytest.mark.parametrize("given", [{"master": "spark://127.0.0.1:9"}, {"remote": "sc://127.0.0.1:9"}])
def test_a_cluster_that_cannot_be_reached_is_reported_at_once(given: dict[str, str]) -> None:
    """Spark itself would try for a minute."""
    with (
        pytest.raises(EndpointError, match=r"127.0.0.1:9 cannot be reached .*; start it, or leave it out to run here"),
        spark_session.running(1, spark_session.Cluster(**given)),
    ):
        raise AssertionError("it runs")


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (Py4JError("An error occurred while calling o49.sc"), "Spark has ended, or does not say why"),
        (ConnectionRefusedError(111, "Connection refused"), "Spark has ended"),
        (
            AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/a. SQLSTATE: 42K03"),
            "Path does not exist: .*",
        ),
    ],
)
def test_an_exception_of_spark_becomes_our_error(monkeypatch: pytest.MonkeyPatch, raised: Exception, why: str) -> None:
    """Any code may raise it in the session; a session that has already ended raises no second error."""
    session = SimpleNamespace(stop=Mock(side_effect=ConnectionRefusedError()))
    monkeypatch.setattr(spark_session, "_start", lambda *_: session)

    message = rf"^Spark did not do it: {why}; its own log: SLUICE_SPARK_LOG_LEVEL=error$"
    with pytest.raises(EndpointError, match=message), spark_session.running(1):
        raise raised

    session.stop.assert_called_once_with()


def test_py4j_logs_no_socket_that_it_fails_to_close_after_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On Ctrl-C Py4J closes its sockets, and logs an error if Java is too busy to answer."""
    monkeypatch.setattr(spark_session, "_start", lambda *_: SimpleNamespace(stop=Mock()))
    logger = logging.getLogger("py4j.clientserver")

    with spark_session.running(1):
        try:
            _interrupt()
        except KeyboardInterrupt:
            _fail_to_close(logger)
        _fail_to_close(logger)

    assert [record.message for record in caplog.records] == ["not closed"]


def _interrupt() -> None:
    raise KeyboardInterrupt


def _fail_to_close(logger: logging.Logger) -> None:
    """Log as Py4J does when it cannot close a socket."""
    try:
        raise BrokenPipeError
    except OSError:
        logger.exception("not closed")
