"""Publishing calls under way, each on a thread of its own.

The caller of `begin` makes sure that no two calls hold messages of one group. `begin` and `collect` run on the relay's
thread; only `publish` runs on other threads.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from sluice.messaging.outbox.store import Head, PublishOutcome
from sluice.messaging.relay.publisher import CALLS_MAX, BatchRefusedError


class RelayPublish(Protocol):
    """A publisher of batches. `Calls` may call it on several threads at once."""

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        """Publish these heads, and return the outcome of each, in the order of `heads`.

        Raises:
            BatchRefusedError: each head has to be published in a call of its own.
        """


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a publishing call.

    `outcomes` has the outcome of each head, or is None if each head has to be published in a call of its own.
    """

    heads: Sequence[Head]
    outcomes: Sequence[PublishOutcome] | None


class Calls(Protocol):
    """Publishing calls under way, at most `most` at once. `len` is the number of calls that are not collected yet."""

    most: int

    def begin(self, heads: Sequence[Head]) -> None:
        """Begin a call. The caller has checked that fewer than `most` are under way."""

    def collect(self, wait_seconds: float) -> list[Answer]:
        """Return the answers that have arrived; if there are none, wait at most `wait_seconds` for the first one."""

    def __len__(self) -> int: ...


def publish_now(publish: RelayPublish, heads: Sequence[Head]) -> Answer:
    """Publish on the calling thread, and return the answer."""
    try:
        return Answer(heads, publish.publish(heads))
    except BatchRefusedError:
        return Answer(heads, None)


class CallsAtOnce:
    """Calls that run at the same time, each on a thread. The threads end when this object is no longer used."""

    most = CALLS_MAX

    def __init__(self, publish: RelayPublish) -> None:
        self._publish = publish
        self._pool = ThreadPoolExecutor(self.most, thread_name_prefix="publish")
        self._answers: SimpleQueue[Answer | BaseException] = SimpleQueue()
        self._count = 0

    def begin(self, heads: Sequence[Head]) -> None:
        """Start the call on a thread of the pool."""
        self._count += 1
        self._pool.submit(self._call, heads)

    def collect(self, wait_seconds: float) -> list[Answer]:
        """Return the answers that have arrived; if there are none, wait at most `wait_seconds` for the first one.

        Raises:
            BaseException: a call raised it. Answers that arrived before it are returned first; the next `collect`
                raises it.
        """
        answers: list[Answer] = []
        try:
            while True:
                answer = self._answers.get(block=not answers, timeout=wait_seconds)
                if answers and isinstance(answer, BaseException):
                    self._answers.put(answer)
                    return answers
                self._count -= 1
                if isinstance(answer, BaseException):
                    raise answer
                answers.append(answer)
        except Empty:
            return answers

    def __len__(self) -> int:
        return self._count

    def _call(self, heads: Sequence[Head]) -> None:
        try:
            self._answers.put(publish_now(self._publish, heads))
        except BaseException as error:
            self._answers.put(error)
