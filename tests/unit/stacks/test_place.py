"""An environment may stand in its own region and account, once, in several regions, in anybody's VPC."""

from dataclasses import replace

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Annotations, Match, Template
from constructs import Construct

from sluice.constructs.fan_out import Fanout
from sluice.constructs.network import Network
from sluice.declaration import Consumer, Environment, ExistingNetwork, NewNetwork, Removal
from sluice.errors import ConfigError
from sluice.stacks import MessagingStack, NetworkStack

SHOP = Environment(
    name="prod",
    application="shop",
    account="111122223333",
    region="eu-central-1",
    removal=Removal.DESTROY,
    network=NewNetwork(restrict_default_security_group=False),
    consumers=(Consumer(name="billing"),),
)
ELSEWHERE = {"region": "eu-west-1", "account": "444455556666"}
HERE = cdk.Environment(account=SHOP.account, region=SHOP.region)


@pytest.mark.parametrize("field", ["region", "account"])
@pytest.mark.parametrize("kind", [Fanout, Network])
def test_a_stack_of_another_region_or_account_is_refused(field: str, kind: type[Fanout | Network]) -> None:
    """A topic's policy would name the declared region, and no queue could be subscribed."""
    place = {"account": str(SHOP.account), "region": SHOP.region, field: ELSEWHERE[field]}
    stack = cdk.Stack(cdk.App(), "Shop", env=cdk.Environment(**place))

    with pytest.raises(ConfigError, match=rf"\.{field} is '.*', allowed is {ELSEWHERE[field]}, the {field} of stack"):
        kind(stack, "Sluice", environment=SHOP)


def test_a_stack_that_names_no_region_says_where_it_belongs() -> None:
    """`cdk synth --strict` ends with it."""
    stack = cdk.Stack(cdk.App(), "Shop")
    Fanout(stack, "Fanout", environment=SHOP)

    Annotations.from_stack(stack).has_warning("*", Match.string_like_regexp("names no region: deploy it to eu-cent"))


def test_the_same_names_twice_are_refused_and_in_another_region_are_not() -> None:
    """One application in two regions of one app: a stage or a construct around each."""
    app = cdk.App()
    for region in (SHOP.region, "eu-west-1"):
        environment = replace(SHOP, region=region)
        stage = cdk.Stage(app, region, env=cdk.Environment(account=SHOP.account, region=region))
        MessagingStack(stage, "Messaging", environment=environment, database=None)
        NetworkStack(stage, "Network", environment=environment)
    again = cdk.Stack(app, "Again", env=HERE)

    with pytest.raises(ConfigError, match=r"Fanout is in this app once, and there is eu-central-1/Messaging/Fanout"):
        Fanout(again, "Fanout", environment=SHOP)
    assert len(app.synth().nested_assemblies) == 2


def _in_vpc(scope: Construct, vpc: ec2.IVpc) -> Environment:
    subnets = tuple(subnet.subnet_id for subnet in vpc.private_subnets)
    return replace(SHOP, network=ExistingNetwork(vpc_id=vpc.vpc_id, subnet_ids=subnets))


def test_tasks_run_in_a_vpc_of_the_same_app() -> None:
    app = cdk.App()
    theirs, ours = cdk.Stack(app, "Theirs", env=HERE), cdk.Stack(app, "Ours", env=HERE)
    network = Network(ours, "Network", environment=_in_vpc(ours, ec2.Vpc(theirs, "Vpc", max_azs=2)))

    Template.from_stack(ours).has_resource_properties(
        "AWS::EC2::SecurityGroup", {"VpcId": {"Fn::ImportValue": Match.string_like_regexp("^Theirs:.*Vpc")}}
    )
    assert len(network.vpc.isolated_subnets) == 2


def test_tasks_run_in_a_vpc_that_is_looked_up() -> None:
    """Before the look-up CDK has placeholder ids, which no VPC has."""
    stack = cdk.Stack(cdk.App(), "Shop", env=HERE)

    network = Network(stack, "Network", environment=_in_vpc(stack, ec2.Vpc.from_lookup(stack, "Vpc", vpc_name="all")))

    assert network.vpc.vpc_id == "vpc-12345"


def test_more_outputs_than_a_stack_may_have_are_refused_with_their_number() -> None:
    """Four of each consumer, and CloudFormation would refuse them in the midst of a deployment."""
    many = replace(SHOP, consumers=tuple(Consumer(name=f"c{number}") for number in range(50)))

    with pytest.raises(
        ConfigError, match=r"50 consumers, with 204 outputs in stack shop-prod-messaging', allowed is as"
    ):
        MessagingStack(cdk.App(), "Messaging", environment=many, database=None)
