"""Draw the picture of docs/guides/traces.md from invented runs: `python -m tools.pages.trend_picture`."""

from pathlib import Path

import numpy as np

from sluice.judge.checker.verdict import PropertyStatus
from spark_load.baselines import page
from spark_load.baselines.results import RunResult
from spark_load.baselines.trend import trend
from tools.pages.rehearsal_pictures import picture

_ROOT = Path(__file__).resolve().parents[2]
_USUAL = {"billing p50": 0.14, "billing p95": 0.24, "shipping p50": 0.14, "shipping p95": 0.24}
_RUNS, _SLOW = 24, 3
_NOISE = 0.04
_RATIO = 1.3


def draw() -> str:
    """Return the trend of random runs; the newest three are slower in one queue."""
    random = np.random.default_rng(8)
    runs = []
    for number in range(_RUNS):
        factors = np.exp(random.normal(0, _NOISE, 1 + len(_USUAL)))
        slow = {name: _RATIO if number >= _RUNS - _SLOW and "billing" in name else 1 for name in _USUAL}
        seconds = {
            name: usual * slow[name] * float(factors[0] * factor)
            for (name, usual), factor in zip(_USUAL.items(), factors[1:], strict=True)
        }
        runs.append(
            RunResult(
                run=f"run-{number}",
                profile_name="smoke",
                profile_digest="",
                kind={},
                status=PropertyStatus.VALID,
                seconds=seconds,
                versions={},
            )
        )
    rows = trend(runs[-1], runs, last=20).rows
    return picture([page.figure(row, number) for number, row in enumerate(rows)], columns=2)


if __name__ == "__main__":
    (_ROOT / "docs" / "pictures" / "trend.svg").write_text(draw(), encoding="utf-8")
