"""Three relays, an outbox and a topic, with any fault, in any order: P7 to P11, P13 to P15."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, seed
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice import limits
from sluice.messaging import Event, failpoints
from sluice.messaging.bundle import events_of
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.relay.calls import RelayPublish
from sluice.messaging.relay.relay import Relay
from tests.support.messaging.faulty_calls import Fault, ProcessKill, seeded_random
from tests.support.messaging.inbox_state_machine import run_machine
from tests.support.messaging.outbox.simulated_relays import (
    ForgetsWhatItTook,
    IgnoresFailures,
    MarksAllForOne,
    MarksFirst,
    Meanwhile,
    NewIdOnResend,
    PublishesInTransaction,
    ShuffledCalls,
    StoresNoBundles,
    TrustsEarlierLeaders,
    work,
)
from tests.support.messaging.world import QUEUES, SETTINGS, World, in_memory_world

GROUPS = "abc"
_GROUPS = st.lists(st.sampled_from(GROUPS), min_size=1, max_size=4)
_RELAYS = st.integers(0, 2)
_TIMES = st.sampled_from([1, 10, SETTINGS.lease_seconds + 1, SETTINGS.backoff.cap_seconds + 1, 301])
# In its transaction, at before_mark, a relay that pauses keeps all others waiting; there it can only die.
_PAUSES = st.sampled_from(["after_bundle", "after_claim", "before_publish", "after_publish"])
BUNDLED = replace(SETTINGS, bundle_events_max=3)
_FAULTS = st.one_of(
    st.just(Fault(lost=True)),
    st.just(Fault(unreachable=True)),
    st.just(Fault(refused="InternalFailure")),
    st.just(Fault(refused="InvalidParameter")),
    st.dictionaries(
        st.sampled_from(GROUPS), st.sampled_from([("InternalError", False), ("InvalidParameter", True)]), min_size=1
    ).map(lambda failed: Fault(failed=failed)),
    st.just(Fault(lost=True, failed={"a": ("InternalError", False)})),
)

type Build = Callable[[World, RelayPublish, Failpoint], Relay]


def _real(world: World, publish: RelayPublish, failpoint: Failpoint) -> Relay:
    """Build the product's own relay."""
    return world.relay(publish, failpoint=failpoint, rng=seeded_random(1))


def _with_several_calls(world: World, publish: RelayPublish, failpoint: Failpoint) -> Relay:
    """Build a relay that has several calls under way, whose answers come in any order."""
    return world.relay(publish, failpoint=failpoint, rng=seeded_random(1), calls=ShuffledCalls)


