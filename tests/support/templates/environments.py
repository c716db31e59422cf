"""Environments with every option that the declared environments do not use. They are synthesized, never deployed."""

from dataclasses import replace

from sluice.declaration import (
    Architecture,
    AutomaticRedrive,
    Consumer,
    DatabaseRole,
    DatabaseUsers,
    Encryption,
    Environment,
    ExistingDatabase,
    ExistingKeys,
    ExistingNetwork,
    ExistingQueue,
    ExistingTopic,
    Gaps,
    Hourly,
    Lambda,
    NewDatabase,
    NewNetwork,
    Poison,
    Removal,
    SlackChannel,
    Topic,
)
from tests.support.declaration import ENVIRONMENTS

FULL = Environment(
    name="full",
    account="111122223333",
    event_bytes_max=1_048_576,
    region="eu-central-1",
    topics=(Topic(name="orders"),),
    encryption=Encryption.CMK,
    archive_days=30,
    network=NewNetwork(cidr="10.42.0.0/20"),
    image="team/worker:stable",
    architecture=Architecture.ARM64,
    database=NewDatabase(
        min_acus=0, max_acus=32, pause_after_seconds=900, standby=True, backup_days=35, vault_days=365
    ),
    migrate=("alembic", "upgrade", "head"),
    outbox_lag_seconds=90,
    log_retention_days=365,
    alarm_emails=("ops@example.com", "lead@example.com"),
    alarm_urls=("https://events.example.com/integration/0123/enqueue",),
    alarm_slack=SlackChannel(workspace_id="T01234ABCDE", channel_id="C01234ABCDE"),
    tags={"team": "orders", "cost-centre": "42"},
    consumers=(
        Consumer(
            name="ledger",
            filter_policy={
                "region": ["eu", {"prefix": "us-"}],
                "amount": [{"anything-but": ["0"]}],
                "trial": [{"exists": False}],
            },
            visibility_timeout_seconds=90,
            max_attempts=7,
            message_retention_seconds=7_200,
            dead_letter_retention_seconds=86_400,
            processing_seconds=2.5,
            acceptable_latency_seconds=300,
            lanes=8,
            expected_groups=64,
            min_tasks=2,
            max_tasks=8,
            stop_timeout_seconds=45,
            cpu=512,
            memory_mib=1_024,
            image="111122223333.dkr.ecr.eu-central-1.amazonaws.com/team/ledger:7@sha256:" + 32 * "ab",
        ),
        Consumer(
            name="night-batch",
            min_tasks=0,
            max_tasks=3,
            acceptable_latency_seconds=1_800,
            handlers="night.handlers",
            poison=Poison.PARK,
            gaps=Gaps.HALT,
        ),
    ),
)
"""Every option in a network of its own, with every number different from its default."""

_DATABASE = ExistingDatabase(
    secret_arn="arn:aws:secretsmanager:us-east-1:111122223333:secret:sluice/inbox-AbCdEf",  # noqa: S106 (its ARN)
    security_group_id="sg-0a1b2c3d4e5f60718",
    port=5433,
)
HOSTED = Environment(
    name="hosted",
    removal=Removal.DESTROY,
    network=ExistingNetwork(
        vpc_id="vpc-0a1b2c3d4e5f60718", subnet_ids=("subnet-0a1b2c3d4e5f60718", "subnet-0f1e2d3c4b5a69788")
    ),
    image="ghcr.io/example/worker:2",
    spot=True,
    database=replace(
        _DATABASE,
        secret_key_arn="arn:aws:kms:us-east-1:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666",  # noqa: S106 (its ARN)
    ),
    alarm_topic_arn="arn:aws:sns:us-east-1:111122223333:on-call",
    consumers=(
        Consumer(name="billing"),
        Consumer(
            name="search",
            filter_policy={"$or": [{"kind": ["order"]}, {"amount": [{"prefix": "1"}]}]},
            image="444455556666.dkr.ecr.eu-west-1.amazonaws.com/search:3.1",
        ),
    ),
)
"""Somebody else's network, registry and database with a key of its own, on Fargate Spot, keys of SQS."""

