"""Metrics for Prometheus to scrape. Imported only on request, with prometheus-client.

A scrape measures nothing and queries no database: it shows the last measurement of each gauge, and counters with the
sum of all measurements.

https://prometheus.io/docs/instrumenting/writing_clientlibs/ (read 2026-11-22).
"""

import threading
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sluice.clock import Clock
from sluice.declaration import metrics
from sluice.errors import ConfigError

_INTERVALS = 3
"""A gauge without a measurement for this many intervals is left out: its relay no longer leads."""


class PrometheusMetrics(Collector):
    """Keeps measurements until they are scraped, by any number of threads.

    Args:
        names: the names of all metrics; a counter begins at zero, because Prometheus would not notice its first count
            otherwise.
        dimensions: the labels of each metric, in lower case, such as its consumer.
    """

    def __init__(
        self, names: Iterable[str], dimensions: Mapping[str, str], *, interval_seconds: float, clock: Clock
    ) -> None:
        self._labels = {name.lower(): value for name, value in dimensions.items()}
        self._clock, self._stale_seconds = clock, _INTERVALS * interval_seconds
        self._lock = threading.Lock()
        self._counts = {name: 0.0 for name in names if name in metrics.COUNTED}
        self._gauges: dict[str, tuple[float, float]] = {}  # name to its value and the time of the measurement

    def put(self, values: Mapping[str, float]) -> None:
        """Add each value to its counter, or replace its gauge, by the name of the metric."""
        now = self._clock.monotonic()
        with self._lock:
            for name, value in values.items():
                if name in metrics.COUNTED:
                    self._counts[name] = self._counts.get(name, 0.0) + value
                else:
                    self._gauges[name] = (value, now)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics that a scrape shows; gauges without a recent measurement are left out."""
        earliest = self._clock.monotonic() - self._stale_seconds
        with self._lock:
            counts = dict(self._counts)
            gauges = {name: value for name, (value, put_at) in self._gauges.items() if put_at >= earliest}
        for name, value in counts.items():
            yield self._family(CounterMetricFamily, name, value)
        for name, value in gauges.items():
            yield self._family(GaugeMetricFamily, name, value)

    def _family[F: CounterMetricFamily | GaugeMetricFamily](self, kind: type[F], name: str, value: float) -> F:
        """Return one value as a metric of prometheus-client, with the labels."""
        help_text = f"{name} of CloudWatch's namespace {metrics.NAMESPACE}"
        family = kind(metrics.prometheus_name(name), help_text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family


def serve(collector: Collector, *, host: str, port: int) -> int:
    """Serve `/metrics` on a thread of its own until the process ends; return the port.

    Args:
        collector: the collector of the metrics to serve.
        host: the address to listen on.
        port: the port to listen on; 0 chooses a free one.

    Raises:
        ConfigError: the address or port cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, _ = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigError(
            f"--prometheus is {host}:{port} ({error.strerror or error}), allowed is an address of this machine with a"
            " port that is free"
        ) from error
    return int(server.server_port)
