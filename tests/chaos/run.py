"""One run: processes, lines and faults by the schedule; then nothing is harmed, everything drains, and is judged."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import cast

from sqlalchemy.exc import DBAPIError

from emulator import localstack
from sluice.clock import SystemClock
from sluice.declaration import Environment, Gaps, naming, task_settings
from sluice.judge.checker.verdict import PropertyStatus, compose
from sluice.judge.databases import Judgement, judge
from sluice.messaging.database import engines
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.testing.load import function, poison
from spark_load.consume.forked_worker import ForkedWorker, FunctionWorker
from spark_load.consume.slots import Place, Places
from spark_load.consume.worker_processes import stop
from spark_load.faults import drawing, injector
from spark_load.faults.injector import DatabaseLocks, Injector
from spark_load.faults.lines import Lines
from spark_load.faults.servers import Postgres
from spark_load.faults.shapes import FUNCTION, RELAY, FaultKind
from spark_load.faults.signals import send_signal
from tests.chaos.settings import CONSUMERS, PRODUCER, Fault, Settings, environment
from tests.chaos.system import bundles, calls, evidence, producers, world_faults
from tests.chaos.system.database import ChaosDatabase
from tests.chaos.system.evidence import Progress
from tests.chaos.system.world_faults import WorldFault
from tests.support.processes import judged_function
from tests.support.processes.worker_processes import WorkerFleet

_TICK_SECONDS = 0.1
_REPORT_SECONDS = 5.0
_OPERATE_SECONDS = 4.0
_END_SECONDS = 60.0
_LEASE_SECONDS = 25  # the least a relay takes
_SCHEDULE_SECONDS, _START_SECONDS = 2.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report on a finished run.

    Args:
        judgement: of the judge.
        commits: transactions of the producers that were committed.
        events: what they put into the outbox.
        rolled_back: events that were rolled back.
        done: effects, by consumer.
        inboxes: what the inboxes wrote down of single numbers, by consumer and state.
        faults: what was done, by kind.
        missed: faults that met nobody.
        wire: what happened on the lines.
        exits: how processes ended, by role.
        started: processes that were started, by role.
        seconds: of schedule and drain.
        messages: what was sent, by the count of its events; only with bundles.
        failed: events on which handlers failed, by their place in a bundle.
        died: events that died, by their place in a bundle.
        objections: what is wrong with answers of functions, or with bundles, as sentences.
        unknown: why the run is no proof; None when it is.
    """

    judgement: Judgement
    commits: int
    events: int
    rolled_back: int
    done: dict[str, int]
    inboxes: dict[str, int]
    faults: dict[str, int]
    missed: tuple[str, ...]
    wire: dict[str, int]
    exits: dict[str, int]
    started: dict[str, int]
    seconds: float
    messages: Mapping[int, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    died: Mapping[str, int] = field(default_factory=dict)
    objections: Sequence[str] = ()
    unknown: str | None = None

    @property
    def status(self) -> PropertyStatus:
        """Return the verdict."""
        objected = PropertyStatus.INVALID if self.objections else PropertyStatus.VALID
        drained = PropertyStatus.VALID if self.unknown is None else PropertyStatus.UNKNOWN
        return compose([self.judgement.status, objected, drained])


@dataclass(slots=True)
class Run:
    """A run that is under way.

    Args:
        settings: of it.
        emulated: the endpoint.
        database: everybody's.
        folder: for logs and journals.
        print_progress: is told how far it is, in a line.
    """

    settings: Settings
    emulated: localstack.Emulator
    database: ChaosDatabase
    folder: Path
    print_progress: Callable[[str], None]
    environment: Environment = field(init=False)
    plans: dict[FaultKind | WorldFault, injector.PoisonPlan] = field(init=False)
    places: list[Places] = field(default_factory=list)
    operators: list[ForkedWorker] = field(default_factory=list)
    lines: Lines = field(default_factory=Lines)
    clock: SystemClock = field(default_factory=SystemClock)
    _tap_url: str | None = None
    _commands: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    _faults: Counter[str] = field(default_factory=Counter)
    _missed: list[str] = field(default_factory=list)
    _printed_at: float = 0.0
    _begun_at: float = 0.0

    def __post_init__(self) -> None:
        self.environment = environment(self.settings)
        poisoned = injector.PoisonPlan(self.folder / "poison")
        self.plans = {kind: injector.PoisonPlan(self.folder / kind.value) for kind in FUNCTION}
        self.plans |= {FaultKind.POISON: poisoned, WorldFault.MISDEED: poisoned}

    def work(self) -> Report:
        """Run the schedule from its beginning to its end; no process is left running."""
        for name in ("logs", "tried", "invocations", "calls"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            worker_fleet = WorkerFleet(self.database.engine, self.emulated, self.folder / "workshop", self.environment)
            stack.callback(worker_fleet.close)
            stack.enter_context(self.lines)
            stack.callback(self._kill_all)
            if self.settings.has_bundles:
                self._tap_url = worker_fleet.tap("every-message")
            for name, role in self.settings.services.items():
                module = self.settings.modules.relay if role == RELAY else self.settings.modules.worker
                self._commands[name] = module, self._service(name, role)
            self._fill(self.settings.services)
            if not self.settings.is_cold:
                self._warm_up()
            if self.settings.has_bundles:
                self._switch_bundles_on()
            self._begun_at = self.clock.monotonic()
            self._start_producers()
            unknown = self._harm()
            may_settle = unknown is None
            unknown = unknown or self._drain(worker_fleet)
            stop([process for _, process in self.places[0].processes], self.clock)
            return self._report(worker_fleet, unknown, may_settle=may_settle)

    def _switch_bundles_on(self) -> None:
        """Let relays bundle from here on: the warm-up of a worker that loses events of bundles would have no end."""
        operator = OutboxOperator(actor="chaos", reason="chaos", topic=naming.topic_name(self.environment))
        with self.database.engine.begin() as connection:
            operator.switch_bundles(connection, self.settings.bundle_events_max)

    # --- processes ----------------------------------------------------------------------------------------------------

    def _fill(self, names: dict[str, str]) -> None:
        places = Places(names, self._start, is_harmed=lambda: True, clock=self.clock)
        self.places.append(places)
        places.fill()

    def _start(self, place: Place, name: str) -> ForkedWorker:
        module, arguments = self._commands[place.name]
        return self._run(name, arguments, module=module, consumer=place.consumer)

    def _run(self, name: str, arguments: list[str], *, module: str = "sluice", consumer: str = "") -> ForkedWorker:
        variables = localstack.with_endpoint(self.emulated) | {
            "SLUICE_ENV": self.environment.name,
            "SLUICE_DSN": self._dsn,
            task_settings.VARIABLE: task_settings.render(self.environment),
            poison.VARIABLE: str(self.plans[FaultKind.POISON].file(consumer)),
            function.VARIABLE: str(self.plans[FaultKind.MISREPORT].file(consumer)),
            judged_function.INVOCATIONS: str(self.folder / "invocations"),
            calls.VARIABLE: str(self.folder / "calls"),
        }
        if self.settings.modules.mistake is not None:
            variables |= {judged_function.MISTAKE: self.settings.modules.mistake}
        return (FunctionWorker if arguments[0] == "lambda" else ForkedWorker)(
            arguments, environment=variables, log=self.folder / "logs" / f"{name}.log", module=module
        )

    def _service(self, name: str, role: str) -> list[str]:
        what = ["relay", "--lease", str(_LEASE_SECONDS)] if role == RELAY else self._consuming(role)
        endpoint = self.lines.to_endpoint(f"{name}:endpoint", self.emulated.endpoint_url)
        return [*what, "--dsn", self._near_database(name), "--endpoint-url", endpoint]

    def _consuming(self, consumer: str) -> list[str]:
        if self.settings.modules.function is None:
            return ["worker", "--consumer", consumer]
        throttled = ["--throttled-while", str(self.plans[FaultKind.THROTTLE].file(consumer))]
        entry = ["--entry-point", judged_function.ENTRY_POINT, "--start-timeout", f"{_START_SECONDS:g}"]
        entry += ["--schedule", f"{_SCHEDULE_SECONDS:g}"]
        return ["lambda", "local", "--consumer", consumer, *entry, *throttled]

    @property
    def _dsn(self) -> str:
        return self.database.engine.url.render_as_string(hide_password=False)

    def _near_database(self, name: str) -> str:
        """Open a process's line to the Postgres, and return the DSN of its near end."""
        server = Postgres.of(self._dsn)
        assert server is not None, "the run's own is one"
        return server.behind(self.lines, f"{name}:database")

    @property
    def _groups(self) -> tuple[str, ...]:
        return tuple(f"group-{number}" for number in range(self.settings.groups))

    def _task(
        self, name: str, groups: tuple[str, ...], *, commits: int = 1, seconds: float = 0.0, dsn: str
    ) -> producers.Task:
        return producers.Task(
            name=name,
            seed=self.settings.seed,
            commits=commits,
            begins_at_us=self.clock.now_us(),
            seconds=seconds,
            groups=groups,
            batch_events_max=self.settings.batch_events_max,
            topic=naming.topic_name(self.environment),
            dsn=dsn,
            journal=str(self.folder / "tried"),
        )

    def _start_producers(self) -> None:
        names = self.settings.producer_names
        for place, name in enumerate(names):
            commits = len(range(place, self.settings.commits, len(names)))
            near = self._near_database(name)
            task = self._task(name, self._groups, commits=commits, seconds=self.settings.seconds, dsn=near)
            self._commands[name] = self.settings.modules.producer, [task.as_json()]
        self._fill(dict.fromkeys(names, PRODUCER))

    def _warm_up(self) -> None:
        """Have every consumer begin every group before anything is harmed."""
        for number, group in enumerate(self._groups):
            task = self._task(f"warm-up-{number}", (group,), dsn=self._dsn)
            producers.produce(replace(task, batch_events_max=1))
        self._until(lambda progress: progress.is_done(CONSUMERS), "warm-up", self.settings.drain_seconds)

    def _all(self) -> Iterator[tuple[str, ForkedWorker]]:
        """Yield every process there ever was, with its role."""
        for places in self.places:
            yield from places.processes
        yield from (("operator", process) for process in self.operators)

    def _kill_all(self) -> None:
        for _, process in self._all():
            process.kill()
        for _, process in self._all():
            process.wait(_END_SECONDS)

    # --- what the injector does to processes, and the operator --------------------------------------------------------

    def harm(self, kind: FaultKind | WorldFault, name: str, detail: str) -> bool:
        """Begin a fault; return whether it had a process or a database to harm."""
        if kind in self.plans:
            self.plans[kind].begin(name, detail)
            return True
        match kind:
            case WorldFault.SETTING:
                self.database.setup.begin(detail)
                return True
            case WorldFault.CROWD:
                return self.database.setup.crowd()
            case WorldFault.SIGNALS:
                return self._signal(name, world_faults.SIGNALS[detail])
        if kind is FaultKind.REDRIVE:
            return self._operate(name)
        assert isinstance(kind, FaultKind), kind
        return any(places.harm(kind, name, detail) for places in self.places)

    def _signal(self, name: str, numbers: Sequence[signal.Signals]) -> bool:
        """Send signals to a process, one right after the other; another process follows it."""
        place = next(place for places in self.places for place in places.all if place.name == name)
        last = place.worked[-1]
        if last.poll() is not None:
            return False
        place.is_replaced = True
        return all(send_signal(last.pid, number) for number in numbers)

    def heal(self, kind: FaultKind | WorldFault, name: str) -> None:
        """End a fault, if it is of a kind that lasts."""
        if kind in self.plans:
            self.plans[kind].end(name)
        if kind is WorldFault.SETTING:
            self.database.setup.end()
        if kind is WorldFault.CROWD:
            self.database.setup.disperse()
        if isinstance(kind, FaultKind):
            for places in self.places:
                places.heal(kind, name)

    def is_rolling(self, name: str) -> bool:
        """Return whether some processes of this service are still to be restarted, one after the other."""
        return any(places.is_rolling(name) for places in self.places)

    def _operate(self, consumer: str) -> bool:
        """Have an operator redrive a consumer's DLQ, and send some messages again; return whether that was begun."""
        try:
            with engines.reading(self.database.engine) as connection:
                sent = evidence.sent_numbers(connection)
        except DBAPIError as error:  # an operator, too, may find the database away
            self.print_progress(f"the operator could not: {error.orig}")
            return False
        self._command("dlq", "redrive", "--consumer", consumer, "--yes")
        rng = Random(f"resend/{self.settings.seed}/{len(self.operators)}")  # noqa: S311 (no secret)
        for group, seq in rng.sample(sent, k=min(3, len(sent))):
            self._command("outbox", "resend", group, str(seq), "--reason", "chaos", "--yes")
        return True

    def _command(self, *arguments: str) -> None:
        self.operators.append(self._run(f"operator-{len(self.operators)}", list(arguments)))

    def _write_down(self, fault: Fault, _began_us: int, _ended_us: int, is_met: bool) -> None:  # noqa: FBT001
        self._faults[fault.kind.value] += 1
        if not is_met:
            self._missed.append(fault.brief)

    # --- the phases ---------------------------------------------------------------------------------------------------

    def _harm(self) -> str | None:
        """Follow the schedule until it is over and all is committed; return why that did not happen."""
        following = Injector(
            # It hands over what it does not know.
            faults=cast("Sequence[drawing.ScheduledFault[FaultKind]]", self.settings.faults),
            begun_us=self.clock.now_us(),
            processes=self,
            lines=self.lines,
            databases=DatabaseLocks({}),
            restarts=self.database,
            record=self._write_down,
            clock=self.clock,
        )
        thread = threading.Thread(target=following.run, name="faults", daemon=True)
        thread.start()
        seconds_max = self.settings.seconds + self.settings.drain_seconds
        try:
            while thread.is_alive() or self.places[-1].tend():
                if self.clock.monotonic() - self._begun_at > seconds_max:
                    return f"producers or faults came to no end in {seconds_max:g} s"
                self._tick(f"{self._faults.total()} of {len(self.settings.faults)} faults")
        finally:
            following.stop()
            thread.join(_END_SECONDS)
        if (done := self._faults.total()) < (count := len(self.settings.faults)):
            return f"{done} of {count} faults were done, and then no more: who does them ended before"
        return None

    def _drain(self, worker_fleet: WorkerFleet) -> str | None:
        """Bring back what died until everything is done and every queue is empty; return why that did not happen."""
        operated_at = float("-inf")

        def is_drained(progress: Progress) -> bool:
            nonlocal operated_at
            now = self.clock.monotonic()
            is_busy = any(process.poll() is None for process in self.operators)
            if not is_busy and now - operated_at >= _OPERATE_SECONDS:
                operated_at = now
                self._bring_back(worker_fleet)
            return progress.is_done(CONSUMERS) and not self._is_anything_queued(worker_fleet)

        try:
            self._until(is_drained, "draining", self.settings.drain_seconds)
            self._until(is_drained, "looking again", self.settings.drain_seconds)
        except _StuckError as stuck:
            return str(stuck)
        return None

    def _bring_back(self, worker_fleet: WorkerFleet) -> None:
        for consumer, url in worker_fleet.dead_letter_urls.items():
            if any(worker_fleet.counts(url)):
                self._command("dlq", "redrive", "--consumer", consumer, "--yes")
        for consumer, group, seq in evidence.held_messages(self.database.engine):
            self._command("dlq", "retry", group, str(seq), "--consumer", consumer, "--reason", "chaos", "--yes")

    def _is_anything_queued(self, worker_fleet: WorkerFleet) -> bool:
        urls = [*worker_fleet.urls.values(), *worker_fleet.dead_letter_urls.values()]
        return any(any(worker_fleet.counts(url)) for url in urls)

    def _until(self, is_over: Callable[[Progress], bool], doing: str, seconds_max: float) -> None:
        """Tend to the processes until it is over, as long as anything changes."""
        seen, changed_at = "", self.clock.monotonic()
        while not is_over(progress := evidence.progress(self.database.engine)):
            now, shown = self.clock.monotonic(), _progress_text(progress)
            if shown != seen:
                seen, changed_at = shown, now
            elif now - changed_at > seconds_max:
                raise _StuckError(f"{doing} came to no end: nothing changed for {seconds_max:g} s ({shown})")
            for _ in range(5):
                self._tick(doing)

    def _tick(self, doing: str) -> None:
        for places in self.places:
            places.tend()
        now = self.clock.monotonic()
        if now - self._printed_at >= _REPORT_SECONDS:
            self._printed_at = now
            try:
                shown = _progress_text(evidence.progress(self.database.engine))
            except DBAPIError:
                shown = "the database is away"
            self.print_progress(f"{max(0.0, now - (self._begun_at or now)):5.0f} s, {doing}: {shown}")
        self.clock.sleep(_TICK_SECONDS)

    def _report(self, worker_fleet: WorkerFleet, unknown: str | None, *, may_settle: bool) -> Report:
        """Return what became of it; what stands still with every queue empty is settled, drained or not."""
        tried = producers.read_journal_states(self.folder / "tried")
        dead = evidence.dead_letters(worker_fleet.sqs, worker_fleet.dead_letter_urls)
        unsent = evidence.progress(self.database.engine).unsent
        is_settled = may_settle and not (dead or unsent or self._is_anything_queued(worker_fleet))
        found = evidence.gather(self.database.engine, tried, dead, is_settled=is_settled)
        if self.settings.modules.function is not None or self.settings.has_bundles:
            # No receive is an attempt, so no number is ever missing.
            found = replace(found, listed=[listed for listed in found.listed if listed.state != "filled"])
        objections = judged_function.wrong_answers(self.folder / "invocations")
        called, sent = tuple(calls.read(self.folder / "calls")), list[bundles.SentMessage]()
        if self._tap_url is not None:
            sent = evidence.take_messages(worker_fleet.sqs, self._tap_url)
            resent = evidence.resent_ids(self.database.engine)
            objections += bundles.objections(
                sent, found, called, resent, evidence.events_from_dlqs(self.database.engine)
            )
        sizes, failed = bundles.sizes(sent), bundles.count_places(sent, bundles.failed_events(called))
        if self.settings.has_bundles:
            unknown = unknown or bundles.why_no_proof(sizes, failed)
        crashed = [process for places in self.places for place in places.all for process in place.crashed]
        return Report(
            judgement=judge(found, {name: gaps is Gaps.HALT for name, (_, gaps) in CONSUMERS.items()}),
            commits=evidence.commits(self.database.engine),
            events=len(found.committed),
            rolled_back=len(found.rolled_back),
            done=dict(Counter(done.consumer for done in found.done)),
            inboxes=dict(Counter(f"{listed.consumer}: {listed.state}" for listed in found.listed)),
            faults=dict(self._faults),
            missed=tuple(self._missed),
            wire=dict(self.lines.counts),
            exits=dict(
                Counter(
                    f"{role}: exit code {process.poll()}{', by itself' if process in crashed else ''}"
                    for role, process in self._all()
                )
            ),
            started=dict(Counter(role for role, _ in self._all())),
            seconds=round(self.clock.monotonic() - self._begun_at, 1),
            messages=sizes,
            failed=failed,
            died=bundles.count_places(sent, bundles.dead_events(found)),
            objections=objections,
            unknown=unknown,
        )


class _StuckError(Exception):
    """Raised when nothing changes any more."""


def _progress_text(progress: Progress) -> str:
    done = ", ".join(f"{name} {progress.done.get(name, 0)}" for name in CONSUMERS)
    return f"{progress.committed} events committed, {progress.unsent} not sent, {progress.parked} set aside; {done}"
