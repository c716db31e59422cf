"""A model of Lambda's API, as far as event source mappings of SQS queues need it. Ids in brackets are promises.

A function has no code here: the caller of `Functions` polls for its invocations, and says how each ends.

https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-parameters.html,
https://docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html (read 2026-11-27)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.simulator.model.filter_policy import check_policy
from sluice.simulator.model.mapping import EventSourceMapping, Invocation, NoAnswer
from sluice.simulator.model.operation import AnswerFields, ModelOperation, Params
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.refusal import AwsRefusal

_BATCH_SIZE_DEFAULT = 10
_BATCH_SIZE_MAX_WITHOUT_WINDOW = 10
_BATCHES_MAX = 1_000
_TIMEOUT_SECONDS_DEFAULT = 3
_SETTABLE = (
    *("BatchSize", "Enabled", "FilterCriteria", "FunctionResponseTypes"),
    *("MaximumBatchingWindowInSeconds", "ScalingConfig"),
)


@dataclass(slots=True, kw_only=True)
class SimulatedFunction:
    """A function.

    Args:
        environment: its variables, as the API has them; None if it has none.
        concurrency_max: its reserved concurrency: the most invocations at one time; None is no limit.
    """

    name: str
    arn: str
    timeout_seconds: int
    environment: Mapping[str, Any] | None = None
    concurrency_max: int | None = None


@dataclass(slots=True, kw_only=True)
class SimulatedMapping:
    """An event source mapping: its settings, as the API's caller gave them, and the poller that follows them."""

    id: str
    function: SimulatedFunction
    poller: EventSourceMapping
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FunctionInvocation:
    """An invocation of a function, which `Functions.finish` ends."""

    mapping: SimulatedMapping
    invocation: Invocation

    def is_under_way(self) -> bool:
        """Return whether the function has time left, so that an answer still counts."""
        return self.invocation in self.mapping.poller.invocations


