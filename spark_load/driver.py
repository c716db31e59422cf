"""One load test from start to verdict: set up, offer the load, drain, judge, write down."""

import json
import platform
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sluice.checker import Expectation
from sluice.clock import Clock, NotReached, SystemClock, clock_id, eventually, wall_minus_monotonic_us
from sluice.declaration import Environment
from sluice.errors import HistoryError
from sluice.verdict import Verdict
from spark_load import report
from spark_load.consume import consume
from spark_load.coordination import Board, Progress
from spark_load.judge import compact, judge
from spark_load.plan import Plan
from spark_load.profile import NamedProfile, Profile
from spark_load.publish import publish
from spark_load.site import Site
from spark_load.tasks import JOURNALS, Run

RUN_FILE = "run.json"
_HISTORY = "history"
_UNFINISHED = "the driver did not live to see the end of the load"
_READY_SECONDS = 180
_LEAD_US = 500_000
_WATCH_SECONDS = 0.5

type Watch = Callable[[str, list[Progress]], None]
"""Called about twice a second with the phase and what every task said last."""


def make_folder(runs: Path, environment: Environment, profile: str, clock: Clock) -> Path:
    """Make the folder of a new run, `<utc>-<environment>-<profile>`.

    Raises:
        HistoryError: it cannot be made or written to.
    """
    at = datetime.fromtimestamp(clock.now_us() / 1e6, tz=UTC)
    folder = runs.resolve() / f"{at:%Y%m%dT%H%M%S}-{environment.name}-{profile}"
    try:
        folder.mkdir(parents=True)
        (folder / RUN_FILE).touch()
    except OSError as error:
        raise HistoryError(
            f"cannot write the history to {runs} ({error.strerror}); name a folder you can write to with --runs-dir"
        ) from error
    return folder


def slots(profile: Profile, site: Site) -> int:
    """Return how many Spark tasks of a load test run at once."""
    return profile.publish_tasks + profile.consumers_per_queue * len(site.queue_urls)


def run_load(
    spark: SparkSession,
    *,
    folder: Path,
    environment: Environment,
    site: Site,
    named: NamedProfile,
    seed: int,
    target: str,
    saboteur: str | None,
    watch: Watch,
    transport: str = "boto3",
) -> Verdict:
    """Run one load test and write its verdict; return it.

    Args:
        spark: a session with at least `slots(profile, site)` slots.
        folder: of the run, from `make_folder`.
        environment: what is loaded.
        site: where it is deployed.
        named: the profile.
        seed: the same seed makes the same messages.
        target: key into `sluice.deviations`.
        saboteur: name of one to install; None for an honest run.
        watch: told how far the run is.
        transport: what publishes.

    Raises:
        HistoryError: the history cannot be written or read.

    Runs on the driver, and blocks for the duration of the load and the drain.
    """
    profile = named.profile
    run = Run(
        id=f"{folder.name}-{secrets.token_hex(2)}",
        folder=folder,
        site=site,
        plan=Plan(profile, seed),
        clock_id=clock_id(),
        clock_offset_us=wall_minus_monotonic_us(),
        transport=transport,
        saboteur=saboteur,
    )
    expectation = Expectation(
        run=run.id,
        queues=tuple(site.queue_urls),
        visibility_timeout_seconds=dict(site.visibility_timeout_seconds),
        dead_letter_queues=dict(site.dead_letter_queues),
        fan_out_skew_seconds_max=profile.fan_out_skew_seconds_max,
        passed_over_seconds_max=profile.passed_over_seconds_max,
        stuck_seconds_max=profile.stuck_seconds_max,
    )
    described = {
        "run": run.id,
        "environment": environment.name,
        "target": target,
        "endpoint_url": site.endpoint_url,
        "profile_name": named.name,
        "profile": profile.as_json(),
        "seed": seed,
        "transport": transport,
        "saboteur": saboteur,
        "recorders": run.recorders(),
        "max_receive_count": dict(site.max_receive_count),
        "versions": {name: version(name) for name in ("pyspark", "boto3", "pyarrow")}
        | {"python": platform.python_version()},
    }
    _store(folder, described, expectation, [_UNFINISHED])
    unknowns = _offer(spark, run, watch)
    _store(folder, described, expectation, unknowns)
    watch("judging", [])
    return rejudge(spark, find_stored(folder))


def _store(folder: Path, described: Mapping[str, Any], expectation: Expectation, unknowns: Sequence[str]) -> None:
    draft = folder / f".{RUN_FILE}"
    said = {"described": described, "expectation": asdict(expectation), "unknowns": list(unknowns)}
    draft.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    draft.replace(folder / RUN_FILE)


