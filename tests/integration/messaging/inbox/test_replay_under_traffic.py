"""A replay to a new consumer, beside a producer, a relay and a worker that go on: the databases' rows are the judge."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, select

from sluice.clock import SystemClock, eventually
from sluice.judge.checker.verdict import PropertyStatus
from sluice.judge.databases import AppliedEffect, CommittedEvent, DatabaseAnomaly, DatabaseEvidence, Judgement, judge
from sluice.judge.databases import OutboxMessage as JudgedMessage
from sluice.messaging.envelope import Event
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.parking import store_parked
from sluice.messaging.inbox.replaying import ReplayedGroup, ReplayOutcome
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.outbox.tables import messages
from sluice.messaging.reconciliation.replay import Past, Replay
from sluice.simulator.hook import Simulator
from tests.support.messaging.worker_threads import MachineClock, running
from tests.support.messaging.world import TOPIC, World, create_tables, effects

pytestmark = pytest.mark.slow  # test_replaying.py shows the same without threads

_GROUPS = tuple("abcde")
_PAST_ROUNDS, _LIVE_ROUNDS, _PATIENCE_SECONDS = 6, 12, 60
_HALTING = InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True)
_ALLOWED = frozenset(ReplayOutcome)


class UsedTopic:
    """A topic with a past that the consumer billing never received, and with traffic that goes on."""

    def __init__(self, engine: Engine, policy: InboxPolicy | None) -> None:
        """Publish the past rounds, and empty the consumer's queue before its worker begins."""
        create_tables(engine)
        self.world = World(engine, policy=policy, simulator=Simulator(clock=MachineClock()))
        self.committed: list[Event] = []
        self._commit(_PAST_ROUNDS)
        self._relay = self.world.relay()
        self._publish_all()
        self.world.sqs.purge_queue(QueueUrl=self.world.url)

    def _commit(self, rounds: int) -> None:
        for _ in range(rounds):
            self.committed += self.world.commit(*_GROUPS)

    def _publish_all(self) -> None:
        while not self.world.store.is_finished():
            self._relay.step()

    def go_on(self) -> None:
        """Commit more events and publish them, in turn."""
        for _ in range(_LIVE_ROUNDS):
            self._commit(1)
            self._publish_all()

    def replay(self) -> None:
        """Replay everything that the outbox keeps, as the command does."""
        world = self.world
        replay = Replay(
            world.engine,
            world.engine,
            past=Past(topic=TOPIC, from_us=0),
            policy=world.policy,
            operator=InboxOperator(consumer="billing", actor="ann", reason="billing is new"),
            accepts=lambda _attributes, _body: True,
        )
        for kept in replay.kept_numbers():
            assert replay.carry_out(kept, _ALLOWED) is not None

    def resend(self) -> None:
        """Publish everything that was sent again, which is no replay: live messages may be handled before it."""
        operator = OutboxOperator(topic=TOPIC, actor="ann", reason="billing is new")
        with self.world.engine.begin() as connection:
            for group in _GROUPS:
                operator.resend_ranges(connection, [(group, 1, _PAST_ROUNDS)])
        self._publish_all()

    def judgement(self) -> Judgement:
        """Judge the effects by the rows of outbox and effects, with the order in which the one producer committed."""
        columns = (messages.c.event_id, messages.c.group_id, messages.c.group_seq)
        with self.world.engine.connect() as connection:
            published = connection.execute(select(*columns)).all()
            done = connection.execute(select(effects.c.id, effects.c.group_id, effects.c.seq)).all()
        ids = {(row.group_id, row.group_seq): row.event_id for row in published}
        evidence = DatabaseEvidence(
            committed=[
                CommittedEvent(event_id=event.id, group=event.group, payload="", committed_at_us=place, position=0)
                for place, event in enumerate(self.committed)
            ],
            published=[JudgedMessage(event_id=event_id, group=group, seq=seq) for event_id, group, seq in published],
            done=[_to_effect(ids, *row) for row in done],
        )
        return judge(evidence, {"billing": True})


def _to_effect(ids: dict[tuple[str, int], str], id_: int, group: str, seq: int) -> AppliedEffect:
    """Return an effect for the judge. The rows of a group are written one after the other, so ids are in order."""
    return AppliedEffect(
        consumer="billing",
        event_id=ids[group, seq],
        group=group,
        epoch=0,
        seq=seq,
        payload="",
        is_doomed=False,
        committed_at_us=id_,
        id=id_,
    )


def _run(topic: UsedTopic, replay: Callable[[], None], *, works_before: bool) -> Judgement:
    """Let traffic go on, replay meanwhile, and judge when nothing is left to do.

    Args:
        topic: the topic with its past.
        replay: what is called while traffic goes on.
        works_before: whether the consumer's worker runs before the replay, or is started right after it.
    """
    world = topic.world
    worker = world.worker(clock=SystemClock(), poll_seconds=0)
    lanes = [world.worker(clock=SystemClock(), poll_seconds=0).lane for _ in range(2)]
    with ExitStack() as stack:
        traffic = stack.enter_context(ThreadPoolExecutor(1)).submit(topic.go_on)
        if works_before:
            stack.enter_context(running(worker, *lanes))
            eventually(
                lambda: bool(world.last_numbers()), timeout_seconds=_PATIENCE_SECONDS, describe="a first message"
            )
        replay()
        if not works_before:
            stack.enter_context(running(worker, *lanes))
        traffic.result(_PATIENCE_SECONDS)
        eventually(partial(_is_done, world), timeout_seconds=_PATIENCE_SECONDS, describe="everything handled")
    return topic.judgement()


def _is_done(world: World) -> bool:
    """Return whether no queue has a message, nothing is set aside in a parked group, and no drainer has work."""
    is_waiting = world.inbox.counts(world.engine)["parked_groups"] and world.parked_places()
    return not (world.bodies_in_queue() or is_waiting or world.inbox.due(world.engine))


@pytest.mark.parametrize("policy", [None, _HALTING], ids=["goes on at gaps", "halts at gaps"])
def test_a_new_consumer_handles_past_and_live_events_once_in_order(on_postgres: Engine, policy: Any) -> None:
    """A worker that goes on at gaps is started after the replay; one that halts at gaps may run before it."""
    topic = UsedTopic(on_postgres, policy)

    judged = _run(topic, topic.replay, works_before=policy is not None)

    assert judged.violations == ()
    assert judged.status is PropertyStatus.VALID


def test_a_resend_to_a_working_consumer_is_found_out_of_order(on_postgres: Engine) -> None:
    """This is why a replay does not use the topic."""
    topic = UsedTopic(on_postgres, None)

    judged = _run(topic, topic.resend, works_before=True)

    assert {violation.anomaly for violation in judged.violations} == {DatabaseAnomaly.REORDERED}


def test_a_replay_that_parks_no_group_is_found(on_postgres: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a replay that stores the past and parks no group lets live messages overtake it."""
    topic = UsedTopic(on_postgres, None)

    def store_only(_: ReplayedGroup, chosen: Any) -> None:
        with on_postgres.begin() as connection:
            store_parked(connection, "billing", chosen, 0)

    monkeypatch.setattr(ReplayedGroup, "set_aside", store_only)

    judged = _run(topic, topic.replay, works_before=False)

    assert judged.status is PropertyStatus.INVALID
