"""What a VALID verdict does not say, so that nobody takes it to have said it."""

from collections.abc import Sequence

from sluice.judge.checker.verdict import Holding, Status, Verdict
from sluice.pages.units import plural

_LOSSES = ("A1", "A3", "E1")  # judged only where the end of a group was seen
_NAMED_MAX = 3
_ACKNOWLEDGED = "A2"  # has an opportunity for each acknowledged message


def caveats(verdict: Verdict) -> list[str]:
    """Return what stands beside the word VALID, wherever it is read; nothing beside any other status."""
    if verdict.status is not Status.VALID:
        return []
    return [*_of_losses(verdict), *_of_faults(verdict), *_of_speed(verdict)]


def _of_losses(verdict: Verdict) -> list[str]:
    of_anomaly = {prop.anomaly: prop for prop in verdict.properties}
    open_ = [
        anomaly for anomaly in _LOSSES if anomaly in of_anomaly and of_anomaly[anomaly].holding is Holding.NOT_EXERCISED
    ]
    if _LOSSES[0] not in open_:
        return []
    why = (
        "nothing marks where a group ends, so no queue is known to be drained"
        if of_anomaly[_ACKNOWLEDGED].opportunities
        else "no acknowledged publish is on record"
    )
    return [f"loss was not judged ({', '.join(open_)}): {why}"]


def _of_faults(verdict: Verdict) -> list[str]:
    missed, crashed = verdict.run.get("missed", ()), verdict.run.get("crashed", ())
    found = []
    if missed:
        of = f"{len(missed)} of {plural(len(verdict.run['faults']), 'fault')}"
        found.append(f"{of} met nobody, or were to come when the run ended: {_first(missed)}")
    if crashed:
        workers = plural(len(crashed), "worker")
        found.append(f"{workers} ended with an error under faults, and another took the place: {_first(crashed)}")
    return found


def _first(sentences: Sequence[str]) -> str:
    return "; ".join(sentences[:_NAMED_MAX]) + ("; …" if len(sentences) > _NAMED_MAX else "")


def _of_speed(verdict: Verdict) -> list[str]:
    profile = verdict.run.get("profile")
    if profile is None or profile.get("latency_seconds_max") is not None:
        return []
    return ["it says nothing about speed: its profile sets no latency_seconds_max"]
