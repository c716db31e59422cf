"""The faults of one run: the lines its clients go over, what harms them, and what is written down of it."""

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sluice.clock import Clock
from sluice.history.events import Kind, Outcome
from sluice.recorder.journal import Journal
from spark_load.consume import effects
from spark_load.consume.slots import Places
from spark_load.consume.worker_processes import database_files
from spark_load.faults import shapes
from spark_load.faults.drawing import Fault
from spark_load.faults.injector import Held, Injector
from spark_load.faults.lines import Lines
from spark_load.faults.shapes import CONSUME, ENDPOINT, PUBLISH, WIRE, FaultKind, worker_names
from spark_load.runtime.task_context import Run

_END_SECONDS = 30.0


class Harm:
    """What is done to a run. Without faults nothing is, and everybody reaches the endpoint directly."""

    def __init__(self, run: Run, faults: Sequence[Fault[FaultKind]], lines: Lines) -> None:
        self.run, self.faults, self.lines = run, faults, lines
        self._places: Places | None = None
        self._injector: Injector | None = None
        self._thread: threading.Thread | None = None
        self.missed: list[str] = []
        """Faults that were done to nobody, as sentences."""

    def take(self, places: Places) -> None:
        """Take in the places of the workers, once there are any."""
        self._places = places

    def begin(self, begun_us: int, journal: Journal, clock: Clock) -> None:
        """Follow the schedule, which is at 0 at that instant."""
        if not self.faults:
            return

        def record(fault: Fault[FaultKind], began_us: int, ended_us: int, is_met: bool) -> None:  # noqa: FBT001
            if not is_met:
                self.missed.append(fault.brief)
            detail = {
                "fault": fault.brief,
                "kind": fault.kind.value,
                "target": fault.target,
                "how": fault.detail,
                "is_lossy": fault.kind in shapes.LOSSY,
            }
            # What is lost is lost to every queue.
            for queue in self._queues("all" if fault.kind in shapes.LOSSY else fault.target):
                journal.add(
                    kind=Kind.FAULT.value,
                    queue=queue,
                    invoked_at_us=began_us,
                    responded_at_us=ended_us,
                    outcome=(Outcome.OK if is_met else Outcome.FAIL).value,
                    detail=json.dumps(detail),
                )
            journal.flush()

        self._injector = Injector(
            faults=self.faults,
            begun_us=begun_us,
            processes=self,
            lines=self.lines,
            databases=Held(database_files(self.run)),
            record=record,
            clock=clock,
        )
        self._thread = threading.Thread(target=self._injector.run, name="faults", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End every fault, whenever it should have ended."""
        if self._injector is not None and self._thread is not None:
            self._injector.stop()
            self._thread.join(_END_SECONDS)

    def _queues(self, target: str) -> list[str]:
        """Return the queues, or the topic, whose calls a fault of a target concerns."""
        deployment = self.run.deployment
        queues = list(deployment.queue_urls)
        published = queues if self.run.plan.profile.destination == "queue" else [deployment.topic]
        name = target.partition(":")[0]
        if name == PUBLISH:
            return published
        if name == CONSUME:
            return queues
        if name == "all":
            return list(dict.fromkeys([*published, *queues]))
        of_consumer = {consumer: queue for queue, consumer in deployment.consumers.items()}
        return [of_consumer[name] if name in of_consumer else of_consumer[name.rpartition("-")[0]]]

    def harm(self, kind: FaultKind, name: str, detail: str) -> bool:
        """See `Places`; before there are workers there is nobody."""
        return self._places is not None and self._places.harm(kind, name, detail)

    def heal(self, kind: FaultKind, name: str) -> None:
        """See `Places`."""
        if self._places is not None:
            self._places.heal(kind, name)

    def compare(self, journal: Journal) -> list[str]:
        """Write down what only the databases know of, and return what they contradict the history in, as sentences.

        Runs when every worker has ended.
        """
        if not self.faults or self.run.plan.profile.consumer == "raw" or "SLUICE_DSN" in os.environ:
            return []
        reasons = []
        queues = {consumer: queue for queue, consumer in self.run.deployment.consumers.items()}
        for consumer, file in database_files(self.run).items():
            if not file.exists():  # no worker ever began
                continue
            queue = queues[consumer]
            found = effects.effects_in(file)
            known = effects.recorded(sorted(self.run.journals.glob(f"worker-{consumer}-*.arrows")), queue)
            for event in effects.compared(found, known, queue):
                journal.add(**event)
            if gone := effects.undone(found, known):
                reasons.append(
                    f"{len(gone)} effects in {queue} were committed by the history and are not in the database {file},"
                    f" such as {gone[0]}"
                )
            if wrong := effects.out_of_order(found):
                later, before = wrong[0]
                reasons.append(
                    f"{len(wrong)} effects in {file} are out of order, such as {later.idx} of group"
                    f" {later.message_group_id} after {before.idx}"
                )
        journal.flush()
        return reasons


@contextmanager
def harmed(run: Run, faults: Sequence[Fault[FaultKind]]) -> Iterator[Harm]:
    """Yield the harm of a run, whose `run` goes over its lines where the schedule has faults of them."""
    with Lines() as lines:
        if any(fault.kind in WIRE for fault in faults):
            run = replace(run, near=_lines(run, lines))
        harm = Harm(run, faults, lines)
        try:
            yield harm
        finally:
            harm.end()


def _lines(run: Run, lines: Lines) -> Mapping[str, str]:
    """Open a line for everybody, and return the URL of the near end by name."""
    far = run.deployment.endpoint_url
    assert far is not None, "the schedule was checked against it"
    profile = run.plan.profile
    workers = worker_names(list(run.deployment.consumers.values()), profile.consumers_per_queue)
    names = (PUBLISH, *((CONSUME,) if profile.consumer == "raw" else workers))
    return {name: lines.to_endpoint(f"{name}:{ENDPOINT}", far) for name in names}
