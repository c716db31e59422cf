"""Bound the differences of a history's clocks, from its events and from a declaration."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from sluice.history.events import Kind
from sluice.judge.checker import Expectation
from sluice.judge.checker.clocks import (
    NEVER_US,
    ahead_us,
    apart_us_max,
    furthest_apart,
    is_contradictory,
    widen,
)
from sluice.judge.reading.columns import Events
from sluice.recorder.journal import SCHEMA

TIMED = tuple(
    kind.value
    for kind in (Kind.PUBLISHED, Kind.RECEIVED, Kind.DELETED, Kind.VISIBILITY_CHANGED, Kind.HANDLED, Kind.PARKED)
)
"""Kinds of events whose times the checker compares within a group."""
TIMED_COLUMNS = (
    "kind",
    "queue",
    "message_group_id",
    "message_run",
    "idx",
    "body_hash",
    "receipt_handle_hash",
    "clock_id",
    "invoked_at_us",
    "responded_at_us",
)
"""Their columns that `timings_of_part` needs; a part may have some million events."""
SETTLED = (Kind.DELETED.value, Kind.VISIBILITY_CHANGED.value)
"""Kinds of events that need a receipt handle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTimings:
    """The differences of clocks that a history proves.

    Args:
        groups: the groups whose events were timed by several clocks.
        ahead_us: the least time from a cause, by the first clock, to its effect, by the second clock.
        span_us: the time from the first event to the last.
    """

    groups: Collection[str] = ()
    ahead_us: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    span_us: int = 0


_GROUPS = pa.schema({"group": pa.string()})
_AHEAD = pa.schema({"clock": pa.string(), "other": pa.string(), "us": pa.int64()})
_ENDS = pa.schema({"at_us": pa.int64()})
_READ = pa.schema([SCHEMA.field(name) for name in TIMED_COLUMNS])


def timings_of_part(part: Iterable[Events], *, expectation: Expectation) -> list[pa.Table]:
    """Return what one part of a recording tells of its clocks, as three tables.

    They are the message groups whose events were timed by more than one clock; for two clocks, the shortest time that
    an event took to the event that must follow it, which is negative where the first one's clock is ahead; and the
    first and last instants. `timings` makes of them how far the clocks may be apart.
    """
    table = pa.concat_tables([_READ.empty_table(), *(events.table.select(TIMED_COLUMNS) for events in part)])
    events = table.filter(pc.is_valid(table.column("message_group_id")))
    events = events.set_column(
        events.schema.get_field_index("clock_id"), "clock_id", pc.fill_null(events.column("clock_id"), "")
    )
    clocks = events.group_by("message_group_id").aggregate([("clock_id", "min"), ("clock_id", "max")])
    several = clocks.filter(pc.not_equal(clocks.column("clock_id_min"), clocks.column("clock_id_max")))
    ends = [end for name in ("invoked_at_us", "responded_at_us") for end in _first_and_last(events.column(name))]
    return [
        several.select(["message_group_id"]).rename_columns(_GROUPS.names),
        pa.concat_tables(
            [_AHEAD.empty_table(), *_times_from_publishes(events, expectation), *_times_from_receives(events)]
        ),
        pa.table({"at_us": ends}, schema=_ENDS),
    ]


def timings(groups: pa.Table, ahead: pa.Table, ends: pa.Table) -> ClockTimings:
    """Return the timings of a recording, of the tables that `timings_of_part` returned for all of its parts."""
    ahead_us: dict[str, dict[str, int]] = defaultdict(dict)
    for row in ahead.group_by(["clock", "other"]).aggregate([("us", "min")]).to_pylist():
        ahead_us[row["clock"]][row["other"]] = row["us_min"]
    first_us, last_us = pc.min_max(ends.column("at_us")).as_py().values()
    return ClockTimings(
        groups=groups.column("group").to_pylist(),
        ahead_us=dict(ahead_us),
        span_us=0 if first_us is None else last_us - first_us,
    )