class Relays(RuleBasedStateMachine):
    """Takes any step of any part, and remembers the commits."""

    world: World
    build: Build = staticmethod(_real)
    bundle_events_max = 1

    def __init__(self) -> None:
        super().__init__()
        self.world.start_over()
        self.world.switch_bundles(self.bundle_events_max)
        self.committed: dict[str, list[str]] = {group: [] for group in GROUPS}
        self.doubtful: set[str] = set()
        self.armed: dict[int, tuple[str, Callable[[], None]]] = {}
        self.stepping: set[int] = set()
        self.paused: set[int] = set()
        self.relays = [self._relay(number) for number in range(3)]

    def _relay(self, number: int) -> Relay:
        """Return a relay with that number, which dies at its armed failpoint."""

        def die_if_armed(here: str) -> None:
            if number in self.armed and self.armed[number][0] == here:
                self.armed.pop(number)[1]()

        return self.build(self.world, Meanwhile(self.world.publisher(), self._look), die_if_armed)

    def _look(self, _: object) -> None:
        """Check, while a relay publishes, that it has no transaction open."""
        with closing(self.world.engine.raw_connection()) as connection:  # the one there is: it is in memory
            assert connection.driver_connection is not None
            assert not connection.driver_connection.in_transaction, "a transaction was open while publish ran"

    def _step(self, number: int) -> None:
        """Let a relay step, unless it is in a step; one that dies is replaced, and does not give its lease back."""
        if number in self.stepping:
            return
        self.stepping.add(number)
        before = len(self.world.sns_calls.requests)
        try:
            self.relays[number].step()
        except ProcessKill:
            self.relays[number] = self._relay(number)
        finally:
            self.stepping.remove(number)
        if number in self.paused:  # it may have published what it could not mark
            self.paused.remove(number)
            self._doubt(self.world.sns_calls.requests[before:])

    @rule(groups=_GROUPS)
    def commit(self, groups: list[str]) -> None:
        """Commit one transaction, after one that was taken back when its numbers had been given."""
        with self.world.engine.connect() as connection:
            self.world.outbox.write(connection, [Event(type="never", group=groups[0], data=None)])
        for made in self.world.commit(*groups):
            self.committed[made.group].append(made.id)

    @rule(number=_RELAYS, times=st.integers(1, 5))
    def step(self, number: int, times: int) -> None:
        """Let one relay take some steps."""
        for _ in range(times):
            self._step(number)

    @rule(number=_RELAYS, step=st.sampled_from([*failpoints.RELAY, *failpoints.RELAY_BUNDLES]))
    def die(self, number: int, step: str) -> None:
        """End one relay at a failpoint, and start another in its place."""

        def end() -> None:
            if step in {"after_publish", "before_mark"}:
                self._doubt(self.world.sns_calls.requests[-ShuffledCalls.most :])
            raise ProcessKill(step)

        self.armed[number] = (step, end)
        self.step(number, 3)

    @rule(number=_RELAYS, step=_PAUSES, seconds=_TIMES, others=st.lists(_RELAYS, max_size=6))
    def pause(self, number: int, step: str, seconds: float, others: list[int]) -> None:
        """Pause one relay at a failpoint for a while, in which the others work; then it continues.

        A relay that does not lead now is paused when it does.
        """

        def sleep() -> None:
            self.paused.add(number)
            self._doubt(self.world.sns_calls.requests[-ShuffledCalls.most :] if step == "after_publish" else [])
            self.world.clock.sleep(seconds)
            for other in others:
                if other != number:
                    self._step(other)

        before = len(self.world.sns_calls.requests)
        self.armed[number] = (step, sleep)
        self.step(number, 3)
        self._doubt(self.world.sns_calls.requests[before:])

    @rule(fault=_FAULTS)
    def fail(self, fault: Fault) -> None:
        """Give one of the next calls this fault."""
        self.world.sns_calls.faults.append(fault)

    @rule(seconds=_TIMES)
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.world.clock.sleep(seconds)

    @precondition(lambda self: "quarantined" in self.world.statuses().values())
    @rule()
    def unquarantine(self) -> None:
        """Set the quarantined messages to pending, as an operator does."""
        self.world.change(status="pending")

    @invariant()
    def sent_messages_are_in_the_topic_and_in_order(self) -> None:
        """No message is marked sent before the one in front of it, or before SNS has accepted it."""
        statuses = self.world.statuses()
        arrived = set(_ids(self.world.sns_calls.arrived))
        for group, ids in self.committed.items():
            are_sent = [statuses[group, seq] == "sent" for seq in range(1, 1 + len(ids))]
            assert are_sent == sorted(are_sent, reverse=True), "sent before the one in front of it"
            assert {id_ for id_, is_sent in zip(ids, are_sent, strict=True) if is_sent} <= arrived, "not in the topic"

    def teardown(self) -> None:
        """Publish everything that is left, and check the queues."""
        self._drain()
        for queue in QUEUES:
            self._check(self.world.receive_all(queue))

    def _drain(self) -> None:
        """Mend everything and let one relay publish whatever is left."""
        self.world.sns_calls.faults.clear()
        self.armed.clear()
        self.doubtful |= set(_ids(self.world.sns_calls.unanswered))
        for _ in range(3):  # who thinks it leads finds out, then leads; nothing waits longer than that
            self.world.change(status="pending")
            self.world.clock.sleep(SETTINGS.backoff.cap_seconds + 1)
            work(self.relays[0], 2_000)
        assert set(self.world.statuses().values()) <= {"sent"}

    def _check(self, messages: Sequence[dict[str, Any]]) -> None:
        """Check that a queue has each commit once and in order, and copies only where SNS may have made them."""
        firsts: dict[str, list[str]] = {group: [] for group in GROUPS}
        seqs: dict[str, list[int]] = {group: [] for group in GROUPS}
        last_ms: dict[str, int] = {}
        for message in messages:
            sent_ms = int(message["Attributes"]["SentTimestamp"])
            for arrived in events_of(message["Body"]):
                event = arrived.event
                if event.id in last_ms:
                    passed_seconds = (sent_ms - last_ms[event.id]) / 1_000
                    assert passed_seconds >= limits.DEDUPLICATION_WINDOW_SECONDS, "a copy within five minutes"
                    assert event.id in self.doubtful, "a copy of what was known to be published"
                else:
                    firsts[event.group].append(event.id)
                    seqs[event.group].append(arrived.seq)
                last_ms[event.id] = sent_ms

        assert firsts == self.committed, "lost, or out of order"
        assert seqs == {group: list(range(1, 1 + len(ids))) for group, ids in self.committed.items()}

    def _doubt(self, calls: Sequence[Sequence[dict[str, Any]]]) -> None:
        """Remember that the publishes of these calls may be repeated."""
        for call in calls:
            self.doubtful |= set(_ids(call))


