"""One virtual run: who is there, what is done to them and when, and what is left behind.

A process that is to die dies at the next place that has a name, wherever its step has brought it: in a transaction,
between commit and delete, after the publish whose answer it waits for. One that is frozen stands at such a place while
the others go on. Everything else goes by the clock, which moves only where somebody waits.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol, override
from unittest import mock

from botocore.exceptions import ConnectionClosedError, EndpointConnectionError
from botocore.parsers import ResponseParserError
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from sluice.declaration import Consumer, Gaps, Poison
from sluice.messaging import Ack, Context, Event, Outcome, Reject
from sluice.messaging.bundle import events_of
from sluice.messaging.database import engines
from sluice.messaging.envelope import decode
from sluice.messaging.handlers import Handler, Handlers
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.outbox.store import Store
from sluice.messaging.sqs.queue import ReceivedMessage
from sluice.messaging.telemetry.recording import RelayRecording, WorkerRecording
from sluice.messaging.worker import build
from sluice.messaging.worker.hooks import WorkerHooks
from sluice.messaging.worker.processing import async_handlers
from sluice.messaging.worker.processing.deleter import Deleter
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings
from sluice.messaging.worker.worker import Parts
from sluice.recorder.recorder import Recorder
from sluice.simulator.model import AwsRefusal
from sluice.testing import SimulatedAws, inbox_view
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import WIRE, FaultKind
from tests.chaos.virtual.schedules import CONSUMER, PRODUCER, RELAY, WORKERS, Publish, Story
from tests.support.messaging.database_errors import busy
from tests.support.messaging.world import SETTINGS, TOPIC, World, create_tables

_DRAIN_SECONDS = 900.0
_STEPS_MAX = 20_000
_STALL_SECONDS_MAX = 10.0  # a client gives up then
_LANES = 3
_FAILING_SHARE = 0.25  # of batches
_FREEZES_AT = (
    "after_receive",
    "in_handler",
    "after_commit",
    "before_delete",
    "before_publish",
    "after_publish",
    "before_mark",
)
"""Places without an open transaction: SQLite would keep the others waiting in real time."""
_DECLARED = Consumer(
    name=CONSUMER,
    visibility_timeout_seconds=5,
    stop_timeout_seconds=4,
    processing_seconds=0.5,
    max_attempts=1_000,  # a death by attempts is lawful, and not what is looked for here
    poison=Poison.PARK,
    gaps=Gaps.HALT,
)
_TABLES = (
    "CREATE TABLE committed (id INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER, group_id TEXT)",
    "CREATE TABLE effect (id INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER, group_id TEXT)",
)


class Crash(BaseException):
    """A process ends here: nothing in it catches this."""


class Process(Protocol):
    """Something that takes steps."""

    def step(self) -> bool:
        """Do something; return whether there was anything to do."""


class Aws(SimulatedAws):
    """SQS and SNS over lines that have faults; whose call it is the world says."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = Random(f"entries/{seed}")  # noqa: S311 (no secret)
        self.wire: Callable[[], ScheduledFault[FaultKind] | None] = lambda: None
        self.left_seconds: Callable[[ScheduledFault[FaultKind]], float] = lambda _: 0.0

    @override
    def _answer(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any] | AwsRefusal:
        fault = self.wire()
        if fault is None:
            return self._partly(service, operation, params)
        match fault.kind:
            case FaultKind.CUT:
                raise EndpointConnectionError(endpoint_url="simulator")
            case FaultKind.STALL:
                self.advance(max(0.0, min(_STALL_SECONDS_MAX, self.left_seconds(fault))))
                raise ConnectionClosedError(endpoint_url="simulator")
            case FaultKind.SLOW:
                self.advance(float(fault.detail.removesuffix(" s")))
                return super()._answer(service, operation, params)
            case FaultKind.LOSE:
                super()._answer(service, operation, params)
                raise ConnectionClosedError(endpoint_url="simulator")
        if fault.detail.startswith("after-"):
            super()._answer(service, operation, params)
        return _instead(fault.detail.removeprefix("after-"))

    def _partly(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any] | AwsRefusal:
        """Answer, but of one batch in four do only the last entry: AWS may fail entries at any time."""
        name = next((name for name in params if name.endswith("Entries")), None)
        if name is None or len(params[name]) == 1 or self.rng.random() > _FAILING_SHARE:
            return super()._answer(service, operation, params)
        *refused, done = params[name]
        answered = super()._answer(service, operation, {**params, name: [done]})
        if isinstance(answered, AwsRefusal):
            return answered
        failed = [{"Id": entry["Id"], "Code": "InternalFailure", "SenderFault": False} for entry in refused]
        return {**answered, "Failed": [*answered.get("Failed", ()), *failed]}


