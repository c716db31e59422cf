"""Compare scaled workers with the prediction of `sluice.rehearse.model.simulation` for the same messages.

Times are in the policy's minutes and seconds: real ones times `60 / minute_seconds`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sluice.rehearse.model.control_loop import USUAL
from sluice.rehearse.model.simulation import TaskWork, simulate
from sluice.rehearse.model.traffic import RecordedTraffic
from spark_load.consume.scaling.observation import MINUTE_SECONDS, Observation, ObservedPace, QueueRecord
from spark_load.consume.scaling.task_pool import PooledTask

_SHOWN = ("visible", "inflight", "running", "desired", "empty", "received")


def result(seen: Observation, journals: QueueRecord, pace: ObservedPace) -> dict[str, Any]:
    """Return a service's measured series, the predicted ones, and their differences, as JSON for `rehearsal.json`."""
    measured = _times(seen, journals, pace)
    minutes = len(seen.series["desired"])
    group_numbers: dict[str, int] = {}
    traffic = RecordedTraffic(
        name=seen.rehearsed.consumer,
        lasts_minutes=minutes,
        sent_at=np.array([max(0.0, pace.policy_seconds(at_us)) for at_us, _ in journals.sent], dtype=np.float64),
        group=np.array(
            [group_numbers.setdefault(group, len(group_numbers)) for _, group in journals.sent], dtype=np.int64
        ),
    )
    service = seen.rehearsed.service
    work = TaskWork(
        lanes=seen.rehearsed.lanes,
        handler_seconds=pace.handler_seconds * pace.factor,
        acceptable_latency_seconds=MINUTE_SECONDS,
        overhead_seconds=measured["overhead_seconds"],
        start_seconds=measured["start_seconds"],
        visibility_seconds=None if service.queue is None else service.queue.visibility_timeout_seconds * pace.factor,
    )
    simulated = simulate(service, traffic, work, variant=USUAL)  # it goes on until its queue is empty
    predicted = {name: simulated.series[name][:minutes] for name in _SHOWN}
    return {
        "measured": {name: seen.series[name] for name in _SHOWN} | {"recorded": _counts(journals, minutes, pace)},
        "predicted": predicted,
        "decisions": [list(decision) for decision in seen.decisions],
        "predicted_decisions": [list(decision) for decision in simulated.decisions if decision[0] < minutes],
        "tasks_apart": _apart(seen.series["running"], predicted["running"]),
        "task_minutes": [_sum(seen.series, "running"), _sum(predicted, "running")],
        "backlog_minutes": [
            _sum(seen.series, "visible", "inflight"),
            _sum(predicted, "visible", "inflight"),
        ],
        "stopped": stops(seen, journals, pace),
        "is_back": seen.is_back,
        **measured,
    }


def _times(seen: Observation, journals: QueueRecord, pace: ObservedPace) -> dict[str, float]:
    """Return the mean seconds of a task's start, and of a message's overhead, in the policy's time."""
    scaled_tasks = [task for task in seen.tasks if task.started_us >= pace.begun_us] or list(seen.tasks)
    starts = [(task.polls_us - task.started_us) / 1e6 for task in scaled_tasks if task.polls_us is not None]
    seconds_held = [(held.ended_us - held.received_us) / 1e6 for held in journals.held if held.ended_us is not None]
    overhead_seconds = max(0.0, sum(seconds_held) / len(seconds_held) - pace.handler_seconds) if seconds_held else 0.0
    start_seconds = sum(starts) / len(starts) if starts else 0.0
    return {
        "start_seconds": round(start_seconds * pace.factor, 1),
        "overhead_seconds": round(overhead_seconds * pace.factor, 2),
    }


