"""The declaration of the network of the tasks: a VPC that the stacks make, or an existing one."""

import ipaddress
import re

from sluice import limits
from sluice.declaration.validation import PENDING, between, declaration_class, matching, require, satisfying

_SUBNET = rf"subnet-[0-9a-f]{{8,17}}|[sp]-[0-9]{{5}}|{PENDING}"
_ENDPOINTS = ("sqs", "sns", "ecr", "logs", "secretsmanager", "s3")
_RESOURCE = rf"arn:aws:({'|'.join(_ENDPOINTS)}):[a-z0-9-]*:[0-9]*:.+"


def _is_network(cidr: str) -> bool:
    """Return whether a text is an IPv4 network of a size from /16 to /24, with its prefix length written out."""
    try:
        prefix_length = ipaddress.IPv4Network(cidr).prefixlen
    except ValueError:
        return False
    return limits.VPC_PREFIX_LENGTH_MIN <= prefix_length <= 24 and cidr.endswith(f"/{prefix_length}")


@declaration_class
class NewNetwork:
    """A VPC of its own: private subnets, no way to the internet, endpoints for the AWS services the tasks call.

    Args:
        cidr: its addresses.
        availability_zones: how many it spans. More can be declared later; fewer, only while nothing runs in them.
        availability_zones_max: how many its addresses are divided among, for good: with another number each subnet
            would be another. One that was deployed by a version without this option has as many as it spans.
        producer_resources: ARNs, `*` in them included, of what your own services in this network reach through its
            endpoints besides: their queues, topics, log groups, repositories, secrets and buckets. The endpoints let
            nothing else through.
        restrict_default_security_group: take every rule from the VPC's default security group, which a Lambda does at
            deploy time.
    """

    cidr: str = satisfying(_is_network, "an IPv4 network from /16 to /24 such as '10.0.0.0/16'", default="10.0.0.0/16")
    availability_zones: int = between(1, limits.ZONES_MAX, "zones", default=2)
    availability_zones_max: int = between(1, limits.ZONES_MAX, "zones", default=limits.ZONES_MAX)
    restrict_default_security_group: bool = True
    producer_resources: tuple[str, ...] = satisfying(
        lambda seen: all(re.fullmatch(_RESOURCE, arn) for arn in seen),
        f"ARNs of {', '.join(_ENDPOINTS)}, such as 'arn:aws:logs:eu-central-1:111122223333:log-group:/ecs/shop*'",
        default=(),
    )

    def __post_init__(self) -> None:
        require(
            self,
            self.availability_zones <= self.availability_zones_max,
            field="availability_zones",
            allowed=f"at most availability_zones_max, {self.availability_zones_max}",
        )


@declaration_class
class ExistingNetwork:
    """A VPC somebody else looks after, endpoints or NAT included.

    Args:
        vpc_id: the VPC; of one of the same app, or from `Vpc.from_lookup`, its `vpc_id`.
        subnet_ids: private subnets for the tasks, from which SQS, ECR, CloudWatch Logs and the database are reached.
    """

    vpc_id: str = matching(rf"vpc-([0-9a-f]{{8,17}}|[0-9]{{5}})|{PENDING}", "a VPC id such as 'vpc-0a1b2c3d4e5f60718'")
    subnet_ids: tuple[str, ...] = satisfying(
        lambda seen: seen and len(set(seen)) == len(seen) and all(re.fullmatch(_SUBNET, id_) for id_ in seen),
        "one or more subnet ids such as 'subnet-0a1b2c3d4e5f60718', each once",
    )
