"""Which groups the checker has to look at: a cheap, conservative pass in Spark over the whole history.

A group is cleared only when everything about it is as it should be: every message was published once after the other
and acknowledged with ascending numbers; every acknowledged message was received exactly once from every queue, as
published, in one ascending sequence, each after the previous lease had ended; each was deleted in time, and its
effect, where that is written down, lies between receive and delete; none waited while its queue said it was empty; and
nothing unusual (a lost answer, a visibility change, a dead letter, another attempt) happened to it. Whatever is not
cleared is suspect. So suspect contains violated; the tests hold it to that.

What concerns one event, one SQS message or one message is told by `messages`. Here each message is held against those
before it, in the order of the plan: in a group that is as it should be that is the order of everything else, too.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from sluice.checker import Expectation, Surroundings
from sluice.checker.blocking import ENQUEUED_WITHIN_US, UNDERFILLED_MIN
from spark_load.messages import GROUP, NO_IDX, any_of, lanes

_NOWHERE = Surroundings()
_OF_CALL = ("asked_us", "answered_us", "call", "position", "low", "high")


def groups(messages: DataFrame, expectation: Expectation, around: Surroundings = _NOWHERE) -> DataFrame:
    """Return one row for each group, in no order, everything still in its partition.

    Args:
        messages: what `messages.messages` returns.
        expectation: what the run was set up to be.
        around: what happened outside the groups.

    Returns:
        `group`, `is_suspect`, and for opportunities `received` (messages of this run), `later` (of them, behind another
        from the same queue) and `shared` (of them, in the same answer).
    """
    of_lanes = list(lanes(expectation))
    compared = messages.withColumn("planned", _planned(expectation)).select(
        GROUP,
        any_of([F.col("is_odd"), _is_off(expectation)]).alias("is_odd"),
        _is_published_off(_before("count_0", 0, "count_0")).alias("is_published_off"),
        *(part for lane in of_lanes for part in _compared(lane, expectation, around)),
    )
    of_group = compared.groupBy(GROUP).agg(
        F.max(
            any_of([F.col("is_odd"), F.col("is_published_off"), *(F.col(f"is_received_off_{at}") for at in of_lanes)])
        ).alias("is_odd"),
        *(F.count_if(f"is_underfilled_{lane}").alias(f"underfilled_{lane}") for lane in of_lanes),
        *(F.sum(f"count_{lane}").alias(f"count_{lane}") for lane in of_lanes),
        *(F.count_if(f"is_together_{lane}").alias(f"together_{lane}") for lane in of_lanes),
    )
    is_underfilled = any_of([F.col(f"underfilled_{lane}") >= UNDERFILLED_MIN for lane in of_lanes])
    return of_group.select(
        GROUP,
        (F.col("is_odd") | is_underfilled).alias("is_suspect"),
        _sum([F.col(f"count_{lane}") for lane in of_lanes]).alias("received"),
        _sum([F.greatest(F.col(f"count_{lane}") - 1, F.lit(0)) for lane in of_lanes]).alias("later"),
        _sum([F.col(f"together_{lane}") for lane in of_lanes]).alias("shared"),
    )


def _planned(expectation: Expectation) -> Column:
    """Return what sorts messages: their place in the plan, end markers last; without a plan their numbers."""
    if not expectation.is_planned:
        return F.col("low_0")
    return F.when(F.col("idx") < 0, F.lit(2**61) - F.col("idx")).otherwise(F.col("idx"))


def _earlier() -> WindowSpec:
    return Window.partitionBy(GROUP).orderBy("planned").rowsBetween(Window.unboundedPreceding, -1)


def _sum(columns: list[Column]) -> Column:
    return reduce(lambda one, other: one + other, columns, F.lit(0))


def _before(is_there: str, lane: int, *more: str | Column) -> Column:
    """Return the last message before, in the order of the plan, that the lane has something of."""
    return F.last(
        F.when(F.col(is_there) > 0, F.struct(*(F.col(f"{name}_{lane}").alias(name) for name in _OF_CALL), *more)),
        ignorenulls=True,
    ).over(_earlier())


def _is_off(expectation: Expectation) -> Column:
    """Return whether a message was not published, or not received from exactly the queues it was to reach."""
    sent_to = F.col("sent_to")
    return any_of(
        [
            F.col("idx") == NO_IDX,
            F.coalesce("count_0", F.lit(0)) == 0,
            *(
                F.col(f"count_{lane}") != F.when((sent_to < 0) | (sent_to == lane), 1).otherwise(0)
                for lane in lanes(expectation)
            ),
            _is_skewed(expectation),
        ]
    )


def _is_skewed(expectation: Expectation) -> Column:
    """Return whether a message came from one queue too long after another."""
    allowed = expectation.fan_out_skew_seconds_max
    times = [F.col(f"answered_us_{lane}") for lane in lanes(expectation)]
    if allowed is None or len(times) < 2:
        return F.expr("false")
    return F.coalesce(F.greatest(*times) - F.least(*times) > int(allowed * 1_000_000), F.expr("false"))


def _is_together(lane: int, before: Column) -> Column:
    """Return whether the message stands right behind the one before it in the same call, at the same time."""
    return F.coalesce(
        (F.col(f"call_{lane}") == before["call"])
        & (F.col(f"asked_us_{lane}") == before["asked_us"])
        & (F.col(f"answered_us_{lane}") == before["answered_us"])
        & (F.col(f"position_{lane}") > before["position"]),
        F.expr("false"),
    )


def _is_numbered_off(lane: int, before: Column) -> Column:
    """Return whether the number is not above the one before it, or cannot be compared with it."""
    low, high = F.col(f"low_{lane}"), F.col(f"high_{lane}")
    is_above = (low > before["low"]) & (high == before["high"])
    is_unnumbered = low.isNull() & before["low"].isNull()
    return ~(F.coalesce(is_above, F.expr("false")) | is_unnumbered)


def _is_published_off(before: Column) -> Column:
    """Return whether a message was published before the one before it was acknowledged, or with no higher number."""
    is_together = _is_together(0, before) & (F.col("count_0") == 1) & (before["count_0"] == 1)
    is_after = F.col("asked_us_0") >= before["answered_us"]
    is_off = any_of([~(is_together | is_after), _is_numbered_off(0, before)])
    return before.isNotNull() & (F.col("count_0") > 0) & is_off


def _compared(lane: int, expectation: Expectation, around: Surroundings) -> list[Column]:
    """Return how a message was received from a queue, held against those before it."""
    before = _before(f"count_{lane}", lane, F.col(f"is_alone_{lane}").alias("is_alone"))
    held_until_us = F.max(f"free_us_{lane}").over(_earlier())
    is_second = before.isNotNull() & (F.col(f"count_{lane}") > 0)
    is_underfilled = before["is_alone"] & (F.col(f"since_us_{lane}") + ENQUEUED_WITHIN_US < before["asked_us"])
    return [
        F.col(f"count_{lane}"),
        (is_second & _is_together(lane, before)).alias(f"is_together_{lane}"),
        (is_second & F.coalesce(is_underfilled, F.expr("false"))).alias(f"is_underfilled_{lane}"),
        (
            (is_second & _is_received_off(lane, before, held_until_us))
            | _is_handled_off(lane)
            | _has_waited(lane, held_until_us, expectation, around)
        ).alias(f"is_received_off_{lane}"),
    ]


def _is_received_off(lane: int, before: Column, held_until_us: Column) -> Column:
    """Return whether a message came before those before it, while they were held, or with no higher number."""
    answered_us = F.col(f"answered_us_{lane}")
    is_after = (answered_us > before["answered_us"]) & (answered_us >= held_until_us)
    return any_of([~(_is_together(lane, before) | is_after), _is_numbered_off(lane, before)])


def _is_handled_off(lane: int) -> Column:
    """Return whether the effect of a message was begun before those of all before it were committed."""
    handled_until_us = F.max(f"handled_until_us_{lane}").over(_earlier())
    return F.coalesce(F.col(f"handled_from_us_{lane}") < handled_until_us, F.expr("false"))


def _has_waited(lane: int, held_until_us: Column, expectation: Expectation, around: Surroundings) -> Column:
    """Return whether a message had been there for long when it came, or while its queue said it was empty."""
    queue, asked_us = expectation.queues[lane - 1], F.col(f"asked_us_{lane}")
    has_empty = any(one.empty_count for one in around.activity.get(queue, ()))
    allowed = [
        seconds
        for seconds in (expectation.passed_over_seconds_max, expectation.stuck_seconds_max)
        if seconds is not None
    ]
    if not has_empty and not allowed:
        return F.expr("false")
    enqueued_us = F.col(f"since_us_{lane}") + ENQUEUED_WITHIN_US
    from_us = F.when(enqueued_us.isNotNull(), F.greatest(enqueued_us, held_until_us)) + expectation.clock_bound_us
    holds_second = F.ceil(from_us / 1_000_000) < F.floor(asked_us / 1_000_000)
    is_long = asked_us - from_us > int(min(allowed) * 1_000_000) if allowed else F.expr("false")
    return F.coalesce((holds_second if has_empty else F.expr("false")) | is_long, F.expr("false"))
