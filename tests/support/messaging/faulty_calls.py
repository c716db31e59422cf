"""Failures between a process and AWS: calls that meet faults, and processes that die between two steps."""
# ruff: noqa: ARG002 (hooks are called by keyword)

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, override

from botocore.awsrequest import AWSResponse
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from sluice.messaging.failpoints import Failpoint
from sluice.saboteurs.base import Hook, answer_with

type GroupPlace = tuple[str, int]
"""A group and a number in it."""


def seeded_random(seed: int) -> random.Random:
    """Return a generator whose numbers repeat from run to run."""
    return random.Random(seed)  # noqa: S311 (no secret)


class ProcessKill(BaseException):
    """Raised in place of the end of a process: no code in the process catches it."""


def failing_at(step: str, count: int = 1) -> Failpoint:
    """Return a failpoint that ends a process at a step, from the `count`-th time on."""
    left = count

    def die_at(here: str) -> None:
        nonlocal left
        left -= here == step
        if here == step and left <= 0:
            raise ProcessKill(here)

    return die_at


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The fault of one call.

    Args:
        operation: the operation in boto3's spelling; empty means any.
        unreachable: the call does not arrive, and has no answer.
        lost: the call arrives, and its answer does not.
        refused: the code of the refusal.
        failed: group or receipt handle to (code, whether it is the sender's fault) of entries that fail alone.
    """

    operation: str = ""
    unreachable: bool = False
    lost: bool = False
    refused: str = ""
    failed: Mapping[str, tuple[str, bool]] = field(default_factory=dict)


_NONE = Fault()


class FaultyCalls(Hook):
    """Logs every call of a client, and gives faults to the next ones.

    `log` has (operation, parameters) of each call. Each of `faults` is used for one call of its operation. `batch` is
    the parameter with a call's entries, and `key` the field by which `Fault.failed` names an entry.
    """

    batch, key = "Entries", "ReceiptHandle"

    def __init__(self) -> None:
        super().__init__(1)
        self.faults: list[Fault] = []
        self._fault = _NONE
        self._failed: list[dict[str, Any]] = []
        self._is_all_failed = False
        self.log: list[tuple[str, dict[str, Any]]] = []

    def of(self, operation: str) -> list[dict[str, Any]]:
        """Return the parameters of each call of this operation, in order."""
        return [params for name, params in self.log if name == operation]

    def choose(self, operation: str, params: Mapping[str, Any]) -> Fault:
        """Return the fault of this call, and take it off the list."""
        fault = next((fault for fault in self.faults if fault.operation in ("", operation)), _NONE)
        if fault is not _NONE:
            self.faults.remove(fault)
        return fault

    @override
    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        name = operation.partition(".")[2]
        self.log.append((name, copy.deepcopy(params)))
        self._fault = self.choose(name, params)
        failed, entries = self._fault.failed, params.get(self.batch, [])
        self._failed = [
            {"Id": entry["Id"], "Code": code, "Message": "as told", "SenderFault": is_senders}
            for entry in entries
            if entry[self.key] in failed
            for code, is_senders in [failed[entry[self.key]]]
        ]
        kept = [entry for entry in entries if entry[self.key] not in failed]
        self._is_all_failed = bool(self._failed) and not kept
        if kept:
            params[self.batch] = kept

    @override
    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if self._fault.unreachable:
            raise EndpointConnectionError(endpoint_url="http://aws")
        if self._fault.refused:
            _, parsed = answer_with(Error={"Code": self._fault.refused, "Message": "as told"})
            return AWSResponse("http://aws", 400, {}, None), parsed
        if self._is_all_failed:
            return answer_with(Successful=[], Failed=self._failed)
        return None

    @override
    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        """Lose the answer, or add the entries that failed."""
        if self._fault.lost:
            raise ReadTimeoutError(endpoint_url="http://aws")
        if self._failed and parsed.get("Failed") is not self._failed:
            parsed["Failed"] = [*parsed.get("Failed", []), *self._failed]
