"""`python -m tests.chaos`: one chaos run."""

import json
import os
import signal
import sys
import traceback
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from emulator import localstack
from sluice.clock import SystemClock
from sluice.declaration import Commit
from sluice.errors import ConfigError, MessagingError
from sluice.judge.checker.verdict import EXIT_CODES, PropertyStatus
from sluice.terminal.exits import REFUSED
from tests.chaos.run import Report, Run
from tests.chaos.settings import BATCH_EVENTS_MAX, KINDS, SERVICES, Settings, choose_kinds
from tests.chaos.system import broken_bundles, database
from tests.chaos.system.bundles import mean_events
from tests.support.messaging.broken_functions import MISTAKES

_SHOWN_MAX = 20
_STOPPED = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of faults and commits.")
@click.option("--commits", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True, help="How many.")
@click.option("--seconds", type=click.FloatRange(2), help="Of the schedule.  [default: one for 25 events, 30 at least]")
@click.option("--every", type=float, default=1.5, show_default=True, metavar="SECONDS", help="Between two faults.")
@click.option("--faults", metavar="KIND,…", help=f"Only these: {', '.join(KINDS)}.  [default: all]")
@click.option("--without", metavar="KIND,…", default="", help="All but these.")
@click.option("--groups", type=click.IntRange(1, 1_000), default=24, show_default=True, help="Message groups.")
@click.option("--workers", type=click.IntRange(1, 20), default=2, show_default=True, help="Of each consumer.")
@click.option("--producers", type=click.IntRange(1, 20), default=4, show_default=True, help="Processes that commit.")
@click.option("--cold", "is_cold", is_flag=True, help="Harm the first message of a group, too.")
@click.option(
    "--bundles", type=click.IntRange(1), default=1, show_default=True, help="Events of a group in one message."
)
@click.option(
    "--commit",
    type=click.Choice(Commit, case_sensitive=False),
    default=Commit.EVENT,
    show_default=True,
    help="Of workers.",
)
@click.option(
    "--services", type=click.Choice(list(SERVICES)), default="plain", show_default=True, help="Producers and workers."
)
@click.option("--broken", "is_broken", is_flag=True, help="Negative control: handlers that commit by themselves.")
@click.option(
    "--mistake",
    type=click.Choice([*MISTAKES, *broken_bundles.MISTAKES]),
    help="Negative control: of --services lambda, or of --bundles.",
)
@click.option("--plan", "is_plan", is_flag=True, help="Only print the schedule.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--endpoint-url", metavar="URL", help="A LocalStack that runs already.  [default: one of its own]")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="For logs.  [default: in runs/]")
def cli(
    *,
    seed: int,
    commits: int,
    seconds: float | None,
    every: float,
    faults: str | None,
    without: str,
    groups: int,
    workers: int,
    producers: int,
    is_cold: bool,
    bundles: int,
    commit: Commit,
    services: str,
    is_broken: bool,
    mistake: str | None,
    is_plan: bool,
    as_json: bool,
    endpoint_url: str | None,
    folder: Path | None,
) -> None:
    """Harm real producers, relays and workers by a schedule, let everything drain, and judge the databases.

    The same seed gives the same schedule and the same commits; what a fault meets is up to the machine.

    \b
    Exit codes: 0 every promise held, 1 violated, 2 it did not drain or could not run, 3 wrong usage, 130 stopped.
    """
    kinds = choose_kinds(list(KINDS) if faults is None else faults.split(","))
    left_out = choose_kinds(without.split(",") if without else [])
    modules = SERVICES[services].break_handlers() if is_broken else SERVICES[services]
    settings = Settings(
        seed=seed,
        commits=commits,
        seconds=max(30.0, commits * (min(bundles, BATCH_EVENTS_MAX) + 1) / 50) if seconds is None else seconds,
        every_seconds=every,
        kinds=tuple(kind for kind in kinds if kind not in left_out),
        groups=groups,
        workers=workers,
        producers=producers,
        is_cold=is_cold,
        modules=modules if mistake is None else modules.make(mistake),
        bundle_events_max=bundles,
        commit=commit,
    )
    planned = settings.faults
    if is_plan:
        click.echo(
            json.dumps([asdict(item) for item in planned], indent=2) if as_json else "\n".join(map(str, planned))
        )
        return
    folder = Path("runs") / f"chaos-{seed}-{SystemClock().now_us() // 1_000_000}" if folder is None else folder
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    (folder / "schedule.txt").write_text("\n".join(map(str, planned)) + "\n", encoding="utf-8")
    _print_progress(
        f"seed {seed}: {commits} commits, {len(planned)} faults in {settings.seconds:g} s; logs in {folder}"
    )
    report = _run(settings, folder, endpoint_url)
    status = report.status
    written = json.dumps(as_document(settings, report, status), indent=2)
    (folder / "report.json").write_text(written + "\n", encoding="utf-8")
    click.echo(written if as_json else as_text(settings, report, status))
    sys.exit(EXIT_CODES[status])


