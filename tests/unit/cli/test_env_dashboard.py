"""`sluice env dashboard` makes files of the declaration, with metrics that exist and no others."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from sluice.cli.env.dashboard import cloudwatch_body, grafana_dashboard
from sluice.cli.main import cli
from sluice.clock import VirtualClock
from sluice.declaration import Lambda, metrics
from sluice.messaging.telemetry.prometheus import PrometheusMetrics
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.environments import FULL

PROD = ENVIRONMENTS["prod"]


def _process_metrics(
    names: tuple[str, ...], dimensions: dict[str, str]
) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return name and labels of what a process serves for Prometheus, once each metric was measured."""
    collector = PrometheusMetrics(names, dimensions, interval_seconds=60, clock=VirtualClock())
    collector.put(dict.fromkeys(names, 1.0))
    samples = [sample for family in collector.collect() for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples}


def _panel_metrics(dashboard: dict[str, Any]) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return name and labels of what the panels of a dashboard draw."""
    found = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            name, labels = re.search(r"(sluice_\w+)\{(.*?)\}", target["expr"]).groups()  # type: ignore[union-attr]
            found.add((name, tuple(sorted(re.findall(r'(\w+)="(.*?)"', labels)))))
    return found


def test_grafana_draws_what_relays_and_workers_serve() -> None:
    """Every metric that they serve, and no other."""
    served = _process_metrics(metrics.OUTBOX, metrics.dimensions(PROD))
    for consumer in PROD.consumers:
        served |= _process_metrics(metrics.INBOX, metrics.inbox_dimensions(PROD, consumer))

    assert _panel_metrics(grafana_dashboard(PROD)) == served


def test_grafana_draws_rates_of_counters_and_maxima_of_gauges() -> None:
    """Several relays and workers report one metric: counters add up, gauges do not."""
    expressions = [target["expr"] for panel in grafana_dashboard(PROD)["panels"] for target in panel.get("targets", ())]

    counted = [expression for expression in expressions if "_total{" in expression]
    assert [each for each in counted if not re.fullmatch(r"sum\(rate\(\w+\{[^}]*\}\[5m\]\)\)", each)] == []
    gauges = [expression for expression in expressions if expression not in counted]
    assert [each for each in gauges if not re.fullmatch(r"max\(\w+\{[^}]*\}\)", each)] == []


def test_a_function_serves_nothing_for_prometheus() -> None:
    """Its metrics are lines of its log."""
    function = replace(PROD.consumers[0], runtime=Lambda(maximum_concurrency=5), visibility_timeout_seconds=180)
    environment = replace(PROD, consumers=(function, *PROD.consumers[1:]))

    headings = [panel["title"] for panel in grafana_dashboard(environment)["panels"] if panel["type"] == "row"]

    assert headings == ["relay", "shipping", "audit"]


def test_panels_of_grafana_have_distinct_places_and_ids() -> None:
    panels = grafana_dashboard(FULL)["panels"]

    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))


@pytest.mark.parametrize("kind", ["cloudwatch", "grafana"])
def test_env_dashboard_prints_the_dashboard_as_json(kind: str) -> None:
    ended = CliRunner().invoke(cli, ["env", "dashboard", "prod", "--format", kind], standalone_mode=False)

    made = cloudwatch_body(PROD) if kind == "cloudwatch" else grafana_dashboard(PROD)
    assert json.loads(ended.stdout) == json.loads(json.dumps(made))
