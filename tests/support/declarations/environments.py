"""The declaration all tests run on, frozen: the project's own may be edited, and breaks none of them."""

from typing import Any

from sluice import limits
from sluice.declaration import Consumer, Encryption, Environment, NewDatabase, NewNetwork, Removal


def _consumers(**overrides: Any) -> tuple[Consumer, ...]:
    return tuple(
        Consumer(name=name, handlers=f"examples.services.{name}", **overrides)
        for name in ("billing", "shipping", "audit")
    )


ENVIRONMENTS = (
    Environment(
        name="local",
        account="000000000000",
        removal=Removal.DESTROY,
        image="sluice-worker:local",  # named only: LocalStack runs no task, and to build one takes Docker
        network=NewNetwork(restrict_default_security_group=False),  # takes a Lambda, and LocalStack's take Docker
        database=NewDatabase(),
        consumers=_consumers(),
    ),
    Environment(
        name="dev",
        removal=Removal.DESTROY,
        database=NewDatabase(min_acus=0, max_acus=2, pause_after_seconds=1_800),
        log_retention_days=7,
        consumers=_consumers(min_tasks=0, max_tasks=2, acceptable_latency_seconds=1_200),
    ),
    Environment(name="staging", encryption=Encryption.CMK, database=NewDatabase(), silent=True, consumers=_consumers()),
    Environment(
        name="prod",
        encryption=Encryption.CMK,
        archive_days=7,
        log_retention_days=90,
        silent=True,
        network=NewNetwork(availability_zones=3),
        database=NewDatabase(min_acus=1, max_acus=16, standby=True, backup_days=14),
        consumers=_consumers(message_retention_seconds=limits.MESSAGE_RETENTION_SECONDS_MAX, min_tasks=2, max_tasks=20),
    ),
)
