"""The declaration of a verdict every hour: an outbox is compared with everything its consumers know."""

from sluice.declaration.fields.topics import RELAY_KEEP_DAYS
from sluice.declaration.validation import declaration_class, satisfying

HOUR_SECONDS = 3_600
_SETTLED_SECONDS, _KEPT_SECONDS = 60, RELAY_KEEP_DAYS * 86_400


def _is_in_flight(seen: int | None) -> bool:
    return seen is None or _SETTLED_SECONDS <= seen <= _KEPT_SECONDS - HOUR_SECONDS


@declaration_class
class Hourly:
    """Run `sluice outbox verify --old-only` every hour, for each topic that is published to, in a task of its own.

    The task may only read. It writes its verdict as metrics and as a line of its log, and an alarm rings for a loss.

    Args:
        in_flight_seconds: the longest time that a message may be on its way: a younger one is not judged. None is the
            longest `message_retention_seconds` of the environment's consumers.
    """

    in_flight_seconds: int | None = satisfying(
        _is_in_flight,
        f"{_SETTLED_SECONDS} to {_KEPT_SECONDS - HOUR_SECONDS} seconds, or None: relays delete sent messages after"
        f" {RELAY_KEEP_DAYS} days",
        default=None,
    )
