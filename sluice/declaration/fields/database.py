"""The declaration of the database of inbox and outbox: one that the stacks make, or an existing one."""

import re
from enum import Enum
from itertools import pairwise

from sluice import limits
from sluice.declaration.fields.existing import KEY_ARN
from sluice.declaration.validation import between, declaration_class, matching, require, satisfying

_VERSION = re.compile(r"(\d{2})\.(\d{1,2})")


def _is_current(version: str) -> bool:
    """Return whether a version of Aurora PostgreSQL, such as `17.9`, is new enough."""
    found = _VERSION.fullmatch(version)
    return found is not None and (int(found[1]), int(found[2])) >= limits.AURORA_VERSION_MIN


def _is_capacity(seen: float) -> bool:
    """Return whether a number of Aurora capacity units is a multiple of 0.5 within the bounds."""
    return 0 <= seen <= limits.AURORA_ACUS_MAX and (seen * 2) % 1 == 0


class DatabaseRole(Enum):
    """The users of the database that `schema apply --roles` makes, each with only the rights that its part needs."""

    PRODUCER = "sluice_producer"
    RELAY = "sluice_relay"
    WORKER = "sluice_worker"
    REDRIVE = "sluice_redrive"
    OPERATOR = "sluice_operator"
    READER = "sluice_reader"


class DatabaseUsers(Enum):
    """The users as which tasks and producers log in to the database."""

    ROLES = "roles"
    EITHER = "either"
    OWNER = "owner"


@declaration_class
class NewDatabase:
    """An Aurora PostgreSQL Serverless v2 cluster of the environment's own, in its network, with its password rotated.

    AWS: https://docs.aws.amazon.com/AmazonRDS/latest/APIReference/API_ServerlessV2ScalingConfiguration.html
    (read 2026-11-23).

    Args:
        min_acus: the least capacity of an instance; 0 lets it pause.
        max_acus: the most capacity of an instance.
        pause_after_seconds: how long nobody has to be connected before an instance pauses; None never pauses. Every
            running worker and relay is connected, so it pauses while none runs. The next connection wakes it.
        standby: a second instance, in another zone, that takes over when the first fails.
        backup_days: how many days back it can be restored to any second.
        vault_days: how many days AWS Backup keeps a copy that it makes each day, in a vault that stays when the cluster
            goes; None makes no copies.
        generated_identifier: what CloudFormation called the cluster of an environment that was deployed by a version
            which left the name to it; the template then names none, so that the cluster stays. None calls it as the
            environment.
        engine_version: Aurora PostgreSQL's version. Aurora installs none by itself: raise it here.
        users: who tasks and producers are in the environment's database. ROLES: each has its own user and logs in
            with a token of IAM; the owner's secret reaches the step that makes the tables, alone. OWNER: all are the
            owner, and read its secret. EITHER: users are made, and all may read the secret, while images and producers
            change from OWNER to ROLES.
        other_connections: how many connections producers, operators and everything else have at once, besides workers
            and relays; all together have to be fewer than an instance takes.
    """

    min_acus: float = satisfying(
        _is_capacity, f"0 to {limits.AURORA_ACUS_MAX} Aurora capacity units in steps of 0.5", default=0.5
    )
    max_acus: float = satisfying(
        lambda seen: seen >= 1 and _is_capacity(seen),
        f"1 to {limits.AURORA_ACUS_MAX} Aurora capacity units in steps of 0.5",
        default=4.0,
    )
    pause_after_seconds: int | None = between(
        limits.AURORA_PAUSE_SECONDS_MIN, limits.AURORA_PAUSE_SECONDS_MAX, "seconds, or None", default=None
    )
    standby: bool = False
    backup_days: int = between(1, limits.AURORA_BACKUP_DAYS_MAX, "days", default=7)
    vault_days: int | None = between(1, limits.VAULT_DAYS_MAX, "days, or None", default=None)
    generated_identifier: str | None = matching(
        r"(?=.{1,63}\Z)[a-z][a-z0-9]*(-[a-z0-9]+)*",
        "the identifier of a cluster, as `aws rds describe-db-clusters` says it, or None",
        default=None,
    )
    engine_version: str = satisfying(
        _is_current,
        "a version from {}.{} on such as '17.9': those before cannot pause".format(*limits.AURORA_VERSION_MIN),
        default="17.9",
    )
    users: DatabaseUsers = DatabaseUsers.ROLES
    other_connections: int = satisfying(lambda seen: seen >= 0, "0 or more", default=50)

    @property
    def connections_max(self) -> int:
        """Return how many connections an instance takes at `max_acus`.

        AWS documents the number for some capacities; between two of them it is interpolated.
        """
        connections_by_acus = limits.AURORA_CONNECTIONS
        most = max(connections_by_acus.values())
        for (low, low_count), (high, high_count) in pairwise(connections_by_acus.items()):
            if self.max_acus < high:
                most = low_count + int((self.max_acus - low) / (high - low) * (high_count - low_count))
                break
        return min(most, limits.AURORA_SMALL_CONNECTIONS_MAX) if self.min_acus <= limits.AURORA_SMALL_ACUS else most

    def __post_init__(self) -> None:
        require(
            self,
            self.min_acus <= self.max_acus,
            field="min_acus",
            allowed=f"at most max_acus, {self.max_acus:g}",
        )
        require(
            self,
            (self.min_acus == 0) == (self.pause_after_seconds is not None),
            field="pause_after_seconds",
            allowed="a number of seconds with min_acus=0, which pauses, and None with any other",
        )


