"""What is in the messages: the plan's own bodies for raw consumers, envelopes for the real worker.

An envelope is what an outbox makes, made without one. Its format is that of `sluice.messaging.envelope`, which the load
test must not import; a test holds the two together. Numbers count 1, 2, 3 … in each group, as an outbox counts them, so
the run is the epoch, and the number is the message's idx in the history.
"""

import hashlib
import json

from sluice.history.events import END_TYPE, is_end_marker
from spark_load.plan.body_template import Body, BodyTemplate
from spark_load.plan.plan import Plan
from spark_load.publish.transport import Message

VERSION = 1
_TYPE = "load.message"
_RUN = "epoch-"


def run_of(epoch: int) -> str:
    """Return the id of the run whose messages are envelopes of that epoch, as a history reads it off them."""
    return f"{_RUN}{epoch}"


class Bodies:
    """What a publisher's messages are called in the history, and what is in them: here as raw consumers read them."""

    def __init__(self, plan: Plan, run: str) -> None:
        self._plan, self._run = plan, run

    def number(self, idx: int, group_number: int) -> int:  # noqa: ARG002 (of envelopes)
        """Return the idx a planned message has in the history."""
        return idx

    def framed(self, message: Message) -> Body:
        """Return the body of a message, which has its number."""
        return self._plan.framed(message.planned_idx, message.message_group_id, self._run)


def bodies(plan: Plan, run: str) -> Bodies:
    """Return what the messages of a run are made of."""
    return Envelopes(plan, run) if plan.profile.consumer == "worker" else Bodies(plan, run)


class Envelopes(Bodies):
    """Numbers a publish task's messages, each group from 1; the plan has one producer for each group.

    A message has its number from the first time it is asked for. A publisher asks in the order in which it will publish
    the group, so numbers have no holes and stand in order.
    """

    def __init__(self, plan: Plan, run: str) -> None:
        super().__init__(plan, run)
        self._last: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._frames = {type_: _frame(run, type_) for type_ in (_TYPE, END_TYPE)}

    def number(self, idx: int, group_number: int) -> int:
        """Return the idx a planned message has in the history: its number in its group, of an end marker negative."""
        seq = self._numbers.get(idx)
        if seq is None:
            seq = self._last[group_number] = self._last.get(group_number, 0) + 1
            self._numbers[idx] = seq
        return -seq if is_end_marker(idx) else seq

    def framed(self, message: Message) -> Body:
        """Return the envelope of a message: the same again for a repeat."""
        type_ = END_TYPE if is_end_marker(message.planned_idx) else _TYPE
        payload = self._plan.payload(message.planned_idx)
        hashed = json.dumps([type_, {"payload": payload}], sort_keys=True, separators=(",", ":"))
        hash_ = hashlib.sha256(hashed.encode()).hexdigest()
        values = (message.planned_idx, message.message_group_id, abs(message.idx), hash_, payload)
        return self._frames[type_], values


def _frame(run: str, type_: str) -> BodyTemplate:
    """Return the frame of envelopes of a type, for the values id, group, number, hash and payload."""
    epoch = int(run.removeprefix(_RUN))
    return BodyTemplate(
        f'{{"sluice":{VERSION},"id":"{run}.',
        f'","type":"{type_}","group":"',
        '","seq":',
        f',"epoch":{epoch},"at":null,"hash":"',
        '","data":{"payload":"',
        '"}}',
    )