PLAIN = Environment(
    name="plain",
    removal=Removal.DESTROY,
    network=ExistingNetwork(vpc_id="vpc-0a1b2c3d4e5f60718", subnet_ids=("subnet-0a1b2c3d4e5f60718",)),
    image="sluice-worker:1.2.3",
    consumers=(Consumer(name="billing"),),
)
"""Somebody else's network, and nothing more."""

_SHARED_KEY = "arn:aws:kms:us-east-1:444455556666:key/0a1b2c3d-1111-2222-3333-444455556666"
SHARED = Environment(
    name="shared",
    account="111122223333",
    removal=Removal.DESTROY,
    topics=(
        Topic(name="orders", producer_accounts=("444455556666",), subscriber_accounts=("777788889999",)),
        Topic(name="payments"),
        ExistingTopic(arn="arn:aws:sns:us-east-1:111122223333:legacy.fifo"),
        ExistingTopic(arn="arn:aws:sns:us-east-1:444455556666:stock.fifo", key_arn=_SHARED_KEY, relay=True),
    ),
    encryption=Encryption.CMK,
    keys=ExistingKeys(topic_arn=_SHARED_KEY.replace("0a1b", "aaaa"), queues_arn=_SHARED_KEY.replace("0a1b", "bbbb")),
    network=ExistingNetwork(vpc_id="vpc-0a1b2c3d4e5f60718", subnet_ids=("subnet-0a1b2c3d4e5f60718",)),
    cluster="everybodys",
    image="sluice-worker:1.2.3",
    database=replace(
        _DATABASE,
        users=DatabaseUsers.ROLES,
        resource_id="cluster-ABCDEFGHIJKL01234",
        host="shop.cluster-abc.us-east-1.rds.amazonaws.com",
        database_name="shop",
    ),
    relay=True,
    consumers=(
        Consumer(
            name="billing",
            topic="orders",
            queue=ExistingQueue(
                arn="arn:aws:sqs:us-east-1:111122223333:invoices.fifo",
                dead_letter_queue_arn="arn:aws:sqs:us-east-1:111122223333:invoices-dead.fifo",
                key_arn=_SHARED_KEY,
            ),
        ),
        Consumer(name="search", topic="payments", fifo=False),
        Consumer(name="audit", topic="legacy"),
    ),
)
"""Topics, a queue pair, keys and a cluster that are somebody else's, a standard queue, and several topics."""

ALONE = "full, alone"
"""Its constructs, in a stack and an app that are not ours."""
EXTRA = {environment.name: environment for environment in (FULL, HOSTED, PLAIN, SHARED)}

