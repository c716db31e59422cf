"""The declaration of an environment: its topics, consumers, network and database, and the rules that relate them."""

import re
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from sluice import limits
from sluice.declaration.bundles import check_bundle_events
from sluice.declaration.consumer import Consumer
from sluice.declaration.fields import filters
from sluice.declaration.fields.database import ExistingDatabase, NewDatabase
from sluice.declaration.fields.existing import ExistingKeys
from sluice.declaration.fields.functions import CONNECTIONS
from sluice.declaration.fields.image import Architecture, check_image, image_of
from sluice.declaration.fields.network import ExistingNetwork, NewNetwork
from sluice.declaration.fields.operators import EMAIL, HTTPS, SlackChannel
from sluice.declaration.fields.topics import (
    LABEL,
    RELAY_CONNECTIONS,
    RELAY_KEEP_DAYS,
    RELAY_TASKS,
    ExistingTopic,
    Topic,
)
from sluice.declaration.fields.verification import HOUR_SECONDS, Hourly
from sluice.declaration.validation import (
    between,
    declaration_class,
    did_you_mean,
    is_pending,
    matching,
    nearest,
    refuse,
    require,
    satisfying,
    value_text,
)
from sluice.errors import ConfigError

_TAGS_OF_OURS = 5  # application, environment; on subnets also Name and two of CDK's
APPLICATION = (
    r"(?=.{1,40}\Z)[a-z][a-z0-9]*(-[a-z0-9]+)*",
    "up to 40 lower-case letters, digits and single inner hyphens, a letter first",
)
"""Pattern and words of an application's name. With it only names of queues can be too long; `Declaration` refuses them.
"""


def _is_migration(seen: str | tuple[str, ...]) -> bool:
    """Return whether a value can be the field `migrate`: a module's name, or a command with its arguments."""
    if isinstance(seen, str):
        return all(part.isidentifier() for part in seen.split("."))
    return bool(seen and seen[0]) and not any("\0" in part for part in seen)


class Removal(Enum):
    """The effect of `cdk destroy` on topics, queues and keys: it deletes them, or keeps them with their messages."""

    DESTROY = "destroy"
    RETAIN = "retain"


class Encryption(Enum):
    """The holder of the keys at rest: SQS (free; the topic is not encrypted with a key), or the account's KMS."""

    SQS_MANAGED = "sqs-managed"
    CMK = "cmk"


