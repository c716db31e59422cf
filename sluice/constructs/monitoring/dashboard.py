"""The dashboard of an environment for operators."""

from collections.abc import Iterable

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from sluice.constructs.monitoring.alarm import MINUTE, to_cloudwatch
from sluice.constructs.place import consumer_scope
from sluice.declaration import Environment, naming
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.dashboard import Graph, GraphRow, consumer_rows, environment_rows

_WIDTH = 8  # of a graph; CloudWatch's dashboards have 24 columns


class Dashboard(Construct):
    """One dashboard for an environment: rows for its own topics, outboxes and database, and two rows for each consumer.

    A consumer's first row is about its queue, the second about its tasks or its Lambda function. Consumers with `stack`
    have a dashboard of their own for each such stack.
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        self.dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=naming.dashboard_name(environment))
        _add(self.dashboard, environment_rows(environment))
        dashboards: dict[str | None, cloudwatch.Dashboard] = {None: self.dashboard}
        for consumer in environment.consumers:
            if consumer.stack not in dashboards:
                dashboards[consumer.stack] = cloudwatch.Dashboard(
                    consumer_scope(self, consumer),
                    "Dashboard",
                    dashboard_name=naming.dashboard_name(environment, consumer.stack),
                )
            _add(dashboards[consumer.stack], consumer_rows(environment, consumer))


def _add(page: cloudwatch.Dashboard, rows: Iterable[GraphRow]) -> None:
    """Add rows to a page, each below its heading, which is as wide as three graphs."""
    for row in rows:
        if row.heading is not None:
            page.add_widgets(cloudwatch.TextWidget(markdown=f"## {row.heading}", width=3 * _WIDTH, height=1))
        page.add_widgets(*map(_widget, row.graphs))


def _widget(graph: Graph) -> cloudwatch.GraphWidget:
    lines = [] if graph.line is None else [cloudwatch.HorizontalAnnotation(label=graph.line[0], value=graph.line[1])]
    return cloudwatch.GraphWidget(
        title=graph.title,
        left=[to_cloudwatch(watches) for watches in graph.left],
        right=[to_cloudwatch(watches) for watches in graph.right],
        left_annotations=lines,
        width=_WIDTH,
        period=MINUTE,
    )
