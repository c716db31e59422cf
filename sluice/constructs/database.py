"""The environment's own database, and the access of tasks and producers to it or to an existing one.

Each task or producer logs in as a user of its part, with a token of IAM. The database's owner makes these users. RDS
makes the owner's password and rotates it every seven days, in a secret that RDS manages. Rotation by a Lambda would
need endpoints and code of its own in a network without internet. Neither token nor secret has the database's address,
so tasks get host, port and name as variables.
AWS: https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/rds-secrets-manager.html and
https://docs.aws.amazon.com/secretsmanager/latest/userguide/rotate-secrets_managed.html (read 2026-11-23);
https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/UsingWithRDS.IAMDBAuth.IAMPolicy.html (read 2026-11-26).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import aws_cdk as cdk
from aws_cdk import aws_backup as backup
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_rds as rds
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from sluice.constructs.logs import log_group
from sluice.constructs.nag import acknowledge
from sluice.constructs.network import Network, closed_group
from sluice.constructs.removal import encryption_key, removal_policy
from sluice.declaration import (
    DatabaseRole,
    DatabaseUsers,
    Encryption,
    Environment,
    ExistingDatabase,
    NewDatabase,
    Removal,
    naming,
)
from sluice.declaration.arguments import check_argument_types

_NAME = "sluice"
"""Name of the database, and of its owner."""
_PORT = 5432
_LOCALSTACK = "000000000000"  # LocalStack's account


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAccess:
    """The access to a database: as the user of a part, or as the owner with its secret.

    Args:
        secret_arn: ARN of the secret with the owner's name and password.
        secret_key_arn: the KMS key of that secret; None means the account's aws/secretsmanager.
        places: variables with host, port and name, where the secret does not have them.
        users_arn: the beginning of each user's ARN in IAM's policies; None where all log in as the owner.
        shares_secret: whether tasks and producers may read the secret.
    """

    secret_arn: str
    secret_key_arn: str | None
    places: Mapping[str, str] = field(default_factory=dict)
    users_arn: str | None = None
    shares_secret: bool = True

    @classmethod
    def to_existing(cls, database: ExistingDatabase) -> "DatabaseAccess":
        """Return the access to an existing database."""
        places: dict[str, str] = {}
        if database.host is not None and database.database_name is not None:
            places = _places(database.host, database.port, database.database_name)
        users_arn = None
        if database.users is not DatabaseUsers.OWNER:
            region = database.secret_arn.split(":")[3]
            users_arn = f"arn:aws:rds-db:{region}:{cdk.Aws.ACCOUNT_ID}:dbuser:{database.resource_id}"
        return cls(
            secret_arn=database.secret_arn,
            secret_key_arn=database.secret_key_arn,
            places=places,
            users_arn=users_arn,
            shares_secret=database.users is not DatabaseUsers.ROLES,
        )

    def variables(self, role: DatabaseRole) -> dict[str, str]:
        """Return the variables with which a task of this role finds the database, and a token or the secret."""
        user = {} if self.users_arn is None else {"SLUICE_DATABASE_USER": role.value}
        return {**user, **self.owner_variables()}

    def owner_variables(self) -> dict[str, str]:
        """Return the variables of the container that makes the tables; `owner_secrets` hands it an unshared secret."""
        secret = {"SLUICE_DATABASE_SECRET_ARN": self.secret_arn} if self.shares_secret else {}
        return {**secret, **self.places}

    def owner_secrets(self, task: ecs.TaskDefinition) -> dict[str, ecs.Secret]:
        """Return the secret that ECS hands to the container that makes tables and users.

        ECS reads it with the task's execution role, whose credentials no container has. There is none where no users
        are made: then each container reads the secret itself.
        """
        if self.users_arn is None:
            return {}
        if self.secret_key_arn is not None:
            decrypt = iam.PolicyStatement(actions=["kms:Decrypt"], resources=[self.secret_key_arn])
            task.add_to_execution_role_policy(decrypt)
        secret = secretsmanager.Secret.from_secret_complete_arn(task, "DatabaseSecret", self.secret_arn)
        return {"SLUICE_DATABASE_SECRET": ecs.Secret.from_secrets_manager(secret)}

    def statements(self, role: DatabaseRole) -> list[iam.PolicyStatement]:
        """Return the statements that allow a role of IAM to log in as this user, and to read a shared secret."""
        allowed = {} if self.users_arn is None else {"rds-db:connect": f"{self.users_arn}/{role.value}"}
        if self.shares_secret:
            allowed["secretsmanager:GetSecretValue"] = self.secret_arn
            if self.secret_key_arn is not None:
                allowed["kms:Decrypt"] = self.secret_key_arn
        return [iam.PolicyStatement(actions=[action], resources=[resource]) for action, resource in allowed.items()]


class Database(Construct):
    """An Aurora PostgreSQL Serverless v2 cluster in the environment's network, which tasks and producers reach by TLS.

    With Removal.RETAIN the cluster is protected from deletion. If that protection is switched off, a deletion keeps a
    snapshot, and the key.
    AWS: https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/AuroraPostgreSQL.Security.html (`rds.force_ssl`)
    and https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-attribute-deletionpolicy.html
    (read 2026-11-23).
    """

    @check_argument_types
    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, declared: NewDatabase, network: Network
    ) -> None:
        super().__init__(scope, id_)
        is_retained = environment.removal is Removal.RETAIN
        has_users = declared.users is not DatabaseUsers.OWNER
        self.key: kms.Key | None = None  # a key of its own, so that this stack depends on no stack with other keys
        if environment.encryption is Encryption.CMK:
            self.key = encryption_key(self, "Key", environment=environment, encrypts="database")
        self.security_group = closed_group(self, "Clients", network.vpc, "Sluice database: tasks and producers call it")
        network.let_into_database(self, self.security_group, _PORT)
        name = naming.database_name(environment)
        postgres_logs = log_group(
            self, "Logs", environment=environment, key=network.log_key, name=f"/aws/rds/cluster/{name}/postgresql"
        )
        self.cluster = rds.DatabaseCluster(
            self,
            "Cluster",
            cluster_identifier=name if declared.generated_identifier is None else None,
            engine=rds.DatabaseClusterEngine.aurora_postgres(version=_version(declared)),
            parameters={"rds.force_ssl": "1"},
            default_database_name=_NAME,
            credentials=rds.Credentials.from_username(_NAME, encryption_key=self.key),
            manage_master_user_password=True,
            iam_authentication=True if has_users else None,
            # If Aurora installed minor versions by itself, the template's version would be older than the cluster's.
            writer=rds.ClusterInstance.serverless_v2("Writer", auto_minor_version_upgrade=False),
            readers=[
                rds.ClusterInstance.serverless_v2("Standby", scale_with_writer=True, auto_minor_version_upgrade=False)
            ]
            if declared.standby
            else [],
            cloudwatch_logs_exports=["postgresql"],
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
        self.cluster.node.add_dependency(postgres_logs)  # RDS would otherwise make a log group that is kept for ever
        if declared.vault_days is not None:
            self._copy_to_vault(environment, declared.vault_days)
        self._acknowledge(is_retained=is_retained, has_users=has_users)
        self.access = DatabaseAccess(
            secret_arn=self._secret_arn(),
            secret_key_arn=None if self.key is None else self.key.key_arn,
            places=_places(self.cluster.cluster_endpoint.hostname, _PORT, _NAME),
            users_arn=self._users_arn() if has_users else None,
            shares_secret=declared.users is not DatabaseUsers.ROLES,
        )

    def _copy_to_vault(self, environment: Environment, days: int) -> None:
        """Let AWS Backup keep a copy of each day; the cluster's own backups are deleted with the cluster."""
        vault = backup.BackupVault(
            self,
            "Vault",
            backup_vault_name=naming.vault_name(environment),
            encryption_key=self.key,
            removal_policy=removal_policy(environment),
        )
        plan = backup.BackupPlan(self, "Copies", backup_plan_name=naming.vault_name(environment), backup_vault=vault)
        plan.add_rule(
            backup.BackupPlanRule(
                rule_name="daily",
                schedule_expression=events.Schedule.cron(hour="4", minute="0"),
                delete_after=cdk.Duration.days(days),
            )
        )
        copied = plan.add_selection(
            "Cluster", resources=[backup.BackupResource.from_rds_database_cluster(self.cluster)]
        )
        policy = "Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSBackupServiceRolePolicyForBackup"
        acknowledge(copied, f"AwsSolutions-IAM4[{policy}]", "what AWS Backup needs is in AWS's own policy for it")

    def _users_arn(self) -> str:
        """Return the beginning of the ARN by which IAM names the cluster's users."""
        return cdk.Stack.of(self).format_arn(
            service="rds-db",
            resource="dbuser",
            resource_name=self.cluster.cluster_resource_identifier,
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )

    def _secret_arn(self) -> str:
        """Return the ARN of the secret that RDS makes for the cluster."""
        stack = cdk.Stack.of(self)
        if stack.account == _LOCALSTACK:
            # LocalStack only pretends to make a cluster; its secret's ARN is `unknown`, which IAM refuses.
            return stack.format_arn(
                service="secretsmanager",
                resource="secret",
                resource_name="rds!cluster-local-000000",
                arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
            )
        assert self.cluster.secret is not None
        return str(self.cluster.secret.secret_arn)

    def _acknowledge(self, *, is_retained: bool, has_users: bool) -> None:
        """Acknowledge cdk-nag's findings about passwords and deletion, where the declaration wants them."""
        if not has_users:
            reason = "tasks log in with the password of a secret that is rotated every week"
            acknowledge(self.cluster, "AwsSolutions-RDS6", reason)
        if not is_retained:
            acknowledge(
                self.cluster, "AwsSolutions-RDS10", "it is declared to go with its environment (Removal.DESTROY)"
            )


def _places(host: str, port: int, name: str) -> dict[str, str]:
    """Return the variables with the database's address."""
    return {"SLUICE_DATABASE_HOST": host, "SLUICE_DATABASE_PORT": str(port), "SLUICE_DATABASE_NAME": name}


def _version(declared: NewDatabase) -> rds.AuroraPostgresEngineVersion:
    """Return the declared engine version; CDK has no constants for new versions."""
    major = declared.engine_version.partition(".")[0]
    return rds.AuroraPostgresEngineVersion.of(declared.engine_version, major, serverless_v2_auto_pause_supported=True)