@declaration_class
class Environment:
    """One deployment of the whole fan-out.

    Args:
        name: part of every physical name.
        application: begins every physical name: one for each project, the same in all its environments. A project whose
            name goes on from another's, as `shop-eu` from `shop`, may share names with it.
        account: twelve digits; None means the account of whoever deploys.
        region: an AWS region's name, of the partition `aws`.
        topics: at least one, each name once. With several every consumer names its own; an own one that nobody gets is
            refused.
        consumers: of all topics, at least one; names are unique.
        removal: what `cdk destroy` does to topics, queues and keys. RETAIN also protects the stacks from deletion.
        encryption: who holds the keys at rest.
        event_bytes_max: size of the largest message, body and message attributes together, and of a whole publish
            call. The topic and the consumers' queues take no more, the relay sends no more, and producers give it to
            their `Outbox`.
        keys: existing keys of topics and queues for `Encryption.CMK`; None makes them. Log groups and a new database
            have their own in either case.
        archive_days: how long each of its own topics archives every message for replay; None archives nothing. AWS
            refuses to delete a topic that archives.
        network: where the tasks run.
        image: the tasks' container image: `repository:tag` in the environment's own ECR, or a whole URI. None builds it
            of the project's Dockerfile at deployment, with Docker, and pushes it to the account's ECR.
        architecture: the processors of its tasks.
        spot: tasks run on Fargate Spot, which is cheaper and may take them back after a warning of two minutes, or have
            none. To change it, destroy the consumers' stack first: CloudFormation would replace the services.
        cluster: an existing ECS cluster to run them in, by name, with Container Insights and, for `spot`, with
            FARGATE_SPOT; None makes one.
        database: where inbox and outbox are. None gives the tasks none; without one, no consumer with handlers is
            synthesized.
        migrate: what makes your own tables, run by every task of this image before it starts, one task after another:
            a module, run as `python -m MODULE`, or a command and its arguments, such as `("alembic", "upgrade",
            "head")`. It finds the database as the task does, and needs a `database`. None runs nothing: then the tables
            of your handlers have to be there before the first message.
        relay: run the outbox relay, two tasks of which one leads, where there is a database.
        verification: compare each outbox with its consumers' inboxes and queues every hour, in a task that only reads:
            what is lost is alarmed. None does not.
        outbox_lag_seconds: how long a committed message may wait for the relay; alarmed above it. It is measured every
            half minute.
        log_retention_days: how long logs are kept; a period CloudWatch Logs knows.
        alarm_emails: addresses subscribed to the operator topic; each has to confirm.
        alarm_urls: HTTPS addresses subscribed to it, of PagerDuty or Opsgenie for instance; each has to confirm.
        alarm_slack: a Slack channel to which AWS Chatbot posts them. Its configurations are the account's in all
            regions: of an environment in two regions of one account, one declares it.
        alarm_topic_arn: an existing standard topic that alarms publish to in place of one of the environment's own. Its
            policy has to let CloudWatch publish.
        silent: nobody hears the alarms, on purpose. An environment that is retained is not synthesized without either.
        tags: on every resource that takes tags, besides `application` and `environment`. IAM does not tell keys apart
            by case.
    """

    name: str = matching(*LABEL)
    application: str = matching(*APPLICATION, default="sluice")
    consumers: tuple[Consumer, ...] = satisfying(bool, "at least one Consumer")
    account: str | None = matching(r"[0-9]{12}", "twelve digits, or None for the caller's account", default=None)
    region: str = matching(r"[a-z]{2}(-[a-z]+)+-[0-9]", "a region name such as 'eu-central-1'", default="us-east-1")
    topics: tuple[Topic | ExistingTopic, ...] = satisfying(bool, "at least one Topic", default=(Topic(),))
    removal: Removal = Removal.RETAIN
    encryption: Encryption = Encryption.SQS_MANAGED
    event_bytes_max: int = between(
        limits.MESSAGE_BYTES_MIN, limits.MESSAGE_BYTES_MAX, "bytes", default=limits.PUBLISH_BYTES_MAX
    )
    keys: ExistingKeys | None = None
    archive_days: int | None = between(1, limits.ARCHIVE_DAYS_MAX, "days, or None", default=None)
    network: NewNetwork | ExistingNetwork = NewNetwork()
    image: str | None = None
    architecture: Architecture = Architecture.X86_64
    spot: bool = False
    cluster: str | None = matching(r"[A-Za-z0-9_-]{1,255}", "the name of an ECS cluster, or None", default=None)
    database: NewDatabase | ExistingDatabase | None = None
    migrate: str | tuple[str, ...] | None = satisfying(
        _is_migration,
        "a module such as 'shop.tables', a command such as ('alembic', 'upgrade', 'head'), or None",
        default=None,
    )
    relay: bool = True
    verification: Hourly | None = None
    outbox_lag_seconds: int = between(10, 86_400, "seconds", default=60)
    log_retention_days: int = satisfying(
        limits.LOG_RETENTION_DAYS.__contains__,
        f"one of {', '.join(map(str, limits.LOG_RETENTION_DAYS))} days",
        default=30,
    )
    alarm_emails: tuple[str, ...] = satisfying(
        lambda seen: len(set(seen)) == len(seen), "each address once", default=()
    )
    alarm_urls: tuple[str, ...] = satisfying(lambda seen: len(set(seen)) == len(seen), "each address once", default=())
    alarm_slack: SlackChannel | None = None
    alarm_topic_arn: str | None = matching(
        r"arn:aws:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]{1,256}", "the ARN of an SNS topic, or None", default=None
    )
    silent: bool = False
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)

    def topic(self, name: str | None = None) -> Topic | ExistingTopic:
        """Return the topic of this name; the first topic if the name is None.

        Raises:
            ConfigError: there is no topic of this name.
        """
        found = {topic.name: topic for topic in self.topics}
        if name is not None and name not in found:
            raise ConfigError(
                f"topic is {value_text(name)}{did_you_mean(nearest(name, found))}, and environment {self.name!r} has"
                f" {', '.join(found)}; name one of them, or declare it"
            )
        return self.topics[0] if name is None else found[name]

    @property
    def published_topics(self) -> tuple[Topic | ExistingTopic, ...]:
        """Return the topics that a relay may publish to: those that the stacks make, and existing ones with `relay`."""
        return tuple(topic for topic in self.topics if isinstance(topic, Topic) or topic.relay)

    def consumers_of(self, topic: Topic | ExistingTopic) -> tuple[Consumer, ...]:
        """Return the consumers of a topic."""
        return tuple(consumer for consumer in self.consumers if self.topic(consumer.topic) == topic)

    def bundle_events_max(self, consumer: Consumer) -> int:
        """Return how many events one message of a consumer's queue may hold."""
        return self.topic(consumer.topic).bundle_events_max

    def max_receive_count(self, consumer: Consumer) -> int:
        """Return the maxReceiveCount of a consumer's queue."""
        return consumer.max_receive_count(self.bundle_events_max(consumer))

    def sends_dead_letters(self, consumer: Consumer) -> bool:
        """Return whether a consumer's own processes send what is dead to the DLQ, as receives are no attempts."""
        return consumer.runtime is not None or self.bundle_events_max(consumer) > 1

    @property
    def has_operators(self) -> bool:
        """Return whether alarms have a receiver, or `silent` says that they are to have none."""
        return any((self.alarm_emails, self.alarm_urls, self.alarm_slack, self.alarm_topic_arn, self.silent))

    @property
    def all_tags(self) -> dict[str, str]:
        """Return the tags of every resource: the declared ones, and `application` and `environment`."""
        return {"application": self.application, "environment": self.name, **self.tags}

    @property
    def migration(self) -> tuple[str, ...]:
        """Return the command, with its arguments, that makes the project's own tables; empty where none is declared."""
        return ("python", "-m", self.migrate) if isinstance(self.migrate, str) else self.migrate or ()

    @property
    def verified_topics(self) -> tuple[Topic | ExistingTopic, ...]:
        """Return the topics whose outbox is compared with its consumers every hour."""
        return self.published_topics if self.verification is not None else ()

    def in_flight_seconds(self, verification: Hourly) -> int:
        """Return the longest time that a message may be on its way, as is declared or as the longest queue keeps it."""
        longest = max(consumer.message_retention_seconds for consumer in self.consumers)
        return longest if verification.in_flight_seconds is None else verification.in_flight_seconds

    @property
    def has_relay(self) -> bool:
        """Return whether a relay publishes what is in this environment's outbox."""
        return self.relay and self.database is not None

    def __post_init__(self) -> None:
        _check_region_and_consumers(self)
        _check_topics(self)
        _check_keys(self)
        _check_existing_queues(self)
        _check_tasks(self)
        _check_verification(self)
        _check_functions(self)
        _check_bundles(self)
        match self.database:
            case NewDatabase() as database:
                _check_zones(self)
                _check_connections(self, database)
                _check_vault(self, database)
            case ExistingDatabase() as database:
                _check_database(self, database)
                _check_connections(self, database)
        _check_operators(self)
        _check_tags(self)


