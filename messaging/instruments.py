"""Metrics of OpenTelemetry: what is written for CloudWatch, under the same names. Loaded where OpenTelemetry is.

Readers and exporters are the meter provider's, which the handlers' module sets, as it does for traces.
https://opentelemetry.io/docs/specs/otel/metrics/api/ (read 2026-11-22).
"""

from collections.abc import Iterable, Mapping

from opentelemetry.metrics import Meter, get_meter

from sluice import metrics

_UNITS = {"Seconds": "s", "Count": "1"}
"""CloudWatch's unit to that of UCUM."""


def meter() -> Meter:
    """Return the meter of the process's provider, of the one that is set now or later."""
    return get_meter("sluice")


class InstrumentMetrics:
    """Hands measurements to instruments: a counter for what is counted, a gauge for all else.

    Args:
        meter: makes them.
        names: of all there may be.
        dimensions: what they are of; the attributes of each measurement.
    """

    def __init__(self, meter: Meter, names: Iterable[str], dimensions: Mapping[str, str]) -> None:
        self._attributes = dict(dimensions)
        by_kind: tuple[list[str], list[str]] = ([], [])
        for name in names:
            by_kind[name not in metrics.COUNTED].append(name)
        counted, gauges = by_kind
        self._counters = {name: meter.create_counter(name, unit=_UNITS[metrics.UNITS[name]]) for name in counted}
        self._gauges = {name: meter.create_gauge(name, unit=_UNITS[metrics.UNITS[name]]) for name in gauges}

    def put(self, values: Mapping[str, float]) -> None:
        """Add to the counters, and set the gauges."""
        for name, value in values.items():
            if name in self._counters:
                self._counters[name].add(value, self._attributes)
            else:
                self._gauges[name].set(value, self._attributes)
