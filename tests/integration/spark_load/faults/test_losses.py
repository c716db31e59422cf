"""Messages that were acknowledged and lost in a fault: found, and excused only by a fault that says it loses them."""

import os
import re
import threading
from pathlib import Path

import pytest

from sluice.judge.checker.verdict import PropertyStatus
from spark_load.faults import shapes
from spark_load.runtime import deployment
from spark_load.runtime.task_context import LoadRun
from tests.integration.spark_load.faults.raw_loads import QUEUES, run_load
from tests.integration.spark_load.loads import run_of
from tests.support.declaration import environment
from tests.support.endpoints import fake_aws

LOAD = """
messages_per_second: 40
duration_seconds: 4
group_count: 6
payload_bytes: 32
faults: {given: [{kind: swallow, target: "publish:endpoint", at_seconds: 1, until_seconds: 3}]}
"""


@pytest.fixture
def run(endpoint: fake_aws.Endpoint, tmp_path: Path) -> LoadRun:
    return run_of(tmp_path, deployment.find(environment("local"), endpoint_url=endpoint.url), LOAD)


def test_a_loss_by_a_fault_is_found_and_excused(run: LoadRun) -> None:
    """The profile says that the fault loses messages: E5 is counted in every queue, and the run stays VALID."""
    verdict = run_load(run)

    (dropped,) = (prop for prop in verdict.properties if prop.anomaly == "E5")
    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert dropped.violation_count >= len(QUEUES)
    assert dropped.opportunities > 0


RESTARTED = """
messages_per_second: 40
duration_seconds: 4
group_count: 6
payload_bytes: 32
consume_after_seconds: 2
faults: {given: [{kind: restart, target: endpoint, at_seconds: 1, until_seconds: 1.1}]}
"""


def test_a_loss_by_an_emulators_restart_is_unknown_and_named(
    endpoint: fake_aws.Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is neither blamed on a service nor passed over. Without the restart it would be A1."""
    is_wanted, is_back = tmp_path / "is-wanted", tmp_path / "is-back"
    os.mkfifo(is_wanted)
    os.mkfifo(is_back)

    def restart() -> None:
        is_wanted.read_text(encoding="utf-8")
        endpoint.stop()
        endpoint.lose_messages()
        endpoint.start()
        is_back.write_text("it is\n", encoding="utf-8")

    threading.Thread(target=restart, daemon=True).start()
    monkeypatch.setenv("SLUICE_RESTART_ENDPOINT", f"echo > {is_wanted} && read -r _ < {is_back}")
    run = run_of(tmp_path, deployment.find(environment("local"), endpoint_url=endpoint.url), RESTARTED)
    verdict = run_load(run)

    missing = [run.plan.profile.measured_count - of["received"]["count"] for of in verdict.measures["queues"].values()]
    named = [re.search(r"(\d+) acknowledged .* a restart may have removed it", why) for why in verdict.unknowns]
    assert verdict.status == PropertyStatus.UNKNOWN
    assert verdict.violations == ()
    assert [fault["kind"] for fault in verdict.measures["faults"]] == ["restart"]
    assert min(missing) > 0
    assert sum(int(found[1]) for found in named if found) == sum(missing)
    assert all(named)


def test_a_loss_without_a_declared_fault_is_a1(run: LoadRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plant, and a history that does not say that the fault loses anything."""
    monkeypatch.setattr(shapes, "LOSSY", ())

    verdict = run_load(run)

    assert verdict.status is PropertyStatus.INVALID
    assert {violation.anomaly for violation in verdict.violations} == {"A1"}
