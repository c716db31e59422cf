"""Read the Lambda functions that poll SQS queues out of CloudFormation templates, ours or anybody's.

AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-lambda-eventsourcemapping.html
and https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html (read 2026-11-27).
"""

from collections.abc import Iterator
from dataclasses import replace

from sluice import limits
from sluice.rehearse.model.policies import MappingScaling, ScaledService
from sluice.rehearse.reading.cloudformation import Properties, Stacks, TemplateResource, is_unknown, name_in
from sluice.rehearse.reading.properties import QUEUE
from sluice.rehearse.reading.task_definition import TaskDefinition, receives_that_are_no_attempts

_MAPPING, _FUNCTION = "AWS::Lambda::EventSourceMapping", "AWS::Lambda::Function"
_DEFAULT_BATCH_SIZE, _DEFAULT_MEMORY_MB = 10, 128
_POLLERS_MIN, _POLLERS_MAX = 2, 200
"""The least and the most pollers of a mapping in provisioned mode that does not say."""
_NOT_SIMULATED = {
    "FilterCriteria": "messages that the mapping deletes unread",
    "MaximumBatchingWindowInSeconds": "messages that wait for a batch to be full",
}


def read_mappings(stacks: Stacks) -> Iterator[tuple[TemplateResource, ScaledService]]:
    """Yield each mapping that polls an SQS queue, with its function as a scaled service.

    Raises:
        ConfigError: a number of the mapping or its function is none, or is out of bounds.
    """
    for mapping in stacks.of_kind(_MAPPING):
        source = str(mapping.properties.get("EventSourceArn"))
        is_sqs = ":sqs:" in source or stacks.find(QUEUE, source, mapping) is not None
        if is_sqs and mapping.properties.is_true("Enabled", default=True):
            yield mapping, _function_as_service(stacks, mapping, name_in(source))


def _function_as_service(stacks: Stacks, mapping: TemplateResource, queue: str) -> ScaledService:
    """Return a mapping's function as a scaled service, each concurrent invocation as a task."""
    properties = mapping.properties
    function = stacks.find(_FUNCTION, properties.get("FunctionName"), mapping)
    scaling, most = _scaling(mapping)
    reserved = None if function is None else function.properties.get("ReservedConcurrentExecutions")
    if function is not None and reserved is not None and not is_unknown(reserved):
        if (reserved := function.properties.integer("ReservedConcurrentExecutions")) < 1:
            raise function.properties.refusal("ReservedConcurrentExecutions", "1 or more, as nothing runs without")
        most = min(most, reserved)
    fewest = min(scaling.first, most)
    settings = TaskDefinition(stacks, None, mapping).settings(queue)
    return ScaledService(
        name=_function_name(mapping, function),
        min_tasks=fewest,
        max_tasks=most,
        policies=(),
        queue=settings,
        not_simulated=(*_ignored_settings(properties), *receives_that_are_no_attempts(settings)),
        is_protected=True,
        cpu_units=None,
        memory_mib=None if function is None else function.properties.integer("MemorySize", _DEFAULT_MEMORY_MB),
        mapping=replace(scaling, first=fewest),
        is_on_arm=function is not None and "arm64" in function.properties.items("Architectures"),
    )


def _function_name(mapping: TemplateResource, function: TemplateResource | None) -> str:
    """Return a function's name, else its logical id; without the function in a template, the mapping's name for it."""
    if function is None:
        return name_in(str(mapping.properties.get("FunctionName")))
    return str(function.properties.get("FunctionName") or function.id)


def _scaling(mapping: TemplateResource) -> tuple[MappingScaling, int]:
    """Return (how a mapping scales, the most invocations that it makes at once)."""
    properties = mapping.properties
    if "ProvisionedPollerConfig" in properties.values:
        pollers = properties.part("ProvisionedPollerConfig")
        fewest, most = pollers.integer("MinimumPollers", _POLLERS_MIN), pollers.integer("MaximumPollers", _POLLERS_MAX)
        if not 1 <= fewest <= most:
            raise pollers.refusal("MinimumPollers", f"1 to MaximumPollers, which is {most}")
        first = fewest * limits.POLLER_INVOCATIONS
        more = limits.POLLERS_INVOCATIONS_PER_MINUTE
        return MappingScaling(name=mapping.id, first=first, more_per_minute=more), most * limits.POLLER_INVOCATIONS
    most = properties.part("ScalingConfig").integer("MaximumConcurrency", limits.MAPPING_INVOCATIONS_MAX)
    if most < 1:
        raise properties.part("ScalingConfig").refusal("MaximumConcurrency", "2 or more")
    return MappingScaling(name=mapping.id), min(most, limits.MAPPING_INVOCATIONS_MAX)


def _ignored_settings(properties: Properties) -> Iterator[str]:
    """Yield the end of the sentence "not simulated: …" for each setting of a mapping that a rehearsal ignores."""
    if (size := properties.integer("BatchSize", _DEFAULT_BATCH_SIZE)) > 1:
        yield f"batches of up to {size} messages: here each message has an invocation of its own"
    for name, what in _NOT_SIMULATED.items():
        if properties.get(name):
            yield f"{name} ({what})"
