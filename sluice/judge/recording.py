"""Judge a recording: the history of somebody's own service, without a plan of what was to be published.

Facts that nobody declares are derived from the history if possible, and left open otherwise. If the timeout of a queue
is unknown, neither losses nor violated leases can be proven for it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sluice import limits
from sluice.declaration import Environment, naming
from sluice.errors import ConfigError, HistoryError
from sluice.history.events import (
    CHANGED_QUEUE,
    CHANGED_SUBSCRIPTION,
    READS_BUNDLES,
    SCHEMA_VERSION,
    Kind,
    detail_of,
)
from sluice.judge.checker import Expectation
from sluice.judge.checker.clocks import NEVER_US
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import JudgeEngine
from sluice.judge.judge import RunFacts, judge
from sluice.judge.reading import folders
from sluice.recorder.journal import is_empty

_OTHERS = "where others received as well"
_UNDECLARED = "of which nobody said what it was to receive; name it with --queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedQueue:
    """Settings of a queue, its DLQ, and the DLQ of its subscription; None for an unknown setting.

    `is_unfiltered` says that the queue gets every message of the topic since before the recording, `may_have_bundles`
    that one of its messages may have several events.
    """

    visibility_timeout_seconds: int
    dead_letter_queue: str | None = None
    undelivered_queue: str | None = None
    max_receive_count: int | None = None
    retention_seconds: int | None = None
    dead_letter_retention_seconds: int | None = None
    is_unfiltered: bool = False
    may_have_bundles: bool = False


def with_retention(queues: Mapping[str, RecordedQueue], texts: Iterable[str]) -> dict[str, RecordedQueue]:
    """Return the queues with the retention times of several `NAME=SECONDS` for them and their DLQs."""
    found = dict(queues)
    owners = {queue.dead_letter_queue: name for name, queue in queues.items() if queue.dead_letter_queue is not None}
    for text in texts:
        name, _, seconds = text.partition("=")
        least, most = limits.MESSAGE_RETENTION_SECONDS_MIN, limits.MESSAGE_RETENTION_SECONDS_MAX
        if not seconds.isdecimal() or not least <= int(seconds) <= most:
            raise ConfigError(f"retention is {text!r}, allowed is NAME=SECONDS, with {least} to {most} seconds")
        if name in found:
            found[name] = replace(found[name], retention_seconds=int(seconds))
        elif name in owners:
            owner = owners[name]
            found[owner] = replace(found[owner], dead_letter_retention_seconds=int(seconds))
        else:
            raise ConfigError(f"retention is of {name!r}, which --queue does not name; name it with --queue")
    return found


def parse_queue(text: str) -> tuple[str, RecordedQueue]:
    """Return name and settings of `NAME=VISIBILITY_SECONDS[:DLQ[:MAX_RECEIVE_COUNT]]`."""
    name, _, rest = text.partition("=")
    seconds, dead, most, *more = [*rest.split(":"), "", ""][: max(3, rest.count(":") + 1)]
    is_timeout = seconds.isdecimal() and int(seconds) <= limits.VISIBILITY_TIMEOUT_SECONDS_MAX
    is_count = not most or (most.isdecimal() and 0 < int(most) <= limits.MAX_RECEIVE_COUNT_MAX)
    if not name or not is_timeout or not is_count or more or dead == name:
        raise ConfigError(
            f"queue is {text!r}, allowed is NAME=VISIBILITY_SECONDS[:DLQ[:MAX_RECEIVE_COUNT]],"
            f" such as orders.fifo=30:orders-dlq.fifo:5, with at most {limits.VISIBILITY_TIMEOUT_SECONDS_MAX} seconds"
            f" and {limits.MAX_RECEIVE_COUNT_MAX} receives"
        )
    return name, RecordedQueue(
        visibility_timeout_seconds=int(seconds),
        dead_letter_queue=dead or None,
        max_receive_count=int(most) if most else None,
    )


def parse_queues(texts: Iterable[str]) -> dict[str, RecordedQueue]:
    """Return the settings in several texts of `parse_queue`, by name; no name may occur twice, or be another's DLQ."""
    queues: dict[str, RecordedQueue] = {}
    for text in texts:
        name, queue = parse_queue(text)
        if name in queues:
            raise ConfigError(f"queue {name!r} is given twice, allowed is once")
        queues[name] = queue
    for name, queue in queues.items():
        if queue.dead_letter_queue in queues:
            raise ConfigError(
                f"queue {queue.dead_letter_queue!r} is the DLQ of {name!r}, and given as a queue of its own;"
                " leave one of the two out"
            )
    return queues


