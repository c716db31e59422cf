"""Random services and traffic, rehearsed and simulated a second time by AWS's documents alone: both say the same.

Tolerance: tasks differ by 0.25 on average and in their average by 5 %, the median latency by 10 % and 20 s, its 95th
percentile by 10 % and 10 s. Where scaling turns round more than once, a look at the queue more or less decides about a
whole turn: there tasks and 95th percentile may differ by 40 %.
"""

import numpy as np
import pytest

from sluice.rehearse.model.simulation import TaskWork, simulate
from sluice.rehearse.model.traffic import RecordedTraffic
from sluice.rehearse.reading.template import read_services
from tests.support.scaling_in_simpy import ScaledQueue, random_case

pytestmark = pytest.mark.xdist_group("rehearsal")  # one worker compiles the simulation

FEW, MANY = range(3), range(3, 106)
CALM_TURNS = 1


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)])
def test_a_rehearsal_agrees_with_a_simulation_that_shares_no_code(seed: int) -> None:
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
    ours, theirs = np.array(wanted[:minutes]), np.array(figures.desired[:minutes])
    is_calm = rehearsed.flaps <= CALM_TURNS
    assert len(figures.latencies) == len(case.sent)
    p50, p95 = (rehearsed.quantile_seconds(share) for share in (0.5, 0.95))
    expected_p50, expected_p95 = np.quantile(figures.latencies, (0.5, 0.95))
    if is_calm:
        assert abs(ours - theirs).mean() <= 0.25
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.05)
        assert p50 == pytest.approx(expected_p50, rel=0.1, abs=20)
        assert p95 == pytest.approx(expected_p95, rel=0.1, abs=10)
    else:
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.4)
        assert p95 == pytest.approx(expected_p95, rel=0.4, abs=10)