class Functions:
    """All functions and event source mappings of one account and region.

    Args:
        call: calls SQS: takes operation, parameters and instant.
        queues: the account's queues by ARN.
        arn_prefix: the beginning of function ARNs.
        new_id: makes ids of mappings.
    """

    def __init__(
        self,
        call: Callable[[str, dict[str, Any], float], Mapping[str, Any]],
        queues: Mapping[str, SimulatedQueue],
        *,
        arn_prefix: str,
        new_id: Callable[[], str],
    ) -> None:
        self._call, self._queues, self._arn_prefix, self._new_id = call, queues, arn_prefix, new_id
        self._functions: dict[str, SimulatedFunction] = {}
        self._mappings: dict[str, SimulatedMapping] = {}
        self._now = 0.0
        self.operations: Mapping[str, ModelOperation] = {
            "CreateFunction": self._create_function,
            "GetFunctionConfiguration": lambda params, _: _describe_function(self._named_function(params)),
            "DeleteFunction": self._delete_function,
            "PutFunctionConcurrency": self._put_function_concurrency,
            "DeleteFunctionConcurrency": self._delete_function_concurrency,
            "CreateEventSourceMapping": self._create_mapping,
            "GetEventSourceMapping": lambda params, _: _describe(self._named_mapping(params)),
            "ListEventSourceMappings": self._list_mappings,
            "UpdateEventSourceMapping": self._update_mapping,
            "DeleteEventSourceMapping": self._delete_mapping,
        }

    def poll(self, name: str, now: float) -> FunctionInvocation | None:
        """Return an invocation of a function that begins now; None where there is none."""
        self._now = now
        for mapping in self._mappings_of(name):
            self._end_overdue(mapping, now)
            while (invocation := mapping.poller.poll(now)) is not None:
                if not self._is_throttled(mapping.function):
                    return FunctionInvocation(mapping, invocation)
                mapping.poller.finish(invocation, NoAnswer.THROTTLED, now)
        return None

    def finish(self, invocation: FunctionInvocation, answer: object, now: float) -> None:
        """End an invocation with its function's answer, which does not count after the function's timeout [ESM-11]."""
        self._now = now
        self._end_overdue(invocation.mapping, now)
        if invocation.is_under_way():
            invocation.mapping.poller.finish(invocation.invocation, answer, now)

    def changes_after(self, now: float) -> Iterable[float]:
        """Yield the instants after `now` at which a throttled batch is tried again, or a function is out of time."""
        for mapping in self._mappings.values():
            for each in mapping.poller.invocations:
                ends_at = each.begun_at + mapping.function.timeout_seconds
                change = ends_at if each.retry_at is None else each.retry_at
                if change > now:
                    yield change

    def _mappings_of(self, name: str) -> list[SimulatedMapping]:
        return [mapping for mapping in self._mappings.values() if mapping.function.name == name]

    def _is_throttled(self, function: SimulatedFunction) -> bool:
        """Return whether more invocations are under way than the function has concurrency for [ESM-12]."""
        of_function = self._mappings_of(function.name)
        under_way = [each for mapping in of_function for each in mapping.poller.invocations if each.retry_at is None]
        return function.concurrency_max is not None and len(under_way) > function.concurrency_max

    def _end_overdue(self, mapping: SimulatedMapping, now: float) -> None:
        """End a mapping's invocations that ran longer than the function's timeout, as failures."""
        for each in list(mapping.poller.invocations):
            if each.retry_at is None and now >= each.begun_at + mapping.function.timeout_seconds:
                mapping.poller.finish(each, NoAnswer.ERROR, now)

    def _create_function(self, params: Params, _now: float) -> AnswerFields:
        name = params["FunctionName"]
        if name in self._functions:
            raise AwsRefusal("ResourceConflictException", f"Function already exist: {name}", status=409)
        self._functions[name] = SimulatedFunction(
            name=name,
            arn=f"{self._arn_prefix}function:{name}",
            timeout_seconds=params.get("Timeout", _TIMEOUT_SECONDS_DEFAULT),
            environment=params.get("Environment"),
        )
        return _describe_function(self._functions[name])

    def _delete_function(self, params: Params, _now: float) -> AnswerFields:
        del self._functions[self._named_function(params).name]
        return {}

    def _put_function_concurrency(self, params: Params, _now: float) -> AnswerFields:
        concurrency_max = params["ReservedConcurrentExecutions"]
        self._named_function(params).concurrency_max = concurrency_max
        return {"ReservedConcurrentExecutions": concurrency_max}

    def _delete_function_concurrency(self, params: Params, _now: float) -> AnswerFields:
        self._named_function(params).concurrency_max = None
        return {}

    def _named_function(self, params: Params) -> SimulatedFunction:
        function = self._functions.get(params["FunctionName"])
        if function is None:
            raise AwsRefusal("ResourceNotFoundException", f"Function not found: {params['FunctionName']}", status=404)
        return function

    def _create_mapping(self, params: Params, _now: float) -> AnswerFields:
        function = self._functions.get(params["FunctionName"])
        if function is None:
            raise _invalid("Function does not exist")
        queue = self._queues.get(params["EventSourceArn"])
        if queue is None:  # [ESM-25]
            raise _invalid(
                "Error occurred while ReceiveMessage. SQS Error Code: AWS.SimpleQueueService.NonExistentQueue."
                " SQS Error Message: The specified queue does not exist."
            )
        self._check_duplicate(queue, function)
        visibility_seconds = queue.seconds("VisibilityTimeout")
        if visibility_seconds < function.timeout_seconds:  # [ESM-30]
            raise _invalid(
                f"Queue visibility timeout: {visibility_seconds} seconds is less than Function timeout:"
                f" {function.timeout_seconds} seconds"
            )
        poller = EventSourceMapping(
            call=self._call_sqs,
            queue_url=queue.url,
            queue_arn=queue.arn,
            batch_size=_BATCH_SIZE_DEFAULT,
            visibility_seconds=visibility_seconds,
        )
        made = SimulatedMapping(id=self._new_id(), function=function, poller=poller)
        self._configure(made, params)
        self._mappings[made.id] = made
        return _describe(made)

    def _check_duplicate(self, queue: SimulatedQueue, function: SimulatedFunction) -> None:
        """Refuse a second mapping of a queue to a function [ESM-26]."""
        for mapping in self._mappings_of(function.name):
            if mapping.poller.queue_arn == queue.arn:
                text = (
                    f'An event source mapping with SQS arn (" {queue.arn} ") and function (" {function.name} ") already'
                    f" exists. Please update or delete the existing mapping with UUID {mapping.id}"
                )
                raise AwsRefusal("ResourceConflictException", text, status=409)

    def _list_mappings(self, params: Params, _now: float) -> AnswerFields:
        """List the mappings of a function, all on one page."""
        found = self._mappings_of(params["FunctionName"])
        return {"EventSourceMappings": [_describe(mapping) for mapping in found]}

    def _update_mapping(self, params: Params, _now: float) -> AnswerFields:
        mapping = self._named_mapping(params)
        self._configure(mapping, params)
        return _describe(mapping)

    def _configure(self, mapping: SimulatedMapping, params: Params) -> None:
        """Set the settings of a mapping that a call names; the others stay."""
        settings = mapping.settings | {name: params[name] for name in _SETTABLE if name in params}
        patterns = [each.get("Pattern", "") for each in settings.get("FilterCriteria", {}).get("Filters", [])]
        check_settings(settings, is_fifo=mapping.poller.queue_arn.endswith(".fifo"))
        check_patterns(patterns)
        poller, mapping.settings = mapping.poller, settings
        poller.batch_size = settings.get("BatchSize", _BATCH_SIZE_DEFAULT)
        poller.concurrency_max = settings.get("ScalingConfig", {}).get("MaximumConcurrency", _BATCHES_MAX)
        poller.reports_failures = "ReportBatchItemFailures" in settings.get("FunctionResponseTypes", [])
        poller.filters, poller.is_enabled = patterns, settings.get("Enabled", True)

    def _delete_mapping(self, params: Params, _now: float) -> AnswerFields:
        """Delete a mapping: it receives no more; its running invocations end as usual [ESM-20]."""
        mapping = self._named_mapping(params)
        del self._mappings[mapping.id]
        return _describe(mapping)

    def _named_mapping(self, params: Params) -> SimulatedMapping:
        mapping = self._mappings.get(params["UUID"])
        if mapping is None:
            raise AwsRefusal("ResourceNotFoundException", "The resource you requested does not exist.", status=404)
        return mapping

    def _call_sqs(self, operation: str, params: dict[str, Any]) -> Mapping[str, Any]:
        return self._call(operation, params, self._now)


