"""The file that describes a run, in the run's folder. It is written before the start and after the end of the run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import TypeAdapter, ValidationError, with_config

from sluice.errors import ConfigError
from sluice.judge.checker import Expectation
from sluice.judge.folder import json_files
from sluice.judge.folder.json_files import CLOSED, KEEPS, Int, Positive, one_of
from sluice.judge.folder.layout import JOURNALS, RUN_FILE, TRACE_FILE
from sluice.judge.judge import PlannedMessages, RunFacts
from sluice.saboteurs import SABOTEURS
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind
from spark_load.plan.plan import Plan
from spark_load.profiles.profile import of_run
from spark_load.publish.transport import NAMES


class _Clock(TypedDict):
    id: str
    offset_us: Int


class _Fault(TypedDict):
    kind: Annotated[str, one_of(FaultKind)]
    target: str
    at_seconds: float
    until_seconds: float
    detail: str


@with_config(KEEPS)
class _RunDescription(TypedDict):
    environment: str
    target: str
    endpoint_url: str | None
    profile: dict[str, Any]
    seed: int
    recorders: dict[str, str | None]
    max_receive_count: dict[str, Positive]
    saboteur: NotRequired[Annotated[str, one_of(SABOTEURS)] | None]
    transport: NotRequired[Annotated[str, one_of(NAMES)]]
    attempts: NotRequired[Positive]
    clock: NotRequired[_Clock]
    topic_arn: NotRequired[str]
    killed: NotRequired[list[str]]
    crashed: NotRequired[list[str]]
    missed: NotRequired[list[str]]
    faults: NotRequired[list[_Fault]]


@with_config(CLOSED)
class _RunSchema(TypedDict):
    described: _RunDescription
    expectation: Expectation
    unknowns: tuple[str, ...]


_RUN = TypeAdapter(_RunSchema)
_RESUMED = {"R2": "a consumer died between a message's effect and its delete, and keeps no inbox: it is handled again"}
"""Anomalies that are lawful in a resumed run, and why."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that took place: its plan and expectation, its description, and what failed while it ran."""

    folder: Path
    plan: Plan
    expectation: Expectation
    described: Mapping[str, Any]
    unknowns: tuple[str, ...]

    @property
    def faults(self) -> tuple[ScheduledFault[FaultKind], ...]:
        """Return the faults of its schedule."""
        return tuple(
            ScheduledFault(**{**fault, "kind": FaultKind(fault["kind"])}) for fault in self.described.get("faults", ())
        )

    @property
    def facts(self) -> RunFacts:
        """Return the facts about the run that the judge gets."""
        described, profile = self.described, self.plan.profile
        attempts = described.get("attempts", 1)
        return RunFacts(
            expectation=replace(self.expectation, max_receive_count=described["max_receive_count"]),
            target=described["target"],
            recorders=described["recorders"],
            attempts=attempts,
            killed=tuple(described.get("killed", ())),
            plan=PlannedMessages(
                message_count=self.plan.row_count, lateness_budget_seconds=profile.lateness_budget_seconds
            ),
            thresholds=profile.thresholds(),
            allowed={**profile.allowed_anomalies(), **(_RESUMED if attempts > 1 else {})},
            unknowns=self.unknowns,
            described=described,
        )


def store(folder: Path, described: Mapping[str, Any], expectation: Expectation, unknowns: Sequence[str]) -> None:
    """Write the description of a run, as a whole file."""
    stored = {"described": described, "expectation": asdict(expectation), "unknowns": list(unknowns)}
    json_files.replace(folder / RUN_FILE, json.dumps(stored, indent=2) + "\n")


def find_stored(folder: Path) -> StoredRun:
    """Return the run in a folder.

    Raises:
        ConfigError: the folder is no run's.
        HistoryError: the description of the run is damaged.
    """
    path = folder / RUN_FILE
    instead = f"see the folders in runs/, or judge its record alone: sluice check {folder / JOURNALS}"
    try:
        stored = json_files.read(path, _RUN, instead=instead)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{folder} is not the folder of a run ({RUN_FILE} is missing); see the folders in runs/"
        ) from error
    described = stored["described"]
    try:
        profile = of_run(described["profile"])
    except ValidationError as error:
        raise json_files.damage_error(path, error, instead=instead, inside="described.profile") from error
    trace_file = None if profile.replay is None else folder / TRACE_FILE
    return StoredRun(
        folder, Plan(profile, described["seed"], trace_file), stored["expectation"], described, stored["unknowns"]
    )
