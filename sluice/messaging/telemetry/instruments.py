"""Metrics of OpenTelemetry: the same measurements as for CloudWatch. Imported only if OpenTelemetry is installed.

The meter provider has the readers and exporters. The handlers' module sets it, as it does for traces.

https://opentelemetry.io/docs/specs/otel/metrics/api/ (read 2026-11-22).
"""

from collections.abc import Callable, Iterable, Mapping

from opentelemetry.metrics import Meter, get_meter

from sluice.declaration import metrics

_UNITS = {"Seconds": "s", "Count": "{count}"}
"""CloudWatch's unit to the unit of UCUM, which OpenTelemetry uses. A plain 1 would mean a ratio."""


def meter() -> Meter:
    """Return a meter of the process's meter provider, which may be set before or after this call."""
    return get_meter("sluice")


class InstrumentMetrics:
    """Gives measurements to OpenTelemetry: counted metrics to a counter, all others to a gauge.

    Args:
        dimensions: the attributes of each measurement, such as its consumer.
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
        """Add each value to its counter, or set its gauge, by the name of the metric."""
        for name, value in values.items():
            self._puts[name](value, self._attributes)
