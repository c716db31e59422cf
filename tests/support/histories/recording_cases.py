"""Small recordings of every kind, on which all engines must reach the same verdict."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sluice.history.events import HistoryEvent, Kind, answer_detail
from sluice.judge.reading import parquet_files
from sluice.judge.recording import RecordedQueue
from sluice.recorder import record
from sluice.saboteurs import bundles, sabotage
from tests.support.anomalies import CASES as ANOMALIES
from tests.support.histories.builders import RUN, full, publish_event, receive_event, sane, shift_event, without
from tests.support.histories.bundled_services import KNOWN as BUNDLED
from tests.support.histories.bundled_services import BundledService
from tests.support.histories.mutations import VALUES, mutate
from tests.support.histories.recorded_services import DEAD, QUEUE, RECEIVES_MAX, VISIBILITY_SECONDS, OrderService
from tests.support.histories.recordings import KNOWN, by_two_clocks, in_group, table_of, write_journal, write_parquet

_SHOP = {
    QUEUE: RecordedQueue(
        visibility_timeout_seconds=VISIBILITY_SECONDS, dead_letter_queue=DEAD, max_receive_count=RECEIVES_MAX
    )
}
_RANDOM_GROUPS = 60
_VALUES = {**VALUES, "message_group_id": [None], "error": ["Throttling", "Timeout"], "clock_id": ["another", None]}
_TORN_BYTES = 600


@dataclass(frozen=True, kw_only=True)
class RecordingCase:
    """A recording, and the options of `check` for it.

    Args:
        make: writes the recording into a folder.
        queues: the declared queues.
        has_other_producers: whether programs that are not recorded published as well.
    """

    make: Callable[[Path], object]
    queues: Mapping[str, RecordedQueue] = field(default_factory=lambda: KNOWN)
    has_other_producers: bool = False


def _write_buckets(folder: Path, events: Sequence[HistoryEvent]) -> None:
    folder.mkdir()
    for number in range(3):
        parquet_files.write([table_of(events[number::3])], folder, str(number), 4)


def _write_until(folder: Path, end: int) -> None:
    (journal,) = write_journal(folder, sane()).glob("*.arrows")
    journal.write_bytes(journal.read_bytes()[:end])


def _write_flipped(folder: Path) -> None:
    write_journal(folder, sane(), name="whole")
    (journal,) = write_journal(folder.with_name("other"), sane(), name="flipped").glob("*.arrows")
    damaged = bytearray(journal.read_bytes())
    damaged[10:20] = b"not Arrow!"
    (folder / journal.name).write_bytes(damaged)


def _write_two_journals(folder: Path) -> None:
    events = many_groups()
    for number in range(2):
        write_journal(folder, events[number::2], name=f"recorded-{number}")


# --- events ----------------------------------------------------------------------------------------------------------


def anomalies() -> list[HistoryEvent]:
    """Return every anomaly's history, each as a group, and events around the groups."""
    return [*around(), *(event for name, case in ANOMALIES.items() for event in in_group(case.events, name))]


def near_misses() -> list[HistoryEvent]:
    return [event for name, case in ANOMALIES.items() for event in in_group(case.near_miss, name)]


def many_groups() -> list[HistoryEvent]:
    """Return sane groups, and two that are not."""
    sound = [event for number in range(10) for event in in_group(full(), f"sound {number}")]
    return [*sound, *in_group(ANOMALIES["C1"].events, "C1"), *in_group(ANOMALIES["G1"].events, "G1")]


def move_from(began_ms: int) -> HistoryEvent:
    """Return a move task from billing's dead-letter queue back to it."""
    return HistoryEvent(
        kind=Kind.REDRIVEN.value,
        run=RUN,
        queue="billing-dlq",
        invoked_at_us=began_ms * 1_000,
        responded_at_us=900_000,
        detail='{"destination": "billing"}',
    )


