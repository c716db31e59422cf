"""`sluice env dashboard`: a dashboard as a file, for CloudWatch or for Grafana on Prometheus, made of the declaration.

AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
Grafana: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
(both read 2026-11-27)
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from sluice.declaration import Environment, load_declaration, metrics, naming
from sluice.declaration.dashboard import Graph, GraphRow, RuntimeRow, consumer_rows, environment_rows, runtime_rows
from sluice.declaration.watched_metrics import Expression, WatchedMetric
from sluice.terminal import output
from sluice.terminal.options import declaration_option

CLOUDWATCH, GRAFANA = "cloudwatch", "grafana"
_PERIOD_SECONDS, _WIDTH, _HEIGHT = 60, 8, 6
_SCHEMA_VERSION = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_UNITS = {"Seconds": "s", "Count": "short"}


@click.command()
@click.argument("name", metavar="ENV")
@click.option("--format", "kind", type=click.Choice([CLOUDWATCH, GRAFANA]), required=True, help="For which program.")
@declaration_option
def dashboard(name: str, kind: str, declaration: Path | None) -> None:
    """Print a dashboard of ENV as JSON. It calls nothing.

    \b
      sluice env dashboard prod --format cloudwatch > body.json
      aws cloudwatch put-dashboard --dashboard-name prod --dashboard-body file://body.json
      sluice env dashboard prod --format grafana > dashboard.json

    The stacks make the same CloudWatch dashboard. The one for Grafana shows what relays and workers serve under
    `--prometheus`, as Prometheus scrapes it; import it, and choose the data source there.
    """
    environment = load_declaration(declaration).environment(name)
    output.as_json(cloudwatch_body(environment) if kind == CLOUDWATCH else grafana_dashboard(environment))


def cloudwatch_body(environment: Environment) -> dict[str, Any]:
    """Return the body of a CloudWatch dashboard, with every consumer, as PutDashboard takes it."""
    rows = [*environment_rows(environment)]
    rows += [row for consumer in environment.consumers for row in consumer_rows(environment, consumer)]
    return {"widgets": list(_widgets(environment, rows))}


def _widgets(environment: Environment, rows: Sequence[GraphRow]) -> Iterator[dict[str, Any]]:
    """Yield CloudWatch's widgets: for each row a heading, and its graphs side by side below."""
    top = 0
    for row in rows:
        if row.heading is not None:
            place = {"width": 3 * _WIDTH, "height": 1, "x": 0, "y": top}
            yield {"type": "text", **place, "properties": {"markdown": f"## {row.heading}"}}
            top += 1
        for column, graph in enumerate(row.graphs):
            place = {"width": _WIDTH, "height": _HEIGHT, "x": column * _WIDTH, "y": top}
            yield {"type": "metric", **place, "properties": _graph_properties(environment, graph)}
        top += _HEIGHT


def _graph_properties(environment: Environment, graph: Graph) -> dict[str, Any]:
    """Return the properties of a graph's widget: its metrics on both axes, and its horizontal line."""
    drawn: list[list[Any]] = []
    for watched, more in [*((each, {}) for each in graph.left), *((each, {"yAxis": "right"}) for each in graph.right)]:
        drawn += [line for line in _metric_lines(watched, more) if line not in drawn]
    lines = {}
    if graph.line is not None:
        label, value = graph.line
        lines = {"annotations": {"horizontal": [{"value": value, "label": label, "yAxis": "left"}]}}
    return {
        "view": "timeSeries",
        "title": graph.title,
        "region": environment.region,
        "metrics": drawn,
        **lines,
        "yAxis": {},
        "period": _PERIOD_SECONDS,
    }


def _metric_lines(watched: WatchedMetric | Expression, more: Mapping[str, str]) -> Iterator[list[Any]]:
    """Yield CloudWatch's entries of a metric, or of an expression and its hidden metrics; `more` are other options."""
    if isinstance(watched, WatchedMetric):
        yield _metric_line(watched, more)
        return
    yield [{"label": watched.label, "expression": watched.text, "period": _PERIOD_SECONDS, **more}]
    for id_, metric in watched.metrics.items():
        yield _metric_line(metric, {"id": id_, "visible": False})


def _metric_line(metric: WatchedMetric, more: Mapping[str, Any]) -> list[Any]:
    """Return CloudWatch's entry of one metric: namespace, name, dimensions, and options."""
    names = [part for dimension in metric.dimensions.items() for part in dimension]
    statistic = {} if metric.statistic == "Average" else {"stat": metric.statistic}
    return [metric.namespace, metric.name, *names, {"period": _PERIOD_SECONDS, **statistic, **more}]


def grafana_dashboard(environment: Environment) -> dict[str, Any]:
    """Return a dashboard of Grafana with what relays and workers serve for Prometheus."""
    return {
        "title": naming.dashboard_name(environment),
        "uid": naming.dashboard_name(environment)[:40],
        "tags": ["sluice", environment.name],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": list(_panels(runtime_rows(environment))),
    }


def _panels(rows: Iterator[RuntimeRow]) -> Iterator[dict[str, Any]]:
    """Yield Grafana's panels: for each row a heading, and its graphs side by side below."""
    top, number = 0, 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": 3 * _WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": row.heading, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        width = 3 * _WIDTH // len(row.graphs)
        for column, graph in enumerate(row.graphs):
            number += 1
            defaults: dict[str, Any] = {"unit": _UNITS[metrics.UNITS[graph.names[0]]]}
            if graph.line is not None:
                steps = [{"color": "green", "value": None}, {"color": "red", "value": graph.line}]
                defaults["thresholds"] = {"mode": "absolute", "steps": steps}
                defaults["custom"] = {"thresholdsStyle": {"mode": "line"}}
            yield {
                "id": number,
                "type": "timeseries",
                "title": graph.title,
                "datasource": _SOURCE,
                "gridPos": {"x": column * width, "y": top, "w": width, "h": _HEIGHT},
                "fieldConfig": {"defaults": defaults, "overrides": []},
                "targets": [
                    {
                        "refId": chr(ord("A") + index),
                        "datasource": _SOURCE,
                        "expr": _expression(name, row.dimensions),
                        "legendFormat": metrics.short_name(name).replace("_", " "),
                    }
                    for index, name in enumerate(graph.names)
                ],
            }
        top += _HEIGHT


def _expression(name: str, dimensions: Mapping[str, str]) -> str:
    """Return the PromQL of a metric's graph.

    A counter is drawn as its rate per second, summed over all tasks. Of a gauge the maximum is drawn, because each task
    reports the same value.
    """
    labels = ",".join(f'{label.lower()}="{value}"' for label, value in dimensions.items())
    selected = f"{metrics.prometheus_name(name)}{{{labels}}}"
    return f"sum(rate({selected}[5m]))" if name in metrics.COUNTED else f"max({selected})"
