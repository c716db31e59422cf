"""The cost of a consumer's handlers as tasks and on Lambda, and the number of messages from which on tasks cost less.

Both sides have what differs between them, and nothing else: tasks, Container Insights of their service, the alarms that
target tracking makes, and the polls of their lanes; or time and number of invocations, and the polls of Lambda. A task
is paid for whether it works or not, a function for each message. Cold starts are not counted.
"""

from dataclasses import dataclass
from math import ceil

from sluice import limits
from sluice.cost import prices
from sluice.cost.prices import MONTH_HOURS, usd
from sluice.declaration import Consumer, Environment
from sluice.declaration.fields.image import Architecture
from sluice.declaration.metric_math import metric_ids

MONTH_SECONDS = MONTH_HOURS * 3_600
SPOT_SHARE = 0.3  # of the price on spot: "up to 70% off", https://aws.amazon.com/fargate/pricing/ (read 2026-11-23)
# Metrics that Container Insights keeps of one service, counted in AWS's list on 2026-11-21; its page was not noted.
SERVICE_METRICS = 25
TRACKING_ALARMS = 2  # alarms that target tracking makes for a service


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeCost:
    """A month of one consumer as tasks and on Lambda, in US dollars.

    Args:
        consumer: its name.
        is_function: whether it is declared to run on Lambda.
        tasks_usd: as tasks, as many as the messages take.
        function_usd: on Lambda, with the memory that is declared.
        break_even_messages: a month; from so many on tasks cost less. None: they never do, up to `max_tasks`.
    """

    consumer: str
    is_function: bool
    tasks_usd: float
    function_usd: float
    break_even_messages: int | None


def runtime_cost(environment: Environment, consumer: Consumer, messages: int) -> RuntimeCost:
    """Return what a consumer costs as tasks and on Lambda for so many messages a month.

    The result also says from how many messages on tasks cost less.
    """
    per_message, idle = function_message_usd(environment, consumer), mapping_polls_usd(consumer)
    break_even = None
    for tasks in range(consumer.min_tasks, consumer.max_tasks + 1):
        messages_of_equal_cost = max(0.0, (_tasks_usd(environment, consumer, tasks) - idle) / per_message)
        if messages_of_equal_cost <= tasks * _task_messages(consumer):  # so many tasks can handle them
            break_even = ceil(messages_of_equal_cost)
            break
    return RuntimeCost(
        consumer=consumer.name,
        is_function=consumer.runtime is not None,
        tasks_usd=_tasks_usd(environment, consumer, tasks_for(consumer, messages)),
        function_usd=messages * per_message + idle,
        break_even_messages=break_even,
    )


def tasks_needed(consumer: Consumer, messages: int) -> int:
    """Return how many tasks would keep up with so many messages a month, at an even rate."""
    busy_lanes = messages / MONTH_SECONDS * consumer.processing_seconds
    return ceil(busy_lanes / consumer.lanes)


def tasks_for(consumer: Consumer, messages: int) -> int:
    """Return how many tasks run for so many messages a month, between `min_tasks` and `max_tasks`."""
    return min(consumer.max_tasks, max(consumer.min_tasks, tasks_needed(consumer, messages)))


def task_hour_usd(cpu: int, memory_mib: int, architecture: Architecture) -> float:
    """Return the price of an hour of one task."""
    suffix = " on ARM" if architecture is Architecture.ARM64 else ""
    return (cpu * usd(f"Fargate CPU{suffix}") + memory_mib * usd(f"Fargate memory{suffix}")) / 1_024


def function_message_usd(environment: Environment, consumer: Consumer, events_per_message: float = 1) -> float:
    """Return the price of handling one event on Lambda, in an invocation that has no other message."""
    function = consumer.runtime
    memory_mb = consumer.memory_mib if function is None else function.memory_mb
    is_arm = environment.architecture is Architecture.ARM64 or (function is not None and function.package is not None)
    second = memory_mb / 1_024 * usd(f"Lambda duration{' on ARM' if is_arm else ''}")
    return consumer.processing_seconds * second + usd("Lambda request") / events_per_message


def mapping_polls_usd(consumer: Consumer) -> float:
    """Return the price of Lambda's long polls in a month if none finds a message.

    Polls of an existing queue are on its owner's bill.
    """
    function = consumer.runtime
    pollers = limits.MAPPING_INVOCATIONS_FIRST
    if function is not None and function.pollers_min is not None:
        pollers = function.pollers_min * limits.POLLER_INVOCATIONS
    return _polls_usd(consumer, pollers)


def lane_polls_usd(consumer: Consumer, tasks: int) -> float:
    """Return the price of a month of long polls of all lanes of so many tasks, if no poll finds a message."""
    return _polls_usd(consumer, tasks * consumer.lanes)


def _polls_usd(consumer: Consumer, pollers: int) -> float:
    """Return the price of a month of polls, each as long as SQS allows.

    Polls of an existing queue are on its owner's bill.
    """
    if consumer.queue is not None:
        return 0.0
    return pollers * MONTH_SECONDS / limits.WAIT_SECONDS_MAX * prices.queue_request(is_fifo=consumer.fifo)


def _task_messages(consumer: Consumer) -> float:
    """Return how many messages one task handles in a month."""
    return MONTH_SECONDS * consumer.lanes / consumer.processing_seconds


def _tasks_usd(environment: Environment, consumer: Consumer, tasks: int) -> float:
    """Return what a consumer costs in a month as so many tasks.

    The parts are tasks, metrics, alarms of target tracking, and polls.
    """
    hour = task_hour_usd(consumer.cpu, consumer.memory_mib, environment.architecture)
    insights = SERVICE_METRICS * usd("Container Insights")
    alarms = TRACKING_ALARMS * len(metric_ids(consumer.demand_per_task)) * usd("alarm")
    share = SPOT_SHARE if environment.spot else 1
    return tasks * MONTH_HOURS * hour * share + insights + alarms + lane_polls_usd(consumer, tasks)