def around() -> list[HistoryEvent]:
    """Return events around groups: polls, faults, probes that find nothing, a lost answer."""

    def event(kind: Kind, at_ms: int, took_ms: int, **fields: Any) -> HistoryEvent:
        instants = {"invoked_at_us": at_ms * 1_000, "responded_at_us": (at_ms + took_ms) * 1_000}
        return HistoryEvent(kind=kind.value, run=RUN, clock_id="c", **{**instants, "queue": "billing", **fields})

    polls = [
        event(
            Kind.POLL,
            index,
            900,
            call_id=f"poll/{index}",
            wait_time_seconds=1,
            detail=answer_detail(index // 1_000 % 2),
        )
        for index in range(0, 40_000, 1_000)
    ]
    faults = [event(Kind.FAULT, index, 50, queue="events", detail='{"is_lossy": true}') for index in (15, 15, 60_000)]
    probes = [
        event(Kind.PROBE, index, 10, visible_count=0, in_flight_count=0, delayed_count=0)
        for index in (50_000, 51_000, 52_000)
    ]
    lost = event(Kind.POLL, 41_000, 0, call_id="poll/lost", outcome="info", error="Timeout")
    return [*polls, *faults, *probes, replace(lost, responded_at_us=None)]


def break_at_random(seed: int) -> list[HistoryEvent]:
    """Return groups with events dropped, doubled, moved or changed at random; the same seed gives the same ones."""
    rng = random.Random(seed)  # noqa: S311 (no secret)
    groups = {f"random {number}": mutate(full(), rng, values=_VALUES) for number in range(_RANDOM_GROUPS)}
    return [*around(), move_from(122), *(event for name, events in groups.items() for event in in_group(events, name))]


def forward(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Return the events; an answer before its call is removed, because a history with one is refused as a whole."""
    return [
        replace(event, responded_at_us=None) if (event.responded_at_us or 0) < (event.invoked_at_us or 0) else event
        for event in events
    ]


def _record_sales(folder: Path, saboteur: str | None = None) -> None:
    """Record a service without Sluice on the simulator; with a saboteur, while it breaks a promise."""
    shop = OrderService()
    if saboteur is not None:
        sabotage(shop.clients, saboteur, every=4)
    with record(shop.clients, folder, clock=shop.simulator.clock):
        shop.trade(count=3)


def _record_bundles(folder: Path, saboteur: str | None = None) -> None:
    service = BundledService(folder, saboteur_name=saboteur)
    for group in "abab":
        service.publish(service.events(group, 3))
    service.work()
    service.close()


def _case_of(events: Sequence[HistoryEvent], **case: Any) -> RecordingCase:
    return RecordingCase(make=lambda folder: write_journal(folder, events), **case)


def _parquet(events: Sequence[HistoryEvent], **case: Any) -> RecordingCase:
    return RecordingCase(make=lambda folder: write_parquet(folder, events), **case)


def _by_several_clocks() -> list[HistoryEvent]:
    """Return groups whose publishers and consumers have different clocks, swap them, or share a handle."""
    there = by_two_clocks(full(), ahead_us=5_000_000)
    back = [
        replace(event, clock_id="c" if event.clock_id == "d" else "d")
        for event in by_two_clocks(full(), ahead_us=-5_000_000)
    ]
    deleted_by_another = [
        replace(shift_event(event, 90_000_000), clock_id="e") if event.kind == Kind.DELETED else event
        for event in there
    ]
    return [*in_group(there, "there"), *in_group(back, "back"), *in_group(deleted_by_another, "other")]


_GROUPLESS = [e if e.kind == Kind.PUBLISHED else replace(e, message_group_id=None) for e in sane()]
_FROM_NOWHERE = without(sane(), kind=Kind.PUBLISHED.value, idx=2)
CASES: Mapping[str, RecordingCase] = {
    "sane": RecordingCase(make=lambda folder: write_journal(folder, sane(), one_group_in=4)),
    "of queues nobody named": _case_of(sane(), queues={}),
    "reordered": _case_of(ANOMALIES["C1"].events),
    "missing its last message": _case_of(without(sane(), queue="billing", idx=2), queues={}),
    "torn": RecordingCase(make=lambda folder: _write_until(folder, -_TORN_BYTES)),
    "cut in its head": RecordingCase(make=lambda folder: _write_until(folder, 100)),
    "no journal": RecordingCase(make=_write_flipped),
    "of nothing": _case_of([]),
    "of no consumer": _case_of([publish_event(0, 0)], queues={}),
    "of no producer": _case_of([receive_event("billing", 0, 9)]),
    "without groups": _case_of(_GROUPLESS),
    "with a message from nowhere": _case_of(_FROM_NOWHERE),
    "with a message of another producer": _case_of(_FROM_NOWHERE, has_other_producers=True),
    "with a move between receives": _case_of([*sane(), move_from(110)]),
    "with a move during a receive": _case_of([*sane(), move_from(122)]),
    "of several clocks": _parquet(_by_several_clocks()),
    "of several clocks, one of them alone": _parquet(in_group(by_two_clocks(full(), ahead_us=3_600_000_000), "apart")),
    "of two recorders": RecordingCase(make=_write_two_journals),
    "every anomaly, recorded": _case_of(anomalies()),
    "every anomaly, planned": _parquet(anomalies()),
    "every near miss": RecordingCase(make=lambda folder: write_parquet(folder, near_misses(), row_group_size=40)),
    "in buckets": RecordingCase(make=lambda folder: _write_buckets(folder, many_groups())),
    "of two runs": _parquet([*sane(), replace(sane()[0], run="another")]),
    "of another version": _parquet([replace(sane()[0], schema_version=2)]),
    "of no event": _parquet([]),
    "random, one": RecordingCase(make=lambda folder: write_journal(folder, break_at_random(1))),
    "random, two": RecordingCase(make=lambda folder: write_parquet(folder, break_at_random(2))),
    "an honest service": RecordingCase(make=_record_sales, queues=_SHOP),
    "a service that delivers twice": RecordingCase(
        make=lambda folder: _record_sales(folder, "deliver-twice"), queues=_SHOP
    ),
    "a service that ignores deletes": RecordingCase(
        make=lambda folder: _record_sales(folder, "ignore-delete"), queues=_SHOP
    ),
    "bundles": RecordingCase(make=_record_bundles, queues=BUNDLED),
    **{
        f"bundles, {name}": RecordingCase(make=partial(_record_bundles, saboteur=name), queues=BUNDLED)
        for name in bundles.SABOTEURS
    },
}
"""Description to recording. Each recording is judged in one part and in several."""
