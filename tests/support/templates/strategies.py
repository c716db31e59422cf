"""Any environment that may be declared, as far as one can be made up: one to four consumers and every option."""

import math
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from sluice import limits
from sluice.declaration import (
    Architecture,
    Consumer,
    DatabaseUsers,
    Encryption,
    Environment,
    ExistingDatabase,
    ExistingNetwork,
    NewDatabase,
    NewNetwork,
    Removal,
    SlackChannel,
    Topic,
)

_ACCOUNT = st.just("111122223333")
_ACCOUNTS = st.from_regex(r"[0-9]{12}", fullmatch=True).filter(lambda account: account != "000000000000")
_ECR = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"
_IMAGES = st.sampled_from(
    [
        "worker:stable",
        "team/worker:v1.2.3",
        f"worker:1@sha256:{64 * 'd'}",
        f"{_ECR}/worker:1.0",
        f"{_ECR}/team/worker@sha256:{64 * 'c'}",
    ]
)
# With the longest environment's name, 80 characters are left for `-undelivered-dlq.fifo` after 19.
_NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,8})?", fullmatch=True).filter(
    lambda name: name not in ("relay", "topic") and not name.endswith(("dlq", "undelivered"))
)
_FILTER_POLICIES: SearchStrategy[dict[str, list[object]] | None] = st.none() | st.dictionaries(
    st.sampled_from(["region", "kind", "amount", "trial"]),
    st.lists(
        st.sampled_from(["eu", {"prefix": "us-"}, {"suffix": "x"}, {"exists": True}, {"anything-but": ["x"]}]),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=4,
)
_FILTER_POLICIES |= st.just({"$or": [{"region": ["eu"]}, {"kind": ["order"], "trial": [{"exists": False}]}]})
_NEW_DATABASES = st.builds(
    NewDatabase,
    min_acus=st.sampled_from([0.5, 1, 8.5]),
    max_acus=st.sampled_from([8.5, 64, 256.0]),
    standby=st.booleans(),
    backup_days=st.integers(1, limits.AURORA_BACKUP_DAYS_MAX),
    engine_version=st.sampled_from(["16.3", "17.9"]),
    users=st.sampled_from(DatabaseUsers),
) | st.builds(NewDatabase, min_acus=st.just(0), max_acus=st.just(16.0), pause_after_seconds=st.integers(300, 86_400))
_TASKS_MAX = 8  # the smallest of these databases takes the connections of so many tasks of four consumers
_EXISTING_DATABASES = st.builds(
    ExistingDatabase,
    secret_arn=st.just("arn:aws:secretsmanager:eu-west-1:111122223333:secret:sluice/inbox-AbCdEf"),
    security_group_id=st.just("sg-0a1b2c3d4e5f60718"),
    port=st.integers(1, 65_535),
    users=st.sampled_from(DatabaseUsers),
    resource_id=st.just("db-ABCDEFGHIJKL01234"),
    host=st.just("shop.abc.eu-west-1.rds.amazonaws.com"),
    database_name=st.just("shop"),
    secret_key_arn=st.none() | st.just("arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666"),
)
_NEW_NETWORKS = st.builds(
    NewNetwork,
    cidr=st.sampled_from(["10.0.0.0/16", "10.42.0.0/20", "192.168.7.0/24"]),
    availability_zones=st.integers(1, 3),
    restrict_default_security_group=st.booleans(),
)
_EXISTING_NETWORKS = st.sampled_from(
    [
        ExistingNetwork(vpc_id="vpc-0a1b2c3d4e5f60718", subnet_ids=subnet_ids)
        for subnet_ids in (("subnet-0a1b2c3d4e5f60718",), ("subnet-0a1b2c3d4e5f60718", "subnet-0f1e2d3c4b5a69788"))
    ]
)


def _is_reached(network: NewNetwork | ExistingNetwork, database: NewDatabase | ExistingDatabase | None) -> bool:
    """Tell whether the database can be in that network, or be reached from it."""
    if isinstance(database, ExistingDatabase):
        return isinstance(network, ExistingNetwork)
    zones = network.availability_zones if isinstance(network, NewNetwork) else len(network.subnet_ids)
    return database is None or zones > 1


@st.composite
def consumers(draw: DrawFn, name: str) -> Consumer:
    """Draw a consumer whose numbers fit each other."""
    processing_seconds = draw(st.sampled_from([0.5, 1.0, 2.5, 7.0, 60.0]))
    stop_timeout_seconds = draw(st.integers(1, limits.STOP_TIMEOUT_SECONDS_MAX))
    visibility_timeout_seconds = math.floor(processing_seconds) + stop_timeout_seconds + draw(st.integers(1, 3_600))
    max_attempts = draw(st.integers(1, 100))
    acceptable_latency_seconds = draw(st.integers(math.ceil(processing_seconds), 3_600))
    message_retention_seconds = draw(
        st.integers(
            max(60, max(visibility_timeout_seconds, 300) * max_attempts + 1, 2 * acceptable_latency_seconds + 1),
            limits.MESSAGE_RETENTION_SECONDS_MAX,
        )
    )
    lanes = draw(st.integers(1, 10))
    expected_groups = draw(st.integers(1, 1_000))
    in_front = acceptable_latency_seconds * lanes / processing_seconds
    most_tasks = min(math.ceil(expected_groups / lanes), math.floor(limits.FIFO_WINDOW_MESSAGES / in_front))
    max_tasks = draw(st.integers(1, min(most_tasks, _TASKS_MAX)))
    may_sleep = acceptable_latency_seconds >= limits.WAKE_FROM_ZERO_SECONDS
    cpu = draw(st.sampled_from([256, 512, 1_024]))
    return Consumer(
        name=name,
        fifo=draw(st.booleans()),
        filter_policy=draw(_FILTER_POLICIES),
        visibility_timeout_seconds=visibility_timeout_seconds,
        max_attempts=max_attempts,
        message_retention_seconds=message_retention_seconds,
        dead_letter_retention_seconds=draw(
            st.integers(message_retention_seconds, limits.MESSAGE_RETENTION_SECONDS_MAX)
        ),
        processing_seconds=processing_seconds,
        acceptable_latency_seconds=acceptable_latency_seconds,
        lanes=lanes,
        expected_groups=expected_groups,
        min_tasks=draw(st.integers(0 if may_sleep else 1, max_tasks)),
        max_tasks=max_tasks,
        stop_timeout_seconds=stop_timeout_seconds,
        cpu=cpu,
        memory_mib=draw(st.sampled_from(limits.FARGATE_MEMORY_MIB[cpu])),
        image=draw(st.none() | _IMAGES),
    )


_OPERATORS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"alarm_emails": ("ops@example.com",), "alarm_urls": ("https://example.com",)},
        {"alarm_slack": SlackChannel(workspace_id="T1", channel_id="C1")},
        {"alarm_topic_arn": "arn:aws:sns:eu-west-1:111122223333:on-call"},
    ]
)


