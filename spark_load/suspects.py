"""Which groups the checker has to look at: a cheap, conservative pass in Spark over the whole history.

A group is cleared only when everything about it is as it should be: every message was published once after the other
and acknowledged with ascending numbers; every acknowledged message was received exactly once from every queue, as
published, in one ascending sequence, each call after the previous lease had ended; each was deleted in time, and its
effect, where that is written down, lies between receive and delete; none waited while its queue said it was empty; and
nothing unusual (a lost answer, a visibility change, a dead letter, another attempt) happened to it. Whatever is not
cleared is suspect. So suspect contains violated; the tests hold it to that.

One exchange by group; everything after it stays in place.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sluice.checker import Expectation, Surroundings
from sluice.checker.blocking import ENQUEUED_WITHIN_US, UNDERFILLED_MIN
from sluice.history import Kind, Outcome, answer_detail

_GROUP = "message_group_id"
_OF_CALL = ("invoked_at_us", "responded_at_us", "queue")
_CALLS = (Kind.PUBLISHED.value, Kind.RECEIVED.value, Kind.DELETED.value)
_ORDINARY = (*_CALLS, Kind.HANDLED.value, Kind.OUTBOXED.value)
_NOWHERE = Surroundings()


def by_group(history: DataFrame) -> DataFrame:
    """Return the events that belong to a group, all of one group in one partition."""
    return history.where(F.col(_GROUP).isNotNull()).repartition(F.col(_GROUP))


def suspects(history: DataFrame, expectation: Expectation, around: Surroundings = _NOWHERE) -> DataFrame:
    """Return the groups that are not cleared: one column, message_group_id, each group once, no order.

    Args:
        history: events by group, settled, columns as in `sluice.history`.
        expectation: what the run was set up to be.
        around: what happened outside the groups.
    """
    is_of_a_run = F.col("kind").isin(Kind.RECEIVED.value, Kind.HANDLED.value)
    events = history.where(~is_of_a_run | (F.col("message_run") == expectation.run))
    flagged = [
        _unusual(events, expectation),
        _calls_off(events),
        _messages_off(events, expectation),
        _sequence_off(events, expectation, around),
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
                    kind.isin(*_CALLS) & F.col("call_id").isNull(),
                    F.col("invoked_at_us").isNull(),
                    F.col("outcome") != Outcome.OK.value,
                    F.col("responded_at_us").isNull() | (F.col("responded_at_us") < F.col("invoked_at_us")),
                    is_published & _number().isNull(),
                    (is_received | (kind == Kind.HANDLED.value)) & ~queue.isin(*expectation.queues),
                    is_received & (F.col("sqs_message_id").isNull() | F.col("receipt_handle_hash").isNull()),
                    is_received & (F.coalesce("receive_count", F.lit(0)) != 1),
                    is_received & (F.col("sns_message_id").isNotNull() | F.col("sns_sequence_number").isNotNull()),
                    ~F.coalesce("md5_ok", F.expr("true")),
                ]
            )
        )
        .select(_GROUP)
        .distinct()
    )


def _number() -> Column:
    """Return the sequence number a publish was answered with: of SNS, or of the queue it was sent straight to."""
    return F.coalesce("sns_sequence_number", "sqs_sequence_number")


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


def _messages_off(events: DataFrame, expectation: Expectation) -> DataFrame:
    """Return groups with a message that was not published, received and handled as it should be."""
    is_published = F.col("kind") == Kind.PUBLISHED.value
    messages = (
        events.where(F.col("kind") != Kind.OUTBOXED.value)
        .groupBy(_GROUP, "idx")
        .agg(
            F.count_if(is_published).alias("published"),
            F.max(F.when(is_published & F.col("queue").isin(*expectation.queues), F.col("queue"))).alias("sent_to"),
            F.min(F.when(is_published, F.col("invoked_at_us"))).alias("asked_us"),
            F.max(F.when(is_published, F.col("invoked_at_us"))).alias("asked_last_us"),
            F.min(F.when(is_published, F.col("responded_at_us"))).alias("answered_us"),
            F.min(F.when(is_published, F.struct("call_id", F.coalesce("batch_position", F.lit(0))))).alias("call"),
            F.min(F.when(is_published, _number())).alias("number"),
            F.max(F.when(is_published, _number())).alias("number_max"),
            *(
                part
                for name in ("body_hash", "attributes_hash", "deduplication_id")
                for part in (F.min(name).alias(f"{name}_min"), F.max(name).alias(f"{name}_max"))
            ),
            *(part for at, queue in enumerate(expectation.queues) for part in _of_queue(at, queue)),
        )
    )
    changed = [
        F.coalesce(F.col(f"{name}_min") != F.col(f"{name}_max"), F.expr("false"))
        for name in ("body_hash", "attributes_hash", "deduplication_id")
    ]
    window_us = expectation.deduplication_window_seconds * 1_000_000
    off = [
        F.col("published") == 0,
        (F.col("published") > 0) & (F.col("number") != F.col("number_max")),
        (F.col("published") > 1) & (F.col("asked_last_us") - F.col("asked_us") >= window_us),
        *changed,
        *(part for at, queue in enumerate(expectation.queues) for part in _off_in_queue(at, queue, expectation)),
        _skewed(expectation),
    ]
    return messages.where(_any(off)).select(_GROUP).union(_publishing_off(messages)).distinct()


def _of_queue(at: int, queue: str) -> list[Column]:
    """Return what is counted of a message in the at-th queue."""

    def in_queue(kind: Kind, name: str) -> Column:
        return F.when((F.col("kind") == kind.value) & (F.col("queue") == queue), F.col(name))

    return [
        F.count(in_queue(Kind.RECEIVED, "kind")).alias(f"received_{at}"),
        F.min(in_queue(Kind.RECEIVED, "responded_at_us")).alias(f"received_{at}_us"),
        F.min(in_queue(Kind.DELETED, "invoked_at_us")).alias(f"deleted_{at}_us"),
        F.count(in_queue(Kind.HANDLED, "kind")).alias(f"handled_{at}"),
        F.min(in_queue(Kind.HANDLED, "invoked_at_us")).alias(f"handled_{at}_from_us"),
        F.max(in_queue(Kind.HANDLED, "responded_at_us")).alias(f"handled_{at}_until_us"),
    ]


def _off_in_queue(at: int, queue: str, expectation: Expectation) -> list[Column]:
    """Return what is wrong with a message in the at-th queue."""
    handled = F.col(f"handled_{at}")
    is_between = (F.col(f"received_{at}_us") <= F.col(f"handled_{at}_from_us")) & (
        F.col(f"handled_{at}_until_us") <= F.col(f"deleted_{at}_us")
    )
    owed = F.when(F.col("sent_to").isNull() | (F.col("sent_to") == queue), 1).otherwise(0)
    return [
        F.col(f"received_{at}") != owed,
        handled > 1,
        (handled == 1) & ~F.coalesce(is_between, F.expr("false")),
        *([(handled == 0) & (F.col("idx") >= 0)] if queue in expectation.effects_recorded else []),
    ]


def _skewed(expectation: Expectation) -> Column:
    """Return whether a message came from one queue too long after another."""
    allowed = expectation.fan_out_skew_seconds_max
    times = [F.col(f"received_{at}_us") for at in range(len(expectation.queues))]
    if allowed is None or len(times) < 2:
        return F.expr("false")
    return F.greatest(*times) - F.least(*times) > int(allowed * 1_000_000)


def _publishing_off(messages: DataFrame) -> DataFrame:
    """Return groups whose messages were not published one after the other, with ascending numbers.

    Messages behind each other in one call are: their rows stand together, and the first is compared with all before.
    """
    in_time = Window.partitionBy(_GROUP).orderBy("asked_us", "call")
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    planned = F.when(F.col("idx") < 0, F.lit(2**62) - F.col("idx")).otherwise(F.col("idx"))
    is_together = (
        (F.col("call.call_id") == F.lag("call.call_id").over(in_time))
        & (F.col("published") == 1)
        & (F.lag("published").over(in_time) == 1)
    )
    compared = messages.where("published > 0").select(
        _GROUP,
        (F.col("number") <= F.max("number").over(before)).alias("is_number_low"),
        (planned <= F.max(planned).over(before)).alias("is_unplanned"),
        (F.col("asked_us") < F.max("answered_us").over(before)).alias("is_overlapping"),
        F.coalesce(is_together, F.expr("false")).alias("is_together"),
    )
    return compared.where("is_number_low or is_unplanned or (is_overlapping and not is_together)").select(_GROUP)


def _sequence_off(events: DataFrame, expectation: Expectation, around: Surroundings) -> DataFrame:
    """Return groups whose receives from one queue do not ascend, or do not keep clear of each other's leases."""
    received = _leased(_ordered(events), expectation)
    calls = received.groupBy(_GROUP, "queue", "call_id").agg(
        F.max("responded_at_us").alias("responded_at_us"),
        F.max("invoked_at_us").alias("invoked_at_us"),
        F.max("sent_at_us").alias("sent_at_us"),
        F.min("sent_at_us").alias("sent_first_at_us"),
        F.max("lease_end_us").alias("lease_end_us"),
        F.min("lease_end_us").isNull().alias("lease_unknown"),
        F.bool_or("is_deleted_early").alias("is_deleted_early"),
        F.bool_or("is_left").alias("is_left"),
    )
    earlier = (
        Window.partitionBy(_GROUP, "queue")
        .orderBy("responded_at_us", "call_id")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    overlapping = calls.withColumn("held_until_us", F.max("lease_end_us").over(earlier)).where(
        (F.col("held_until_us") > F.col("responded_at_us"))
        | _any([F.col("lease_unknown"), F.col("is_deleted_early"), F.col("is_left")])
        | _waited(expectation, around)
    )
    return overlapping.select(_GROUP).union(_falling(received)).distinct()


def _waited(expectation: Expectation, around: Surroundings) -> Column:
    """Return whether a call brought what had been there for long, or while its queue said it was empty."""
    from_us = F.greatest(F.coalesce("held_until_us", F.lit(0)), F.col("sent_first_at_us") + ENQUEUED_WITHIN_US) + F.lit(
        expectation.clock_bound_us
    )
    empty = [queue for queue, seconds in around.activity.items() if any(one.empty_count for one in seconds)]
    holds_second = F.ceil(from_us / 1_000_000) < F.floor(F.col("invoked_at_us") / 1_000_000)
    allowed = [
        seconds
        for seconds in (expectation.passed_over_seconds_max, expectation.stuck_seconds_max)
        if seconds is not None
    ]
    is_long = F.col("invoked_at_us") - from_us > int(min(allowed) * 1_000_000) if allowed else F.expr("false")
    return F.coalesce((F.col("queue").isin(*empty) & holds_second) | is_long, F.expr("false"))


def _falling(received: DataFrame) -> DataFrame:
    """Return groups whose numbers do not ascend with time, or whose answers were left underfilled again and again."""
    in_time = Window.partitionBy(_GROUP, "queue").orderBy(
        "responded_at_us", "invoked_at_us", "call_id", F.coalesce("batch_position", F.lit(0))
    )
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    is_alone = (F.col("max_number_of_messages") > 1) & (F.col("detail") == answer_detail(1))
    is_underfilled = F.lag(is_alone).over(in_time) & (
        F.col("sent_at_us") + ENQUEUED_WITHIN_US < F.lag("invoked_at_us").over(in_time)
    )
    compared = received.select(
        _GROUP,
        "queue",
        (F.col("ord").isNull() | (F.col("ord") < F.lag("ord").over(in_time))).alias("is_falling"),
        (F.col("sqs_sequence_number") <= F.max("sqs_sequence_number").over(before)).alias("is_numbered_low"),
        is_underfilled.alias("is_underfilled"),
    )
    off = compared.groupBy(_GROUP, "queue").agg(
        F.bool_or(F.coalesce("is_falling", F.expr("false")) | F.coalesce("is_numbered_low", F.expr("false"))).alias(
            "is_off"
        ),
        F.count_if("is_underfilled").alias("underfilled"),
    )
    return off.where(F.col("is_off") | (F.col("underfilled") >= UNDERFILLED_MIN)).select(_GROUP)


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
            _number().alias("number"),
        ),
    )
    return events.withColumn("ord", F.min(acknowledgement).over(message)["number"])


def _leased(events: DataFrame, expectation: Expectation) -> DataFrame:
    """Return the received events with `lease_end_us`, and whether a delete came too early, or none in time."""
    receipt = Window.partitionBy(_GROUP, "receipt_handle_hash")
    is_delete = F.col("kind") == Kind.DELETED.value
    deleted_at = F.min(F.when(is_delete, F.col("invoked_at_us"))).over(receipt)
    settled_at = F.max(F.when(is_delete, F.col("responded_at_us"))).over(receipt)
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
        .withColumn("settled_at_us", settled_at)
        .where(F.col("kind") == Kind.RECEIVED.value)
        .withColumn("lease_end_us", F.least(expires_at, F.coalesce("deleted_at_us", expires_at)))
        .withColumn("is_deleted_early", F.coalesce(F.col("deleted_at_us") < F.col("responded_at_us"), F.expr("false")))
        .withColumn("is_left", F.coalesce(F.col("settled_at_us") > expires_at, F.expr("true")))
    )
