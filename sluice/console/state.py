"""The state of one console: the environment as last read, the counts of earlier reads, and results of actions."""

import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Engine

from sluice.cli.dlq.target import DlqTarget
from sluice.cli.overview.facts import EnvironmentState, gather
from sluice.cli.overview.sources import QueueCounts, Sources, Unknown
from sluice.cli.targets import ConsumerTarget, consumer_of
from sluice.clock import Clock
from sluice.declaration import Consumer, Environment, naming
from sluice.errors import ConfigError
from sluice.messaging.sqs.dead_letter_limits import HOLD_SECONDS
from sluice.terminal import output

LOOK_SECONDS = 5
"""The state of the environment is read at most this often; pages that are open at the same time share it."""
_SAMPLES_MAX = 360  # half an hour of reads, for the charts
_RESULTS_MAX = 50  # results of actions that are kept for their pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The counts of one read: name of a topic or consumer to its count; unknown counts are left out."""

    at_seconds: float
    backlogs: dict[str, int]
    waiting: dict[str, int]
    dead: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The result of an action: its label, and for each row whether it was done, with a sentence."""

    label: str
    reason: str
    lines: list[tuple[bool, str]]
    back_url: str


@dataclass(slots=True, kw_only=True)
class Console:
    """One console.

    Args:
        consumers: the consumers that its pages show.
        may_act: whether its pages may act.
    """

    sources: Sources
    consumers: tuple[Consumer, ...]
    may_act: bool
    clock: Clock
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _seen: EnvironmentState | None = None
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES_MAX))
    _results: OrderedDict[str, ActionResult] = field(default_factory=OrderedDict)
    _announced: set[str] = field(default_factory=set)

    @property
    def environment(self) -> Environment:
        """Return the environment as it is declared."""
        return self.sources.environment

    @property
    def topics(self) -> list[str]:
        """Return the names of the topics that have an outbox."""
        return [naming.topic_name(self.environment, topic.name) for topic in self.environment.published_topics]

    def look(self) -> tuple[EnvironmentState, list[Sample]]:
        """Return the state of the environment, at most `LOOK_SECONDS` old, and the counts of all reads so far."""
        with self._looking:
            now = self.clock.monotonic()
            if self._seen is None or now - self._samples[-1].at_seconds >= LOOK_SECONDS:
                self._seen = gather(self.sources, self.consumers)
                self._samples.append(_sample(self._seen, self.clock.monotonic()))
                self._announce(self._seen.unknown)
            return self._seen, list(self._samples)

    def _announce(self, unknown: dict[str, str]) -> None:
        """Print the names that cannot be read, each reason once."""
        for name, reason in unknown.items():
            if reason not in self._announced:
                self._announced.add(reason)
                output.line(f"{name}: {reason}", is_error=True)

    def consumer(self, name: str) -> Consumer:
        """Return a consumer that is shown.

        Raises:
            ConfigError: there is none of that name.
        """
        found = consumer_of(self.environment, name)
        if found not in self.consumers:
            raise ConfigError(f"consumer {name!r} is not shown here; start `sluice ui` without --consumer")
        return found

    def inbox(self, consumer: str) -> Engine:
        """Return the engine of a consumer's inbox.

        Raises:
            ConfigError: there is none; the reason says why.
        """
        return require_engine(self.sources.inboxes[self.consumer(consumer).name])

    def outbox(self) -> Engine:
        """Return the engine of the outbox.

        Raises:
            ConfigError: there is none; the reason says why.
        """
        return require_engine(self.sources.outbox)

    def dead_letters(self, consumer: str) -> DlqTarget:
        """Return the DLQ of a consumer."""
        target = ConsumerTarget(
            environment=self.environment,
            consumer=self.consumer(consumer),
            database=self.inbox(consumer),
            endpoint_url=self.sources.endpoint_url,
        )
        return DlqTarget(target=target, is_undelivered=False, hold_seconds=HOLD_SECONDS, is_forced=False)

    def keep_result(self, result: ActionResult) -> str:
        """Keep the result of an action for its page, and return its key; the next page reads the environment anew."""
        self._seen = None
        key = secrets.token_urlsafe(8)
        self._results[key] = result
        while len(self._results) > _RESULTS_MAX:
            self._results.popitem(last=False)
        return key

    def result(self, key: str) -> ActionResult | None:
        """Return a kept result; None where it is not kept any more."""
        return self._results.get(key)


def require_engine(engine: Engine | Unknown) -> Engine:
    """Return an engine.

    Raises:
        ConfigError: there is none; the reason says why.
    """
    if isinstance(engine, Unknown):
        raise ConfigError(engine.reason)
    return engine


def _sample(state: EnvironmentState, at_seconds: float) -> Sample:
    def count(counts: QueueCounts | Unknown, of: Callable[[QueueCounts], int]) -> int | None:
        return None if isinstance(counts, Unknown) else of(counts)

    backlogs = {each.topic: each.pending for each in state.topics if not isinstance(each.pending, Unknown)}
    waiting = {each.consumer: count(each.queue, lambda queue: queue.total) for each in state.consumers}
    dead = {each.consumer: count(each.dead_letters, lambda queue: queue.total) for each in state.consumers}
    return Sample(
        at_seconds=at_seconds,
        backlogs=backlogs,
        waiting={name: value for name, value in waiting.items() if value is not None},
        dead={name: value for name, value in dead.items() if value is not None},
    )
