"""What can be declared: environments, their consumers, networks and databases, with every relation checked.

The values themselves stand in `sluice/environments.py`, the file a user edits. A value that cannot be right is refused
when it is built, in one line that names the field, the value seen, the values allowed and the file to change.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from types import UnionType
from typing import Any, NoReturn, get_args, get_origin

from sluice import limits
from sluice.declaration import filters
from sluice.errors import ConfigError
from sluice.scaling import backlog

RETRY_SECONDS_MAX = 300
"""A worker waits so long at most before it tries a failing message again."""


class Removal(Enum):
    """What `cdk destroy` does to topics, queues and keys: delete them, or leave them and their messages."""

    DESTROY = "destroy"
    RETAIN = "retain"


class Encryption(Enum):
    """Who holds the keys at rest: SQS (free; the topic is not encrypted with a key), or two KMS keys of the account."""

    SQS_MANAGED = "sqs-managed"
    CMK = "cmk"


class Poison(Enum):
    """What becomes of a group whose message is dead-lettered: go on without it, or keep the rest until it is back."""

    SKIP = "skip"
    PARK = "park"


class Gaps(Enum):
    """What a worker does when a number is missing: write it down, wait for a while, or wait until somebody acts."""

    RECORD = "record"
    WAIT = "wait"
    HALT = "halt"


def _require(is_met: object, *, field: str, seen: object, allowed: str) -> None:
    if not is_met:
        _refuse(field=field, seen=seen, allowed=allowed)


def _refuse(*, field: str, seen: object, allowed: str) -> NoReturn:
    raise ConfigError(f"{field} is {seen!r}, allowed is {allowed}; change it in sluice/environments.py")


def _require_range(field: str, seen: float, lowest: int, highest: int, unit: str) -> None:
    _require(lowest <= seen <= highest, field=field, seen=seen, allowed=f"{lowest} to {highest} {unit}".strip())


def _require_types(value: Any, prefix: str) -> None:
    """Refuse what is not of its field's type, before relations are looked at: Python checks no annotation."""
    for one in fields(value):
        seen = getattr(value, one.name)
        words = one.type.__name__ if isinstance(one.type, type) else re.sub(r"[\w.]+\.(?=[A-Z])", "", str(one.type))
        _require(_is_a(seen, one.type), field=prefix + one.name, seen=seen, allowed=f"a value of type {words}")


