"""Traffic keeps its rates, shares, seeds and recordings; its kinds are sized by what the most tasks can do."""

import numpy as np
import pytest

from sluice.rehearse.model.policies import ScaledService
from sluice.rehearse.model.queue_simulation import FAILS_ALWAYS, Integers, SimulatedArrivals
from sluice.rehearse.model.scenarios import scenarios
from sluice.rehearse.model.simulation import TaskWork
from sluice.rehearse.model.traffic import DrawnTraffic, RecordedTraffic, Traffic, changing, constant


def _whole_traffic(traffic: Traffic) -> SimulatedArrivals:
    """Return a traffic whole; its minutes in their order."""
    minutes = list(traffic.each_minute())
    assert len(minutes) == traffic.minutes
    for minute, arrivals in enumerate(minutes):
        assert ((arrivals.sent_at >= 60 * minute) & (arrivals.sent_at < 60 * (minute + 1))).all()
        assert (np.diff(arrivals.sent_at) >= 0).all()
    return SimulatedArrivals(*(np.concatenate(part) for part in zip(*minutes, strict=True)))


def _drawn_traffic(per_second: float = 50, minutes: int = 20, group_count: int = 10, **settings: float) -> DrawnTraffic:
    return DrawnTraffic(name="drawn", rates=constant(per_second, minutes), group_count=group_count, **settings)  # type: ignore[arg-type]


def _shares(group: Integers, groups: int) -> list[float]:
    return [float(count / len(group)) for count in np.bincount(group, minlength=groups)]


def test_a_rate_is_kept_second_for_second_within_what_chance_does() -> None:
    """60,000 messages are a standard deviation of 245; a second's count varies as Poisson's does, by its mean."""
    arrivals = _whole_traffic(_drawn_traffic())

    counts = np.bincount(arrivals.sent_at.astype(int), minlength=1_200)
    assert len(arrivals.sent_at) == pytest.approx(60_000, abs=5 * 245)
    assert counts.var() == pytest.approx(50, rel=0.25)
    assert (arrivals.sent_at % 1).mean() == pytest.approx(0.5, abs=0.02)


def test_a_rate_that_changes_is_followed_and_is_never_negative() -> None:
    """Nothing comes for ten minutes, then up to 60 messages a second, 36,000 in all."""
    traffic = DrawnTraffic(name="ramp", rates=changing(lambda second: (second - 600) / 10, 20), group_count=3)

    sent_at = _whole_traffic(traffic).sent_at

    assert sent_at.min() > 600
    assert traffic.message_count == pytest.approx(len(sent_at), abs=5 * 134)
    assert (sent_at > 900).mean() == pytest.approx(0.75, abs=0.02)


def test_groups_have_their_shares() -> None:
    """The shares are equal, or by Zipf's law, or one group has a share of its own and the others follow the law."""
    even = _shares(_whole_traffic(_drawn_traffic()).group, 10)
    skewed = _shares(_whole_traffic(_drawn_traffic(skew=1)).group, 10)
    hot = _shares(_whole_traffic(_drawn_traffic(hot_share=0.6)).group, 10)

    harmonic = sum(1 / rank for rank in range(1, 11))
    assert even == pytest.approx([0.1] * 10, abs=0.01)
    assert skewed == pytest.approx([1 / rank / harmonic for rank in range(1, 11)], abs=0.01)
    assert hot == pytest.approx([0.6, *[0.4 / 9] * 9], abs=0.01)


def test_the_hottest_share_is_that_of_the_busiest_group() -> None:
    """Of ten equal groups a tenth."""
    assert _drawn_traffic().hottest_share == pytest.approx(0.1)
    assert _drawn_traffic(hot_share=0.6).hottest_share == pytest.approx(0.6)
    assert _drawn_traffic(skew=1, group_count=2).hottest_share == pytest.approx(2 / 3)


def test_one_group_has_everything_whatever_its_share() -> None:
    assert set(_whole_traffic(_drawn_traffic(group_count=1, hot_share=0.6)).group.tolist()) == {0}


def test_poison_is_a_share_of_the_messages_and_fails_always() -> None:
    """A tenth of 60,000 messages."""
    fails = _whole_traffic(_drawn_traffic(poison_share=0.1)).fails

    assert set(fails.tolist()) == {0, FAILS_ALWAYS}
    assert (fails == FAILS_ALWAYS).mean() == pytest.approx(0.1, abs=0.01)


