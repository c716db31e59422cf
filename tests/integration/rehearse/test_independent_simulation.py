"""Random services and traffic, rehearsed and simulated a second time by AWS's documents alone: both say the same.

Both want the same tasks after every minute, where scaling turns round as well. A rehearsal counts latencies in bins of
1.5 %: so far the median and the 95th percentile may differ.
"""

import numpy as np
import pytest

from sluice.rehearse.model.simulation import TaskWork, simulate
from sluice.rehearse.model.traffic import RecordedTraffic
from sluice.rehearse.reading.template import read_services
from tests.support.scaling_in_simpy import ScaledQueue, random_case

pytestmark = pytest.mark.xdist_group("rehearsal")  # one worker compiles the simulation

FEW, MANY = range(1), range(1, 106)
BIN = 0.015


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)])
def test_a_rehearsal_agrees_with_a_simulation_that_shares_no_code(seed: int) -> None:
    """Both are given the same random service and the same times of messages."""
    case = random_case(seed)
    (service,) = read_services(case.template)
    sent_at, group = (np.array(column) for column in zip(*case.sent, strict=True))
    traffic = RecordedTraffic(name="random", sent_at=sent_at, group=group, lasts_minutes=case.minutes)
    tasks = TaskWork(
        lanes=case.lanes,
        handler_seconds=case.handler_seconds,
        acceptable_latency_seconds=60,
        overhead_seconds=0,
        start_seconds=case.start_seconds,
    )

    rehearsed = simulate(service, traffic, tasks)
    figures = ScaledQueue(case).run()

    wanted = [value or 0.0 for value in rehearsed.series["desired"][1:]]
    minutes = min(len(wanted), len(figures.desired))
    assert wanted[:minutes] == figures.desired[:minutes]
    assert len(figures.latencies) == len(case.sent)
    for share in (0.5, 0.95):
        expected = np.quantile(figures.latencies, share, method="inverted_cdf")
        assert rehearsed.quantile_seconds(share) == pytest.approx(expected, rel=BIN)
