"""Load profiles and recordings as traffic for a rehearsal."""

from pathlib import Path

import numpy as np
import pytest

from sluice.errors import ConfigError
from sluice.recorder import record
from sluice.rehearse.model.queue_simulation import IS_FORGOTTEN
from sluice.rehearse.model.simulation import TaskWork
from sluice.rehearse.model.traffic import DrawnTraffic, RecordedTraffic
from spark_load.profiles import profile, trace
from spark_load.traffic import of_profile, of_recording
from tests.support.histories.recorded_services import OrderService

TASKS = TaskWork(lanes=4, handler_seconds=1, acceptable_latency_seconds=60)
PHASES = """
phases:
- {duration_seconds: 30, messages_per_second: 10}
- {duration_seconds: 20, messages_per_second: 10, to_per_second: 30}
- {duration_seconds: 25, messages_per_second: 0}
group_count: 40
group_skew: 0.5
"""


def _profile(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def _drawn_traffic(name: str, seed: int = 1) -> DrawnTraffic:
    traffic = of_profile(name, TASKS, seed=seed).traffic
    assert isinstance(traffic, DrawnTraffic)
    return traffic


def test_a_profiles_phases_are_its_rates_and_a_ramp_is_a_line(tmp_path: Path) -> None:
    """30 s at 10/s, 20 s from 10 to 30/s, 25 s of nothing, and nothing until the minute ends."""
    traffic = _drawn_traffic(_profile(tmp_path, PHASES), seed=7)

    assert traffic.rates.tolist() == pytest.approx([10] * 30 + [10.5 + second for second in range(20)] + [0] * 70)
    assert traffic.name == "mine"
    assert traffic.group_count == 40
    assert traffic.skew == 0.5
    assert traffic.seed == 7


@pytest.mark.parametrize("name", profile.names())
def test_every_profile_of_sluice_offers_the_traffic_that_it_declares(name: str) -> None:
    """The number of messages is the integral of the phases' rates."""
    named = profile.load(name)
    expected = sum(
        phase.duration_seconds * (phase.messages_per_second + phase.end_per_second) / 2 for phase in named.profile.steps
    )

    assert _drawn_traffic(name).message_count == pytest.approx(expected)


def test_the_latency_of_a_profile_with_poison_is_not_judged(tmp_path: Path) -> None:
    """Groups behind a poison message wait on purpose."""
    poison, plain = (
        of_profile(_profile(tmp_path, f"{PHASES}{more}"), TASKS, seed=1) for more in ("poison_share: 0.1\n", "")
    )

    assert poison.is_judged is False
    assert plain.is_judged is True
    assert isinstance(poison.traffic, DrawnTraffic)
    assert poison.traffic.poison_share == 0.1


def test_a_profile_has_the_failures_of_its_first_receives(tmp_path: Path) -> None:
    """One message in ten is released, one in twenty stays hidden until its lease ends."""
    profile = _profile(tmp_path, f"{PHASES}failure_share: 0.1\ncrash_share: 0.05\n")

    traffic = of_profile(profile, TASKS, seed=1).traffic

    fails = np.concatenate([arrivals.fails for arrivals in traffic.each_minute()])
    shares = [float((fails == kind).mean()) for kind in (1, IS_FORGOTTEN)]
    assert shares == pytest.approx([0.1 * 0.95, 0.05], rel=0.3)


def _recorded_traffic(folder: Path) -> RecordedTraffic:
    traffic = of_recording(folder, TASKS).traffic
    assert isinstance(traffic, RecordedTraffic)
    return traffic


def test_a_recording_is_the_traffic_of_what_was_published(tmp_path: Path) -> None:
    """Three customers order in turn, four times each, one order a second; receives are no traffic."""
    shop = OrderService()
    with record(shop.clients, tmp_path / "tuesday", clock=shop.simulator.clock):
        for number in range(4):
            for customer in ("ann", "bob", "cid"):
                shop.order(customer, number)
                shop.simulator.clock.sleep(1)
        shop.bill()

    traffic = _recorded_traffic(tmp_path / "tuesday")

    assert traffic.name == "tuesday"
    assert traffic.sent_at.tolist() == pytest.approx(np.arange(12).tolist(), abs=0.2)
    assert traffic.group.tolist() == [0, 1, 2] * 4


def test_a_replayed_profile_is_the_traffic_of_its_trace_at_its_speed(tmp_path: Path) -> None:
    """Messages at 0, 4 and 8 s come at 0, 2 and 4 s. The busier group is number 0."""
    trace.write(
        trace.rank_arrivals(np.array([0, 4, 8]) * 1_000_000, np.array([0, 1, 1]), np.ones(3)), tmp_path / "t.parquet"
    )

    traffic = of_profile(_profile(tmp_path, "replay: {file: t.parquet, speed: 2}"), TASKS, seed=1).traffic

    (arrivals,) = traffic.each_minute()
    assert arrivals.sent_at.tolist() == [0, 2, 4]
    assert arrivals.group.tolist() == [1, 0, 0]


def test_a_recording_in_which_nothing_was_published_is_refused(tmp_path: Path) -> None:
    shop = OrderService()
    with record(shop.clients, tmp_path / "tuesday", clock=shop.simulator.clock):
        shop.sqs.receive_message(QueueUrl=shop.url)

    with pytest.raises(ConfigError, match=r"nothing was published in the recording .*tuesday, needed is at least one"):
        of_recording(tmp_path / "tuesday", TASKS)
