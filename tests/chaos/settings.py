"""The settings of a chaos run: its kinds of fault, producers and workers, its schedule and its environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import override

from sluice.clock import SystemClock
from sluice.declaration import Commit, Consumer, Environment, Gaps, Lambda, Poison, Removal, Topic
from sluice.errors import ConfigError
from spark_load.faults import drawing
from spark_load.faults.drawing import Way
from spark_load.faults.shapes import FUNCTION, NETWORK, PROCESS, RELAY, RELAYS, FaultKind, Targets, way
from tests.chaos.system import broken_bundles, producers, world_faults
from tests.chaos.system.world_faults import WorldFault

_LOADED = (*PROCESS, *NETWORK, FaultKind.RESTART, FaultKind.ROLL, FaultKind.POISON, FaultKind.REDRIVE, *FUNCTION)
KINDS: tuple[FaultKind | WorldFault, ...] = (*_LOADED, *WorldFault)
"""What can be done to a run."""
PRODUCER = "producer"
_SECONDS = {FaultKind.FREEZE: (1.0, 12.0), FaultKind.STALL: (1.0, 8.0), FaultKind.RESTART: (2.0, 4.0)}
"""How long a fault lasts, shortest and longest, where it is not as long as in a load test."""
_FIRST_SECONDS = 1.0
_POISON_WEIGHT, _POISON_SECONDS = 9, (6.0, 15.0)  # with bundles, so that it hits each place of one
BATCH_EVENTS_MAX = 8
"""Events of a group in one commit, at most."""

type Fault = drawing.ScheduledFault[FaultKind | WorldFault]


class _Targets(Targets):
    """Those of a load test, of which every process has a line to the database, and the relays are restarted in turn."""

    @override
    def of_kind(self, kind: FaultKind) -> tuple[str, ...]:
        """Return the targets of a kind of fault."""
        return (*super().of_kind(kind), *((RELAY,) if kind is FaultKind.ROLL else ()))


def choose_kinds(names: Sequence[str]) -> tuple[FaultKind | WorldFault, ...]:
    """Return the kinds of those names.

    Raises:
        ConfigError: there is no such kind.
    """
    unknown = sorted(set(names) - set(KINDS))
    if unknown:
        raise ConfigError(f"--faults is {', '.join(unknown)}, allowed are {', '.join(KINDS)}; correct it")
    return tuple(kind for kind in KINDS if kind in names)


_SYSTEM = "tests.chaos.system"
_DJANGO = f"{_SYSTEM}.django_project"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceModules:
    """The modules of a run's producers and workers.

    Args:
        handlers: of the consumers.
        broken_handlers: the same, but they commit by themselves.
        relay: is run with the arguments of `sluice` for each relay.
        worker: the same for each worker.
        producer: is run for each producer.
        function: of each consumer; None where workers run the handlers.
        mistake: of the function, or of what is done to bundles; None is the product's.
    """

    handlers: str = f"{_SYSTEM}.handlers"
    broken_handlers: str = f"{_SYSTEM}.broken_handlers"
    relay: str = "sluice"
    worker: str = "sluice"
    producer: str = producers.__name__
    function: Lambda | None = None
    mistake: str | None = None

    def break_handlers(self) -> "ServiceModules":
        """Return those whose handlers commit by themselves."""
        return replace(self, handlers=self.broken_handlers)

    def make(self, mistake: str) -> "ServiceModules":
        """Return those that make a mistake."""
        if mistake in broken_bundles.MISTAKES:
            return replace(self, relay=broken_bundles.__name__, worker=broken_bundles.__name__, mistake=mistake)
        return replace(self, mistake=mistake)


SERVICES: Mapping[str, ServiceModules] = {
    "plain": ServiceModules(),
    "asyncio": ServiceModules(handlers=f"{_SYSTEM}.async_handlers", broken_handlers=f"{_SYSTEM}.broken_async_handlers"),
    "django": ServiceModules(
        handlers=f"{_DJANGO}.handlers",
        broken_handlers=f"{_DJANGO}.broken_handlers",
        worker=f"{_DJANGO}.manage",
        producer=f"{_DJANGO}.producers",
    ),
    "lambda": ServiceModules(
        handlers=f"{_SYSTEM}.function_handlers", function=Lambda(batch_size=10, timeout_seconds=2)
    ),
}
"""The kinds of producers and workers, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a run.

    Args:
        seed: of faults and commits.
        commits: transactions of all producers together.
        seconds: of the schedule, over which the commits are spread.
        every_seconds: mean time between two faults.
        kinds: of faults.
        groups: message groups.
        producers: processes.
        workers: processes of each consumer.
        drain_seconds: how long nothing may change while everything is to drain.
        modules: of producers and workers.
        is_cold: let the faults begin before any group is known to any inbox.
        bundle_events_max: events of a group in one message.
        commit: what workers commit at once.
    """

    seed: int = 1
    commits: int = 1_000
    seconds: float = 60.0
    every_seconds: float = 1.5
    kinds: tuple[FaultKind | WorldFault, ...] = KINDS
    groups: int = 24
    producers: int = 4
    workers: int = 2
    drain_seconds: float = 90.0
    modules: ServiceModules = SERVICES["plain"]
    is_cold: bool = False
    bundle_events_max: int = 1
    commit: Commit = Commit.EVENT

    @property
    def has_bundles(self) -> bool:
        """Return whether relays send events of a group together."""
        return self.bundle_events_max > 1

    @property
    def handlers(self) -> str:
        """Return the module of the handlers: with bundles, first attempts at a few events fail."""
        is_plain = self.modules.handlers == SERVICES["plain"].handlers
        return f"{_SYSTEM}.bundle_handlers" if self.has_bundles and is_plain else self.modules.handlers

    @property
    def batch_events_max(self) -> int:
        """Return how many events of a group one commit has at most: with bundles many, so that a backlog is left."""
        return min(self.bundle_events_max, BATCH_EVENTS_MAX)

    @property
    def producer_names(self) -> list[str]:
        """Return the names of the producers' places."""
        return [f"{PRODUCER}-{number}" for number in range(self.producers)]

    @property
    def services(self) -> dict[str, str]:
        """Return the names of all other places, to what is there: a relay, or a worker of a consumer."""
        workers = {f"{name}-{number}": name for name in CONSUMERS for number in range(self.workers)}
        return {**dict.fromkeys(RELAYS, RELAY), **workers}

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Return the schedule.

        Raises:
            ConfigError: there is no time.
        """
        if self.seconds <= _FIRST_SECONDS or self.every_seconds <= 0:
            raise ConfigError(
                f"--seconds is {self.seconds:g} with a fault every {self.every_seconds:g} s, allowed is more than"
                f" {_FIRST_SECONDS:g} s and more than 0 s; raise them"
            )
        targets = _Targets(
            workers=[*self.producer_names, *self.services],
            lines=tuple(self.services),
            consumers=tuple(CONSUMERS),
            functions=() if self.modules.function is None else tuple(CONSUMERS),
            database="postgres",
            restarts=["database"],
        )
        return drawing.draw_faults(
            [way for way in self._ways(targets) if way.kind in self.kinds and way.targets],
            seed=self.seed,
            first_seconds=_FIRST_SECONDS,
            until_seconds=self.seconds,
            every_seconds=self.every_seconds,
        )

    def _ways(self, targets: Targets) -> list[Way[FaultKind | WorldFault]]:
        """Return every kind of fault with what it can be done to."""
        loaded = [way(kind, targets.of_kind(kind), seconds=_SECONDS.get(kind)) for kind in _LOADED]
        if self.has_bundles:
            poison = loaded.pop(_LOADED.index(FaultKind.POISON))
            loaded.append(replace(poison, weight=_POISON_WEIGHT, seconds=_POISON_SECONDS))
        services, consumers = tuple(self.services), tuple(CONSUMERS)
        settings, misdeeds = tuple(world_faults.SETTINGS), tuple(world_faults.MISDEEDS)
        return [
            *loaded,
            Way(
                kind=WorldFault.SETTING,
                targets=("settings",),
                seconds=(1.0, 5.0),
                weight=3,
                details=settings,
            ),
            Way(kind=WorldFault.CROWD, targets=("connections",), seconds=(1.0, 4.0)),
            Way(kind=WorldFault.SIGNALS, targets=services, weight=2, details=tuple(world_faults.SIGNALS)),
            Way(kind=WorldFault.MISDEED, targets=consumers, seconds=(2.0, 6.0), weight=3, details=misdeeds),
        ]


CONSUMERS = {
    "audit": (Poison.SKIP, Gaps.RECORD),
    "ledger": (Poison.PARK, Gaps.HALT),
    "shipping": (Poison.PARK, Gaps.WAIT),
}
"""Consumers, and what each does when a message is dead or missing."""


def environment(settings: Settings) -> Environment:
    """Return the environment of a run: messages come again soon, five seconds after their worker died.

    Those of a function come again later: six times its timeout is the least.
    """
    function = settings.modules.function
    consumers = tuple(
        Consumer(
            name=name,
            handlers=settings.handlers,
            visibility_timeout_seconds=5 if function is None else 6 * function.timeout_seconds,
            stop_timeout_seconds=4,
            processing_seconds=0.5 if function is None else 0.1,
            max_attempts=4,
            lanes=3,
            poison=poison,
            gaps=gaps,
            gap_wait_seconds=8,
            runtime=function,
            commit=settings.commit,
        )
        for name, (poison, gaps) in CONSUMERS.items()
    )
    name = f"chaos{settings.seed}x{SystemClock().now_us() % 1_000_000}"
    return Environment(
        name=name,
        account="000000000000",
        removal=Removal.DESTROY,
        consumers=consumers,
        topics=(Topic(bundle_events_max=settings.bundle_events_max),),
    )
