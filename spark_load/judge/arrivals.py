"""Read the published messages of a history as traffic: the instant, group and size of each message.

SQS and SNS drop a publish with the deduplication id of one that they accepted within five minutes; such repeats are
counted apart. After five minutes it is another message. A publish that was refused or never answered is no message.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice import limits
from sluice.errors import ConfigError, HistoryError
from sluice.history.events import CallOutcome, Kind, detail_of
from sluice.judge import recording
from sluice.judge.engine import read_into_memory
from sluice.judge.folder.layout import RUN_FILE
from sluice.judge.reading.folders import require_history
from spark_load.plan.plan import WARM_UP
from spark_load.profiles.trace import FRAME_BYTES, Arrivals, rank_arrivals

EVERY = "*"
"""Stands for all topics and queues of a history, in `read_publishes`."""
_EVENTS_MAX = 5_000_000
_US = 1_000_000
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedMessages:
    """The messages that were published in a history.

    Args:
        arrivals: the messages.
        repeat_count: publishes that were dropped, as repeats of one of them.
        repeat_seconds: median time from a message to its repeats; 0 without one.
        unanswered_count: publishes that were refused or not answered, and are not among the messages.
        unfinished_count: recorders that began and did not finish, so that their last events may be missing.
        has_sizes: whether the history has the size of each body; if not, unknown ones get the median or the profile's.
    """

    arrivals: Arrivals
    repeat_count: int
    repeat_seconds: float
    unanswered_count: int
    unfinished_count: int
    has_sizes: bool


def read_publishes(
    folder: Path, *, destination: str | None = None, seconds: tuple[float, float | None] = (0.0, None)
) -> PublishedMessages:
    """Return the messages that were published in a recording or a load test, without warm-up and end markers.

    Args:
        folder: of the recording or the run.
        destination: topic or queue whose messages count, by its name in the history, or EVERY; None requires that there
            is one only.
        seconds: the beginning and the end of the span to read, counted from the first message; None is the end.

    Raises:
        ConfigError: the folder has no history, it is too large, nothing was published, or there are several
            destinations.
        HistoryError: the history is damaged.
    """
    require_history(folder)
    history = read_into_memory(folder, events_max=_EVENTS_MAX)
    if history is None:
        raise ConfigError(
            f"the recording {folder} has more than {_EVENTS_MAX:,} events, allowed is at most that many; take one with"
            " `sluice record --one-group-in N`"
        )
    recording.require_version(history.table.column("schema_version").unique().to_pylist(), folder)
    events, unanswered_count = _accepted_publishes(history.table)
    events = _publishes_to(events, folder, destination)
    if not len(events):
        raise ConfigError(
            f"nothing was published in the recording {folder}, needed is at least one message with a group; record"
            " producers, too"
        )
    if events.column("invoked_at_us").null_count:
        raise HistoryError(
            f"{events.column('invoked_at_us').null_count:,} of {len(events):,} publishes in {folder} have no"
            " invoked_at_us, needed is the instant of each; record it again, or write the instants"
        )
    events = _between(events.sort_by("invoked_at_us"), folder, *seconds)
    instants = events.column("invoked_at_us").to_numpy()
    groups = _codes(events, "message_group_id")
    sizes, has_sizes = _body_bytes(events, folder)
    first = _accepted_first(instants, groups, events)
    is_repeat = first != np.arange(len(first))
    arrivals = rank_arrivals(instants[~is_repeat], groups[~is_repeat], sizes[~is_repeat])
    after_us = (instants - instants[first])[is_repeat]
    return PublishedMessages(
        arrivals=arrivals,
        repeat_count=int(is_repeat.sum()),
        repeat_seconds=float(np.median(after_us)) / _US if len(after_us) else 0.0,
        unanswered_count=unanswered_count,
        unfinished_count=_unfinished_count(history.table),
        has_sizes=has_sizes,
    )


def _accepted_publishes(events: pa.Table) -> tuple[pa.Table, int]:
    """Return (accepted publishes, number of others), of messages with a group, without warm-up and end markers."""
    column = events.column
    is_message = pc.and_(pc.equal(column("kind"), Kind.PUBLISHED), pc.is_valid(column("message_group_id")))
    is_message = pc.and_(is_message, pc.fill_null(pc.greater_equal(column("idx"), 0), fill_value=True))
    is_message = pc.and_(is_message, pc.fill_null(pc.not_equal(column("phase"), WARM_UP), fill_value=True))
    messages = events.filter(is_message)
    accepted = messages.filter(pc.equal(messages.column("outcome"), CallOutcome.OK))
    return accepted, len(messages) - len(accepted)


def _unfinished_count(events: pa.Table) -> int:
    """Return how many recorders have an event `opened` and none `closed`."""
    began, finished = (
        events.filter(pc.equal(events.column("kind"), kind)).column("worker").to_pylist()
        for kind in (Kind.OPENED, Kind.CLOSED)
    )
    return len(set(began) - set(finished))


def _publishes_to(events: pa.Table, folder: Path, destination: str | None) -> pa.Table:
    names = sorted(name for name in events.column("queue").unique().to_pylist() if name is not None)
    listed = ", ".join(names[:_NAMED_MAX]) + (", …" if len(names) > _NAMED_MAX else "")
    if destination == EVERY:
        return events
    if destination is not None:
        if destination not in names:
            raise ConfigError(f"--to is {destination!r}, allowed is one of {listed or 'none: nothing was published'}")
        return events.filter(pc.equal(events.column("queue"), destination))
    if len(names) > 1:
        raise ConfigError(
            f"the recording {folder} has messages to {len(names)} topics and queues ({listed}), and a profile loads"
            " one: name it with --to"
        )
    return events


def _between(events: pa.Table, folder: Path, from_seconds: float, until_seconds: float | None) -> pa.Table:
    """Return the events of a span of time; events are in the order of their calls."""
    after_us = events.column("invoked_at_us").to_numpy() - events.column("invoked_at_us")[0].as_py()
    is_within = after_us >= from_seconds * _US
    if until_seconds is not None:
        is_within &= after_us < until_seconds * _US
    if not is_within.any():
        raise ConfigError(
            f"nothing was published from {from_seconds:g} s to"
            f" {'the end' if until_seconds is None else f'{until_seconds:g} s'}, and the recording {folder} lasts"
            f" {after_us[-1] / _US:.1f} s; choose another stretch"
        )
    return events.filter(pa.array(is_within))


def _codes(events: pa.Table, name: str) -> Any:
    """Return a number for each value of a column: 0 for the first value, 1 for the next different one, and so on."""
    column = events.column(name).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _accepted_first(instants: Any, groups: Any, events: pa.Table) -> Any:
    """Return for each publish the position of the accepted publish with its id, which may be itself.

    That publish is at most five minutes older. A standard queue drops no repeat, so there it is always the publish
    itself.
    """
    message = groups
    for name in ("queue", "idx", "deduplication_id"):
        codes = _codes(events, name)
        _, message = np.unique(message * (codes.max() + 1) + codes, return_inverse=True)
    found = np.arange(len(instants))
    accepted: dict[int, int] = {}
    counts = np.bincount(message)
    is_fifo = pc.fill_null(pc.ends_with(events.column("queue"), ".fifo"), fill_value=False).to_numpy()
    for position in np.flatnonzero(
        (counts[message] > 1) & is_fifo
    ):  # most messages are published once, and need no look
        first = accepted.get(int(message[position]), int(position))
        if instants[position] - instants[first] >= limits.DEDUPLICATION_WINDOW_SECONDS * _US:
            first = int(position)
        found[position] = accepted[int(message[position])] = first
    return found


def _body_bytes(events: pa.Table, folder: Path) -> tuple[Any, bool]:
    """Return (size of each body, whether the history has all sizes); an unknown size is estimated."""
    details = events.column("detail").unique().to_pylist()
    given = {text: detail_of(text).get("bytes") for text in details}
    sizes = {
        text: min(size, limits.MESSAGE_BYTES_MAX) for text, size in given.items() if isinstance(size, int) and size >= 0
    }
    usual = round(float(np.median(list(sizes.values())))) if sizes else _usual_bytes(folder)
    found = np.array([sizes.get(text, usual) for text in events.column("detail").to_pylist()], dtype=np.int64)
    return found, len(sizes) == len(details)


def _usual_bytes(folder: Path) -> int:
    """Return the size of bodies in a load test's profile; a default for a recording, which has none."""
    try:
        described = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))["described"]
        return int(described["profile"]["payload_bytes"]) + FRAME_BYTES
    except (OSError, ValueError, LookupError, TypeError):
        return 256 + FRAME_BYTES
