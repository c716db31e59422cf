"""The checker against large histories, its own bounds, and DuckDB: `python -m benchmarks check`.

Each engine is a process of its own. It prints the time of each round; this process watches its memory.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import charts, competitor_environment
from benchmarks.checking import histories
from benchmarks.processes import resident_bytes
from benchmarks.report import Section, table
from benchmarks.rounds import Measurement
from sluice.errors import EndpointError

LARGE = "SLUICE_BENCH_LARGE"
"""The environment variable that replaces the usual sizes by 100 M events: 20 GB of disk, some 12 minutes."""
_PROJECT = Path(__file__).resolve().parents[2]
_SIZES = (1_000_000, 10_000_000)
_LARGE_SIZE = 100_000_000
_WARM_UP = 150_000
_BAD_SHARE = 0.001
_SLICES = 30  # of a history, each written as its own files; more would make row groups too small for Parquet
_SLICE_MAX = 500_000  # messages: about what a part of a journal holds
_BUCKET_EVENTS = 1_000_000
_WATCH_SECONDS = 0.5  # between two looks at the memory of an engine
_STEPS = {
    "judge": "judging, as the load test wrote it",
    "judge exchanged": "judging, without buckets",
    "duckdb": "DuckDB, six checks",
}
_ENGINES = {"judge": "Sluice", "duckdb": "DuckDB"}
_CORES = os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The time that one engine needed for one step, in every round, with all processes it started."""

    seconds: Measurement
    processor_seconds: Measurement

    def per_second(self, events: int) -> str:
        """Return millions of events a second."""
        return f"{events / self.seconds.median / 1e6:.2f}"

    def per_processor_second(self, events: int) -> str:
        """Return millions of events a second if all cores of the machine worked on them."""
        return f"{_CORES * events / self.processor_seconds.median / 1e6:.2f}"


def measure(_: Mapping[str, str], rounds: int) -> Section:
    """Measure sizes with and without broken groups; return tables and plots."""
    competitor_environment.install()
    rows: list[Sequence[object]] = []
    points: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    is_large = bool(os.environ.get(LARGE))
    with tempfile.TemporaryDirectory(prefix="sluice-check-") as name:
        folder = Path(name)
        histories.write_both(folder / "warm-up", events=_WARM_UP, slice_count=20_000, bucket_count=2)
        for size in (_LARGE_SIZE,) if is_large else _SIZES:
            for bad_share in (0, _BAD_SHARE) if size > _SIZES[0] else (0,):
                events, found, memory = _measure_history(folder, size, bad_share, rounds if size < _LARGE_SIZE else 1)
                rows += _rows(events, bad_share, found, memory)
                for step in ("judge", "duckdb"):
                    line = f"{_ENGINES[step]}, {'broken groups' if bad_share else 'sane'}"
                    points[line].append((events, events / found[step].seconds.median, ""))
    head = ["events", "broken groups", "what", "M events/s", "noise", "of all cores", "to judging", "peak memory, GB"]
    sizes = [charts.Line(line, given) for line, given in points.items() if line != "DuckDB, broken groups"]
    if is_large:
        return Section(tables={"check-large": table(head, rows, text_columns=3)}, plots={})
    plot = charts.lines("Events judged a second, by size of the history", "events", "events/s", sizes)
    return Section(tables={"check": table(head, rows, text_columns=3)}, plots={"check": plot})


def _measure_history(
    folder: Path, size: int, bad_share: float, rounds: int
) -> tuple[int, dict[str, StepTimes], dict[str, int]]:
    """Write a history and judge it with each engine; return its events, and the times and peak bytes by step."""
    made = histories.write_both(
        folder / "measured",
        events=size,
        bad_share=bad_share,
        slice_count=min(max(100_000, size // _SLICES // 10 * 10), _SLICE_MAX),
        bucket_count=max(2, round(size / _BUCKET_EVENTS)),
    )
    found, memory = dict[str, StepTimes](), dict[str, int]()
    for step in ("judge", *([] if bad_share or size == _LARGE_SIZE else ["judge exchanged"])):
        took, memory[step] = _run_checker(folder, "measured" if size < _LARGE_SIZE else "warm-up", [step], rounds)
        found |= took
    plain = str(folder / "measured" / histories.PLAIN)
    duckdb_checks = [competitor_environment.PYTHON, "benchmarks/checking/duckdb_checks.py"]
    took, memory["duckdb"] = _run_engine([*duckdb_checks, plain, str(rounds + 1)])
    shutil.rmtree(folder / "measured")
    return made.events, found | took, memory


def _rows(
    events: int, bad_share: float, found: Mapping[str, StepTimes], memory: Mapping[str, int]
) -> list[Sequence[object]]:
    mine = found["judge"].processor_seconds
    return [
        (
            f"{events / 1e6:.1f} M",
            f"{bad_share:.1%}" if bad_share else "none",
            _STEPS[name],
            took.per_second(events),
            took.seconds.noise,
            took.per_processor_second(events),
            mine.over(took.processor_seconds).ratio,
            f"{memory[name] / 1e9:.1f}",
        )
        for name, took in ((name, found[name]) for name in _STEPS if name in found)
    ]


def _run_checker(folder: Path, warm_up: str, steps: Sequence[str], rounds: int) -> tuple[dict[str, StepTimes], int]:
    """Judge a history with Sluice's checker, after a first run on `warm_up`: the JVM is slow until it is warm."""
    folders = [str(folder / name) for name in (warm_up, "measured")]
    return _run_engine([sys.executable, "-m", "benchmarks.checking.spark_checks", *folders, *steps, str(rounds)])


def _run_engine(command: Sequence[str]) -> tuple[dict[str, StepTimes], int]:
    """Run an engine; return the times of its steps, without the warm-up, and its peak memory in bytes."""
    environment = os.environ | {"PYTHONPATH": str(_PROJECT)}
    with subprocess.Popen(
        command, cwd=_PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as engine:
        is_over, peak = threading.Event(), [0]

        def watch() -> None:
            while not is_over.wait(_WATCH_SECONDS):
                peak[0] = max(peak[0], resident_bytes(engine.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        assert engine.stdout is not None, "it is piped"
        results = [json.loads(line) for line in engine.stdout]
        is_over.set()
        watcher.join()
    if engine.returncode:
        raise EndpointError(f"{' '.join(command)} ended with {engine.returncode}; run it by hand")
    return _group_by_step(results), peak[0]


def _group_by_step(results: Sequence[Mapping[str, Any]]) -> dict[str, StepTimes]:
    of_step: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for round_ in results:
        if not round_["is_warm_up"]:
            of_step[round_["step"]].append(round_)
    return {
        step: StepTimes(
            seconds=Measurement(tuple(round_["seconds"] for round_ in rounds)),
            processor_seconds=Measurement(tuple(round_["processor_seconds"] for round_ in rounds)),
        )
        for step, rounds in of_step.items()
    }
