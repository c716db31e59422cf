"""`check`: a stored history, judged: of a run, or of what anyone recorded."""

from dataclasses import replace
from pathlib import Path

import click

from sluice.errors import ConfigError
from spark_load import report
from spark_load.cli.declared import declaration_option, declared
from spark_load.cli.ending import draw, finish
from spark_load.cli.where import on_a_cluster
from spark_load.judge import recording
from spark_load.run import driver
from spark_load.runtime import spark_session

_JUDGING_SLOTS = 2


@click.command()
@click.argument("history", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON on standard output.")
@click.option(
    "--queue",
    "given",
    multiple=True,
    metavar="NAME=SECONDS[:DLQ[:MAX]]",
    help="A queue the topic's messages go to: its visibility timeout, DLQ, maxReceiveCount. Once for each.",
)
@click.option("--env", "environment_name", metavar="NAME", help="Take the queues from that declared environment.")
@declaration_option
@click.option(
    "--target",
    type=click.Choice(["localstack", "endpoint", "aws"]),
    help="Whose known deviations are allowed.  [default: as it was run; of a recording endpoint: none]",
)
@click.option(
    "--other-producers",
    is_flag=True,
    help="Of a recording: others published as well. What comes from nowhere is then unknown, and no violation.",
)
@on_a_cluster
def check(
    history: Path,
    as_json: bool,
    given: tuple[str, ...],
    environment_name: str | None,
    declaration: Path | None,
    target: str | None,
    other_producers: bool,
    cluster: spark_session.Cluster,
) -> None:
    """Judge HISTORY: the folder of a run, of journals (*.arrows), or of Parquet.

    A run knows what it was. Of what was recorded in a service of your own, say what its queues are: what cannot be
    known without that is not judged, and what then stays open ends UNKNOWN.

    \b
    Examples:
      sluice check runs/<run>
      sluice check recorded --queue orders.fifo=30:orders-dlq.fifo:5
    """
    if given and environment_name is not None:
        raise ConfigError("--queue and --env are both given, allowed is one of them")
    queues = recording.parse_queues(given)
    if environment_name is not None:
        queues = recording.declared_queues(declared(declaration).environment(environment_name))
    is_run = (history / driver.RUN_FILE).exists()
    if is_run and queues:
        raise ConfigError(f"{history} is a run, which knows its queues: leave out --queue and --env")
    recording.check_place(history)
    stored = driver.find_stored(history) if is_run else None
    with spark_session.running(_JUDGING_SLOTS, cluster, driver.TASK_MODULES) as spark:
        if stored is not None:
            verdict = driver.rejudge(spark, stored if target is None else _retargeted(stored, target))
            draw(spark, history, verdict)
        else:
            verdict = recording.check(spark, history, queues, target or "endpoint", has_other_producers=other_producers)
    if stored is None:
        report.write(verdict, history)
    finish(verdict, history, as_json=as_json)


def _retargeted(stored: driver.Stored, target: str) -> driver.Stored:
    return replace(stored, described={**stored.described, "target": target})
