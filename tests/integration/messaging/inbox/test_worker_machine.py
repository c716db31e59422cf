"""Three workers, a queue, a DLQ and operators, with any fault, in any order."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, override

import pytest
from hypothesis import Phase
from sqlalchemy import Connection, Engine, Row, select

from sluice.messaging.database import engines
from sluice.messaging.errors import TransientError
from sluice.messaging.inbox.admission import Admission, Inbox
from sluice.messaging.inbox.groups import DecodedMessage, InboxPolicy
from sluice.messaging.inbox.sequence import Action, Decision, Position
from sluice.messaging.inbox.tables import groups
from sluice.messaging.sqs.queue import ReceivedMessage
from sluice.messaging.worker.processing.acknowledgements import Abandon, Acknowledgement
from tests.support.messaging.broken_workers import DeletesFirst, InboxApart
from tests.support.messaging.inbox_state_machine import (
    GAP_WAIT_SECONDS,
    BundleStateMachine,
    InboxStateMachine,
    in_memory_consumer,
    run_machine,
)

in_memory_consumer_of_bundles = partial(in_memory_consumer, has_bundles=True)
_WAIT_US = GAP_WAIT_SECONDS * 1_000_000
POLICIES = {
    "skip and record": InboxPolicy(consumer="billing"),
    "skip and wait": InboxPolicy(consumer="billing", parks_gaps=True, gap_wait_us=_WAIT_US),
    "park and wait": InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True, gap_wait_us=_WAIT_US),
    "park and halt": InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True),
}


class TakesAnyParkedMessage(Inbox):
    """Broken: takes up a parked message before the message in front of it is back (D2)."""

    @override
    def due(self, engine: Engine) -> list[str]:
        with engines.reading(engine) as connection:
            parked = select(groups.c.group_id).where(groups.c.parked_at_us.is_not(None))
            return list(connection.execute(parked).scalars())

    @override
    def _is_next(self, position: Position, head: Row[Any]) -> bool:
        return True


class DeletesBefore(DeletesFirst):
    """Broken: deletes a message before it is handled; a queue that does not answer is no reason not to handle it."""

    @override
    def process(self, message: ReceivedMessage, *, requested_at: float | None = None) -> Acknowledgement:
        with suppress(TransientError):
            return super().process(message, requested_at=requested_at)
        return Abandon()


class KnowsNoRepeat(Inbox):
    """Broken: lets a handled message be handled again (W7)."""

    @override
    def admit(self, connection: Connection, arrived: DecodedMessage) -> Admission:
        admission = super().admit(connection, arrived)
        if admission.decision.action is not Action.DROP:
            return admission
        return replace(admission, decision=Decision(admission.decision.state, Action.HANDLE))


def _machine(name: str, **more: object) -> type[InboxStateMachine]:
    """Return the state machine for a policy, with these attributes replaced to break it."""
    return type("Machine", (InboxStateMachine,), {"policy": POLICIES[name], **more})


@pytest.mark.parametrize("name", POLICIES)
def test_random_faults_of_workers_leave_each_effect_once_and_in_order(name: str) -> None:
    """Workers, queue and operators take random steps, with deaths and faults, under each policy."""
    run_machine(_machine(name), in_memory_consumer, max_examples=2, stateful_step_count=30)


def test_events_of_bundles_are_handled_once_and_in_order_whatever_happens() -> None:
    """The random steps of the machine above, with several events in each message."""
    machine = type("Machine", (BundleStateMachine,), {"policy": POLICIES["park and wait"]})
    run_machine(machine, in_memory_consumer_of_bundles, max_examples=2, stateful_step_count=30)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", POLICIES)
def test_many_long_runs_with_bundles_do_everything_once_and_in_order(name: str) -> None:
    """The machine of bundles takes longer runs, under each policy."""
    machine = type("Machine", (BundleStateMachine,), {"policy": POLICIES[name]})
    run_machine(machine, in_memory_consumer_of_bundles, max_examples=80, stateful_step_count=60)


@pytest.mark.deep
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", POLICIES)
def test_long_random_runs_of_workers_leave_each_effect_once_and_ordered(name: str) -> None:
    """The machine of single messages takes longer runs, under each policy."""
    run_machine(_machine(name), in_memory_consumer, max_examples=80, stateful_step_count=60)


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        pytest.param("park and halt", {"inbox": TakesAnyParkedMessage}, "late|out of order"),
        pytest.param("skip and record", {"work": InboxApart}, "the inbox says otherwise"),
        pytest.param("skip and record", {"work": DeletesBefore}, "lost|otherwise", marks=pytest.mark.slow),
        pytest.param("skip and record", {"inbox": KnowsNoRepeat}, "twice|otherwise", marks=pytest.mark.slow),
    ],
    ids=["D2 parked row handled before the poison", "W8 inbox apart", "W7 deleted first", "W7 no repeat is known"],
)
def test_the_random_runs_find_each_broken_worker(name: str, broken: dict[str, object], message: str) -> None:
    """Negative controls: the state machine finds each defect within a hundred runs."""
    with pytest.raises(AssertionError, match=message):
        run_machine(
            _machine(name, **broken),
            in_memory_consumer,
            max_examples=100,
            stateful_step_count=30,
            phases=(Phase.generate,),
            derandomize=True,
            database=None,
            report_multiple_bugs=False,
        )
