"""The traffic of a load profile, and that of a recording."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from sluice.errors import ConfigError
from sluice.history.events import Kind, Outcome
from sluice.rehearsal.scenarios import Scenario
from sluice.rehearsal.simulation import TaskWork
from sluice.rehearsal.traffic import DrawnTraffic, RecordedTraffic
from spark_load.judge import local_engine, recording
from spark_load.profiles.profile import NamedProfile

_MINUTE = 60
_EVENTS_MAX = 5_000_000


def of_profile(named: NamedProfile, tasks: TaskWork, *, seed: int) -> Scenario:
    """Return the traffic of a profile, on the topic or each queue's part of it, to whole minutes.

    Args:
        named: the profile; its rates, groups, skew and share of poison count.
        tasks: how tasks work.
        seed: of all draws.
    """
    load = named.profile
    seconds = [
        phase.messages_per_second + (phase.end_per_second - phase.messages_per_second) * (idx + 0.5) / count
        for phase in load.steps
        for count in [max(1, round(phase.duration_seconds))]
        for idx in range(count)
    ]
    idle = -len(seconds) % _MINUTE
    return Scenario(
        about=f"profile {named.name}",
        traffic=DrawnTraffic(
            name=named.name,
            rates=np.array([*seconds, *[0.0] * idle]),
            groups=load.group_count,
            skew=load.group_skew,
            poison_share=load.poison_share,
            seed=seed,
        ),
        tasks=tasks,
        is_judged=not load.poison_share,
    )


def of_recording(folder: Path, tasks: TaskWork) -> Scenario:
    """Return what was published in a recording, as it came.

    Raises:
        ConfigError: it is no recording, it is too large, or nothing was published in it.
        HistoryError: it is damaged.
    """
    recording.require_history(folder)
    engine = local_engine.opened(folder, events_max=_EVENTS_MAX)
    if engine is None:
        raise ConfigError(
            f"the recording {folder} has more than {_EVENTS_MAX:,} events, allowed is at most that many; take one with"
            " `sluice record --one-group-in N`"
        )
    events = engine.table
    is_published = pc.and_(
        pc.equal(events.column("kind"), Kind.PUBLISHED), pc.equal(events.column("outcome"), Outcome.OK)
    )
    published = events.filter(pc.and_(is_published, pc.is_valid(events.column("message_group_id"))))
    if not published.num_rows:
        raise ConfigError(
            f"nothing was published in the recording {folder}, needed is at least one message with a group; record"
            " producers, too"
        )
    published = published.sort_by("responded_at_us")
    sent_at = published.column("responded_at_us").to_numpy().astype(np.float64) / 1e6
    group = published.column("message_group_id").combine_chunks().dictionary_encode().indices.to_numpy()
    return Scenario(
        about=f"recording {folder}",
        traffic=RecordedTraffic(name=folder.name, sent_at=sent_at - sent_at[0], group=group.astype(np.int64)),
        tasks=tasks,
    )
