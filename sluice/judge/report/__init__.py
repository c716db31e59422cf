"""Reports of a verdict: a summary, JUnit for the build server, a page with charts, JSON for programs.

This module writes these files into a run's folder, and reads them back.
"""

import json
from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import AfterValidator, TypeAdapter, with_config

from sluice.errors import ConfigError, HistoryError
from sluice.history.events import HistoryEvent
from sluice.judge.checker.anomalies import ANOMALIES
from sluice.judge.checker.verdict import SCHEMA_VERSION, Property, PropertyState, PropertyStatus, Verdict, Violation
from sluice.judge.conduct import AGAIN
from sluice.judge.folder import json_files, series_schema
from sluice.judge.folder.json_files import INT_MAX, KEEPS, STRICT, Count, Int, JsonNumber, one_of, replace
from sluice.judge.folder.layout import JUNIT_FILE, PAGE_FILE, SERIES_FILE, SUMMARY_FILE, VERDICT_FILE
from sluice.judge.report import junit
from sluice.judge.report.summary import THRESHOLDS, markdown

__all__ = ["JUNIT_FILE", "PAGE_FILE", "SERIES_FILE", "SUMMARY_FILE", "VERDICT_FILE", "markdown"]

_FROM_HISTORY = "it is made again from the history"

type _Anomaly = Annotated[str, one_of(ANOMALIES)]


def _with_small_numbers(event: HistoryEvent) -> HistoryEvent:
    if any(abs(value) > INT_MAX for value in astuple(event) if isinstance(value, int)):
        raise ValueError(f"allowed are numbers up to {INT_MAX}")
    return event


class _Property(TypedDict):
    anomaly: _Anomaly
    opportunities: Count
    violations: Count
    allowed_because: str | None
    holding: PropertyState
    crossed: NotRequired[tuple[str, ...]]


class _Violation(TypedDict):
    anomaly: _Anomaly
    message_group_id: str
    queue: str | None
    idxs: tuple[Int, ...]
    sentence: str
    witness: tuple[Annotated[HistoryEvent, AfterValidator(_with_small_numbers)], ...]


class _Rate(TypedDict):
    count: Count
    per_second: JsonNumber | None


class _Quantiles(TypedDict):
    p50: JsonNumber
    p95: JsonNumber
    p99: JsonNumber
    max: JsonNumber


class _Queue(TypedDict):
    received: _Rate
    latency_us: _Quantiles | None
    drain_seconds: NotRequired[JsonNumber | None]


class _Calls(TypedDict):
    count: Count
    throttled: Count


class _Bundles(TypedDict):
    events: Count
    messages: Count


@with_config(KEEPS)
class _Replay(TypedDict):
    planned: Count
    published: Count
    shift_us: _Quantiles | None
    moved_share: JsonNumber | None
    interarrival_ks: JsonNumber | None
    skew_error: JsonNumber | None


class _Fault(TypedDict):
    kind: str
    target: str
    how: str
    began_at_us: Count | None
    ended_at_us: Count
    recovered_in_seconds: dict[str, JsonNumber | None]


class _Work(_Quantiles):
    count: Count


class _Conduct(TypedDict):
    work_us: _Work | None
    again: dict[Annotated[str, one_of(AGAIN)], Count]
    late: Count
    late_work_us_max: Count | None
    late_timeout_us: Count | None
    refused: dict[str, Count]
    together: Count


class _Consumer(TypedDict):
    queues: dict[str, _Conduct]
    found: list[str]


@with_config(KEEPS)
class _Measures(TypedDict, total=False):
    published: _Rate
    queues: dict[str, _Queue]
    events: Count
    groups: Count
    suspect_groups: Count
    lateness_us: _Quantiles | None
    publish_latency_us: _Quantiles | None
    calls: _Calls
    bundles: _Bundles
    faults: list[_Fault]
    replay: _Replay
    consumer: _Consumer


def _require_measures(merged: _Measures) -> _Measures:
    missing = sorted({"published", "queues", "events", "groups", "suspect_groups"} - merged.keys())
    if merged and missing:
        raise ValueError(f"{missing[0]} is missing")
    return merged


_Thresholds = TypedDict("_Thresholds", dict.fromkeys(THRESHOLDS.values(), JsonNumber | None), total=False)  # type: ignore[misc]


@with_config(KEEPS)
class _Run(TypedDict, total=False):
    run: str
    profile: _Thresholds
    known_deviations: dict[_Anomaly, str]
    allowed: dict[_Anomaly, str]
    recorders: dict[str, str | None]
    max_receive_count: dict[str, int]
    scaling: tuple[str, ...]
    missed: tuple[str, ...]
    crashed: tuple[str, ...]
    machine: dict[str, Any]
    versions: dict[str, Any]


