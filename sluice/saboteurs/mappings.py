"""Breaks Lambda's event source mappings: how they are made, what a function is called with, and how it answers."""

import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.saboteurs.base import ALL_SENDS, Edit, Hook, Saboteur, change, entries, ignore, misreport, omit

_CREATE, _INVOKE = "lambda.CreateEventSourceMapping", "lambda.Invoke"
_CREATE_FUNCTION = "lambda.CreateFunction"


def _error(answer: dict[str, Any]) -> None:
    answer["FunctionError"] = "Unhandled"


def _success(answer: dict[str, Any]) -> None:
    answer.pop("FunctionError", None)
    answer["Payload"] = None


def _has_error(answer: Mapping[str, Any]) -> bool:
    return "FunctionError" in answer


def _has_failures(answer: Mapping[str, Any]) -> bool:
    payload = answer.get("Payload")
    return isinstance(payload, Mapping) and bool(payload.get("batchItemFailures"))


def _after(is_met: Callable[[Mapping[str, Any]], bool], edit: Edit) -> Callable[[int], Hook]:
    """Return what makes hooks that edit the answers of a kind."""

    def edit_some(answer: dict[str, Any]) -> None:
        if is_met(answer):
            edit(answer)

    return misreport(edit_some, _INVOKE)


def _of_records(edit: Edit) -> Callable[[int], Hook]:
    """Return what makes hooks that edit each record that a function is called with."""

    def edit_each(params: dict[str, Any]) -> None:
        for record in params["Payload"]["Records"]:
            edit(record)

    return change(edit_each, _INVOKE)


def _setting(operation: str, **values: Any) -> Callable[[int], Hook]:
    """Return what makes hooks that give a call these parameters."""
    return change(lambda params: params.update(values), operation)


class _SplitGroups(Hook):
    operations = ALL_SENDS

    def begin(self) -> None:
        self._numbers = itertools.count()

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for entry in entries(operation, params):
            entry["MessageGroupId"] = f"split-{next(self._numbers)}"


class _MergeGroups(Hook):
    operations = ALL_SENDS

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for entry in entries(operation, params):
            entry["MessageGroupId"] = "merged"


class _AcceptMappings(Hook):
    operations = (_CREATE,)

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        http_response.status_code = 200


class _ReuseMappings(Hook):
    operations = (_CREATE,)

    def begin(self) -> None:
        self._id: str | None = None

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        self._id = parsed.get("UUID") if self._id is None else self._id
        if "UUID" in parsed:
            parsed["UUID"] = self._id


def _halve_batch_size(params: dict[str, Any]) -> None:
    params["BatchSize"] = params.get("BatchSize", 10) // 2


def _disable_filtering(params: dict[str, Any]) -> None:
    if "FilterCriteria" in params:
        params["Enabled"] = False


def _strip_record(record: dict[str, Any]) -> None:
    record["attributes"] = {"ApproximateReceiveCount": record["attributes"]["ApproximateReceiveCount"]}


def _reformat_record(record: dict[str, Any]) -> None:
    with suppress(ValueError):
        record["body"] = json.dumps(json.loads(record["body"]))


def _freeze_count(record: dict[str, Any]) -> None:
    record["attributes"]["ApproximateReceiveCount"] = "1"


SABOTEURS = {
    "split-sent-groups": Saboteur("sends each message to a group of its own", _SplitGroups),
    "merge-sent-groups": Saboteur("sends all messages to one group", _MergeGroups),
    "reverse-records": Saboteur(
        "calls a function with its records in reverse",
        change(lambda call: call["Payload"]["Records"].reverse(), _INVOKE),
    ),
    "strip-records": Saboteur("calls a function with records without system attributes", _of_records(_strip_record)),
    "reformat-records": Saboteur("calls a function with JSON that is written anew", _of_records(_reformat_record)),
    "freeze-record-counts": Saboteur("calls a function as if each receive were the first", _of_records(_freeze_count)),
    "swallow-function-errors": Saboteur("makes a failed invocation a success", _after(_has_error, _success)),
    "swallow-function-failures": Saboteur("makes reported failures a success", _after(_has_failures, _success)),
    "raise-after-failures": Saboteur("fails each invocation that reports failures", _after(_has_failures, _error)),
    "raise-after-empty-answers": Saboteur(
        "fails each invocation that reports none",
        _after(lambda answer: not _has_failures(answer) and not _has_error(answer), _error),
    ),
    "forget-failure-reports": Saboteur(
        "makes mappings that do not read answers", omit("FunctionResponseTypes", of=_CREATE)
    ),
    "force-failure-reports": Saboteur(
        "makes mappings that read answers", _setting(_CREATE, FunctionResponseTypes=["ReportBatchItemFailures"])
    ),
    "forget-batch-size": Saboteur("makes mappings without their batch size", omit("BatchSize", of=_CREATE)),
    "halve-batch-size": Saboteur("makes mappings of half the batch size", change(_halve_batch_size, _CREATE)),
    "forget-batching-window": Saboteur(
        "makes mappings without their batching window", omit("MaximumBatchingWindowInSeconds", of=_CREATE)
    ),
    "forget-maximum-concurrency": Saboteur(
        "makes mappings without their maximum concurrency", omit("ScalingConfig", of=_CREATE)
    ),
    "forget-mapping-filters": Saboteur("makes mappings without their filters", omit("FilterCriteria", of=_CREATE)),
    "disable-filtering-mappings": Saboteur(
        "makes mappings with filters that receive nothing", change(_disable_filtering, _CREATE)
    ),
    "enable-mappings": Saboteur("makes mappings that receive at once", omit("Enabled", of=_CREATE)),
    "ignore-mapping-updates": Saboteur(
        "confirms a change of a mapping and does not make it", ignore("lambda.UpdateEventSourceMapping")
    ),
    "keep-mappings": Saboteur(
        "confirms that a mapping is deleted and keeps it", ignore("lambda.DeleteEventSourceMapping")
    ),
    "accept-mappings": Saboteur("turns refusals of mappings into success", _AcceptMappings),
    "reuse-mappings": Saboteur("answers each new mapping with the first one's id", _ReuseMappings),
    "ignore-function-throttle": Saboteur(
        "confirms that a function has no concurrency, and leaves it all", ignore("lambda.PutFunctionConcurrency")
    ),
    "keep-function-throttle": Saboteur(
        "confirms that a function has concurrency again, and leaves it none", ignore("lambda.DeleteFunctionConcurrency")
    ),
    "stretch-function-timeouts": Saboteur(
        "makes functions that may take eight seconds", _setting(_CREATE_FUNCTION, Timeout=8)
    ),
    "shorten-function-timeouts": Saboteur(
        "makes functions that may take a second", _setting(_CREATE_FUNCTION, Timeout=1)
    ),
}
