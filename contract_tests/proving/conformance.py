"""Test every promise on every emulator, for `sluice conformance` (or `make conformance`).

The suite runs against one target after the other; then the page of promises and targets is written. A target that
cannot be installed, started or tested to the end is `unknown` with the reason, and stays on the page.
"""

import contextlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import click

from contract_tests.promises import PROMISES, Promiser
from contract_tests.proving import conformance_page
from contract_tests.proving.results import PromiseStatus, first_line
from emulator import engines, localstack, peers
from emulator.processes import SupervisedProcess
from sluice.clock import SystemClock
from sluice.errors import EndpointError

_PROJECT = Path(__file__).resolve().parents[2]
_WORK = Path("runs") / "conformance"
_RUN_SECONDS_MAX = 1_800
_STOP_GRACE_SECONDS = 20
_TICK_SECONDS = 0.5
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Column:
    """A target, as a column of the page.

    Args:
        name: never changes; in file names and options.
        title: as people call it.
        version: exact; "" for the simulator, which has none of its own.
        note: how it differs from the emulator as it is installed; "" where it does not.
        url: of an emulator that runs already; "" for one that is started here.
    """

    name: str
    title: str
    version: str
    note: str = ""
    url: str = ""


_WINDOW = "started with a hook: queues named -window3- deduplicate for 3 s instead of 300 s"
_OWN = f"localstack-{localstack.VERSION}"
_TARGETS = {engine.title: engine.name for engine in engines.ENGINES.values()}
COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("simulator", "simulator", "", "of this project: in the test's process, in virtual time"),
        Column(_OWN, "LocalStack", localstack.VERSION, _WINDOW),
        *(
            Column(peer.name, peer.title, peer.version, _WINDOW if peer.title in _TARGETS else "")
            for peer in peers.PEERS.values()
        ),
    )
}


@contextlib.contextmanager
def _start(column: Column, log: Path) -> Iterator[list[str]]:
    """Start a target and yield the suite's options that name it."""
    if column.url:
        yield ["--target", "endpoint", "--endpoint-url", column.url]
    elif column.name == "simulator":
        yield ["--target", "simulator"]
    elif column.name == _OWN:
        with localstack.running(log=log, engine=engines.LOCALSTACK) as own:
            yield ["--target", "localstack", "--endpoint-url", own.endpoint_url]
    else:
        kind = _TARGETS.get(column.title, "endpoint")  # ministack answers as if it were LocalStack
        with peers.running(peers.PEERS[column.name], log) as endpoint_url:
            yield ["--target", kind, "--endpoint-url", endpoint_url]


def _environment(column: Column) -> dict[str, str]:
    """Return the variables of the suite's process: placeholders for credentials, and none of the caller's AWS_*."""
    running = localstack.Emulator(endpoint_url="", log=_WORK if column.note == _WINDOW else None)
    given = localstack.with_endpoint(running)
    return {name: value for name, value in given.items() if "ENDPOINT" not in name and name != "PYTEST_ADDOPTS"}


def _test(column: Column, options: list[str], workers: int, selected: list[str]) -> Mapping[str, Any]:
    """Run the suite in a process of its own and return its results by promise.

    Args:
        column: the target.
        options: of the suite, which name the target.
        workers: tests at a time.
        selected: options that select tests.

    Raises:
        EndpointError: the suite did not end in time, or wrote no results.
    """
    path, log = _WORK / f"{column.name}.json", _WORK / f"{column.name}.log"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-v", "-n", str(workers), "contract_tests"]
    command += ["-o", "verbosity_assertions=2"]  # the evidence of a failure shows both sides whole
    command += ["-m", "not deployment and not slow", "--results", str(path), *options, *selected]
    deadline, shown = _clock.monotonic() + _RUN_SECONDS_MAX, 0
    with (
        log.open("wb") as output,
        SupervisedProcess(
            command, environment=_environment(column), grace_seconds=_STOP_GRACE_SECONDS, output=output
        ) as run,
    ):
        while run.is_running and _clock.monotonic() < deadline:
            _clock.sleep(_TICK_SECONDS)
            done = max((int(found) for found in re.findall(r"\[ *(\d+)%\]", log.read_text("utf-8"))), default=0)
            if done // 20 > shown // 20:
                shown = done
                _describe(f"{column.name}: {done} %")
        is_late = run.is_running
    if is_late or not path.exists():
        errors = re.findall(r"^(?:E +|ERROR: )(.+)", log.read_text("utf-8"), flags=re.MULTILINE)
        reason = (
            f"did not end within {_RUN_SECONDS_MAX} s" if is_late else f"wrote no results: {', '.join(errors[-1:])}"
        )
        raise EndpointError(f"the suite {reason}; its log: {log}")
    results: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["promises"]
    return results