OWNED, CHANGING = "staging, all as the owner", "full, all as owner or user"
GENERATED = "sluice-owned-database-databasecluster5b53a178-1a2b3c4d5e6f"
"""What CloudFormation called the cluster of an environment that was deployed by an earlier version."""
BESIDE = "full, with consumers in stacks beside"
REDRIVEN = "full, with automatic redrive and a verdict every hour"
_REDRIVEN = replace(
    FULL,
    name="redriven",
    verification=Hourly(),
    consumers=tuple(
        replace(consumer, automatic_redrive=AutomaticRedrive(quiet_seconds=600), handlers="their.handlers")
        for consumer in FULL.consumers
    ),
)
MIXED = "full, with functions beside tasks"
_MIXED = replace(
    FULL,
    name="mixed",
    consumers=(
        FULL.consumers[0],
        Consumer(
            name="billing",
            handlers="their.billing",
            visibility_timeout_seconds=180,
            max_attempts=4,
            runtime=Lambda(
                memory_mb=1_024, timeout_seconds=30, batch_size=10, maximum_concurrency=20, reserved_concurrency=25
            ),
        ),
        Consumer(
            name="search",
            handlers="their.search",
            poison=Poison.PARK,
            gaps=Gaps.HALT,
            automatic_redrive=AutomaticRedrive(),
            runtime=Lambda(pollers_min=2, pollers_max=3, receives_max=500),
            stack="more",
        ),
    ),
)
"""One consumer as tasks and two on Lambda, one of these in a stack beside, and keys of its own."""
BUNDLED = "prod, with bundles"
_LOCAL, _DEV, _STAGING = (ENVIRONMENTS[name] for name in ("local", "dev", "staging"))
EDITED = {
    REDRIVEN: _REDRIVEN,
    MIXED: _MIXED,
    "full, without a relay": replace(FULL, relay=False),
    "local, with search": replace(_LOCAL, consumers=(*_LOCAL.consumers, Consumer(name="search"))),
    BESIDE: replace(
        FULL,
        consumers=(
            *FULL.consumers,
            Consumer(name="search", handlers="their.search", automatic_redrive=AutomaticRedrive(), stack="more"),
            Consumer(name="invoices", topic="orders", fifo=False, stack="more"),
        ),
    ),
    "local, shipping edited": replace(
        _LOCAL,
        consumers=tuple(
            replace(consumer, max_attempts=6, max_tasks=11) if consumer.name == "shipping" else consumer
            for consumer in _LOCAL.consumers
        ),
    ),
    BUNDLED: replace(ENVIRONMENTS["prod"], topics=(Topic(bundle_events_max=50),)),
    "local, with 45 tags": replace(_LOCAL, tags={f"key{number}": "" for number in range(45)}),
    "dev, on spot and with keys": replace(_DEV, spot=True, encryption=Encryption.CMK),
    OWNED: replace(
        _STAGING,
        name="owned",
        network=NewNetwork(availability_zones_max=2),
        database=NewDatabase(users=DatabaseUsers.OWNER, generated_identifier=GENERATED),
    ),
    CHANGING: replace(_REDRIVEN, name="changing", database=NewDatabase(users=DatabaseUsers.EITHER)),
    "staging, without billing": replace(_STAGING, consumers=_STAGING.consumers[1:]),
}
"""Environments after an edit of their declaration, by what was edited."""


def secret_of(environment: Environment) -> tuple[str | None, str | None]:
    """Return the ARN of the secret of an environment's database, and that of its key."""
    match environment.database:
        case NewDatabase():
            is_local = environment.account == "000000000000"
            return (
                f"arn:aws:secretsmanager:{environment.region}:000000000000:secret:rds!cluster-local-000000"
                if is_local
                else "MasterUserSecret.SecretArn(DatabaseCluster)",
                "Arn(DatabaseKey)" if environment.encryption is Encryption.CMK else None,
            )
        case ExistingDatabase() as database:
            return database.secret_arn, database.secret_key_arn
    return None, None


def database_access(environment: Environment, role: DatabaseRole) -> dict[str, str]:
    """Return the rights with which a role of IAM gets into the environment's own database as a user: action to ARN."""
    secret, key = secret_of(environment)
    database = environment.database
    users = DatabaseUsers.OWNER if database is None else database.users
    account, id_ = environment.account or "<AWS::AccountId>", "DBClusterResourceId(DatabaseCluster)"
    if isinstance(database, ExistingDatabase):
        account, id_ = "<AWS::AccountId>", str(database.resource_id)
    connect = {"rds-db:connect": f"arn:aws:rds-db:{environment.region}:{account}:dbuser:{id_}/{role.value}"}
    read = {"secretsmanager:GetSecretValue": secret, "kms:Decrypt": key}
    allowed = {
        **({} if users is DatabaseUsers.OWNER else connect),
        **({} if users is DatabaseUsers.ROLES else read),
    }
    return {action: arn for action, arn in allowed.items() if arn is not None}