def declared_queues(environment: Environment) -> dict[str, RecordedQueue]:
    """Return the declared settings of the queues of an environment's consumers."""
    return {
        naming.queue_name(environment, consumer): RecordedQueue(
            visibility_timeout_seconds=consumer.visibility_timeout_seconds,
            dead_letter_queue=naming.dead_letter_queue_name(environment, consumer),
            undelivered_queue=naming.undelivered_queue_name(environment, consumer),
            max_receive_count=environment.max_receive_count(consumer),
            retention_seconds=consumer.message_retention_seconds,
            dead_letter_retention_seconds=consumer.dead_letter_retention_seconds,
            is_unfiltered=consumer.filter_policy is None and len(environment.topics) == 1,
            may_have_bundles=environment.bundle_events_max(consumer) > 1,
        )
        for consumer in environment.consumers
    }


def check(
    engine: JudgeEngine,
    root: Path,
    queues: Mapping[str, RecordedQueue],
    target: str,
    *,
    has_other_producers: bool = False,
    has_other_consumers: bool = False,
    clock_bound_us: int = 0,
) -> tuple[Verdict, Expectation]:
    """Judge a recording; return the verdict and the expectation.

    `root` is the folder that the user named. Without `queues`, all queues from which messages were received are judged.
    `has_other_producers` and `has_other_consumers` say that processes without a recorder published or received, so that
    a message without a publish, or an acknowledged message without a receive, may be theirs. `clock_bound_us` is the
    declared bound of the difference between two machines' clocks, or 0.
    """
    topology = _read_topology(engine.overview(), root)
    expectation = _with_settings(
        _expectation(topology, queues, has_other_producers=has_other_producers), topology.settings
    )
    expectation = replace(
        expectation,
        clock_bound_us=clock_bound_us,
        unproven_queues={
            **(dict.fromkeys(expectation.queues, _OTHERS) if has_other_consumers else {}),
            **expectation.unproven_queues,
        },
        publishing_began_us=NEVER_US if has_other_producers else topology.publishing_began_us,
        receiving_began_us={
            **(dict.fromkeys(expectation.queues, NEVER_US) if topology.has_beginning else {}),
            **topology.receiving_began_us,
        },
    )
    facts = RunFacts(
        expectation=expectation,
        target=target,
        recorders=dict.fromkeys(topology.recorders),
        unknowns=(*topology.unknowns, *_unread_bundles(topology, queues)),
        described={
            "run": topology.run,
            "history": str(root),
            "target": target,
            "recorders": dict.fromkeys(topology.recorders),
            "max_receive_count": dict(expectation.max_receive_count),
            "one_group_in": topology.one_group_in,
        },
    )
    verdict = judge(engine, facts)
    consumer = engine.conduct(expectation.visibility_timeout_seconds)
    return replace(verdict, measures={**verdict.measures, "consumer": consumer}), expectation


