"""`sluice env diff`: what a change of the declaration does to blocking, ceilings, scaling and cost."""

import io
import multiprocessing
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import click

from sluice.cli.options import json_option
from sluice.cost.bill import MonthlyMessages, bill
from sluice.cost.prices import bundle_size, group_requests
from sluice.declaration import RETRY_SECONDS_MAX, Consumer, Environment, ExistingTopic, Topic, load_declaration
from sluice.declaration.loading import Declaration
from sluice.errors import ConfigError
from sluice.terminal import output
from sluice.terminal.options import declaration_option

_GIT_SECONDS_MAX = 60
_READ_SECONDS_MAX = 30
_TRAFFIC = ("day", "burst")  # names of the rehearsal's scenarios
_MESSAGE_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two declarations of an environment.

    Args:
        of: name of the consumer, or of the environment.
        name: of the field, or of the computed value, such as `day: p95`.
        before: the value of the earlier declaration, as text; `-` where there is none.
        after: the value of the present declaration, as text; `-` where there is none.
    """

    of: str
    name: str
    before: str
    after: str


@click.command()
@click.argument("name", metavar="ENV")
@click.option(
    "--against",
    default="HEAD",
    show_default=True,
    metavar="REV|FILE",
    help="What to compare with: a revision of git, or another declaration.",
)
@declaration_option
@json_option
def diff(name: str, against: str, declaration: Path | None, as_json: bool) -> None:
    """Compare ENV as it is declared with what it was: fields, blocking, ceilings, scaling, cost.

    It calls nothing. Scaling is simulated on a day of traffic and on a burst, as `sluice rehearse` does; `make diff`
    shows what a deployment would change in the account.

    \b
    Examples:
      sluice env diff prod
      sluice env diff prod --against HEAD~1
      sluice env diff prod --against ../main/environments.py --json
    """
    declared = load_declaration(declaration)
    after = declared.environment(name)
    with _declaration_file(against, declared) as path:
        before = _environment(path, name)
    found = list(differences(before, after))
    if as_json:
        output.as_json([asdict(each) for each in found])
        return
    if not found:
        output.line(f"{name} is as it was at {against}")
        return
    output.table(("of", "", against, "now"), [(each.of, each.name, each.before, each.after) for each in found])
    output.line("p95 and task-hours are simulated, on traffic sized by what the consumer's most tasks could do before")


@contextmanager
def _declaration_file(against: str, declared: Declaration) -> Iterator[Path]:
    """Yield the path of the declaration to compare with.

    Args:
        against: a file; or a revision of git, of which the whole tree is unpacked into a temporary folder.
        declared: the present declaration, whose file is looked for in that tree.
    """
    if Path(against).is_file():
        yield Path(against)
        return
    if not against or against.startswith("-"):
        raise ConfigError(f"--against is {against!r}, allowed is a file or a revision of git")
    if declared.path is None:
        raise ConfigError("a stack gave this task its declaration, needed is a file to compare; run it in the project")
    folder = declared.path.parent
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().strip())
    archive = _git(top, "archive", "--format=tar", against, revision=against)
    with tempfile.TemporaryDirectory(prefix="sluice-diff-") as folder_name:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            plain = [member for member in files.getmembers() if member.isfile() or member.isdir()]
            files.extractall(folder_name, members=plain, filter="data")
        path = Path(folder_name) / declared.path.relative_to(top)
        if not path.is_file():
            raise ConfigError(
                f"there is no {path.relative_to(folder_name)} at {against}, needed is a declaration to compare with"
            )
        yield path


def _git(folder: Path, *arguments: str, revision: str | None = None) -> bytes:
    """Return git's output; if git fails, the error names `revision`, or without one the folder."""
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607 (whichever git there is)
            capture_output=True,
            timeout=_GIT_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"git cannot be run ({error}); give --against a file") from error
    if result.returncode:
        why = result.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        seen = (
            f"--against is {revision!r}, allowed is a file or a revision of git"
            if revision
            else f"{folder} is not in git"
        )
        raise ConfigError(f"{seen} ({why[0]})")
    return result.stdout


def _environment(path: Path, name: str) -> Environment:
    """Return the environment of this name from another declaration.

    A process of its own reads it: the modules of both declarations have the same names.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        try:
            found: Environment | str = pool.apply_async(_read, (path, name)).get(_READ_SECONDS_MAX)
        except multiprocessing.TimeoutError as error:
            raise ConfigError(
                f"the declaration to compare with did not load within {_READ_SECONDS_MAX} s, or it ended its process;"
                " name another with --against"
            ) from error
        except Exception as error:  # such as an Environment that cannot be pickled
            raise ConfigError(f"the declaration to compare with cannot be read ({error})") from error
    if isinstance(found, str):
        raise ConfigError(f"{found} (in what --against names)")
    return found


def _read(path: Path, name: str) -> Environment | str:
    """Return an environment of a declaration, or why it cannot be had; runs in the other process."""
    try:
        declared = load_declaration(path)
    except ConfigError as error:
        return str(error).replace(f"{path.parent}/", "")
    if name not in declared:
        return f"environment {name!r} is not declared there, allowed is one of {', '.join(declared)}"
    return declared[name]


def differences(before: Environment, after: Environment) -> Iterator[Difference]:
    """Yield the differences of an environment's two declarations: first declared fields, then behaviour and cost."""
    yield from _fields(before.name, before, after, ignored=("consumers",))
    was = {consumer.name: consumer for consumer in before.consumers}
    now = {consumer.name: consumer for consumer in after.consumers}
    for name in dict.fromkeys([*was, *now]):
        if name not in was or name not in now:
            yield Difference(name, "consumer", "declared" if name in was else "-", "declared" if name in now else "-")
            if name in now:
                behaviour = _behaviour(after, now[name], after, now[name])
                yield from _value_differences(name, dict.fromkeys(behaviour, "-"), behaviour)
        elif was[name] != now[name]:
            yield from _fields(name, was[name], now[name])
            yield from _value_differences(
                name, _behaviour(before, was[name], before, was[name]), _behaviour(after, now[name], before, was[name])
            )
    yield from _bundle_differences(before, after)
    yield from _value_differences(before.name, _cost(before), _cost(after))


