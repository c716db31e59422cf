"""The faults of one run: the lines of its clients, the injector, and the records of what the faults did."""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from sluice.clock import Clock, SystemClock
from sluice.errors import EndpointError
from sluice.history.events import CallOutcome, Kind
from sluice.judge import databases
from sluice.recorder.journal import Journal
from spark_load.consume import effects
from spark_load.consume.dead_letters import FAILURES, DeadLetters
from spark_load.consume.slots import Places
from spark_load.consume.worker_processes import MISREPORT, POISON, THROTTLE, database_files, used_databases
from spark_load.faults import shapes
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.injector import DatabaseLocks, Injector, PoisonPlan
from spark_load.faults.lines import Lines
from spark_load.faults.servers import COMMAND_SECONDS_MAX, DSN, Postgres, Restarts
from spark_load.faults.shapes import (
    CONSUME,
    DATABASE,
    ENDPOINT,
    PUBLISH,
    RELAY,
    WIRE,
    FaultKind,
    relay_names,
    worker_names,
)
from spark_load.publish.bodies import epoch_of
from spark_load.publish.processes import Publishers
from spark_load.publish.relays import outbox_file
from spark_load.runtime.task_context import LoadRun

_END_SECONDS = COMMAND_SECONDS_MAX + 30.0  # the end of a restart is awaited, and recorded


