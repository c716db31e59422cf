"""What the JSON files of a run's folder hold; one that holds anything else is refused with the field and its value.

Whoever copies, cuts or edits them by hand is told what is wrong with them. A field more is none of our business: a
newer version may have written it.
"""

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config

from sluice.errors import HistoryError
from sluice.history.checker import Expectation
from sluice.history.checker.anomalies import ANOMALIES
from sluice.history.checker.verdict import Holding, Status
from sluice.history.events import Event, Kind
from sluice.saboteurs import SABOTEURS
from spark_load.judge.series import BINS_MAX
from spark_load.publish.transport import NAMES

_INT_MAX = 2**53  # what a program that reads JSON as floating point still holds; as an instant, the year 2255
_BRIEF = reprlib.Repr(maxlevel=1, maxstring=80, maxlong=80, maxother=80)
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)  # also of what is inside
_KEPT = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")
_ALL = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


def read[T](path: Path, shape: TypeAdapter[T], *, instead: str) -> T:
    """Return what a file of JSON holds.

    Args:
        path: of the file.
        shape: what it is to hold.
        instead: the next step, where it holds something else.

    Raises:
        FileNotFoundError: it is not there.
        HistoryError: it cannot be read, is no JSON, or holds something else: field, value seen, value allowed.
    """
    try:
        return shape.validate_json(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HistoryError(f"{path} cannot be read ({error.strerror}); {instead}") from error
    except ValidationError as error:
        raise damaged(path, error, instead=instead) from error


def damaged(path: Path, error: ValidationError, *, instead: str, inside: str = "") -> HistoryError:
    """Return what is wrong with a file, as an error.

    Args:
        path: of the file.
        error: the first thing that is wrong in it is told.
        instead: the next step.
        inside: the field that was looked into.
    """
    first = error.errors(include_url=False)[0]
    field = ".".join([*([inside] if inside else []), *map(str, first["loc"])])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return HistoryError(f"{path} is damaged ({message}); {instead}")
    if first["type"] == "missing":
        return HistoryError(f"{path} is damaged: {field} is missing; {instead}")
    allowed = message.replace("Input should be", "allowed is")
    return HistoryError(f"{path} is damaged: {field or 'it'} is {_BRIEF.repr(first['input'])}, {allowed}; {instead}")


def _one_of(known: Mapping[str, object] | tuple[str, ...]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"allowed is one of {', '.join(known)}")
        return name

    return AfterValidator(check)


def _small(event: Event) -> Event:
    if any(abs(value) > _INT_MAX for value in astuple(event) if isinstance(value, int)):
        raise ValueError(f"allowed are numbers up to {_INT_MAX}")
    return event


type _Int = Annotated[int, Field(ge=-_INT_MAX, le=_INT_MAX)]
type _Count = Annotated[int, Field(ge=0, le=_INT_MAX)]
type _Positive = Annotated[int, Field(ge=1, le=_INT_MAX)]
type _Number = Annotated[float, Field(ge=-_INT_MAX, le=_INT_MAX)]
type _Anomaly = Annotated[str, _one_of(ANOMALIES)]


# --- series.json -----------------------------------------------------------------------------------------------------


class _Percentiles(TypedDict):
    count: _Count
    p50: _Int | None
    p95: _Int | None
    p99: _Int | None
    max: _Int | None


class _PercentilesOverTime(TypedDict):
    count: list[_Count]
    p50: list[_Int | None]
    p95: list[_Int | None]
    p99: list[_Int | None]
    max: list[_Int | None]


class _QueueOverTime(TypedDict):
    received: list[_Count]
    waiting: list[_Count]
    again: list[_Count]
    latency_us: _PercentilesOverTime


class _Rank(TypedDict):
    groups: _Positive
    messages: _Count
    latency_us: dict[str, _Percentiles]


@with_config(_KEPT)
class _Told(TypedDict):
    kind: Annotated[str, _one_of(tuple(Kind))]
    queue: NotRequired[str]
    idx: NotRequired[_Int]
    invoked_at_us: _Count
    responded_at_us: NotRequired[_Count]
    outcome: NotRequired[str]
    receipt_handle_hash: NotRequired[str]
    visibility_timeout_seconds: NotRequired[_Count]


@with_config(_STRICT)
class SeriesShape(TypedDict):
    """Of series.json: `series.Series`, field by field."""

    schema_version: int
    run: str
    accuracy: _Positive
    started_at_us: _Count
    bin_seconds: Annotated[float, Field(gt=0, le=_INT_MAX)]
    bin_count: Annotated[int, Field(ge=1, le=BINS_MAX)]
    warm_up: Annotated[list[_Number], Field(min_length=2, max_length=2)] | None
    published: list[_Count]
    queues: dict[str, _QueueOverTime]
    ranks: list[_Rank]
    failed: dict[str, list[_Count]]
    visibility: dict[str, _Count]
    groups: dict[str, list[_Told]]


def _of_one_length(said: SeriesShape) -> SeriesShape:
    for name, values in _per_bin(said):
        if len(values) != said["bin_count"]:
            raise ValueError(f"{name} has {len(values)} values, allowed are as many as bin_count, {said['bin_count']}")
    return said


def _per_bin(said: SeriesShape) -> Iterator[tuple[str, list[Any]]]:
    yield "published", said["published"]
    yield from ((f"failed.{code}", values) for code, values in said["failed"].items())
    for queue, of in said["queues"].items():
        lists: dict[str, Any] = {**of, **{f"latency_us.{name}": values for name, values in of["latency_us"].items()}}
        yield from ((f"queues.{queue}.{name}", values) for name, values in lists.items() if name != "latency_us")


@with_config(_STRICT)
class SeriesOf(TypedDict):
    """Of any series.json, another version's too."""

    schema_version: int
    run: str


SERIES = TypeAdapter[SeriesShape](Annotated[SeriesShape, AfterValidator(_of_one_length)])
SERIES_OF = TypeAdapter(SeriesOf)


# --- verdict.json ----------------------------------------------------------------------------------------------------


class _Property(TypedDict):
    anomaly: _Anomaly
    opportunities: _Count
    violations: _Count
    allowed_because: str | None
    holding: Holding
    crossed: NotRequired[tuple[str, ...]]


class _Violation(TypedDict):
    anomaly: _Anomaly
    message_group_id: str
    queue: str | None
    idxs: tuple[_Int, ...]
    sentence: str
    witness: tuple[Annotated[Event, AfterValidator(_small)], ...]


class _Rate(TypedDict):
    count: _Count
    per_second: _Number | None


class _Quantiles(TypedDict):
    p50: _Number
    p95: _Number
    p99: _Number
    max: _Number


class _Queue(TypedDict):
    received: _Rate
    latency_us: _Quantiles | None
    drain_seconds: NotRequired[_Number | None]


class _Calls(TypedDict):
    count: _Count
    throttled: _Count


@with_config(_KEPT)
class _Measures(TypedDict, total=False):
    published: _Rate
    queues: dict[str, _Queue]
    events: _Count
    groups: _Count
    suspect_groups: _Count
    lateness_us: _Quantiles | None
    publish_latency_us: _Quantiles | None
    calls: _Calls
    recovered_in_seconds: dict[str, _Number]


def _whole(said: _Measures) -> _Measures:
    missing = sorted({"published", "queues", "events", "groups", "suspect_groups"} - said.keys())
    if said and missing:
        raise ValueError(f"{missing[0]} is missing")
    return said


class _Thresholds(TypedDict, total=False):
    lateness_budget_seconds: _Number | None
    latency_seconds_max: _Number | None
    drain_seconds_max: _Number | None
    recovery_seconds_max: _Number | None
    throttled_share_max: _Number | None
    fan_out_skew_seconds_max: _Number | None
    passed_over_seconds_max: _Number | None
    stuck_seconds_max: _Number | None


@with_config(_KEPT)
class _Run(TypedDict, total=False):
    run: str
    profile: _Thresholds
    known_deviations: dict[_Anomaly, str]
    allowed: dict[_Anomaly, str]
    recorders: dict[str, str | None]
    max_receive_count: dict[str, int]
    machine: dict[str, Any]
    versions: dict[str, Any]


@with_config(_STRICT)
class VerdictShape(TypedDict):
    """Of verdict.json: what of `Verdict.as_json` cannot be computed from the rest, and the status."""

    status: Status
    unknowns: tuple[str, ...]
    properties: tuple[_Property, ...]
    violations: tuple[_Violation, ...]
    measures: Annotated[_Measures, AfterValidator(_whole)]
    run: _Run


@with_config(_STRICT)
class Versioned(TypedDict):
    """Of any verdict.json, a newer one too."""

    schema_version: NotRequired[int]


@with_config(_STRICT)
class Judged(TypedDict):
    """Of verdict.json, how it ended."""

    status: Status


VERDICT = TypeAdapter(VerdictShape)
VERSIONED = TypeAdapter(Versioned)
JUDGED = TypeAdapter(Judged)


# --- run.json --------------------------------------------------------------------------------------------------------


class _Clock(TypedDict):
    id: str
    offset_us: _Int


@with_config(_KEPT)
class _Described(TypedDict):
    environment: str
    target: str
    endpoint_url: str | None
    profile: dict[str, Any]
    seed: int
    recorders: dict[str, str | None]
    max_receive_count: dict[str, _Positive]
    saboteur: NotRequired[Annotated[str, _one_of(SABOTEURS)] | None]
    transport: NotRequired[Annotated[str, _one_of(NAMES)]]
    attempts: NotRequired[_Positive]
    clock: NotRequired[_Clock]
    topic_arn: NotRequired[str]


@with_config(_ALL)
class RunShape(TypedDict):
    """Of run.json."""

    described: _Described
    expectation: Expectation
    unknowns: tuple[str, ...]


RUN = TypeAdapter(RunShape)
