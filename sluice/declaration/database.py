"""The database of inbox and outbox: where its credentials are, and how tasks reach it."""

from sluice.declaration.validation import between, declared, matching


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