def _require_region(environment: Environment, value: Any, *names: str, kind: str = "an ARN") -> None:
    """Refuse an ARN of another region in any of the named fields of a value."""
    for name in names:
        arn = getattr(value, name)
        require(
            value,
            arn is None or is_pending(arn) or arn.split(":")[3] == environment.region,
            field=name,
            allowed=f"{kind} in {environment.region}, the region of environment {environment.name!r}",
        )


def _check_region_and_consumers(environment: Environment) -> None:
    """Refuse a region of another partition, names of consumers that clash, and limits that the consumers exceed."""
    # Regions of other partitions begin with cn-, or have another word, as us-gov-west-1 and us-iso-east-1.
    require(
        environment,
        re.fullmatch(r"(?!cn-)[a-z]{2}-[a-z]+-[0-9]", environment.region),
        field="region",
        allowed="a region of the partition 'aws': the names AWS has in China, GovCloud and isolated regions are not"
        " known here",
    )
    names = [consumer.name for consumer in environment.consumers]
    require(
        environment,
        len({name.replace("-", "") for name in names}) == len(names),
        field="consumers",
        seen=names,
        allowed="each consumer name once, hyphens not counted",
    )
    require(
        environment,
        any(consumer.stack is None for consumer in environment.consumers),
        field="consumers",
        seen=[f"{consumer.name} in {consumer.stack}" for consumer in environment.consumers],
        allowed="one or more without a stack of their own: the others are beside these",
    )
    require(
        environment,
        environment.event_bytes_max <= limits.PUBLISH_BYTES_MAX or len(names) <= limits.LARGE_MESSAGE_SUBSCRIPTIONS_MAX,
        field="event_bytes_max",
        allowed=f"at most {limits.PUBLISH_BYTES_MAX} bytes with {len(names)} consumers: a topic that takes more has"
        f" {limits.LARGE_MESSAGE_SUBSCRIPTIONS_MAX} subscriptions at most",
    )
    require(
        environment,
        environment.archive_days is None or environment.removal is Removal.RETAIN,
        field="archive_days",
        allowed="None with Removal.DESTROY: AWS refuses to delete a topic that archives",
    )


