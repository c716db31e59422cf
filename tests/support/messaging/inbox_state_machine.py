"""A state machine of one consumer: any event, in any order, compared with a model."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import structlog.testing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine, Row, event, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from sluice.messaging import Event, failpoints
from sluice.messaging.bundle import write_bundle
from sluice.messaging.database import engines
from sluice.messaging.envelope import TOMBSTONE, Envelope
from sluice.messaging.errors import DeadLetterError
from sluice.messaging.handlers import Context, Outcome, Reject, Retry
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.tables import DEAD, FILLED, GAP, REDRIVEN, SKIPPED, exceptions, groups, parked
from sluice.messaging.sqs.dead_letter_queue import DeadLetterQueue, Destination
from sluice.messaging.sqs.rate_limit import Pace
from sluice.messaging.sqs.redrive import Redrive, new_run
from sluice.messaging.worker.processing.processor import MessageProcessor
from tests.support.messaging import fresh_tables
from tests.support.messaging.database_errors import busy
from tests.support.messaging.faulty_calls import Fault, GroupPlace, ProcessKill
from tests.support.messaging.world import METADATA, TIMEOUT_SECONDS, WorkerParts, World, envelope

GROUPS = "abc"
GARBAGE = '"no envelope"'
GAP_WAIT_SECONDS = 100
_COUNT = 3
_OF_DRAINER = ("in_drain", "before_drain_commit", "after_drain_commit")
_OF_LANE = tuple(name for name in failpoints.WORKER if name not in _OF_DRAINER)
# In a transaction, who pauses keeps the others from the one database; there he can only die.
_PAUSES = st.sampled_from(
    ["after_receive", "after_commit", "after_park", "after_death", "before_delete", "before_release"]
)
_GROUPS = st.sampled_from(GROUPS)
_HANDS = st.integers(0, _COUNT - 1)
_MOODS = st.sampled_from(["well", "well", "well", "retry", "reject", "fail", "long", "too long"])
_REFUSED = st.builds(lambda begin, count: range(begin, begin + count), st.integers(1, 12), st.integers(0, 4))
_HOWS = st.sampled_from(["sent", "sent", "sent", "sent", "tombstone", "withheld", "garbled"])
_BUNDLES = st.lists(_HOWS, min_size=2, max_size=5)
_TIMES = st.sampled_from([1, 5, TIMEOUT_SECONDS + 1, GAP_WAIT_SECONDS + 1, 301])
_FAULTS = st.builds(
    lambda operation, is_lost: Fault(operation=operation, lost=is_lost, unreachable=not is_lost),
    st.sampled_from(["ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch"]),
    st.booleans(),
)


class FaultyDatabase:
    """Takes an in-memory database away for a few statements, or loses the answer to a commit."""

    def __init__(self, engine: Engine) -> None:
        self.refuses: range = range(0)
        self.loses_commit = False
        self._count = 0
        event.listen(engine, "before_cursor_execute", self._execute)
        commit = engine.dialect.do_commit

        def do_commit(connection: Any) -> None:
            commit(connection)
            if self.loses_commit:
                self.loses_commit = False
                raise busy()

        engine.dialect.do_commit = do_commit  # type: ignore[assignment,method-assign]

    def stop_failing(self) -> None:
        """From now on refuse no statement and lose no commit."""
        self.refuses, self.loses_commit, self._count = range(0), False, 0

    def _execute(self, *_: object) -> None:
        self._count += 1
        if self._count in self.refuses:
            raise OperationalError("as told", None, busy())


class SimulatedConsumer(World):
    """A consumer with a configurable handler, whose workers can be replaced."""

    def __init__(self, engine: Engine, *, has_bundles: bool = False) -> None:
        super().__init__(engine, has_bundles=has_bundles)
        self.mood = "well"
        self.is_late: dict[GroupPlace, bool] = {}
        self.at_work: list[WorkerParts] = []
        self.database = FaultyDatabase(engine)

    def begin_again(self, policy: InboxPolicy) -> None:
        self.database.stop_failing()
        self.start_over()
        self.policy, self.inbox = policy, Inbox(policy, clock=self.clock)
        self.mood = "well"
        self.is_late.clear()

    def _handle(self, session: Session, event: Event, context: Context) -> Outcome | None:
        super()._handle(session, event, context)
        self.calls.clear()
        self.is_late[event.group, context.seq] = context.is_late
        match self.mood:
            case "retry":
                return Retry(delay_seconds=3)
            case "reject":
                return Reject("never")
            case "fail":
                raise ValueError("a handler that fails")
            case "long":
                for _ in range(3):
                    self.simulator.advance(TIMEOUT_SECONDS / 2)
                    self.at_work[-1].heartbeat.beat()
            case "too long":
                self.simulator.advance(TIMEOUT_SECONDS + 1)
        return None


class InboxStateMachine(RuleBasedStateMachine):
    """Takes any step of any part, and remembers which messages were sent, withheld and given up."""

    world: SimulatedConsumer
    policy: InboxPolicy
    work: type[MessageProcessor] = MessageProcessor
    inbox: type[Inbox] = Inbox

    def __init__(self) -> None:
        super().__init__()
        self.world.begin_again(self.policy)
        self.next_seq = dict.fromkeys(GROUPS, 1)
        self.sent: dict[GroupPlace, Envelope] = {}
        self.withheld: dict[GroupPlace, Envelope] = {}
        self.skipped: set[GroupPlace] = set()
        self.armed: dict[int, tuple[str, Any]] = {}
        self.worker_parts = [self._worker(number) for number in range(_COUNT)]

    def _worker(self, number: int) -> WorkerParts:
        def die_if_armed(here: str) -> None:
            if number in self.armed and self.armed[number][0] == here:
                self.armed.pop(number)[1]()

        inbox = self.inbox(self.policy, clock=self.world.clock)
        return self.world.worker(failpoint=die_if_armed, inbox=inbox, kind=self.work, poll_seconds=0)

    def _lane(self, number: int) -> bool:
        return self._do(number, lambda worker_parts: worker_parts.lane.step())

    def _drain(self, number: int) -> bool:
        return self._do(number, lambda worker_parts: worker_parts.drainer.step() > 0)

    def _do(self, number: int, step: Any) -> bool:
        """Let a worker step, unless it is in the middle of a step; a worker that dies is replaced."""
        if any(worker_parts is self.worker_parts[number] for worker_parts in self.world.at_work):
            return False
        self.world.at_work.append(self.worker_parts[number])
        try:
            return bool(step(self.worker_parts[number]))
        except ProcessKill:
            self.worker_parts[number] = self._worker(number)
            return True
        finally:
            self.world.at_work.pop()

    @rule(several=st.lists(st.tuples(_GROUPS, _HOWS), min_size=1, max_size=6))
    def publish(self, several: list[tuple[str, str]]) -> None:
        for group, how in several:
            self._publish(group, how)

    def _publish(self, group: str, how: str) -> None:
        body = self._number(group, how)
        if body is not None:
            self.world.put_body(body, group)

    def _number(self, group: str, how: str) -> str | None:
        """Use the next number for a message, a tombstone, a delayed message, or an unreadable one; return its body.

        A delayed message has no body yet.
        """
        place = group, self.next_seq[group]
        self.next_seq[group] += 1
        made = envelope(*place, type=TOMBSTONE if how == "tombstone" else "order.placed")
        if how in ("withheld", "garbled"):
            self.withheld[place] = made
            return GARBAGE if how == "garbled" else None
        self.sent[place] = made
        return made.body

    def _put(self, place: GroupPlace, made: Envelope) -> None:
        self.sent[place] = self.world.put(made)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        """Send a copy of a message under a new id, or a withheld message."""
        place = data.draw(st.sampled_from(sorted(self.withheld | self.sent)))
        self._put(place, self.withheld.pop(place) if place in self.withheld else self.sent[place])

    @rule(number=_HANDS, behaviour=_MOODS, times=st.integers(1, 5))
    def step(self, number: int, behaviour: str, times: int) -> None:
        self.world.mood = behaviour
        for _ in range(times):
            self._lane(number)

    @rule(number=_HANDS, behaviour=_MOODS)
    def drain(self, number: int, behaviour: str) -> None:
        self.world.mood = behaviour
        self._drain(number)

    @rule(number=_HANDS, step=st.sampled_from(_OF_LANE), behaviour=_MOODS)
    def die(self, number: int, step: str, behaviour: str) -> None:
        self._arm(number, step)
        self.step(number, behaviour, 2)

    @rule(number=_HANDS, step=st.sampled_from(_OF_DRAINER), behaviour=_MOODS)
    def die_draining(self, number: int, step: str, behaviour: str) -> None:
        self._arm(number, step)
        self.drain(number, behaviour)

    def _arm(self, number: int, step: str) -> None:
        def end() -> None:
            raise ProcessKill(step)

        self.armed[number] = (step, end)

    @rule(number=_HANDS, step=_PAUSES, seconds=_TIMES, others=st.lists(_HANDS, max_size=4))
    def pause(self, number: int, step: str, seconds: float, others: list[int]) -> None:
        """Pause one worker for a while, in which the others work; then it continues."""

        def sleep() -> None:
            self.world.simulator.advance(seconds)
            for other in others:
                if other != number:
                    self._lane(other)
                    self._drain(other)

        self.armed[number] = (step, sleep)
        self.step(number, "well", 2)

    @rule(number=_HANDS)
    def restart(self, number: int) -> None:
        """Stop a worker that has a poll under way, and start another in its place."""
        self.worker_parts[number].wait.has_stop_request = True
        self._lane(number)
        self.worker_parts[number] = self._worker(number)

    @rule(seconds=_TIMES)
    def wait(self, seconds: float) -> None:
        self.world.simulator.advance(seconds)

    @rule(number=_HANDS, fault=_FAULTS, behaviour=_MOODS)
    def fail(self, number: int, fault: Fault, behaviour: str) -> None:
        """Let a worker take steps in which its next call to SQS has the fault, which names the kind of call."""
        self.worker_parts[number].sqs_calls.faults.append(fault)
        self.step(number, behaviour, 2)

    @rule(number=_HANDS, refuses=_REFUSED, loses_commit=st.booleans(), behaviour=_MOODS)
    def be_away(self, number: int, refuses: range, *, loses_commit: bool, behaviour: str) -> None:
        """Take the database away from one worker for a moment, or lose the answer to its commit."""
        self.world.database.stop_failing()
        self.world.database.refuses, self.world.database.loses_commit = refuses, loses_commit
        self.step(number, behaviour, 2)
        self.drain(number, behaviour)
        self.world.database.stop_failing()

    @rule(is_native=st.booleans())
    def redrive(self, *, is_native: bool) -> None:
        """Bring the dead letters back, by a move task of SQS or message by message."""
        if is_native:
            self.world.redrive()
        else:
            self._redrive()

    def _redrive(self) -> None:
        sqs, clock = self.world.sqs, self.world.clock
        source, destination = DeadLetterQueue(sqs, "billing-dlq.fifo"), Destination(sqs, "billing.fifo")
        Redrive(source, destination, run=new_run(clock), pace=Pace(None, clock=clock), clock=clock).work()

    @rule(group=_GROUPS, ahead=st.one_of(st.none(), st.integers(-2, 3)))
    def operate(self, group: str, ahead: int | None) -> None:
        """Let an operator retry held messages, or give a number up if that is allowed."""
        if ahead is None:
            self._retry_held()
            return
        row = self._group(group)
        if row is None:
            return
        seq = row.last_seq + ahead
        try:
            with self.world.engine.begin() as connection:
                self._operator().skip(connection, group, seq)
        except DeadLetterError:
            return
        self.skipped.add((group, seq))

    def _retry_held(self) -> None:
        with self.world.engine.begin() as connection:
            for row in connection.execute(select(parked).where(parked.c.held_at_us.is_not(None))).all():
                self._operator().retry(connection, row.group_id, row.seq)

    def _operator(self) -> InboxOperator:
        return InboxOperator(consumer="billing", actor="a test", reason="it may", clock=self.world.clock)

    def _rows(self, table: Any) -> list[Row[Any]]:
        with engines.reading(self.world.engine) as connection:
            return list(connection.execute(select(table)).all())

    def _group(self, group: str) -> Row[Any] | None:
        return next((row for row in self._rows(groups) if row.group_id == group), None)

    def _states_by_place(self) -> dict[GroupPlace, str]:
        return {
            (row.group_id, seq): row.state for row in self._rows(exceptions) for seq in range(row.seq, row.through + 1)
        }

    @invariant()
    def the_inbox_tells_the_truth(self) -> None:
        """Each counted number has one effect or a record that it has none; no other number has an effect."""
        effects, known = Counter(self.world.committed_effects()), self._states_by_place()
        assert set(effects.values()) <= {1}, "an effect twice"
        assert not {row.group_id for row in self._rows(parked)} - self._parked_groups(), "set aside in no parked group"
        counted = set()
        for row in self._rows(groups):
            counted |= {(row.group_id, seq) for seq in range(row.first_seq, row.last_seq + 1)}
        has_none = {place for place, state in known.items() if state in (GAP, DEAD, SKIPPED)}
        assert set(effects) == counted - has_none, "the inbox says otherwise"
        ahead = {group for group, _ in set(known) - counted}
        assert ahead <= self._parked_groups(), "something is known of what has not come yet"

    @invariant()
    def first_commits_are_in_order(self) -> None:
        """The first commits of a group are in order, except late messages where the policy allows them."""
        known = self._states_by_place()
        late = {place for place in self.world.committed_effects() if self.world.is_late[place]}
        allowed = {FILLED} if self.policy.parks_poison else {FILLED, REDRIVEN}
        assert {known.get(place) for place in late} <= allowed, "late, and nobody knows why"
        if self.policy.parks_poison and self.policy.gap_wait_us is None:
            assert not late, "late, though the group was to wait"
        for group in GROUPS:
            seqs = [
                seq
                for its_group, seq in self.world.committed_effects()
                if its_group == group and (its_group, seq) not in late
            ]
            assert seqs == sorted(seqs), "out of order"

    def _parked_groups(self) -> set[str]:
        return {row.group_id for row in self._rows(groups) if row.parked_at_us is not None}

    def teardown(self) -> None:
        """Bring everything to its end, and check the effects."""
        self._end()
        self.the_inbox_tells_the_truth()
        self.first_commits_are_in_order()
        done, given_up = set(self.world.committed_effects()), self.skipped
        wanted = {place for place, entry in self.sent.items() if entry.event.type != TOMBSTONE}
        assert done == wanted - given_up, "lost, or done though it was given up"
        assert not [row for row in self._rows(exceptions) if row.closed_at_us is None], "what came is still missing"

    def _end(self) -> None:
        self.armed.clear()
        self.world.database.stop_failing()
        self.world.mood = "well"
        for group in GROUPS:
            self._publish(group, "sent")
        for place in sorted(self.withheld):
            self._put(place, self.withheld.pop(place))
        for _ in range(20):
            for number in range(_COUNT):
                self.worker_parts[number].sqs_calls.faults.clear()
                while self._lane(number) or self._drain(number):
                    pass
            if not (self.world.bodies_in_queue() or self.world.bodies_in_dlq() or self._parked_groups()):
                return
            self._purge_garbage()
            self._redrive()
            self._retry_held()
            self._wake()
            self.world.simulator.advance(301)
        raise AssertionError(
            f"stuck: {self.world.bodies_in_queue()}, {self.world.bodies_in_dlq()}, {self._rows(groups)}"
        )

    def _wake(self) -> None:
        """Publish the awaited number of each group whose awaited message was unreadable."""
        for row in self._rows(groups):
            if row.parked_at_us is not None and row.awaits_seq == self.next_seq[row.group_id]:
                self._publish(row.group_id, "sent")

    def _purge_garbage(self) -> None:
        messages = self.world.simulator.account.sqs.queues[self.world.dlq_arn].messages
        for id_ in [message.id for message in messages.values() if message.body == GARBAGE]:
            del messages[id_]


class BundleStateMachine(InboxStateMachine):
    """The same with bundles beside single messages: of new events, of copies, of what is withheld and unreadable."""

    @rule(group=_GROUPS, hows=_BUNDLES)
    def publish_bundle(self, group: str, hows: list[str]) -> None:
        """Publish the next events of a group as one message."""
        bodies = [body for how in hows if (body := self._number(group, how)) is not None]
        if bodies:
            self.world.put_body(write_bundle(bodies), group)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), count=st.integers(1, 4))
    def send_bundle_again(self, data: st.DataObject, count: int) -> None:
        """Send copies in a bundle with other boundaries, as after a resend."""
        group, seq = data.draw(st.sampled_from(sorted(self.sent)))
        copies = [self.sent[group, number] for number in range(seq, seq + count) if (group, number) in self.sent]
        self.world.put_bundle(*copies)


@contextmanager
def in_memory_consumer(*, has_bundles: bool = False) -> Iterator[SimulatedConsumer]:
    with fresh_tables.sqlite(None, *METADATA) as engine:
        yield SimulatedConsumer(engine, has_bundles=has_bundles)


def run_machine(machine: Any, opened: Callable[[], AbstractContextManager[Any]], **more: Any) -> None:
    """Run a state machine in a world of its own."""
    with structlog.testing.capture_logs(), opened() as machine.world:
        run_state_machine_as_test(
            machine,
            settings=settings(
                deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], **more
            ),
        )
