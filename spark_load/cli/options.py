"""Options of several commands, and what they name: the declaration, the faults, and the place where the tasks run."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from sluice.declaration import Declaration, Environment, load_declaration, loading
from sluice.errors import ConfigError
from sluice.judge.folder.json_files import sentence
from sluice.terminal.values import DAY_SECONDS, NumberType
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import SHAPES, FaultKind, Shape, Targets, schedule_faults
from spark_load.profiles import profile
from spark_load.profiles.profile import NamedProfile


def shared_declaration(path: Path | None) -> Declaration:
    """Return the declaration, and let worker processes that are started later find the same one."""
    declaration = load_declaration(path)
    if path is not None:
        os.environ[loading.VARIABLE] = str(declaration.path)
    return declaration


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--master` and `--remote` to a command."""
    remote = click.option(
        "--remote",
        metavar="URL",
        envvar="SPARK_REMOTE",
        help="A Spark Connect server, sc://host:port.  [default: $SPARK_REMOTE, else run here]",
    )
    master = click.option(
        "--master", metavar="URL", help="A standalone Spark master, spark://host:port.  [default: run here]"
    )
    return master(remote(command))


def clock_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--max-clock-offset`; the command gets `clock_bound_us`, 0 if the option is not given."""
    return click.option(
        "--max-clock-offset",
        "clock_bound_us",
        metavar="MS",
        type=NumberType("milliseconds", 0.001, 1_000 * DAY_SECONDS),
        callback=lambda _context, _option, milliseconds: 0 if milliseconds is None else round(milliseconds * 1_000),
        help="Milliseconds that the clocks of any two machines are apart at most.  [default: what the history proves]",
    )(command)


def profile_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add PROFILE, `--consumer` and `--faults` to a command, and give it the `named` profile with both."""

    @click.argument("profile_name", metavar="PROFILE")
    @click.option(
        "--consumer",
        type=click.Choice(["raw", "worker", "lambda"]),
        help="What consumes: our own loop, the real worker, or the declared Lambda functions."
        "  [default: as the profile says]",
    )
    @click.option(
        "--faults",
        "shape",
        type=click.Choice(list(SHAPES)),
        help="What is done to processes, network and databases meanwhile.  [default: as the profile says]",
    )
    @wraps(command)
    def run_with_profile(*, profile_name: str, consumer: str | None, shape: Shape | None, **others: Any) -> None:
        named = profile.load(profile_name)
        if consumer is not None:
            named = _change_profile(named, "--consumer", consumer, consumer=consumer)
        if shape is not None:  # at the profile's own rate, and in its own window
            named = _change_profile(
                named, "--faults", shape, faults=replace(named.profile.faults, shape=shape, given=())
            )
        command(named=named, **others)

    return run_with_profile


def _change_profile(named: NamedProfile, option: str, value: str, **changes: Any) -> NamedProfile:
    """Return the profile with changed fields; `option` and `value` are for the error's text."""
    try:
        return replace(named, profile=replace(named.profile, **changes))
    except ValidationError as error:
        problem = sentence(error.errors()[0])
        raise ConfigError(f"profile {named.name!r} with {option} {value}: {problem}") from error


def schedule_of(
    named: NamedProfile, environment: Environment, seed: int, *, is_here: bool = True
) -> tuple[ScheduledFault[FaultKind], ...]:
    """Return the scheduled faults of a run of a profile in an environment.

    Args:
        named: the profile.
        environment: whose consumers the faults may hit.
        seed: determines the times and targets.
        is_here: whether the run's publishers are processes of this machine, which faults can hit.

    Raises:
        ConfigError: the faults have no target, or no time.
    """
    from spark_load.faults import servers  # noqa: PLC0415 (needs SQLAlchemy, which is not there where one only judges)

    load = named.profile
    loaded = environment.consumers_of(environment.topics[0])
    functions = [consumer.name for consumer in loaded if consumer.runtime is not None]
    if load.consumer == "lambda" and not functions:
        raise ConfigError(
            f"no consumer of environment {environment.name!r} declares a function, allowed with consumer 'lambda' is"
            " one with Consumer(runtime=Lambda(…)); declare it, or choose consumer 'worker'"
        )
    if load.consumer == "worker" and functions:
        raise ConfigError(
            f"consumer is 'worker', allowed is 'lambda' or 'raw': {functions[0]} of environment {environment.name!r}"
            " runs in a Lambda function, and its queue counts as one needs it; choose consumer 'lambda'"
        )
    consumers = [consumer.name for consumer in loaded]
    targets = Targets.of(
        consumer=load.consumer,
        consumers=consumers,
        consumers_per_queue=load.consumers_per_queue,
        publish_tasks=load.publish_tasks if is_here else 0,
        is_through_outbox=load.destination == "outbox",
        database="own" if load.faults.is_calm else servers.database(),
        restarts=servers.restartable(),
        functions=functions if load.consumer == "lambda" else (),
    )
    return schedule_faults(load.faults, targets, seed=seed, duration_seconds=load.duration_seconds)


def on_a_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a cluster, and give the command the `cluster` that they name."""

    @cluster_options
    @wraps(command)
    def run_on_cluster(*, master: str | None, remote: str | None, **others: Any) -> None:
        from spark_load.runtime.spark_session import Cluster  # noqa: PLC0415 (what needs no cluster needs no Spark)

        command(cluster=Cluster(master=master, remote=remote or None), **others)

    return run_on_cluster
