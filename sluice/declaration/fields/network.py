"""Where the tasks run: a VPC of the environment's own, or somebody else's."""

import ipaddress
import re

from sluice import limits
from sluice.declaration.validation import between, checked, declared, matching

_SUBNET = r"subnet-[0-9a-f]{8,17}"


def _is_network(cidr: str) -> bool:
    try:
        prefix_length = ipaddress.IPv4Network(cidr).prefixlen
    except ValueError:
        return False
    return limits.VPC_PREFIX_LENGTH_MIN <= prefix_length <= 24 and cidr.endswith(f"/{prefix_length}")


@declared
class NewNetwork:
    """A VPC of its own: private subnets, no way to the internet, endpoints for the AWS services the tasks call.

    Args:
        cidr: its addresses.
        availability_zones: how many it spans. More can be declared later; fewer, only while nothing runs in them.
        restrict_default_security_group: take every rule from the VPC's default security group, which a Lambda does at
            deploy time.
    """

    cidr: str = checked(_is_network, "an IPv4 network from /16 to /24 such as '10.0.0.0/16'", default="10.0.0.0/16")
    availability_zones: int = between(1, limits.ZONES_MAX, "zones", default=2)
    restrict_default_security_group: bool = True


@declared
class ExistingNetwork:
    """A VPC somebody else looks after, endpoints or NAT included.

    Args:
        vpc_id: the VPC.
        subnet_ids: private subnets for the tasks, from which SQS, ECR, CloudWatch Logs and the database are reached.
    """

    vpc_id: str = matching(r"vpc-[0-9a-f]{8,17}", "a VPC id such as 'vpc-0a1b2c3d4e5f60718'")
    subnet_ids: tuple[str, ...] = checked(
        lambda seen: seen and len(set(seen)) == len(seen) and all(re.fullmatch(_SUBNET, id_) for id_ in seen),
        "one or more subnet ids such as 'subnet-0a1b2c3d4e5f60718', each once",
    )
