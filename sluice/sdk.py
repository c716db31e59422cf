"""How clients of AWS are configured: each with its timeouts, and tried once unless something else is said.

AWS's own default is to retry by itself, which a caller that counts attempts cannot see.
"""

from botocore.config import Config

RECORD_FOLDER = "SLUICE_RECORD"
"""The variable by which a program knows that each boto3 client it makes is recorded."""
CONNECT_SECONDS = 4
"""A connection that took longer has failed; a client that waits less for an answer waits less for this, too."""


def config(
    *, answer_seconds: float = 10, connect_seconds: float = CONNECT_SECONDS, tries: int = 1, connections: int = 10
) -> Config:
    """Return the configuration of a client."""
    return Config(
        connect_timeout=min(connect_seconds, answer_seconds),
        read_timeout=answer_seconds,
        retries={"total_max_attempts": tries},
        max_pool_connections=connections,
    )