def _is_a(seen: object, kind: Any) -> bool:
    """Tell whether a value is of a declared type; True is no number here, though Python says it is one."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        is_met = any(_is_a(seen, one) for one in inner)
    elif origin is tuple:
        is_met = isinstance(seen, tuple) and all(_is_a(one, inner[0]) for one in seen)
    elif origin is Mapping:
        is_met = isinstance(seen, Mapping) and all(
            _is_a(key, inner[0]) and _is_a(one, inner[1]) for key, one in seen.items()
        )
    elif kind in (int, float):
        is_met = type(seen) is int or type(seen) is kind
    else:
        is_met = origin is not None or isinstance(seen, kind)  # what a sequence holds is checked where it is used
    return is_met


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One service that gets the topic's messages, through a FIFO queue of its own with a FIFO DLQ of its own.

    Args:
        name: lower-case letters, digits and inner hyphens; part of the queue's name.
        filter_policy: SNS filter policy on message attributes, attribute name to conditions, or `$or` to policies one
            of which has to match; None delivers everything. With one, a group's sequence has lawful gaps.
        visibility_timeout_seconds: how long a received message stays with its consumer before it is delivered again.
        max_attempts: receives before a message is dead-lettered; with one message per receive this is the queue's
            maxReceiveCount.
        message_retention_seconds: how long the queue keeps a message nobody deletes.
        dead_letter_retention_seconds: the same for its DLQs; never shorter than the queue's.
        processing_seconds: how long the handler takes with one message, on average.
        acceptable_latency_seconds: how long a message may wait; the service is scaled for it, and alarmed above it.
        lanes: message groups one task works on at once, each with one message.
        expected_groups: message groups active at the same time; more lanes than groups never have work.
        min_tasks: tasks that always run; 0 saves them and costs the first message minutes.
        max_tasks: tasks that run at most.
        stop_timeout_seconds: what a stopping task has to finish or release its messages before it is killed.
        cpu: CPU units of a task; 1024 are one vCPU.
        memory_mib: memory of a task.
        image: the worker's container image where it differs from the environment's; None means that one.
        handlers: Python module with the consumer's handlers, in that image; None means that its worker does not start.
        poison: what becomes of a group whose message is dead-lettered.
        gaps: what a worker does when a number of a group is missing.
        gap_wait_seconds: how long it waits for the number, when it waits.
        joined_at: when it joined a topic that was in use already, aware; groups that are older begin with whatever
            comes of them first. None: it is there from the topic's first message, and a group's first is expected.
        inbox_retention_seconds: how long the inbox remembers a group nothing came for.
    """

    name: str
    filter_policy: Mapping[str, Sequence[object]] | None = field(default=None, hash=False)
    visibility_timeout_seconds: int = 60
    max_attempts: int = 5
    message_retention_seconds: int = 345_600
    dead_letter_retention_seconds: int = limits.MESSAGE_RETENTION_SECONDS_MAX
    processing_seconds: float = 1.0
    acceptable_latency_seconds: int = 60
    lanes: int = 4
    expected_groups: int = 100
    min_tasks: int = 1
    max_tasks: int = 10
    stop_timeout_seconds: int = 30
    cpu: int = 256
    memory_mib: int = 512
    image: str | None = None
    handlers: str | None = None
    poison: Poison = Poison.SKIP
    gaps: Gaps = Gaps.RECORD
    gap_wait_seconds: int = 300
    joined_at: datetime | None = None
    inbox_retention_seconds: int = 5_184_000

    @property
    def parks(self) -> bool:
        """Return whether its workers may set messages of a group aside in the inbox's database."""
        return self.poison is Poison.PARK or self.gaps is not Gaps.RECORD

    @property
    def target_backlog(self) -> float:
        """Return how many messages one task may have in front of it and still meet the latency."""
        return backlog.target_backlog(
            acceptable_latency_seconds=self.acceptable_latency_seconds,
            processing_seconds=self.processing_seconds,
            lanes=self.lanes,
        )

    @property
    def clamped_backlog_per_task(self) -> backlog.Term:
        """Return what its service is scaled on."""
        return backlog.clamped_backlog_per_task(
            self.target_backlog, lanes=self.lanes, processing_seconds=self.processing_seconds
        )

    @property
    def group_stuck(self) -> backlog.Term:
        """Return 1 while a group of its queue is stuck."""
        return backlog.group_stuck(
            acceptable_latency_seconds=self.acceptable_latency_seconds,
            lanes=self.lanes,
            processing_seconds=self.processing_seconds,
        )

    @property
    def capacity_pinned(self) -> backlog.Term:
        """Return 1 while all its tasks run and are not enough."""
        return backlog.capacity_pinned(
            self.target_backlog,
            max_tasks=self.max_tasks,
            lanes=self.lanes,
            processing_seconds=self.processing_seconds,
        )

    def __post_init__(self) -> None:
        prefix = f"Consumer({self.name!r})."
        _require_types(self, prefix)
        _check_consumer_name(self.name)
        _check_queue(self, prefix)
        _check_filter_policy(self, prefix)
        _check_scaling(self, prefix)
        _check_task(self, prefix)
        _check_inbox(self, prefix)


def _check_consumer_name(name: str) -> None:
    _require(
        re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) is not None,
        field="Consumer.name",
        seen=name,
        allowed="lower-case letters, digits and single inner hyphens",
    )
    _require(
        not name.endswith(("dlq", "dead-letter", "undelivered")),
        field="Consumer.name",
        seen=name,
        allowed="a name not ending in 'dlq', 'dead-letter' or 'undelivered', which its DLQs' names end in",
    )
    for taken, owner in {"relay": "the relay's service has", "topic": "the topic's alarms have"}.items():
        _require(name != taken, field="Consumer.name", seen=name, allowed=f"another name: {owner} this one")


