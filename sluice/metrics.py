"""The metrics the runtime writes and the alarms read: names, units and dimensions, once."""

from sluice import naming
from sluice.declaration import Environment

NAMESPACE = "Sluice"
OUTBOX_LAG = "OutboxLag"
OUTBOX_PENDING = "OutboxPending"
OUTBOX_QUARANTINED = "OutboxQuarantined"
OUTBOX_PUBLISHED = "OutboxPublished"

UNITS = {OUTBOX_LAG: "Seconds", OUTBOX_PENDING: "Count", OUTBOX_QUARANTINED: "Count", OUTBOX_PUBLISHED: "Count"}
"""Name to CloudWatch's unit."""

OUTBOX_INTERVAL_SECONDS = 30
"""How often the leading relay writes them; when it does not, nobody publishes."""


def dimensions(environment: Environment) -> dict[str, str]:
    """Return what the outbox's metrics are of."""
    return {"Topic": naming.topic_name(environment)}
