"""`check`: judge a stored history: the folder of a run, or a recording of somebody's own service.

A recording of some hundred thousand events is judged in this process. Nothing here is imported that needs Spark.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import click
from click.core import ParameterSource

from sluice.errors import ConfigError
from sluice.extras import missing
from sluice.judge import engine as judging
from sluice.judge import recording, report
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import JudgeEngine
from sluice.judge.folder.layout import RUN_FILE
from sluice.judge.reading.folders import require_history
from sluice.terminal import output
from sluice.terminal.options import declaration_option
from spark_load.cli.ending import finish, page_optional
from spark_load.cli.options import clock_option, cluster_options, shared_declaration

_AUTO, _LOCAL, _SPARK = "auto", "local", "spark"
_ENDPOINT = "endpoint"  # a target without known deviations


@click.command()
@click.argument("history", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON on standard output.")
@click.option(
    "--queue",
    "queue_texts",
    multiple=True,
    metavar="NAME=SECONDS[:DLQ[:MAX]]",
    help="A queue the topic's messages go to: its visibility timeout, DLQ, maxReceiveCount. Once for each.",
)
@click.option(
    "--retention",
    "retention_texts",
    multiple=True,
    metavar="NAME=SECONDS",
    help="For how long a queue of --queue, or its DLQ, keeps a message.  [default: four days, as on AWS]",
)
@click.option("--env", "environment_name", metavar="NAME", help="Take the queues from that declared environment.")
@declaration_option
@click.option(
    "--target",
    type=click.Choice(["localstack", "endpoint", "aws"]),
    help="Whose known deviations are allowed.  [default: that of the run; of a recording endpoint, which allows none]",
)
@click.option(
    "--other-producers",
    is_flag=True,
    help="For a recording: others published or moved dead letters, too. What nobody recorded as published or moved is"
    " then no violation.",
)
@click.option(
    "--other-consumers",
    is_flag=True,
    help="For a recording: others received from the queues, too. What nobody recorded as received is then no"
    " violation.",
)
@click.option(
    "--unfiltered",
    is_flag=True,
    help="For a recording: the topic sends every message to each queue of --queue, without a filter policy, and did so"
    " before the recording began. A message that was overtaken and never came is then lost.",
)
@click.option(
    "--all", "is_whole", is_flag=True, help="Print every property, also those that held or were not exercised."
)
@click.option(
    "--engine",
    type=click.Choice([_AUTO, _LOCAL, _SPARK]),
    default=_AUTO,
    show_default=True,
    help=f"What reads a recording: this process, or Spark; auto takes Spark above {judging.EVENTS_MAX:,} events,"
    " or where a cluster is named. A run is always read by Spark.",
)
@clock_option
@cluster_options
def check(
    history: Path,
    as_json: bool,
    is_whole: bool,
    queue_texts: tuple[str, ...],
    retention_texts: tuple[str, ...],
    environment_name: str | None,
    declaration: Path | None,
    target: str | None,
    other_producers: bool,
    other_consumers: bool,
    unfiltered: bool,
    engine: str,
    clock_bound_us: int,
    master: str | None,
    remote: str | None,
) -> None:
    """Judge HISTORY: the folder of a run, of journals (*.arrows), or of Parquet.

    The folder of a run describes its queues. For a recording of your own service, describe them with --queue or --env.
    Without that, some properties are not judged, and the verdict may be UNKNOWN.

    \b
    Examples:
      sluice check runs/<run>
      sluice check recorded --queue orders.fifo=30:orders-dlq.fifo:5
    """
    if queue_texts and environment_name is not None:
        raise ConfigError("--queue and --env are both given, allowed is one of them")
    queues = recording.with_retention(recording.parse_queues(queue_texts), retention_texts)
    if unfiltered and not queues:
        raise ConfigError("--unfiltered is given without --queue, allowed is with it; name the queues with --queue")
    queues = {name: replace(queue, is_unfiltered=unfiltered) for name, queue in queues.items()}
    if environment_name is not None:
        queues = recording.declared_queues(shared_declaration(declaration).environment(environment_name))
    is_run = (history / RUN_FILE).exists()
    if is_run and queues:
        raise ConfigError(f"{history} is a run, which knows its queues: leave out --queue and --env")
    if engine == _LOCAL and (is_run or _names_a_cluster()):
        why = f"{history} is a run" if is_run else "a cluster is named"
        raise ConfigError(f"--engine is local, and {why}, which takes Spark; leave one of the two out")
    require_history(history)
    if is_run:
        verdict = _spark_commands(f"{history} is a run").check_run(
            history, target, clock_bound_us=clock_bound_us, master=master, remote=remote
        )
    else:
        with _open(history, engine, master=master, remote=remote) as opened:
            verdict = _judge(
                opened,
                history,
                queues,
                target or _ENDPOINT,
                has_other_producers=other_producers,
                has_other_consumers=other_consumers,
                clock_bound_us=clock_bound_us,
            )
    finish(verdict, history, as_json=as_json, is_whole=is_whole)


def _names_a_cluster() -> bool:
    """Return whether the command line names a cluster; a cluster in the environment may be for other commands."""
    source = click.get_current_context().get_parameter_source
    return any(source(name) is ParameterSource.COMMANDLINE for name in ("master", "remote"))


@contextmanager
def _open(folder: Path, engine: str, *, master: str | None, remote: str | None) -> Iterator[JudgeEngine]:
    """Read a recording: in this process, if it is small enough and no cluster is named; otherwise with Spark."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit, which started this process
    why = "--engine is spark"
    if engine == _AUTO and (master or remote or is_submitted):
        why = "a cluster is named"
    elif engine != _SPARK:
        local = judging.open_in_memory(folder, events_max=None if engine == _LOCAL else judging.EVENTS_MAX)
        if local is not None:
            yield local
            return
        why = f"{folder} has more than {judging.EVENTS_MAX:,} events"
        output.line(f"{why}: it is judged with Spark (extra 'load'); --engine local judges it in memory", is_error=True)
    with _spark_commands(why).recording_opened(folder, master=master, remote=remote) as spark:
        yield spark


def _judge(
    engine: JudgeEngine,
    folder: Path,
    queues: Mapping[str, recording.RecordedQueue],
    target: str,
    *,
    has_other_producers: bool,
    has_other_consumers: bool,
    clock_bound_us: int,
) -> Verdict:
    """Judge a recording, write its report, and return the verdict."""
    verdict, expectation = recording.check(
        engine,
        folder,
        queues,
        target,
        has_other_producers=has_other_producers,
        has_other_consumers=has_other_consumers,
        clock_bound_us=clock_bound_us,
    )
    report.write(verdict, folder)
    with page_optional(f"the verdict is in {folder / report.SUMMARY_FILE}"):
        run_series = engine.series(expectation, verdict.violations)
        report.write_series(run_series, folder)
        report.write_page(verdict, run_series, folder / report.PAGE_FILE)
    return verdict


def _spark_commands(why: str) -> ModuleType:
    """Return the module that judges with Spark, or say how to install it."""
    try:
        from spark_load.cli import spark_commands  # noqa: PLC0415 (a second to load, and not installed everywhere)
    except ModuleNotFoundError as error:
        needed = None if error.name is None else missing(error.name, "load")
        if needed is None:
            raise
        raise ConfigError(f"{why}, which takes Spark: {needed}") from error
    return spark_commands
