"""The metrics the runtime writes and the alarms read: names, units and dimensions, once."""

from sluice import naming
from sluice.declaration import Consumer, Environment

NAMESPACE = "Sluice"
OUTBOX_LAG = "OutboxLag"
OUTBOX_PENDING = "OutboxPending"
OUTBOX_QUARANTINED = "OutboxQuarantined"
OUTBOX_PUBLISHED = "OutboxPublished"

HANDLED, DUPLICATES, RETRIED = "InboxHandled", "InboxDuplicates", "InboxRetried"
DEAD, PARKED, LOST, NOT_DELETED = "InboxDead", "InboxParked", "InboxLost", "InboxNotDeleted"
OVERDUE = "InboxOverdue"
PARKED_GROUPS, PARKED_MESSAGES = "InboxParkedGroups", "InboxParkedMessages"
HELD_MESSAGES, OPEN_EXCEPTIONS = "InboxHeldMessages", "InboxOpenExceptions"
EVENTS = (HANDLED, DUPLICATES, RETRIED, DEAD, PARKED, LOST, NOT_DELETED, OVERDUE)
"""What a worker counts since it last wrote them."""

UNITS = {
    OUTBOX_LAG: "Seconds",
    OUTBOX_PENDING: "Count",
    OUTBOX_QUARANTINED: "Count",
    OUTBOX_PUBLISHED: "Count",
    **dict.fromkeys((*EVENTS, PARKED_GROUPS, PARKED_MESSAGES, HELD_MESSAGES, OPEN_EXCEPTIONS), "Count"),
}
"""Name to CloudWatch's unit."""

OUTBOX_INTERVAL_SECONDS = 30
"""How often the leading relay writes them; when it does not, nobody publishes."""


INBOX_INTERVAL_SECONDS = 60
"""How often each worker writes its own."""


def inbox_dimensions(environment: Environment, consumer: Consumer) -> dict[str, str]:
    """Return what a consumer's metrics are of: its queue. Of the gauges every worker of it writes the same."""
    return {"Queue": naming.queue_name(environment, consumer)}


def dimensions(environment: Environment) -> dict[str, str]:
    """Return what the outbox's metrics are of."""
    return {"Topic": naming.topic_name(environment)}
