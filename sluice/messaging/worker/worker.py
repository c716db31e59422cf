"""The worker: lanes that receive and work, a heartbeat, a drainer of what was set aside, and care for the rest.

Every lane polls for itself, one message at a time, so that the queue does all the sequencing: a group whose message is
with one lane is nobody else's. A lane that cannot reach queue or database waits, longer each time. The first SIGTERM
ends the polls; lanes finish what they have; what is not finished in time is given back before the process ends.
"""

import random
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from queue import Empty, SimpleQueue

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from sluice import limits, metrics
from sluice.clock import Clock, SystemClock
from sluice.declaration import Consumer
from sluice.errors import ConfigError
from sluice.messaging.backoff import Backoff
from sluice.messaging.database import engines
from sluice.messaging.errors import HoldLost, OutboxError, TransientError
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.maintenance import FORGOTTEN_MAX
from sluice.messaging.liveness import AliveFile, Liveness, Signs, Watch
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.telemetry.metrics import Metrics
from sluice.messaging.telemetry.tally import Tally
from sluice.messaging.waiting import Stop, Wait
from sluice.messaging.worker import async_handlers
from sluice.messaging.worker.drainer import Drainer, ShutdownGuard
from sluice.messaging.worker.message_lease import Heartbeat
from sluice.messaging.worker.processor import Work
from sluice.messaging.worker.scale_in_protection import Protection

