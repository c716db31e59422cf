"""A load on Lambda functions, real processes behind pollers, under faults: the product's is valid, mistakes are not."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.declaration import Environment, task_settings
from sluice.judge.checker.verdict import PropertyState, PropertyStatus, Verdict
from spark_load.profiles import profile
from spark_load.runtime import deployment
from tests.integration.spark_load.loads import anomalies_that, run_load
from tests.support.endpoints import fake_aws
from tests.support.processes import judged_function
from tests.support.processes.function_loads import FUNCTION, FunctionLoad, judge_answers

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ENVIRONMENT = Environment(name="faulty", account="000000000000", consumers=(FUNCTION,))
LOAD = profile.NamedProfile(
    "functions",
    profile.parse(
        """
messages_per_second: 8
duration_seconds: 6
warm_up_seconds: 1
group_count: 8
consumer: lambda
destination: outbox
consumers_per_queue: 2
publish_linger_seconds: 0.1
lateness_budget_seconds: 60
drain_timeout_seconds: 20
recovery_seconds_max: 60
""",
        source="functions",
    ),
)
SEED = 1
FAULTS = FunctionLoad.of_seed(SEED).faults


@pytest.fixture
def where(endpoint: fake_aws.Endpoint, monkeypatch: pytest.MonkeyPatch) -> deployment.LoadDeployment:
    """Return the environment's queues and topic on the simulator."""
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(ENVIRONMENT))
    endpoint.deploy(ENVIRONMENT, visibility_timeout_seconds=None)
    return deployment.find(ENVIRONMENT, endpoint_url=endpoint.url)


def _run_under_faults(
    spark: SparkSession, where: deployment.LoadDeployment, folder: Path, mistake: str | None = None
) -> tuple[Verdict, list[str]]:
    """Run the load on a function; return the verdict, and what is wrong with the function's answers.

    `mistake` is a name of `MISTAKES`; None is the product's function.
    """
    invocations = folder / "invocations"
    with judge_answers(invocations, mistake):
        verdict, _ = run_load(
            spark, where, folder, LOAD, seed=SEED, target="endpoint", environment=ENVIRONMENT, faults=FAULTS
        )
    return verdict, judged_function.wrong_answers(invocations)


def test_a_function_is_valid_under_faults(
    spark: SparkSession, where: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """Kills, changes of concurrency, wrong answers, failures amid batches.

    One process dies with its commit open, and another one is stopped and killed at its timeout with its commit open.
    """
    verdict, wrong_answers = _run_under_faults(spark, where, tmp_path)

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert wrong_answers == []
    assert anomalies_that(verdict, PropertyState.HOLDS) >= {"A1", "R1", "R2", "R3", "R4"}
    assert len(verdict.measures["faults"]) == len(FAULTS)
    assert {"SIGKILL", "SIGSTOP"} <= {path.name for path in (tmp_path / "invocations").iterdir()}


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        ("report-only-the-failed", "R3"),
        ("delete-before-commit", "R1"),
        # what follows has nothing against it in the history: effects are once and in order, but late, or dead letters
        ("stop-the-whole-batch", "was reported untouched, and nothing of its group had failed"),
        ("count-receives-as-attempts", "was taken for handled untouched"),
    ],
)
def test_a_function_with_a_classic_mistake_is_found_invalid(
    spark: SparkSession, where: deployment.LoadDeployment, tmp_path: Path, mistake: str, found: str
) -> None:
    """By its history, or by its answers; the same messages and faults are valid with the product's function."""
    verdict, wrong_answers = _run_under_faults(spark, where, tmp_path, mistake)

    assert any(found in each for each in (*(violation.anomaly for violation in verdict.violations), *wrong_answers))
