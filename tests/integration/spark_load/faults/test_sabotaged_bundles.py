"""Saboteurs of bundles in a load without Spark: publisher, consumers and judge are real, the endpoint is the model."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.judge.checker.verdict import PropertyStatus
from sluice.saboteurs import SABOTEURS, bundles
from spark_load.publish.transport import BOTO3
from spark_load.runtime import deployment
from tests.integration.spark_load.faults.raw_loads import run_load
from tests.integration.spark_load.loads import run_of
from tests.support.declaration import environment
from tests.support.endpoints import fake_aws

LOAD = """
messages_per_second: 120
duration_seconds: 3
group_count: 4
payload_bytes: 32
publish_tasks: 1
bundle_events_max: 5
publish_linger_seconds: 0.1
lateness_budget_seconds: 60
"""


@pytest.mark.parametrize(
    "saboteur",
    [
        pytest.param(name, marks=() if name == "swap-bundled-events" else pytest.mark.slow)
        for name in (None, *bundles.SABOTEURS)
    ],
)
def test_a_load_with_sabotaged_bundles_shows_what_was_done(
    endpoint: fake_aws.Endpoint, tmp_path: Path, saboteur: str | None
) -> None:
    """Without a saboteur the same load is valid."""
    run = run_of(tmp_path, deployment.find(environment("local"), endpoint_url=endpoint.url), LOAD)

    verdict = run_load(replace(run, transport=BOTO3, saboteur=saboteur))

    shown = {violation.anomaly for violation in verdict.violations}
    if saboteur is None:
        assert verdict.status is PropertyStatus.VALID
    else:
        assert verdict.status is PropertyStatus.INVALID
        assert set(SABOTEURS[saboteur].shows) <= shown