def _run(settings: Settings, folder: Path, endpoint_url: str | None) -> Report:
    with ExitStack() as stack:
        emulated = (
            stack.enter_context(localstack.running(log=folder / "logs" / "localstack.log"))
            if endpoint_url is None
            else localstack.attach(endpoint_url)
        )
        started = stack.enter_context(database.running())
        pointed = localstack.with_endpoint(emulated)
        os.environ.clear()  # a profile of the caller's would win over the keys
        os.environ.update(pointed)
        return Run(settings, emulated, started, folder, _print_progress).work()


def as_document(settings: Settings, report: Report, status: PropertyStatus) -> dict[str, Any]:
    """Return the report as JSON has it."""
    judgement = report.judgement
    return {
        "verdict": status,
        "seed": settings.seed,
        "settings": asdict(settings) | {"commit": settings.commit.value},
        **{name: value for name, value in asdict(report).items() if name != "judgement"},
        "late": dict(judgement.late_counts),
        "unfinished": [list(item) for item in judgement.unfinished],
        "violations": [asdict(violation) for violation in judgement.violations],
    }


def as_text(settings: Settings, report: Report, status: PropertyStatus) -> str:
    """Return the report for people."""
    judgement = report.judgement
    lines = [
        f"seed {settings.seed}, {report.seconds:g} s: {report.commits} commits of {report.events} events, and"
        f" {report.rolled_back} events rolled back",
        *(
            f"  {name}: {count} effects, {judgement.late_counts.get(name, 0)} of them late as its inbox lists"
            for name, count in sorted(report.done.items())
        ),
        *_table("in the inboxes", report.inboxes),
        *_bundles(report),
        *_table("faults", report.faults),
        *(f"  met nobody: {brief}" for brief in report.missed),
        *_table("on the wire", report.wire),
        *_table("processes started", report.started),
        *_table("processes ended", report.exits),
        *(f"  {violation}" for violation in judgement.violations[:_SHOWN_MAX]),
        *(f"  {sentence}" for sentence in report.objections[:_SHOWN_MAX]),
    ]
    if len(judgement.violations) > _SHOWN_MAX:
        lines.append(f"  and {len(judgement.violations) - _SHOWN_MAX} more, in report.json")
    if judgement.unfinished:
        lines.append(f"  {len(judgement.unfinished)} have no effect yet; report.json lists them")
    if report.unknown is not None:
        lines.append(f"  {report.unknown}")
    return "\n".join([*lines, f"verdict: {status}"])


def _bundles(report: Report) -> list[str]:
    if not report.messages:
        return []
    sizes = ", ".join(f"{of_size} of {size}" for size, of_size in report.messages.items())
    count, mean = sum(report.messages.values()), mean_events(report.messages)
    return [
        f"messages: {count} with {mean:.1f} events in the mean: {sizes}",
        *_table("handlers failed on events of bundles, by place", dict(report.failed)),
        *_table("events of bundles died, by place", dict(report.died)),
    ]


def _table(title: str, counts: dict[str, int]) -> list[str]:
    return [f"{title}:", *(f"  {count:>6}  {name}" for name, count in sorted(counts.items()))] if counts else []


def _print_progress(line: str) -> None:
    click.echo(line, err=True)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; every expected failure is one line and an exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        cli(standalone_mode=False, prog_name="python -m tests.chaos")
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped; there is no verdict", err=True)
        sys.exit(_STOPPED)
    except click.ClickException as error:
        error.show()
        sys.exit(REFUSED)
    except ConfigError as error:
        click.echo(f"chaos: {error}", err=True)
        sys.exit(REFUSED)
    except (MessagingError, AssertionError, OSError) as error:
        click.echo(f"chaos: {error}", err=True)
        sys.exit(EXIT_CODES[PropertyStatus.UNKNOWN])
    except Exception:  # Python would exit with 1, which means violated: a crash is unknown
        traceback.print_exc()
        sys.exit(EXIT_CODES[PropertyStatus.UNKNOWN])


if __name__ == "__main__":
    main()
