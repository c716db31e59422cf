"""Several publishing calls on their way at once, each on a thread: what they share, and what one of them loses."""

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import override

import pytest
from sqlalchemy import Engine

from sluice import limits
from sluice.clock import VirtualClock, eventually
from sluice.messaging import Event, Outbox
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.store import Head, PublishOutcome, PublishRetry, PublishSuccess, Store
from sluice.messaging.relay.calls import Answer, CallsAtOnce
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.relay import Relay, RelaySettings
from tests.support.messaging.world import TOPIC, CallsInTurn

_PATIENCE_SECONDS = 30
_STEPS_MAX = 500
_GROUPS_OF_THREE_CALLS = 3 * limits.PUBLISH_BATCH_ENTRIES_MAX


class _Gate:
    """A topic that answers when it is opened; the test can wait until a number of calls has arrived."""

    def __init__(self) -> None:
        self.opened, self.lost_groups, self.fatal_groups = threading.Event(), frozenset[str](), frozenset[str]()
        self.calls: list[list[str]] = []
        self._arrived = threading.Condition()

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        groups = [head.group_id for head in heads]
        with self._arrived:
            self.calls.append(groups)
            self._arrived.notify_all()
        assert self.opened.wait(_PATIENCE_SECONDS)
        if self.fatal_groups & set(groups):
            raise ZeroDivisionError
        is_lost = self.lost_groups & set(groups)
        return [PublishRetry("no answer") if is_lost else PublishSuccess("id", "1") for _ in heads]

    def await_calls(self, count: int) -> None:
        """Wait until this number of calls has come."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.calls) >= count, _PATIENCE_SECONDS), self.calls


@pytest.fixture
def gate() -> Iterator[_Gate]:
    """Yield a topic that answers when the test lets it, and at the latest at the end of the test."""
    made = _Gate()
    yield made
    made.opened.set()


def _relay(engine: Engine, gate: _Gate, *, hooks: Sequence[RelayHooks] = ()) -> Relay:
    """Return a relay whose publishing calls wait at the gate."""
    lease = Lease(engine, TOPIC, lease_seconds=30)
    return Relay(Store(engine, TOPIC), lease, gate, settings=RelaySettings(), hooks=hooks)


def _commit(engine: Engine, groups: Sequence[str]) -> None:
    """Commit an event to each of these groups."""
    with engine.begin() as connection:
        Outbox(TOPIC).write(connection, [Event(type="a.b", group=group, data=None) for group in groups])


def _statuses(engine: Engine) -> dict[tuple[str, int], str]:
    """Return the status of each message, by group and number."""
    with engine.connect() as connection:
        rows = connection.execute(tables.messages.select()).mappings()
        return {(row["group_id"], row["group_seq"]): row["status"] for row in rows}


def _until_sent(relay: Relay, engine: Engine, count: int) -> None:
    """Let the relay take steps until `count` messages are sent."""
    for _ in range(_STEPS_MAX):
        relay.step()
        if list(_statuses(engine).values()).count("sent") == count:
            return
    raise AssertionError(f"{_statuses(engine)} after {_STEPS_MAX} steps")


def test_calls_of_different_groups_are_on_their_way_together(engine: Engine, gate: _Gate) -> None:
    """Thirty groups need three calls, because SNS takes ten entries in each.

    No call waits for another one; a group's second message waits for the answer about its first.
    """
    groups = [f"g{number:02}" for number in range(_GROUPS_OF_THREE_CALLS)]
    _commit(engine, [*groups, *groups])
    relay = _relay(engine, gate)

    for _ in range(5):
        relay.step()
    gate.await_calls(3)
    together = sorted(group for call in gate.calls for group in call)
    gate.opened.set()
    _until_sent(relay, engine, 2 * _GROUPS_OF_THREE_CALLS)
    relay.close()

    assert together == groups
    assert sorted(group for call in gate.calls for group in call) == sorted([*groups, *groups])


def test_a_call_without_an_answer_delays_only_its_own_messages(engine: Engine, gate: _Gate) -> None:
    """Of three calls the one with group g15 has no answer, so its ten messages stay pending until their next try."""
    groups = [f"g{number:02}" for number in range(_GROUPS_OF_THREE_CALLS)]
    _commit(engine, groups)
    gate.lost_groups = frozenset({"g15"})
    gate.opened.set()
    relay = _relay(engine, gate)

    _until_sent(relay, engine, _GROUPS_OF_THREE_CALLS - limits.PUBLISH_BATCH_ENTRIES_MAX)
    relay.close()

    [lost] = [call for call in gate.calls if "g15" in call][:1]
    pending = {group for (group, _), status in _statuses(engine).items() if status == "pending"}
    assert pending == set(lost)


def test_a_slow_call_does_not_delay_another_group(engine: Engine, gate: _Gate) -> None:
    """A message that is committed during the call is published by a second call."""
    _commit(engine, ["slow"])
    relay = _relay(engine, gate)
    for _ in range(3):
        relay.step()
    gate.await_calls(1)

    _commit(engine, ["next"])
    for _ in range(10):
        relay.step()
    gate.await_calls(2)

    assert gate.calls == [["slow"], ["next"]]


def test_a_closing_relay_marks_its_open_calls_before_it_releases_the_lease(engine: Engine, gate: _Gate) -> None:
    """No other relay may lead while a call is under way."""
    _commit(engine, ["a"])
    relay, other = _relay(engine, gate), Lease(engine, TOPIC, lease_seconds=30)
    for _ in range(3):
        relay.step()
    gate.await_calls(1)

    closing = threading.Thread(target=relay.close)
    closing.start()
    led_early = other.acquire()
    gate.opened.set()
    closing.join(_PATIENCE_SECONDS)

    assert led_early is False
    assert other.acquire() is True
    assert _statuses(engine) == {("a", 1): "sent"}


def test_an_exception_in_a_call_ends_the_relay(engine: Engine) -> None:
    """An error that is no answer of SNS is a defect, and trying again would hide it."""

    class BrokenPublish:
        def publish(self, _: Sequence[Head]) -> list[PublishOutcome]:
            raise ZeroDivisionError

    _commit(engine, ["a"])
    lease = Lease(engine, TOPIC, lease_seconds=30)
    relay = Relay(Store(engine, TOPIC), lease, BrokenPublish(), settings=RelaySettings())

    def steps() -> None:
        for _ in range(_STEPS_MAX):
            relay.step()

    with pytest.raises(ZeroDivisionError):
        steps()


def test_a_closing_relay_keeps_its_lease_if_a_call_does_not_end(engine: Engine, gate: _Gate) -> None:
    """Such a call might arrive behind the next leader's publishes. The lease runs out by itself."""
    clock = VirtualClock()
    on_its_way: list[Head] = []

    class Hanging(CallsInTurn):
        def begin(self, heads: Sequence[Head]) -> None:
            on_its_way.extend(heads)

        def collect(self, _: float) -> list[Answer]:
            clock.sleep(1)
            return []

        def __len__(self) -> int:
            return len(on_its_way)

    _commit(engine, ["a"])
    lease, other = (Lease(engine, TOPIC, lease_seconds=30) for _ in range(2))
    relay = Relay(Store(engine, TOPIC), lease, gate, settings=RelaySettings(), calls=Hanging, clock=clock)
    for _ in range(3):
        relay.step()

    relay.close()

    assert [head.group_id for head in on_its_way] == ["a"]
    assert not other.acquire()