def _check_topics(environment: Environment) -> None:
    """Refuse topics of one name, without a consumer, or in another region, and consumers without a known topic."""
    names = [topic.name for topic in environment.topics]
    require(environment, len(set(names)) == len(names), field="topics", seen=names, allowed="each topic's name once")
    reserved_names = {f"{part}-{name}" for name in names[1:] for part in ("relay", "topic")}
    is_single_topic = len(names) == 1
    for consumer in environment.consumers:
        require(
            consumer,
            consumer.topic in names or (consumer.topic is None and is_single_topic),
            field="topic",
            allowed=f"{'None or ' if is_single_topic else 'one of '}{', '.join(names)}, the topics of environment"
            f" {environment.name!r}{'' if is_single_topic else ': with several, every consumer names its own'}",
        )
        require(
            consumer,
            consumer.name not in reserved_names,
            field="name",
            allowed="another name: a topic's relay or its alarms have this one",
        )
    for topic in environment.topics:
        if not topic.has_other_producers:
            _check_filters(environment, topic)
        if isinstance(topic, ExistingTopic):
            _require_region(environment, topic, "arn", "key_arn")
            continue
        for name in ("producer_accounts", "subscriber_accounts"):
            require(
                topic,
                environment.account not in getattr(topic, name),
                field=name,
                allowed=f"other accounts than {environment.account}, the environment's own: there a role's policy"
                " suffices",
            )
        require(
            environment,
            environment.consumers_of(topic) or topic.subscriber_accounts,
            field="topics",
            seen=topic.name,
            allowed="topics that a consumer gets, or that other accounts may subscribe to (subscriber_accounts): nobody"
            " gets this one",
        )
    require(
        environment,
        environment.archive_days is None or any(isinstance(topic, Topic) for topic in environment.topics),
        field="archive_days",
        allowed="None without a topic of the environment's own: what an existing one archives is its owner's part",
    )