@declaration_class
class ExistingDatabase:
    """A PostgreSQL database somebody else looks after, which the existing network's subnets reach.

    Args:
        secret_arn: whole ARN of the Secrets Manager secret with its credentials, in the environment's region. One of
            another account takes a key of that account's own.
        security_group_id: the database's security group; the tasks and the producers' group are let in.
        port: where it listens.
        secret_key_arn: the KMS key the secret is encrypted with, in the same region and any account; None means the
            account's aws/secretsmanager.
        users: who tasks and producers are in the environment's database. OWNER: all are the owner, and read its secret.
            ROLES: each has its own user and logs in with a token of IAM, which its RDS has to take; the owner's secret
            reaches the step that makes tables and users, alone. These users are the server's: one environment has them.
            EITHER: users are made, and all may read the secret, while images and producers change.
        resource_id: its id in IAM's policies: of a cluster, an instance or a proxy of RDS in the environment's account.
        host: its host's name; None where the secret has it.
        database_name: its name on that host; None where the secret has it.
        connections: how many of its connections workers and relays may have, while a deployment runs two versions; None
            checks nothing.
    """

    secret_arn: str = matching(
        r"arn:aws:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+-[A-Za-z0-9]{6}",
        "the whole ARN of a Secrets Manager secret, with the six characters AWS appends to its name:"
        " '…:secret:NAME-AbCdEf'",
    )
    security_group_id: str = matching(r"sg-[0-9a-f]{8,17}", "a security group id such as 'sg-0a1b2c3d4e5f60718'")
    port: int = between(1, 65_535, default=5432)
    secret_key_arn: str | None = matching(KEY_ARN[0], f"{KEY_ARN[1]}, or None", default=None)
    users: DatabaseUsers = DatabaseUsers.OWNER
    resource_id: str | None = matching(
        r"(cluster|db|prx)-[A-Za-z0-9]{1,64}", "an id such as 'cluster-ABCDEFGHIJKL01234', or None", default=None
    )
    host: str | None = matching(
        r"(?=.{1,253}\Z)[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*", "a host's name, or None", default=None
    )
    database_name: str | None = matching(r"[A-Za-z_][\w$-]{0,62}", "a database's name, or None", default=None)
    connections: int | None = satisfying(lambda seen: seen >= 1, "1 or more, or None", default=None)

    def __post_init__(self) -> None:
        require(
            self,
            (self.host is None) == (self.database_name is None),
            field="database_name",
            allowed="None without host, and the database's name with it",
        )
        require(
            self,
            self.users is DatabaseUsers.OWNER or None not in (self.resource_id, self.host),
            field="users",
            allowed="DatabaseUsers.OWNER without resource_id, host and database_name: a token of IAM needs all three",
        )
