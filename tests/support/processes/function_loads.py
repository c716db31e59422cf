"""A load test of a Lambda function: the product's or one with a mistake, its answers judged, and what is done to it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest import mock

from sluice.declaration import Consumer, Lambda
from spark_load.consume import worker_processes
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind, worker_names
from tests.support.processes import failing_load_handlers, judged_function

FUNCTION = Consumer(
    name="billing",
    handlers="sluice.testing.load.effects",
    visibility_timeout_seconds=18,
    stop_timeout_seconds=3,
    processing_seconds=0.3,
    max_attempts=12,  # no message fails so often: each dead letter is a violation
    runtime=Lambda(batch_size=10, timeout_seconds=3),
)
_POLLERS = worker_names([FUNCTION.name], 2)
_MESSAGES, _GROUPS, _PAUSE_US = 48, 8, 125_000  # fewer of a group than a batch takes: batches are of several groups


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLoad:
    """Messages for a function, and what is done to it meanwhile.

    Args:
        messages: when each is published, in microseconds, and the number of its group.
        faults: in the order they begin.
    """

    messages: Sequence[tuple[int, int]]
    faults: Sequence[ScheduledFault[FaultKind]]

    @classmethod
    def of_seed(cls, seed: int) -> "FunctionLoad":
        """Return the load of a seed: first concurrency sinks to none, so that batches are full; then comes the rest.

        The seed draws the messages' groups, the order of the last four faults, and the poller that each hits.
        """
        rng = Random(f"function/{seed}")  # noqa: S311 (a load is not a secret)
        messages = [(number * _PAUSE_US, rng.randrange(_GROUPS)) for number in range(_MESSAGES)]
        killed, ended = rng.sample(_POLLERS, 2)
        rest = [
            (FaultKind.KILL, killed, 0, ""),
            (FaultKind.TERMINATE, ended, 0, ""),  # concurrency sinks to one
            (FaultKind.MISREPORT, FUNCTION.name, 2, "stranger"),
            (FaultKind.MISREPORT, FUNCTION.name, 2, "wrong-key"),
        ]
        rng.shuffle(rest)
        faults, at_seconds = list[ScheduledFault[FaultKind]](), 0.5
        for kind, target, lasting, detail in ((FaultKind.THROTTLE, FUNCTION.name, 2, ""), *rest):
            until_seconds = at_seconds + lasting
            faults.append(
                ScheduledFault(
                    kind=kind, target=target, at_seconds=at_seconds, until_seconds=until_seconds, detail=detail
                )
            )
            at_seconds = until_seconds + 1
        return cls(messages=messages, faults=faults)


@contextmanager
def judge_answers(folder: Path, mistake: str | None) -> Iterator[None]:
    """Have functions of a load test answer with a mistake, or as the product does, and write their answers down.

    Args:
        folder: where; `judged_function.wrong_answers` reads it.
        mistake: a name of `MISTAKES`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    variables = {judged_function.INVOCATIONS: str(folder), failing_load_handlers.MARKS: str(folder)}
    with (
        mock.patch.dict(os.environ, variables if mistake is None else {**variables, judged_function.MISTAKE: mistake}),
        mock.patch.object(worker_processes, "_EFFECTS", failing_load_handlers.__name__),
        mock.patch.object(worker_processes, "_ENTRY_POINT", judged_function.ENTRY_POINT),
    ):
        yield
