"""`resume`: a run that broke is gone on with."""

from pathlib import Path

import click

from sluice.errors import ConfigError
from sluice.terminal.options import declaration_option
from spark_load.cli.declared import declared
from spark_load.cli.drawing import draw
from spark_load.cli.ending import finish
from spark_load.cli.watching import Watcher
from spark_load.cli.where import on_a_cluster
from spark_load.run import driver
from spark_load.runtime import deployment, spark_session


@click.command(short_help="Go on with a run that was broken off.")
@click.argument("folder", metavar="RUN", type=click.Path(file_okay=False, path_type=Path))
@declaration_option
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON on standard output.")
@on_a_cluster
def resume(folder: Path, declaration: Path | None, as_json: bool, cluster: spark_session.Cluster) -> None:
    """Go on with the run in the folder RUN, whose driver, tasks or endpoint died.

    What was acknowledged is not published again; what was never answered is, but only as long as the service takes it
    for a repeat. Then all of it is judged, the time in between included.

    \b
    Example:
      sluice load resume runs/<run>
    """
    stored = driver.find_stored(folder.resolve())
    environments = declared(declaration)
    environment = environments.get(stored.described["environment"])
    if environment is None:
        raise ConfigError(
            f"{folder.name} loaded environment {stored.described['environment']!r}, which is not declared here; allowed"
            f" is one of {', '.join(environments)}"
        )
    found = deployment.find(environment, endpoint_url=stored.described["endpoint_url"], is_used=True)
    with Watcher(stored.plan.profile, list(found.queue_urls)) as watch:
        watch("starting Spark", [])
        with spark_session.running(driver.slots(stored.plan.profile, found), cluster, driver.TASK_MODULES) as spark:
            verdict = driver.resume_load(spark, stored, environment=environment, deployment=found, watch=watch)
            draw(spark, stored.folder, verdict)
    finish(verdict, folder, as_json=as_json)
