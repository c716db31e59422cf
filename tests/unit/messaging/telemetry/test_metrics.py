"""Metrics as lines of the log, as OpenTelemetry's instruments, and as Prometheus scrapes them."""

import io
import json
import socket
import sys
from collections.abc import Iterator, Mapping
from urllib.request import urlopen

import click
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from sluice.cli import options
from sluice.cli.services import running
from sluice.clock import VirtualClock
from sluice.declaration import metrics
from sluice.errors import ConfigError
from sluice.messaging.telemetry.instruments import InstrumentMetrics
from sluice.messaging.telemetry.metrics import EmbeddedMetrics, EveryMetrics, WorkerMetrics, WorkerTally
from sluice.messaging.telemetry.prometheus import PrometheusMetrics, serve
from tests.support.messaging.recorded_metrics import RecordedMetrics

QUEUE = {"Queue": "sluice-local-billing.fifo"}


def test_a_measurement_is_one_line_in_cloudwatchs_embedded_metric_format() -> None:
    """As AWS specifies it: milliseconds, one set of dimensions, all values and dimensions at the root."""
    stream = io.StringIO()
    clock = VirtualClock(1_767_225_600_123_456)
    written = EmbeddedMetrics(stream, {"Topic": "events.fifo"}, clock=clock)

    written.put({metrics.OUTBOX_LAG: 1.5, metrics.OUTBOX_PENDING: 2})
    written.put({metrics.OUTBOX_PUBLISHED: 7})

    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first == {
        "_aws": {
            "Timestamp": 1_767_225_600_123,
            "CloudWatchMetrics": [
                {
                    "Namespace": "Sluice",
                    "Dimensions": [["Topic"]],
                    "Metrics": [
                        {"Name": "OutboxLag", "Unit": "Seconds"},
                        {"Name": "OutboxPending", "Unit": "Count"},
                    ],
                }
            ],
        },
        "Topic": "events.fifo",
        "OutboxLag": 1.5,
        "OutboxPending": 2,
    }
    assert second["_aws"]["CloudWatchMetrics"][0]["Metrics"] == [{"Name": "OutboxPublished", "Unit": "Count"}]
    assert second["OutboxPublished"] == 7


class BrokenSink:
    """A sink whose pipe is closed."""

    def put(self, _: Mapping[str, float]) -> None:
        raise BrokenPipeError(32, "Broken\npipe")


def test_a_failing_sink_loses_no_measurement_of_another() -> None:
    first, last = RecordedMetrics(), RecordedMetrics()
    with capture_logs() as logged:
        EveryMetrics([first, BrokenSink(), last]).put({metrics.HANDLED: 3})

    assert first == last == [{"InboxHandled": 3}]
    assert logged == [
        {
            "event": "a measurement was lost",
            "log_level": "warning",
            "hook": "BrokenSink",
            "error": "BrokenPipeError: [Errno 32] Broken\\npipe",
        }
    ]


class NoGauges:
    """Gauges of an idle worker, all 0."""

    def inbox_counts(self) -> Mapping[str, int]:
        names = ("parked_groups", "parked_messages", "held_messages", "open_exceptions", "redrive_off", "paused")
        return dict.fromkeys(names, 0)

    def stuck_count(self) -> int:
        return 0


def test_a_worker_that_ends_logs_what_it_did_since_it_began() -> None:
    """Somebody who tries a worker for the first time does not look at its metrics."""
    clock = VirtualClock()
    measured = WorkerMetrics(RecordedMetrics(), clock)
    measured.add(metrics.HANDLED, 2)
    clock.sleep(metrics.INBOX_INTERVAL_SECONDS)
    measured.tick(NoGauges())
    measured.add(metrics.HANDLED)
    measured.add(metrics.NOT_DELETED)
    with capture_logs() as logged:
        measured.after_end()

    assert logged == [{"event": "worked on", "log_level": "info", "handled": 3, "not_deleted": 1}]


def scrape(collector: PrometheusMetrics) -> list[str]:
    """Return the lines that Prometheus reads, without comments."""
    registry = CollectorRegistry()
    registry.register(collector)
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


@pytest.fixture
def clock() -> VirtualClock:
    """Return the clock that the test moves."""
    return VirtualClock()


@pytest.fixture
def collector(clock: VirtualClock) -> PrometheusMetrics:
    """Return a sink that collects a worker's measurements, which are taken each minute."""
    return PrometheusMetrics((metrics.HANDLED, metrics.PARKED_GROUPS), QUEUE, interval_seconds=60, clock=clock)


def test_prometheus_counters_have_the_sum_since_the_start(collector: PrometheusMetrics) -> None:
    """The worker measures 2, 0 and 3 since the last minute; a gauge has its last value."""
    tally = WorkerTally()
    before = scrape(collector)
    for times, parked in ((2, 5.0), (0, 4.0), (3, 1.0)):
        for _ in range(times):
            tally.add(metrics.HANDLED)
        counted = {metrics.HANDLED: tally.take()[metrics.HANDLED]}
        collector.put({**counted, metrics.PARKED_GROUPS: parked})

    label = '{queue="sluice-local-billing.fifo"}'
    assert before == [f"sluice_inbox_handled_total{label} 0.0"]
    assert scrape(collector) == [
        f"sluice_inbox_handled_total{label} 5.0",
        f"sluice_inbox_parked_groups{label} 1.0",
    ]


def test_a_gauge_nobody_measures_any_more_is_left_out(collector: PrometheusMetrics, clock: VirtualClock) -> None:
    """A relay that no longer leads has no lag; its counters stay."""
    collector.put({metrics.HANDLED: 1, metrics.PARKED_GROUPS: 4})
    clock.sleep(180)
    still = len(scrape(collector))
    clock.sleep(1)

    assert still == 2
    assert [line.partition("{")[0] for line in scrape(collector)] == ["sluice_inbox_handled_total"]