def _instead(name: str) -> AwsRefusal:
    match name:
        case "throttled":
            return AwsRefusal("ThrottlingException", "Rate exceeded")
        case "500" | "503":
            return AwsRefusal("InternalFailure", "the server said no", status=int(name))
    raise ResponseParserError(f"an answer that cannot be read: {name}")


@dataclass(slots=True)
class RunEvidence:
    """The evidence that a run left behind.

    Args:
        committed: number and group of each event in the order of their commits.
        effects: number and group of each effect in the order of their commits.
        history: what recorders saw, as fields of events.
        deleted: SQS message ids that a worker took for deleted, and how much of the history was there then.
        answers: the invocations of functions that were answered, as `function_answers` describes them.
        dead: number and group of each event in the DLQ.
        poison: numbers of the events that the handler rejects.
        messages: deduplication id, and numbers of the events, of each message that a relay tried to publish.
        visibility_seconds: the queue's visibility timeout.
        hits: how often each kind of fault struck.
        unfinished: why it came to no end; None when everything was drained.
    """

    committed: list[tuple[int, str]]
    effects: list[tuple[int, str]]
    history: list[dict[str, Any]]
    deleted: list[tuple[str, int]]
    answers: list[dict[str, Any]]
    dead: list[tuple[int, str]]
    poison: frozenset[int]
    messages: list[tuple[str, tuple[int, ...]]]
    visibility_seconds: int
    hits: Counter[str]
    unfinished: str | None