@dataclass(frozen=True, slots=True)
class Stored:
    """A run that took place: what was planned and expected, what to say of it, and what went wrong while it ran."""

    folder: Path
    plan: Plan
    expectation: Expectation
    described: Mapping[str, Any]
    unknowns: tuple[str, ...]


def find_stored(folder: Path) -> Stored:
    """Return the run whose folder that is.

    Raises:
        HistoryError: the folder is no run's.
    """
    try:
        said = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        described, expectation = said["described"], said["expectation"]
        plan = Plan(Profile(**described["profile"]), described["seed"])
        expected = Expectation(**(expectation | {"queues": tuple(expectation["queues"])}))
        return Stored(folder, plan, expected, described, tuple(said["unknowns"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HistoryError(
            f"{folder} is not the folder of a run ({RUN_FILE} is missing or damaged); see the folders in runs/"
        ) from error


def rejudge(spark: SparkSession, stored: Stored) -> Verdict:
    """Judge the stored history of a run and write its verdict, anew if there was one.

    Raises:
        HistoryError: its history is not there, damaged, or of another version.
    """
    try:
        compact(spark, stored.folder / JOURNALS, stored.folder / _HISTORY)
    except PySparkException as error:
        raise HistoryError(f"the journals in {stored.folder / JOURNALS} cannot be read: {_last_line(error)}") from error
    verdict = judge(
        spark.read.parquet(str(stored.folder / _HISTORY)),
        plan=stored.plan,
        expectation=stored.expectation,
        run=stored.described,
        unknowns=stored.unknowns,
        thresholds=stored.plan.profile.thresholds(),
    )
    report.write(verdict, stored.folder)
    return verdict


def _offer(spark: SparkSession, run: Run, watch: Watch) -> tuple[str, ...]:
    """Publish and consume at once, and return what went wrong with either."""
    clock = SystemClock()
    board = run.board(clock)
    late: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        consuming = pool.submit(_collect, consume(spark, run))
        publishing = pool.submit(_collect, publish(spark, run))
        jobs = {"consumers": consuming, "publishers": publishing}
        try:
            _start(board, run, jobs, clock)
            _publish(publishing.done, board, watch, run.plan.profile.duration_seconds * 2 + 120, clock)
            _drain(consuming.done, board, watch, run.plan.profile.drain_timeout_seconds, clock)
        except NotReached as error:
            late.append(str(error))
        finally:
            board.stop()
            if any(not job.done() for job in jobs.values()):
                watch("stopping", board.everyone())
        return (*late, *(reason for name, job in jobs.items() if (reason := _failure(name, job)) is not None))


def _collect(job: DataFrame) -> None:
    job.collect()


def _start(board: Board, run: Run, jobs: Mapping[str, Future[None]], clock: Clock) -> None:
    expected = slots(run.plan.profile, run.site)

    def is_ready() -> bool:
        return any(job.done() for job in jobs.values()) or len(board.everyone()) == expected

    eventually(is_ready, timeout_seconds=_READY_SECONDS, describe=f"{expected} Spark tasks to be ready", clock=clock)
    board.start(clock.now_us() + _LEAD_US)


def _publish(is_done: Callable[[], bool], board: Board, watch: Watch, timeout_seconds: float, clock: Clock) -> None:
    def look() -> bool:
        watch("publishing", board.everyone())
        return is_done()

    eventually(
        look,
        timeout_seconds=timeout_seconds,
        describe="publishing to finish",
        interval_seconds=_WATCH_SECONDS,
        clock=clock,
    )


def _drain(is_done: Callable[[], bool], board: Board, watch: Watch, patience_seconds: float, clock: Clock) -> None:
    """Wait for the consumers as long as they get on: a slow machine is not a stuck queue.

    Raises:
        NotReached: nothing was consumed for that long.
    """
    consumed, since = -1, clock.monotonic()
    while not is_done():
        everyone = board.everyone()
        watch("draining", everyone)
        count = sum(one.done for one in everyone if one.role == "consume")
        if count > consumed:
            consumed, since = count, clock.monotonic()
        elif clock.monotonic() - since >= patience_seconds:
            raise NotReached(f"the queues were not drained, and for {patience_seconds:g} s nothing more was consumed")
        clock.sleep(_WATCH_SECONDS)


def _failure(name: str, job: Future[None]) -> str | None:
    """Wait for a Spark job and return why it failed; None when it did not."""
    try:
        job.result()
    except (PySparkException, NotReached, OSError) as error:
        return f"the {name} failed: {_last_line(error)}"
    return None


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[-1] if lines else type(error).__name__)[:300]