def _check_queue(consumer: Consumer, prefix: str) -> None:
    _require_range(
        prefix + "visibility_timeout_seconds",
        consumer.visibility_timeout_seconds,
        1,
        limits.VISIBILITY_TIMEOUT_SECONDS_MAX,
        "seconds",
    )
    _require_range(
        prefix + "max_attempts",
        consumer.max_attempts,
        limits.MAX_RECEIVE_COUNT_MIN,
        limits.MAX_RECEIVE_COUNT_MAX,
        "receives",
    )
    for name in ("message_retention_seconds", "dead_letter_retention_seconds"):
        _require_range(
            prefix + name,
            getattr(consumer, name),
            limits.MESSAGE_RETENTION_SECONDS_MIN,
            limits.MESSAGE_RETENTION_SECONDS_MAX,
            "seconds",
        )
    _require(
        consumer.dead_letter_retention_seconds >= consumer.message_retention_seconds,
        field=prefix + "dead_letter_retention_seconds",
        seen=consumer.dead_letter_retention_seconds,
        allowed=f"at least message_retention_seconds ({consumer.message_retention_seconds})",
    )
    visibility_seconds = consumer.visibility_timeout_seconds
    attempts_seconds = (consumer.max_attempts - 1) * max(visibility_seconds, RETRY_SECONDS_MAX) + visibility_seconds
    _require(
        attempts_seconds < consumer.message_retention_seconds,
        field=prefix + "message_retention_seconds",
        seen=consumer.message_retention_seconds,
        allowed=(
            f"more than {attempts_seconds}, which max_attempts ({consumer.max_attempts}) may take with"
            f" visibility_timeout_seconds ({visibility_seconds}) each, or a wait of up to {RETRY_SECONDS_MAX} s between"
            " two, or a failing message expires before it is dead-lettered; raise it, or lower max_attempts"
        ),
    )


def _check_filter_policy(consumer: Consumer, prefix: str) -> None:
    if consumer.filter_policy is not None and (fault := filters.fault(consumer.filter_policy)):
        _refuse(field=f"{prefix}filter_policy{fault.where}", seen=fault.seen, allowed=fault.allowed)