@st.composite
def environments(draw: DrawFn) -> Environment:
    """Draw an environment, shrinking to one consumer and no options."""
    removal = draw(st.sampled_from(Removal))
    network, database = draw(
        st.tuples(_NEW_NETWORKS | _EXISTING_NETWORKS, st.none() | _NEW_DATABASES | _EXISTING_DATABASES).filter(
            lambda pair: _is_reached(*pair)
        )
    )
    names = draw(st.lists(_NAMES, min_size=1, max_size=4, unique_by=lambda name: name.replace("-", "")))
    topics = draw(st.lists(st.from_regex(r"[a-z][a-z0-9]{0,31}", fullmatch=True), min_size=1, max_size=3, unique=True))
    named = st.sampled_from(topics) if len(topics) > 1 else st.sampled_from([None, *topics])
    first, *others = (replace(draw(consumers(name)), topic=draw(named)) for name in names)
    declared = (first, *(replace(other, stack=draw(st.sampled_from([None, "more"]))) for other in others))
    consumed = {topics[0] if consumer.topic is None else consumer.topic for consumer in declared}
    return Environment(
        name=draw(st.from_regex(r"[a-z][a-z0-9]{0,31}", fullmatch=True)),
        application=draw(st.sampled_from(["sluice", "shop-2"])),
        account=draw(st.none() | (_ACCOUNT if isinstance(database, ExistingDatabase) else _ACCOUNTS)),
        region="eu-west-1",
        consumers=declared,
        topics=tuple(
            Topic(name=name, subscriber_accounts=() if name in consumed else ("999988887777",)) for name in topics
        ),
        removal=removal,
        encryption=draw(st.sampled_from(Encryption)),
        archive_days=draw(st.none() | st.integers(1, limits.ARCHIVE_DAYS_MAX)) if removal is Removal.RETAIN else None,
        network=network,
        image=draw(st.none() | _IMAGES),
        architecture=draw(st.sampled_from(Architecture)),
        spot=all(consumer.processing_seconds <= consumer.stop_timeout_seconds for consumer in declared)
        and draw(st.booleans()),
        database=database,
        relay=draw(st.booleans()),
        outbox_lag_seconds=draw(st.integers(10, 86_400)),
        log_retention_days=draw(st.sampled_from(limits.LOG_RETENTION_DAYS)),
        **draw(_OPERATORS),
        silent=True,
        tags=draw(st.sampled_from([{}, {"team": "orders"}])),
    )
