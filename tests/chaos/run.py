"""One run: processes, lines and faults by the schedule; then nothing is harmed, everything drains, and is judged."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from sqlalchemy.exc import DBAPIError

from emulator import localstack
from sluice.clock import SystemClock
from sluice.declaration import Consumer, Environment, Gaps, Poison, Removal, naming
from sluice.messaging.database import engines
from spark_load.faults.lines import Lines
from tests.chaos.faults.injector import Injector
from tests.chaos.faults.schedule import KINDS, POISONS, AnyKind, Fault, Kind, Targets, schedule
from tests.chaos.judging import evidence
from tests.chaos.judging.evidence import Progress
from tests.chaos.judging.judge import Judgement, judge
from tests.chaos.system import fleet, producers
from tests.chaos.system.database import Database
from tests.chaos.system.fleet import OPERATOR, PRODUCER, RELAY, Fleet, Slot
from tests.chaos.system.handlers import HEALED, heal, healed_count
from tests.support.processes.worker_processes import WorkerFleet

_TICK_SECONDS = 0.1
_REPORT_SECONDS = 5.0
_OPERATE_SECONDS = 4.0
_HEALED = 1_000_000
_RELAYS = 2
_LEASE_SECONDS = 25  # the least a relay takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run is like.

    Args:
        seed: of faults and commits.
        commits: transactions of all producers together.
        seconds: of the schedule, over which the commits are spread.
        every_seconds: mean time between two faults.
        kinds: of faults.
        poison_share: share of commits that are poison to a consumer.
        groups: message groups.
        producers: processes.
        workers: processes of each consumer.
        drain_seconds: how long nothing may change while everything is to drain.
        handlers: module of the consumers' handlers.
        is_cold: let the faults begin before any group is known to any inbox.
    """

    seed: int = 1
    commits: int = 1_000
    seconds: float = 60.0
    every_seconds: float = 1.5
    kinds: tuple[AnyKind, ...] = KINDS
    poison_share: float = 0.01
    groups: int = 24
    producers: int = 4
    workers: int = 2
    drain_seconds: float = 90.0
    handlers: str = "tests.chaos.system.handlers"
    is_cold: bool = False

    @property
    def targets(self) -> Targets:
        """Return what there is to be harmed."""
        processes = {
            PRODUCER: [f"{PRODUCER}-{number}" for number in range(self.producers)],
            RELAY: [f"{RELAY}-{number}" for number in range(_RELAYS)],
            **{name: [f"{name}-{number}" for number in range(self.workers)] for name in CONSUMERS},
        }
        named = [name for names in processes.values() for name in names]
        calling = [name for name in named if not name.startswith(PRODUCER)]
        lines = {
            "database": [f"{name}:database" for name in named],
            "endpoint": [f"{name}:endpoint" for name in calling],
        }
        return Targets(processes=processes, lines=lines, consumers=tuple(CONSUMERS))

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Return the schedule."""
        return schedule(
            seed=self.seed,
            seconds=self.seconds,
            every_seconds=self.every_seconds,
            kinds=self.kinds,
            targets=self.targets,
        )

    @property
    def poisons(self) -> tuple[Kind, ...]:
        """Return the kinds of poison."""
        return tuple(kind for kind in POISONS if kind in self.kinds)


CONSUMERS = {
    "audit": (Poison.SKIP, Gaps.RECORD),
    "ledger": (Poison.PARK, Gaps.HALT),
    "shipping": (Poison.PARK, Gaps.WAIT),
}
"""Consumers, and what each does when a message is dead or missing."""


def environment(settings: Settings) -> Environment:
    """Return the environment of a run: messages come again soon, five seconds after their worker died."""
    consumers = tuple(
        Consumer(
            name=name,
            handlers=settings.handlers,
            visibility_timeout_seconds=5,
            stop_timeout_seconds=4,
            processing_seconds=0.5,
            max_attempts=4,
            lanes=3,
            poison=poison,
            gaps=gaps,
            gap_wait_seconds=8,
        )
        for name, (poison, gaps) in CONSUMERS.items()
    )
    name = f"chaos{settings.seed}x{SystemClock().now_us() % 1_000_000}"
    return Environment(name=name, account="000000000000", removal=Removal.DESTROY, consumers=consumers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of a run.

    Args:
        judgement: of the judge.
        commits: transactions of the producers that were committed.
        events: what they put into the outbox.
        rolled_back: events that were rolled back.
        done: effects, by consumer.
        poison: events that were poison to a consumer, by kind.
        inboxes: what the inboxes wrote down of single numbers, by consumer and state.
        faults: what was done, by kind.
        wire: what happened on the lines.
        exits: how processes ended, by role.
        started: processes that were started, by role.
        seconds: of schedule and drain.
        unknown: why the run is no proof; None when it is.
    """

    judgement: Judgement
    commits: int
    events: int
    rolled_back: int
    done: dict[str, int]
    poison: dict[str, int]
    inboxes: dict[str, int]
    faults: dict[str, int]
    wire: dict[str, int]
    exits: dict[str, int]
    started: dict[str, int]
    seconds: float
    unknown: str | None = None


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
    emulated: localstack.Running
    database: Database
    folder: Path
    print_progress: Callable[[str], None]
    environment: Environment = field(init=False)
    fleet: Fleet = field(default_factory=Fleet)
    lines: Lines = field(default_factory=Lines)
    clock: SystemClock = field(default_factory=SystemClock)
    _operations: int = 0
    _printed_at: float = 0.0
    _begun_at: float = 0.0

    def __post_init__(self) -> None:
        self.environment = environment(self.settings)

    def work(self) -> Report:
        """Run it from its beginning to its end; nothing is left running."""
        for name in ("logs", "tried"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        fleet.preload()
        with ExitStack() as stack:
            worker_fleet = WorkerFleet(self.database.engine, self.emulated, self.folder / "workshop", self.environment)
            stack.callback(worker_fleet.close)
            stack.enter_context(self.lines)
            stack.enter_context(self.fleet)
            self._start_services()
            if not self.settings.is_cold:
                self._warm_up()
            self._begun_at = self.clock.monotonic()
            self._start_producers()
            injector = Injector(self.settings.faults, self.fleet, self.lines, self.database, self._operate)
            try:
                unknown = self._harm(injector)
            finally:
                injector.end_all()
            may_settle = unknown is None
            unknown = unknown or self._drain(worker_fleet)
            codes = Counter(
                f"{role}: exit code {code}, at the end"
                for role in (RELAY, *CONSUMERS)
                for code in self.fleet.stop(role)
            )
            return self._report(worker_fleet, injector, codes, unknown, may_settle=may_settle)

    # --- processes ----------------------------------------------------------------------------------------------------

    def _start_services(self) -> None:
        targets = self.settings.targets
        for name in targets.processes[RELAY]:
            self._serve(name, RELAY, "relay", "--lease", str(_LEASE_SECONDS))
        for consumer in CONSUMERS:
            for name in targets.processes[consumer]:
                self._serve(name, consumer, "worker", "--consumer", consumer)

    def _serve(self, name: str, role: str, *arguments: str) -> None:
        near = (
            "--dsn",
            self._near_database(name),
            "--endpoint-url",
            self.lines.to_endpoint(f"{name}:endpoint", self.emulated.endpoint_url),
        )
        self.fleet.add(self._slot(name, role, *arguments, *near))

    def _near_database(self, name: str) -> str:
        """Open a process's line to the Postgres, which listens at a Unix socket, and return the DSN of its near end."""
        url = self.database.engine.url
        port = self.lines.to_socket(f"{name}:database", f"{url.query['host']}/.s.PGSQL.{url.port or 5432}")
        near = url.difference_update_query(["host"]).set(host="127.0.0.1", port=port)
        return near.render_as_string(hide_password=False)

    def _slot(self, name: str, role: str, *arguments: str) -> Slot:
        dsn = self.database.engine.url.render_as_string(hide_password=False)
        variables = localstack.with_endpoint(self.emulated) | {
            "SLUICE_ENV": self.environment.name,
            "SLUICE_DSN": dsn,
            HEALED: str(self._healed),
        }
        log = self.folder / "logs" / f"{name}.log"
        return Slot(name, role, log, fleet.run_command, arguments, variables, self.environment)

    @property
    def _groups(self) -> tuple[str, ...]:
        return tuple(f"group-{number}" for number in range(self.settings.groups))

    @property
    def _healed(self) -> Path:
        return self.folder / "healed"

    def _task(self, name: str, *, commits: int, seconds: float, dsn: str, poisons: tuple[Kind, ...]) -> producers.Task:
        return producers.Task(
            name=name,
            seed=self.settings.seed,
            commits=commits,
            begins_at_us=self.clock.now_us(),
            seconds=seconds,
            groups=self._groups,
            consumers=tuple(CONSUMERS),
            poisons=poisons,
            poison_share=self.settings.poison_share,
            mended_at_seconds=tuple(fault.at_seconds for fault in self.settings.faults if fault.kind is Kind.REDRIVE),
            topic=naming.topic_name(self.environment),
            dsn=dsn,
            journal=self.folder / "tried",
        )

    def _start_producers(self) -> None:
        names = self.settings.targets.processes[PRODUCER]
        for place, name in enumerate(names):
            task = self._task(
                name,
                commits=len(range(place, self.settings.commits, len(names))),
                seconds=self.settings.seconds,
                dsn=self._near_database(name),
                poisons=self.settings.poisons,
            )
            self.fleet.add(Slot(name, PRODUCER, self.folder / "logs" / f"{name}.log", producers.produce, task))

    def _warm_up(self) -> None:
        """Have every consumer begin every group before anything is harmed."""
        dsn = self.database.engine.url.render_as_string(hide_password=False)
        for number, group in enumerate(self._groups):
            task = self._task(f"warm-up-{number}", commits=1, seconds=0, dsn=dsn, poisons=())
            producers.produce(task.only(group))
        self._until(lambda progress: progress.is_done(CONSUMERS), "warm-up", self.settings.drain_seconds)

    # --- the operator -------------------------------------------------------------------------------------------------

    def _operate(self, fault: Fault) -> None:
        """Do what the schedule has an operator do."""
        if fault.kind is Kind.REDRIVE:
            heal(self._healed, healed_count(self._healed) + 1)
            self._command("dlq", "redrive", "--consumer", fault.target, "--yes")
            return
        with engines.reading(self.database.engine) as connection:
            sent = evidence.sent(connection)
        rng = Random(f"resend/{self.settings.seed}/{fault.at_seconds}")  # noqa: S311 (no secret)
        for group, seq in rng.sample(sent, k=min(3, len(sent))):
            self._command("outbox", "resend", group, str(seq), "--reason", "chaos", "--yes")

    def _command(self, *arguments: str) -> None:
        self._operations += 1
        self.fleet.add(self._slot(f"{OPERATOR}-{self._operations}", OPERATOR, *arguments))

    # --- the phases ---------------------------------------------------------------------------------------------------

    def _harm(self, injector: Injector) -> str | None:
        """Follow the schedule until it is over and all is committed; return why that did not happen."""
        seconds_max = self.settings.seconds + self.settings.drain_seconds
        while not (injector.is_over and not any(slot.is_wanted for slot in self.fleet.of(PRODUCER))):
            at_seconds = self.clock.monotonic() - self._begun_at
            if at_seconds > seconds_max:
                return f"producers or faults came to no end in {seconds_max:g} s"
            try:
                injector.step(at_seconds)
            except DBAPIError as error:  # an operator, too, may find the database away
                self.print_progress(f"the operator could not: {error.orig}")
            self._tick(f"{injector.begun_count} of {len(injector.faults)} faults")
        return None

    def _drain(self, worker_fleet: WorkerFleet) -> str | None:
        """Bring back what died until everything is done and every queue is empty; return why that did not happen."""
        heal(self._healed, _HEALED)
        operated_at = float("-inf")

        def is_drained(progress: Progress) -> bool:
            nonlocal operated_at
            now = self.clock.monotonic()
            is_busy = any(slot.is_running for slot in self.fleet.of(OPERATOR))
            if not is_busy and now - operated_at >= _OPERATE_SECONDS:
                operated_at = now
                self._bring_back(worker_fleet)
            return progress.is_done(CONSUMERS) and not self._is_anything_queued(worker_fleet)

        try:
            self._until(is_drained, "draining", self.settings.drain_seconds)
            self._until(is_drained, "looking again", self.settings.drain_seconds)
        except _Stuck as stuck:
            return str(stuck)
        return None

    def _bring_back(self, worker_fleet: WorkerFleet) -> None:
        for consumer, url in worker_fleet.dead_letter_urls.items():
            if any(worker_fleet.counts(url)):
                self._command("dlq", "redrive", "--consumer", consumer, "--yes")
        for consumer, group, seq in evidence.held(self.database.engine):
            self._command("dlq", "retry", group, str(seq), "--consumer", consumer, "--reason", "chaos", "--yes")

    def _is_anything_queued(self, worker_fleet: WorkerFleet) -> bool:
        urls = [*worker_fleet.urls.values(), *worker_fleet.dead_letter_urls.values()]
        return any(any(worker_fleet.counts(url)) for url in urls)

    def _until(self, is_over: Callable[[Progress], bool], doing: str, seconds_max: float) -> None:
        """Tend to the processes until it is over, as long as anything changes."""
        seen, changed_at = "", self.clock.monotonic()
        while not is_over(progress := evidence.progress(self.database.engine)):
            now, shown = self.clock.monotonic(), _shown(progress)
            if shown != seen:
                seen, changed_at = shown, now
            elif now - changed_at > seconds_max:
                raise _Stuck(f"{doing} came to no end: nothing changed for {seconds_max:g} s ({shown})")
            for _ in range(5):
                self._tick(doing)

    def _tick(self, doing: str) -> None:
        self.fleet.tend()
        now = self.clock.monotonic()
        if now - self._printed_at >= _REPORT_SECONDS:
            self._printed_at = now
            try:
                shown = _shown(evidence.progress(self.database.engine))
            except DBAPIError:
                shown = "the database is away"
            self.print_progress(f"{max(0.0, now - (self._begun_at or now)):5.0f} s, {doing}: {shown}")
        self.clock.sleep(_TICK_SECONDS)

    def _report(
        self,
        worker_fleet: WorkerFleet,
        injector: Injector,
        codes: Counter[str],
        unknown: str | None,
        *,
        may_settle: bool,
    ) -> Report:
        """Return what became of it; what stands still with every queue empty is settled, drained or not."""
        tried = producers.tried(self.folder / "tried")
        dead = evidence.dead_letters(worker_fleet.sqs, worker_fleet.dead_letter_urls)
        unsent = evidence.progress(self.database.engine).unsent
        is_settled = may_settle and not (dead or unsent or self._is_anything_queued(worker_fleet))
        found = evidence.gathered(self.database.engine, tried, dead, is_settled=is_settled)
        started = Counter[str]()
        for slot in self.fleet.slots.values():
            started[slot.role] += slot.started_count
        return Report(
            judgement=judge(found, {name: gaps is Gaps.HALT for name, (_, gaps) in CONSUMERS.items()}),
            commits=evidence.commits(self.database.engine),
            events=len(found.committed),
            rolled_back=len(found.rolled_back),
            done=dict(Counter(done.consumer for done in found.done)),
            poison=evidence.poison(self.database.engine),
            inboxes=dict(Counter(f"{listed.consumer}: {listed.state}" for listed in found.listed)),
            faults=dict(injector.counts),
            wire=dict(self.lines.counts),
            exits=dict(self.fleet.exits + codes),
            started=dict(started),
            seconds=round(self.clock.monotonic() - self._begun_at, 1),
            unknown=unknown,
        )


class _Stuck(Exception):
    """Raised when nothing changes any more."""


def _shown(progress: Progress) -> str:
    done = ", ".join(f"{name} {progress.done.get(name, 0)}" for name in CONSUMERS)
    return f"{progress.committed} events committed, {progress.unsent} not sent, {progress.parked} set aside; {done}"
