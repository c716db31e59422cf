"""The monthly bill of an environment, line by line, for a number of messages of one size that come at an even rate.

Tasks follow from Little's law: a message occupies a lane for `processing_seconds`, so a consumer needs its messages a
second times that many lanes, between `min_tasks` and `max_tasks` tasks of them. Every consumer gets every message of
its topic, each handled once: filter policies and retries are not counted, and neither are peaks, which take more tasks
for a while. Long polls are counted as if every lane were idle. A function is paid for by the time its handler takes
for each message, and by an invocation for each: batches take fewer. What is published to, delivered by or asked of an
existing topic or queue is on its owner's bill, and not here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

from sluice.cost import prices
from sluice.cost.prices import MONTH_HOURS, usd
from sluice.cost.runtimes import (
    MONTH_SECONDS,
    SERVICE_METRICS,
    SPOT_SHARE,
    TRACKING_ALARMS,
    RuntimeCost,
    function_message_usd,
    lane_polls_usd,
    mapping_polls_usd,
    runtime_cost,
    task_hour_usd,
    tasks_for,
    tasks_needed,
)
from sluice.declaration import (
    AutomaticRedrive,
    Consumer,
    Encryption,
    Environment,
    ExistingTopic,
    NewDatabase,
    NewNetwork,
    Topic,
)
from sluice.declaration.alarms import alarms
from sluice.declaration.fields.image import Architecture
from sluice.declaration.fields.topics import RELAY_TASKS
from sluice.declaration.metric_math import metric_ids

_GIGABYTE = 1e9
_SMALL_CPU, _SMALL_MEMORY_MIB = 256, 512  # of a task of a relay or of automatic redrive
# Assumed: each day (30 times a month) a service that handlers need is away, and one redrive brings back as many
# messages as it may, ten a second. Fargate bills a minute at least, from the pull of the image on.
_REDRIVE_RUNS, _REDRIVE_START_SECONDS, _REDRIVES_PER_SECOND = 30, 60, 10
_VERDICT_SECONDS = 120  # assumed: the start of a task, and its comparison of ten million messages
# Metrics that Container Insights keeps of a cluster, counted in AWS's list on 2026-11-21; its page was not noted.
_CLUSTER_METRICS = 13
_ACUS_AWAKE = 0.5  # the least capacity of a database instance that something is connected to
_ENDPOINTS = 4  # interface endpoints of every new network: SQS, two of ECR, CloudWatch Logs
# KMS requests of one topic or queue in a month: three in five minutes, with one producer and one consumer, as AWS
# estimates it; noted on 2026-11-21 without its page.
_KMS_REQUESTS = 3 * MONTH_SECONDS / 300
_QUEUES = 3  # queues of a consumer that are encrypted, unless its main queue exists already

NOT_COUNTED = (
    "log ingestion (0.50 a GB), the topic's archive, ECR storage, data transfer between zones, tax, custom metrics,"
    " Aurora's storage (0.10 a GB), I/O (0.20 a million) and capacity above the least, a database or a network that"
    " somebody else looks after"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyMessages:
    """The messages of a month, from which the bill is computed.

    Args:
        messages: how many are published to each topic, each once; where events travel in bundles, how many events.
        message_bytes: the size of one message, or event, body and attributes together.
        events_per_message: how many events a message has on average, on topics with bundles. None is unknown: a bundle
            is what waits, one event at a low rate, and up to `bundle_events_max` at a high one.
    """

    messages: int
    message_bytes: int
    events_per_message: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCost:
    """The tasks that one consumer runs, and those that would keep up, when messages come at an even rate.

    Args:
        consumer: the consumer's name.
        tasks: how many run, between min_tasks and max_tasks.
        tasks_needed: how many would keep up.
    """

    consumer: str
    tasks: int
    tasks_needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A month of an environment, in US dollars.

    Args:
        lines: the cost of each thing that is paid for, by its name.
        instead: what the whole month would cost with another declaration, by the option that would be declared.
        services: the tasks of each consumer that runs as tasks.
        runtimes: what each consumer costs as tasks and on Lambda.
        vcpus_max: the vCPUs of all tasks together, when each service has max_tasks.
        usd_with_full_bundles: the whole month if every message has as many events as it may, where it is not known how
            many; the lines are then for one event a message. None: no topic has bundles, or the number is given.
    """

    lines: Mapping[str, float]
    instead: Mapping[str, float]
    services: tuple[ServiceCost, ...]
    runtimes: tuple[RuntimeCost, ...]
    vcpus_max: float
    usd_with_full_bundles: float | None = None

    @property
    def usd(self) -> float:
        """Return what the whole month costs."""
        return sum(self.lines.values())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each consumer whose max_tasks are too few to keep up with the messages."""
        return tuple(
            f"{service.consumer} needs {service.tasks_needed} tasks, max_tasks is {service.tasks}: it falls behind;"
            " raise max_tasks or lanes"
            for service in self.services
            if service.tasks_needed > service.tasks
        )


def bill(environment: Environment, volume: MonthlyMessages) -> Bill:
    """Return what an environment costs in a month in which each topic gets this volume of messages."""
    with_full_bundles = None
    if volume.events_per_message is None:
        if any(topic.bundle_events_max > 1 for topic in environment.topics):
            with_full_bundles = bill(environment, replace(volume, events_per_message=inf)).usd
        volume = replace(volume, events_per_message=1)
    services = tuple(_service(consumer, volume) for consumer in _with_tasks(environment))
    lines = _lines(environment, volume, services)
    total = sum(lines.values())
    architecture, spot = environment.architecture, environment.spot
    other = Architecture.X86_64 if architecture is Architecture.ARM64 else Architecture.ARM64
    without_tasks = total - lines["Fargate"]
    functions_change = _functions(replace(environment, architecture=other), volume) - lines.get("Lambda", 0.0)
    instead = {
        f"architecture=Architecture.{other.name}": without_tasks
        + _fargate(environment, services, other, spot=spot)
        + functions_change,
        f"spot={not spot}": without_tasks + _fargate(environment, services, architecture, spot=not spot),
    }
    if isinstance(environment.network, NewNetwork):
        gigabytes = _gigabytes(environment, volume)
        gateways = environment.network.availability_zones * MONTH_HOURS * usd("NAT gateway")
        endpoints = lines["interface endpoints"] + lines["through the endpoints"]
        instead["NAT gateways, one a zone"] = total - endpoints + gateways + gigabytes * usd("NAT gateway, data")
    runtimes = tuple(runtime_cost(environment, consumer, volume.messages) for consumer in environment.consumers)
    return Bill(
        lines=lines,
        instead=instead,
        services=services,
        runtimes=runtimes,
        vcpus_max=_vcpus_max(environment),
        usd_with_full_bundles=with_full_bundles,
    )


def _messages_for(environment: Environment, topic: Topic | ExistingTopic, volume: MonthlyMessages) -> MonthlyMessages:
    """Return the messages that are sent for the events of a topic, and their size."""
    most = prices.bundle_size(
        topic.bundle_events_max, event_bytes=volume.message_bytes, message_bytes_max=environment.event_bytes_max
    )
    events = min(volume.events_per_message or 1, most)
    return replace(volume, messages=ceil(volume.messages / events), message_bytes=ceil(volume.message_bytes * events))


def _vcpus_max(environment: Environment) -> float:
    """Return the vCPUs of all tasks that may run at once, those of relays among them."""
    workers = sum(consumer.max_tasks * consumer.cpu for consumer in _with_tasks(environment))
    return (workers + _relays(environment) * RELAY_TASKS * _SMALL_CPU) / 1_024


def _lines(environment: Environment, volume: MonthlyMessages, services: tuple[ServiceCost, ...]) -> dict[str, float]:
    """Return the cost in US dollars of each line of the bill, by the line's name.

    Groups of lines that count alike come from helpers: SNS, tasks, functions, network, database, keys.
    """
    sent = {topic: _messages_for(environment, topic, volume) for topic in environment.topics}
    fan_outs = [
        prices.fan_out(
            published=sent[topic].messages,
            delivered=sent[topic].messages * len(environment.consumers_of(topic)),
            message_bytes=sent[topic].message_bytes,
        )
        for topic in _own_topics(environment)
    ]
    own_queues = [consumer for consumer in environment.consumers if consumer.queue is None]
    tasks = {service.consumer: service.tasks for service in services}
    return {
        **{name: sum(lines[name] for lines in fan_outs) for name in ("SNS publish", "SNS delivery")},
        "SQS send, receive, delete": sum(
            prices.queue_deliveries(
                delivered=sent[topic].messages, message_bytes=sent[topic].message_bytes, is_fifo=consumer.fifo
            )
            for consumer in own_queues
            for topic in [environment.topic(consumer.topic)]
        ),
        "SQS long polls": sum(
            lane_polls_usd(consumer, tasks[consumer.name]) if consumer.runtime is None else mapping_polls_usd(consumer)
            for consumer in environment.consumers
        ),
        "Fargate": _fargate(environment, services, environment.architecture, spot=environment.spot),
        **({} if len(tasks) == len(environment.consumers) else {"Lambda": _functions(environment, volume)}),
        **_network(environment, volume),
        "Aurora at its least capacity": _database(environment, services, volume),
        "Container Insights": _insights_metrics(environment) * usd("Container Insights"),
        "alarms": _alarm_metrics(environment) * usd("alarm"),
        "dashboard": len({None, *(consumer.stack for consumer in environment.consumers)}) * usd("dashboard"),
        "KMS keys and their requests": _keys(environment),
    }


def _keys(environment: Environment) -> float:
    """Return the price of KMS keys and requests.

    The environment makes a key for logs, one for a new database, and two for topics and queues unless they exist
    already.
    """
    if environment.encryption is not Encryption.CMK:
        return 0.0
    keys = 1 + isinstance(environment.database, NewDatabase) + 2 * (environment.keys is None)
    queues = sum(_QUEUES if consumer.queue is None else 1 for consumer in environment.consumers)
    encrypted = len(_own_topics(environment)) + queues
    return keys * usd("KMS key") + encrypted * _KMS_REQUESTS * usd("KMS request")


def _own_topics(environment: Environment) -> list[Topic]:
    """Return the topics that the environment makes; what an existing topic costs is on its owner's bill."""
    return [topic for topic in environment.topics if isinstance(topic, Topic)]


