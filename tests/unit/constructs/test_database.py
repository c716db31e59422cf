"""The environment's own database: encrypted, reached by TLS, kept or deleted as declared, its password unknown.

Who gets in: test_network.py; who reads its secret: test_task_service.py and test_policies.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk import aws_rds as rds

from sluice.constructs.database import DatabaseAccess
from sluice.declaration import DatabaseRole, ExistingDatabase, NewDatabase
from tests.support.templates.environments import CHANGING, GENERATED, OWNED, SHARED
from tests.support.templates.resources import Resource, StackTemplates, of_kind, outputs, resources

CLUSTER, INSTANCE = "AWS::RDS::DBCluster", "AWS::RDS::DBInstance"
PARAMETERS, SUBNETS = "AWS::RDS::DBClusterParameterGroup", "AWS::RDS::DBSubnetGroup"


def _cluster(name: str, *, capacity: dict[str, float], backup_days: int, is_retained: bool) -> dict[str, Any]:
    """Return all properties of a cluster; the retained ones here have their own key."""
    key: dict[str, Any] = {"KmsKeyId": "Arn(DatabaseKey)", "MasterUserSecret": {"KmsKeyId": "Arn(DatabaseKey)"}}
    return {
        "DBClusterIdentifier": name,
        "Engine": "aurora-postgresql",
        "EngineVersion": "17.9",
        "DatabaseName": "sluice",
        "MasterUsername": "sluice",
        "ManageMasterUserPassword": True,
        "Port": 5432,
        "ServerlessV2ScalingConfiguration": capacity,
        "DBClusterParameterGroupName": "Ref(aurora-postgresql17)",  # by its family
        "DBSubnetGroupName": "Ref(DatabaseClusterSubnets)",
        "VpcSecurityGroupIds": ["GroupId(DatabaseClients)"],
        "StorageEncrypted": True,
        "BackupRetentionPeriod": backup_days,
        "CopyTagsToSnapshot": True,
        "DeleteAutomatedBackups": not is_retained,
        "DeletionProtection": is_retained,
        "EnableIAMDatabaseAuthentication": True,
        "EnableCloudwatchLogsExports": ["postgresql"],
        **(key if is_retained else {}),
    }


def test_a_database_is_encrypted_backed_up_and_has_the_declared_capacity(
    by_environment: Mapping[str, list[Resource]],
) -> None:
    """All properties are compared; RDS makes and rotates the password, so no template contains one."""
    clusters = {name: of_kind(by_environment[name], CLUSTER) for name in ("dev", "prod", "full")}

    assert clusters == {
        "dev": {
            "DatabaseCluster": _cluster(
                "sluice-dev",
                capacity={"MinCapacity": 0, "MaxCapacity": 2, "SecondsUntilAutoPause": 1_800},
                backup_days=7,
                is_retained=False,
            )
        },
        "prod": {
            "DatabaseCluster": _cluster(
                "sluice-prod", capacity={"MinCapacity": 1, "MaxCapacity": 16}, backup_days=14, is_retained=True
            )
        },
        "full": {
            "DatabaseCluster": _cluster(
                "sluice-full",
                capacity={"MinCapacity": 0, "MaxCapacity": 32, "SecondsUntilAutoPause": 900},
                backup_days=35,
                is_retained=True,
            )
        },
    }


def test_a_retained_database_ends_as_a_snapshot_and_any_other_is_deleted(
    by_environment: Mapping[str, list[Resource]],
) -> None:
    """Deletion protection is in the cluster itself, above; the instances hold nothing."""
    policies = {
        name: {
            (resource.deletion_policy, resource.update_replace_policy) for resource in found if resource.kind == CLUSTER
        }
        for name, found in by_environment.items()
    }

    kept, deleted = {("Snapshot", "Snapshot")}, {("Delete", "Delete")}
    assert policies == {
        "local": deleted,
        "dev": deleted,
        "staging": kept,
        "prod": kept,
        "full": kept,
        "hosted": set(),
        "plain": set(),
        "shared": set(),
    }


def test_no_connection_is_without_tls(declared_resources: list[Resource]) -> None:
    """The database server itself refuses connections without TLS."""
    groups = of_kind(declared_resources, PARAMETERS)

    (group,) = groups.values()
    assert group["Family"] == "aurora-postgresql17"
    assert group["Parameters"] == {"rds.force_ssl": "1"}


def test_instances_are_private_and_a_standby_may_take_over(by_environment: Mapping[str, list[Resource]]) -> None:
    """Both instances are in the private subnets. The standby's promotion tier gives it the writer's capacity."""
    prod = by_environment["prod"]

    instances = {
        name: (instance["DBInstanceClass"], instance["PromotionTier"], instance["PubliclyAccessible"])
        for name, instance in of_kind(prod, INSTANCE).items()
    }
    assert instances == {
        "DatabaseClusterWriter": ("db.serverless", 0, False),
        "DatabaseClusterStandby": ("db.serverless", 1, False),
    }
    assert of_kind(prod, SUBNETS)["DatabaseClusterSubnets"]["SubnetIds"] == [
        f"Ref({name})" for name in of_kind(prod, "AWS::EC2::Subnet")
    ]
    assert list(of_kind(by_environment["dev"], INSTANCE)) == ["DatabaseClusterWriter"]


def test_the_version_of_a_new_database_is_one_that_cdk_knows() -> None:
    """CDK removes versions that RDS has withdrawn, and has no version that is not released yet."""
    known = f"VER_{NewDatabase().engine_version.replace('.', '_')}"

    assert hasattr(rds.AuroraPostgresEngineVersion, known)


@pytest.mark.parametrize(
    ("name", "users"),
    [
        ("staging", "arn:aws:rds-db:us-east-1:<AWS::AccountId>:dbuser:DBClusterResourceId(DatabaseCluster)"),
        ("full", "arn:aws:rds-db:eu-central-1:111122223333:dbuser:DBClusterResourceId(DatabaseCluster)"),
    ],
)
def test_the_outputs_say_what_producers_join_and_log_in_as(
    stacks: Mapping[str, StackTemplates], name: str, users: str
) -> None:
    """The policy of those with an outbox is among the messaging stack's: test_fan_out.py."""
    of_database = outputs(stacks[name]["database"].template)
    of_network = outputs(stacks[name]["network"].template)

    assert of_database == {
        "SecretArn": "MasterUserSecret.SecretArn(DatabaseCluster)",
        "Endpoint": "Endpoint.Address(DatabaseCluster):Endpoint.Port(DatabaseCluster)",
        "UsersArn": users,
    }
    assert of_network == {"ProducersSecurityGroupId": "GroupId(NetworkProducers)"}


