"""The network the tasks run in: private, without a way to the internet, open to the AWS services they call."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import Environment
from tests.support.templates.resources import Resource, of_kind, statements
from tests.unit.constructs.expectations import allow, log_encryption

VPC, SUBNET, ENDPOINT = "AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::VPCEndpoint"
ROUTE_TABLE, ASSOCIATION = "AWS::EC2::RouteTable", "AWS::EC2::SubnetRouteTableAssociation"
GROUP, INGRESS, EGRESS = (
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::SecurityGroupEgress",
)
FLOW_LOG = "AWS::EC2::FlowLog"
ZONES = {"local": 2, "dev": 2, "staging": 2, "prod": 3}


def _subnet(zone: int, cidr: str) -> dict[str, Any]:
    return {
        "AvailabilityZone": {"Fn::Select": [zone, {"Fn::GetAZs": ""}]},
        "CidrBlock": cidr,
        "MapPublicIpOnLaunch": False,
        "VpcId": "Ref(NetworkVpc)",
    }


def _tasks_group(vpc: str) -> dict[str, Any]:
    https = {
        "CidrIp": "0.0.0.0/0",
        "Description": "AWS services",
        "FromPort": 443,
        "IpProtocol": "tcp",
        "ToPort": 443,
    }
    return {
        "GroupDescription": "Sluice tasks: nobody calls them; they call AWS and the database",
        "SecurityGroupEgress": [https],
        "VpcId": vpc,
    }


def _producers_group(vpc: str) -> dict[str, Any]:
    description = "Sluice producers: what joins it reaches the database"
    return {**_tasks_group(vpc), "GroupDescription": description}


def _from_clients(group: str, port: int) -> list[dict[str, Any]]:
    """Return the rules that let tasks and producers into a security group."""
    return [
        {
            "Description": description,
            "FromPort": port,
            "GroupId": group,
            "IpProtocol": "tcp",
            "SourceSecurityGroupId": f"GroupId({client})",
            "ToPort": port,
        }
        for client, description in (("NetworkTasks", "Sluice tasks"), ("NetworkProducers", "Sluice producers"))
    ]


def _to_database(group: str, port: int) -> list[dict[str, Any]]:
    return [
        {
            "Description": "the database",
            "DestinationSecurityGroupId": group,
            "FromPort": port,
            "GroupId": f"GroupId({client})",
            "IpProtocol": "tcp",
            "ToPort": port,
        }
        for client in ("NetworkTasks", "NetworkProducers")
    ]


_CALLS_NOBODY = {
    "CidrIp": "255.255.255.255/32",
    "Description": "Disallow all traffic",
    "FromPort": 252,
    "IpProtocol": "icmp",
    "ToPort": 86,
}


def test_a_new_network_has_no_way_to_the_internet(declared_resources: list[Resource], environment: Environment) -> None:
    """No gateway, no NAT, no address, no route: every kind of network part there is, counted."""
    parts = Counter(resource.kind for resource in declared_resources if resource.kind.startswith("AWS::EC2::"))

    zones = ZONES[environment.name]
    assert parts == {
        VPC: 1,
        SUBNET: zones,
        ROUTE_TABLE: zones,
        ASSOCIATION: zones,
        FLOW_LOG: 1,
        ENDPOINT: 7,
        GROUP: 4,
        INGRESS: 4,
        EGRESS: 2,
    }


def test_every_zone_has_a_private_subnet(by_environment: Mapping[str, list[Resource]]) -> None:
    """The zones are as many as declared, and named at deployment. Addresses are divided for three zones or more."""
    subnets = {name: of_kind(by_environment[name], SUBNET) for name in ("local", "prod", "full")}

    assert subnets == {
        "local": {
            "NetworkVpcTasksSubnet1Subnet": _subnet(0, "10.0.0.0/18"),
            "NetworkVpcTasksSubnet2Subnet": _subnet(1, "10.0.64.0/18"),
        },
        "prod": {
            "NetworkVpcTasksSubnet1Subnet": _subnet(0, "10.0.0.0/18"),
            "NetworkVpcTasksSubnet2Subnet": _subnet(1, "10.0.64.0/18"),
            "NetworkVpcTasksSubnet3Subnet": _subnet(2, "10.0.128.0/18"),
        },
        "full": {
            "NetworkVpcTasksSubnet1Subnet": _subnet(0, "10.42.0.0/22"),
            "NetworkVpcTasksSubnet2Subnet": _subnet(1, "10.42.4.0/22"),
        },
    }


def test_the_vpc_has_the_declared_addresses_and_resolves_names(by_environment: Mapping[str, list[Resource]]) -> None:
    """Without DNS in the VPC the endpoints would not be found."""
    vpcs = {name: of_kind(by_environment[name], VPC) for name in ("local", "full")}

    common = {"EnableDnsHostnames": True, "EnableDnsSupport": True, "InstanceTenancy": "default"}
    assert vpcs == {
        "local": {"NetworkVpc": {**common, "CidrBlock": "10.0.0.0/16"}},
        "full": {"NetworkVpc": {**common, "CidrBlock": "10.42.0.0/20"}},
    }


def test_the_services_tasks_call_have_endpoints_in_the_network(full: list[Resource]) -> None:
    """Secrets Manager where there is a database, SNS where the relay publishes; without either: the next test."""
    endpoints = of_kind(full, ENDPOINT).values()

    interfaces = [endpoint["ServiceName"] for endpoint in endpoints if endpoint["VpcEndpointType"] == "Interface"]
    assert sorted(interfaces) == [
        f"com.amazonaws.eu-central-1.{service}"
        for service in ("ecr.api", "ecr.dkr", "logs", "secretsmanager", "sns", "sqs")
    ]


def test_an_endpoint_in_every_subnet_answers_to_the_services_own_name(
    declared_resources: list[Resource],
) -> None:
    """With private DNS, a call of sqs.<region>.amazonaws.com reaches the endpoint."""
    endpoints = of_kind(declared_resources, ENDPOINT).values()
    subnets = [f"Ref({name})" for name in of_kind(declared_resources, SUBNET)]

    interfaces = [endpoint for endpoint in endpoints if endpoint["VpcEndpointType"] == "Interface"]
    assert [{**endpoint, "PolicyDocument": None} for endpoint in interfaces] == [
        {
            "PolicyDocument": None,  # test_endpoints.py
            "ServiceName": f"com.amazonaws.us-east-1.{service}",
            "VpcEndpointType": "Interface",
            "PrivateDnsEnabled": True,
            "SecurityGroupIds": ["GroupId(NetworkEndpoints)"],
            "SubnetIds": subnets,
            "VpcId": "Ref(NetworkVpc)",
        }
        for service in ("sqs", "ecr.api", "ecr.dkr", "logs", "secretsmanager", "sns")
    ]


def test_ecrs_layers_are_reached_through_a_gateway_to_s3(declared_resources: list[Resource]) -> None:
    """Routed from every subnet's table."""
    endpoints = of_kind(declared_resources, ENDPOINT).values()
    tables = [f"Ref({name})" for name in of_kind(declared_resources, ROUTE_TABLE)]

    gateways = [endpoint for endpoint in endpoints if endpoint["VpcEndpointType"] == "Gateway"]
    assert [{**endpoint, "PolicyDocument": None} for endpoint in gateways] == [
        {
            "PolicyDocument": None,  # test_endpoints.py
            "ServiceName": "com.amazonaws.<AWS::Region>.s3",
            "VpcEndpointType": "Gateway",
            "RouteTableIds": tables,
            "VpcId": "Ref(NetworkVpc)",
        }
    ]


