"""What is in the messages: the plan's own bodies for raw consumers, envelopes for the real worker.

An envelope is what an outbox makes, made without one. Its format is that of `messaging.envelope`, which the load test
must not import; a test holds the two together. Numbers count 1, 2, 3 … in each group, as an outbox counts them, so the
run is the epoch, and the number is the message's idx in the history.
"""

import hashlib
import json
from typing import Protocol

from sluice.history import END_TYPE, is_end_marker
from spark_load.plan import Plan, message_group_id

VERSION = 1
_TYPE = "load.message"
_RUN = "epoch-"


def run_of(epoch: int) -> str:
    """Return the id of the run whose messages are envelopes of that epoch, as `sluice.history` reads it off them."""
    return f"{_RUN}{epoch}"


class Bodies(Protocol):
    """What a publisher's messages are called in the history, and what is in them."""

    def number(self, idx: int, group_number: int) -> int:
        """Return the idx a planned message has in the history."""

    def body_parts(self, idx: int, group_number: int) -> tuple[str, str, str]:
        """Return the body of a planned message, of whose parts the second needs no escaping."""


class Plain:
    """The bodies of the plan, as raw consumers read them.

    Args:
        plan: whose they are.
        run: id of the run.
    """

    def __init__(self, plan: Plan, run: str) -> None:
        self._plan, self._run = plan, run

    def number(self, idx: int, group_number: int) -> int:  # noqa: ARG002 (of the protocol)
        """Return the idx itself."""
        return idx

    def body_parts(self, idx: int, group_number: int) -> tuple[str, str, str]:
        """Return the body of a planned message, of whose parts the second needs no escaping."""
        return self._plan.body_parts(idx, group_number, self._run)


def bodies(plan: Plan, run: str) -> Bodies:
    """Return what the messages of a run are made of."""
    return Envelopes(plan, run) if plan.profile.consumer == "worker" else Plain(plan, run)


class Envelopes:
    """Numbers a publish task's messages, each group from 1.

    A message has its number from the first time its body is asked for. A publisher asks in the group's order, and for
    the next one only when it is done with this one, so numbers have no holes and stand in order.

    Args:
        plan: with one producer for each group.
        run: made by `run_of`.
    """

    def __init__(self, plan: Plan, run: str) -> None:
        self._plan, self._run = plan, run
        self._last: dict[int, int] = {}
        self._numbers: dict[int, int] = {}

    def number(self, idx: int, group_number: int) -> int:
        """Return the idx a planned message has in the history: its number in its group, of an end marker negative."""
        seq = self._seq(idx, group_number)
        return -seq if is_end_marker(idx) else seq

    def _seq(self, idx: int, group_number: int) -> int:
        seq = self._numbers.get(idx)
        if seq is None:
            seq = self._last[group_number] = self._last.get(group_number, 0) + 1
            self._numbers[idx] = seq
        return seq

    def body_parts(self, idx: int, group_number: int) -> tuple[str, str, str]:
        """Return the body of a planned message: the same again for a repeat; in parts, as `Plan.body_parts`."""
        type_ = END_TYPE if is_end_marker(idx) else _TYPE
        data = {"payload": self._plan.payload(idx)}
        hashed = json.dumps([type_, data], sort_keys=True, separators=(",", ":"))
        said = {
            "sluice": VERSION,
            "id": f"{self._run}.{idx}",
            "type": type_,
            "group": message_group_id(group_number),
            "seq": self._seq(idx, group_number),
            "epoch": int(self._run.removeprefix(_RUN)),
            "at": None,
            "hash": hashlib.sha256(hashed.encode()).hexdigest(),
            "data": data,
        }
        return json.dumps(said, separators=(",", ":")), "", ""