def _ids(entries: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return the event ids of the entries of publishing calls."""
    return (arrived.event.id for entry in entries for arrived in events_of(entry["Message"]))


def test_random_faults_and_pauses_of_relays_lose_and_reorder_nothing() -> None:
    """Eight random runs of forty steps: commits, steps, deaths, pauses, faults and time."""
    run_machine(Relays, in_memory_world, max_examples=8, stateful_step_count=40)


class RelaysOfSeveralCalls(Relays):
    """Each relay has several calls on their way."""

    build = staticmethod(_with_several_calls)


class RelaysOfBundles(Relays):
    """Each relay sends up to three events of a group in one message."""

    build = staticmethod(lambda world, publish, failpoint: world.relay(publish, failpoint=failpoint, settings=BUNDLED))
    bundle_events_max = BUNDLED.bundle_events_max


def test_random_faults_and_pauses_of_relays_repeat_no_part_of_a_bundle() -> None:
    """The same runs with bundles: a repeat has the same events under the same deduplication id, whoever sends it."""
    run_machine(RelaysOfBundles, in_memory_world, max_examples=8, stateful_step_count=40)


@pytest.mark.slow  # each relay has one call in make test
def test_random_orders_of_several_calls_lose_and_reorder_nothing() -> None:
    """The answers of one relay's calls come in any order."""
    run_machine(RelaysOfSeveralCalls, in_memory_world, max_examples=40, stateful_step_count=40)


@pytest.mark.deep
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", [Relays, RelaysOfSeveralCalls, RelaysOfBundles])
def test_many_long_random_runs_of_relays_lose_and_reorder_nothing(kind: type[Relays]) -> None:
    """The machines of the tests above take longer runs."""
    run_machine(kind, in_memory_world, max_examples=150, stateful_step_count=100)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        pytest.param(
            lambda world, publish, failpoint: world.relay(IgnoresFailures(publish), failpoint=failpoint),
            "not in the topic|lost",
            id="P8 Failed ignored",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda world, publish, failpoint: world.relay(NewIdOnResend(publish), failpoint=failpoint),
            "a copy within five minutes",
            id="P10 a new id on resend",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda world, publish, failpoint: world.relay(publish, failpoint=failpoint, kind=MarksFirst),
            "not in the topic|lost",
            id="P15 marked before published",
        ),
        pytest.param(
            lambda world, publish, failpoint: world.relay(publish, failpoint=failpoint, kind=PublishesInTransaction),
            "a transaction was open",
            id="P7 published inside the transaction",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda world, publish, failpoint: world.relay(
                publish, failpoint=failpoint, kind=ForgetsWhatItTook, calls=ShuffledCalls
            ),
            "two messages of one group on their way",
            id="P5 two calls of one group",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda world, publish, failpoint: world.relay(
                publish, failpoint=failpoint, kind=MarksAllForOne, calls=ShuffledCalls
            ),
            "not in the topic|lost",
            id="P8 all marked for one",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda world, publish, failpoint: world.relay(
                publish, failpoint=failpoint, kind=StoresNoBundles, settings=BUNDLED
            ),
            "a copy within five minutes",
            id="bundles that are not stored",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda world, publish, failpoint: world.relay(
                publish, failpoint=failpoint, kind=TrustsEarlierLeaders, settings=BUNDLED
            ),
            "a copy within five minutes",
            id="bundles with an event that was sent alone",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_random_runs_find_each_broken_relay(build: Build, message: str) -> None:
    """Negative controls: the state machine finds each defect within two hundred runs."""

    class BrokenRelays(Relays):
        """Relays with the defect of this case."""

        bundle_events_max = BUNDLED.bundle_events_max

    BrokenRelays.build = staticmethod(build)
    seed(4)(BrokenRelays)  # with this seed each defect is found soon
    with pytest.raises(AssertionError, match=message):
        run_machine(
            BrokenRelays,
            in_memory_world,
            max_examples=200,
            phases=(Phase.generate,),
            database=None,
            report_multiple_bugs=False,
        )
