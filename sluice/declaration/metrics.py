"""The metrics the runtime writes and the alarms read: names, units and dimensions, once."""

import re

from sluice.declaration import naming
from sluice.declaration.consumer import Consumer
from sluice.declaration.environment import Environment

NAMESPACE = "Sluice"
OUTBOX_LAG = "OutboxLag"
OUTBOX_PENDING = "OutboxPending"
OUTBOX_QUARANTINED = "OutboxQuarantined"
OUTBOX_PUBLISHED = "OutboxPublished"

HANDLED, PASSED_OVER, DUPLICATES, RETRIED = "InboxHandled", "InboxPassedOver", "InboxDuplicates", "InboxRetried"
DEAD, PARKED, LOST, NOT_DELETED = "InboxDead", "InboxParked", "InboxLost", "InboxNotDeleted"
OVERDUE = "InboxOverdue"
PARKED_GROUPS, PARKED_MESSAGES = "InboxParkedGroups", "InboxParkedMessages"
HELD_MESSAGES, OPEN_EXCEPTIONS = "InboxHeldMessages", "InboxOpenExceptions"
REDRIVE_OFF = "InboxRedriveOff"
STUCK_PARTS = "WorkerStuckParts"
EVENTS = (HANDLED, PASSED_OVER, DUPLICATES, RETRIED, DEAD, PARKED, LOST, NOT_DELETED, OVERDUE)
"""What a worker counts since it last wrote them."""

COUNTED = frozenset((*EVENTS, OUTBOX_PUBLISHED))
"""What is counted since it was last written, and is summed; all else is a gauge, what is at one moment."""

INBOX = (*EVENTS, PARKED_GROUPS, PARKED_MESSAGES, HELD_MESSAGES, OPEN_EXCEPTIONS, REDRIVE_OFF, STUCK_PARTS)
"""What a worker writes."""

OUTBOX = (OUTBOX_LAG, OUTBOX_PENDING, OUTBOX_QUARANTINED, OUTBOX_PUBLISHED)
"""What a relay writes while it leads."""

UNITS = dict.fromkeys((*OUTBOX, *INBOX), "Count") | {OUTBOX_LAG: "Seconds"}
"""Name to CloudWatch's unit."""

OUTBOX_INTERVAL_SECONDS = 30
"""How often the leading relay writes them; when it does not, nobody publishes."""

INBOX_INTERVAL_SECONDS = 60
"""How often each worker writes its own."""


def prometheus_name(name: str) -> str:
    """Return a metric's name in Prometheus: InboxHandled is sluice_inbox_handled_total.

    Conventions: https://prometheus.io/docs/practices/naming/ (read 2026-11-22).
    """
    unit = "_seconds" if UNITS[name] == "Seconds" else ""
    return f"sluice_{'_'.join(_words(name))}{unit}{'_total' if name in COUNTED else ''}"


def opentelemetry_name(name: str) -> str:
    """Return a metric's name in OpenTelemetry, in lower case: InboxParkedGroups is sluice.inbox.parked_groups.

    An exporter to Prometheus makes the same name of it as `prometheus_name`. Conventions:
    https://opentelemetry.io/docs/specs/semconv/general/naming/ (read 2026-11-22).
    """
    return f"sluice.{_words(name)[0]}.{short_name(name)}"


def short_name(name: str) -> str:
    """Return a metric's name without the part it is of, in lower case: InboxNotDeleted is not_deleted."""
    return "_".join(_words(name)[1:])


def _words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower().split()


def inbox_dimensions(environment: Environment, consumer: Consumer) -> dict[str, str]:
    """Return what a consumer's metrics are of: its queue. Of the gauges every worker of it writes the same."""
    return {"Queue": naming.queue_name(environment, consumer)}


def dimensions(environment: Environment, topic: str | None = None) -> dict[str, str]:
    """Return what the outbox's metrics are of: a topic, by its declared name, without one the first."""
    return {"Topic": naming.topic_name(environment, topic)}
