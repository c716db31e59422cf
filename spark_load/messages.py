"""From events to one row a message, in one exchange: the narrow form in which Spark looks at a whole history.

Every event becomes a row of numbers: what is only compared for equality is hashed to 64 bits, a queue is its place in
the expectation (its *lane*, from 1; 0 is publishing), a sequence number its last 18 digits and the hash of the others.
The rows go to their group's partition once. There they become *instances*, one for what was published of a message and
one for each SQS message, and instances become messages.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluice.checker import Expectation
from sluice.history import Kind, Outcome, answer_detail

GROUP = "group"
NO_IDX = -(2**62)
WARM_UP = "warm_up"
_PUBLISHED, _RECEIVED, _DELETED, _HANDLED, _OTHER = range(5)
_CODES = {Kind.PUBLISHED: _PUBLISHED, Kind.RECEIVED: _RECEIVED, Kind.DELETED: _DELETED, Kind.HANDLED: _HANDLED}
_CALLS = (Kind.PUBLISHED.value, Kind.RECEIVED.value, Kind.DELETED.value)
_ORDINARY = (*_CALLS, Kind.HANDLED.value, Kind.OUTBOXED.value)
_CONTENT = ("body_hash", "attributes_hash", "deduplication_id")
_NO_LANE = -1
_PARTITIONS_MIN = 4
_PARTITION_EVENTS = 1_000_000


def group_hash() -> Column:
    """Return the hash of an event's message group."""
    return F.xxhash64("message_group_id")


def any_of(columns: Sequence[Column]) -> Column:
    """Return whether any is true, a null counting as true: what cannot be told is suspect."""
    return reduce(lambda one, other: one | other, (F.coalesce(one, F.expr("true")) for one in columns), F.expr("false"))


def lanes(expectation: Expectation) -> range:
    """Return the lanes of the queues."""
    return range(1, len(expectation.queues) + 1)


def messages(history: DataFrame, expectation: Expectation, partition_count: int = 1) -> DataFrame:
    """Return one row for each message of each group, all of a group in one partition.

    Args:
        history: settled events, columns as in `sluice.history`.
        expectation: what the run was set up to be.
        partition_count: see `partitions`.

    Returns:
        `group` and `idx` (NO_IDX for what has none), `is_odd` (something about it is unusual), and with the lane as
        suffix how and when it was published (0), and received, held and handled. No order.
    """
    rows = exchanged(history, expectation, partition_count)
    return _messages(_instances(rows, expectation), expectation)


def exchanged(history: DataFrame, expectation: Expectation, partition_count: int) -> DataFrame:
    """Return the events that belong to a group as narrow rows, all of a group in one partition."""
    return _rows(history, expectation).repartition(partition_count, F.col(GROUP))


