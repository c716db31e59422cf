"""Measure rates, latencies and lateness of a history, part by part."""

from typing import Any

import numpy as np
import pyarrow as pa

from sluice.judge.checker import Expectation
from sluice.judge.reading.columns import Columns
from sluice.judge.screening.rollup import difference, is_known, queue_indexes
from sluice.judge.tally import ACCURACY, ObservationTally, round_down_but_largest, tally_of, total_of

_EXACT_MAX = 5_000  # values of one part kept as they are
_US = 1_000_000
COUNTED = ("acked", "repeated", "repeated_late", "unanswered", "refused", "groups", "later", "shared")
"""Names of counts of messages or groups in the tally of `observe`; they are opportunities for anomalies."""


def observe(messages: Columns, groups: Columns, expectation: Expectation) -> pa.Table:
    """Return the observations of the messages and groups of one part, as a tally for `measures`.

    Messages of the warm-up are counted, but not measured. If a message was published several times, the slowest publish
    is measured; if it was received several times, the first receive is.

    Returns:
        A tally of COUNTED and `published`; of first and last instants (names in `_us`); and of `late`, `took`, and
        `latency` by queue. If there are many values, they are rounded, and `rounded` is counted.
    """
    window_us = expectation.deduplication_window_seconds * _US
    is_message, is_acked, is_repeated = messages["count_0"] > 0, messages["acked_0"] > 0, messages["acked_0"] > 1
    is_late = difference(messages["invoked_last_us_0"], messages["invoked_us_0"]) >= window_us
    is_open = is_message & ~is_acked
    is_measured = (messages["idx"] >= 0) & ~messages["is_warm_up"]
    is_published = is_measured & is_acked
    counts = {
        "acked": is_acked,
        "repeated": is_repeated,
        "repeated_late": is_repeated & is_late,
        "unanswered": is_open & (messages["unanswered_0"] > 0),
        "refused": is_open & (messages["unanswered_0"] == 0),
        "published": is_published,
        "groups": groups["received"] > 0,
        "later": groups["later"],
        "shared": groups["shared"],
    }
    found = [total_of(what, "", int(column.sum())) for what, column in counts.items()]
    found += [
        _first_and_last(
            "published_us", "", messages["invoked_us_0"][is_published], messages["answered_us_0"][is_published]
        ),
        _first_and_last("invoked_us", "", messages["invoked_us_0"][is_measured]),
        *_distribution("late", "", messages["late_us_0"][is_published]),
        *_distribution("took", "", messages["took_us_0"][is_published]),
    ]
    for queue_index, queue in zip(queue_indexes(expectation), expectation.queues, strict=True):
        answered_us = messages[f"answered_us_{queue_index}"][is_measured]
        found += [
            total_of("received", queue, int(is_known(answered_us).sum())),
            _first_and_last("received_us", queue, answered_us),
            *_distribution("latency", queue, difference(answered_us, messages["since_us_0"][is_measured])),
        ]
    return pa.concat_tables(found)


def _first_and_last(what: str, name: str, *instants: np.ndarray) -> pa.Table:
    """Return the first and the last of all known instants."""
    known = np.concatenate([each[is_known(each)] for each in instants])
    ends = np.array([known.min(), known.max()]) if len(known) else known
    return tally_of(what, name, np.zeros(len(ends)), ends)


def _distribution(what: str, name: str, values: np.ndarray) -> list[pa.Table]:
    """Return how often each value occurs; if there are many, each is rounded except the largest."""
    known = values[is_known(values)]
    places = np.zeros(len(known), np.int64)
    if len(known) <= _EXACT_MAX:
        return [tally_of(what, name, places, known)]
    return [tally_of(what, name, places, round_down_but_largest(places, known)), total_of("rounded", "", 1)]


def measures(seen: ObservationTally, expectation: Expectation) -> dict[str, Any]:
    """Return the measures from the observations of all parts; `percentiles` says how exact they are."""
    return {
        "published": _rate(seen.total("published"), *seen.span("published_us")),
        "percentiles": f"each at most 1/{ACCURACY:,} below the value" if seen.total("rounded") else "exact",
        "lateness_us": _quantiles(seen, "late"),
        "publish_latency_us": _quantiles(seen, "took"),
        "queues": {queue: _queue_measures(seen, queue) for queue in expectation.queues},
    }


def _queue_measures(seen: ObservationTally, queue: str) -> dict[str, Any]:
    from_us, until_us = seen.span("received_us", queue)
    _, invoked_us = seen.span("invoked_us")
    return {
        "received": _rate(seen.total("received", queue), from_us, until_us),
        "drain_seconds": None if until_us is None or invoked_us is None else (until_us - invoked_us) / 1e6,
        "latency_us": _quantiles(seen, "latency", queue),
    }


def _rate(count: int, from_us: int | None, until_us: int | None) -> dict[str, Any]:
    seconds = None if from_us is None or until_us is None else (until_us - from_us) / 1e6
    return {"count": count, "seconds": seconds, "per_second": count / seconds if seconds else None}


def _quantiles(seen: ObservationTally, what: str, name: str = "") -> dict[str, int] | None:
    found = seen.distributions(what, name).get(0)
    return None if found is None else {measure: us for measure, us in found.items() if measure != "count"}