class _CountingHooks(RelayHooks):
    """Counts how often the relay reports its end."""

    def __init__(self) -> None:
        self.count = 0

    @override
    def after_end(self) -> None:
        self.count += 1


def test_a_relay_that_two_calls_break_still_marks_the_third(engine: Engine, gate: _Gate) -> None:
    """It releases its lease as well, so that the next relay leads at once."""
    groups = [f"g{number:02}" for number in range(_GROUPS_OF_THREE_CALLS)]
    _commit(engine, groups)
    gate.fatal_groups = frozenset({"g05", "g25"})
    ends = _CountingHooks()
    relay, other = _relay(engine, gate, hooks=[ends]), Lease(engine, TOPIC, lease_seconds=30)
    for _ in range(5):
        relay.step()
    gate.await_calls(3)

    gate.opened.set()
    with pytest.raises(ZeroDivisionError):
        _until_sent(relay, engine, _GROUPS_OF_THREE_CALLS)
    with pytest.raises(ZeroDivisionError):
        relay.close()

    sent = [group for (group, _), status in _statuses(engine).items() if status == "sent"]
    assert sorted(sent) == groups[10:20]
    assert other.acquire() is True
    assert ends.count == 1


def test_an_answer_is_collected_before_a_later_calls_error() -> None:
    """Otherwise the first call's messages would stay pending and be sent twice."""
    answers: Iterator[PublishOutcome] = iter([PublishSuccess("id", "1")])

    class FailingPublisher:
        def publish(self, _: Sequence[Head]) -> list[PublishOutcome]:
            for answer in answers:
                return [answer]
            raise ZeroDivisionError

    calls = CallsAtOnce(FailingPublisher())
    for count in (1, 2):
        calls.begin([])
        eventually(partial(_have_ended, calls, count), timeout_seconds=_PATIENCE_SECONDS, describe="it has an answer")

    assert calls.collect(0) == [Answer([], [PublishSuccess("id", "1")])]
    with pytest.raises(ZeroDivisionError):
        calls.collect(0)
    assert calls.collect(0) == []
    assert len(calls) == 0


def _have_ended(calls: CallsAtOnce, count: int) -> bool:
    """Return whether the answers of `count` calls have come."""
    return calls._answers.qsize() == count
