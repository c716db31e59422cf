"""The worker: lanes that receive and work, a heartbeat, a drainer of parked messages, and recurring maintenance.

Every lane polls for itself, one message at a time, so the queue does all the sequencing: no other lane receives a
message of a group while one lane has a message of it. A lane that cannot reach the queue or the database waits, longer
each time. The first SIGTERM ends the polls; lanes finish their messages; messages that are not finished in time are
released before the process ends.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from sluice.clock import Clock
from sluice.declaration.consumer import DRAINS_MIN
from sluice.messaging.database import engines, failures
from sluice.messaging.errors import HoldLostError, OutboxError, TransientError
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.maintenance import FORGOTTEN_MAX
from sluice.messaging.inbox.pause import PauseWatch
from sluice.messaging.liveness import AliveFile, LivenessWatch
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.drainer import Drainer
from sluice.messaging.worker.hooks import WorkerHooks, WorkerHookSet
from sluice.messaging.worker.lane import Lane
from sluice.messaging.worker.processing import async_handlers
from sluice.messaging.worker.processing.deleter import Deleter, threads_of
from sluice.messaging.worker.processing.message_lease import Heartbeat
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.messaging.worker.scale_in_protection import Protection
from sluice.messaging.worker.settings import WorkerSettings
from sluice.messaging.worker.signs import Signs
from sluice.terminal.logger import Logger

_log = Logger()
_TICK_SECONDS = 1.0  # pause of each loop before its next round
_FORGET_SECONDS = 3_600  # between two deletions of the inbox's old rows
_FORGET_TIMES_MAX = 100  # transactions of one deletion; older rows that are left are deleted an hour later
_GRACE_SECONDS = 1.0  # after the drain time, for the end of handlers whose lease is lost
_LOOK_SECONDS = 30.0  # the main loop checks each second; a busy machine or a slow disk may delay it this long


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that a worker consists of.

    `shutdown` forbids further commits; `signs` receives the signs of life of all threads, and `alive` is the file that
    shows them; None means no file.
    """

    engine: Engine
    queue: Queue
    inbox: Inbox
    heartbeat: Heartbeat
    processor: MessageProcessor
    deleter: Deleter
    drainer: Drainer
    shutdown: threading.Event
    lanes: Sequence[Lane]
    protection: Protection
    pause: PauseWatch
    hooks: WorkerHookSet
    signs: Signs
    alive: AliveFile | None = None


