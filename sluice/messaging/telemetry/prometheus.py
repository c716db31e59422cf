"""Metrics as Prometheus scrapes them. Loaded only on request, with prometheus-client.

A scrape measures nothing, and asks no database: it shows the last measurement, and counters that add all of them up.
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
"""A gauge nobody measured for so many intervals is left out: its relay does not lead any more."""


class PrometheusMetrics(Collector):
    """Keeps what was measured until it is scraped, by any number of threads.

    Args:
        names: of all there may be; what is counted is zero from the start, or its first count would go unseen.
        dimensions: what they are of; labels in lower case.
    """

    def __init__(
        self, names: Iterable[str], dimensions: Mapping[str, str], *, interval_seconds: float, clock: Clock
    ) -> None:
        self._labels = {name.lower(): value for name, value in dimensions.items()}
        self._clock, self._stale_seconds = clock, _INTERVALS * interval_seconds
        self._lock = threading.Lock()
        self._counts = {name: 0.0 for name in names if name in metrics.COUNTED}
        self._gauges: dict[str, tuple[float, float]] = {}  # value, and when it was measured

    def put(self, values: Mapping[str, float]) -> None:
        """Add to what is counted, and replace the gauges."""
        now = self._clock.monotonic()
        with self._lock:
            for name, value in values.items():
                if name in metrics.COUNTED:
                    self._counts[name] = self._counts.get(name, 0.0) + value
                else:
                    self._gauges[name] = (value, now)

    def collect(self) -> Iterable[Metric]:
        """Return what a scrape shows."""
        earliest = self._clock.monotonic() - self._stale_seconds
        with self._lock:
            counts = dict(self._counts)
            gauges = {name: value for name, (value, put_at) in self._gauges.items() if put_at >= earliest}
        for name, value in counts.items():
            yield self._family(CounterMetricFamily, name, value)
        for name, value in gauges.items():
            yield self._family(GaugeMetricFamily, name, value)

    def _family[F: CounterMetricFamily | GaugeMetricFamily](self, kind: type[F], name: str, value: float) -> F:
        help_text = f"{name} of CloudWatch's namespace {metrics.NAMESPACE}"
        family = kind(metrics.prometheus_name(name), help_text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family


def serve(collector: Collector, *, host: str, port: int) -> int:
    """Serve `/metrics` on a thread of its own until the process ends; return the port.

    Args:
        collector: what is served.
        host: where to listen.
        port: 0 is any that is free.

    Raises:
        ConfigError: nothing can listen there.
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