def _check_filters(environment: Environment, topic: Topic | ExistingTopic) -> None:
    """Refuse a filter policy that no attributes of an outbox's events can match."""
    for consumer in environment.consumers_of(topic):
        for fault in filters.find_mismatches(consumer.filter_policy or {}):
            field = f"filter_policy{fault.where}"
            refuse(Consumer, consumer.name, field=field, seen=fault.seen, allowed=fault.allowed)


def _check_keys(environment: Environment) -> None:
    """Refuse existing keys in another region, and keys that would encrypt nothing."""
    keys = environment.keys
    if keys is not None:
        _require_region(environment, keys, "topic_arn", "queues_arn", kind="a key")
    require(
        environment,
        keys is None or environment.encryption is Encryption.CMK,
        field="keys",
        allowed="None without Encryption.CMK: nothing would be encrypted with them",
    )


def _check_existing_queues(environment: Environment) -> None:
    """Refuse existing queues of another account or region, and a queue that two consumers name."""
    queues = [consumer.queue for consumer in environment.consumers if consumer.queue is not None]
    require(
        environment,
        environment.account is not None or not queues,
        field="account",
        allowed=f"the account of {queues[0].arn}: an environment with existing queues names it" if queues else "",
    )
    place = f"arn:aws:sqs:{environment.region}:{environment.account}:"
    for queue in queues:
        require(
            queue,
            queue.arn.startswith(place),
            field="arn",
            allowed=f"a queue in {place}…: those elsewhere have their metrics there, and workers scale on them; a queue"
            " of another account is subscribed by its owner (Topic.subscriber_accounts)",
        )
        _require_region(environment, queue, "key_arn", kind="a key")
    arns = [arn for queue in queues for arn in (queue.arn, queue.dead_letter_queue_arn)]
    require(
        environment,
        len(set(arns)) == len(arns),
        field="consumers",
        seen=arns,
        allowed="each existing queue and DLQ once: two consumers of one queue would take each other's messages",
    )


def _check_tasks(environment: Environment) -> None:
    """Refuse images that tasks cannot pull, tables without a database, and on Spot a too short stop timeout."""
    check_image(environment)
    require(
        environment,
        environment.migrate is None or environment.database is not None,
        field="migrate",
        allowed="None without a database: there are no tables to make",
    )
    if isinstance(environment.network, NewNetwork):
        own_ecr = re.compile(rf"[0-9]{{12}}\.dkr\.ecr\.{environment.region}\.amazonaws\.com")
        values: tuple[Environment | Consumer, ...] = (environment, *environment.consumers)
        for value in values:
            image = None if value.image is None else image_of(value.image)
            require(
                value,
                image is None or image.registry is None or own_ecr.fullmatch(image.registry),
                field="image",
                allowed=f"an image in ECR in {environment.region}: a new network has no way to any other registry",
            )
    for consumer in environment.consumers:
        require(
            consumer,
            not environment.spot or consumer.runtime or consumer.processing_seconds <= consumer.stop_timeout_seconds,
            field="stop_timeout_seconds",
            allowed=f"at least processing_seconds ({consumer.processing_seconds:g}) in an environment on spot: a task"
            " that is taken back would be killed in the middle of each message it has",
        )


def _check_functions(environment: Environment) -> None:
    """Refuse an image for a Lambda function that is not in ECR in the environment's region.

    AWS: https://docs.aws.amazon.com/lambda/latest/dg/images-create.html (ECR, in the function's region; read
    2026-11-27).
    """
    for consumer in environment.consumers:
        if consumer.runtime is None or consumer.runtime.package is not None:
            continue
        value: Environment | Consumer = environment if consumer.image is None else consumer
        image = None if value.image is None else image_of(value.image)
        in_region = rf"[0-9]{{12}}\.dkr\.ecr\.{environment.region}\.amazonaws\.com"
        require(
            value,
            image is None or image.registry is None or re.fullmatch(in_region, image.registry),
            field="image",
            allowed=f"an image in ECR in {environment.region}, as consumer {consumer.name!r} runs on Lambda: push it"
            " there, or declare Lambda(package=…)",
        )


