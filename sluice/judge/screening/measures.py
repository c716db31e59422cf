"""What is measured of a history: rates, latencies, lateness; observed of its messages, partition by partition."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sluice.judge.checker import Expectation
from sluice.judge.reading.columns import Columns
from sluice.judge.screening.rollup import difference, is_known, queue_indexes

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""Name to share: those that are told of every distribution."""
_EXACT_MAX = 5_000  # values of one partition kept as they are
_BITS = 13  # of a value that are kept otherwise: 4,096 values each octave
ACCURACY = 1 << (_BITS - 1)
"""Of a value that is rounded: it is at most one in so many below what it was."""
_EXACT = "exact"
_ROUNDED = f"each at most 1/{ACCURACY:,} below the value"
_SUM, _MIN, _MAX = "sum", "min", "max"
_US = 1_000_000

type Seen = dict[str, Any]
"""JSON-ready: a name to [how to join it with another partition's, value]; or to a distribution of values."""


def observed(messages: Columns, groups: Columns, expectation: Expectation) -> Seen:
    """Return what `measures` reads, and the counts behind opportunities, of the messages and groups of one partition.

    What was published in the warm-up is counted, and not measured. Of a message published several times the slowest
    publish is measured; of one received several times the first receive.
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
        "published_count": is_published,
        "groups": groups["received"] > 0,
        "later": groups["later"],
        "shared": groups["shared"],
    }
    found: Seen = {name: [_SUM, int(column.sum())] for name, column in counts.items()}
    found |= {
        "published_from_us": [_MIN, _least(messages["invoked_us_0"][is_published])],
        "published_until_us": [_MAX, _most(messages["answered_us_0"][is_published])],
        "invoked_last_us": [_MAX, _most(messages["invoked_us_0"][is_measured])],
        "late": _distribution(messages["late_us_0"][is_published]),
        "took": _distribution(messages["took_us_0"][is_published]),
    }
    for queue_index in queue_indexes(expectation):
        answered_us = messages[f"answered_us_{queue_index}"][is_measured]
        found |= {
            f"received_{queue_index}": [_SUM, int(is_known(answered_us).sum())],
            f"received_{queue_index}_from_us": [_MIN, _least(answered_us)],
            f"received_{queue_index}_until_us": [_MAX, _most(answered_us)],
            f"latency_{queue_index}": _distribution(difference(answered_us, messages["since_us_0"][is_measured])),
        }
    return found


def nothing(expectation: Expectation) -> Seen:
    """Return what is observed of no messages."""
    of_queues = [f"received_{queue_index}" for queue_index in queue_indexes(expectation)]
    return {
        **{name: [_SUM, 0] for name in ("acked", "repeated", "repeated_late", "unanswered", "refused", *of_queues)},
        **{name: [_SUM, 0] for name in ("published_count", "groups", "later", "shared")},
        **{f"{name}_from_us": [_MIN, None] for name in ("published", *of_queues)},
        **{f"{name}_until_us": [_MAX, None] for name in ("published", *of_queues)},
        "invoked_last_us": [_MAX, None],
        **{name: _distribution(np.array([], dtype=np.int64)) for name in _names(expectation)},
    }


def _most(values: np.ndarray) -> int | None:
    known = values[is_known(values)]
    return int(known.max()) if len(known) else None


def _least(values: np.ndarray) -> int | None:
    known = values[is_known(values)]
    return int(known.min()) if len(known) else None


def _distribution(values: np.ndarray) -> Seen:
    """Return how often each value is there; of many values each is rounded."""
    known = values[is_known(values)]
    is_exact = len(known) <= _EXACT_MAX
    kept, counts = np.unique(known if is_exact else _rounded(known), return_counts=True)
    return {
        "values": kept.tolist(),
        "counts": counts.tolist(),
        "max": int(known.max()) if len(known) else None,
        "is_exact": is_exact,
    }


def _rounded(values: np.ndarray) -> np.ndarray:
    """Return the values with their first bits only: never more than they are, so that no threshold is crossed by it."""
    magnitude = np.abs(values)
    dropped = np.maximum(np.frexp(magnitude.astype(np.float64))[1].astype(np.int64) - _BITS, 0)
    return values >> dropped << dropped


def rounded_but_largest(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the values rounded, but the largest of each place as it is."""
    largest = np.full(int(places.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(largest, places, values)
    return np.where(values == largest[places], values, _rounded(values))


def joined(seen: Iterable[Seen]) -> Seen:
    """Return what was observed of all partitions."""
    partitions, found = list(seen), {}
    for name in partitions[0]:
        parts = [partition[name] for partition in partitions]
        found[name] = _joined_distribution(parts) if isinstance(parts[0], dict) else _joined(parts)
    return found


def _joined(parts: list[Any]) -> Any:
    known = [value for _, value in parts if value is not None]
    if not known:
        return None
    how: str = parts[0][0]
    return sum(known) if how == _SUM else min(known) if how == _MIN else max(known)


def _joined_distribution(parts: list[Seen]) -> Seen | None:
    values = np.array([value for part in parts for value in part["values"]], dtype=np.int64)
    counts = np.array([count for part in parts for count in part["counts"]], dtype=np.int64)
    if not len(values):
        return None
    order = np.argsort(values)
    below = np.cumsum(counts[order])
    ranks = [-int(-q * 100 * below[-1] // 100) for q in PERCENTILES.values()]
    return {
        "count": int(below[-1]),
        "percentiles": [int(values[order][np.searchsorted(below, rank)]) for rank in ranks],
        "max": max(part["max"] for part in parts if part["max"] is not None),
        "is_exact": all(part["is_exact"] for part in parts),
    }


def measures(seen: Mapping[str, Any], expectation: Expectation) -> dict[str, Any]:
    """Return the measures from what was observed of all partitions; `percentiles` says how exact they are."""
    distributions = [seen[name] for name in _names(expectation) if seen[name] is not None]
    return {
        "published": _rate(seen["published_count"], seen["published_from_us"], seen["published_until_us"]),
        "percentiles": _EXACT if all(distribution["is_exact"] for distribution in distributions) else _ROUNDED,
        "lateness_us": _quantiles(seen["late"]),
        "publish_latency_us": _quantiles(seen["took"]),
        "queues": {
            queue: _of_queue(seen, queue_index)
            for queue_index, queue in zip(queue_indexes(expectation), expectation.queues, strict=True)
        },
    }


def _names(expectation: Expectation) -> list[str]:
    return ["late", "took", *(f"latency_{queue_index}" for queue_index in queue_indexes(expectation))]


def _of_queue(seen: Mapping[str, Any], queue_index: int) -> dict[str, Any]:
    from_us, until_us = seen[f"received_{queue_index}_from_us"], seen[f"received_{queue_index}_until_us"]
    invoked_us = seen["invoked_last_us"]
    return {
        "received": _rate(seen[f"received_{queue_index}"], from_us, until_us),
        "drain_seconds": None if until_us is None or invoked_us is None else (until_us - invoked_us) / 1e6,
        "latency_us": _quantiles(seen[f"latency_{queue_index}"]),
    }


def _rate(count: int, from_us: int | None, until_us: int | None) -> dict[str, Any]:
    seconds = None if from_us is None or until_us is None else (until_us - from_us) / 1e6
    return {"count": count, "seconds": seconds, "per_second": count / seconds if seconds else None}


def _quantiles(distribution: Mapping[str, Any] | None) -> dict[str, int] | None:
    if distribution is None:
        return None
    return dict(zip(PERCENTILES, distribution["percentiles"], strict=True)) | {"max": distribution["max"]}
