"""`python -m tests.chaos.real`: real workers under one schedule, and if it fails, cut down by so many runs at most.

The load test's own publisher, workers, faults, recorder and judge, without Spark. Each worker is a process; the
simulator's model answers over HTTP. What a fault meets is up to the machine: a part that does not fail when it is tried
is taken to be right, and what is left has failed.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest import mock

import click
import numpy as np
import yaml

from sluice.clock import SystemClock, clock_id, eventually, wall_minus_monotonic_us
from sluice.declaration import Consumer, Environment, Topic, task_settings
from sluice.judge.checker import Expectation, Thresholds
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import open_in_memory
from sluice.judge.folder.layout import WORKER_LOGS
from sluice.judge.judge import PlannedMessages, RunFacts, judge
from spark_load.consume import worker_processes
from spark_load.consume.dead_letters import DeadLetters
from spark_load.consume.worker_processes import WorkersResult
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import RELAYS, SHAPES, FaultKind, Faults, Shape, Targets, as_given, schedule_faults
from spark_load.plan.plan import Plan
from spark_load.profiles import profile, trace
from spark_load.publish import relays
from spark_load.publish.bodies import run_of
from spark_load.publish.job import publish_share
from spark_load.publish.transport import OUTBOX
from spark_load.run.harm import harm_run
from spark_load.runtime import deployment
from spark_load.runtime.coordinator import RunStep
from spark_load.runtime.task_context import DRIVER, LoadRun, TaskContext, task_context
from tests.chaos.shrinking import shrink
from tests.support.endpoints import fake_aws
from tests.support.messaging.broken_functions import MISTAKES
from tests.support.processes import judged_function
from tests.support.processes.function_loads import FUNCTION, judge_answers

type MessagePlace = tuple[int, int]
"""When it is published, in microseconds, and the number of its group."""
type Faulty = ScheduledFault[FaultKind]

_WORKER = Consumer(
    name="billing",
    visibility_timeout_seconds=4,
    stop_timeout_seconds=3,
    processing_seconds=0.5,
    max_attempts=20,
)
_GROUPS, _BODY_BYTES = 8, 200
_LOAD = {
    "replay": {"file": "messages.parquet"},
    "warm_up_seconds": 1,
    "destination": OUTBOX,
    "consumers_per_queue": 2,
    "publish_linger_seconds": 0.1,
    "lateness_budget_seconds": 60,
    "drain_timeout_seconds": 7,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosVariant:
    """The product, or the product with a mistake.

    Args:
        handlers: module of the handlers of workers.
        relay: module that is run for each relay.
        consumer: whose handlers they are.
        mistake: of its Lambda function; None is the product's.
        bundle_events_max: of its topic.
    """

    handlers: str = "sluice.testing.load.effects"
    relay: str = "sluice"
    consumer: Consumer = _WORKER
    mistake: str | None = None
    bundle_events_max: int = 1

    @property
    def environment(self) -> Environment:
        """Return the environment that is declared."""
        topic = Topic(bundle_events_max=self.bundle_events_max)
        return Environment(name="faulty", account="000000000000", topics=(topic,), consumers=(self.consumer,))

    @property
    def is_function(self) -> bool:
        """Return whether a Lambda function runs the handlers."""
        return self.consumer.runtime is not None

    @property
    def consumer_kind(self) -> str:
        """Return `consumer` of the profile."""
        return "lambda" if self.is_function else "worker"

    @property
    def targets(self) -> Targets:
        """Return what faults are done to."""
        names = (self.consumer.name,)
        return Targets.of(
            consumer=self.consumer_kind,
            consumers=names,
            consumers_per_queue=2,
            is_through_outbox=True,
            functions=names if self.is_function else (),
        )


_VARIANTS = {
    "sound": ChaosVariant(),
    "bundles": ChaosVariant(bundle_events_max=5),
    "no-inbox": ChaosVariant(handlers="tests.support.processes.broken_load_handlers"),
    "unanswered-is-sent": ChaosVariant(relay="tests.support.processes.broken_relay"),
    "lambda": ChaosVariant(consumer=FUNCTION),
    **{mistake: ChaosVariant(consumer=FUNCTION, mistake=mistake) for mistake in MISTAKES},
}
_QUIET_SECONDS = 6.0  # until the workers have begun
_SECONDS_MAX = 480
_LEAD_US = 1_000_000


@click.command()
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of messages and faults.")
@click.option("--messages", "count", type=click.IntRange(1), default=300, show_default=True, help="How many.")
@click.option("--seconds", type=click.FloatRange(8), default=18, show_default=True, help="How long they come.")
@click.option("--faults", "shape", type=click.Choice(list(SHAPES)), default="crashes", show_default=True)
@click.option("--variant", type=click.Choice(list(_VARIANTS)), default="sound", show_default=True)
@click.option("--tries", type=click.IntRange(0), default=12, show_default=True, help="Runs to cut it down; 0 for none.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default="runs/chaos-real",
    show_default=True,
    help="Folder of the least that fails: a profile and its trace.",
)
def main(*, seed: int, count: int, seconds: float, shape: Shape, variant: str, tries: int, output: Path) -> None:
    """Run a seed's schedule with real processes; ends with 1 where it fails."""
    rng = Random(f"messages/{seed}")  # noqa: S311 (a load is not a secret)
    messages = [(round(1e6 * seconds * number / count), rng.randrange(_GROUPS)) for number in range(count)]
    faults = schedule_faults(
        Faults(shape=shape, every_seconds=0.8, after_seconds=_QUIET_SECONDS),
        _VARIANTS[variant].targets,
        seed=seed,
        duration_seconds=seconds,
    )
    found = list[str]()

    def fails(some_faults: Sequence[Faulty], some_messages: Sequence[MessagePlace]) -> bool:
        sentences = violations(some_faults, with_first(some_messages), seed=seed, variant=variant)
        click.echo(
            f"{len(some_faults)} faults, {len(some_messages)} messages: {(sentences or ['nothing'])[0]}", err=True
        )
        found[:] = sentences or found
        return bool(sentences)

    def with_first(some: Sequence[MessagePlace]) -> list[MessagePlace]:
        """Return some messages with the first message of all, from which a trace counts its instants."""
        return sorted({messages[0], *some})

    if not fails(faults, messages):
        return
    if tries:
        least = shrink(faults, messages, fails, tries_max=tries)
        output.mkdir(parents=True, exist_ok=True)
        left = with_first(least.messages)
        _profile(output, least.faults, left, _VARIANTS[variant])
        click.echo(
            f"seed {seed}: from {len(faults)} faults and {count} messages to {len(least.faults)} and"
            f" {len(left)}, in {least.tries} tries{'' if least.is_least else ', all there were'}; {output}"
        )
    click.echo(yaml.safe_dump({"witness": found}, sort_keys=False))
    sys.exit(1)


