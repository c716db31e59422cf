"""One pass over a whole history: sums over its events, and the groups that the checker has to check.

Events are encoded, and groups without any doubt are cleared, on whole columns, part by part.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sluice.judge.checker import Activity, Expectation
from sluice.judge.counts import COUNTED, EventCounts, count, facts
from sluice.judge.reading.columns import Events, hashes
from sluice.judge.screening.encode import encode_events
from sluice.judge.screening.measures import observe
from sluice.judge.screening.rollup import MessageRollup
from sluice.judge.screening.suspects import empty_answer_bits, groups
from sluice.judge.tally import TALLY, ObservationTally

NAMES = pa.schema({"group": pa.uint64(), "name": pa.string()})
"""The schema of `group_names`."""
MAYBE = pa.schema({"name": pa.string(), "is_suspect": pa.bool_(), "waited": pa.int64()})
"""The schema of the groups that `screen` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreeningResult:
    """Findings of one pass over a history: sums over its events, names of suspect groups, observations."""

    counts: EventCounts
    suspects: list[str]
    seen: ObservationTally


def screen_part(part: Iterable[Events], *, expectation: Expectation) -> list[pa.Table]:
    """Screen one part; return tables of its counts, of its groups that may be suspect, and of its observations."""
    messages, names, counted = MessageRollup(expectation), [NAMES.empty_table()], [COUNTED.empty_table()]
    for events in part:
        counted.append(count(events, expectation))
        messages.add(encode_events(events, expectation))
        names.append(group_names(events))
    maybe, seen = MAYBE.empty_table(), TALLY.empty_table()
    if len(messages):
        maybe, seen = screen(messages, pa.concat_tables(names), expectation)
    return [pa.concat_tables(counted), maybe, seen]


def conclude(counted: pa.Table, maybe: pa.Table, seen: pa.Table, expectation: Expectation) -> ScreeningResult:
    """Return the result for a whole history, from the joined tables of `screen_part`."""
    counts = facts(counted, expectation)
    return ScreeningResult(
        counts=counts, suspects=suspects(maybe, counts.activity, expectation), seen=ObservationTally(seen)
    )


def suspects(maybe: pa.Table, activity: Mapping[str, Sequence[Activity]], expectation: Expectation) -> list[str]:
    """Return the names of the suspect groups, after it is known which queues had empty answers."""
    empty = empty_answer_bits(activity, expectation)
    return [row["name"] for row in maybe.to_pylist() if row["is_suspect"] or row["waited"] & empty]


def screen(messages: MessageRollup, names: pa.Table, expectation: Expectation) -> tuple[pa.Table, pa.Table]:
    """Return the groups that may be suspect, see `suspects.groups`, and the observations of their messages.

    `messages` are those of at least one whole group, and are emptied. `names` may have duplicates.
    """
    taken = messages.rows()
    judged = groups(taken, expectation)
    suspect = pa.table({name: judged[name] for name in ("group", "is_suspect", "waited")}).filter(
        pa.array(judged["is_suspect"] | (judged["waited"] != 0))
    )
    named = names.group_by(["group", "name"], use_threads=False).aggregate([])
    return suspect.join(named, "group", join_type="inner", use_threads=False).select(MAYBE.names), observe(
        taken, judged, expectation
    )


def group_names(events: Events) -> pa.Table:
    """Return the groups' names with their hashes."""
    texts = events.texts("message_group_id")
    return pa.table([pa.array(hashes(texts)), texts], schema=NAMES)