def partitions(event_count: int) -> int:
    """Return into how many partitions that many events go, so that a task has room for the messages of one."""
    return max(_PARTITIONS_MIN, event_count // _PARTITION_EVENTS)


# --- events ----------------------------------------------------------------------------------------------------------


def _rows(history: DataFrame, expectation: Expectation) -> DataFrame:
    kind = F.col("kind")
    is_published, is_received = kind == Kind.PUBLISHED.value, kind == Kind.RECEIVED.value
    is_of_a_run = kind.isin(Kind.RECEIVED.value, Kind.HANDLED.value)
    number = F.coalesce("sns_sequence_number", "sqs_sequence_number")
    lane, idx = _lane(expectation), F.coalesce("idx", F.lit(NO_IDX))
    rows = history.where(
        F.col("message_group_id").isNotNull() & (~is_of_a_run | (F.col("message_run") == expectation.run))
    ).select(
        group_hash().alias(GROUP),
        F.when(is_published, 0).otherwise(lane).cast("tinyint").alias("lane"),
        F.when(is_published | (lane == _NO_LANE), idx).otherwise(F.xxhash64("sqs_message_id")).alias("key"),
        idx.alias("idx"),
        _choice(kind, {one.value: code for one, code in _CODES.items()}, _OTHER).alias("kind"),
        _choice(F.col("outcome"), {one.value: at for at, one in enumerate(Outcome)}, -1).alias("outcome"),
        _is_unusual(expectation).alias("is_odd"),
        (kind == Kind.OUTBOXED.value).alias("is_outboxed"),
        (F.col("phase").isNotNull() & (F.col("phase") == WARM_UP)).alias("is_warm_up"),
        "invoked_at_us",
        "responded_at_us",
        F.when(is_published | is_received, F.xxhash64("call_id")).alias("call"),
        F.when(is_published | is_received, F.coalesce("batch_position", F.lit(0))).alias("position"),
        F.expr("try_cast(substr(coalesce(sns_sequence_number, sqs_sequence_number), 22, 18) AS BIGINT)").alias("low"),
        F.when(number.isNotNull(), F.xxhash64(F.substring(number, 1, 21))).alias("high"),
        F.when(is_published, lane.cast("bigint")).otherwise(_hash("receipt_handle_hash")).alias("handle"),
        *(_hash(name).alias(name) for name in _CONTENT),
        F.when(is_published, F.col("intended_at_us")).otherwise(F.col("sent_at_us")).alias("since_us"),
        F.when(is_received, F.coalesce("visibility_timeout_seconds", _timeout(expectation))).alias("lease_seconds"),
        (is_received & (F.col("max_number_of_messages") > 1) & (F.col("detail") == answer_detail(1))).alias("is_alone"),
    )
    return rows.where(F.col("is_odd") | ~F.col("is_outboxed")).drop("is_outboxed")


def _choice(column: Column, values: dict[str, int], otherwise: int) -> Column:
    chosen = F.when(F.expr("false"), F.lit(otherwise))
    for value, code in values.items():
        chosen = chosen.when(column == value, F.lit(code))
    return chosen.otherwise(F.lit(otherwise)).cast("tinyint")


def _lane(expectation: Expectation) -> Column:
    return _choice(F.col("queue"), {queue: at for at, queue in enumerate(expectation.queues, 1)}, _NO_LANE)


def _timeout(expectation: Expectation) -> Column:
    chosen = F.when(F.expr("false"), F.lit(0))
    for queue, seconds in expectation.visibility_timeout_seconds.items():
        chosen = chosen.when(F.col("queue") == queue, F.lit(seconds))
    return chosen


def _hash(name: str) -> Column:
    return F.when(F.col(name).isNotNull(), F.xxhash64(name))


def _is_unusual(expectation: Expectation) -> Column:
    """Return whether an event does not belong into a run where nothing happens."""
    kind, queue = F.col("kind"), F.col("queue")
    is_published, is_received = kind == Kind.PUBLISHED.value, kind == Kind.RECEIVED.value
    number = F.coalesce("sns_sequence_number", "sqs_sequence_number")
    is_number = F.expr(
        "try_cast(substr(coalesce(sns_sequence_number, sqs_sequence_number), 22, 18) AS BIGINT)"
    ).isNotNull()
    return any_of(
        [
            ~kind.isin(*_ORDINARY),
            kind.isin(*_CALLS) & F.col("call_id").isNull(),
            F.col("invoked_at_us").isNull(),
            F.col("outcome") != Outcome.OK.value,
            F.col("responded_at_us").isNull() | (F.col("responded_at_us") < F.col("invoked_at_us")),
            (is_published | number.isNotNull()) & ~is_number,
            (is_received | (kind == Kind.HANDLED.value)) & ~queue.isin(*expectation.queues),
            is_received & F.col("sqs_message_id").isNull(),
            kind.isin(Kind.RECEIVED.value, Kind.DELETED.value) & F.col("receipt_handle_hash").isNull(),
            is_received & (F.coalesce("receive_count", F.lit(0)) != 1),
            is_received & (F.col("sns_message_id").isNotNull() | F.col("sns_sequence_number").isNotNull()),
            ~F.coalesce("md5_ok", F.expr("true")),
        ]
    )


# --- instances -------------------------------------------------------------------------------------------------------


def _instances(rows: DataFrame, expectation: Expectation) -> DataFrame:
    """Return what was published of each message, and each SQS message."""
    kind = F.col("kind")
    is_made = kind.isin(_PUBLISHED, _RECEIVED)

    def of(code: int, name: str) -> Column:
        return F.when(kind == code, F.col(name))

    def made(name: str) -> Column:
        return F.when(is_made, F.col(name))

    instances = rows.groupBy(GROUP, "lane", "key").agg(
        F.min("idx").alias("idx"),
        F.max("idx").alias("idx_max"),
        F.max("is_odd").alias("is_odd"),
        F.max("is_warm_up").alias("is_warm_up"),
        F.count_if(is_made).alias("count"),
        F.count_if((kind == _PUBLISHED) & (F.col("outcome") == _outcome(Outcome.OK))).alias("acked"),
        F.count_if((kind == _PUBLISHED) & (F.col("outcome") == _outcome(Outcome.INFO))).alias("unanswered"),
        F.min(made("invoked_at_us")).alias("asked_us"),
        F.max(made("invoked_at_us")).alias("asked_last_us"),
        F.min(made("responded_at_us")).alias("answered_us"),
        F.max(made("responded_at_us")).alias("answered_last_us"),
        F.max(F.when(kind == _PUBLISHED, F.col("responded_at_us") - F.col("invoked_at_us"))).alias("took_us"),
        F.max(F.when(kind == _PUBLISHED, F.col("invoked_at_us") - F.col("since_us"))).alias("late_us"),
        F.max("call").alias("call"),
        F.max("position").alias("position"),
        F.min("low").alias("low"),
        F.max("low").alias("low_max"),
        F.min("high").alias("high"),
        F.max("high").alias("high_max"),
        F.min("handle").alias("handle"),
        F.max("handle").alias("handle_max"),
        *(part for name in _CONTENT for part in (F.min(name).alias(name), F.max(name).alias(f"{name}_max"))),
        F.min("since_us").alias("since_us"),
        F.max("lease_seconds").alias("lease_seconds"),
        F.max("is_alone").alias("is_alone"),
        F.min(of(_DELETED, "invoked_at_us")).alias("deleted_us"),
        F.max(of(_DELETED, "responded_at_us")).alias("settled_us"),
        F.count_if(kind == _HANDLED).alias("handled"),
        F.min(of(_HANDLED, "invoked_at_us")).alias("handled_from_us"),
        F.max(of(_HANDLED, "responded_at_us")).alias("handled_until_us"),
    )
    expires_us = F.col("asked_us") + F.col("lease_seconds").cast("bigint") * 1_000_000
    return instances.select(
        *(name for name in instances.columns if name not in ("is_odd", "lease_seconds", "settled_us", "key")),
        F.least(expires_us, "deleted_us").alias("free_us"),
        (
            F.col("is_odd")
            | _changed(("low", "high", *_CONTENT))
            | F.when(F.col("lane") == 0, _is_published_oddly(expectation)).otherwise(
                _is_received_oddly(expectation, expires_us)
            )
        ).alias("is_odd"),
    )


def _outcome(outcome: Outcome) -> int:
    return list(Outcome).index(outcome)


def _changed(names: Sequence[str]) -> Column:
    """Return whether any of the columns differed where it was known."""
    return reduce(
        lambda one, other: one | other,
        [F.coalesce(F.col(name) != F.col(f"{name}_max"), F.expr("false")) for name in names],
    )


def _is_published_oddly(expectation: Expectation) -> Column:
    window_us = expectation.deduplication_window_seconds * 1_000_000
    is_repeated_late = (F.col("count") > 1) & (F.col("asked_last_us") - F.col("asked_us") >= window_us)
    return any_of([is_repeated_late, F.col("handle") != F.col("handle_max")])


def _is_received_oddly(expectation: Expectation, expires_us: Column) -> Column:
    """Return what is wrong with an SQS message: received once, deleted with that handle in time, handled in between."""
    is_between = (F.col("answered_us") <= F.col("handled_from_us")) & (F.col("handled_until_us") <= F.col("deleted_us"))
    owed = [lane for lane, queue in enumerate(expectation.queues, 1) if queue in expectation.effects_recorded]
    return any_of(
        [
            F.col("count") != 1,
            F.col("idx") != F.col("idx_max"),
            F.col("handle") != F.col("handle_max"),
            F.col("deleted_us") < F.col("answered_us"),
            F.col("settled_us").isNull() | F.coalesce(F.col("settled_us") > expires_us, F.expr("false")),
            F.col("handled") > 1,
            (F.col("handled") == 1) & ~F.coalesce(is_between, F.expr("false")),
            (F.col("handled") == 0) & F.col("lane").isin(*owed) & (F.col("idx") >= 0) if owed else F.expr("false"),
        ]
    )


# --- messages --------------------------------------------------------------------------------------------------------

_OF_PUBLISHING = (
    "count",
    "acked",
    "unanswered",
    "asked_us",
    "asked_last_us",
    "answered_us",
    "answered_last_us",
    "took_us",
    "late_us",
    "call",
    "position",
    "low",
    "high",
    "since_us",
)
_OF_LANE = (
    "asked_us",
    "answered_us",
    "free_us",
    "call",
    "position",
    "low",
    "high",
    "since_us",
    "is_alone",
    "handled_from_us",
    "handled_until_us",
)


def _messages(instances: DataFrame, expectation: Expectation) -> DataFrame:
    def of(lane: int, name: str) -> Column:
        return F.when(F.col("lane") == lane, F.col(name))

    return (
        instances.groupBy(GROUP, "idx")
        .agg(
            F.max("is_odd").alias("is_odd"),
            F.max("is_warm_up").alias("is_warm_up"),
            F.max(of(0, "handle")).alias("sent_to"),
            *(F.max(of(0, name)).alias(f"{name}_0") for name in _OF_PUBLISHING),
            *(
                part
                for name in _CONTENT
                for part in (F.min(name).alias(name), F.max(f"{name}_max").alias(f"{name}_max"))
            ),
            *(
                part
                for lane in lanes(expectation)
                for part in (
                    F.count(of(lane, "asked_us")).alias(f"count_{lane}"),
                    *(F.min(of(lane, name)).alias(f"{name}_{lane}") for name in _OF_LANE),
                )
            ),
        )
        .withColumn("is_odd", F.col("is_odd") | _changed(_CONTENT))
    )