def violations(faults: Sequence[Faulty], messages: Sequence[MessagePlace], *, seed: int, variant: str) -> list[str]:
    """Run messages under faults, and return what is wrong by history and database, as sentences."""
    verdict, objections = run_and_judge(faults, messages, seed=seed, variant=variant)
    return [*(f"{violation.anomaly}: {violation.sentence}" for violation in verdict.violations), *objections]


def run_and_judge(
    faults: Sequence[Faulty], messages: Sequence[MessagePlace], *, seed: int, variant: str
) -> tuple[Verdict, list[str]]:
    """Run messages under faults; return the verdict, and as sentences the objections of databases and of answers."""
    chosen = _VARIANTS[variant]
    account = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    with (
        tempfile.TemporaryDirectory(prefix="sluice-chaos-") as folder,
        mock.patch.dict(os.environ, {**account, task_settings.VARIABLE: task_settings.render(chosen.environment)}),
        mock.patch.object(worker_processes, "_EFFECTS", chosen.handlers),
        judge_answers(invocations := Path(folder, "invocations"), chosen.mistake)
        if chosen.is_function
        else nullcontext(),
        mock.patch.object(relays, "_MODULE", chosen.relay),
        fake_aws.running() as endpoint,
    ):
        endpoint.deploy(chosen.environment, visibility_timeout_seconds=None)
        named = profile.load(str(_profile(Path(folder), faults, messages, chosen)))
        run = LoadRun(
            id=run_of(SystemClock().now_us()),
            transport=OUTBOX,
            folder=Path(folder),
            deployment=deployment.find(chosen.environment, endpoint_url=endpoint.url),
            plan=Plan(named.profile, seed, named.trace_file),
            clock_id=clock_id(),
            clock_offset_us=wall_minus_monotonic_us(),
            has_faults=True,
        )
        worked, objections = _run(run, faults)
        wrong = judged_function.wrong_answers(invocations) if chosen.is_function else []
        return _judge(run, worked), [*objections, *wrong]


