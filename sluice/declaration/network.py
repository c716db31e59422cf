"""Where the tasks run: a VPC of the environment's own, or somebody else's; and the database they reach there."""

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
        availability_zones: how many it spans.
        restrict_default_security_group: take every rule from the VPC's default security group, which a Lambda does at
            deploy time.
    """

    cidr: str = checked(_is_network, "an IPv4 network from /16 to /24 such as '10.0.0.0/16'", default="10.0.0.0/16")
    availability_zones: int = between(1, 3, "zones", default=2)
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


@declared
class Database:
    """The database that holds the inbox and the outbox, in the tasks' VPC.

    Args:
        secret_arn: whole ARN of the Secrets Manager secret with its credentials, in the environment's region. One of
            another account takes a key of that account's own.
        security_group_id: the database's security group; the tasks are let in.
        port: where it listens.
        secret_key_arn: the KMS key the secret is encrypted with, in the same region and any account; None means the
            account's aws/secretsmanager.
    """

    secret_arn: str = matching(
        r"arn:aws:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+-[A-Za-z0-9]{6}",
        "the whole ARN of a Secrets Manager secret, with the six characters AWS appends to its name:"
        " '…:secret:NAME-AbCdEf'",
    )
    security_group_id: str = matching(r"sg-[0-9a-f]{8,17}", "a security group id such as 'sg-0a1b2c3d4e5f60718'")
    port: int = between(1, 65_535, default=5432)
    secret_key_arn: str | None = matching(
        r"arn:aws:kms:[a-z0-9-]+:[0-9]{12}:key/(mrk-)?[0-9a-f-]+", "the whole ARN of a KMS key, or None", default=None
    )
