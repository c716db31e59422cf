"""The load test on a real cluster: a standalone master and worker, spark-submit, and a Spark Connect server.

The command is the one a user types, and runs in a process of its own; queues are the loopback's, which every process
of this machine reaches.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_load.run.driver import TASK_MODULES
from tests.support.endpoints import fake_aws
from tests.support.processes import standalone_cluster
from tests.support.processes.standalone_cluster import Standalone
from tests.support.project import PROJECT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SLOTS = 4  # of the profile below: one publishes, three consume
RUN_SECONDS_MAX = 600
PROFILE = """
messages_per_second: 100
duration_seconds: 2
group_count: 10
group_skew: 1.0
payload_bytes: 128
duplicate_share: 0.1
duplicate_after_seconds: 0.5
lateness_budget_seconds: 60
drain_timeout_seconds: 30
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """Yield a cluster whose worker offers more cores than there are."""
    with standalone_cluster.running(tmp_path_factory.mktemp("cluster"), cores=SLOTS, memory="2g") as running:
        yield running


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "brief.yaml").write_text(PROFILE, encoding="utf-8")
    return tmp_path


def _run_to_end(
    command: list[str], *, server: fake_aws.Endpoint, folder: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=standalone_cluster.variables(folder) | {"AWS_ENDPOINT_URL": server.url} | more,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


def _assert_valid(ended: subprocess.CompletedProcess[str], folder: Path) -> None:
    """Everything was received of the run that the command wrote."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (written,) = (folder / "runs").glob("*/verdict.json")
    verdict = json.loads(written.read_text(encoding="utf-8"))
    received = {queue: of["received"]["count"] for queue, of in verdict["measures"]["queues"].items()}
    assert verdict["status"] == "valid"
    assert received == EVERYTHING


EVERYTHING = {f"sluice-local-{consumer}.fifo": 200 for consumer in ("billing", "shipping", "audit")}
RUN = ["run", "brief.yaml"]


@pytest.mark.slow
def test_a_standalone_cluster_runs_a_load_test(cluster: Standalone, endpoint: fake_aws.Endpoint, work: Path) -> None:
    """The executors are sent the code: nothing of the project is on their path."""
    command = [sys.executable, str(PROJECT / "load.py"), *RUN, "--master", cluster.master]

    ended = _run_to_end(command, server=endpoint, folder=work)

    _assert_valid(ended, work)
    assert list((cluster.folder / "work").glob("app-*/0/sluice_tasks.zip"))


@pytest.mark.slow
def test_spark_submit_runs_a_load_test(cluster: Standalone, endpoint: fake_aws.Endpoint, work: Path) -> None:
    """A task that fails is not tried again, so that a valid run needs no second try."""
    command = [str(standalone_cluster.SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master]
    command += ["--conf", "spark.task.maxFailures=1", str(PROJECT / "load.py"), *RUN]

    ended = _run_to_end(command, server=endpoint, folder=work)

    _assert_valid(ended, work)


@pytest.mark.slow
def test_a_spark_connect_server_runs_a_load_test(cluster: Standalone, endpoint: fake_aws.Endpoint, work: Path) -> None:
    """The client has no Java: JAVA_HOME leads nowhere, and the server's Spark does the work."""
    serving = [str(standalone_cluster.SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master]
    serving += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in {
        "spark.task.maxFailures": "1",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }.items():
        serving += ["--conf", f"{name}={value}"]
    with standalone_cluster.process(
        cluster.folder, "connect", [*serving, "spark-internal"], pattern=r"server started at: \S*:(\d+)"
    ) as ready:
        ended = _run_to_end(
            [sys.executable, str(PROJECT / "load.py"), *RUN],
            server=endpoint,
            folder=work,
            SPARK_REMOTE=f"sc://127.0.0.1:{ready()[1]}",
            JAVA_HOME="/nowhere",
        )

    _assert_valid(ended, work)


@pytest.mark.slow
def test_a_cluster_with_too_few_slots_is_refused(cluster: Standalone, endpoint: fake_aws.Endpoint, work: Path) -> None:
    """The refusal names both numbers, and comes before any publish.

    Tasks that wait for each other would never begin.
    """
    many = PROFILE + "consumers_per_queue: 9\n"
    (work / "brief.yaml").write_text(many, encoding="utf-8")

    command = [sys.executable, str(PROJECT / "load.py"), *RUN, "--master", cluster.master]

    ended = _run_to_end(command, server=endpoint, folder=work)

    assert ended.returncode == 3
    assert "the cluster runs 4 tasks at once, and this needs 28; add executors or cores" in ended.stderr


@pytest.mark.slow
def test_a_cluster_that_runs_failed_tasks_again_is_refused(
    cluster: Standalone, endpoint: fake_aws.Endpoint, work: Path
) -> None:
    """A task that is run again publishes again; Spark's default is four times.

    spark-submit puts all its program says on its own standard output.
    """
    command = [
        str(standalone_cluster.SPARK_HOME / "bin" / "spark-submit"),
        "--master",
        cluster.master,
        str(PROJECT / "load.py"),
        *RUN,
    ]

    ended = _run_to_end(command, server=endpoint, folder=work)

    assert ended.returncode == 3
    assert "spark.task.maxFailures is 4, allowed is 1" in ended.stdout


@pytest.mark.slow
def test_modules_of_tasks_are_loaded_before_the_fork(spark: SparkSession) -> None:
    """A Python worker of Spark is forked for each task; a module that the fork lacks is imported in every task."""
    wanted = set(TASK_MODULES)

    def missing_modules(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"missing": [", ".join(sorted(wanted - sys.modules.keys()))]})

    assert [row["missing"] for row in spark.range(1).mapInArrow(missing_modules, "missing string").collect()] == [""]