def _counts(journals: QueueRecord, minutes: int, pace: ObservedPace) -> dict[str, list[int]]:
    """Return the counts by minute from the journals, which are complete when the workers have ended."""
    counted = {
        "sent": [at_us for at_us, _ in journals.sent],
        "received": [held.received_us for held in journals.held],
        "empty": list(journals.empty_us),
    }
    by_minute = {name: [0] * minutes for name in counted}
    for name, instants in counted.items():
        for at_us in instants:
            minute = int(pace.policy_seconds(at_us) // MINUTE_SECONDS)
            if 0 <= minute < minutes:
                by_minute[name][minute] += 1
    return by_minute


def stops(seen: Observation, journals: QueueRecord, pace: ObservedPace) -> list[dict[str, Any]]:
    """Return how each task was stopped, and how many messages it held."""
    return [_stop_facts(task, seen, journals, pace) for task in seen.tasks if task.stopped_us is not None]


def _stop_facts(task: PooledTask, seen: Observation, journals: QueueRecord, pace: ObservedPace) -> dict[str, Any]:
    """Return how one task was stopped: when, with how many messages, and how long it took."""
    assert task.stopped_us is not None, "it was stopped"
    recorder = seen.recorders.get(task.name)
    held = [held for held in journals.held if held.recorder == recorder and held.is_held_at(task.stopped_us)]
    unrecorded_receives = [at_us for at_us in journals.unrecorded_us if task.started_us <= at_us <= task.stopped_us]
    held_count = len(held) + (0 if task.killed_us is None else len(unrecorded_receives))
    return {
        "task": task.name,
        "minute": round(pace.policy_seconds(task.stopped_us) / MINUTE_SECONDS, 1),
        "held_messages": held_count,
        "was_protected": task.was_protected,
        "is_killed": task.killed_us is not None,
        "took_seconds": None if task.ended_us is None else round((task.ended_us - task.stopped_us) / 1e6, 1),
    }


def _apart(measured: Sequence[float | None], predicted: Sequence[float | None]) -> float:
    """Return the mean difference of two series of tasks."""
    differences = [abs((a or 0.0) - (b or 0.0)) for a, b in zip(measured, predicted, strict=True)]
    return round(sum(differences) / len(differences), 3) if differences else 0.0


def _sum(series: Mapping[str, Sequence[float | None]], *names: str) -> float:
    """Return the sum of the values of these series."""
    return round(sum(value or 0.0 for name in names for value in series[name]), 1)


def sentences(results: Mapping[str, Mapping[str, Any]], pace: ObservedPace) -> list[str]:
    """Return the sentences of the summary on each service, a line each; `results` is by consumer."""
    lines = []
    for consumer, of in results.items():
        minutes = len(of["measured"]["desired"])
        measured, predicted = of["task_minutes"]
        backlog, predicted_backlog = of["backlog_minutes"]
        lines.append(
            f"{consumer}: tasks {_path(of['decisions'], of['measured'])} in {minutes} minutes of"
            f" {pace.minute_seconds:g} s, predicted {_path(of['predicted_decisions'], of['predicted'])};"
            f" {of['tasks_apart']:.2f} tasks apart on average, {measured:g} task-minutes (predicted {predicted:g}),"
            f" {backlog:g} message-minutes of backlog (predicted {predicted_backlog:g});"
            f" {stops_sentence(of['stopped'])}"
        )
    return lines


def _path(decisions: Sequence[Sequence[Any]], series: Mapping[str, Sequence[float | None]]) -> str:
    """Return the numbers of tasks one after the other: `1 → 3 → 1`."""
    first = int(series["desired"][0] or 0) if series["desired"] else 0
    return " → ".join(map(str, [first, *(after for _, _, after, _ in decisions)]))


def stops_sentence(stopped: Sequence[Mapping[str, Any]]) -> str:
    """Return the tasks that were stopped while they held messages, and those that were killed, by name."""
    at_work = [f"{stop['task']} ({stop['held_messages']} messages)" for stop in stopped if stop["held_messages"]]
    killed = [stop["task"] for stop in stopped if stop["is_killed"]]
    return (
        f"{len(stopped)} stopped, {f'at work: {", ".join(at_work)}' if at_work else 'none at work'},"
        f" {f'killed: {", ".join(killed)}' if killed else 'none killed'}"
    )