def _bundle_differences(before: Environment, after: Environment) -> Iterator[Difference]:
    """Yield the effects of another `bundle_events_max` of a topic on its groups, and on its consumers' queues."""
    was = {topic.name: topic for topic in before.topics}
    for topic in after.topics:
        earlier = was.get(topic.name)
        if earlier is None or earlier.bundle_events_max == topic.bundle_events_max:
            continue
        yield from _value_differences(topic.name, _bundles(before, earlier), _bundles(after, topic))
        now = {consumer.name: consumer for consumer in after.consumers_of(topic)}
        for consumer in before.consumers_of(earlier):
            if consumer.name in now:
                receives = before.max_receive_count(consumer), after.max_receive_count(now[consumer.name])
                yield Difference(consumer.name, "maxReceiveCount", *map(str, receives))


def _bundles(environment: Environment, topic: Topic | ExistingTopic) -> Mapping[str, str]:
    """Return how events of a topic travel; how full a bundle is nobody knows, so its effect is a range."""
    most = bundle_size(
        topic.bundle_events_max, event_bytes=_MESSAGE_BYTES, message_bytes_max=environment.event_bytes_max
    )
    requests = [f"{group_requests(1_000_000, events_per_message=events):,.0f}" for events in (most, 1)]
    return {
        "events of a message, at most": f"{topic.bundle_events_max}",
        "requests for a million events of one group": " to ".join(dict.fromkeys(requests)),
    }


def _fields(of: str, before: object, after: object, *, ignored: Sequence[str] = ()) -> Iterator[Difference]:
    """Yield the fields in which two dataclasses of one type differ, except the ignored ones."""
    for field in fields(before):  # type: ignore[arg-type]
        was, now = getattr(before, field.name), getattr(after, field.name)
        if was != now and field.name not in ignored:
            yield Difference(of, field.name, _text(was), _text(now))


def _text(value: Any) -> str:
    """Return a field's value as text of at most sixty characters; a member of an Enum is its name."""
    text = f"{value.name}" if hasattr(value, "name") and hasattr(value, "value") else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _value_differences(of: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    """Yield the names whose values differ; both mappings have the same names."""
    for name, was in before.items():
        if was != after[name]:
            yield Difference(of, name, was, after[name])


def _behaviour(
    environment: Environment, consumer: Consumer, sized_in: Environment, sized_by: Consumer
) -> Mapping[str, str]:
    """Return a consumer's computed values, as text by name: blocking, ceiling, simulated latency and task-hours.

    Args:
        environment: the environment of the declaration that is judged.
        consumer: the consumer of the declaration that is judged.
        sized_in: the environment of the earlier declaration.
        sized_by: the consumer of the earlier declaration, whose capacity decides how much traffic is simulated. So both
            declarations are judged on the same traffic.
    """
    from sluice.rehearse.advice import ceilings
    from sluice.rehearse.declared_service import service_of, tasks_of
    from sluice.rehearse.model.scenarios import scenarios
    from sluice.rehearse.model.simulation import simulate

    lowest = ceilings(
        environment, consumer, groups=consumer.expected_groups, hottest_share=1 / consumer.expected_groups
    )[0]
    retry_seconds = (consumer.max_attempts - 1) * max(consumer.visibility_timeout_seconds, RETRY_SECONDS_MAX)
    values = {
        "a failing message blocks its group, at most": f"{retry_seconds + consumer.visibility_timeout_seconds:,} s",
        "a killed task's groups wait, at most": f"{consumer.visibility_timeout_seconds:,} s",
        "ceiling": f"{lowest.per_second:,.3g}/s: {lowest.name}",
    }
    service, tasks = service_of(environment, consumer), tasks_of(consumer)
    traffic_by_name = scenarios(service_of(sized_in, sized_by), tasks_of(sized_by), groups=sized_by.expected_groups)
    for traffic in _TRAFFIC:
        result = simulate(service, traffic_by_name[traffic].traffic, tasks)
        p95 = result.quantile_seconds(0.95) or 0.0
        values[f"{traffic}: p95"] = f"{p95:,.3g} s"
        values[f"{traffic}: task-hours"] = f"{result.task_hours:,.1f}"
    return values


def _cost(environment: Environment) -> Mapping[str, str]:
    """Return the cost of a month in US dollars, as text by name: idle, and with fifty million messages."""
    volumes = {"idle": 0, "50M messages of 1 KiB": 50_000_000}
    bills = {
        name: bill(environment, MonthlyMessages(messages=count, message_bytes=_MESSAGE_BYTES))
        for name, count in volumes.items()
    }
    return {
        f"US dollars a month, {name}": " to ".join(
            dict.fromkeys(f"{usd:,.2f}" for usd in (made.usd_with_full_bundles, made.usd) if usd is not None)
        )
        for name, made in bills.items()
    }
