"""Traces, behind one small protocol; off unless asked for, and then nothing of OpenTelemetry is imported.

A producer puts its span into the event: `Event(…, trace=current_trace())`. It is stored with the event, and travels in
the body: message attributes are not safe from whoever instruments botocore, which writes the relay's span there.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from sluice.errors import ConfigError
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import Context, Outcome

type Told = Callable[[Outcome], None]
"""Is told how it went."""


class Tracing(Protocol):
    """Takes what was handled."""

    def handling(self, event: Event, context: Context) -> AbstractContextManager[Told]:
        """Return the block in which an event is handled and committed; what it gives is told the outcome."""


class NoTracing:
    """Traces nothing."""

    def handling(self, event: Event, context: Context) -> AbstractContextManager[Told]:  # noqa: ARG002 (the protocol's)
        """Do nothing."""
        return _NOTHING


def current_trace() -> dict[str, str]:
    """Return the current span as W3C headers, for an event's `trace`; empty where there is none."""
    if "opentelemetry.trace" not in sys.modules:  # then nobody has a span
        return {}
    from sluice.messaging.telemetry import spans  # noqa: PLC0415 (only where OpenTelemetry is)

    return spans.current()


def opentelemetry(*, queue_name: str) -> Tracing:
    """Return what makes a span of each event handled, for the tracer provider that is set, now or later.

    Args:
        queue_name: where the events come from.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    try:
        from sluice.messaging.telemetry import spans  # noqa: PLC0415 (only where OpenTelemetry is)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"tracing is asked for, and there is no module {error.name}; pip install opentelemetry-sdk, or do not ask"
        ) from error
    return spans.OpenTelemetry(spans.tracer(), queue_name)


def _untold(_: Outcome) -> None:
    pass


_NOTHING = nullcontext(_untold)
