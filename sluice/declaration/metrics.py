"""Names, units and dimensions of the metrics that relays and workers write and alarms read."""

import re

from sluice.declaration import naming
from sluice.declaration.consumer import Consumer
from sluice.declaration.environment import Environment

NAMESPACE = "Sluice"
OUTBOX_LAG = "OutboxLag"
OUTBOX_PENDING = "OutboxPending"
OUTBOX_QUARANTINED = "OutboxQuarantined"
OUTBOX_PUBLISHED = "OutboxPublished"

OUTBOX_VERIFIED, OUTBOX_BROKEN, OUTBOX_UNKNOWN = "OutboxVerified", "OutboxBroken", "OutboxUnknown"

HANDLED, PASSED_OVER, DUPLICATES, RETRIED = "InboxHandled", "InboxPassedOver", "InboxDuplicates", "InboxRetried"
DEAD, PARKED, LOST, NOT_DELETED = "InboxDead", "InboxParked", "InboxLost", "InboxNotDeleted"
OVERDUE = "InboxOverdue"
PARKED_GROUPS, PARKED_MESSAGES = "InboxParkedGroups", "InboxParkedMessages"
HELD_MESSAGES, OPEN_EXCEPTIONS = "InboxHeldMessages", "InboxOpenExceptions"
REDRIVE_OFF, PAUSED = "InboxRedriveOff", "InboxPaused"
STUCK_PARTS = "WorkerStuckParts"
EVENTS = (HANDLED, PASSED_OVER, DUPLICATES, RETRIED, DEAD, PARKED, LOST, NOT_DELETED, OVERDUE)
"""Counters of a worker: events since it last wrote them."""
COUNTED = frozenset((*EVENTS, OUTBOX_PUBLISHED))
"""All counters, whose values are summed. All other metrics are gauges: a value at one moment."""
INBOX = (*EVENTS, PARKED_GROUPS, PARKED_MESSAGES, HELD_MESSAGES, OPEN_EXCEPTIONS, REDRIVE_OFF, PAUSED, STUCK_PARTS)
"""The metrics that a worker writes."""
OUTBOX = (OUTBOX_LAG, OUTBOX_PENDING, OUTBOX_QUARANTINED, OUTBOX_PUBLISHED)
"""The metrics that a relay writes while it leads."""
VERDICT = (OUTBOX_VERIFIED, OUTBOX_BROKEN, OUTBOX_UNKNOWN)
"""The metrics of the verdict of every hour: messages that were judged, violations, properties that are unknown."""
UNITS = dict.fromkeys((*OUTBOX, *INBOX, *VERDICT), "Count") | {OUTBOX_LAG: "Seconds"}
"""CloudWatch's unit of each metric."""
OUTBOX_INTERVAL_SECONDS = 30
"""Seconds after which the leading relay writes its metrics again. When it stops, nobody publishes."""
INBOX_INTERVAL_SECONDS = 60
"""Seconds after which a worker writes its metrics again."""


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
    """Return a metric's name without its first word, in lower case: InboxNotDeleted is not_deleted."""
    return "_".join(_words(name)[1:])


def _words(name: str) -> list[str]:
    """Return the words of a name in CamelCase, in lower case."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower().split()


def inbox_dimensions(environment: Environment, consumer: Consumer) -> dict[str, str]:
    """Return the dimensions of a consumer's metrics: its queue. Each of its workers writes the same gauges."""
    return {"Queue": naming.queue_name(environment, consumer)}


def dimensions(environment: Environment, topic: str | None = None) -> dict[str, str]:
    """Return the dimensions of an outbox's metrics: the topic of this declared name; None is the first."""
    return {"Topic": naming.topic_name(environment, topic)}
