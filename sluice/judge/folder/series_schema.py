"""The schema of series.json, which holds the report's charts as small tables."""

from collections.abc import Iterator
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import AfterValidator, Field, TypeAdapter, with_config

from sluice.history.events import Kind
from sluice.judge.folder.json_files import INT_MAX, KEEPS, STRICT, Count, Int, JsonNumber, Positive, one_of

SCHEMA_VERSION = 3
BINS_MAX = 120
EXACT_MAX = 50_000
"""If a part of a history has more latencies than this, they are rounded; see `accuracy`."""

type RunSeries = dict[str, Any]
"""A `SeriesSchema` for code that draws it, without its types."""


class _Percentiles[C, V](TypedDict):
    """The percentiles of a latency in microseconds: one value each, or a list with a value for each bin."""

    count: C
    p50: V
    p95: V
    p99: V
    max: V


class _Queue(TypedDict):
    """The messages of a queue, a value for each bin.

    `waiting` counts messages that were acknowledged and not yet received, at the end of the bin. `again` counts
    redelivered messages. `tasks` counts receivers at work in the middle of the bin, from their first event to their
    last.
    """

    received: list[Count]
    waiting: list[Count]
    again: list[Count]
    tasks: list[Count]
    latency_us: _Percentiles[list[Count], list[Int | None]]


class _Rank(TypedDict):
    """Groups of about the same size, and the latencies of their messages, by queue."""

    groups: Positive
    messages: Count
    latency_us: dict[str, _Percentiles[Count, Int | None]]


@with_config(KEEPS)
class _TimelineEvent(TypedDict):
    kind: Annotated[str, one_of(tuple(Kind))]
    queue: NotRequired[str]
    idx: NotRequired[Int]
    invoked_at_us: Count
    responded_at_us: NotRequired[Count]
    outcome: NotRequired[str]
    receipt_handle_hash: NotRequired[str]
    visibility_timeout_seconds: NotRequired[Count]


@with_config(STRICT)
class SeriesSchema(TypedDict):
    """The tables of one run.

    Everything is relative to `started_at_us`, the first intended publish; `warm_up` is from and to, in seconds. Where a
    history is large, a percentile is at most 1 / `accuracy` below its value. For each bin, `published` counts what was
    acknowledged for the first time, and `failed`, by error code, calls or entries that ended with it. `ranks` begin
    with the hottest groups; `visibility` are the timeouts of the queues, in seconds; `groups` the events around what
    was found in a group.
    """

    schema_version: int
    run: str
    accuracy: Positive
    started_at_us: Count
    bin_seconds: Annotated[float, Field(gt=0, le=INT_MAX)]
    bin_count: Annotated[int, Field(ge=1, le=BINS_MAX)]
    warm_up: Annotated[list[JsonNumber], Field(min_length=2, max_length=2)] | None
    published: list[Count]
    queues: dict[str, _Queue]
    ranks: list[_Rank]
    failed: dict[str, list[Count]]
    visibility: dict[str, Count]
    groups: dict[str, list[_TimelineEvent]]


def _require_equal_lengths(series: SeriesSchema) -> SeriesSchema:
    for name, values in _per_bin(series):
        if len(values) != series["bin_count"]:
            count = series["bin_count"]
            raise ValueError(f"{name} has {len(values)} values, allowed are as many as bin_count, {count}")
    return series


def _per_bin(series: SeriesSchema) -> Iterator[tuple[str, list[Any]]]:
    yield "published", series["published"]
    yield from ((f"failed.{code}", values) for code, values in series["failed"].items())
    for queue, of in series["queues"].items():
        lists: dict[str, Any] = {**of, **{f"latency_us.{name}": values for name, values in of["latency_us"].items()}}
        yield from ((f"queues.{queue}.{name}", values) for name, values in lists.items() if name != "latency_us")


@with_config(STRICT)
class _AnySeries(TypedDict):
    schema_version: int
    run: str


SERIES = TypeAdapter[SeriesSchema](Annotated[SeriesSchema, AfterValidator(_require_equal_lengths)])
ANY_SERIES = TypeAdapter(_AnySeries)
"""The fields of a series.json of any version."""