def _service(consumer: Consumer, volume: MonthlyMessages) -> ServiceCost:
    """Return how many tasks of a consumer run, and how many would keep up with the messages."""
    tasks, needed = tasks_for(consumer, volume.messages), tasks_needed(consumer, volume.messages)
    return ServiceCost(consumer=consumer.name, tasks=tasks, tasks_needed=needed)


def _with_tasks(environment: Environment) -> list[Consumer]:
    """Return the consumers that run as tasks on Fargate; the others run on Lambda."""
    return [consumer for consumer in environment.consumers if consumer.runtime is None]


def _functions(environment: Environment, volume: MonthlyMessages) -> float:
    """Return the price of all invocations of functions in a month; each message is counted as an invocation."""
    functions = [consumer for consumer in environment.consumers if consumer.runtime is not None]
    return sum(
        volume.messages * function_message_usd(environment, consumer, volume.messages / sent.messages)
        for consumer in functions
        if (sent := _messages_for(environment, environment.topic(consumer.topic), volume)).messages
    )


def _relays(environment: Environment) -> int:
    """Return how many relay services there are: one for each topic that is published to."""
    return len(environment.published_topics) if environment.has_relay else 0


def _database(environment: Environment, services: tuple[ServiceCost, ...], volume: MonthlyMessages) -> float:
    """Return the cost of a new database that is never busy; one that may pause does while nothing is connected."""
    database = environment.database
    if not isinstance(database, NewDatabase):
        return 0.0
    is_invoked = volume.messages > 0 and len(services) < len(environment.consumers)
    is_connected = environment.has_relay or is_invoked or any(service.tasks for service in services)
    acus = max(database.min_acus, _ACUS_AWAKE if is_connected else 0)
    instances = 2 if database.standby else 1
    return acus * instances * MONTH_HOURS * usd("Aurora Serverless v2") + usd("secret")


