"""One Spark session, one bare and one deployed LocalStack for all integration tests that need them."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from emulator import localstack
from spark_load.run import driver
from spark_load.runtime import spark_session
from tests.support.project import PROJECT

_SLOTS = 6


@pytest.fixture(scope="session", autouse=True)
def keys() -> Iterator[None]:
    """Set keys LocalStack does not check, before any JVM starts: Spark's Python workers inherit its environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in localstack.Running(endpoint_url="", log=None).environment().items():
            if "ENDPOINT" not in name:
                patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark(keys: None) -> Iterator[SparkSession]:
    """Yield a Spark session with room for the tiny profile."""
    with spark_session.running(_SLOTS, preload=driver.TASK_MODULES) as running:
        yield running


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[localstack.Running]:
    """Yield a LocalStack with nothing in it, for tests in the group that shares it: xdist_group("localstack")."""
    with localstack.running(log=tmp_path_factory.mktemp("localstack") / "localstack.log") as running:
        yield running


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[localstack.Running]:
    """Yield a LocalStack to which the plain cdk CLI has deployed the local environment; AWS_* point at it."""
    log = tmp_path_factory.mktemp("localstack") / "localstack.log"
    with localstack.running(log=log) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment().items():
            patch.setenv(name, value)
        ended = subprocess.run(
            [str(PROJECT / "scripts" / "deploy-local.sh")], env=os.environ, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        yield running
