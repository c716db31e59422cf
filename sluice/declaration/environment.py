"""One environment: its consumers, where it runs, and how its values have to fit each other."""

import re
from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from sluice import limits
from sluice.declaration.consumer import Consumer
from sluice.declaration.image import check_image, registry
from sluice.declaration.network import Database, ExistingNetwork, NewNetwork
from sluice.declaration.operators import SlackChannel, check_operators
from sluice.declaration.validation import between, checked, declared, matching, require

_TAGS_OF_OURS = 5  # application, environment; on subnets also Name and two of CDK's
# Without hyphens, or `dev-eu` with consumer `billing` would name its queue as `dev` with `eu-billing` does.
_LABEL = (r"[a-z][a-z0-9]{0,31}", "up to 32 lower-case letters and digits, a letter first")
APPLICATION = (
    r"(?=.{1,40}\Z)[a-z][a-z0-9]*(-[a-z0-9]+)*",
    "up to 40 lower-case letters, digits and single inner hyphens, a letter first",
)
"""Pattern and words. Of all names only those of queues may then be too long; `Declaration` refuses them."""


class Removal(Enum):
    """What `cdk destroy` does to topics, queues and keys: delete them, or leave them and their messages."""

    DESTROY = "destroy"
    RETAIN = "retain"


class Encryption(Enum):
    """Who holds the keys at rest: SQS (free; the topic is not encrypted with a key), or two KMS keys of the account."""

    SQS_MANAGED = "sqs-managed"
    CMK = "cmk"


@declared
class Environment:
    """One deployment of the whole fan-out.

    Args:
        name: part of every physical name.
        application: begins every physical name: one for each project, the same in all its environments. A project whose
            name goes on from another's, as `shop-eu` from `shop`, may share names with it.
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
        alarm_urls: HTTPS addresses subscribed to it, of PagerDuty or Opsgenie for instance; each has to confirm.
        alarm_slack: a Slack channel to which AWS Chatbot posts them.
        alarm_topic_arn: an existing standard topic that alarms publish to in place of one of the environment's own. Its
            policy has to let CloudWatch publish.
        silent: nobody hears the alarms, on purpose. An environment that is retained is not synthesized without either.
        tags: on every resource, besides `application` and `environment`; IAM does not tell keys apart by case.
    """

    name: str = matching(*_LABEL)
    application: str = matching(*APPLICATION, default="sluice")
    consumers: tuple[Consumer, ...] = checked(bool, "at least one Consumer")
    account: str | None = matching(r"[0-9]{12}", "twelve digits, or None for the caller's account", default=None)
    region: str = matching(r"[a-z]{2}(-[a-z]+)+-[0-9]", "a region name such as 'eu-central-1'", default="us-east-1")
    topic: str = matching(*_LABEL, default="events")
    removal: Removal = Removal.RETAIN
    encryption: Encryption = Encryption.SQS_MANAGED
    archive_days: int | None = between(1, limits.ARCHIVE_DAYS_MAX, "days, or None", default=None)
    network: NewNetwork | ExistingNetwork = NewNetwork()
    image: str = "sluice-worker:0.1.0"
    database: Database | None = None
    relay: bool = False
    outbox_lag_seconds: int = between(10, 86_400, "seconds", default=60)
    log_retention_days: int = checked(
        limits.LOG_RETENTION_DAYS.__contains__,
        f"one of {', '.join(map(str, limits.LOG_RETENTION_DAYS))} days",
        default=30,
    )
    alarm_emails: tuple[str, ...] = checked(lambda seen: len(set(seen)) == len(seen), "each address once", default=())
    alarm_urls: tuple[str, ...] = checked(lambda seen: len(set(seen)) == len(seen), "each address once", default=())
    alarm_slack: SlackChannel | None = None
    alarm_topic_arn: str | None = matching(
        r"arn:aws:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]{1,256}", "the ARN of an SNS topic, or None", default=None
    )
    silent: bool = False
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _check_region_and_consumers(self)
        _check_tasks(self)
        if self.database is not None:
            _check_database(self, self.database)
        check_operators(self)
        _check_tags(self)


def _check_region_and_consumers(environment: Environment) -> None:
    # All others have two letters, one word and a number.
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
        environment.archive_days is None or environment.removal is Removal.RETAIN,
        field="archive_days",
        allowed="None with Removal.DESTROY: AWS refuses to delete a topic that archives",
    )


def _check_tasks(environment: Environment) -> None:
    check_image(environment)
    if isinstance(environment.network, NewNetwork):
        own_ecr = re.compile(rf"[0-9]{{12}}\.dkr\.ecr\.{environment.region}\.amazonaws\.com/.+")
        values: tuple[Environment | Consumer, ...] = (environment, *environment.consumers)
        for value in values:
            require(
                value,
                value.image is None or registry(value.image) is None or own_ecr.fullmatch(value.image),
                field="image",
                allowed=f"an image in ECR in {environment.region}: a new network has no way to any other registry",
            )
    require(
        environment,
        environment.database is not None or not environment.relay,
        field="relay",
        allowed="False without a database: the relay reads the outbox there",
    )


def _check_database(environment: Environment, database: Database) -> None:
    """Refuse what a task could not read: it asks in its own region, and Secrets Manager and KMS answer for theirs.

    A secret's key may lawfully be of any account. The secret itself may be of another account only with a key of its
    own. The account is known at the latest when the environment is deployed.
    AWS: https://docs.aws.amazon.com/secretsmanager/latest/userguide/auth-and-access_examples_cross.html and
    https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_CreateSecret.html (read 2026-11-21).
    """
    for name, arn in (("secret_arn", database.secret_arn), ("secret_key_arn", database.secret_key_arn)):
        require(
            database,
            arn is None or arn.split(":")[3] == environment.region,
            field=name,
            allowed=f"an ARN in {environment.region}, the region of environment {environment.name!r}",
        )
    require(
        database,
        environment.account in (None, database.secret_arn.split(":")[4]) or database.secret_key_arn is not None,
        field="secret_arn",
        allowed=f"a secret of account {environment.account}, or one with a secret_key_arn: without a key of its own no"
        " other account reads it",
    )


def _check_tags(environment: Environment) -> None:
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