def _check_scaling(consumer: Consumer, prefix: str) -> None:
    _require(
        0 < consumer.processing_seconds <= limits.VISIBILITY_TIMEOUT_SECONDS_MAX,
        field=prefix + "processing_seconds",
        seen=consumer.processing_seconds,
        allowed=f"more than 0, at most {limits.VISIBILITY_TIMEOUT_SECONDS_MAX} seconds",
    )
    _require(
        consumer.processing_seconds <= consumer.acceptable_latency_seconds < consumer.message_retention_seconds / 2,
        field=prefix + "acceptable_latency_seconds",
        seen=consumer.acceptable_latency_seconds,
        allowed=(
            f"at least processing_seconds ({consumer.processing_seconds:g}) and less than half of"
            f" message_retention_seconds ({consumer.message_retention_seconds / 2:g})"
        ),
    )
    _require_range(prefix + "lanes", consumer.lanes, 1, limits.FIFO_WINDOW_MESSAGES, "message groups")
    _require(
        consumer.expected_groups >= 1,
        field=prefix + "expected_groups",
        seen=consumer.expected_groups,
        allowed="1 or more",
    )
    _require_range(prefix + "max_tasks", consumer.max_tasks, 1, limits.TASKS_PER_SERVICE_MAX, "tasks")
    _require_range(prefix + "min_tasks", consumer.min_tasks, 0, consumer.max_tasks, "tasks (max_tasks)")
    useful_tasks = -(-consumer.expected_groups // consumer.lanes)
    _require(
        consumer.max_tasks <= useful_tasks,
        field=prefix + "max_tasks",
        seen=consumer.max_tasks,
        allowed=(
            f"at most expected_groups / lanes ({useful_tasks}): a group is worked on by one lane at a time, so further"
            " tasks never have work"
        ),
    )
    _require(
        consumer.min_tasks > 0 or consumer.acceptable_latency_seconds >= limits.WAKE_FROM_ZERO_SECONDS,
        field=prefix + "min_tasks",
        seen=consumer.min_tasks,
        allowed=(
            f"1 or more while acceptable_latency_seconds ({consumer.acceptable_latency_seconds}) is under"
            f" {limits.WAKE_FROM_ZERO_SECONDS}: an idle queue's metrics, which wake it, come up to 15 minutes late"
        ),
    )
    most = consumer.target_backlog * consumer.max_tasks
    _require(
        most <= limits.FIFO_WINDOW_MESSAGES,
        field=prefix + "acceptable_latency_seconds",
        seen=consumer.acceptable_latency_seconds,
        allowed=(
            f"a target backlog (latency x lanes / processing_seconds) x max_tasks of at most"
            f" {limits.FIFO_WINDOW_MESSAGES} messages ({most:g} here): behind more, SQS finds no further groups"
        ),
    )


def _check_task(consumer: Consumer, prefix: str) -> None:
    _require_range(
        prefix + "stop_timeout_seconds", consumer.stop_timeout_seconds, 1, limits.STOP_TIMEOUT_SECONDS_MAX, "seconds"
    )
    _require(
        consumer.visibility_timeout_seconds > consumer.processing_seconds + consumer.stop_timeout_seconds,
        field=prefix + "visibility_timeout_seconds",
        seen=consumer.visibility_timeout_seconds,
        allowed=(
            f"more than processing_seconds + stop_timeout_seconds"
            f" ({consumer.processing_seconds + consumer.stop_timeout_seconds:g}), or a stopping task's message is"
            " delivered to another while it still works on it"
        ),
    )
    _require(
        consumer.cpu in limits.FARGATE_MEMORY_MIB,
        field=prefix + "cpu",
        seen=consumer.cpu,
        allowed=f"one of {', '.join(map(str, limits.FARGATE_MEMORY_MIB))}",
    )
    memory = limits.FARGATE_MEMORY_MIB[consumer.cpu]
    _require(
        consumer.memory_mib in memory,
        field=prefix + "memory_mib",
        seen=consumer.memory_mib,
        allowed=f"with cpu {consumer.cpu} one of {', '.join(map(str, memory))}",
    )
    if consumer.image is not None:
        _check_image(consumer.image, prefix + "image")
    _require(
        consumer.handlers is None or re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", consumer.handlers) is not None,
        field=prefix + "handlers",
        seen=consumer.handlers,
        allowed="the name of a Python module such as 'orders.billing', or None",
    )


def _check_inbox(consumer: Consumer, prefix: str) -> None:
    _require(
        consumer.poison is not Poison.PARK or consumer.gaps is not Gaps.RECORD,
        field=prefix + "gaps",
        seen=consumer.gaps,
        allowed="Gaps.WAIT or Gaps.HALT with Poison.PARK: what kills its worker at every try is dead-lettered by the"
        " queue alone, and shows only as a missing number",
    )
    for name, is_parking in (("poison", consumer.poison is Poison.PARK), ("gaps", consumer.gaps is not Gaps.RECORD)):
        _require(
            consumer.filter_policy is None or not is_parking,
            field=prefix + name,
            seen=getattr(consumer, name),
            allowed="Poison.SKIP and Gaps.RECORD with a filter policy: it leaves lawful gaps that look like losses",
        )
    _require_range(prefix + "gap_wait_seconds", consumer.gap_wait_seconds, 1, 86_400, "seconds")
    _require(
        consumer.joined_at is None or consumer.joined_at.utcoffset() is not None,
        field=prefix + "joined_at",
        seen=consumer.joined_at,
        allowed="an instant with its time zone, such as datetime(2026, 11, 22, tzinfo=UTC), or None",
    )
    longest = 2 * consumer.message_retention_seconds + consumer.dead_letter_retention_seconds
    _require(
        longest < consumer.inbox_retention_seconds <= _INBOX_RETENTION_SECONDS_MAX,
        field=prefix + "inbox_retention_seconds",
        seen=consumer.inbox_retention_seconds,
        allowed=f"more than 2 x message_retention_seconds + dead_letter_retention_seconds ({longest}), the way of a"
        f" message through the queue, its DLQ and back, and at most {_INBOX_RETENTION_SECONDS_MAX}",
    )


def registry(image: str) -> str | None:
    """Return the host an image is pulled from; None for the account's own ECR."""
    host, slash, _ = image.partition("/")
    return host if slash and "." in host else None


_INBOX_RETENTION_SECONDS_MAX = 315_360_000  # ten years
_TAGS_OF_OURS = 5  # application, environment; on subnets also Name and two of CDK's
_REGISTRY = r"([a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?/)"
_REPOSITORY = r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_VERSION = r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})"


