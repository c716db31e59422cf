"""Real workers are killed anywhere in their work: each effect is once, in order, and none is missing.

The endpoint is a LocalStack; the judge of what went over the wire is the checker.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from emulator import localstack
from sluice.declaration import Gaps, Poison
from sluice.messaging import failpoints
from tests.support.processes import worker_processes
from tests.support.processes.worker_processes import WorkerFleet, consumer

SQLITE, POSTGRES = "sqlite", "postgresql"


@pytest.fixture
def worker_fleet(engine: Engine, localstack_shared: localstack.Emulator, tmp_path: Path) -> Iterator[WorkerFleet]:
    """Yield a worker fleet with one consumer that parks messages behind a dead one."""
    parking = consumer(poison=Poison.PARK, gaps=Gaps.HALT)
    with worker_processes.open_fleet(engine, localstack_shared, tmp_path, parking) as made:
        yield made


_FAILPOINTS_OF_A_MESSAGE = (
    "after_receive",
    "in_transaction",
    "before_commit",
    "after_commit",
    "before_delete",
    "after_delete",
)
_FAILPOINTS_OF_A_FAILURE = ("before_release", "after_death", "after_park")
_FAILPOINTS_OF_A_PARKED_MESSAGE = ("in_drain", "before_drain_commit", "after_drain_commit")
_FAILPOINTS_OF_A_BUNDLE = ("before_dead_letter", "after_dead_letter", "between_events")  # of messages/test_bundles.py


def _kill_a_worker_at(worker_fleet: WorkerFleet, failpoint: str) -> None:
    """Let a worker die at a failpoint, before the next worker goes on."""
    with worker_fleet.worker("--lanes", "1", failpoint=failpoint) as killed:
        assert killed.wait_for_exit() == -signal.SIGKILL, killed.log


def test_every_failpoint_of_a_worker_is_reached() -> None:
    """The lists have every place at which a worker can be made to die; the last one is of another test."""
    of_messages = {*_FAILPOINTS_OF_A_MESSAGE, *_FAILPOINTS_OF_A_FAILURE, *_FAILPOINTS_OF_A_PARKED_MESSAGE}
    assert of_messages | {*_FAILPOINTS_OF_A_BUNDLE} == set(failpoints.WORKER)


@pytest.mark.parametrize("engine", [SQLITE, pytest.param(POSTGRES, marks=pytest.mark.slow)], indirect=True)
def test_w7_workers_killed_at_every_failpoint_lose_and_repeat_nothing(worker_fleet: WorkerFleet) -> None:
    """W7, W8: workers are killed with -9, one at each failpoint, and the last one finishes their work.

    First while plain messages are handled, then while messages fail, and at last while parked messages are drained.
    """
    fixed = worker_fleet.folder / "fixed"
    worker_fleet.publish({f"plain-{number}": [{}, {}] for number in range(len(_FAILPOINTS_OF_A_MESSAGE))})
    for failpoint in _FAILPOINTS_OF_A_MESSAGE:
        _kill_a_worker_at(worker_fleet, failpoint)

    poisoned = [{}, {"needs": str(fixed)}, {}]
    worker_fleet.publish({"retried": [{"retries": 1}, {}], "poisoned": poisoned, "gapped": [{}, None, {}, {}]})
    for failpoint in _FAILPOINTS_OF_A_FAILURE:
        _kill_a_worker_at(worker_fleet, failpoint)
    with worker_fleet.worker() as worker:
        worker_fleet.await_counts(worker_fleet.urls["billing"], (0, 0, 0))
        worker.stop()

    assert worker_fleet.committed_effects() == worker_fleet.expected_numbers() | {"poisoned": [1], "gapped": [1]}
    assert worker_fleet.counts(worker_fleet.dead_letter_urls["billing"]) == (1, 0, 0)

    fixed.touch()
    worker_fleet.redrive()
    worker_fleet.publish_missing()
    worker_fleet.end_groups()
    for failpoint in _FAILPOINTS_OF_A_PARKED_MESSAGE:
        _kill_a_worker_at(worker_fleet, failpoint)
    with worker_fleet.worker() as worker:
        worker_fleet.finish(worker)

    worker_fleet.assert_all_done()
    assert worker_fleet.findings() == {}