class RunHarm:
    """The faults of a run. Without faults nothing is harmed, and everybody reaches the endpoint directly."""

    def __init__(self, run: LoadRun, faults: Sequence[ScheduledFault[FaultKind]], lines: Lines) -> None:
        self.run, self.faults, self.lines = run, faults, lines
        self._workers: Places | None = None
        self._relays: Places | None = None
        self._publishers = Publishers(run.coordinator(SystemClock()))
        self._plans = {
            FaultKind.POISON: PoisonPlan(run.folder / POISON),
            FaultKind.THROTTLE: PoisonPlan(run.folder / THROTTLE),
            FaultKind.MISREPORT: PoisonPlan(run.folder / MISREPORT),
        }
        self._letters: DeadLetters | None = None
        self._injector: Injector | None = None
        self._thread: threading.Thread | None = None
        self._met = set[ScheduledFault[FaultKind]]()

    def take(self, places: Places) -> None:
        """Remember the workers' places, which exist from now on."""
        self._workers = places

    def take_relays(self, places: Places) -> None:
        """Remember the relays' places, which exist from now on."""
        self._relays = places

    def begin(self, begun_us: int, journal: Journal, clock: Clock, letters: DeadLetters | None = None) -> None:
        """Start the injector; `begun_us` is the schedule's second 0. `letters` is needed for faults of kind REDRIVE."""
        if not self.faults:
            return
        self._letters = letters

        def write_gone(fault: ScheduledFault[FaultKind], began_us: int, ended_us: int | None) -> None:
            for queue in self.run.deployment.urls:
                journal.add(
                    kind=Kind.PURGED.value,
                    queue=queue,
                    invoked_at_us=began_us,
                    responded_at_us=ended_us,
                    outcome=(CallOutcome.INFO if ended_us is None else CallOutcome.OK).value,
                    detail=json.dumps({"fault": fault.brief}),
                )

        def announce(fault: ScheduledFault[FaultKind], began_us: int) -> None:
            if (fault.kind, fault.target) == (FaultKind.RESTART, ENDPOINT):
                write_gone(fault, began_us, None)
                journal.flush()

        def record(fault: ScheduledFault[FaultKind], began_us: int, ended_us: int, is_met: bool) -> None:  # noqa: FBT001
            detail = {
                "fault": fault.brief,
                "kind": fault.kind.value,
                "target": fault.target,
                "how": fault.detail,
                "is_lossy": fault.kind in shapes.LOSSY,
            }
            # Also if the restart command failed: the endpoint may have lost its messages nevertheless.
            is_gone = (fault.kind, fault.target) == (FaultKind.RESTART, ENDPOINT)
            # A swallowed publish is lost to every queue, so every queue gets the record.
            for queue in self._queues("all" if fault.kind in shapes.LOSSY else fault.target):
                journal.add(
                    kind=Kind.FAULT.value,
                    queue=queue,
                    invoked_at_us=began_us,
                    responded_at_us=ended_us,
                    outcome=(CallOutcome.OK if is_met else CallOutcome.FAIL).value,
                    detail=json.dumps(detail),
                )
            if is_gone:
                write_gone(fault, began_us, ended_us)
            journal.flush()
            if is_met:
                self._met.add(fault)

        self._injector = Injector(
            faults=self.faults,
            begun_us=begun_us,
            processes=self,
            lines=self.lines,
            databases=DatabaseLocks(database_files(self.run)),
            restarts=Restarts(),
            announce=announce,
            record=record,
            clock=clock,
        )
        self._thread = threading.Thread(target=self._injector.run, name="faults", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End all faults now, and wait for the injector's thread."""
        if self._injector is not None and self._thread is not None:
            self._injector.stop()
            self._thread.join(_END_SECONDS)

    @property
    def missed_faults(self) -> list[str]:
        """Return the faults that hit nothing, or whose time had not come when the run ended, each in a few words."""
        return [fault.brief for fault in self.faults if fault not in self._met]

    def _queues(self, target: str) -> list[str]:
        """Return the queues, or the topic, whose calls a fault of this target affects."""
        deployment = self.run.deployment
        queues = list(deployment.queue_urls)
        published = [deployment.topic] if self.run.plan.profile.has_topic else queues
        name = target.partition(":")[0]
        if name == PUBLISH or self._is_publisher(name) or self._is_relay(name):
            return published
        if name in (CONSUME, DATABASE) or target == f"all:{DATABASE}":
            return queues
        if name in ("all", ENDPOINT):
            return list(dict.fromkeys([*published, *queues]))
        of_consumer = {consumer: queue for queue, consumer in deployment.consumers.items()}
        return [of_consumer[name] if name in of_consumer else of_consumer[name.rpartition("-")[0]]]

    def _is_publisher(self, name: str) -> bool:
        """Return whether a target is a publishing task. A consumer named `publish` has workers of the same names."""
        return shapes.is_publisher(name) and PUBLISH not in self.run.deployment.consumers.values()

    def _is_relay(self, name: str) -> bool:
        relays = relay_names(list(self.run.deployment.consumers.values()))
        return name in relays or (name == RELAY and bool(relays))

    def _places_of(self, name: str) -> Places | None:
        return self._relays if self._is_relay(name) else self._workers

    def harm(self, kind: FaultKind, name: str, detail: str) -> bool:
        """Begin a fault at the worker, relay or publisher of that name; return whether it hit a process.

        Before the workers are started, a fault for them hits nobody. See `Publishers` and `Places`.
        """
        if self._is_publisher(name):
            return self._publishers.harm(kind, name)
        if kind in self._plans:
            self._plans[kind].begin(name, detail)
            return self._workers is not None
        if kind is FaultKind.REDRIVE:
            return self._redrive(name)
        places = self._places_of(name)
        return places is not None and places.harm(kind, name, detail)

    def heal(self, kind: FaultKind, name: str) -> None:
        """End a fault; see `Publishers` and `Places`."""
        if self._is_publisher(name):
            self._publishers.heal(kind, name)
        elif kind in self._plans:
            self._plans[kind].end(name)
        elif (places := self._places_of(name)) is not None:
            places.heal(kind, name)

    def is_rolling(self, name: str) -> bool:
        """Return whether a rolling restart still has processes to restart; see `Places`."""
        places = self._places_of(name)
        return places is not None and places.is_rolling(name)

    def _redrive(self, consumer: str) -> bool:
        """Move a consumer's dead letters back to its queues; return whether messages were moved.

        The DLQs are read first, so that the history has the messages that the move task does not name. False also means
        that the DLQs held no message of this run, or that reading or moving failed.
        """
        dead_letter_queues = self.run.deployment.dead_letter_queues
        dead = [dead_letter_queues[queue] for queue in self._queues(consumer) if queue in dead_letter_queues]
        if self._letters is None:
            return False
        with suppress(*FAILURES):
            found = self._letters.read(keeps=True, queues=dead)
            return any(found.values()) and self._letters.bring_back(dead) > 0
        return False

    def is_all_done(self, letters: DeadLetters) -> bool:
        """Return whether every consumer has handled all messages of the plan, and every queue reports that it is empty.

        Then the driver ends the workers at once. On AWS, whose counters lag behind, it is always False: the workers end
        when no message has come for long.
        """
        run, is_harming = self.run, self._thread is not None and self._thread.is_alive()
        if is_harming or run.services or run.deployment.endpoint_url is None:
            return False
        copies = len(run.deployment.consumers) if run.plan.profile.has_topic else 1
        epoch = epoch_of(run.id)
        with suppress(EndpointError, *FAILURES):
            passed = sum(
                effects.passed_count(url, consumer=consumer, epoch=epoch)
                for consumer, url in used_databases(run).items()
            )
            is_sent = not outbox_file(run).exists() or effects.is_all_sent(outbox_file(run))
            return passed == run.plan.row_count * copies and is_sent and letters.are_queues_empty()
        return False

    def compare(self, journal: Journal, *, is_settled: bool) -> list[str]:
        """Record effects that only the databases know; return sentences about databases that contradict the history.

        Runs when every worker has ended. `is_settled` says that no queue and no DLQ holds a message of the run: then a
        message without an effect is lost.
        """
        if not self.run.writes_effects or self._workers is None:  # no worker ever began
            return []
        reasons = []
        outbox = outbox_file(self.run) if outbox_file(self.run).exists() else None
        queues = {consumer: queue for queue, consumer in self.run.deployment.consumers.items()}
        for consumer, url in used_databases(self.run).items():
            queue, database = queues[consumer], effects.url_text(url)
            try:
                epoch = epoch_of(self.run.id)
                found = effects.effects_in(url, consumer=consumer, epoch=epoch)
                rows = effects.rows_of(url, consumer=consumer, epoch=epoch, effects=found, outbox=outbox)
            except EndpointError as error:
                reasons.append(str(error))
                continue
            known = effects.count_recorded(
                sorted(self.run.journals.glob(f"worker-{consumer}-*.arrows")), queue, self.run.id
            )
            for event in effects.unrecorded_effects(found, known, queue):
                journal.add(**event)
            if gone := effects.missing_effects(found, known):
                reasons.append(
                    f"{len(gone)} effects in {queue} were committed by the history and are not in {database},"
                    f" such as {gone[0]}"
                )
            excused = [each for each in rows.listed if queue not in self.run.gapless_queues or each.state != "filled"]
            judged = replace(rows, is_settled=is_settled, listed=excused)
            if wrong := databases.judge(judged, {consumer: False}).violations:
                reasons.append(f"{database} contradicts a good end {len(wrong)} times, such as by {wrong[0]}")
        journal.flush()
        return reasons


@contextmanager
def harm_run(run: LoadRun, faults: Sequence[ScheduledFault[FaultKind]]) -> Iterator[RunHarm]:
    """Yield the faults of a run; its `run` reaches servers through lines, if the schedule has faults of lines."""
    with Lines() as lines:
        ends = {fault.target.rpartition(":")[2] for fault in faults if fault.kind in WIRE}
        workers = worker_names(list(run.deployment.consumers.values()), run.plan.profile.consumers_per_queue)
        if ENDPOINT in ends:
            far = run.deployment.endpoint_url
            assert far is not None, "`require_possible` refused faults of the network on AWS"
            relays = relay_names(list(run.deployment.consumers.values()))
            names = (PUBLISH, *relays, *((CONSUME,) if run.plan.profile.consumer == "raw" else workers))
            run = replace(run, near={name: lines.to_endpoint(f"{name}:{ENDPOINT}", far) for name in names})
        if DATABASE in ends:
            server = Postgres.of(os.environ.get(DSN))
            assert server is not None, "only a Postgres has faults of lines to a database"
            near = {name: server.behind(lines, f"{name}:{DATABASE}") for name in workers}
            run = replace(run, near_databases=near)
        harm = RunHarm(run, faults, lines)
        try:
            yield harm
        finally:
            harm.end()