def _check_image(image: str, field: str) -> None:
    _require(
        not image.endswith(":latest"),
        field=field,
        seen=image,
        allowed="a tag that stays what it is: a new 'latest' is not deployed, and there is no old one to go back to",
    )
    _require(
        re.fullmatch(rf"{_REGISTRY}?{_REPOSITORY}{_VERSION}", image) is not None,
        field=field,
        seen=image,
        allowed="an image with its tag or digest: 'repository:tag' in the environment's own ECR, or a whole URI",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNetwork:
    """A VPC of its own: private subnets, no way to the internet, endpoints for the AWS services the tasks call.

    Args:
        cidr: its addresses.
        availability_zones: how many it spans.
        restrict_default_security_group: take every rule from the VPC's default security group, which a Lambda does at
            deploy time.
    """

    cidr: str = "10.0.0.0/16"
    availability_zones: int = 2
    restrict_default_security_group: bool = True

    def __post_init__(self) -> None:
        _require_types(self, "NewNetwork.")
        try:
            prefix_length = ipaddress.IPv4Network(self.cidr).prefixlen
        except ValueError:
            prefix_length = 0
        _require(
            limits.VPC_PREFIX_LENGTH_MIN <= prefix_length <= 24 and self.cidr.endswith(f"/{prefix_length}"),
            field="NewNetwork.cidr",
            seen=self.cidr,
            allowed="an IPv4 network from /16 to /24 such as '10.0.0.0/16'",
        )
        _require_range("NewNetwork.availability_zones", self.availability_zones, 1, 3, "zones")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingNetwork:
    """A VPC somebody else looks after, endpoints or NAT included.

    Args:
        vpc_id: the VPC.
        subnet_ids: private subnets for the tasks, from which SQS, ECR, CloudWatch Logs and the database are reached.
    """

    vpc_id: str
    subnet_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        _require_types(self, "ExistingNetwork.")
        _require(
            re.fullmatch(r"vpc-[0-9a-f]{8,17}", self.vpc_id) is not None,
            field="ExistingNetwork.vpc_id",
            seen=self.vpc_id,
            allowed="a VPC id such as 'vpc-0a1b2c3d4e5f60718'",
        )
        _require(
            self.subnet_ids
            and len(set(self.subnet_ids)) == len(self.subnet_ids)
            and all(re.fullmatch(r"subnet-[0-9a-f]{8,17}", one) for one in self.subnet_ids),
            field="ExistingNetwork.subnet_ids",
            seen=self.subnet_ids,
            allowed="one or more subnet ids such as 'subnet-0a1b2c3d4e5f60718', each once",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """The database that holds the inbox and the outbox, in the tasks' VPC.

    Args:
        secret_arn: whole ARN of the Secrets Manager secret with its credentials, in the environment's region. One of
            another account takes a key of that account's own.
        security_group_id: the database's security group; the tasks are let in.
        port: where it listens.
        secret_key_arn: the KMS key the secret is encrypted with, in the same region and any account; None means the
            account's aws/secretsmanager.
    """

    secret_arn: str
    security_group_id: str
    port: int = 5432
    secret_key_arn: str | None = None

    def __post_init__(self) -> None:
        _require_types(self, "Database.")
        _require(
            re.fullmatch(
                r"arn:aws:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+-[A-Za-z0-9]{6}",
                self.secret_arn,
            )
            is not None,
            field="Database.secret_arn",
            seen=self.secret_arn,
            allowed="the whole ARN of a Secrets Manager secret, with the six characters AWS appends to its name:"
            " '…:secret:NAME-AbCdEf'",
        )
        _require(
            re.fullmatch(r"sg-[0-9a-f]{8,17}", self.security_group_id) is not None,
            field="Database.security_group_id",
            seen=self.security_group_id,
            allowed="a security group id such as 'sg-0a1b2c3d4e5f60718'",
        )
        _require_range("Database.port", self.port, 1, 65_535, "")
        _require(
            self.secret_key_arn is None
            or re.fullmatch(r"arn:aws:kms:[a-z0-9-]+:[0-9]{12}:key/(mrk-)?[0-9a-f-]+", self.secret_key_arn),
            field="Database.secret_key_arn",
            seen=self.secret_key_arn,
            allowed="the whole ARN of a KMS key, or None",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One deployment of the whole fan-out.

    Args:
        name: part of every physical name.
        account: twelve digits; None means the account of whoever deploys.
        region: an AWS region's name, of the partition `aws`.
        topic: the topic's own name, without application, environment and `.fifo`.
        consumers: at least one; names are unique.
        removal: what `cdk destroy` does to topics, queues and keys. RETAIN also protects the stacks from deletion.
        encryption: who holds the keys at rest.
        archive_days: how long the topic archives every message for replay; None archives nothing. AWS refuses to delete
            a topic that archives.
        network: where the tasks run.
        image: the workers' container image: `repository:tag` in the environment's own ECR, or a whole URI.
        database: where inbox and outbox are; None gives the tasks none.
        relay: run the outbox relay, one task, in this environment.
        outbox_lag_seconds: how long a committed message may wait for the relay; alarmed above it. It is measured every
            half minute.
        log_retention_days: how long logs are kept; a period CloudWatch Logs knows.
        alarm_emails: addresses subscribed to the operator topic; each has to confirm.
        tags: on every resource, besides `application` and `environment`; IAM does not tell keys apart by case.
    """

    name: str
    consumers: tuple[Consumer, ...]
    account: str | None = None
    region: str = "us-east-1"
    topic: str = "events"
    removal: Removal = Removal.RETAIN
    encryption: Encryption = Encryption.SQS_MANAGED
    archive_days: int | None = None
    network: NewNetwork | ExistingNetwork = NewNetwork()
    image: str = "sluice-worker:0.1.0"
    database: Database | None = None
    relay: bool = False
    outbox_lag_seconds: int = 60
    log_retention_days: int = 30
    alarm_emails: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        prefix = f"Environment({self.name!r})."
        _require_types(self, prefix)
        # Without hyphens, or `dev-eu` with consumer `billing` would name its queue as `dev` with `eu-billing` does.
        for name, seen in (("name", self.name), ("topic", self.topic)):
            _require(
                re.fullmatch(r"[a-z][a-z0-9]{0,31}", seen) is not None,
                field=f"Environment.{name}",
                seen=seen,
                allowed="up to 32 lower-case letters and digits, a letter first",
            )
        _check_place(self, prefix)
        _check_consumers(self, prefix)
        _check_archive(self, prefix)
        _check_tasks(self, prefix)
        _check_database(self, self.database)
        _check_operation(self, prefix)
        _check_tags(self.tags, prefix + "tags")


def _check_place(environment: Environment, prefix: str) -> None:
    _require(
        environment.account is None or re.fullmatch(r"[0-9]{12}", environment.account) is not None,
        field=prefix + "account",
        seen=environment.account,
        allowed="twelve digits, or None for the caller's account",
    )
    _require(
        re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9]", environment.region) is not None,
        field=prefix + "region",
        seen=environment.region,
        allowed="a region name such as 'eu-central-1'",
    )
    # All others have two letters, one word and a number.
    _require(
        re.fullmatch(r"(?!cn-)[a-z]{2}-[a-z]+-[0-9]", environment.region) is not None,
        field=prefix + "region",
        seen=environment.region,
        allowed="a region of the partition 'aws': the names AWS has in China, GovCloud and isolated regions are not"
        " known here",
    )


def _check_consumers(environment: Environment, prefix: str) -> None:
    names = [consumer.name for consumer in environment.consumers]
    _require(bool(names), field=prefix + "consumers", seen=(), allowed="at least one Consumer")
    _require(
        len({name.replace("-", "") for name in names}) == len(names),
        field=prefix + "consumers",
        seen=names,
        allowed="each consumer name once, hyphens not counted",
    )


def _check_archive(environment: Environment, prefix: str) -> None:
    days = environment.archive_days
    if days is None:
        return
    _require_range(prefix + "archive_days", days, 1, limits.ARCHIVE_DAYS_MAX, "days, or None")
    _require(
        environment.removal is Removal.RETAIN,
        field=prefix + "archive_days",
        seen=days,
        allowed="None with Removal.DESTROY: AWS refuses to delete a topic that archives",
    )


def _check_tasks(environment: Environment, prefix: str) -> None:
    _check_image(environment.image, prefix + "image")
    if isinstance(environment.network, NewNetwork):
        own_ecr = re.compile(rf"[0-9]{{12}}\.dkr\.ecr\.{environment.region}\.amazonaws\.com/.+")
        images = {f"Consumer({one.name!r}).image": one.image for one in environment.consumers if one.image is not None}
        for named, image in {prefix + "image": environment.image, **images}.items():
            _require(
                registry(image) is None or own_ecr.fullmatch(image),
                field=named,
                seen=image,
                allowed=(f"an image in ECR in {environment.region}: a new network has no way to any other registry"),
            )
    _require(
        environment.database is not None or not environment.relay,
        field=prefix + "relay",
        seen=environment.relay,
        allowed="False without a database: the relay reads the outbox there",
    )


def _check_database(environment: Environment, database: Database | None) -> None:
    """Refuse what a task could not read: it asks in its own region, and Secrets Manager and KMS answer for theirs.

    A secret's key may lawfully be of any account. The secret itself may be of another account only with a key of its
    own. The account is known at the latest when the environment is deployed.
    AWS: https://docs.aws.amazon.com/secretsmanager/latest/userguide/auth-and-access_examples_cross.html and
    https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_CreateSecret.html (read 2026-11-21).
    """
    if database is None:
        return
    for name, arn in (("secret_arn", database.secret_arn), ("secret_key_arn", database.secret_key_arn)):
        _require(
            arn is None or arn.split(":")[3] == environment.region,
            field=f"Database.{name}",
            seen=arn,
            allowed=f"an ARN in {environment.region}, the region of environment {environment.name!r}",
        )
    _require(
        environment.account in (None, database.secret_arn.split(":")[4]) or database.secret_key_arn is not None,
        field="Database.secret_arn",
        seen=database.secret_arn,
        allowed=f"a secret of account {environment.account}, or one with a secret_key_arn: without a key of its own no"
        " other account reads it",
    )


def _check_operation(environment: Environment, prefix: str) -> None:
    _require_range(prefix + "outbox_lag_seconds", environment.outbox_lag_seconds, 10, 86_400, "seconds")
    _require(
        environment.log_retention_days in limits.LOG_RETENTION_DAYS,
        field=prefix + "log_retention_days",
        seen=environment.log_retention_days,
        allowed=f"one of {', '.join(map(str, limits.LOG_RETENTION_DAYS))} days",
    )
    _require(
        len(set(environment.alarm_emails)) == len(environment.alarm_emails),
        field=prefix + "alarm_emails",
        seen=environment.alarm_emails,
        allowed="each address once",
    )
    for address in environment.alarm_emails:
        _require(
            re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", address) is not None,
            field=prefix + "alarm_emails",
            seen=address,
            allowed="e-mail addresses",
        )


def _check_tags(tags: Mapping[str, str], field: str) -> None:
    for key, value in tags.items():
        _require(
            re.fullmatch(r"[\w .:/=+@-]{1,128}", key)
            and re.fullmatch(r"[\w .:/=+@-]{0,256}", value)
            and not any(one.lower().startswith("aws:") for one in (key, value))
            and key.lower() not in ("application", "environment"),
            field=field,
            seen={key: value},
            allowed="letters, digits, spaces and . : / = + @ - _; not 'aws:…', 'application' or 'environment' in any"
            " case",
        )
    _require(
        len({key.lower() for key in tags}) == len(tags),
        field=field,
        seen=list(tags),
        allowed="each key once, in any case: IAM takes 'Team' and 'team' for one",
    )
    _require(
        len(tags) <= limits.TAGS_MAX - _TAGS_OF_OURS,
        field=field,
        seen=f"{len(tags)} tags",
        allowed=f"at most {limits.TAGS_MAX - _TAGS_OF_OURS}: AWS takes {limits.TAGS_MAX} on a resource, and Sluice and"
        f" CDK add up to {_TAGS_OF_OURS}",
    )
