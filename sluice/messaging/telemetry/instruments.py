"""Metrics of OpenTelemetry: the measurements that are written for CloudWatch. Loaded where OpenTelemetry is.

Readers and exporters are the meter provider's, which the handlers' module sets, as it does for traces.
https://opentelemetry.io/docs/specs/otel/metrics/api/ (read 2026-11-22).
"""

from collections.abc import Callable, Iterable, Mapping

from opentelemetry.metrics import Meter, get_meter

from sluice.declaration import metrics

_UNITS = {"Seconds": "s", "Count": "{count}"}
"""CloudWatch's unit to that of UCUM. A plain 1 would be a ratio to an exporter."""


def meter() -> Meter:
    """Return the meter of the process's provider, of the one that is set now or later."""
    return get_meter("sluice")


class InstrumentMetrics:
    """Hands measurements to instruments: a counter for what is counted, a gauge for all else.

    Args:
        dimensions: what they are of; the attributes of each measurement.
    """

    def __init__(self, meter: Meter, names: Iterable[str], dimensions: Mapping[str, str]) -> None:
        self._attributes = dict(dimensions)
        self._puts: dict[str, Callable[[float, Mapping[str, str]], None]] = {}
        for name in names:
            described = (metrics.opentelemetry_name(name), _UNITS[metrics.UNITS[name]])
            is_counted = name in metrics.COUNTED
            self._puts[name] = (
                meter.create_counter(*described).add if is_counted else meter.create_gauge(*described).set
            )

    def put(self, values: Mapping[str, float]) -> None:
        """Add to the counters, and set the gauges."""
        for name, value in values.items():
            self._puts[name](value, self._attributes)
