"""The environment's own database, and how tasks and producers get into it or into somebody else's.

The password is RDS's to make and to rotate, every seven days, in a secret that RDS manages: that takes no Lambda, which
in a network without internet would need endpoints and code of its own. Such a secret has user and password alone, so
tasks are given host, port and name as variables.
AWS: https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/rds-secrets-manager.html and
https://docs.aws.amazon.com/secretsmanager/latest/userguide/rotate-secrets_managed.html (read 2026-11-23).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_rds as rds
from constructs import Construct

from sluice.constructs.nag import acknowledge
from sluice.constructs.network import Network, closed_group
from sluice.constructs.removal import encryption_key
from sluice.declaration import Encryption, Environment, ExistingDatabase, NewDatabase, Removal, naming
from sluice.declaration.arguments import typed

_NAME = "sluice"
"""Of the database and of its master user."""
_PORT = 5432
_LOCALSTACK = "000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAccess:
    """What it takes to get into a database.

    Args:
        secret_arn: of the secret with user and password.
        secret_key_arn: the KMS key of that secret; None means the account's aws/secretsmanager.
        places: variables with host, port and name, where the secret does not have them.
    """

    secret_arn: str
    secret_key_arn: str | None
    places: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def to_existing(cls, database: ExistingDatabase) -> "DatabaseAccess":
        """Return what it takes to get into a database whose secret says where it is."""
        return cls(secret_arn=database.secret_arn, secret_key_arn=database.secret_key_arn)

    def variables(self) -> dict[str, str]:
        """Return what a task is told of the database; the secret itself it reads."""
        return {"SLUICE_DATABASE_SECRET_ARN": self.secret_arn, **self.places}

    def statements(self) -> list[iam.PolicyStatement]:
        """Return what a role needs to read that one secret, and nothing else."""
        allowed = {"secretsmanager:GetSecretValue": self.secret_arn, "kms:Decrypt": self.secret_key_arn}
        return [
            iam.PolicyStatement(actions=[action], resources=[resource])
            for action, resource in allowed.items()
            if resource is not None
        ]


class Database(Construct):
    """An Aurora PostgreSQL Serverless v2 cluster in the environment's network: tasks and producers reach it, by TLS.

    Retained, it is protected from deletion, and ends as a snapshot when that protection is taken away; its key stays.
    AWS: https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/AuroraPostgreSQL.Security.html (`rds.force_ssl`)
    and https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-attribute-deletionpolicy.html
    (read 2026-11-23).
    """

    @typed
    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, declared: NewDatabase, network: Network
    ) -> None:
        super().__init__(scope, id_)
        is_retained = environment.removal is Removal.RETAIN
        self.key: kms.Key | None = None  # its own, so that it needs no stack but the database's
        if environment.encryption is Encryption.CMK:
            self.key = encryption_key(self, "Key", environment=environment, encrypts="database")
        self.security_group = closed_group(self, "Clients", network.vpc, "Sluice database: tasks and producers call it")
        network.let_into_database(self, self.security_group, _PORT)
        self.cluster = rds.DatabaseCluster(
            self,
            "Cluster",
            cluster_identifier=naming.database_name(environment),
            engine=rds.DatabaseClusterEngine.aurora_postgres(version=_version(declared)),
            parameters={"rds.force_ssl": "1"},
            default_database_name=_NAME,
            credentials=rds.Credentials.from_username(_NAME, encryption_key=self.key),
            manage_master_user_password=True,
            writer=rds.ClusterInstance.serverless_v2("Writer"),
            readers=[rds.ClusterInstance.serverless_v2("Standby", scale_with_writer=True)] if declared.standby else [],
            serverless_v2_min_capacity=declared.min_acus,
            serverless_v2_max_capacity=declared.max_acus,
            serverless_v2_auto_pause_duration=None
            if declared.pause_after_seconds is None
            else cdk.Duration.seconds(declared.pause_after_seconds),
            vpc=network.vpc,
            vpc_subnets=network.subnets,
            security_groups=[self.security_group],
            port=_PORT,
            storage_encrypted=True,
            storage_encryption_key=self.key,
            backup=rds.BackupProps(retention=cdk.Duration.days(declared.backup_days)),
            delete_automated_backups=not is_retained,
            deletion_protection=is_retained,
            removal_policy=cdk.RemovalPolicy.SNAPSHOT if is_retained else cdk.RemovalPolicy.DESTROY,
        )
        self._acknowledge(is_retained=is_retained)
        self.access = DatabaseAccess(
            secret_arn=self._secret_arn(),
            secret_key_arn=None if self.key is None else self.key.key_arn,
            places={
                "SLUICE_DATABASE_HOST": self.cluster.cluster_endpoint.hostname,
                "SLUICE_DATABASE_PORT": str(_PORT),
                "SLUICE_DATABASE_NAME": _NAME,
            },
        )

    def _secret_arn(self) -> str:
        stack = cdk.Stack.of(self)
        if stack.account == _LOCALSTACK:
            # There an RDS cluster is only a name, and `unknown`, the ARN of its secret, is none that IAM takes.
            return stack.format_arn(
                service="secretsmanager",
                resource="secret",
                resource_name="rds!cluster-local",
                arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
            )
        assert self.cluster.secret is not None
        return str(self.cluster.secret.secret_arn)

    def _acknowledge(self, *, is_retained: bool) -> None:
        acknowledge(
            self.cluster, "AwsSolutions-RDS6", "tasks log in with the password of a secret that is rotated every week"
        )
        if not is_retained:
            acknowledge(
                self.cluster, "AwsSolutions-RDS10", "it is declared to go with its environment (Removal.DESTROY)"
            )


def _version(declared: NewDatabase) -> rds.AuroraPostgresEngineVersion:
    major = declared.engine_version.partition(".")[0]
    return rds.AuroraPostgresEngineVersion.of(declared.engine_version, major, serverless_v2_auto_pause_supported=True)
