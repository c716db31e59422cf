"""Read the traffic of a load profile or of a recording, for a rehearsal of scaling."""

from pathlib import Path

import numpy as np

from sluice.rehearse.model.scenarios import Scenario
from sluice.rehearse.model.simulation import TaskWork
from sluice.rehearse.model.traffic import DrawnTraffic, RecordedTraffic
from spark_load.judge.arrivals import EVERY, read_publishes
from spark_load.profiles import trace
from spark_load.profiles.profile import load
from spark_load.profiles.trace import Arrivals

_MINUTE = 60


def of_profile(profile: str, tasks: TaskWork, *, seed: int) -> Scenario:
    """Return a scenario with a profile's traffic: that of its trace, or else messages drawn by its rates.

    Idle seconds at the end fill up the last minute.

    Args:
        profile: the profile's name or path. Only its rates, groups, skew and shares of failing messages are read, or
            only its trace.
        tasks: how tasks work.
        seed: of all random draws.
    """
    named = load(profile)
    offered = named.profile
    if offered.replay is not None and named.trace_file is not None:
        arrivals, _ = trace.read(named.trace_file)
        return _of_arrivals(arrivals, tasks, name=named.name, about=f"profile {named.name}", speed=offered.replay.speed)
    seconds = [
        phase.messages_per_second + (phase.end_per_second - phase.messages_per_second) * (idx + 0.5) / count
        for phase in offered.steps
        for count in [max(1, round(phase.duration_seconds))]
        for idx in range(count)
    ]
    idle = -len(seconds) % _MINUTE
    return Scenario(
        about=f"profile {named.name}",
        traffic=DrawnTraffic(
            name=named.name,
            rates=np.array([*seconds, *[0.0] * idle]),
            group_count=offered.group_count,
            skew=offered.group_skew,
            poison_share=offered.poison_share,
            failure_share=offered.failure_share,
            forgotten_share=offered.crash_share,
            seed=seed,
        ),
        tasks=tasks,
        is_judged=not offered.poison_share,  # a poison message delays its group, however many tasks there are
    )


def of_recording(folder: Path, tasks: TaskWork) -> Scenario:
    """Return the messages that were published in a recording, in order.

    Raises:
        ConfigError: it is no recording, it is too large, or nothing was published in it.
        HistoryError: it is damaged.
    """
    return _of_arrivals(
        read_publishes(folder, destination=EVERY).arrivals, tasks, name=folder.name, about=f"recording {folder}"
    )


def _of_arrivals(arrivals: Arrivals, tasks: TaskWork, *, name: str, about: str, speed: float = 1.0) -> Scenario:
    sent_at, group = arrivals.offset_us / 1e6, arrivals.group_rank.astype(np.int64)
    return Scenario(
        about=about, traffic=RecordedTraffic(name=name, sent_at=sent_at, group=group, speed=speed), tasks=tasks
    )