@with_config(STRICT)
class _VerdictSchema(TypedDict):
    """The fields of verdict.json that are read; the others can be computed from them. `status` is compared."""

    status: PropertyStatus
    unknowns: tuple[str, ...]
    properties: tuple[_Property, ...]
    violations: tuple[_Violation, ...]
    measures: Annotated[_Measures, AfterValidator(_require_measures)]
    run: _Run


@with_config(STRICT)
class _AnyVerdict(TypedDict):
    """The fields of a verdict.json of any version."""

    schema_version: NotRequired[int]


@with_config(STRICT)
class _VerdictEnd(TypedDict):
    """The status in verdict.json."""

    status: PropertyStatus


_VERDICT = TypeAdapter(_VerdictSchema)
_VERSIONED = TypeAdapter(_AnyVerdict)
_JUDGED = TypeAdapter(_VerdictEnd)


def write(verdict: Verdict, folder: Path) -> None:
    """Write summary, JUnit and verdict into the run's folder; the verdict is last, and appears as a whole by a rename.

    The page is drawn later, because an error of the drawing must not prevent the verdict. An older page is removed.
    """
    replace(folder / SUMMARY_FILE, markdown(verdict))
    replace(folder / JUNIT_FILE, junit.xml(verdict))
    (folder / PAGE_FILE).unlink(missing_ok=True)
    (folder / SERIES_FILE).unlink(missing_ok=True)
    replace(folder / VERDICT_FILE, json.dumps(verdict.as_json(), indent=2) + "\n")


def write_series(run_series: series_schema.RunSeries, folder: Path) -> None:
    """Write the data of the page's charts into the run's folder."""
    replace(folder / SERIES_FILE, json.dumps(run_series, separators=(",", ":")) + "\n")


def write_page(verdict: Verdict, run_series: series_schema.RunSeries, path: Path) -> None:
    """Draw the page and write it."""
    from sluice.judge.report import page  # noqa: PLC0415 (what draws takes a second to load, and few commands draw)

    replace(path, page.html(verdict, run_series), instead="name another file with -o")


def read_verdict(folder: Path) -> Verdict:
    """Return the verdict of the run in a folder.

    Raises:
        ConfigError: there is none.
        HistoryError: it is damaged, or newer than this version of Sluice.
    """
    path = folder / VERDICT_FILE
    again = f"judge the run again: sluice check {folder}"
    try:
        version = json_files.read(path, _VERSIONED, instead=again).get("schema_version", SCHEMA_VERSION)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{folder} is not the folder of a run with a verdict ({VERDICT_FILE} is missing); see the folders in runs/,"
            " or judge it first: sluice check FOLDER"
        ) from error
    if version > SCHEMA_VERSION:
        raise HistoryError(
            f"{path} has schema version {version}, this version of Sluice reads up to {SCHEMA_VERSION}:"
            " read it with the version that wrote it, or a newer one"
        )
    fields = json_files.read(path, _VERDICT, instead=again)
    verdict = _to_verdict(fields)
    if verdict.status is not fields["status"]:
        raise HistoryError(
            f"{path} is damaged: its status is {fields['status'].value}, and its properties and unknowns make"
            f" {verdict.status.value}; {again}"
        )
    return verdict


def read_status(folder: Path) -> PropertyStatus | None:
    """Return the status of the verdict of the run in a folder; None if it was not judged."""
    try:
        return json_files.read(folder / VERDICT_FILE, _JUDGED, instead="move it away to go on")["status"]
    except FileNotFoundError:
        return None


def _to_verdict(verdict_schema: _VerdictSchema) -> Verdict:
    return Verdict(
        properties=tuple(
            Property(
                anomaly=prop["anomaly"],
                opportunities=prop["opportunities"],
                violation_count=prop["violations"],
                allowed_because=prop["allowed_because"],
                is_unknown=prop["holding"] is PropertyState.UNKNOWN,
                has_threshold=prop["holding"] is not PropertyState.NO_THRESHOLD,
                crossed=prop.get("crossed", ()),
            )
            for prop in verdict_schema["properties"]
        ),
        violations=tuple(Violation(**violation) for violation in verdict_schema["violations"]),
        unknowns=verdict_schema["unknowns"],
        measures=dict(verdict_schema["measures"]),
        run=dict(verdict_schema["run"]),
    )


def read_series(folder: Path, verdict: Verdict) -> series_schema.RunSeries | None:
    """Return the data of the page's charts; None if it is missing, or of another run or version."""
    path = folder / SERIES_FILE
    try:
        of_what = json_files.read(path, series_schema.ANY_SERIES, instead=_FROM_HISTORY)
    except FileNotFoundError:
        return None
    if (of_what["schema_version"], of_what["run"]) != (series_schema.SCHEMA_VERSION, verdict.run.get("run")):
        return None
    found = json_files.read(path, series_schema.SERIES, instead=_FROM_HISTORY)
    return dict(found)