def test_every_metric_has_a_name_in_prometheus() -> None:
    """A table by hand, because dashboards of users depend on the names."""
    assert {name: metrics.prometheus_name(name) for name in metrics.UNITS} == {
        "OutboxLag": "sluice_outbox_lag_seconds",
        "OutboxPending": "sluice_outbox_pending",
        "OutboxQuarantined": "sluice_outbox_quarantined",
        "OutboxPublished": "sluice_outbox_published_total",
        "OutboxVerified": "sluice_outbox_verified",
        "OutboxBroken": "sluice_outbox_broken",
        "OutboxUnknown": "sluice_outbox_unknown",
        "InboxHandled": "sluice_inbox_handled_total",
        "InboxPassedOver": "sluice_inbox_passed_over_total",
        "InboxDuplicates": "sluice_inbox_duplicates_total",
        "InboxRetried": "sluice_inbox_retried_total",
        "InboxDead": "sluice_inbox_dead_total",
        "InboxParked": "sluice_inbox_parked_total",
        "InboxLost": "sluice_inbox_lost_total",
        "InboxNotDeleted": "sluice_inbox_not_deleted_total",
        "InboxOverdue": "sluice_inbox_overdue_total",
        "InboxParkedGroups": "sluice_inbox_parked_groups",
        "InboxParkedMessages": "sluice_inbox_parked_messages",
        "InboxHeldMessages": "sluice_inbox_held_messages",
        "InboxOpenExceptions": "sluice_inbox_open_exceptions",
        "InboxRedriveOff": "sluice_inbox_redrive_off",
        "InboxPaused": "sluice_inbox_paused",
        "WorkerStuckParts": "sluice_worker_stuck_parts",
    }


def test_served_metrics_are_scraped_over_http(collector: PrometheusMetrics) -> None:
    port = serve(collector, host="127.0.0.1", port=0)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()

    assert text.splitlines() == [
        "# HELP sluice_inbox_handled_total InboxHandled of CloudWatch's namespace Sluice",
        "# TYPE sluice_inbox_handled_total counter",
        'sluice_inbox_handled_total{queue="sluice-local-billing.fifo"} 0.0',
    ]


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Yield a port on which another server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_port_that_is_taken_is_refused(collector: PrometheusMetrics, taken_port: int) -> None:
    """The worker does not start without the metrics that its operator expects."""
    with pytest.raises(ConfigError, match=rf"--prometheus is 127.0.0.1:{taken_port} \(Address already in use\), allow"):
        serve(collector, host="127.0.0.1", port=taken_port)
    with pytest.raises(ConfigError, match=r"--prometheus is 192.0.2.1:0 \(Cannot assign requested address\)"):
        serve(collector, host="192.0.2.1", port=0)
    with pytest.raises(ConfigError, match="--prometheus is no host:0 "):
        serve(collector, host="no host", port=0)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (None, None),
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),  # noqa: S104 (text only)
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_an_address_is_a_port_with_or_without_a_host(given: str | None, address: tuple[str, int] | None) -> None:
    assert options._address(CONTEXT, OPTION, given) == address


CONTEXT, OPTION = click.Context(click.Command("worker")), click.Option(["--prometheus"])


@pytest.mark.parametrize("given", ["", "host", "host:", "65536", "-1", "1.5", "::1:9464", "٣", "9" * 5_000])
def test_an_invalid_address_of_a_cluster_is_refused(given: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not an address, allowed is PORT or HOST:PORT, such as 9464"):
        options._address(CONTEXT, OPTION, given)


def test_without_its_package_prometheus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "sluice.messaging.telemetry.prometheus")

    with pytest.raises(ConfigError, match=r"there is no module prometheus_client; pip install prometheus-client or"):
        running.process_metrics((), QUEUE, interval_seconds=60, is_embedded=False, prometheus=("127.0.0.1", 0))


def test_opentelemetry_gets_the_same_numbers() -> None:
    """Counters are added up, gauges replaced; the unit comes from the metric."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    names = (metrics.HANDLED, metrics.PARKED_GROUPS, metrics.OUTBOX_LAG)
    sink = InstrumentMetrics(provider.get_meter("sluice"), names, QUEUE)
    for handled, parked in ((2, 5), (3, 1)):
        sink.put({metrics.HANDLED: handled, metrics.PARKED_GROUPS: parked, metrics.OUTBOX_LAG: 1.5})

    data = reader.get_metrics_data()
    provider.shutdown()
    assert data is not None
    ((scope,),) = [resource_metrics.scope_metrics for resource_metrics in data.resource_metrics]
    found = {}
    for metric in scope.metrics:
        (point,) = metric.data.data_points
        assert isinstance(point, NumberDataPoint)
        found[metric.name] = (metric.unit, point.value, dict(point.attributes or {}))
    assert found == {
        "sluice.inbox.handled": ("{count}", 5, QUEUE),
        "sluice.inbox.parked_groups": ("{count}", 1, QUEUE),
        "sluice.outbox.lag": ("s", 1.5, QUEUE),
    }


@pytest.mark.parametrize("is_there", [True, False])
def test_opentelemetry_is_a_sink_where_somebody_has_imported_it(
    monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    """The handlers' module may import it; otherwise the worker does not load it."""
    if not is_there:
        monkeypatch.delitem(sys.modules, "opentelemetry")

    sinks = running.process_metrics((), QUEUE, interval_seconds=60, is_embedded=False, prometheus=None)

    assert isinstance(sinks, EveryMetrics)
    assert [type(sink) for sink in sinks._sinks] == [InstrumentMetrics] * is_there
