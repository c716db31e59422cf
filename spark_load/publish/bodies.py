"""Bodies of the messages: the plan's own for raw consumers, envelopes for the real worker.

Envelopes have the format of `sluice.messaging.envelope`, which the load test must not import; a test compares the two.
Numbers count 1, 2, 3 … in each group, as an outbox counts them, so the run is the epoch, and the number is the
message's idx in the history.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.clock import utc
from sluice.history.events import END_TYPE, is_end_marker
from spark_load.plan.plan import BodyTemplate, BodyValues, Plan

VERSION = 1
_TYPE = "load.message"
RELAYED_ATTRIBUTES = tuple({"type": {"DataType": "String", "StringValue": type_}} for type_ in (_TYPE, END_TYPE))
"""The message attributes with which a relay publishes a message, and an end marker."""
_RUN = "epoch-"


def run_of(epoch: int) -> str:
    """Return the run that a history reads from the envelopes of an epoch."""
    return f"{_RUN}{epoch}"


def epoch_of(run: str) -> int:
    """Return the epoch of a run's envelopes."""
    return int(run.removeprefix(_RUN))


def message_keys(idx: Any, group_ids: Any, *, has_envelopes: bool) -> Any:
    """Return a value for each message that tells it from the others of its run; Arrow arrays.

    A raw message's idx does. An envelope's idx is its number in its group. Deduplication ids do not: a bundle has one.
    """
    return pc.binary_join_element_wise(group_ids, pc.cast(idx, pa.string()), "/") if has_envelopes else idx


class Bodies:
    """The numbers of a publisher's messages in the history, and their bodies; this class has those of raw consumers."""

    def __init__(self, plan: Plan, run: str) -> None:
        self._plan = plan
        self.template = plan.body_template(run)

    def numbers(self, planned_idx: Any, groups: Any) -> Any:  # noqa: ARG002 (of envelopes)
        """Return the idx that planned messages have in the history; numpy arrays."""
        return planned_idx

    def values(self, planned_idx: Any, group_ids: Sequence[str], idx_texts: Sequence[str], numbers: Any) -> BodyValues:  # noqa: ARG002 (of envelopes)
        """Return the values of the messages' bodies; `idx_texts` are the planned numbers as texts."""
        return self._plan.body_values(planned_idx, group_ids, idx_texts)


def bodies(plan: Plan, run: str) -> Bodies:
    """Return the template of the bodies of a run's messages."""
    return Envelopes(plan, run) if plan.profile.has_services else Bodies(plan, run)


class Envelopes(Bodies):
    """Numbers a publish task's messages, each group from 1; the plan has one producer for each group.

    A message has its number from the first time it is asked for. A publisher asks in the order in which it will publish
    the group, so numbers have no holes and stand in order.
    """

    def __init__(self, plan: Plan, run: str) -> None:
        super().__init__(plan, run)
        self._last_number_of_group: dict[int, int] = {}
        self._number_of_message: dict[int, int] = {}
        epoch = epoch_of(run)
        # The same instant in all envelopes, so that a repeat has the same body. An outbox has the time of the commit.
        written_at = utc(epoch).isoformat()
        self.template = BodyTemplate(
            f'{{"sluice":{VERSION},"id":"{run}.',
            '","type":"',
            '","group":"',
            '","seq":',
            f',"epoch":{epoch},"at":"{written_at}","hash":"',
            '","data":{"payload":"',
            '"}}',
        )

    def numbers(self, planned_idx: Any, groups: Any) -> Any:
        """Return the idx of planned messages in the history: the number in the group, -number for an end marker."""
        return np.array(list(map(self._number, planned_idx.tolist(), groups.tolist())), np.int64)

    def _number(self, idx: int, group_number: int) -> int:
        seq = self._number_of_message.get(idx)
        if seq is None:
            seq = self._last_number_of_group.get(group_number, 0) + 1
            self._last_number_of_group[group_number] = self._number_of_message[idx] = seq
        return -seq if is_end_marker(idx) else seq

    def values(self, planned_idx: Any, group_ids: Sequence[str], idx_texts: Sequence[str], numbers: Any) -> BodyValues:
        """Return the values of the messages' envelopes; a repeat has the same values as its message."""
        types = [END_TYPE if is_end else _TYPE for is_end in (planned_idx < 0).tolist()]
        payloads = self._plan.payloads(planned_idx)
        numbered = list(map(str, np.abs(numbers).tolist()))
        return idx_texts, types, group_ids, numbered, list(map(_hash, types, payloads)), payloads


def _hash(type_: str, payload: str) -> str:
    hashed = json.dumps([type_, {"payload": payload}], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(hashed.encode()).hexdigest()
