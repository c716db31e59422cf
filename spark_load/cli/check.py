"""`judge`: a stored history, judged again."""

from pathlib import Path

import click

from spark_load import driver, session
from spark_load.cli.ending import draw, finish
from spark_load.cli.where import on_a_cluster

_JUDGING_SLOTS = 2


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON on standard output.")
@on_a_cluster
def judge(folder: Path, as_json: bool, cluster: session.Cluster) -> None:
    """Judge the stored history of a run in FOLDER again."""
    stored = driver.find_stored(folder)
    with session.running(_JUDGING_SLOTS, cluster) as spark:
        verdict = driver.rejudge(spark, stored)
        draw(spark, folder, verdict)
    finish(verdict, folder, as_json=as_json)