def _profile(folder: Path, faults: Sequence[Faulty], messages: Sequence[MessagePlace], variant: ChaosVariant) -> Path:
    """Write a profile that replays messages under faults, with its trace, and return its path."""
    instants, groups = np.array(messages, np.int64).T
    trace.write(trace.rank_arrivals(instants, groups, np.full(len(messages), _BODY_BYTES)), folder / "messages.parquet")
    path = folder / "least.yaml"
    own = {"consumer": variant.consumer_kind, "bundle_events_max": variant.bundle_events_max}
    path.write_text(
        yaml.safe_dump({**_LOAD, **own, "faults": as_given(faults)}, sort_keys=False),
        encoding="utf-8",
    )
    return path


def _run(run: LoadRun, faults: Sequence[Faulty]) -> tuple[WorkersResult, list[str]]:
    """Offer the load under faults; return its workers, and what their databases object to."""
    rows = run.plan.batch(np.arange(run.plan.row_count)).sort_by("offset_us")
    relays.make_outbox(run)
    with harm_run(run, faults) as harm, task_context(run, DRIVER) as context, ThreadPoolExecutor(3) as pool:
        working = pool.submit(worker_processes.work, harm.run, harm.take)
        relaying = pool.submit(relays.run_relays, harm.run, harm.take_relays)
        publishing = pool.submit(publish_share, harm.run, iter([rows]))
        eventually(
            lambda: publishing.done() or (context.coordinator.all_progress() and _are_relays_ready(run)),
            timeout_seconds=_SECONDS_MAX,
            describe="publisher and relays to be ready",  # the schedule does not wait for who comes late
        )
        context.coordinator.reach(RunStep.START, context.clock.now_us() + _LEAD_US)
        letters, warm_up_count = DeadLetters(context, run), run.plan.profile.warm_up_count
        eventually(
            lambda: publishing.done() or (_published_count(context) >= warm_up_count and letters.are_queues_empty()),
            timeout_seconds=_SECONDS_MAX,
            describe="the warm-up to be consumed: then there are workers for the faults to meet",
        )
        begin_us = context.clock.now_us() + _LEAD_US
        context.coordinator.reach(RunStep.MEASURE, begin_us)
        harm.begin(begin_us, context.journal, context.clock, letters)
        eventually(publishing.done, timeout_seconds=_SECONDS_MAX, describe="everything to be published")
        publishing.result()
        context.coordinator.reach(RunStep.PUBLISHED)
        eventually(
            lambda: working.done() or harm.is_all_done(letters),
            timeout_seconds=_SECONDS_MAX,
            describe="everything to be done, or the workers to be idle",
        )
        context.coordinator.reach(RunStep.FINISH)
        eventually(working.done, timeout_seconds=_SECONDS_MAX, describe="the workers to end")
        harm.end()
        dead = letters.read(keeps=True)
        objections = harm.compare(context.journal, is_settled=not any(dead.values()))
        if run.functions:  # no receive is an attempt, and no handler of theirs fails as often as it may
            objections += [
                f"{count} messages are in {queue}, and their attempts are not used up"
                for queue, count in dead.items()
                if count
            ]
        letters.probe()
        context.coordinator.reach(RunStep.STOP)
        relaying.result()
        return working.result(), objections


def _published_count(context: TaskContext) -> int:
    return sum(task.done for task in context.coordinator.all_progress() if task.role == "publish")


def _are_relays_ready(run: LoadRun) -> bool:
    logs = [run.folder / WORKER_LOGS / f"{name}.log" for name in RELAYS]
    written = [log.read_text(encoding="utf-8") if log.exists() else "" for log in logs]
    return all('"event": "leading"' in text or '"event": "standing by"' in text for text in written)


def _judge(run: LoadRun, worked: WorkersResult) -> Verdict:
    engine, where = open_in_memory(run.folder), run.deployment
    assert engine is not None, "without a bound it is read"
    queues = tuple(where.queue_urls)
    facts = RunFacts(
        plan=PlannedMessages(message_count=run.plan.row_count, lateness_budget_seconds=60),
        expectation=Expectation(
            run=run.id,
            queues=queues,
            visibility_timeout_seconds=dict(where.visibility_timeout_seconds),
            dead_letter_queues=dict(where.dead_letter_queues),
            effects_recorded=queues,
            gapless=run.gapless_queues,
            max_receive_count=dict(where.max_receive_count),
        ),
        target="endpoint",
        recorders=run.recorders() | dict(worked.recorders),
        killed=tuple(worked.killed),
        thresholds=Thresholds(recovery_seconds_max=60),
    )
    return judge(engine, facts)


if __name__ == "__main__":
    main()
