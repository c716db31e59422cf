"""The load test from the shell."""

import json
import secrets
import sys
import traceback
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from sluice.clock import Clock, SystemClock
from sluice.declaration import Removal
from sluice.errors import ConfigError, MessagingError
from sluice.verdict import EXIT_CODES, EXIT_REFUSED, Status, Verdict
from spark_load import driver, profile, report, session, site
from spark_load.coordination import Progress
from wire.saboteurs import SABOTEURS, saboteur

_COULD_NOT = EXIT_CODES[Status.UNKNOWN]
_QUIET_LINE_SECONDS = 10
_JUDGING_SLOTS = 2
_REASONS_MAX = 5  # repeated at the very end, where people look; the summary has them all


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Offer a load to a deployed environment, record everything, judge the record.

    \b
    Exit codes: 0 valid, 1 invalid (with witnesses), 2 unknown or could not run,
    3 wrong usage or refused, 99 valid with a threshold crossed.
    """


@cli.command()
@click.argument("profile_name", metavar="PROFILE")
@click.option("--env", "environment_name", default="local", show_default=True, help="Declared environment to load.")
@click.option(
    "--endpoint-url",
    metavar="URL",
    envvar="AWS_ENDPOINT_URL",
    help="Where SQS and SNS are.  [default: $AWS_ENDPOINT_URL, else AWS]",
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
    help=f"Break one promise and see the verdict turn red: {', '.join(s.name for s in SABOTEURS.values() if s.shows)}.",
)
@click.option(
    "--runs-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where the run's folder is made.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON on standard output.")
@click.option("--force", is_flag=True, help="Also load an environment that keeps its messages.")
def run(
    profile_name: str,
    environment_name: str,
    endpoint_url: str | None,
    target: str | None,
    seed: int | None,
    saboteur_name: str | None,
    runs_dir: Path,
    as_json: bool,
    force: bool,
) -> None:
    """Run the load test PROFILE (a name, or the path of a YAML file).

    \b
    Examples:
      python -m spark_load run smoke
      python -m spark_load run smoke --sabotage corrupt-bodies   # ends INVALID
    """
    from sluice import environments  # noqa: PLC0415 (a wrong declaration is refused here)

    named = profile.load(profile_name)
    environment = environments.environment(environment_name)
    if saboteur_name is not None and not saboteur(saboteur_name).shows:
        useful = ", ".join(one.name for one in SABOTEURS.values() if one.shows)
        raise ConfigError(f"saboteur {saboteur_name!r} shows nothing in a load test, allowed is one of {useful}")
    if environment.removal is Removal.RETAIN and not force:
        raise ConfigError(
            f"environment {environment.name!r} keeps its messages (removal is 'retain'), and a load test fills its"
            " queues: name an environment that may be destroyed, or add --force"
        )
    found = site.find(environment, endpoint_url=endpoint_url or None)
    folder = driver.make_folder(runs_dir, environment, named.name, SystemClock())
    with _Watcher(named.profile, len(found.queue_urls)) as watch:
        watch("starting Spark", [])
        with session.running(driver.slots(named.profile, found)) as spark:
            verdict = driver.run_load(
                spark,
                folder=folder,
                environment=environment,
                site=found,
                named=named,
                seed=secrets.randbits(32) if seed is None else seed,
                target=target or ("localstack" if environment.name == "local" else "endpoint"),
                saboteur=saboteur_name,
                watch=watch,
            )
    _finish(verdict, folder, as_json)


@cli.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON on standard output.")
def judge(folder: Path, as_json: bool) -> None:
    """Judge the stored history of a run in FOLDER again."""
    stored = driver.find_stored(folder)
    with session.running(_JUDGING_SLOTS) as spark:
        verdict = driver.rejudge(spark, stored)
    _finish(verdict, folder, as_json)


@cli.command()
def profiles() -> None:
    """List the profiles that come with Sluice."""
    for name in profile.names():
        found = profile.load(name).profile
        click.echo(
            f"{name:12} {found.message_count:,} messages at {found.messages_per_second:g}/s"
            f" in {found.group_count:,} groups, {found.duration_seconds:g} s"
        )


def _finish(verdict: Verdict, folder: Path, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(verdict.as_json(), indent=2))
    else:
        report.show(verdict, Console())
    why = [*verdict.unknowns, *(f"{one.anomaly}: {one.sentence}" for one in verdict.violations)]
    for reason in why[:_REASONS_MAX]:
        click.echo(reason, err=True)
    click.echo(
        f"{verdict.status.value.upper()}: {folder / report.VERDICT_FILE}, {folder / report.SUMMARY_FILE}", err=True
    )
    sys.exit(verdict.exit_code)


class _Watcher:
    """Shows how far the run is: bars on a terminal, a line now and then elsewhere. Always on standard error."""

    def __init__(self, load: profile.Profile, queue_count: int, clock: Clock | None = None) -> None:
        self._expected = {
            "published": round(load.message_count * (1 + load.duplicate_share)) + load.group_count,
            "consumed": (load.message_count + load.group_count) * queue_count,
        }
        self._clock = SystemClock() if clock is None else clock
        self._console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description:12}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._phase = ""
        self._said_at = float("-inf")

    def __enter__(self) -> "_Watcher":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, phase: str, everyone: list[Progress]) -> None:
        """Show the phase and how far the tasks are."""
        done = {
            "published": sum(one.done for one in everyone if one.role == "publish"),
            "consumed": sum(one.done for one in everyone if one.role == "consume"),
        }
        if self._console.is_terminal:
            self._draw(phase, everyone, done)
        elif phase != self._phase or self._clock.monotonic() - self._said_at >= _QUIET_LINE_SECONDS:
            self._said_at = self._clock.monotonic()
            counts = ", ".join(f"{name} {count:,} of about {self._expected[name]:,}" for name, count in done.items())
            click.echo(f"{phase}{': ' + counts if everyone else ''}", err=True)
        self._phase = phase

    def _draw(self, phase: str, everyone: list[Progress], done: dict[str, int]) -> None:
        if phase != self._phase:
            self._console.print(phase)
        for name, count in done.items() if everyone else ():
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=self._expected[name])
            self._bars.update(self._tasks[name], completed=min(count, self._expected[name]))


def main() -> None:
    """Run the command line; every expected failure is one line and an exit code."""
    try:
        cli(standalone_mode=False, prog_name="python -m spark_load")
    except click.Abort:
        click.echo("stopped; no verdict was written", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_REFUSED)
    except ConfigError as error:
        click.echo(f"spark_load: {error}", err=True)
        sys.exit(EXIT_REFUSED)
    except MessagingError as error:
        click.echo(f"spark_load: {error}", err=True)
        sys.exit(_COULD_NOT)
    except Exception:  # Python would exit with 1, which means INVALID: a crash is unknown
        traceback.print_exc()
        sys.exit(_COULD_NOT)


if __name__ == "__main__":
    main()