def _check_bundles(environment: Environment) -> None:
    """Refuse bundles of more events than a consumer can work on within the receives and the time of one message."""
    for topic in environment.topics:
        if topic.bundle_events_max > 1:
            for consumer in environment.consumers_of(topic):
                check_bundle_events(topic, consumer)


def _check_verification(environment: Environment) -> None:
    """Refuse a verdict without an outbox, and one that finds nothing to judge because relays have deleted it."""
    declared = environment.verification
    require(
        environment,
        declared is None or (environment.has_relay and environment.published_topics),
        field="verification",
        allowed="None without a database, a relay and a topic that is published to: there is no outbox to compare",
    )
    kept_seconds = RELAY_KEEP_DAYS * 86_400
    require(
        environment,
        declared is None or environment.in_flight_seconds(declared) + HOUR_SECONDS <= kept_seconds,
        field="verification",
        allowed=f"Hourly(in_flight_seconds=…) of up to {kept_seconds - HOUR_SECONDS}, as a consumer's queue keeps"
        f" messages for longer, and relays delete sent messages after {RELAY_KEEP_DAYS} days",
    )


def _check_zones(environment: Environment) -> None:
    """Refuse a new database in a network with fewer than two availability zones, which RDS refuses.

    AWS: https://docs.aws.amazon.com/AmazonRDS/latest/APIReference/API_CreateDBSubnetGroup.html (read 2026-11-23).
    """
    network = environment.network
    is_new_network = isinstance(network, NewNetwork)
    require(
        network,
        (network.availability_zones if isinstance(network, NewNetwork) else len(network.subnet_ids)) > 1,
        field="availability_zones" if is_new_network else "subnet_ids",
        allowed=f"2 or more {'zones' if is_new_network else 'subnets, in two zones,'} for a NewDatabase",
    )


def _check_connections(environment: Environment, database: NewDatabase | ExistingDatabase) -> None:
    """Refuse an environment whose workers and relays may open more connections than the database takes.

    During a deployment the tasks of two versions run, so the number of connections is doubled.
    """
    workers = sum(consumer.connections_max for consumer in environment.consumers)
    has_functions = any(consumer.runtime is not None for consumer in environment.consumers)
    or_more = ", or concurrency (maximum_concurrency, pollers_max, reserved_concurrency)" if has_functions else ""
    relays = len(environment.published_topics) * RELAY_TASKS * RELAY_CONNECTIONS if environment.has_relay else 0
    explanation = (
        f"twice {workers} of workers (max_tasks of each consumer x its database_connections, or its lanes,"
        " and two more; twice the former where it parks"
        f"{f'; {CONNECTIONS} of each invocation at once, and of one more' if has_functions else ''}) and {relays} of"
        " relays, while a deployment runs two versions"
    )
    if isinstance(database, ExistingDatabase):
        require(
            database,
            database.connections is None or 2 * (workers + relays) <= database.connections,
            field="connections",
            allowed=f"at least {2 * (workers + relays)}: {explanation}; raise it, or lower max_tasks{or_more}",
        )
        return
    needed = 2 * (workers + relays) + database.other_connections
    most = database.connections_max
    require(
        database,
        needed < most,
        field="max_acus",
        allowed=f"one that takes more than {needed} connections, and this one takes {most}: {explanation}, and"
        f" {database.other_connections} others; raise it, or lower max_tasks{or_more}",
    )


def _check_vault(environment: Environment, database: NewDatabase) -> None:
    """Refuse a vault whose name is too long for AWS Backup, and a vault that `cdk destroy` would have to delete.

    AWS: https://docs.aws.amazon.com/aws-backup/latest/devguide/API_DeleteBackupVault.html, as botocore's model has it
    (read 2026-11-26).
    """
    if database.vault_days is None:
        return
    require(
        database,
        environment.removal is Removal.RETAIN,
        field="vault_days",
        allowed="None with Removal.DESTROY: AWS deletes a vault only while it is empty",
    )
    name, most = f"{environment.application}-{environment.name}", limits.VAULT_NAME_CHARACTERS_MAX
    require(
        database,
        len(name) <= most,
        field="vault_days",
        allowed=f"None in {name}, of {len(name)} characters: a vault's name has {most} at most; or shorten application"
        " and name",
    )