def _first_and_last(column: pa.ChunkedArray) -> list[int]:
    ends = pc.min_max(column).as_py()
    return [end for end in ends.values() if end is not None]


def _times_from_publishes(events: pa.Table, expectation: Expectation) -> Iterator[pa.Table]:
    if not expectation.is_publishing_recorded:
        return
    is_published = pc.equal(events.column("kind"), Kind.PUBLISHED.value)
    is_received = pc.and_(
        pc.equal(events.column("kind"), Kind.RECEIVED.value),
        pc.fill_null(pc.equal(events.column("message_run"), expectation.run), fill_value=False),
    )
    keys = ["message_group_id", "idx", "body_hash"]
    yield _least_times(
        events.filter(is_published), events.filter(is_received), keys, ("invoked_at_us", "responded_at_us")
    )


def _times_from_receives(events: pa.Table) -> Iterator[pa.Table]:
    is_received = pc.equal(events.column("kind"), Kind.RECEIVED.value)
    is_settled = pc.is_in(events.column("kind"), pa.array(SETTLED))
    keys = [
        "message_group_id",
        "queue",
        "receipt_handle_hash",
    ]  # the group is part of the key, because a part has only whole groups
    yield _least_times(
        events.filter(is_received), events.filter(is_settled), keys, ("responded_at_us", "invoked_at_us")
    )


def _least_times(causes: pa.Table, effects: pa.Table, keys: list[str], instants: tuple[str, str]) -> pa.Table:
    """Return the least time from a cause by one clock to its effect by another, as a table of _AHEAD."""
    for name in keys:  # an unknown value equals no other
        causes, effects = (table.filter(pc.is_valid(table.column(name))) for table in (causes, effects))
    since, until = instants
    first = causes.group_by(keys).aggregate([("clock_id", "min"), ("clock_id", "max"), (since, "min")])
    of_one = first.filter(pc.equal(first.column("clock_id_min"), first.column("clock_id_max")))
    then = effects.group_by([*keys, "clock_id"]).aggregate([(until, "min")])
    both = of_one.join(then, keys, join_type="inner").filter(pc.field("clock_id_min") != pc.field("clock_id"))
    times = pc.subtract(both.column(f"{until}_min"), both.column(f"{since}_min"))
    found = pa.table({"clock": both.column("clock_id_min"), "other": both.column("clock_id"), "us": times})
    least = found.group_by(["clock", "other"]).aggregate([("us", "min")]).rename_columns(_AHEAD.names)
    return least.filter(pc.is_valid(least.column("us"))).cast(_AHEAD)


def with_clock_bound(
    expectation: Expectation, clocks: Collection[str], timed: ClockTimings
) -> tuple[Expectation, list[str]]:
    """Return the expectation with the bounds on its clocks, and the contradictions to the declared bound.

    `expectation.clock_bound_us` is the declared bound, 0 if none was declared.
    """
    if len(clocks) <= 1:
        return replace(expectation, clock_bound_us=0), []
    proven, declared_us = ahead_us(clocks, proven=widen(timed.ahead_us, timed.span_us)), expectation.clock_bound_us
    reasons = []
    if is_contradictory(proven):
        reasons.append(
            "no difference of the clocks explains the times: a message would have been received before it was"
            " published; a clock was set during the recording"
        )
        proven = {}
    apart = furthest_apart(proven)
    if apart is not None and declared_us and apart.least_us > declared_us:
        reasons.append(
            f"clocks were declared to be at most {declared_us / 1_000:g} ms apart, and {apart.behind!r} is at least"
            f" {apart.least_us / 1_000:g} ms behind {apart.ahead!r}, or it received what was not published yet"
        )
        declared_us = 0
    ahead = ahead_us(clocks, bound_us=declared_us or NEVER_US, proven=proven)
    return replace(expectation, clock_bound_us=apart_us_max(ahead), clocks_ahead_us=ahead), reasons
