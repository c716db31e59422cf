"""A run compared with earlier runs: which of its times are longer, and the smallest increase that could be found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluice.judge.checker.verdict import EXIT_CODES, EXIT_CROSSED, PropertyStatus
from sluice.judge.report.summary import escape_markdown
from sluice.pages import units
from spark_load.baselines.results import RunResult
from spark_load.baselines.statistics import Slower, detectable, holm, slower

LEVEL = 0.01
"""The largest share of unchanged runs that are called slower, for any number of compared times."""
BEFORE_MIN = 8
"""The fewest earlier runs; with fewer, the answer is unknown."""
EXIT_TOO_FEW = 98
"""Exit code if there are too few earlier runs yet; nothing is wrong."""
RATIO_MIN = 1.05
"""A time with a smaller ratio is not called slower, even if the difference is certain."""
NEWEST = (1, 3, 5)
"""How many newest runs are compared with earlier ones: three or five runs show what one cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendRow:
    """One time of a run.

    Args:
        name: the name of the time.
        seconds: the time in the earlier runs, oldest first, and in the run last.
        newest: how many of the newest runs were compared with the earlier ones: the clearest of NEWEST.
        ratio: of their geometric means.
        p: probability of this ratio if nothing changed, adjusted for all comparisons.
        detectable: about which ratio a single run needs to be called slower.
    """

    name: str
    seconds: tuple[float, ...]
    newest: int
    ratio: float
    p: float
    detectable: float

    @property
    def is_slower(self) -> bool:
        """Return whether the time is a regression."""
        return self.p <= LEVEL and self.ratio >= RATIO_MIN

    def as_json(self) -> dict[str, Any]:
        """Return the time and its comparison as JSON for programs."""
        return {
            "what": self.name,
            "seconds": self.seconds[-1],
            "before_seconds": list(self.seconds[:-1]),
            "newest": self.newest,
            "ratio": self.ratio,
            "p": self.p,
            "detectable_ratio": self.detectable,
            "slower": self.is_slower,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A run compared with earlier runs; `rows` is empty if `unknown` has a reason.

    Args:
        result: the result of the run.
        runs: the earlier runs that can be compared with it.
        last: the most earlier runs that the newest ones are compared with.
        needs_runs: whether the result is unknown only because there are too few runs.
    """

    result: RunResult
    runs: tuple[str, ...]
    last: int
    rows: tuple[TrendRow, ...] = ()
    unknown: str | None = None
    needs_runs: bool = False

    @property
    def omitted_times(self) -> list[str]:
        """Return the times of the run that too few of the runs before it have."""
        return sorted(self.result.seconds.keys() - {row.name for row in self.rows}) if self.rows else []

    @property
    def how(self) -> list[str]:
        """Return sentences about which runs were compared and which were left out."""
        *fewer, most = NEWEST
        newest = f"the newest {', '.join(map(str, fewer))} or {most} runs with {BEFORE_MIN} to {self.last} before those"
        sentences = [f"Before it there are {units.plural(len(self.runs), 'run')}; compared are {newest}."]
        if self.omitted_times:
            few = f"Left out are times that fewer than {BEFORE_MIN} of them have"
            sentences.append(f"{few}: {', '.join(self.omitted_times)}.")
        return sentences

    @property
    def slower(self) -> list[TrendRow]:
        """Return the times that became longer."""
        return [row for row in self.rows if row.is_slower]

    @property
    def exit_code(self) -> int:
        """Return 99 if a time is longer, 98 with too few earlier runs, 2 if unknown for another reason, otherwise 0."""
        if self.unknown is not None:
            return EXIT_TOO_FEW if self.needs_runs else EXIT_CODES[PropertyStatus.UNKNOWN]
        return EXIT_CROSSED if self.slower else 0

    @property
    def word(self) -> str:
        """Return the answer in one or a few capital words."""
        if self.unknown is not None:
            return "TOO FEW RUNS" if self.needs_runs else "UNKNOWN"
        return "SLOWER" if self.slower else "NOT SLOWER"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON for programs."""
        return {
            "run": self.result.run,
            "profile": self.result.profile_name,
            "profile_digest": self.result.profile_digest,
            "kind": dict(self.result.kind),
            "before": list(self.runs),
            "left_out": self.omitted_times,
            "answer": self.word.lower(),
            "exit_code": self.exit_code,
            "unknown": self.unknown,
            "level": LEVEL,
            "rows": [row.as_json() for row in self.rows],
        }


def comparable(result: RunResult, others: Sequence[RunResult], *, last: int) -> list[RunResult]:
    """Return the earlier runs that can be compared with a run, oldest first: at most `last`, and the newest beside it.

    These are valid runs of the same profile on the same kind of machine, never the run itself. Runs that were added
    after the run are not earlier.
    """
    runs = [other.run for other in others]
    earlier = others[: runs.index(result.run)] if result.run in runs else others
    comparable_runs = [
        other
        for other in earlier
        if other.status is PropertyStatus.VALID
        and (other.profile_digest, other.kind) == (result.profile_digest, result.kind)
    ]
    return comparable_runs[-(last + max(NEWEST) - 1) :]


def trend(result: RunResult, others: Sequence[RunResult], *, last: int) -> Trend:
    """Compare a run with at most `last` runs before it, and the newest runs with those before them."""
    before = comparable(result, others, last=last)
    runs = tuple(other.run for other in before)
    unknown = Trend(result=result, runs=runs, last=last)
    if result.status is not PropertyStatus.VALID:
        return replace(unknown, unknown=f"the run is {result.status.value.upper()}: see its verdict")
    if not result.seconds:
        return replace(unknown, unknown="no time of the run was measured: see its summary")
    if len(before) < BEFORE_MIN:
        why = (
            f"found {units.plural(len(before), 'valid run')} of this profile on this kind of machine before it, needed"
            f" are {BEFORE_MIN}; make {units.plural(BEFORE_MIN - len(before), 'more run')}"
        )
        return replace(unknown, unknown=why, needs_runs=True)
    rows = _rows({name: _values(name, [*before, result]) for name in result.seconds}, last)
    if not rows:
        why = (
            f"none of its {units.plural(len(result.seconds), 'time')} is in {BEFORE_MIN} of the {len(before)} runs"
            f" before it, as when queues have other names; make up to {BEFORE_MIN} more runs"
        )
        return replace(unknown, unknown=why, needs_runs=True)
    return replace(unknown, rows=tuple(rows))


def _values(name: str, results: Sequence[RunResult]) -> tuple[float, ...]:
    """Return a time in each run that has it, in the order of the runs."""
    return tuple(result.seconds[name] for result in results if name in result.seconds)


def _rows(times: Mapping[str, tuple[float, ...]], last: int) -> list[TrendRow]:
    """Return a row for each time that enough runs have; p is corrected for the number of times."""
    known = {name: values for name, values in times.items() if len(values) > BEFORE_MIN}
    clearest = {name: _clearest(values, last) for name, values in known.items()}
    adjusted = holm({name: comparison.p for name, (_, comparison) in clearest.items()})
    level = LEVEL / len(NEWEST) / max(1, len(known))
    return [
        TrendRow(
            name=name,
            seconds=values,
            newest=clearest[name][0],
            ratio=clearest[name][1].ratio,
            p=adjusted[name],
            detectable=max(RATIO_MIN, detectable(values[-1 - last : -1], level=level)),
        )
        for name, values in known.items()
    ]


def _clearest(values: Sequence[float], last: int) -> tuple[int, Slower]:
    """Return (n, comparison) for that n of NEWEST whose n newest runs differ most clearly from those before.

    Its p is adjusted for the choice among NEWEST.
    """
    comparisons = {
        newest: slower(values[-newest - last : -newest], values[-newest:])
        for newest in NEWEST
        if len(values) - newest >= BEFORE_MIN
    }
    newest = min(comparisons, key=lambda newest: comparisons[newest].p)
    return newest, Slower(comparisons[newest].ratio, min(1.0, len(NEWEST) * comparisons[newest].p))


def markdown(found: Trend) -> str:
    """Return the comparison as Markdown."""
    lines = [f"# {found.word}", "", f"- run: {escape_markdown(found.result.run)}"]
    if found.unknown is not None:
        return "\n".join([*lines, f"- not known: {escape_markdown(found.unknown)}"]) + "\n"
    lines += [
        *(f"- {escape_markdown(sentence)}" for sentence in found.how),
        "",
        "| time | this run | before | newest runs | ratio | p | one run shows |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found.rows:
        median = sorted(row.seconds[:-1])[len(row.seconds[:-1]) // 2]
        slow = " **slower**" if row.is_slower else ""
        lines.append(
            f"| {escape_markdown(row.name)} | {units.seconds(row.seconds[-1])} | {units.seconds(median)} | {row.newest}"
            f" | {row.ratio:.2f}{slow} | {row.p:.2g} | {row.detectable:.2f} |"
        )
    return "\n".join(lines) + "\n"