def test_nobody_calls_tasks_or_producers_and_they_call_https_only(declared_resources: list[Resource]) -> None:
    """They may also call the database. Their groups have no inbound rule.

    Endpoints and database may call nobody (CDK's dummy rule).
    """
    groups, ingress = of_kind(declared_resources, GROUP), of_kind(declared_resources, INGRESS).values()

    assert groups == {
        "NetworkTasks": _tasks_group("Ref(NetworkVpc)"),
        "NetworkEndpoints": {
            "GroupDescription": "Sluice endpoints: the tasks call them",
            "SecurityGroupEgress": [_CALLS_NOBODY],
            "VpcId": "Ref(NetworkVpc)",
        },
        "NetworkProducers": _producers_group("Ref(NetworkVpc)"),
        "DatabaseClients": {
            "GroupDescription": "Sluice database: tasks and producers call it",
            "SecurityGroupEgress": [_CALLS_NOBODY],
            "VpcId": "Ref(NetworkVpc)",
        },
    }
    assert [rule for rule in ingress if rule["GroupId"] == "GroupId(NetworkEndpoints)"] == _from_clients(
        "GroupId(NetworkEndpoints)", 443
    )


@pytest.mark.parametrize(
    ("name", "database", "port"),
    [("full", "GroupId(DatabaseClients)", 5432), ("hosted", "sg-0a1b2c3d4e5f60718", 5433)],
)
def test_the_database_lets_tasks_and_producers_in_and_nobody_else(
    by_environment: Mapping[str, list[Resource]], name: str, database: str, port: int
) -> None:
    """A rule on either side: out of their groups, into the database's own."""
    found = by_environment[name]

    assert list(of_kind(found, EGRESS).values()) == _to_database(database, port)
    assert [rule for rule in of_kind(found, INGRESS).values() if rule["GroupId"] == database] == _from_clients(
        database, port
    )


