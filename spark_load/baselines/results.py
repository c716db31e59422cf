"""The results of runs, a line of JSON each, in a file beside the runs' folders, for comparison with later runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from sluice.errors import ConfigError, HistoryError, unwritable
from sluice.judge.checker.verdict import PropertyStatus, Verdict
from sluice.judge.folder.json_files import BRIEF, sentence
from spark_load.profiles import profile

RESULTS_FILE = "results.jsonl"
_SCHEMA_VERSION = 1
_PERCENTILES = ("p50", "p95", "p99")  # not the maximum, which is one message
_KIND = ("environment", "target", "transport")
_MACHINE = ("processor", "model", "cores")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The stored result of a run.

    Args:
        run: the id of the run.
        profile_name: the name of its profile.
        profile_digest: a digest of its profile: runs with the same digest offered the same load.
        kind: environment, target, transport and machine; only runs of one kind are compared.
        status: the status of its verdict.
        seconds: the measured times by name; less is better.
        versions: versions of the software, to explain differences.
    """

    run: str
    profile_name: str
    profile_digest: str
    kind: Mapping[str, str]
    status: PropertyStatus
    seconds: Mapping[str, Annotated[float, Field(ge=1e-9, le=1e9)]]
    versions: Mapping[str, str]
    schema_version: int = _SCHEMA_VERSION


_RESULT = TypeAdapter(RunResult)


def result_of(verdict: Verdict) -> RunResult:
    """Return the result of a run for the file.

    Raises:
        ConfigError: the run is no load test, was sabotaged or resumed, or its profile is unknown.
    """
    run = verdict.run
    if "profile" not in run:
        raise ConfigError(f"{run.get('run')} is a recording, allowed is the run of a load test")
    for name, why in (("saboteur", "was sabotaged"), ("attempts", "was resumed")):
        if run.get(name) not in (None, 1):
            raise ConfigError(f"{run['run']} {why}, allowed are runs that measure the service alone; run it again")
    try:
        digest = profile.digest(profile.of_run(run["profile"]))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the profile of {run['run']} is not one of this version; run it again") from error
    machine = run.get("machine") or {}
    return RunResult(
        run=str(run["run"]),
        profile_name=str(run.get("profile_name")),
        profile_digest=digest,
        kind={name: str(run.get(name)) for name in _KIND} | {name: str(machine.get(name)) for name in _MACHINE},
        status=verdict.status,
        seconds=dict(_seconds(verdict.measures)),
        versions={name: str(value) for name, value in (run.get("versions") or {}).items()},
    )


def _seconds(measures: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield (name, seconds) of each measured time that is longer than 0."""
    times = {"publish call": measures.get("publish_latency_us")}
    times |= {queue: each_measures.get("latency_us") for queue, each_measures in measures.get("queues", {}).items()}
    for name, each_measures in times.items():
        yield from (
            (f"{name} {each}", each_measures[each] / 1e6)
            for each in _PERCENTILES
            if each_measures and each_measures[each] > 0
        )
    for queue, each_measures in measures.get("queues", {}).items():
        if (each_measures.get("drain_seconds") or 0) > 0:
            yield f"{queue} drain", each_measures["drain_seconds"]


def append(result: RunResult, path: Path) -> None:
    """Add a run to the file, which is created if it is missing.

    Raises:
        ConfigError: the file cannot be written.
        HistoryError: the disk is full or broken.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            is_torn = path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
            file.write("\n" * is_torn + json.dumps(asdict(result), sort_keys=True) + "\n")
    except OSError as error:
        raise unwritable(path, error, "the run's own files are whole; make room, or move the file away") from error


def read(path: Path) -> Sequence[RunResult]:
    """Return the runs in a file, in the order in which they were added; of a run that was added again, the last result.

    Raises:
        ConfigError: there is no such file.
        HistoryError: the file cannot be read, or a line is no result of a run; the message names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise ConfigError(
            f"there are no results in {path}; `sluice load run` adds each run to {RESULTS_FILE} in its --runs-dir, or"
            " name another file with --results"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryError(f"{path} cannot be read ({error}); name another file with --results") from error
    results: dict[str, RunResult] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            result = _parse(line, path, number)
            results.pop(result.run, None)
            results[result.run] = result
    return list(results.values())


def _parse(line: str, path: Path, number: int) -> RunResult:
    """Return the result in a line of the file; `number` is the line's number, for the error."""
    try:
        result = _RESULT.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "it"
        raise HistoryError(
            f"line {number} of {path} is damaged: {field} is {BRIEF.repr(first['input'])}, {sentence(first)}; remove it"
        ) from error
    if result.schema_version > _SCHEMA_VERSION:
        raise HistoryError(
            f"line {number} of {path} has schema version {result.schema_version}, this version of Sluice reads up to"
            f" {_SCHEMA_VERSION}; read it with a newer one"
        )
    return result