def test_the_same_seed_is_the_same_traffic_and_another_is_not() -> None:
    first, again, other = (_whole_traffic(_drawn_traffic(seed=seed, skew=1, poison_share=0.1)) for seed in (1, 1, 2))

    assert [part.tolist() for part in (first.sent_at, first.group, first.fails)] == [
        part.tolist() for part in (again.sent_at, again.group, again.fails)
    ]
    assert len(first.sent_at) != len(other.sent_at)


def _recorded_traffic(speed: float = 1.0) -> RecordedTraffic:
    """Return five messages in 150 seconds; the fourth is sent as a minute begins."""
    sent_at = np.array([0.0, 30.0, 59.5, 120.0, 150.0])
    return RecordedTraffic(name="tuesday", sent_at=sent_at, group=np.array([0, 1, 0, 2, 0]), speed=speed)


def test_a_recording_is_sent_as_it_came() -> None:
    """Minute by minute; the second minute is empty."""
    traffic = _recorded_traffic()

    arrivals = list(traffic.each_minute())

    assert [each.sent_at.tolist() for each in arrivals] == [[0, 30, 59.5], [], [120, 150]]
    assert [each.group.tolist() for each in arrivals] == [[0, 1, 0], [], [2, 0]]
    assert [each.fails.tolist() for each in arrivals] == [[0, 0, 0], [], [0, 0]]
    assert traffic.group_count == 3
    assert traffic.message_count == 5
    assert traffic.hottest_share == 0.6
    assert traffic.peak_per_second == 3 / 60


def test_a_recording_is_sent_faster() -> None:
    """Twice as fast the fourth message comes after a minute, and the last after 75 seconds."""
    traffic = _recorded_traffic(speed=2)

    assert traffic.minutes == 2
    assert [arrivals.sent_at.tolist() for arrivals in traffic.each_minute()] == [[0, 15, 29.75], [60, 75]]


def test_the_peak_is_the_busiest_minutes_rate() -> None:
    """A second of 600 is a minute of 10 a second."""
    rates = constant(1, 3)
    rates[70] = 541

    assert DrawnTraffic(name="peak", rates=rates, group_count=1).peak_per_second == 10


SERVICE = ScaledService(name="service", min_tasks=1, max_tasks=10, policies=())
TASKS = TaskWork(lanes=4, handler_seconds=1.98, acceptable_latency_seconds=60)
"""Ten tasks of four lanes, two seconds each with what is between: 20 messages a second."""


def test_every_kind_of_traffic_is_sized_by_the_maximum_of_tasks() -> None:
    """Ten tasks with four lanes of 2 s handle 20 messages a second; steady traffic is 8 of them."""
    kinds = scenarios(SERVICE, TASKS, groups=100)

    peaks = {name: round(each.traffic.peak_per_second, 3) for name, each in kinds.items()}
    assert peaks == {
        "steady": 8,
        "burst": 16,
        "sparse": round(1 / 1_800, 3),
        "hot-group": round(2 / 2 / 0.6, 3),
        "few-groups": 3,
        "long-jobs": pytest.approx(0.6 * 40 / 120, rel=0.01),
        "poison": 6,
        "outage": 6,
        "half-outage": 6,
        "day": pytest.approx(20 * (0.05 + 0.65), rel=0.01),
    }
    assert {name for name, each in kinds.items() if not each.is_judged} == {
        "burst", "hot-group", "few-groups", "long-jobs", "poison", "outage", "half-outage",
    }  # fmt: skip
    assert all(each.name == name for name, each in kinds.items())


def test_groups_limit_the_rate_if_there_are_fewer_than_lanes() -> None:
    """Eight groups are two tasks' lanes: four messages a second, of which steady is 0.4."""
    assert scenarios(SERVICE, TASKS, groups=8)["steady"].traffic.peak_per_second == pytest.approx(1.6)


def test_long_jobs_last_four_times_the_stop_timeout() -> None:
    """30 s is the stop timeout of ECS."""
    assert scenarios(SERVICE, TASKS, groups=9)["long-jobs"].tasks.handler_seconds == 120
