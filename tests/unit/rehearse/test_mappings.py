"""An event source mapping of Lambda is rehearsed beside the policies of tasks, ours and those of anybody's template."""

from dataclasses import replace
from typing import Any

import pytest

from sluice.declaration import Consumer, Environment, Lambda, Topic
from sluice.errors import ConfigError
from sluice.rehearse.declared_service import service_of, tasks_of
from sluice.rehearse.model.control_loop import ControlLoop
from sluice.rehearse.model.policies import MappingScaling, MetricSource, QueueSettings, ScaledService
from sluice.rehearse.model.scenarios import scenarios
from sluice.rehearse.model.simulation import simulate
from sluice.rehearse.reading.template import read_services
from sluice.rehearse.rehearsal import DEPLOYED, RehearsalRow, simulate_all

CONSUMER = Consumer(
    name="billing", handlers="their.billing", visibility_timeout_seconds=60, runtime=Lambda(maximum_concurrency=40)
)
DEV = Environment(name="dev", consumers=(CONSUMER,))


def _invocations(service: ScaledService, waiting: list[float]) -> list[int]:
    """Return how many invocations a mapping makes at once after each minute with so many messages waiting."""
    loop, desired, found = ControlLoop(service), service.min_tasks, []
    for minute in range(len(waiting)):

        def read_metric(_metric: MetricSource, until: int = minute + 1) -> list[float | None]:
            return [*waiting[:until]]

        desired = loop.decide(minute, desired, read_metric).desired
        found.append(desired)
    return found


def test_a_mapping_begins_with_five_and_makes_300_more_a_minute() -> None:
    """1,250 at most; without messages it is back at five."""
    service = replace(service_of(DEV, CONSUMER), max_tasks=1_250)

    assert service.min_tasks == 5
    assert _invocations(service, [0, 7, 900, 900, 900, 900, 0]) == [5, 305, 605, 905, 1_205, 1_250, 5]


def test_provisioned_pollers_begin_with_ten_invocations_each() -> None:
    """They add a thousand invocations a minute, up to the limit of the most pollers."""
    consumer = replace(CONSUMER, runtime=Lambda(pollers_min=3, pollers_max=150))
    service = service_of(DEV, consumer)

    assert service.min_tasks == 30
    assert service.max_tasks == 1_500
    assert _invocations(service, [5, 5, 0]) == [1_030, 1_500, 30]


def test_a_declared_bound_is_never_exceeded() -> None:
    """However many messages come, a function has no more invocations at once than its declared maximum."""
    assert _invocations(service_of(DEV, CONSUMER), [500, 500]) == [40, 40]
    few = replace(CONSUMER, runtime=Lambda(maximum_concurrency=3))
    assert _invocations(service_of(DEV, few), [500, 0]) == [3, 3]


def test_a_function_follows_a_burst_sooner_than_tasks_and_costs_its_work() -> None:
    """Tasks take minutes to follow eight times the traffic; invocations follow within one."""
    tasks = replace(CONSUMER, runtime=None)
    service, work = service_of(DEV, tasks), tasks_of(tasks)
    burst = scenarios(service, work, groups=100)["burst"]

    found = {row.policy: row for row in simulate_all(service, [burst], own={}, compares=True)}

    deployed, function = found[DEPLOYED], found["a Lambda function's mapping"]
    assert _p95(function) < _p95(deployed) / 4
    assert function.paid_hours == pytest.approx(burst.traffic.message_count / 3_600, rel=0.01)  # a second a message
    assert function.service.scaling_text == "5 to 40 invocations at once, mapping: mapping"


def _p95(row: RehearsalRow) -> float:
    """Return the row's p95 latency, which must have been measured."""
    assert row.p95_seconds is not None
    return row.p95_seconds


def test_a_hot_group_is_no_faster_with_more_invocations() -> None:
    """A group has one message on its way, whatever may run besides."""
    work = tasks_of(CONSUMER)
    few, many = (
        replace(service_of(DEV, replace(CONSUMER, runtime=Lambda(maximum_concurrency=most)))) for most in (10, 400)
    )
    hot = scenarios(few, work, groups=100)["hot-group"].traffic

    assert simulate(few, hot, work).left == simulate(many, hot, work).left > 0


TEMPLATE: dict[str, Any] = {
    "Resources": {
        "Orders": {
            "Type": "AWS::SQS::Queue",
            "Properties": {"QueueName": "orders.fifo", "FifoQueue": True, "VisibilityTimeout": 180},
        },
        "Handle": {
            "Type": "AWS::Lambda::Function",
            "Properties": {"FunctionName": "handle", "MemorySize": 1_024, "Architectures": ["arm64"]},
        },
        "Polls": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "EventSourceArn": {"Fn::GetAtt": ["Orders", "Arn"]},
                "FunctionName": {"Ref": "Handle"},
                "ScalingConfig": {"MaximumConcurrency": 50},
            },
        },
        "Stream": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "EventSourceArn": "arn:aws:kinesis:us-east-1:111122223333:stream/orders",
                "FunctionName": {"Ref": "Handle"},
            },
        },
    }
}


def test_a_mapping_on_a_queue_is_read_out_of_anybodys_template() -> None:
    """A mapping on a stream is not read. Properties that the template lacks have AWS's defaults."""
    assert read_services(TEMPLATE) == (
        ScaledService(
            name="handle",
            min_tasks=5,
            max_tasks=50,
            policies=(),
            queue=QueueSettings(name="orders.fifo", visibility_timeout_seconds=180),
            is_protected=True,
            cpu_units=None,
            memory_mib=1_024,
            mapping=MappingScaling(name="Polls"),
            is_on_arm=True,
        ),
    )


def test_a_function_that_is_reserved_nothing_is_refused() -> None:
    """A reserved concurrency of 0 stops every invocation."""
    reserved = {**TEMPLATE["Resources"]["Handle"]["Properties"], "ReservedConcurrentExecutions": 0}
    function = {**TEMPLATE["Resources"]["Handle"], "Properties": reserved}

    with pytest.raises(ConfigError, match="1 or more, as nothing runs without"):
        read_services({"Resources": {**TEMPLATE["Resources"], "Handle": function}})


@pytest.mark.parametrize("runtime", [None, Lambda(timeout_seconds=10)])
def test_a_declared_service_says_that_bundles_are_not_simulated(runtime: Lambda | None) -> None:
    """A failing event is tried `max_attempts` times, which the inbox counts; the queue's 1,000 are no attempts."""
    consumer = Consumer(name="billing", handlers="their.billing", visibility_timeout_seconds=120, runtime=runtime)
    declared = Environment(name="shop", topics=(Topic(bundle_events_max=10),), consumers=(consumer,))

    service = service_of(declared, consumer)

    assert service.queue is not None
    assert service.queue.max_receive_count == consumer.max_attempts
    assert service.not_simulated == ("bundles of up to 10 events: here each event has a message of its own",)
