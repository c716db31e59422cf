"""THE DECLARATION: the environments, and the consumers of each. This is the file a user edits.

Stacks, names, the alarms' thresholds, the contract tests' expectations and the load test's targets follow from it. To
add a consumer, add a `Consumer(...)`. Every field, with unit, default and effect, is in docs/architecture/stacks.md.
A wrong value is refused in one line.
"""

import os
from typing import Any

from sluice import limits
from sluice.declaration import Consumer, Encryption, Environment, NewDatabase, NewNetwork, Removal


def _consumers(**overrides: Any) -> tuple[Consumer, ...]:
    return tuple(
        Consumer(name=name, handlers=f"examples.services.{name}", **overrides)
        for name in ("billing", "shipping", "audit")
    )


_TABLES = ("python", "-m", "examples.services", "init")

ENVIRONMENTS = (
    Environment(
        name="local",
        account="000000000000",
        removal=Removal.DESTROY,
        image="sluice-worker:local",  # named only: LocalStack runs no task, and to build one takes Docker
        network=NewNetwork(restrict_default_security_group=False),  # its Lambda needs Docker in LocalStack
        database=NewDatabase(),
        migrate=_TABLES,
        consumers=_consumers(),
    ),
    Environment(
        name="dev",
        removal=Removal.DESTROY,
        database=NewDatabase(min_acus=0, max_acus=2, pause_after_seconds=1_800),
        migrate=_TABLES,
        log_retention_days=7,
        consumers=_consumers(min_tasks=0, max_tasks=2, acceptable_latency_seconds=1_200),
    ),
    Environment(
        name="staging",
        encryption=Encryption.CMK,
        database=NewDatabase(),
        migrate=_TABLES,
        silent=True,
        consumers=_consumers(),
    ),
    Environment(
        name="prod",
        image=os.environ.get("SLUICE_IMAGE") or None,  # what staging ran, by its digest; None builds it
        encryption=Encryption.CMK,
        archive_days=7,
        log_retention_days=90,
        alarm_emails=("operators@example.com",),  # yours: each address is asked once whether it wants them
        network=NewNetwork(availability_zones=3),
        database=NewDatabase(min_acus=1, max_acus=16, standby=True, backup_days=14),
        migrate=_TABLES,
        consumers=_consumers(message_retention_seconds=limits.MESSAGE_RETENTION_SECONDS_MAX, min_tasks=2, max_tasks=20),
    ),
)