_log = structlog.get_logger()
_ATTEMPT_SECONDS = 240
"""A repeated receive repeats its attempt id for so long; AWS honours it for five minutes."""
_TICK_SECONDS = 1.0
_FORGET_SECONDS = 3_600
_FORGET_TIMES_MAX = 100
_WAIT_SECONDS_MIN = 1  # shorter polls cost more than they bring
_DRAINS_MIN = 2
_EARLY_SECONDS = 0.1  # after an empty answer long before the poll's end: a proxy's page reads as one
_LAST_SECONDS = 2.0  # of the stop timeout: for giving back what was not finished, and for ending
_GRACE_SECONDS = 1.0
_LOOK_SECONDS = 30.0  # the main loop looks each second; a machine that is busy, or a slow disk, may keep it that long


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker goes about it.

    Args:
        lanes: message groups it works on at once.
        wait_seconds: of each long poll.
        drain_seconds: what lanes have to finish after SIGTERM.
        keep_inbox_seconds: how long the inbox remembers a group nothing came for.
        backoff: between two polls of a queue that does not answer.
        is_ordered: False for a standard queue.
        idle_seconds: end by itself when nothing came for so long; None never does.

    Raises:
        ConfigError: a value, or their relation, cannot be right.
    """

    lanes: int
    wait_seconds: int
    drain_seconds: float
    keep_inbox_seconds: float
    backoff: Backoff = field(default_factory=lambda: Backoff(base_seconds=0.5, cap_seconds=20, floor_seconds=0.1))
    is_ordered: bool = True
    idle_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ConfigError(f"lanes is {self.lanes}, allowed is 1 or more; change --lanes")
        longest = max(_WAIT_SECONDS_MIN, min(limits.WAIT_SECONDS_MAX, self.drain_seconds))
        if not 0 <= self.wait_seconds <= longest:
            raise ConfigError(
                f"wait is {self.wait_seconds} s, allowed is 0 to {longest:g}: what a poll brings after SIGTERM has to"
                " be worked on in time"
            )
        for name, seconds in (("drain", self.drain_seconds), ("keep inbox", self.keep_inbox_seconds)):
            if not 0 <= seconds < inf:
                raise ConfigError(f"{name} is {seconds:g} s, allowed is 0 or more, and finite")
        if self.idle_seconds is not None and not 0 <= self.idle_seconds < inf:
            raise ConfigError(f"idle is {self.idle_seconds:g} s, allowed is 0 or more; change --until-idle")

    @classmethod
    def declared(
        cls, consumer: Consumer, *, lanes: int | None, is_ordered: bool, idle_seconds: float | None
    ) -> "WorkerSettings":
        """Return what a consumer declares; with other lanes where they are given."""
        drain_seconds = max(0.0, consumer.stop_timeout_seconds - _LAST_SECONDS)
        # A hold counts from the poll that brought the message: a third of the timeout at most may be gone by then.
        longest_seconds = min(limits.WAIT_SECONDS_MAX, drain_seconds / 2, consumer.visibility_timeout_seconds / 3)
        wait_seconds = max(_WAIT_SECONDS_MIN, int(longest_seconds))
        return cls(
            lanes=consumer.lanes if lanes is None else lanes,
            wait_seconds=wait_seconds if idle_seconds is None else _WAIT_SECONDS_MIN,
            drain_seconds=drain_seconds,
            keep_inbox_seconds=consumer.inbox_retention_seconds,
            is_ordered=is_ordered,
            idle_seconds=idle_seconds,
        )


class Lane:
    """Receives one message after the other and works on it. Runs on one thread, `step` by `step`.

    Args:
        queue: where messages come from.
        work: what is done with each.
        settings: how it goes about it.
        wait: after a failure; ends when the worker stops.
        clock: tells how old an attempt id is.
        chance: for jitter and attempt ids; a seeded one in tests.
        signs: takes its signs of life; None is nobody.
    """

    def __init__(
        self,
        queue: Queue,
        work: Work,
        *,
        settings: WorkerSettings,
        wait: Wait,
        clock: Clock,
        chance: random.Random,
        signs: Signs | None = None,
    ) -> None:
        self._queue, self._work, self._settings, self._wait = queue, work, settings, wait
        self._clock, self._chance = clock, chance
        self._signs = Signs(Liveness(clock)) if signs is None else signs
        self._attempt: tuple[str, float] | None = None
        self._failures = 0
        self.active_at = clock.monotonic()

    def step(self) -> bool:
        """Poll once and work on what comes; return whether something came."""
        self._sign()
        if not self._work.is_ready():
            self._rest()
            return False
        asked_at = self._clock.monotonic()
        try:
            message = self._queue.receive(attempt_id=self._attempt_id(), wait_seconds=self._settings.wait_seconds)
        except (TransientError, HoldLost) as error:
            _log.warning("nothing received", error=str(error))
            if isinstance(error, HoldLost):
                self._attempt = None  # what it brought the first time has been somebody else's, or visible, since
            self._rest()
            return False
        self._attempt, self._failures = None, 0
        if message is None:
            if self._clock.monotonic() - asked_at < self._settings.wait_seconds / 2:
                self._wait.wait(_EARLY_SECONDS)
            return False
        self._signs.working()
        self._work.do(message, asked_at=asked_at)
        self.active_at = self._clock.monotonic()
        return True

    def _sign(self) -> None:
        """Give a sign of life: what comes next is a poll, or a database that may not answer for long."""
        if self._work.is_database_away:
            self._signs.working()
        else:
            self._signs.polling()

    def fail(self) -> None:
        """Rest after an error nobody thought of."""
        self._rest()

    def _attempt_id(self) -> str | None:
        """Return the id of this poll: the last one's when its answer never came, or the group would stand still."""
        if not self._settings.is_ordered:
            return None
        now = self._clock.monotonic()
        if self._attempt is None or now - self._attempt[1] > _ATTEMPT_SECONDS:
            self._attempt = (str(uuid.UUID(int=self._chance.getrandbits(128), version=4)), now)
        return self._attempt[0]

    def _rest(self) -> None:
        self._failures += 1
        self._wait.wait(self._settings.backoff.seconds(self._failures, self._chance.random()))
        self.active_at = self._clock.monotonic()  # what cannot be asked is not idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a worker is put together from.

    `signs` takes the signs of life of all its threads, and `alive` is where they are shown; None is nowhere.
    """

    engine: Engine
    queue: Queue
    inbox: Inbox
    heartbeat: Heartbeat
    drainer: Drainer
    shutdown: ShutdownGuard
    lanes: Sequence[Lane]
    protection: Protection
    measured: Metrics
    tally: Tally
    signs: Signs = field(default_factory=lambda: Signs(Liveness(SystemClock())))
    alive: AliveFile | None = None


class Worker:
    """Runs lanes, heartbeat and drainer on threads of their own, until it is told to stop.

    Args:
        parts: what it runs.
        settings: how it goes about it.
        stop: tells it to stop.
        clock: for deadlines.
    """

    def __init__(self, parts: Parts, *, settings: WorkerSettings, stop: Stop, clock: Clock) -> None:
        self._parts, self._settings, self._stop, self._clock = parts, settings, stop, clock
        self._has_ended, self._refusals = threading.Event(), engines.Refusals(parts.engine)
        self._measured_at = self._forgot_at = clock.monotonic()
        self._drained_at = clock.monotonic()
        self._claimed: SimpleQueue[str] = SimpleQueue()
        self._watch = Watch(parts.signs.liveness, parts.alive, within_seconds=_LOOK_SECONDS, clock=clock)

    def run(self) -> None:
        """Work until stopped, then end within the drain time. Runs in the main thread, which signals interrupt.

        Raises:
            OutboxError: a handler does not end, or the database refuses the credentials; or a lane is gone, which
                nothing is known to bring about.
        """
        lanes = [self._thread(f"lane-{number}", self._run_lane, lane) for number, lane in enumerate(self._parts.lanes)]
        # As many parked groups at once as live ones, and never one alone; a thread more looks which are due.
        count = max(_DRAINS_MIN, len(lanes))
        drainers = [self._thread(f"drain-{number}", self._run_drain) for number in range(count)]
        workers = [*lanes, *drainers, self._thread("drainer", self._run_drainer)]
        helpers = [self._thread("heartbeat", self._run_heartbeat), self._thread("care", self._run_care)]
        _log.info("working", lanes=len(lanes), queue=self._parts.queue.url)
        fault: str | None = None
        while not self._stop.is_asked():
            self._watch.look()
            self._stop.wait(_TICK_SECONDS)
            fault = self._fault(workers)
            if fault is not None or self._is_idle():
                self._stop.ask()
        self._end(workers, helpers)
        if fault is not None:
            raise OutboxError(f"{fault}; start the worker again")

    def _fault(self, workers: Sequence[threading.Thread]) -> str | None:
        """Return what only another process mends."""
        ended = [thread.name for thread in workers if not (thread.is_alive() or self._stop.is_asked())]
        if ended:
            return f"{', '.join(ended)} ended by itself, see the log above"
        if self._refusals.said is not None:
            return engines.REFUSED.format(said=self._refusals.said)
        overdue = [
            f"{hold.message.sqs_message_id} of group {hold.message.message_group_id}"
            for hold in self._parts.heartbeat.overdue()
        ]
        patience_seconds = self._parts.heartbeat.patience_seconds
        for lease in self._parts.drainer.leases():
            if lease.overdue_seconds() >= patience_seconds:
                envelope = lease.message.envelope
                overdue.append(f"number {envelope.seq} of group {envelope.event.group}, which was set aside,")
        if not overdue:
            return None
        self._parts.tally.add(metrics.OVERDUE, len(overdue))
        return (
            f"the handler of {overdue[0]} was given up and has not ended, allowed is one that asks"
            " `context.hold.check()` or takes less than ten visibility timeouts"
        )

    def _end(self, workers: Sequence[threading.Thread], helpers: Sequence[threading.Thread]) -> None:
        _log.info("stopping", drain_seconds=self._settings.drain_seconds)
        deadline = self._clock.monotonic() + self._settings.drain_seconds
        for thread in workers:
            self._join(thread, deadline)
        unfinished = self._parts.heartbeat.holds()
        unfinished_count = len(unfinished) + len(self._parts.drainer.leases())
        self._parts.shutdown.end()
        for hold in unfinished:
            hold.lose("the worker ends")
        for thread in workers:  # a handler that asks its hold ends now
            thread.join(max(0.0, deadline + _GRACE_SECONDS - self._clock.monotonic()))
        self._has_ended.set()
        for thread in helpers:
            thread.join(_GRACE_SECONDS)
        for hold in unfinished:
            try:
                self._parts.queue.release(hold.message.receipt_handle, 0)
            except (HoldLost, TransientError) as error:
                _log.warning("not given back: it comes again when its visibility timeout ends", error=str(error))
        self._measure_last()
        _log.info("stopped", unfinished=unfinished_count)

    def _join(self, thread: threading.Thread, deadline: float) -> None:
        """Wait for a thread's end, and look after the others meanwhile."""
        while thread.is_alive() and (left := deadline - self._clock.monotonic()) > 0:
            self._watch.look()
            thread.join(min(left, _TICK_SECONDS))

    def _thread(self, name: str, run: Callable[..., None], *arguments: object) -> threading.Thread:
        # A handler nobody can end must not keep the process: what it has open is rolled back with it.
        thread = threading.Thread(target=self._run_part, args=(run, *arguments), name=name, daemon=True)
        thread.start()
        return thread

    def _run_part(self, run: Callable[..., None], *arguments: object) -> None:
        run(*arguments)
        async_handlers.close()
        self._parts.signs.ended()  # not where it broke off

    def _run_lane(self, lane: Lane) -> None:
        while not self._stop.is_asked():
            try:
                lane.step()
            except Exception:  # whatever it is, the other lanes and the next message need this one
                _log.exception("a message was not worked on, and comes again when its visibility timeout ends")
                lane.fail()

    def _run_drainer(self) -> None:
        while not self._stop.is_asked():
            self._parts.signs.working()
            try:
                for group_id in self._parts.drainer.claim():
                    self._claimed.put(group_id)
            except Exception:  # the next look may do it
                _log.exception("what was set aside was not looked at")
            self._stop.wait(_TICK_SECONDS)

    def _run_drain(self) -> None:
        while not self._stop.is_asked():
            self._parts.signs.working()
            try:
                group_id = self._claimed.get(timeout=_TICK_SECONDS)
                if self._parts.drainer.drain(group_id):
                    self._drained_at = self._clock.monotonic()
            except Empty:
                continue
            except Exception:  # the next look finds it due again
                _log.exception("what was set aside was not handled")

    def _run_heartbeat(self) -> None:
        self._parts.signs.beating()
        while not self._has_ended.wait(self._parts.heartbeat.interval_seconds):
            try:
                self._parts.heartbeat.beat()
            except Exception:  # the next beat may do it
                _log.exception("nothing was extended")
            self._parts.signs.beating()

    def _run_care(self) -> None:
        while not self._stop.is_asked():
            try:
                self.care()
            except Exception:  # none of it is what the worker is for
                _log.exception("not looked after")
            self._stop.wait(_TICK_SECONDS)
        self._parts.protection.stop()

    def care(self) -> None:
        """Tell ECS whether it is busy, write metrics, and forget old groups, each when its time has come."""
        self._parts.protection.want(is_busy=bool(self._parts.heartbeat.holds()))
        now = self._clock.monotonic()
        try:
            if now - self._measured_at >= metrics.INBOX_INTERVAL_SECONDS:
                self._measured_at = now
                self._measure()
            if now - self._forgot_at >= _FORGET_SECONDS:
                self._forgot_at = now
                self._forget()
        except DBAPIError as error:
            if not engines.may_pass(error):
                raise
            _log.warning("the database does not answer", error=str(error.orig).strip())

    def _forget(self) -> None:
        for _ in range(_FORGET_TIMES_MAX):
            with self._parts.engine.begin() as connection:
                if self._parts.inbox.forget(connection, self._settings.keep_inbox_seconds) < FORGOTTEN_MAX:
                    break

    def _measure(self) -> None:
        counted = self._parts.inbox.counts(self._parts.engine)
        gauges = {
            metrics.PARKED_GROUPS: counted["parked_groups"],
            metrics.PARKED_MESSAGES: counted["parked_messages"],
            metrics.HELD_MESSAGES: counted["held_messages"],
            metrics.OPEN_EXCEPTIONS: counted["open_exceptions"],
            metrics.STUCK_PARTS: len(self._parts.signs.liveness.overdue()),
        }
        self._parts.measured.put({**self._parts.tally.take(), **gauges})

    def _measure_last(self) -> None:
        """Write what was counted since the last time, without the gauges: a database may not answer in time."""
        self._parts.measured.put(self._parts.tally.take())

    def _is_idle(self) -> bool:
        idle_seconds = self._settings.idle_seconds
        if idle_seconds is None or self._parts.heartbeat.holds() or self._parts.drainer.leases():
            return False
        last = max([self._drained_at, *(lane.active_at for lane in self._parts.lanes)])
        return self._clock.monotonic() - last >= idle_seconds
