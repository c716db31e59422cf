"""The load test gives the real worker messages like those of an outbox."""

from dataclasses import replace

import numpy as np
import pytest

from sluice.history.events import Identity, identity_of
from sluice.messaging.envelope import decode
from spark_load.consume.worker_processes import idle_seconds
from spark_load.faults.shapes import Faults
from spark_load.plan.plan import Plan, message_group_id
from spark_load.profiles.fields import Phase
from spark_load.profiles.profile import Profile
from spark_load.publish.bodies import Envelopes, run_of

_PLAN = Plan(Profile(messages_per_second=10, duration_seconds=10, group_count=3, payload_bytes=40), seed=5)
_RUN = run_of(1_767_225_600_000_000)


def test_the_worker_reads_what_the_load_test_writes() -> None:
    """It decodes the body as an event of the group with number 1, the run as epoch, and the planned payload."""
    envelopes = Envelopes(_PLAN, _RUN)

    decoded = decode(_body(envelopes, 7, 2))

    assert decoded.event.group == "g000002"
    assert decoded.seq == 1
    assert decoded.epoch == 1_767_225_600_000_000
    assert decoded.event.id == f"{_RUN}.7"
    assert decoded.event.data == {"payload": _PLAN.payloads(np.array([7]))[0]}


def test_each_group_counts_from_one_and_a_repeat_keeps_its_number() -> None:
    """Message 3 is repeated. The end marker (-1) of group 0 comes after two numbers, so it is -3."""
    envelopes = Envelopes(_PLAN, _RUN)
    numbered = [(3, 0), (4, 1), (9, 0), (3, 0), (-1, 0)]

    bodies = [_body(envelopes, idx, group) for idx, group in numbered]

    found = [identity_of(body=body, deduplication_id=None, message_group_id=None) for body in bodies]
    assert found == [
        Identity(run=_RUN, message_group_id="g000000", idx=1),
        Identity(run=_RUN, message_group_id="g000001", idx=1),
        Identity(run=_RUN, message_group_id="g000000", idx=2),
        Identity(run=_RUN, message_group_id="g000000", idx=1),
        Identity(run=_RUN, message_group_id="g000000", idx=-3),
    ]
    assert envelopes.numbers(*np.array(numbered).T).tolist() == [1, 1, 2, 1, -3]
    assert bodies[3] == bodies[0]


def _body(envelopes: Envelopes, idx: int, group: int) -> str:
    """Return the body of a planned message of a group."""
    planned_idx = np.array([idx])
    numbers = envelopes.numbers(planned_idx, np.array([group]))
    values = envelopes.values(planned_idx, [message_group_id(group)], [str(idx)], numbers)
    return next(envelopes.template.texts(values))


def _in_phases(*phases: tuple[float, float]) -> Profile:
    """Return a profile of phases, each (seconds, messages a second)."""
    return Profile(
        phases=tuple(Phase(duration_seconds=seconds, messages_per_second=rate) for seconds, rate in phases),
        group_count=1,
        drain_timeout_seconds=20,
    )


def test_a_worker_waits_longer_than_the_plan_is_silent() -> None:
    """Phases in which nothing is offered, or hardly anything, and what comes behind the load, end no worker.

    Neither does a ramp from nothing: of 0 to 1/s in an hour the second message is due when half the square of the
    seconds is 3,600, and of 1/s to 0 the last two are as far apart.
    """
    steady = Profile(messages_per_second=1, duration_seconds=10, group_count=1, drain_timeout_seconds=20)

    up, down = (
        Profile(
            phases=(Phase(duration_seconds=3_600, messages_per_second=first, to_per_second=last),),
            group_count=1,
            drain_timeout_seconds=20,
        )
        for first, last in ((0, 1), (1, 0))
    )

    assert idle_seconds(steady) == 20 + 1.5
    through = replace(steady, consumer="worker", destination="outbox")
    assert idle_seconds(through) == 20 + 1.5
    assert idle_seconds(replace(through, faults=Faults(shape="crashes"))) == 20 + 1.5 + 25  # a leader may be killed
    assert idle_seconds(_in_phases((5, 1), (50, 0), (5, 1))) == 20 + 51
    assert idle_seconds(_in_phases((5, 1), (50, 0), (40, 0), (5, 1), (60, 0), (5, 1))) == 20 + 91
    assert idle_seconds(_in_phases((5, 1), (100, 0.02), (5, 1))) == 20 + 50
    assert idle_seconds(_in_phases((50, 0), (5, 1))) == 20 + 50
    assert idle_seconds(_in_phases((5, 1), (50, 0))) == 20 + 51.5
    assert idle_seconds(up) == pytest.approx(20 + 84.853, abs=0.001)
    assert idle_seconds(down) == pytest.approx(20 + 84.853 + 0.5, abs=0.001)
