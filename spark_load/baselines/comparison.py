"""Two runs of one profile side by side: verdicts, rates, latencies and anomalies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sluice.judge.checker.anomalies import ANOMALIES, Severity
from sluice.judge.checker.verdict import EXIT_CODES, EXIT_CROSSED, PropertyState, PropertyStatus, Verdict
from sluice.judge.report.summary import escape_markdown
from sluice.pages import units
from spark_load.profiles.profile import of_run

_LIMITED = ("p50", "p95", "p99")  # a limit on the maximum would judge one message
_SETTINGS = (
    "environment",
    "target",
    "endpoint_url",
    "transport",
    "consumer",
    "seed",
    "saboteur",
    "versions",
    "machine",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits for the second run, as ratios to the first, in every queue; None does not judge a number."""

    latency_ratio_max: float | None = None
    rate_ratio_min: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedNumber:
    """One number of both runs, in `us` or `per_second`; None if it was not measured.

    Args:
        what: the name of the number.
        unit: `us` for microseconds, or `per_second`.
        ratio: second to first; None if either is unknown, or the first is zero.
        crossed: whether a limit is crossed, or a limited number is missing in the second run only.
    """

    what: str
    unit: str
    first: float | None
    second: float | None
    ratio: float | None
    crossed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Two runs side by side.

    Args:
        profile: fields in which the profiles differ, to both values.
        settings: other settings that differ, to both values.
        new: violated or crossed anomalies of the second run only.
        gone: violated or crossed anomalies of the first run only.
    """

    runs: tuple[str, str]
    statuses: tuple[PropertyStatus, PropertyStatus]
    profile: Mapping[str, tuple[Any, Any]]
    settings: Mapping[str, tuple[Any, Any]]
    numbers: Sequence[ComparedNumber]
    new: Sequence[str]
    gone: Sequence[str]

    @property
    def exit_code(self) -> int:
        """Return 1 if the second run broke a promise that the first kept, 2 if unknown, 99 if a limit is crossed."""
        is_broken = any(ANOMALIES[anomaly].severity is not Severity.LIVENESS for anomaly in self.new)
        if is_broken or (self.statuses[1] is PropertyStatus.INVALID and self.statuses[0] is not PropertyStatus.INVALID):
            return EXIT_CODES[PropertyStatus.INVALID]
        if self.statuses[1] is PropertyStatus.UNKNOWN:
            return EXIT_CODES[PropertyStatus.UNKNOWN]
        if self.new or any(compared.crossed for compared in self.numbers):
            return EXIT_CROSSED
        return 0

    def as_json(self) -> dict[str, Any]:
        """Return the comparison and its exit code as JSON for programs."""
        return asdict(self) | {"exit_code": self.exit_code}


def compare(first: Verdict, second: Verdict, limits: Limits) -> RunComparison:
    """Return two runs side by side."""
    shown_first, shown_second = (
        {prop.anomaly for prop in verdict.properties if prop.holding in (PropertyState.VIOLATED, PropertyState.CROSSED)}
        for verdict in (first, second)
    )
    return RunComparison(
        runs=(str(first.run.get("run")), str(second.run.get("run"))),
        statuses=(first.status, second.status),
        profile=_differences(_profile(first), _profile(second)),
        settings=_differences(*({name: verdict.run.get(name) for name in _SETTINGS} for verdict in (first, second))),
        numbers=tuple(_numbers(first.measures, second.measures, limits)),
        new=[anomaly for anomaly in ANOMALIES if anomaly in shown_second - shown_first],
        gone=[anomaly for anomaly in ANOMALIES if anomaly in shown_first - shown_second],
    )


def _profile(verdict: Verdict) -> dict[str, Any]:
    """Return a run's profile with every field of this version, so that an older run's profile can be compared."""
    profile = verdict.run.get("profile", {})
    try:
        return of_run(profile).as_json()
    except (TypeError, ValueError):
        return dict(profile)


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the names whose values differ, each with (first value, second value)."""
    names = dict.fromkeys((*first, *second))
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def _numbers(first: Mapping[str, Any], second: Mapping[str, Any], limits: Limits) -> Iterator[ComparedNumber]:
    """Yield the rates, then the latencies of every queue of either run."""
    queues = dict.fromkeys((*first.get("queues", {}), *second.get("queues", {})))
    path: tuple[str, ...] = ("published", "per_second")
    yield _compare_number("published", "per_second", _in(first, *path), _in(second, *path), Limits())
    for queue in queues:
        path = ("queues", queue, "received", "per_second")
        yield _compare_number(f"received from {queue}", "per_second", _in(first, *path), _in(second, *path), limits)
    for queue in queues:
        for percentile in units.QUANTILES:
            path = ("queues", queue, "latency_us", percentile)
            number_limits = limits if percentile in _LIMITED else Limits()
            yield _compare_number(
                f"{percentile} of {queue}", "us", _in(first, *path), _in(second, *path), number_limits
            )


def _in(measures: Mapping[str, Any], *path: str) -> float | None:
    """Return the number at a path of nested dicts; None if there is none."""
    value: Any = measures
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, int | float) else None


def _compare_number(what: str, unit: str, first: float | None, second: float | None, limits: Limits) -> ComparedNumber:
    """Return a number of both runs; a latency crosses its limit from above, a rate from below."""
    is_latency = unit == "us"
    limit = limits.latency_ratio_max if is_latency else limits.rate_ratio_min
    is_crossed = (
        limit is not None
        and first is not None
        and (second is None or (second > limit * first if is_latency else second < limit * first))
    )
    ratio = None if second is None or not first else second / first
    return ComparedNumber(what=what, unit=unit, first=first, second=second, ratio=ratio, crossed=is_crossed)


def markdown(compared: RunComparison) -> str:
    """Return the comparison as Markdown."""
    first, second = compared.statuses
    lines = [
        f"# {first.value.upper()} → {second.value.upper()}",
        "",
        f"- first: {escape_markdown(compared.runs[0])}",
        f"- second: {escape_markdown(compared.runs[1])}",
        *(f"- only the second shows **{anomaly} {ANOMALIES[anomaly].name}**" for anomaly in compared.new),
        *(f"- only the first shows {anomaly} {ANOMALIES[anomaly].name}" for anomaly in compared.gone),
    ]
    for title, differing in (("Profile", compared.profile), ("Not the same", compared.settings)):
        if differing:
            lines += ["", f"## {title}", "", "| | first | second |", "|---|---|---|"]
            lines += [
                f"| {name} | {' | '.join(escape_markdown(str(value)) for value in both)} |"
                for name, both in differing.items()
            ]
    lines += ["", "## Rates and latencies", "", "| | first | second | ratio |", "|---|---:|---:|---:|"]
    lines += [_row(number) for number in compared.numbers]
    return "\n".join(lines) + "\n"


def _row(compared: ComparedNumber) -> str:
    unit = units.duration if compared.unit == "us" else units.rate
    ratio = units.NONE if compared.ratio is None else f"{compared.ratio:.2f}"
    crossed = " **crossed**" if compared.crossed else ""
    return f"| {escape_markdown(compared.what)} | {unit(compared.first)} | {unit(compared.second)} | {ratio}{crossed} |"
