"""Relays for tests: their steps, waits and calls in any order, and broken relays.

The broken relays are kept because a check that never fails proves nothing: the check of its pitfall catches each.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol, override

from sqlalchemy import select

from sluice.clock import VirtualClock
from sluice.messaging.outbox import store, tables
from sluice.messaging.outbox.store import Head, PublishOutcome, PublishSuccess
from sluice.messaging.relay.calls import Answer, RelayPublish, publish_now
from sluice.messaging.relay.relay import Relay
from tests.support.messaging.faulty_calls import GroupPlace, seeded_random
from tests.support.messaging.world import World


def head(number: int = 1, **more: Any) -> Head:
    """Return a message as a relay takes it from the outbox."""
    ids = {"event_id": f"e{number}", "deduplication_id": f"e{number}", "group_id": f"g{number}"}
    stored = {"group_seq": 1, "body": "{}", "attributes": {}, "status": tables.PENDING, "attempts": 0}
    return Head(**{"id": number, "not_before_us": 0, "created_at_us": 0, **ids, **stored, **more})


def of_group(group: str, places: Iterable[GroupPlace]) -> list[int]:
    return [seq for its_group, seq in places if its_group == group]


class Steps(Protocol):
    """The part of a relay that tests use."""

    def step(self) -> bool:
        """Take one step; return whether there may be more to do."""


def work(relay: Steps, times_max: int = 200) -> None:
    """Let a relay step until it finds nothing due."""
    for _ in range(times_max):
        if not relay.step():
            return
    raise AssertionError(f"there was still something to do after {times_max} steps")


class Turns:
    """A wait that moves the clock and ends after a number of turns; `meanwhile` is called after each."""

    def __init__(self, clock: VirtualClock, turns: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._clock, self._turns, self._meanwhile = clock, turns, meanwhile
        self.waited: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self._clock.sleep(seconds)
        self._meanwhile()

    def is_stopped(self) -> bool:
        return len(self.waited) >= self._turns


class Meanwhile:
    """A publish during which another action happens, before it arrives at the topic."""

    def __init__(self, publish: RelayPublish, happens: Callable[[Sequence[Head]], object]) -> None:
        self._publish, self._happens = publish, happens

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        self._happens(heads)
        return self._publish.publish(heads)


class ShuffledCalls:
    """Several calls at once, which arrive at the topic in any order and are answered at any later time.

    No two of them may have messages of one group.
    """

    most = 4

    def __init__(self, publish: RelayPublish) -> None:
        self._publish, self._rng = publish, seeded_random(5)
        self._on_their_way: list[Sequence[Head]] = []

    def begin(self, heads: Sequence[Head]) -> None:
        groups = [head.group_id for call in [*self._on_their_way, heads] for head in call]
        assert len(groups) == len(set(groups)), "two messages of one group on their way"
        self._on_their_way.append(heads)

    def collect(self, _: float) -> list[Answer]:
        self._rng.shuffle(self._on_their_way)
        count = self._rng.randint(min(1, len(self)), len(self))
        arriving, self._on_their_way = self._on_their_way[:count], self._on_their_way[count:]
        return [publish_now(self._publish, heads) for heads in arriving]

    def __len__(self) -> int:
        return len(self._on_their_way)


class IgnoresFailures:
    """Broken: takes an answer of HTTP 200 for a success of all (P8)."""

    def __init__(self, publish: RelayPublish) -> None:
        self._publish = publish

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        self._publish.publish(heads)
        return [PublishSuccess("unknown") for _ in heads]


class NewIdOnResend:
    """Broken: a repeat is another message to the topic (P10)."""

    def __init__(self, publish: RelayPublish) -> None:
        self._publish = publish

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        return self._publish.publish([replace(head, deduplication_id=str(uuid.uuid4())) for head in heads])


class PublishesInTransaction(Relay):
    """Broken: holds its transaction while it publishes (P7)."""

    @override
    def _begin_call(self, batch: Sequence[Head], *_: object) -> None:
        with self._lease.writing() as connection:
            outcomes = self._publish.publish(batch)
            self._store.mark(connection, [(head, outcome, 0) for head, outcome in zip(batch, outcomes, strict=True)])
        self._free_groups(batch)


class MarksFirst(Relay):
    """Broken: marks messages as sent before it publishes them (P15)."""

    @override
    def _begin_call(self, batch: Sequence[Head], *_: object) -> None:
        with self._lease.writing() as connection:
            self._store.mark(connection, [(head, PublishSuccess("unknown"), 0) for head in batch])
        self._failpoint("before_publish")
        self._publish.publish(batch)
        self._free_groups(batch)


class ForgetsWhatItTook(Relay):
    """Broken: takes further messages of a group while one is under way."""

    @override
    def _begin_call(self, batch: Sequence[Head], *_: object) -> None:
        super()._begin_call(batch)
        self._free_groups(batch)


class MarksAllForOne(Relay):
    """Broken: when one of several calls was answered, marks the messages of all."""

    @override
    def _mark(self, outcomes: Sequence[tuple[Head, PublishOutcome]]) -> None:
        is_sent = any(isinstance(outcome, PublishSuccess) for _, outcome in outcomes)
        super()._mark([(head, PublishSuccess("unknown") if is_sent else outcome) for head, outcome in outcomes])


class StoresNoBundles(Relay):
    """Broken: sends bundles whose events nobody can find out later."""

    @override
    def _bundle(self, due: Sequence[Head], bundle_events_max: int) -> list[Head]:
        size = {"bundle_events_max": bundle_events_max, "event_bytes_max": self._settings.event_bytes_max}
        return self._store.gather(due, token=self._lease.token, **size)


class TrustsEarlierLeaders(Relay):
    """Broken: bundles an event that an earlier leader may have sent alone."""

    @override
    def _begin_first_walk(self) -> None:
        super()._begin_first_walk()
        self._is_first_walk = False


class ClaimsRows:
    """Broken: any relay takes any rows that no other has locked (P5).

    Postgres only, because SQLite has no SKIP LOCKED.
    """

    def __init__(self, world: World, publish: RelayPublish) -> None:
        self._world, self._publish = world, publish

    def step(self) -> bool:
        columns = [tables.messages.c[field.name] for field in fields(Head) if field.name in tables.messages.c]
        rows = select(*columns).where(tables.messages.c.status == tables.PENDING)
        rows = rows.order_by(tables.messages.c.id).limit(2).with_for_update(skip_locked=True)
        with self._world.engine.begin() as connection:
            heads = [store.head(row) for row in connection.execute(rows)]
            outcomes = self._publish.publish(heads) if heads else []
            self._world.store.mark(
                connection, [(head, outcome, 0) for head, outcome in zip(heads, outcomes, strict=True)]
            )
        return bool(heads)
