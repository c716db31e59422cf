"""One Spark session, one bare and one deployed LocalStack for all integration tests that need them.

Workers of pytest-xdist share the bare one: what a test makes there has a name nobody else uses, or the tests that use
the name are in one xdist group.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emulator import localstack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SLOTS = 6
_SHARED = pytest.StashKey[localstack.Emulator]()


@pytest.fixture(scope="session", autouse=True)
def keys() -> Iterator[None]:
    """Set keys LocalStack does not check, before any JVM starts: Spark's Python workers inherit its environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in localstack.Emulator(endpoint_url="", log=None).environment().items():
            if "ENDPOINT" not in name:
                patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark(keys: None) -> Iterator["SparkSession"]:
    """Yield a Spark session with room for the tiny profile; tasks that a fault ends may be run again."""
    from spark_load.run import driver  # noqa: PLC0415 (each worker would import it for seconds)
    from spark_load.runtime import spark_session  # noqa: PLC0415

    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            running = stack.enter_context(
                spark_session.running(_SLOTS, preload=driver.TASK_MODULES, task_restarts_max=4)
            )
        yield running


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist the address of the shared LocalStack, which the first test that needs it starts."""
    config: pytest.Config = node.config
    running = config.stash.get(_SHARED, None)
    if running is None:
        stack = ExitStack()
        config.add_cleanup(stack.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-shared-")))
        running = stack.enter_context(localstack.running(log=folder / "localstack.log"))
        config.stash[_SHARED] = running
    node.workerinput["localstack"] = (running.endpoint_url, str(running.log))


@pytest.fixture(scope="session")
def localstack_shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[localstack.Emulator]:
    """Yield a LocalStack that other tests use as well, also tests of other xdist workers at the same time."""
    shared = getattr(request.config, "workerinput", {}).get("localstack")
    if shared is not None:
        yield localstack.Emulator(endpoint_url=shared[0], log=Path(shared[1]))
        return
    with localstack.running(log=tmp_path_factory.mktemp("localstack") / "localstack.log") as running:
        yield running


@pytest.fixture(scope="session")
def localstack_deployed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[localstack.Emulator]:
    """Yield a LocalStack to which the plain cdk CLI has deployed the local environment; AWS_* point at it."""
    log = tmp_path_factory.mktemp("localstack") / "localstack.log"
    with localstack.running(log=log) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment().items():
            patch.setenv(name, value)
        ended = subprocess.run(
            [str(request.config.rootpath / "scripts" / "deploy-local.sh")],
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        yield running
