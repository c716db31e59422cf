"""A chaos run proves nothing unless all of its faults were done."""

from pathlib import Path
from typing import Any, cast

import pytest

from spark_load.consume.slots import Places
from spark_load.faults.shapes import FaultKind
from tests.chaos.run import Run
from tests.chaos.settings import Settings


class _Unrestartable:
    """A database at which the thread that does the faults ends."""

    def begin(self, _target: str) -> None:
        raise RuntimeError("no such server")

    def end(self, _target: str) -> bool:
        return False


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_faults_that_nobody_does_any_more_are_reported(tmp_path: Path) -> None:
    settings = Settings(seconds=2.0, every_seconds=0.1, kinds=(FaultKind.RESTART,), commits=0, producers=0)
    nothing, database = cast("Any", None), cast("Any", _Unrestartable())
    run = Run(settings=settings, emulated=nothing, database=database, folder=tmp_path, print_progress=print)
    run.places = [Places({}, nothing, is_harmed=lambda: True, clock=run.clock)]
    run._printed_at = run._begun_at = run.clock.monotonic()

    with run.lines:
        unknown = run._harm()

    assert unknown == f"0 of {len(settings.faults)} faults were done, and then no more: who does them ended before"