def test_an_environment_of_an_earlier_version_keeps_cluster_and_subnets(
    edited_stacks: Mapping[str, StackTemplates],
) -> None:
    """Its template names no cluster, as at that time.

    Alarms and log group have the name that CloudFormation generated.
    """
    parts = edited_stacks[OWNED]
    (cluster,) = of_kind(resources(parts), CLUSTER).values()
    subnets = of_kind(resources(parts), "AWS::EC2::Subnet").values()
    alarms = of_kind(resources(parts), "AWS::CloudWatch::Alarm").values()
    watched = {
        dimension["Value"]
        for alarm in alarms
        for dimension in alarm.get("Dimensions", ())
        if dimension["Name"] == "DBClusterIdentifier"
    }

    assert "DBClusterIdentifier" not in cluster
    assert [subnet["CidrBlock"] for subnet in subnets] == ["10.0.0.0/17", "10.0.128.0/17"]
    assert watched == {GENERATED}
    groups = of_kind(resources(parts), "AWS::Logs::LogGroup").values()
    assert f"/aws/rds/cluster/{GENERATED}/postgresql" in {group.get("LogGroupName") for group in groups}


@pytest.mark.parametrize("users", [CHANGING, OWNED])
def test_the_way_back_to_the_owner_takes_no_export_away(
    edited_stacks: Mapping[str, StackTemplates], users: str
) -> None:
    """CloudFormation refuses to, as the stacks of producers and tasks, which are updated later, still import it."""
    exported = edited_stacks[users]["database"].template["Outputs"].values()

    assert [output for output in exported if "DBClusterResourceId" in output.get("Export", {}).get("Name", "")]


def test_a_proxy_is_reached_by_its_host_and_a_token() -> None:
    """A task and a function find it as they find a cluster; IAM names the proxy by its own id."""
    assert isinstance(SHARED.database, ExistingDatabase)
    host = "shop.proxy-abc.us-east-1.rds.amazonaws.com"
    proxy = replace(SHARED.database, resource_id="prx-ABCDEFGHIJKL01234", host=host)

    access = DatabaseAccess.to_existing(proxy)
    (statement,) = access.statements(DatabaseRole.WORKER)

    assert access.variables(DatabaseRole.WORKER) == {
        "SLUICE_DATABASE_USER": "sluice_worker",
        "SLUICE_DATABASE_HOST": host,
        "SLUICE_DATABASE_PORT": "5433",
        "SLUICE_DATABASE_NAME": "shop",
    }
    assert [arn.rpartition(":")[2] for arn in statement.resources] == ["prx-ABCDEFGHIJKL01234/sluice_worker"]
