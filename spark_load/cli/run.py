"""`run` and `resume`: the load test."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from pyspark.sql import SparkSession

from sluice.clock import SystemClock
from sluice.declaration import Environment, Removal
from sluice.declaration.validation import did_you_mean, nearest
from sluice.errors import ConfigError
from sluice.saboteurs import SABOTEURS
from sluice.terminal.options import declaration_option
from spark_load.cli.ending import finish
from spark_load.cli.options import (
    clock_option,
    on_a_cluster,
    profile_options,
    schedule_of,
    shared_declaration,
)
from spark_load.cli.planning import require_confirmation
from spark_load.cli.spark_commands import draw
from spark_load.cli.trend import remember
from spark_load.cli.watching import Watcher
from spark_load.consume import effects
from spark_load.faults import servers
from spark_load.faults.shapes import require_possible, task_restarts_max
from spark_load.profiles.estimate import Estimate
from spark_load.profiles.profile import NamedProfile, Profile
from spark_load.publish.transport import BOTO3, OUTBOX, SOCKETS
from spark_load.publish.transport.opening import choose_transport
from spark_load.run import driver
from spark_load.runtime import deployment, spark_session
from spark_load.runtime.deployment import LoadDeployment

_SHOWING = tuple(name for name, saboteur in SABOTEURS.items() if saboteur.shows)


@click.command(short_help="Run the load test of a profile.")
@profile_options
@click.option("--env", "environment_name", default="local", show_default=True, help="Declared environment to load.")
@declaration_option
@click.option(
    "--endpoint-url",
    metavar="URL",
    envvar="AWS_ENDPOINT_URL",
    help="URL of SQS and SNS.  [default: $AWS_ENDPOINT_URL, else AWS]",
)
@click.option(
    "--target",
    type=click.Choice(["localstack", "endpoint", "aws"]),
    help="Whose known deviations are allowed.  [default: localstack for env local, else none]",
)
@click.option("--seed", type=int, help="Makes the same messages again.  [default: random, and reported]")
@click.option(
    "--sabotage",
    "saboteur_name",
    metavar="NAME",
    help=f"Break one promise and see the verdict turn red: {', '.join(_SHOWING)}.",
)
@click.option(
    "--transport",
    type=click.Choice([BOTO3, SOCKETS]),
    help="What publishes.  [default: sockets; with a saboteur or behind a proxy boto3]",
)
@click.option(
    "--runs-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder in which the run's folder is created.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON on standard output.")
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask before loading an AWS account.")
@click.option("--force", is_flag=True, help="Also load an environment that keeps its messages.")
@clock_option
@on_a_cluster
def run(
    named: NamedProfile,
    environment_name: str,
    declaration: Path | None,
    endpoint_url: str | None,
    target: str | None,
    seed: int | None,
    saboteur_name: str | None,
    transport: str | None,
    runs_dir: Path,
    as_json: bool,
    confirmed: bool,
    force: bool,
    clock_bound_us: int,
    cluster: spark_session.Cluster,
) -> None:
    """Run the load test PROFILE: a name that `profiles` lists, or the path of a YAML file.

    \b
    Examples:
      sluice load run smoke
      sluice load run smoke --sabotage corrupt-bodies   # ends INVALID
      sluice load run smoke --consumer worker           # the worker that runs in production
      sluice load run smoke --consumer worker --faults chaos --seed 7   # the same faults for the same seed
      sluice load run release-gate --env staging        # asks first: it costs money
    """
    seed = secrets.randbits(32) if seed is None else seed
    environment = shared_declaration(declaration).environment(environment_name)
    if saboteur_name is not None:
        _check_shows(saboteur_name)
    if environment.removal is Removal.RETAIN and not force:
        raise ConfigError(
            f"environment {environment.name!r} keeps its messages (removal is 'retain'), and a load test fills its"
            " queues: name an environment that may be destroyed, or add --force"
        )
    if refusals := Estimate.of(named.profile, environment, "localstack").refusals:
        raise ConfigError(f"profile {named.name!r} cannot work anywhere: {refusals[0]}")
    faults = schedule_of(named, environment, seed, is_here=cluster.is_here)
    if named.profile.has_services and servers.database() != "own":
        effects.require_reachable(os.environ[servers.DSN])
    deployed = deployment.find(environment, endpoint_url=endpoint_url or None)
    require_possible(faults, endpoint_url=deployed.endpoint_url)
    is_on_aws = deployed.endpoint_url is None or target == "aws"
    if is_on_aws:
        require_confirmation(deployed, environment, named, confirmed=confirmed, is_terminal=sys.stdin.isatty())
    transport = choose_transport(
        transport,
        deployed.client("sns").meta.endpoint_url,
        saboteur_name,
        destination=named.profile.destination,
        has_bundles=named.profile.bundle_events_max > 1,
    )
    if transport == OUTBOX and not cluster.is_here:
        raise ConfigError(
            f"destination of profile {named.name!r} is 'outbox', allowed on a cluster is topic or queue: the outbox is"
            " a file of this machine; leave out --master and --remote"
        )
    folder = driver.make_folder(runs_dir, environment, named.name, SystemClock())
    with _watched_session(named.profile, deployed, cluster, task_restarts_max(faults)) as (spark, watch):
        verdict = driver.run_load(
            spark,
            folder=folder,
            environment=environment,
            deployment=deployed,
            named=named,
            seed=seed,
            faults=faults,
            target=target or _usual_target(environment, is_on_aws=is_on_aws),
            saboteur=saboteur_name,
            transport=transport,
            clock_bound_us=clock_bound_us,
            watch=watch,
        )
        draw(spark, folder, verdict)
    remember(verdict, folder.parent)
    finish(verdict, folder, as_json=as_json)


def _check_shows(name: str) -> None:
    """Refuse a saboteur that a load test cannot show."""
    if name not in _SHOWING:
        why = "shows nothing in a load test" if name in SABOTEURS else "is unknown"
        raise ConfigError(
            f"saboteur {name!r} {why}{did_you_mean(nearest(name, _SHOWING))}, allowed is one of {', '.join(_SHOWING)}"
        )


@click.command(short_help="Continue a run that was broken off.")
@click.argument("folder", metavar="RUN", type=click.Path(file_okay=False, path_type=Path))
@declaration_option
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON on standard output.")
@on_a_cluster
def resume(folder: Path, declaration: Path | None, as_json: bool, cluster: spark_session.Cluster) -> None:
    """Continue the run in the folder RUN, whose driver, tasks or endpoint died.

    A message that was acknowledged is not published again. One without an answer is, but only while the service
    recognises it as a repeat. Then all attempts are judged as one run.

    \b
    Example:
      sluice load resume runs/<run>
    """
    stored = driver.find_stored(folder.resolve())
    environments = shared_declaration(declaration)
    environment = environments.get(stored.described["environment"])
    if environment is None:
        raise ConfigError(
            f"{folder.name} loaded environment {stored.described['environment']!r}, which is not declared here; allowed"
            f" is one of {', '.join(environments)}"
        )
    deployed = deployment.find(environment, endpoint_url=stored.described["endpoint_url"], is_used=True)
    restarts_max = task_restarts_max(stored.faults) if cluster.is_here else 0
    with _watched_session(stored.plan.profile, deployed, cluster, restarts_max) as (spark, watch):
        verdict = driver.resume_load(spark, stored, environment=environment, deployment=deployed, watch=watch)
        draw(spark, stored.folder, verdict)
    finish(verdict, folder, as_json=as_json)


@contextmanager
def _watched_session(
    load: Profile, deployed: LoadDeployment, cluster: spark_session.Cluster, restarts_max: int
) -> Iterator[tuple[SparkSession, Watcher]]:
    """Yield (Spark session, progress display) for a run.

    `again` is how often Spark may restart a task that a fault ended.
    """
    with Watcher(load, list(deployed.queue_urls)) as watch:
        watch("starting Spark", [])
        with spark_session.running(
            driver.slots(load, deployed), cluster, driver.TASK_MODULES, task_restarts_max=restarts_max
        ) as spark:
            yield spark, watch


def _usual_target(environment: Environment, *, is_on_aws: bool) -> str:
    """Return the target whose known deviations are allowed if the command line names none."""
    if is_on_aws:
        return "aws"
    return "localstack" if environment.name == "local" else "endpoint"
