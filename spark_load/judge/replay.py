"""Compare a replay with the arrivals it replays: instants, and shares of groups."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sluice.history.events import CallOutcome, Kind
from sluice.judge.tally import PERCENTILES, ranks
from spark_load.plan.plan import WARM_UP, Plan, message_group_id

_US = 1_000_000
_COLUMNS = ["message_group_id", "idx", "intended_at_us", "invoked_at_us"]


def compare_replay(history: Path, plan: Plan) -> dict[str, Any] | None:
    """Compare the publishes of a run with the arrivals of its trace; return None if the run has no trace.

    Args:
        history: the folder of its Parquet.
        plan: of the run.

    Returns:
        `planned` and `published` count messages. `shift_us` has percentiles of the time from a message's planned to its
        first publish. `moved_share` is the share of messages in another second than planned, `interarrival_ks` the
        largest distance of the distributions of times between two messages, `skew_error` the total variation of the
        groups' shares: all from 0, alike, to 1. Those three are None where nothing was published.
    """
    arrivals, replay = plan.arrivals, plan.profile.replay
    if arrivals is None or replay is None:
        return None
    published = _first_publishes(history)
    invoked, intended = (published[f"{name}_min"].to_numpy() for name in ("invoked_at_us", "intended_at_us"))
    found: dict[str, Any] = {"planned": len(arrivals), "published": len(invoked)}
    if not len(invoked):
        return found | {"shift_us": None, "moved_share": None, "interarrival_ks": None, "skew_error": None}
    planned = arrivals.offsets_us(replay.speed)
    begun_us = int(intended.min())
    shift = np.sort(invoked - intended)
    groups = dict(zip(*(column.to_pylist() for column in _group_counts(published)), strict=True))
    sent_counts = np.array([groups.get(message_group_id(rank), 0) for rank in range(len(arrivals.group_counts))])
    return found | {
        "shift_us": {name: int(shift[rank - 1]) for name, rank in zip(PERCENTILES, ranks(len(shift)), strict=True)}
        | {"max": int(shift[-1])},
        "moved_share": _variation(*_counts_by_second(planned, invoked - begun_us)),
        "interarrival_ks": _kolmogorov_smirnov(np.diff(planned), np.diff(np.sort(invoked))),
        "skew_error": _variation(arrivals.group_counts, sent_counts),
    }


def _first_publishes(history: Path) -> Any:
    """Return a row for each accepted message with the time of its first publish, without repeats and end markers."""
    phase, attempt = ds.field("phase"), ds.field("publish_attempt")
    is_planned = (
        (ds.field("kind") == Kind.PUBLISHED.value)
        & (ds.field("outcome") == CallOutcome.OK.value)
        & (ds.field("idx") >= 0)
        & (attempt == 1)
        & ((phase != WARM_UP) | ~phase.is_valid())
        & ds.field("intended_at_us").is_valid()
    )
    table = ds.dataset(history, format="parquet").to_table(columns=_COLUMNS, filter=is_planned)
    return table.group_by(["message_group_id", "idx"]).aggregate([("invoked_at_us", "min"), ("intended_at_us", "min")])


def _group_counts(published: Any) -> tuple[Any, Any]:
    counted = pc.value_counts(published["message_group_id"])
    return counted.field("values"), counted.field("counts")


def _counts_by_second(planned: Any, sent: Any) -> tuple[Any, Any]:
    seconds = [np.maximum(offsets, 0) // _US for offsets in (planned, sent)]
    length = int(max(each.max() for each in seconds)) + 1
    first, second = (np.bincount(each, minlength=length) for each in seconds)
    return first, second


def _variation(planned: Any, sent: Any) -> float:
    """Return the total variation distance of two lists of shares: half the sum of their differences."""
    return float(np.abs(planned / max(planned.sum(), 1) - sent / max(sent.sum(), 1)).sum() / 2)


def _kolmogorov_smirnov(planned: Any, sent: Any) -> float | None:
    """Return the Kolmogorov-Smirnov distance of two samples; None where one is empty."""
    if not len(planned) or not len(sent):
        return None
    values = np.concatenate([planned, sent])
    shares = [np.searchsorted(np.sort(sample), values, side="right") / len(sample) for sample in (planned, sent)]
    return float(np.abs(shares[0] - shares[1]).max())
