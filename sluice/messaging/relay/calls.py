"""Publishing calls that are on their way, each on a thread of its own.

Whoever begins a call sees to it that no two of them hold messages of one group. Calls begin and are collected on the
relay's thread; nothing but `publish` runs on another.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from sluice.messaging.outbox.store import Head, PublishOutcome
from sluice.messaging.relay.publisher import CALLS_MAX, BatchRefusedError


class RelayPublish(Protocol):
    """Publishes a batch. `Calls` may call it on several threads at once."""

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        """Return each head's outcome, in the order given; raise BatchRefusedError where each has to be tried alone."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call: an outcome for each head, or None where each of them has to be tried alone."""

    heads: Sequence[Head]
    outcomes: Sequence[PublishOutcome] | None


class Calls(Protocol):
    """Calls on their way, at most `most`; its length is how many have not been collected."""

    most: int

    def begin(self, heads: Sequence[Head]) -> None:
        """Begin a call; there is room for it."""

    def collect(self, wait_seconds: float) -> list[Answer]:
        """Return the answers that have come; where none has, wait for the first one, so long at most."""

    def __len__(self) -> int: ...


def publish_now(publish: RelayPublish, heads: Sequence[Head]) -> Answer:
    """Publish now, and return what became of it."""
    try:
        return Answer(heads, publish.publish(heads))
    except BatchRefusedError:
        return Answer(heads, None)


class CallsAtOnce:
    """Several calls at once. Its threads end when it is not used any more, at the latest with the process."""

    most = CALLS_MAX

    def __init__(self, publish: RelayPublish) -> None:
        self._publish = publish
        self._pool = ThreadPoolExecutor(self.most, thread_name_prefix="publish")
        self._answers: SimpleQueue[Answer | BaseException] = SimpleQueue()
        self._count = 0

    def begin(self, heads: Sequence[Head]) -> None:
        """Let a thread publish."""
        self._count += 1
        self._pool.submit(self._call, heads)

    def collect(self, wait_seconds: float) -> list[Answer]:
        """Return the answers that have come.

        Raises:
            BaseException: what a call raised, other than that its entries have to be tried alone. Answers that came
                before it are returned first.
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
