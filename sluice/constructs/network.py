"""The network of the tasks: a new VPC with private subnets and no way to the internet, or an existing VPC."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from sluice.constructs.endpoints import AllowedCalls, let_through
from sluice.constructs.logs import log_group, log_key
from sluice.constructs.place import require_place
from sluice.declaration import Environment, ExistingDatabase, ExistingNetwork, NewNetwork
from sluice.declaration.arguments import check_argument_types

_HTTPS = 443


def closed_group(scope: Construct, id_: str, vpc: ec2.IVpc, description: str) -> ec2.SecurityGroup:
    """Make a security group without rules: it allows no traffic in or out."""
    return ec2.SecurityGroup(scope, id_, vpc=vpc, description=description, allow_all_outbound=False)


class Network(Construct):
    """The tasks' network: a VPC and subnets, new or existing, security groups of tasks and producers, the logs' key.

    The producers' security group is made where there is a database. A service with this group reaches the database,
    Secrets Manager and the other endpoints.

    A new VPC has neither NAT nor internet gateway. Its tasks call AWS through endpoints, which only tasks and producers
    can use, and only for this environment's resources. An existing VPC is left to its owner.
    AWS: https://docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html (read 2026-11-21).
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        self.environment = environment
        require_place(self, environment)
        declared = environment.network
        self.log_key = log_key(self, "LogKey", environment=environment)
        if isinstance(declared, ExistingNetwork):
            self.vpc: ec2.IVpc = ec2.Vpc.from_vpc_attributes(
                self,
                "Vpc",
                vpc_id=declared.vpc_id,
                # CDK wants a zone for each subnet; the names are not written into the template.
                availability_zones=[f"zone-{number}" for number, _ in enumerate(declared.subnet_ids, start=1)],
                isolated_subnet_ids=list(declared.subnet_ids),
            )
            for subnet in self.vpc.isolated_subnets:
                cdk.Annotations.of(subnet).acknowledge_warning(
                    "@aws-cdk/aws-ec2:noSubnetRouteTableId", "nobody adds a route here"
                )
        else:
            self.vpc = self._new_vpc(declared, environment=environment)
        self.subnets = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
        self.security_group = closed_group(
            self, "Tasks", self.vpc, "Sluice tasks: nobody calls them; they call AWS and the database"
        )
        self.security_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(_HTTPS), "AWS services")
        self.producers = None if environment.database is None else self._producers()
        if isinstance(environment.database, ExistingDatabase):
            group = ec2.SecurityGroup.from_security_group_id(self, "Database", environment.database.security_group_id)
            self.let_into_database(self, group, environment.database.port)
        if isinstance(declared, NewNetwork):
            self._add_endpoints(environment, declared)

    def let_into_database(self, scope: Construct, database: ec2.ISecurityGroup, port: int) -> None:
        """Allow tasks and producers to connect to a database, by rules that are made in `scope`."""
        for id_, (group, description) in self._clients().items():
            ec2.CfnSecurityGroupEgress(
                scope,
                f"{id_}ToDatabase",
                group_id=group.security_group_id,
                destination_security_group_id=database.security_group_id,
                ip_protocol="tcp",
                from_port=port,
                to_port=port,
                description="the database",
            )
            ec2.CfnSecurityGroupIngress(
                scope,
                f"DatabaseFrom{id_}",
                group_id=database.security_group_id,
                source_security_group_id=group.security_group_id,
                ip_protocol="tcp",
                from_port=port,
                to_port=port,
                description=description,
            )

    def _clients(self) -> dict[str, tuple[ec2.SecurityGroup, str]]:
        """Return the security groups that may call endpoints and database, each with a description, by construct id."""
        clients = {"Tasks": (self.security_group, "Sluice tasks")}
        return clients if self.producers is None else {**clients, "Producers": (self.producers, "Sluice producers")}

    def _producers(self) -> ec2.SecurityGroup:
        """Make the security group for producers."""
        group = closed_group(self, "Producers", self.vpc, "Sluice producers: what joins it reaches the database")
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(_HTTPS), "AWS services")
        return group

    def _new_vpc(self, declared: NewNetwork, *, environment: Environment) -> ec2.Vpc:
        """Make the VPC with its private subnets and its flow log."""
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(declared.cidr),
            max_azs=declared.availability_zones,
            # Addresses are reserved for zones that are declared later, so that no subnet's addresses change then.
            reserved_azs=declared.availability_zones_max - declared.availability_zones,
            nat_gateways=0,
            subnet_configuration=[ec2.SubnetConfiguration(name="Tasks", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)],
            restrict_default_security_group=declared.restrict_default_security_group,
        )
        flow_logs = log_group(self, "FlowLogs", environment=environment, key=self.log_key)
        vpc.add_flow_log("FlowLog", destination=ec2.FlowLogDestination.to_cloud_watch_logs(flow_logs))
        return vpc

    def _add_endpoints(self, environment: Environment, declared: NewNetwork) -> None:
        """Make the endpoints of the AWS services that tasks call, with their security group and policies."""
        known = ec2.InterfaceVpcEndpointAwsService
        services = {
            "Sqs": (known.SQS, "sqs"),
            "EcrApi": (known.ECR, "ecr"),
            "EcrDocker": (known.ECR_DOCKER, "ecr"),
            "Logs": (known.CLOUDWATCH_LOGS, "logs"),
        }
        if environment.database is not None:
            services["SecretsManager"] = (known.SECRETS_MANAGER, "secretsmanager")
        if environment.has_relay:
            services["Sns"] = (known.SNS, "sns")
        endpoints = closed_group(self, "Endpoints", self.vpc, "Sluice endpoints: the tasks call them")
        for group, description in self._clients().values():
            endpoints.add_ingress_rule(group, ec2.Port.tcp(_HTTPS), description)
        allowed = let_through(environment, declared, account=cdk.Stack.of(self).account)
        for id_, (service, name) in services.items():
            endpoint = self.vpc.add_interface_endpoint(
                id_, service=service, subnets=self.subnets, security_groups=[endpoints], open=False
            )
            _limit(endpoint, allowed[name])
        # ECR keeps its layers in S3.
        _limit(self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3), allowed["s3"])


def _limit(endpoint: ec2.VpcEndpoint, allowed: Sequence[AllowedCalls]) -> None:
    """Give an endpoint a policy that allows these calls and no others."""
    for actions, resources in allowed:
        endpoint.add_to_policy(
            iam.PolicyStatement(principals=[iam.AnyPrincipal()], actions=list(actions), resources=resources)
        )
