"""`profile-from`: make a profile that replays recorded traffic."""

from pathlib import Path

import click

from sluice.errors import ConfigError, unwritable
from sluice.pages.units import plural
from sluice.terminal import output
from sluice.terminal.files import require_writable
from sluice.terminal.values import NumberType
from spark_load.judge.arrivals import PublishedMessages, read_publishes
from spark_load.profiles import profile, trace

_SECONDS_MAX = 31_536_000
_AFTER_SECONDS_MAX = 230  # a repeat must come inside the deduplication window, and a profile allows no more


@click.command("profile-from", short_help="Make a profile that replays recorded traffic.")
@click.argument("recording", metavar="RECORDING", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the profile goes, a .yaml file; its trace lies beside it.  [default: RECORDING's name, here]",
)
@click.option(
    "--speed",
    type=NumberType("times", 0.01, 1_000),
    default=1,
    show_default=True,
    metavar="FACTOR",
    help="How many times faster than it was recorded.",
)
@click.option(
    "--from-seconds",
    type=NumberType("seconds", 0, _SECONDS_MAX),
    default=0,
    metavar="SECONDS",
    help="Leave out what came earlier, counted from the first message.",
)
@click.option(
    "--until-seconds", type=NumberType("seconds", 0, _SECONDS_MAX), metavar="SECONDS", help="Leave out what came later."
)
@click.option("--to", "destination", metavar="NAME", help="The topic or queue, where messages went to several.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON on standard output.")
def profile_from(
    recording: Path,
    path: Path | None,
    speed: float,
    from_seconds: float,
    until_seconds: float | None,
    destination: str | None,
    as_json: bool,
) -> None:
    """Make a profile that replays the messages of RECORDING: a recording of a service, or the folder of a load test.

    Instants, groups and sizes of bodies are kept. A group becomes its rank, the one with the most messages 0;
    neither its name nor anything of a body is written. What SQS dropped as a repeat is no message: the profile
    repeats as large a share, drawn at random.

    \b
    Examples:
      sluice load profile-from tuesday -o tuesday.yaml --speed 2
      sluice load plan tuesday.yaml
      sluice rehearse prod --profile tuesday.yaml
    """
    target = Path(f"{recording.resolve().name}.yaml") if path is None else path
    if target.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--output is {str(target)!r}, allowed is a name that ends with .yaml")
    profile.require_name(str(target))
    columns = target.with_suffix(".parquet")
    if existing := next((file for file in (target, columns) if file.exists()), None):
        raise ConfigError(f"{existing} exists, and is not overwritten; name another file with --output, or remove it")
    require_writable(target, "--output")
    found = read_publishes(recording, destination=destination, seconds=(from_seconds, until_seconds))
    if len(found.arrivals) > trace.ARRIVALS_MAX:
        raise ConfigError(
            f"{recording} has {len(found.arrivals):,} messages, allowed is at most {trace.ARRIVALS_MAX:,}; cut it with"
            " --from-seconds and --until-seconds"
        )
    try:
        trace.write(found.arrivals, columns)
        text = _text(found, columns.name, speed)
        profile.parse(text, source=str(target), folder=target.parent)
        target.write_text(text, encoding="utf-8")
    except (OSError, ConfigError) as error:
        columns.unlink(missing_ok=True)
        if isinstance(error, ConfigError):
            raise
        raise unwritable(target, error, "name another file with --output") from error
    if as_json:
        output.as_json(_as_json(found, target, columns))
        return
    output.line(f"profile: {target}, trace: {columns} ({columns.stat().st_size:,} bytes)")
    for line in (_about(found, 1.0), *_remarks(found)):
        output.line(line)


def _about(found: PublishedMessages, speed: float) -> str:
    """Return a sentence about recorded traffic: its messages, groups and seconds, if replayed `speed` times as fast."""
    arrivals = found.arrivals
    seconds, pause = (value / 1e6 / speed for value in (arrivals.offset_us[-1], arrivals.longest_pause_us))
    return (
        f"{plural(len(arrivals), 'message')} of {plural(len(arrivals.group_counts), 'group')} in {seconds:,.1f} s,"
        f" {arrivals.group_counts[0] / len(arrivals):.1%} of them in one group; the longest pause is {pause:,.1f} s"
    )


def _remarks(found: PublishedMessages) -> list[str]:
    """Return sentences about the differences between the profile and the recording."""
    lines = []
    if found.repeat_count:
        lines.append(f"repeats that SQS drops, counted apart as duplicate_share: {found.repeat_count:,}")
    if found.unanswered_count:
        lines.append(f"publishes that were refused or never answered, left out: {found.unanswered_count:,}")
    if found.unfinished_count:
        lines.append(f"recorders that did not finish: {found.unfinished_count:,}; the last messages may be missing")
    if not found.has_sizes:
        lines.append("not every body's size is on record: the others have the median, or what the profile says")
    return lines


def _text(found: PublishedMessages, trace_file: str, speed: float) -> str:
    """Return the profile as YAML."""
    lines = [
        f"# Recorded traffic: {_about(found, speed)}.",
        "# For a target that takes as much: `sluice load plan` says what it needs.",
        "replay:",
        f"  file: {trace_file}",
        f"  speed: {speed:g}  # 2 sends everything twice as fast",
    ]
    if found.repeat_count:
        after = min(max(found.repeat_seconds / speed, 0.001), _AFTER_SECONDS_MAX)
        lines += [
            f"duplicate_share: {min(found.repeat_count / len(found.arrivals), 1):.4f}  # of messages, drawn at random",
            f"duplicate_after_seconds: {after:.3f}  # the median",
        ]
    lines += [
        "consumers_per_queue: 2",
        "lateness_budget_seconds: 10  # a generator later than that measures itself",
        "drain_timeout_seconds: 90",
    ]
    return "\n".join(lines) + "\n"


def _as_json(found: PublishedMessages, target: Path, columns: Path) -> dict[str, object]:
    arrivals = found.arrivals
    return {
        "profile": str(target),
        "trace": str(columns),
        "trace_bytes": columns.stat().st_size,
        "message_count": len(arrivals),
        "group_count": len(arrivals.group_counts),
        "seconds": float(arrivals.offset_us[-1] / 1e6),
        "longest_pause_seconds": arrivals.longest_pause_us / 1e6,
        "hottest_share": float(arrivals.group_counts[0] / len(arrivals)),
        "repeat_count": found.repeat_count,
        "unanswered_count": found.unanswered_count,
        "unfinished_count": found.unfinished_count,
        "has_sizes": found.has_sizes,
    }
