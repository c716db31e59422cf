"""What is measured of a history: rates, latencies, lateness; observed while its messages pass by."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from sluice.checker import Expectation
from spark_load.messages import lanes

PERCENTILES = (0.5, 0.95, 0.99)
_ACCURACY = 10_000
_EXACT_MAX = 5_000  # below half the accuracy the sketch still has every value
_EXACT = "exact"
_SKETCHED = f"rank error at most 1/{_ACCURACY:,}"


def observed(expectation: Expectation) -> list[Column]:
    """Return the aggregates over `messages.messages`: what `measures` reads, and the counts behind opportunities.

    What was published in the warm-up is counted, and not measured. Of a message published several times the slowest
    publish is measured; of one received several times the first receive.
    """
    window_us = expectation.deduplication_window_seconds * 1_000_000
    is_message = F.col("count_0") > 0
    is_acked = F.col("acked_0") > 0
    is_repeated = F.col("acked_0") > 1
    is_measured = (F.col("idx") >= 0) & ~F.col("is_warm_up")
    is_published = is_measured & is_acked

    def published(name: str) -> Column:
        return F.when(is_published, F.col(f"{name}_0"))

    return [
        F.count_if(is_acked).alias("acked"),
        F.count_if(is_repeated).alias("repeated"),
        F.count_if(is_repeated & (F.col("asked_last_us_0") - F.col("asked_us_0") >= window_us)).alias("repeated_late"),
        F.count_if(is_message & ~is_acked & (F.col("unanswered_0") > 0)).alias("unanswered"),
        F.count_if(is_message & ~is_acked & (F.col("unanswered_0") == 0)).alias("refused"),
        F.sum(published("acked")).alias("published_count"),
        F.min(published("asked_us")).alias("published_from_us"),
        F.max(published("answered_last_us")).alias("published_until_us"),
        F.max(F.when(is_measured, F.col("asked_us_0"))).alias("asked_last_us"),
        *_distribution(published("late_us"), "late"),
        *_distribution(published("took_us"), "took"),
        *(part for lane in lanes(expectation) for part in _of_lane(lane, is_measured)),
    ]


def _of_lane(lane: int, is_measured: Column) -> list[Column]:
    answered_us = F.when(is_measured, F.col(f"answered_us_{lane}"))
    return [
        F.count(answered_us).alias(f"received_{lane}"),
        F.min(answered_us).alias(f"received_{lane}_from_us"),
        F.max(answered_us).alias(f"received_{lane}_until_us"),
        *_distribution(answered_us - F.col("since_us_0"), f"latency_{lane}"),
    ]


def _distribution(column: Column, name: str) -> list[Column]:
    return [
        F.percentile_approx(column, list(PERCENTILES), _ACCURACY).alias(name),
        F.max(column).alias(f"{name}_max"),
        F.count(column).alias(f"{name}_count"),
    ]


def measures(seen: Mapping[str, Any], expectation: Expectation) -> dict[str, Any]:
    """Return the measures from what was observed; `percentiles` says how exact they are."""
    largest = max(seen[f"{name}_count"] for name in _names(expectation))
    return {
        "published": _rate(seen["published_count"] or 0, seen["published_from_us"], seen["published_until_us"]),
        "percentiles": _EXACT if largest <= _EXACT_MAX else _SKETCHED,
        "lateness_us": _quantiles(seen, "late"),
        "publish_latency_us": _quantiles(seen, "took"),
        "queues": {
            queue: _of_queue(seen, lane) for lane, queue in zip(lanes(expectation), expectation.queues, strict=True)
        },
    }


def _names(expectation: Expectation) -> list[str]:
    return ["late", "took", *(f"latency_{lane}" for lane in lanes(expectation))]


def _of_queue(seen: Mapping[str, Any], lane: int) -> dict[str, Any]:
    from_us, until_us = seen[f"received_{lane}_from_us"], seen[f"received_{lane}_until_us"]
    asked_us = seen["asked_last_us"]
    return {
        "received": _rate(seen[f"received_{lane}"], from_us, until_us),
        "drain_seconds": None if until_us is None or asked_us is None else (until_us - asked_us) / 1e6,
        "latency_us": _quantiles(seen, f"latency_{lane}"),
    }


def _rate(count: int, from_us: int | None, until_us: int | None) -> dict[str, Any]:
    seconds = None if from_us is None or until_us is None else (until_us - from_us) / 1e6
    return {"count": count, "seconds": seconds, "per_second": count / seconds if seconds else None}


def _quantiles(seen: Mapping[str, Any], name: str) -> dict[str, int] | None:
    if seen[name] is None:
        return None
    shown = {f"p{round(q * 100)}": value for q, value in zip(PERCENTILES, seen[name], strict=True)}
    return shown | {"max": seen[f"{name}_max"]}
