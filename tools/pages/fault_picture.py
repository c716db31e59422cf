"""Draw the picture of docs/guides/faults.md from a run with faults: `python -m tools.pages.fault_picture RUN`."""

import sys
from pathlib import Path

from sluice.judge import report
from sluice.judge.report import figures
from tools.pages.rehearsal_pictures import picture

_ROOT = Path(__file__).resolve().parents[2]


def draw(folder: Path) -> str:
    """Return the faults of a run as its report shows them."""
    verdict = report.read_verdict(folder)
    series = report.read_series(folder, verdict)
    assert series is not None, "the run has no report: draw it first"
    figure = figures.faults(series, verdict.measures["faults"])
    assert figure is not None, "the run had no faults"
    return picture([figure], columns=1)


if __name__ == "__main__":
    (_ROOT / "docs" / "pictures" / "faults.svg").write_text(draw(Path(sys.argv[1])), encoding="utf-8")