def _unread_bundles(topology: "_Topology", queues: Mapping[str, RecordedQueue]) -> Iterator[str]:
    """Yield a reservation if bundles may be on record as single messages, so that their events were not judged."""
    if topology.older_recorders and any(queue.may_have_bundles for queue in queues.values()):
        yield (
            f"{', '.join(topology.older_recorders)} recorded with a version that writes a bundle as one message, and"
            " bundles are declared: what became of their events is not known; record with this version"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topology:
    """The topology that a history shows."""

    run: str
    recorders: Sequence[str]
    older_recorders: Sequence[str] = ()
    is_whole: bool
    queues: Sequence[str]
    is_planned: bool
    one_group_in: int
    groupless: Mapping[str, int] = field(default_factory=dict)
    is_publishing_recorded: bool = True
    has_beginning: bool = False
    publishing_began_us: int | None = None
    receiving_began_us: Mapping[str, int] = field(default_factory=dict)
    resubscribed: frozenset[str | None] = frozenset()
    settings: Sequence[tuple[str, Mapping[str, int | None]]] = ()
    unknowns: tuple[str, ...] = field(default=())


def _read_topology(rows: Sequence[Mapping[str, Any]], root: Path) -> _Topology:
    require_version([row["schema_version"] for row in rows], root)
    runs = sorted({row["run"] for row in rows})
    if len(runs) != 1:
        if not runs:
            raise HistoryError(f"{root} is a history without an event, needed are those of one run; record it again")
        seen = f"of {len(runs)} runs ({', '.join(runs[:4])})"
        raise HistoryError(f"{root} is a history {seen}, allowed is one run; check each by itself")
    opened, closed = (
        sorted(row["worker"] for row in rows if row["kind"] == kind) for kind in (Kind.OPENED, Kind.CLOSED)
    )
    empty = [path.stem for path in folders.journals_in(folders.folder_of(root)) if is_empty(path)]
    found = [detail_of(row["detail"]) for row in rows if row["kind"] == Kind.TOPOLOGY]
    groupless: Counter[str] = Counter()
    for row in rows:
        if row["is_of_no_group"]:
            groupless[row["queue"]] += row["count"]
    unseen = sorted({str(detail["unseen"]) for detail in found if "unseen" in detail})
    began_us = _recording_began_us(rows, root)
    publishing_us = [us for (kind, _), us in began_us.items() if kind == Kind.PUBLISHED]
    samples = sorted({detail["one_group_in"] for detail in found if isinstance(detail.get("one_group_in"), int)})
    return _Topology(
        run=runs[0],
        recorders=[*opened, *empty],
        older_recorders=sorted(
            row["worker"]
            for row in rows
            if row["kind"] == Kind.OPENED and not detail_of(row["detail"]).get(READS_BUNDLES)
        ),
        is_whole=opened == closed and bool(opened) and not empty and not unseen,
        queues=sorted({row["queue"] for row in rows if row["queue"] is not None and row["kind"] != Kind.PUBLISHED}),
        groupless=groupless,
        is_planned=all(detail.get("is_planned", True) for detail in found),
        one_group_in=samples[-1] if samples else 1,
        is_publishing_recorded=any(row["kind"] == Kind.PUBLISHED for row in rows),
        has_beginning=bool(began_us),
        publishing_began_us=NEVER_US if unseen else max(publishing_us, default=None),
        receiving_began_us=_receive_begins(began_us),
        resubscribed=_subscription_changes(rows),
        settings=[(str(of[CHANGED_QUEUE]), of.get("settings", {})) for of in found if CHANGED_QUEUE in of],
        unknowns=(
            *(["no recorder says that it finished: there may have been more"] if not opened else []),
            *(
                f"calls were made that no recorder can see: {calls}; what is absent may have been there"
                for calls in unseen
            ),
            *_groupless_sentences(groupless),
            *([f"recorders kept different groups: one in {', '.join(map(str, samples))}"] if len(samples) > 1 else []),
        ),
    )


def _recording_began_us(rows: Sequence[Mapping[str, Any]], root: Path) -> dict[tuple[str, str], int]:
    """Return the time since when publishes, polls and receives are on record, by (kind, queue).

    Several processes may have made them, and each may have made some before its recorder was opened. An opening that
    its own events contradict tells nothing.
    """
    opened_us: dict[str, int] = {}
    for row in rows:
        if row["opened_us"] is not None:
            if row["count"] > 1:
                raise HistoryError(f"{root} has the journal of {row['worker']} twice, allowed is once; remove the copy")
            opened_us[row["worker"]] = max(row["opened_us"], opened_us.get(row["worker"], row["opened_us"]))
    began_us: dict[tuple[str, str], int] = {}
    for row in rows:
        is_named = row["kind"] in (Kind.PUBLISHED, Kind.POLL, Kind.RECEIVED) and row["queue"] is not None
        since_us = opened_us.get(row["worker"]) if is_named else None
        if since_us is not None and row["least_us"] is not None and since_us <= row["least_us"]:
            key = row["kind"], row["queue"]
            began_us[key] = max(since_us, began_us.get(key, since_us))
    return began_us


def _subscription_changes(rows: Sequence[Mapping[str, Any]]) -> frozenset[str | None]:
    """Return the queues whose subscriptions were changed by another process than published; None stands for any queue.

    The process that published did not see the change.
    """
    publishers = {row["worker"] for row in rows if row["kind"] == Kind.PUBLISHED}
    changed = [(row["worker"], detail_of(row["detail"])) for row in rows if row["kind"] == Kind.TOPOLOGY]
    return frozenset(
        detail[CHANGED_SUBSCRIPTION]
        for worker, detail in changed
        if CHANGED_SUBSCRIPTION in detail and not publishers <= {worker}
    )


def _with_settings(expectation: Expectation, given: Iterable[tuple[str, Mapping[str, int | None]]]) -> Expectation:
    """Return the expectation without what a queue was declared with and given otherwise while it was recorded.

    Of the retention the shortest counts.
    """
    timeouts, receive_counts = expectation.visibility_timeout_seconds, expectation.max_receive_count
    kept, other_timeouts, other_counts = dict(expectation.retention_seconds), set(), set()
    for queue, settings in given:
        if settings.get("VisibilityTimeout", timeouts.get(queue)) != timeouts.get(queue):
            other_timeouts.add(queue)
        if settings.get("maxReceiveCount", receive_counts.get(queue)) != receive_counts.get(queue):
            other_counts.add(queue)
        seconds = settings.get("MessageRetentionPeriod")
        if seconds is not None:
            kept[queue] = min(seconds, kept.get(queue, limits.MESSAGE_RETENTION_SECONDS))
    return replace(
        expectation,
        visibility_timeout_seconds={name: of for name, of in timeouts.items() if name not in other_timeouts},
        changed_timeouts={name: of for name, of in timeouts.items() if name in other_timeouts},
        max_receive_count={name: of for name, of in receive_counts.items() if name not in other_counts},
        changed_receive_counts={name: of for name, of in receive_counts.items() if name in other_counts},
        retention_seconds=kept,
    )


def _receive_begins(began_us: Mapping[tuple[str, str], int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for (kind, queue), us in began_us.items():
        if kind != Kind.PUBLISHED:
            found[queue] = max(us, found.get(queue, us))
    return found


def _groupless_sentences(found: Mapping[str, int]) -> Iterator[str]:
    """Yield the reasons why events without a message group are not judged; AWS: a FIFO queue's name ends with `.fifo`.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html (read 2026-11-26)
    """
    for name, count in sorted(found.items()):
        step = 'receive with MessageSystemAttributeNames=["All"], and delete in the process that received'
        if not name.endswith(".fifo"):
            step = f"a standard queue promises no order, within a group neither; if {name} is a FIFO queue, {step}"
        seen = f"{count} receive(s) and delete(s) in {name} are of messages without a group on record"
        yield f"{seen}, and not judged; {step}"


def require_version(versions: Iterable[int | None], root: Path) -> None:
    """Raise HistoryError if an event of the history has another schema version."""
    others = sorted({version or 0 for version in versions} - {SCHEMA_VERSION})
    if others:
        raise HistoryError(
            f"{root} is a history of version {others[0]}, allowed is {SCHEMA_VERSION};"
            " check it with the version of Sluice that wrote it"
        )


def _expectation(topology: _Topology, queues: Mapping[str, RecordedQueue], *, has_other_producers: bool) -> Expectation:
    dead = {name for queue in queues.values() for name in (queue.dead_letter_queue, queue.undelivered_queue)}
    unnamed = [name for name in topology.queues if name not in queues and name not in dead]
    if queues and unnamed:
        raise HistoryError(
            f"messages came from {unnamed[0]!r}, which is not among the queues named; name it with --queue"
        )
    unproven = dict.fromkeys([] if queues else unnamed, _UNDECLARED)
    unproven |= {name: f"where {count} calls tell no group" for name, count in topology.groupless.items()}
    if not topology.is_whole:
        unproven = dict.fromkeys(queues or unnamed, "where not every recorder finished")
    return Expectation(
        run=topology.run,
        queues=tuple(queues or unnamed),
        visibility_timeout_seconds={name: queue.visibility_timeout_seconds for name, queue in queues.items()},
        dead_letter_queues={
            name: queue.dead_letter_queue for name, queue in queues.items() if queue.dead_letter_queue is not None
        },
        subscription_dead_letter_queues={
            name: queue.undelivered_queue for name, queue in queues.items() if queue.undelivered_queue is not None
        },
        max_receive_count={
            name: queue.max_receive_count for name, queue in queues.items() if queue.max_receive_count is not None
        },
        retention_seconds=_retention_seconds(queues),
        unproven_queues=unproven,
        is_publishing_recorded=topology.is_whole and topology.is_publishing_recorded and not has_other_producers,
        selective_queues={}
        if topology.is_planned
        else {
            name: topology.resubscribed.isdisjoint((name, None))
            for name in queues or unnamed
            if name not in queues or not queues[name].is_unfiltered
        },
        is_planned=topology.is_planned,
        delay_seconds=dict.fromkeys(queues or unnamed),
    )


def _retention_seconds(queues: Mapping[str, RecordedQueue]) -> dict[str, int]:
    kept = [
        *((name, queue.retention_seconds) for name, queue in queues.items()),
        *((queue.dead_letter_queue, queue.dead_letter_retention_seconds) for queue in queues.values()),
    ]
    return {name: seconds for name, seconds in kept if name is not None and seconds is not None}