def test_somebody_elses_network_is_left_as_it_is(hosted_resources: list[Resource], plain: list[Resource]) -> None:
    """Only security groups and rules are made in it."""
    parts = [
        Counter(resource.kind for resource in found if resource.kind.startswith(("AWS::EC2::", "Custom::")))
        for found in (hosted_resources, plain)
    ]

    assert parts == [{GROUP: 2, EGRESS: 2, INGRESS: 2}, {GROUP: 1}]
    assert of_kind(plain, GROUP) == {"NetworkTasks": _tasks_group("vpc-0a1b2c3d4e5f60718")}


def test_a_new_network_has_flow_logs(declared_resources: list[Resource], environment: Environment) -> None:
    """Accepted or not, to a log group kept as long as declared; the role writes there and nowhere else."""
    flow_logs = of_kind(declared_resources, FLOW_LOG)
    allowed = statements(declared_resources, "NetworkVpcFlowLogIAMRole")

    days = {"local": 30, "dev": 7, "staging": 30, "prod": 90}
    assert flow_logs == {
        "NetworkVpcFlowLog": {
            "DeliverLogsPermissionArn": "Arn(NetworkVpcFlowLogIAMRole)",
            "LogDestinationType": "cloud-watch-logs",
            "LogGroupName": "Ref(NetworkFlowLogs)",
            "ResourceId": "Ref(NetworkVpc)",
            "ResourceType": "VPC",
            "TrafficType": "ALL",
        }
    }
    assert of_kind(declared_resources, "AWS::Logs::LogGroup")["NetworkFlowLogs"] == {
        "RetentionInDays": days[environment.name],
        **log_encryption(environment),
    }
    assert allowed == [
        allow(["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"], "Arn(NetworkFlowLogs)")
    ]


def test_the_default_security_group_is_emptied_unless_declared_otherwise(
    by_environment: Mapping[str, list[Resource]],
) -> None:
    """A Lambda of CDK's does it. LocalStack here cannot run it, so the environment local declares otherwise."""
    emptied = {
        name: of_kind(by_environment[name], "Custom::VpcRestrictDefaultSG")
        for name in ("local", "dev", "staging", "prod", "full")
    }

    def by(account: str) -> dict[str, Any]:
        return {
            "NetworkVpcRestrictDefaultSecurityGroupCustomResource": {
                "ServiceToken": "Arn(CustomVpcRestrictDefaultSGCustomResourceProviderHandler)",
                "DefaultSecurityGroupId": "DefaultSecurityGroup(NetworkVpc)",
                "Account": account,
            }
        }

    assert emptied == {
        "local": {},
        "dev": by("<AWS::AccountId>"),
        "staging": by("<AWS::AccountId>"),
        "prod": by("<AWS::AccountId>"),
        "full": by("111122223333"),
    }