def measure(column: Column, *, workers: int, selected: list[str]) -> tuple[Mapping[str, Any], str | None]:
    """Return one target's results by promise, and None; or no results, and the reason."""
    started = _clock.monotonic()
    _describe(f"{column.name}: starting {column.title} {column.version}".rstrip())
    try:
        with _start(column, _WORK / f"{column.name}-server.log") as options:
            results = _test(column, options, workers, selected)
    except (EndpointError, OSError) as error:
        _describe(f"{column.name}: unknown: {error}")
        return {}, first_line(str(error))
    count = Counter(result["status"] for result in results.values())
    counts = ", ".join(f"{count[status]} {status}" for status in conformance_page.STATUSES)
    _describe(f"{column.name}: {counts}; {_clock.monotonic() - started:.0f} s")
    return results, None


def matrix(
    measured: Mapping[str, tuple[Mapping[str, Any], str | None]],
    date: str,
    columns: Mapping[str, Column] = COLUMNS,
) -> dict[str, Any]:
    """Return the data of the page.

    Args:
        measured: by column's name, the result of `measure`.
        date: of the run.
        columns: the measured columns by their names.
    """
    tested = {promise for results, _ in measured.values() for promise in results}
    is_nothing_tested = not tested  # then all promises are rows, each unknown
    rows = []
    for promise in PROMISES.values():
        if promise.id in tested or (is_nothing_tested and promise.promiser is not Promiser.STACK):
            found = {}
            for name, (results, reason) in measured.items():
                unknown = {"status": PromiseStatus.UNKNOWN.value, "evidence": reason or "its test did not run"}
                result = results.get(promise.id, unknown)
                found[name] = {"status": result["status"], "evidence": result["evidence"]}
            rows.append(conformance_page.describe(promise) | {"results": found})
    targets = [{key: value for key, value in asdict(columns[name]).items() if key != "url"} for name in measured]
    return {"date": date, "targets": targets, "promises": rows}


def _describe(text: str) -> None:
    """Print a line about the progress."""
    click.echo(f"conformance: {text}", err=True)


def endpoint_columns(endpoints: Mapping[str, str]) -> dict[str, Column]:
    """Return the columns of emulators that run already, by name; `endpoints` has each URL by its title."""
    made = [
        Column(re.sub(r"[^a-z0-9.]+", "-", title.lower()), title, "", "an endpoint that ran already", url)
        for title, url in endpoints.items()
    ]
    return {column.name: column for column in made}


def run(
    only: tuple[str, ...], endpoints: Mapping[str, str], keyword: str | None, workers: int, output: Path | None
) -> NoReturn:
    """Measure every target, write the pages, and end with the exit code of `sluice conformance`."""
    _WORK.mkdir(parents=True, exist_ok=True)
    output = output or (_WORK if endpoints else Path("docs"))
    selected = [] if keyword is None else ["-k", keyword]
    given = endpoint_columns(endpoints)
    chosen = {name: COLUMNS[name] for name in only or (() if endpoints else COLUMNS)} | given
    measured = {name: measure(column, workers=workers, selected=selected) for name, column in chosen.items()}
    date = datetime.fromtimestamp(_clock.now_us() / 1_000_000, tz=UTC).date().isoformat()
    conformance_page.write(matrix(measured, date, chosen), output)
    _describe(f"wrote {output}/{conformance_page.RESULTS}, and conformance.md, .html and .json beside it")
    sys.exit(2 if any(reason for _, reason in measured.values()) else 0)
