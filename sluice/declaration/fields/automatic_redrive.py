"""The declaration of automatic redrive: the bounds within which dead letters are brought back without an operator."""

from sluice.declaration.validation import between, declaration_class, satisfying
from sluice.limits import ALARM_SECONDS_MAX

_MINUTE_SECONDS, _HOUR_SECONDS = 60, 3_600


@declaration_class
class AutomaticRedrive:
    """Bring dead letters back once the DLQ has held some for a while; never what its handler refused.

    A message that dies again switches it off for the consumer, until `sluice dlq automatic-on`.

    Args:
        quiet_seconds: how long the DLQ holds messages before a run begins: what made them fail has this time to pass.
        messages_max: messages that one run brings back at most.
        attempts_max: times that one message is brought back at most, over all runs.
    """

    quiet_seconds: int = satisfying(
        lambda seen: seen % _MINUTE_SECONDS == 0 and _MINUTE_SECONDS <= seen <= ALARM_SECONDS_MAX,
        f"whole minutes from {_MINUTE_SECONDS} to {ALARM_SECONDS_MAX} seconds",
        default=300,
    )
    messages_max: int = between(1, 10_000, "messages", default=100)
    attempts_max: int = between(1, 10, "times", default=1)

    @property
    def quiet_minutes(self) -> int:
        """Return `quiet_seconds` in minutes, as the alarm that begins a run needs it."""
        return self.quiet_seconds // _MINUTE_SECONDS

    @property
    def repeat_minutes(self) -> int:
        """Return after how many minutes a schedule begins a further run.

        The alarm begins only the first run. The schedule is for messages that this run left, or that died later.
        """
        return max(self.quiet_seconds, _HOUR_SECONDS) // _MINUTE_SECONDS