class Worker:
    """Runs lanes, heartbeat and drainer, each on a thread, until it is told to stop."""

    def __init__(self, parts: Parts, *, settings: WorkerSettings, stop: Stop, clock: Clock) -> None:
        self.parts, self._settings, self._stop, self._clock = parts, settings, stop, clock
        self._has_ended, self._refusals = threading.Event(), engines.Refusals(parts.engine)
        self._forgot_at = clock.monotonic()
        self._drained_at = clock.monotonic()
        self._claimed_groups: SimpleQueue[str] = SimpleQueue()
        self._watch = LivenessWatch(parts.signs.liveness, parts.alive, within_seconds=_LOOK_SECONDS, clock=clock)

    def run(self) -> None:
        """Work until stopped, then end within the drain time. Runs in the main thread, which signals interrupt.

        Raises:
            OutboxError: a handler does not end, or the database refuses the credentials; or a lane's thread has ended,
                for which no cause is known.
        """
        with async_handlers.keeping_loop():
            self._run()

    def _run(self) -> None:
        self.parts.deleter.begin()
        deleters = [self._thread(f"deleter-{n}", self._run_deleter) for n in range(threads_of(len(self.parts.lanes)))]
        lanes = [self._thread(f"lane-{number}", self._run_lane, lane) for number, lane in enumerate(self.parts.lanes)]
        # As many threads for parked groups as lanes, and at least two; one more thread looks for due groups.
        count = max(DRAINS_MIN, self.parts.processor.connections_max or len(lanes))
        drainers = [self._thread(f"drain-{number}", self._run_drain) for number in range(count)]
        workers = [*lanes, *drainers, self._thread("drainer", self._run_drainer)]
        helpers = [self._thread("heartbeat", self._run_heartbeat), self._thread("maintenance", self._run_maintenance)]
        _log.info("working", lanes=len(lanes), queue=self.parts.queue.url)
        fault: str | None = None
        while not self._stop.is_stopped():
            self._watch.look()
            self._stop.wait(_TICK_SECONDS)
            fault = self._find_fault([*workers, *deleters])
            if fault is not None or self._is_idle():
                self._stop.request()
        self._end(workers, deleters, helpers)
        if fault is not None:
            raise OutboxError(f"{fault}; start the worker again")

    def stop(self) -> None:
        """Tell the worker to stop, from any thread or from a signal's handler."""
        self._stop.request()

    def _find_fault(self, workers: Sequence[threading.Thread]) -> str | None:
        """Return in a sentence the fault that only a new process mends, or None."""
        ended = [thread.name for thread in workers if not (thread.is_alive() or self._stop.is_stopped())]
        if ended:
            return f"{', '.join(ended)} ended by itself, see the log above"
        if self._refusals.message is not None:
            return engines.REFUSED.format(reason=self._refusals.message)
        overdue = [
            f"{lease.message.sqs_message_id} of group {lease.message.message_group_id}"
            for lease in self.parts.heartbeat.overdue()
        ]
        patience_seconds = self.parts.heartbeat.patience_seconds
        for lease in self.parts.drainer.leases():
            if lease.overdue_seconds() >= patience_seconds:
                envelope = lease.message.envelope
                overdue.append(f"number {envelope.seq} of group {envelope.event.group}, which was set aside,")
        if not overdue:
            return None
        self.parts.hooks.call(WorkerHooks.overdue, len(overdue))
        blocked_by = async_handlers.blocker()
        if blocked_by is not None:
            return f"{blocked_by} blocks the event loop of all handlers, allowed is to await, or `asyncio.to_thread`"
        return (
            f"the handler of {overdue[0]} was given up and has not ended, allowed is one that asks"
            " `context.hold.check()` or takes less than ten visibility timeouts"
        )

    def _end(
        self,
        workers: Sequence[threading.Thread],
        deleters: Sequence[threading.Thread],
        helpers: Sequence[threading.Thread],
    ) -> None:
        """Wait for the threads until the drain time is over, then release the messages that are not finished."""
        _log.info("stopping", drain_seconds=self._settings.drain_seconds)
        deadline = self._clock.monotonic() + self._settings.drain_seconds
        for thread in workers:
            self._join(thread, deadline)
        self.parts.deleter.end()  # a lane that ends later deletes its message itself
        unfinished = self.parts.heartbeat.leases()
        unfinished_count = len(unfinished) + len(self.parts.drainer.leases())
        self.parts.shutdown.set()
        for lease in unfinished:
            lease.lose("the worker ends")
        for thread in [*workers, *deleters]:  # a handler that checks its lease ends now
            thread.join(max(0.0, deadline + _GRACE_SECONDS - self._clock.monotonic()))
        self._has_ended.set()
        for thread in helpers:
            thread.join(_GRACE_SECONDS)
        for lease in unfinished:
            try:
                self.parts.queue.release(lease.message.receipt_handle, 0)
            except (HoldLostError, TransientError) as error:
                _log.warning("not given back: it comes again when its visibility timeout ends", error=str(error))
        self.parts.hooks.call(WorkerHooks.after_end)
        _log.info("stopped", unfinished=unfinished_count)

    def _join(self, thread: threading.Thread, deadline: float) -> None:
        """Wait for a thread's end, and check the signs of life of the other threads meanwhile."""
        while thread.is_alive() and (left := deadline - self._clock.monotonic()) > 0:
            self._watch.look()
            thread.join(min(left, _TICK_SECONDS))

    def _thread(self, name: str, run: Callable[..., None], *arguments: object) -> threading.Thread:
        # A handler that does not end must not keep the process alive: the end of the process rolls its transaction
        # back.
        thread = threading.Thread(target=self._run_part, args=(run, *arguments), name=name, daemon=True)
        thread.start()
        return thread

    def _run_part(self, run: Callable[..., None], *arguments: object) -> None:
        """Run a part of the worker to its end, on the part's thread."""
        run(*arguments)
        async_handlers.close_lane()
        self.parts.signs.end()  # not after an exception: the missing sign shows that the thread broke off

    def _run_lane(self, lane: Lane) -> None:
        while not self._stop.is_stopped():
            try:
                lane.step()
            except Exception:  # any error: the lane has to go on with the next message
                _log.exception("a message was not worked on, and comes again when its visibility timeout ends")
                lane.rest()

    def _run_deleter(self) -> None:
        has_more = True
        while has_more:
            self.parts.signs.expect_end_of_work()
            try:
                has_more = self.parts.deleter.step()
            except Exception:  # any error: the thread has to delete the next messages
                _log.exception("messages were not deleted, and come again when their visibility timeout ends")

    def _run_drainer(self) -> None:
        """Give each parked group that is due to the threads of `_run_drain`."""
        while not self._stop.is_stopped():
            self.parts.signs.expect_end_of_work()
            try:
                for group_id in self.parts.drainer.claim():
                    self._claimed_groups.put(group_id)
            except Exception:  # the next round may succeed
                _log.exception("what was set aside was not looked at")
            self._stop.wait(_TICK_SECONDS)

    def _run_drain(self) -> None:
        while not self._stop.is_stopped():
            self.parts.signs.expect_end_of_work()
            try:
                group_id = self._claimed_groups.get(timeout=_TICK_SECONDS)
                if self.parts.drainer.drain(group_id):
                    self._drained_at = self._clock.monotonic()
            except Empty:
                continue
            except Exception:  # the group stays due, and is claimed again
                _log.exception("what was set aside was not handled")

    def _run_heartbeat(self) -> None:
        self.parts.signs.expect_beat()
        while not self._has_ended.wait(self.parts.heartbeat.interval_seconds):
            try:
                self.parts.heartbeat.beat()
            except Exception:  # the next beat may succeed
                _log.exception("nothing was extended")
            self.parts.signs.expect_beat()

    def _run_maintenance(self) -> None:
        while not self._stop.is_stopped():
            try:
                self.maintain()
            except Exception:  # maintenance must not end the worker
                _log.exception("maintenance failed; the next round may succeed")
            self._stop.wait(_TICK_SECONDS)
        self.parts.protection.stop()

    def maintain(self) -> None:
        """Tell ECS whether the worker is busy, let hooks measure, and once an hour delete the inbox's old rows."""
        self.parts.protection.want(is_busy=bool(self.parts.heartbeat.leases()))
        self.parts.hooks.call(WorkerHooks.tick, self)
        now = self._clock.monotonic()
        try:
            if now - self._forgot_at >= _FORGET_SECONDS:
                self._forgot_at = now
                self.forget()
        except DBAPIError as error:
            if not failures.may_pass(error):
                raise
            _log.warning("the database does not answer", error=str(error.orig).strip())

    def forget(self) -> None:
        """Delete groups of the inbox that received nothing for `keep_inbox_seconds`, and attempts as old.

        Raises:
            DBAPIError: the database refused, or did not answer.
        """
        inbox = self.parts.inbox
        for forget in (inbox.forget, inbox.attempts.forget):
            for _ in range(_FORGET_TIMES_MAX):
                with self.parts.engine.begin() as connection:
                    if forget(connection, self._settings.keep_inbox_seconds) < FORGOTTEN_MAX:
                        break

    def inbox_counts(self) -> Mapping[str, int]:
        """Return how many groups, messages and exceptions are parked, held and open. Queries the database."""
        return self.parts.inbox.counts(self.parts.engine)

    def stuck_count(self) -> int:
        """Return how many parts have given no sign of life in time; a blocked event loop of the process is one more."""
        return len(self.parts.signs.liveness.overdue()) + (async_handlers.blocker() is not None)

    def _is_idle(self) -> bool:
        idle_seconds = self._settings.idle_seconds
        if idle_seconds is None or self.parts.heartbeat.leases() or self.parts.drainer.leases():
            return False
        last = max([self._drained_at, *(lane.active_at for lane in self.parts.lanes)])
        return self._clock.monotonic() - last >= idle_seconds