@dataclass(slots=True)
class _History:
    """Keeps every event: an observer that no fault harms."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    path: Path = Path("virtual")

    def add(self, **values: Any) -> None:
        """Keep one."""
        self.rows.append({"run": "virtual", "worker": "observer", "clock_id": "virtual", **values})

    def flush(self) -> None:
        """Do nothing: nothing is lost."""


class VirtualRun(World):
    """A run under way. Variants replace its parts."""

    subscribers = (CONSUMER,)
    processor: type[MessageProcessor] = MessageProcessor
    declared = _DECLARED
    bundle_events_max = 1

    def __init__(self, story: Story, folder: Path) -> None:
        self.story, self.aws, self.rng = story, Aws(story.seed), Random(f"run/{story.seed}")  # noqa: S311
        file = folder / "virtual.db"
        self.calm = engines.engine(f"sqlite:///{file}")
        self._history, self.hits = _History(), Counter[str]()
        self.deleted = list[tuple[str, int]]()
        self.answers = list[dict[str, Any]]()
        self.recorder = Recorder(self._history, names={}, clock=self.aws.clock)
        super().__init__(
            self.new_engine(file),
            consumer=CONSUMER,
            policy=InboxPolicy.of_consumer(self.declared),
            simulator=self.aws,
            timeout_seconds=self.declared.visibility_timeout_seconds,
            max_attempts=self.declared.max_receive_count(self.bundle_events_max),
        )
        event.listen(self.engine, "before_cursor_execute", self._refuse)
        event.listen(self.engine, "connect", _never_wait)
        create_tables(self.calm)
        with self.calm.begin() as connection:
            for table in _TABLES:
                connection.execute(text(table))
        self._struck: set[ScheduledFault[FaultKind]] = set()
        self._places: dict[ScheduledFault[FaultKind], int] = {}
        self._current, self._busy = PRODUCER, set[str]()
        self._begun = self.clock.monotonic()
        self._due = list(story.publishes)
        self.aws.wire, self.aws.left_seconds = self._wire, self._left_seconds
        self.processes: dict[str, Process] = {}
        for name in (RELAY, *WORKERS):
            self.processes[name] = self.make_process(name)

    # --- parts, which variants replace --------------------------------------------------------------------------------

    def new_engine(self, file: Path) -> Engine:
        """Return the engine that relay, workers and producer share."""
        return engines.engine(f"sqlite:///{file}")

    def make_process(self, name: str) -> Process:
        """Return a new process for a place."""
        return self.new_relay() if name == RELAY else self.new_worker()

    def new_relay(self) -> Process:
        """Return a relay."""
        return self.relay(
            settings=replace(SETTINGS, bundle_events_max=self.bundle_events_max),
            rng=self.rng,
            failpoint=self.reach,
            hooks=[RelayRecording(self.recorder)],
        )

    def new_worker(self) -> Process:
        """Return a worker of several lanes, whose messages are deleted together."""
        self.settings = ProcessorSettings.of_consumer(self.declared, bundle_events_max=self.bundle_events_max)
        deleting = Deleting(self)
        with mock.patch.object(build, "Deleter", partial(_WatchedDeleter, deleting)):
            worker_parts = self.worker(
                handlers=Handlers.of_function(self.handler()),
                kind=self.processor,
                worker_settings=replace(WorkerSettings.of_consumer(self.declared, lanes=_LANES), wait_seconds=0),
                rng=self.rng,
                failpoint=deleting.reach,
                hooks=[WorkerRecording(self.recorder, queue_url=self.url), deleting],
            )
        worker_parts.deleter.begin()
        return _Steps(worker_parts.parts, deleting, self.rng)

    def handler(self) -> Handler:
        """Return the handler of every event."""

        def handle(session: Session, of: Event, _context: Context) -> Outcome:
            self.write_effect(session, of)
            return Reject("poison") if self.is_poison(of.data["number"]) else Ack()

        return handle

    def is_poison(self, _number: int) -> bool:
        """Return whether the handler rejects the event of that number."""
        return False

    def produce(self, publish: Publish) -> None:
        """Commit an event and its row together."""
        with Session(self.engine) as session:
            session.execute(
                text("INSERT INTO committed (number, group_id) VALUES (:number, :group)"),
                {"number": publish.number, "group": publish.group},
            )
            self.outbox.add(session, event_of(publish))
            self.reach("before_commit")
            session.commit()
            self.reach("after_commit")

    def client(self, service: str) -> Any:
        """Return a recorded client."""
        client = super().client(service)
        self.recorder.attach(client)
        return client

    def took_for_deleted(self, sqs_message_id: str) -> None:
        """Remember what a worker believes: it must not come again."""
        self.deleted.append((sqs_message_id, len(self._history.rows)))

    def write_effect(self, session: Session, of: Event) -> None:
        """Write the row of an effect; a bad deployment fails behind it."""
        session.execute(
            text("INSERT INTO effect (number, group_id) VALUES (:number, :group)"),
            {"number": of.data["number"], "group": of.group},
        )
        self.fail_if_badly_deployed()

    def fail_if_badly_deployed(self) -> None:
        """Raise an error of the handlers' code while a bad version of it is deployed."""
        if self._active(FaultKind.DEPLOY, CONSUMER) is not None:
            self.hits["deploy"] += 1
            raise RuntimeError("this version of the handlers fails")

    # --- faults -------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Return the time of the story."""
        return self.clock.monotonic() - self._begun

    def _active(self, kind: FaultKind, *targets: str) -> ScheduledFault[FaultKind] | None:
        found = (
            fault
            for fault in self.story.faults
            if fault.kind is kind and fault.target in targets and fault.at_seconds <= self.now < fault.until_seconds
        )
        return next(found, None)

    def _wire(self) -> ScheduledFault[FaultKind] | None:
        for kind in WIRE:
            fault = self._active(kind, f"{self._current}:endpoint", "all:endpoint")
            if fault is not None:
                self.hits[kind.value] += 1
                return fault
        return None

    def _left_seconds(self, fault: ScheduledFault[FaultKind]) -> float:
        return fault.until_seconds - self.now

    def _refuse(self, _connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if self.is_locked():
            raise OperationalError(statement, parameters, busy())

    def is_locked(self) -> bool:
        """Return whether a fault has the database locked now, and count the statement that meets it."""
        is_locked = self._active(FaultKind.LOCK, "database") is not None
        self.hits["lock"] += is_locked
        return is_locked

    def _find_fault(self, kind: FaultKind) -> ScheduledFault[FaultKind] | None:
        found = (
            fault
            for fault in self.story.faults
            if fault.kind is kind
            and fault.target == self._current
            and fault.at_seconds <= self.now
            and fault not in self._struck
        )
        return next(found, None)

    def reach(self, place: str) -> None:
        """Suffer at a place that has a name what has become due: at one of the next few."""
        kill = self._find_fault(FaultKind.KILL) if place != "in_handler" else None  # whose worker catches everything
        if kill is not None and self._is_place_of(kill):
            self._struck.add(kill)
            self.hits["kill"] += 1
            raise Crash(place)
        freeze = self._find_fault(FaultKind.FREEZE)
        if freeze is not None and place in _FREEZES_AT and self._is_place_of(freeze):
            self._struck.add(freeze)
            self.hits["freeze"] += 1
            with self._frozen_process(self._current):
                self._work(self.now + freeze.until_seconds - freeze.at_seconds)

    def _is_place_of(self, fault: ScheduledFault[FaultKind]) -> bool:
        """Return whether it strikes here: at which place follows from the fault alone, whatever else is left out."""
        left = self._places.get(fault, Random(str(fault)).randint(1, 4))  # noqa: S311 (no secret)
        self._places[fault] = left - 1
        return left == 1

    @contextmanager
    def _frozen_process(self, name: str) -> Iterator[None]:
        """Let a process take no step in this block; then it goes on with the step in which it was frozen.

        The block lets the others take steps. They change `_current`, so the frozen process is made the current one
        again at the end.
        """
        self._busy.add(name)
        try:
            yield
        finally:
            self._busy.discard(name)
            self._current = name

    # --- time ---------------------------------------------------------------------------------------------------------

    def run(self) -> RunEvidence:
        """Run the schedule from its beginning to its end."""
        with ExitStack() as stack:
            stack.callback(async_handlers.close)
            stack.callback(self.calm.dispose)
            stack.callback(self.engine.dispose)
            is_over = self._work(None)
            return self._evidence(None if is_over else f"not drained after {_DRAIN_SECONDS:g} s of virtual time")

    def _work(self, until: float | None) -> bool:
        """Let everybody who is not frozen take steps, until that time of the story; without one, until all is done."""
        ends = max((fault.until_seconds for fault in self.story.faults), default=0.0)
        for _ in range(_STEPS_MAX):
            has_worked = self._publish_due()
            for name in self._awake():
                has_worked = self._step(name) or has_worked
            if until is not None and self.now >= until:
                return False
            if until is None and self.now > ends + _DRAIN_SECONDS:
                return False
            if not has_worked:
                if until is None and self._is_done():
                    return True
                self.aws.advance(self._next_seconds(until))
        return False

    def _awake(self) -> list[str]:
        names = [name for name in self.processes if name not in self._busy]
        return self.rng.sample(names, k=len(names))

    def _step(self, name: str) -> bool:
        before, self._current = self._current, name
        try:
            if (whole := self._find_fault(FaultKind.TERMINATE)) is not None:
                self._struck.add(whole)
                self.hits["terminate"] += 1
                ended = self.processes[name]
                if isinstance(ended, _Steps):
                    ended.end()
                self.processes[name] = self.make_process(name)
            return self.processes[name].step()
        except Crash:
            self.processes[name] = self.make_process(name)
            return True
        except DBAPIError:
            return False
        finally:
            self._current = before

    def _publish_due(self) -> bool:
        if PRODUCER in self._busy or not self._due or self._due[0].at_seconds > self.now:
            return False
        publish = self._due[0]
        before, self._current = self._current, PRODUCER
        try:
            self.produce(publish)
        except (Crash, DBAPIError):
            if not self._is_committed(publish):
                return False  # it is tried again, after somebody has waited
        finally:
            self._current = before
        self._due.remove(publish)
        return True

    def _is_committed(self, publish: Publish) -> bool:
        with self.calm.connect() as connection:
            found = connection.execute(
                text("SELECT 1 FROM committed WHERE number = :number"), {"number": publish.number}
            )
            return found.first() is not None

    def _is_done(self) -> bool:
        return (
            not self._due
            and all(fault.until_seconds <= self.now for fault in self.story.faults)
            and not self.aws.bodies(self.url)
            and Store(self.calm, TOPIC, clock=self.clock).is_finished()
            and inbox_view.next_due_at(self.calm, CONSUMER, self.clock.monotonic()) is None
        )

    def _next_seconds(self, until: float | None) -> float:
        instants = [self.now + 0.5, *([] if until is None else [until])]
        instants += [publish.at_seconds for publish in self._due[:1] if publish.at_seconds > self.now]
        return max(0.01, min(instants) - self.now)

    def _evidence(self, unfinished: str | None) -> RunEvidence:
        with self.calm.connect() as connection:
            committed = _rows(connection, "committed")
            return RunEvidence(
                committed=committed,
                effects=_rows(connection, "effect"),
                history=self._history.rows,
                deleted=self.deleted,
                answers=self.answers,
                dead=[(of.data["number"], of.group) for of in (decode(body).event for body in self.bodies_in_dlq())],
                poison=frozenset(number for number, _ in committed if self.is_poison(number)),
                messages=[
                    (
                        entry["MessageDeduplicationId"],
                        tuple(of.event.data["number"] for of in events_of(entry["Message"])),
                    )
                    for call in self.sns_calls.requests
                    for entry in call
                ],
                visibility_seconds=self.declared.visibility_timeout_seconds,
                hits=self.hits,
                unfinished=unfinished,
            )


class Deleting(WorkerHooks):
    """The messages that a worker has handed over to be deleted, and those that it then takes for deleted."""

    def __init__(self, run: VirtualRun) -> None:
        self._run = run
        self._failed = set[str]()
        self.waiting = deque[str]()

    @override
    def not_deleted(self, message: ReceivedMessage) -> None:
        """Take in what the worker knows to come again."""
        self._failed.add(message.sqs_message_id)

    def reach(self, place: str) -> None:
        """Reach a place; after a delete the first that waits is over."""
        if place == "after_delete" and (over := self.waiting.popleft()) not in self._failed:
            self._run.took_for_deleted(over)
        self._run.reach(place)


class _WatchedDeleter(Deleter):
    """Tells which messages are handed over to it."""

    def __init__(self, deleting: Deleting, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._deleting = deleting

    @override
    def delete(self, message: ReceivedMessage) -> None:
        self._deleting.waiting.append(message.sqs_message_id)
        super().delete(message)


@dataclass(frozen=True, slots=True)
class _Steps:
    """A worker on one thread: its lanes take turns, and what they hand over is deleted now and then."""

    parts: Parts
    deleting: Deleting
    rng: Random

    def step(self) -> bool:
        """Let each part take a step; what waits is deleted in every second one."""
        has_worked = bool(self.parts.drainer.step())
        for lane in self.parts.lanes:
            has_worked = lane.step() or has_worked
        if self.deleting.waiting and self.rng.random() < 0.5:
            self.parts.deleter.step()
        return has_worked or bool(self.deleting.waiting)

    def end(self) -> None:
        """Delete what waits."""
        self.parts.deleter.end()
        while self.parts.deleter.step():
            pass


def _never_wait(connection: Any, _: Any) -> None:
    """Let a locked database be refused at once: whoever has the lock goes on only after this call."""
    connection.execute("PRAGMA busy_timeout = 0").close()


def event_of(publish: Publish) -> Event:
    """Return the event of a publish."""
    return Event(
        type="chaos.happened", group=publish.group, data={"number": publish.number}, id=f"event-{publish.number}"
    )


def _rows(connection: Any, table: str) -> list[tuple[int, str]]:
    found = connection.execute(text(f"SELECT number, group_id FROM {table} ORDER BY id"))  # noqa: S608 (our own names)
    return [(int(number), str(group)) for number, group in found]


def _numbers(body: str) -> tuple[int, ...]:
    """Return the numbers of the events in a message's body."""
    return tuple(int(arrived.event.data["number"]) for arrived in events_of(body))