def _check_database(environment: Environment, database: ExistingDatabase) -> None:
    """Refuse an existing database that tasks cannot reach, or whose secret they cannot read.

    Secrets Manager and KMS only know the secrets and keys of their own region. The secret's key may be of any account.
    The secret may be of another account only if its key is not the default key. The environment's account may be None
    here; it is known when the environment is deployed.

    AWS: https://docs.aws.amazon.com/secretsmanager/latest/userguide/auth-and-access_examples_cross.html and
    https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_CreateSecret.html (read 2026-11-21).
    """
    require(
        environment,
        isinstance(environment.network, ExistingNetwork),
        field="database",
        seen="an ExistingDatabase",
        allowed="a NewDatabase in a NewNetwork: from there nothing leads to a database elsewhere; or declare the VPC"
        " that reaches it, as ExistingNetwork",
    )
    _require_region(environment, database, "secret_arn", "secret_key_arn")
    require(
        database,
        environment.account in (None, database.secret_arn.split(":")[4]) or database.secret_key_arn is not None,
        field="secret_arn",
        allowed=f"a secret of account {environment.account}, or one with a secret_key_arn: without a key of its own no"
        " other account reads it",
    )


def _check_operators(environment: Environment) -> None:
    """Refuse addresses and topics that could not receive the environment's alarms."""
    addresses = (
        ("alarm_emails", EMAIL, "e-mail addresses"),
        ("alarm_urls", HTTPS, "addresses that begin with https://"),
    )
    for field_name, pattern, allowed in addresses:
        for address in getattr(environment, field_name):
            require(environment, re.fullmatch(pattern, address), field=field_name, seen=address, allowed=allowed)
    arn = environment.alarm_topic_arn
    require(
        environment,
        arn is None or (arn.split(":")[3] == environment.region and not arn.endswith(limits.FIFO_SUFFIX)),
        field="alarm_topic_arn",
        allowed=f"a standard topic in {environment.region}: alarms publish to no other",
    )
    require(
        environment,
        arn is None or not (environment.alarm_emails or environment.alarm_urls or environment.alarm_slack),
        field="alarm_topic_arn",
        allowed="None beside alarm_emails, alarm_urls and alarm_slack: they belong to a topic of the environment's own",
    )


def _check_tags(environment: Environment) -> None:
    """Refuse tags that AWS refuses: wrong characters, reserved keys, keys that differ only in case, too many."""
    tags = environment.tags
    for key, value in tags.items():
        require(
            environment,
            re.fullmatch(r"[\w .:/=+@-]{1,128}", key)
            and re.fullmatch(r"[\w .:/=+@-]{0,256}", value)
            and not any(text.lower().startswith("aws:") for text in (key, value))
            and key.lower() not in ("application", "environment"),
            field="tags",
            seen={key: value},
            allowed="letters, digits, spaces and . : / = + @ - _; not 'aws:…', 'application' or 'environment' in any"
            " case",
        )
    require(
        environment,
        len({key.lower() for key in tags}) == len(tags),
        field="tags",
        seen=list(tags),
        allowed="each key once, in any case: IAM takes 'Team' and 'team' for one",
    )
    require(
        environment,
        len(tags) <= limits.TAGS_MAX - _TAGS_OF_OURS,
        field="tags",
        seen=f"{len(tags)} tags",
        allowed=f"at most {limits.TAGS_MAX - _TAGS_OF_OURS}: AWS takes {limits.TAGS_MAX} on a resource, and Sluice and"
        f" CDK add up to {_TAGS_OF_OURS}",
    )
