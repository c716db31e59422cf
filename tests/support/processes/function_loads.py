"""A load test of a Lambda function: the product's or one with a mistake, its answers judged, and what is done to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from sluice.declaration import Consumer, Lambda
from spark_load.consume import worker_processes
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind
from tests.support.processes import failing_load_handlers, judged_function

FUNCTION = Consumer(
    name="billing",
    handlers="sluice.testing.load.effects",
    visibility_timeout_seconds=30,
    stop_timeout_seconds=3,
    processing_seconds=0.5,
    max_attempts=12,  # no message fails so often: each dead letter is a violation
    runtime=Lambda(batch_size=10, timeout_seconds=5),
)


def _fault(
    kind: FaultKind, target: str, at_seconds: float, lasting: float, detail: str = ""
) -> ScheduledFault[FaultKind]:
    until_seconds = at_seconds + lasting
    return ScheduledFault(kind=kind, target=target, at_seconds=at_seconds, until_seconds=until_seconds, detail=detail)


FUNCTION_FAULTS = (
    _fault(FaultKind.THROTTLE, "billing", 1, 2.5),  # concurrency sinks to none: then batches are full
    _fault(FaultKind.KILL, "billing-0", 5, 0),
    _fault(FaultKind.FREEZE, "billing-1", 4.5, 6),  # longer than its timeout
    _fault(FaultKind.MISREPORT, "billing", 7, 1, "stranger"),
    _fault(FaultKind.TERMINATE, "billing-1", 11, 0),  # concurrency sinks to one
    _fault(FaultKind.MISREPORT, "billing", 12, 1.5, "wrong-key"),
)
"""Kills, a timeout, changes of concurrency and wrong answers while messages come, which is 14 seconds."""


@contextmanager
def judge_answers(folder: Path, mistake: str | None) -> Iterator[None]:
    """Have functions of a load test answer with a mistake, or as the product does, and write their answers down.

    Args:
        folder: where; `judged_function.wrong_answers` reads it.
        mistake: a name of `MISTAKES`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    variables = {judged_function.INVOCATIONS: str(folder)}
    with (
        mock.patch.dict(os.environ, variables if mistake is None else {**variables, judged_function.MISTAKE: mistake}),
        mock.patch.object(worker_processes, "_EFFECTS", failing_load_handlers.__name__),
        mock.patch.object(worker_processes, "_ENTRY_POINT", judged_function.ENTRY_POINT),
    ):
        yield