def check_settings(settings: Mapping[str, Any], *, is_fifo: bool) -> None:
    """Refuse a batch size or a batching window that AWS refuses for such a queue."""
    window_seconds = settings.get("MaximumBatchingWindowInSeconds", 0)
    if is_fifo and window_seconds:  # [ESM-16]
        raise _invalid("Batching window is not supported for FIFO queues")
    if settings.get("BatchSize", _BATCH_SIZE_DEFAULT) > _BATCH_SIZE_MAX_WITHOUT_WINDOW and not window_seconds:
        raise _invalid(
            "Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than 10"
        )  # [ESM-15]


def check_patterns(patterns: Iterable[str]) -> None:
    """Refuse patterns of filters that are malformed [ESM-24]."""
    for pattern in patterns:
        try:
            check_policy(pattern, is_of_body=True)
        except AwsRefusal as refusal:
            raise _invalid("Invalid filter pattern definition.") from refusal


def _invalid(text: str) -> AwsRefusal:
    return AwsRefusal("InvalidParameterValueException", text)


def _describe_function(function: SimulatedFunction) -> AnswerFields:
    return {
        "FunctionName": function.name,
        "FunctionArn": function.arn,
        "Timeout": function.timeout_seconds,
        "State": "Active",
        **({} if function.environment is None else {"Environment": function.environment}),
    }


def _describe(mapping: SimulatedMapping) -> AnswerFields:
    return {
        "UUID": mapping.id,
        "FunctionArn": mapping.function.arn,
        "EventSourceArn": mapping.poller.queue_arn,
        "BatchSize": mapping.poller.batch_size,
        "MaximumBatchingWindowInSeconds": mapping.settings.get("MaximumBatchingWindowInSeconds", 0),
        "FunctionResponseTypes": mapping.settings.get("FunctionResponseTypes", []),
        "State": "Enabled" if mapping.poller.is_enabled else "Disabled",
    }
