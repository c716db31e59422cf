"""Which groups the checker has to look at: a cheap, conservative pass in Spark over the whole history.

A group is cleared only when everything about it is as it should be: every acknowledged message was received exactly
once from every queue, with the published body, in one ascending sequence, each call after the previous lease had ended,
and nothing unusual (a lost answer, a visibility change, a dead letter, another attempt) happened to it. Whatever is
not cleared is suspect. So suspect contains violated; the tests hold it to that.

One exchange by group; everything after it stays in place.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sluice.checker import Expectation
from sluice.history import Kind, Outcome

_GROUP = "message_group_id"
_OF_CALL = ("invoked_at_us", "responded_at_us", "queue")
_ORDINARY = (Kind.PUBLISHED.value, Kind.RECEIVED.value, Kind.DELETED.value)


def by_group(history: DataFrame) -> DataFrame:
    """Return the events that belong to a group, all of one group in one partition."""
    return history.where(F.col(_GROUP).isNotNull()).repartition(F.col(_GROUP))


def suspects(history: DataFrame, expectation: Expectation) -> DataFrame:
    """Return the groups that are not cleared: one column, message_group_id, each group once, no order.

    Args:
        history: events by group, settled, columns as in `sluice.history`.
        expectation: what the run was set up to be.
    """
    received = F.col("kind") == Kind.RECEIVED.value
    events = history.where(~received | (F.col("message_run") == expectation.run))
    flagged = [
        _unusual(events, expectation),
        _calls_off(events),
        _counts_off(events, expectation),
        _sequence_off(events, expectation),
    ]
    return reduce(DataFrame.union, flagged).distinct()


def _any(columns: Sequence[Column]) -> Column:
    """Return whether any is true, a null counting as true: what cannot be told is suspect."""
    return reduce(lambda one, other: one | other, [F.coalesce(column, F.expr("true")) for column in columns])


def _unusual(events: DataFrame, expectation: Expectation) -> DataFrame:
    """Return groups with an event that does not belong into a run where nothing happens."""
    kind, queue = F.col("kind"), F.col("queue")
    is_published, is_received = kind == Kind.PUBLISHED.value, kind == Kind.RECEIVED.value
    return (
        events.where(
            _any(
                [
                    ~kind.isin(*_ORDINARY),
                    F.col("call_id").isNull(),
                    F.col("invoked_at_us").isNull(),
                    F.col("outcome") != Outcome.OK.value,
                    F.col("responded_at_us").isNull() | (F.col("responded_at_us") < F.col("invoked_at_us")),
                    is_published & F.col("sns_sequence_number").isNull(),
                    is_received & ~queue.isin(*expectation.queues),
                    is_received & (F.col("sqs_message_id").isNull() | F.col("receipt_handle_hash").isNull()),
                ]
            )
        )
        .select(_GROUP)
        .distinct()
    )


def _calls_off(events: DataFrame) -> DataFrame:
    """Return groups with a call whose events do not agree on when and where it was, or share a position in it."""
    calls = (
        events.where(F.col("kind").isin(Kind.PUBLISHED.value, Kind.RECEIVED.value))
        .groupBy(_GROUP, "kind", "call_id")
        .agg(
            *(F.count_distinct(F.coalesce(F.col(name).cast("string"), F.lit("none"))).alias(name) for name in _OF_CALL),
            F.count_distinct(F.coalesce("batch_position", F.lit(0))).alias("positions"),
            F.count(F.lit(1)).alias("events"),
        )
    )
    apart = [F.col(name) > 1 for name in _OF_CALL]
    return calls.where(_any([F.col("positions") < F.col("events"), *apart])).select(_GROUP).distinct()


def _counts_off(events: DataFrame, expectation: Expectation) -> DataFrame:
    """Return groups with a message that was not received once from every queue, or not as published."""
    is_published = F.col("kind") == Kind.PUBLISHED.value
    is_received = F.col("kind") == Kind.RECEIVED.value
    per_queue = [
        F.count_if(is_received & (F.col("queue") == queue)).alias(f"received_{number}")
        for number, queue in enumerate(expectation.queues)
    ]
    messages = (
        events.where(is_published | is_received)
        .groupBy(_GROUP, "idx")
        .agg(
            F.count_if(is_published).alias("published"),
            F.min("body_hash").alias("body_min"),
            F.max("body_hash").alias("body_max"),
            *per_queue,
        )
    )
    off = [F.col(f"received_{number}") != 1 for number in range(len(expectation.queues))]
    body_off = F.col("body_min").isNotNull() & (F.col("body_min") != F.col("body_max"))
    return messages.where(_any([F.col("published") == 0, body_off, *off])).select(_GROUP).distinct()


def _sequence_off(events: DataFrame, expectation: Expectation) -> DataFrame:
    """Return groups whose receives from one queue do not ascend, or do not keep clear of each other's leases."""
    received = _leased(_ordered(events), expectation)
    calls = received.groupBy(_GROUP, "queue", "call_id").agg(
        F.max("responded_at_us").alias("responded_at_us"),
        F.max("lease_end_us").alias("lease_end_us"),
        F.min("lease_end_us").isNull().alias("lease_unknown"),
        F.bool_or("is_deleted_early").alias("is_deleted_early"),
    )
    earlier = (
        Window.partitionBy(_GROUP, "queue")
        .orderBy("responded_at_us", "call_id")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    overlapping = calls.withColumn("held_until_us", F.max("lease_end_us").over(earlier)).where(
        (F.col("held_until_us") > F.col("responded_at_us")) | _any([F.col("lease_unknown"), F.col("is_deleted_early")])
    )
    in_time = Window.partitionBy(_GROUP, "queue").orderBy(
        "responded_at_us", "invoked_at_us", "call_id", F.coalesce("batch_position", F.lit(0))
    )
    falling = received.withColumn("before", F.lag("ord").over(in_time)).where(
        F.col("ord").isNull() | (F.col("ord") < F.col("before"))
    )
    return overlapping.select(_GROUP).union(falling.select(_GROUP)).distinct()


def _ordered(events: DataFrame) -> DataFrame:
    """Add `ord`, the sequence number of the message's first acknowledgement: its place in the group."""
    message = Window.partitionBy(_GROUP, "idx")
    acknowledgement = F.when(
        (F.col("kind") == Kind.PUBLISHED.value) & (F.col("outcome") == Outcome.OK.value),
        F.struct(
            "responded_at_us",
            "invoked_at_us",
            "call_id",
            F.coalesce("batch_position", F.lit(0)).alias("batch_position"),
            "sns_sequence_number",
        ),
    )
    return events.withColumn("ord", F.min(acknowledgement).over(message)["sns_sequence_number"])


def _leased(events: DataFrame, expectation: Expectation) -> DataFrame:
    """Return the received events with `lease_end_us`, and whether a delete came before its receive was answered."""
    receipt = Window.partitionBy(_GROUP, "receipt_handle_hash")
    deleted_at = F.min(F.when(F.col("kind") == Kind.DELETED.value, F.col("invoked_at_us"))).over(receipt)
    of_queue = F.create_map(
        *(
            part
            for queue in expectation.queues
            for part in (F.lit(queue), F.lit(expectation.visibility_timeout_seconds.get(queue, 0)))
        )
    )
    seconds = F.coalesce("visibility_timeout_seconds", of_queue[F.col("queue")])
    expires_at = F.col("invoked_at_us") + seconds.cast("bigint") * 1_000_000
    return (
        events.withColumn("deleted_at_us", deleted_at)
        .where(F.col("kind") == Kind.RECEIVED.value)
        .withColumn("lease_end_us", F.least(expires_at, F.coalesce("deleted_at_us", expires_at)))
        .withColumn("is_deleted_early", F.coalesce(F.col("deleted_at_us") < F.col("responded_at_us"), F.expr("false")))
    )
