"""The pytest plug-in: `simulated_aws`, `worker_harness` and `lambda_harness`, by the entry point `pytest11`.

pytest imports this file in every run, also where nobody uses it. So it imports pytest and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sluice.testing import LambdaHarness, SimulatedAws, WorkerHarness


@pytest.fixture
def simulated_aws() -> Iterator[SimulatedAws]:
    """Yield SQS and SNS for one test: empty, without a server; time passes only when the test lets it.

    `sluice.clock.eventually` goes by its clock meanwhile.
    """
    from sluice.clock import waiting_on  # noqa: PLC0415
    from sluice.testing import SimulatedAws  # noqa: PLC0415

    aws = SimulatedAws()
    with waiting_on(aws.clock):
        yield aws


@pytest.fixture
def worker_harness(simulated_aws: SimulatedAws, tmp_path: Any) -> Iterator[Callable[..., WorkerHarness]]:
    """Return a function that makes a worker for your handlers; `sluice.testing.WorkerHarness` says what it takes.

    Harnesses of one test share the topic and the clock. Each without a `database` has an SQLite file of its own.
    """
    from sluice.testing import WorkerHarness  # noqa: PLC0415

    with _making(WorkerHarness, simulated_aws, tmp_path) as make:
        yield make


@pytest.fixture
def lambda_harness(simulated_aws: SimulatedAws, tmp_path: Any) -> Iterator[Callable[..., LambdaHarness]]:
    """Return a function that makes a Lambda function for your handlers; see `sluice.testing.LambdaHarness`."""
    from sluice.testing import LambdaHarness  # noqa: PLC0415

    with _making(LambdaHarness, simulated_aws, tmp_path) as make:
        yield make


@contextmanager
def _making(kind: Any, aws: SimulatedAws, folder: Any) -> Iterator[Callable[..., Any]]:
    """Yield a function that makes harnesses of a class; at the end of the block they are closed.

    Each harness without a `database` gets an SQLite file of its own.
    """
    with ExitStack() as made:
        made_so_far: list[Any] = []

        def make(handlers: Any, *, database: Any = None, **options: Any) -> Any:
            file = folder / f"sluice-{len(made_so_far)}.db"
            url = f"sqlite:///{file}" if database is None else database
            harness = kind(handlers, aws=aws, database=url, **options)
            made_so_far.append(harness)
            made.callback(harness.close)
            return harness

        yield make