def _fargate(
    environment: Environment, services: tuple[ServiceCost, ...], architecture: Architecture, *, spot: bool
) -> float:
    """Return the cost of all tasks in a month.

    The tasks of automatic redrive and of verdicts never run on spot, so they cost the full price.
    """
    sizes = [
        (service.tasks, consumer.cpu, consumer.memory_mib)
        for service, consumer in zip(services, _with_tasks(environment), strict=True)
    ]
    sizes.append((RELAY_TASKS * _relays(environment), _SMALL_CPU, _SMALL_MEMORY_MIB))
    hourly = sum(tasks * task_hour_usd(cpu, memory_mib, architecture) for tasks, cpu, memory_mib in sizes)
    started = _redrive_hours(environment) + _verdict_hours(environment)
    small = task_hour_usd(_SMALL_CPU, _SMALL_MEMORY_MIB, architecture)
    return MONTH_HOURS * hourly * (SPOT_SHARE if spot else 1) + started * small


def _redrive_hours(environment: Environment) -> float:
    """Return for how many hours of a month tasks of automatic redrive run."""
    declared = [consumer.automatic_redrive for consumer in environment.consumers]
    return sum(_redrive_seconds(redrive) for redrive in declared if redrive is not None) / 3_600


def _redrive_seconds(declared: AutomaticRedrive) -> float:
    """Return for how many seconds of a month tasks of one consumer's automatic redrive run.

    Some bring messages back; those that the schedule starts find nothing.
    """
    scheduled_runs = MONTH_HOURS * 60 / declared.repeat_minutes
    moving_seconds = _REDRIVE_RUNS * declared.messages_max / _REDRIVES_PER_SECOND
    return (scheduled_runs + _REDRIVE_RUNS) * _REDRIVE_START_SECONDS + moving_seconds


