"""A local Lambda function with its pollers: each thread polls a queue and invokes a process of the function."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from sluice import error_codes, sdk
from sluice.clock import SystemClock
from sluice.lambda_local.process import FunctionProcess
from sluice.simulator.model.mapping import EventSourceMapping, NoAnswer, SqsCall
from sluice.terminal.logger import Logger

_log = Logger()
_PAUSE_SECONDS = 0.2
_SERVER_ERROR = 500


def sqs_call(client: Any) -> SqsCall:
    """Return a function that calls SQS through a boto3 client, by the operation's name and its parameters."""

    def call(operation: str, params: dict[str, Any]) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = getattr(client, xform_name(operation))(**params)
        return answer

    return call


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSchedule:
    """An event with which the function is invoked every `seconds`."""

    event: Mapping[str, Any]
    seconds: float


class LocalFunction:
    """Polls a queue and invokes a function in several threads.

    Args:
        make_mapping: makes the event source mapping, the poller, of one thread.
        make_process: makes the execution environment of one thread.
        concurrency: the number of threads.
        schedule: an event for the function of the first thread, besides those of the queue.
        is_throttled: returns whether invocations are refused now, as if other functions used up the concurrency.
    """

    def __init__(
        self,
        make_mapping: Callable[[], EventSourceMapping],
        make_process: Callable[[], FunctionProcess],
        *,
        concurrency: int,
        schedule: FunctionSchedule,
        is_throttled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._make_mapping, self._make_process = make_mapping, make_process
        self._concurrency, self._schedule, self._is_throttled = concurrency, schedule, is_throttled
        self._clock, self._stop = SystemClock(), threading.Event()
        self._active_at, self._running = self._clock.monotonic(), set[int]()
        self._failure: BaseException | None = None
        self._invocations: Counter[str] = Counter()

    def stop(self) -> None:
        """Let `run` end; called from any thread."""
        self._stop.set()

    def run(self, *, is_stopped: Callable[[], bool], idle_seconds: float | None) -> None:
        """Poll and invoke until `stop` is called, `is_stopped` returns true, or no message came for `idle_seconds`.

        Raises:
            Exception: the error of a poll that a retry does not mend: the queue is gone, or refuses the caller.
        """
        threads = [
            threading.Thread(target=self._work, args=(number,), name=f"function-{number}", daemon=True)
            for number in range(self._concurrency)
        ]
        self._active_at = self._clock.monotonic()
        for thread in threads:
            thread.start()
        _log.info("polling", invocations_max=self._concurrency)
        while not (is_stopped() or self._stop.is_set() or self._is_idle(idle_seconds)):
            self._stop.wait(_PAUSE_SECONDS)
        self._stop.set()
        for thread in threads:
            thread.join()
        _log.info("stopped", **{name: self._invocations[name] for name in ("answered", "failed", "throttled")})
        if self._failure is not None:
            raise self._failure

    def _work(self, number: int) -> None:
        """Poll and invoke in one thread until the end; thread 0 also invokes the function with the schedule's event."""
        mapping, process = self._make_mapping(), self._make_process()
        scheduled_at = self._clock.monotonic()
        try:
            while not self._stop.is_set():
                if number == 0 and self._clock.monotonic() - scheduled_at >= self._schedule.seconds:
                    scheduled_at = self._clock.monotonic()
                    process.invoke(self._schedule.event, is_stopped=self._stop.is_set)
                try:
                    is_busy = self._step(mapping, process)
                except (ClientError, *sdk.UNANSWERED) as error:
                    if not _may_pass(error):
                        raise
                    _log.warning("the queue does not answer", error=str(error))
                    is_busy = False
                if not is_busy:
                    self._stop.wait(_PAUSE_SECONDS)
        except Exception as error:  # the main thread raises it
            self._failure = error
            self._stop.set()
        finally:
            process.close()

    def _step(self, mapping: EventSourceMapping, process: FunctionProcess) -> bool:
        """Poll once, and invoke the function with the batch; return whether it was invoked."""
        invocation = mapping.poll(self._clock.monotonic())
        if invocation is None:
            return False
        self._active_at = self._clock.monotonic()
        if self._is_throttled():
            self._invocations["throttled"] += 1
            _log.warning("throttled", messages=len(invocation.messages))
            mapping.finish(invocation, NoAnswer.THROTTLED, self._clock.monotonic())
            return False
        self._running.add(id(process))
        answer = process.invoke(invocation.event, is_stopped=self._stop.is_set)
        self._invocations["failed" if isinstance(answer, NoAnswer) else "answered"] += 1
        mapping.finish(invocation, answer, self._clock.monotonic())
        self._active_at = self._clock.monotonic()
        self._running.discard(id(process))
        return True

    def _is_idle(self, idle_seconds: float | None) -> bool:
        """Return whether no invocation is under way, and none was for `idle_seconds`; None means never idle."""
        if idle_seconds is None or self._running:
            return False
        return self._clock.monotonic() - self._active_at >= idle_seconds


def _may_pass(error: Exception) -> bool:
    """Return whether a call that failed with this error may succeed when it is repeated."""
    if not isinstance(error, ClientError):
        return not isinstance(error, sdk.NO_CREDENTIALS)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", _SERVER_ERROR))
    return status >= _SERVER_ERROR or error_codes.is_throttled(str(error.response.get("Error", {}).get("Code", "")))