def _verdict_hours(environment: Environment) -> float:
    """Return for how many hours of a month tasks run that compare outboxes with their consumers, each hour."""
    return len(environment.verified_topics) * MONTH_HOURS * _VERDICT_SECONDS / 3_600


def _network(environment: Environment, volume: MonthlyMessages) -> dict[str, float]:
    """Return the cost of a new network's interface endpoints and of the bytes that pass through them."""
    if not isinstance(environment.network, NewNetwork):
        return {"interface endpoints": 0.0, "through the endpoints": 0.0}
    endpoints = _ENDPOINTS + (environment.database is not None) + environment.has_relay
    hours = environment.network.availability_zones * MONTH_HOURS
    return {
        "interface endpoints": endpoints * hours * usd("interface endpoint"),
        "through the endpoints": _gigabytes(environment, volume) * usd("interface endpoint, data"),
    }


def _gigabytes(environment: Environment, volume: MonthlyMessages) -> float:
    """Return the gigabytes between the tasks and AWS in a month: what consumers receive and relays publish."""
    copies = len(environment.consumers) + _relays(environment)
    return copies * volume.messages * volume.message_bytes / _GIGABYTE


def _insights_metrics(environment: Environment) -> int:
    """Return how many metrics Container Insights keeps at most; a service is counted even while it has no tasks."""
    cluster = _CLUSTER_METRICS if environment.cluster is None else 0
    return cluster + SERVICE_METRICS * (len(_with_tasks(environment)) + _relays(environment))


def _alarm_metrics(environment: Environment) -> int:
    """Return how many metrics all alarms read, those of the alarms that target tracking makes by itself included."""
    tracked = sum(len(metric_ids(consumer.demand_per_task)) for consumer in _with_tasks(environment))
    return sum(len(alarm.metrics) for alarm in alarms(environment)) + TRACKING_ALARMS * tracked
