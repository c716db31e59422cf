"""Publish the plan: each Spark task is a publisher, which publishes all messages of its groups in the order of time.

`publisher` decides which messages are sent when; `transport` sends them.
"""

from collections.abc import Iterator
from itertools import chain, groupby, islice
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from sluice.history.events import CallOutcome, Kind
from sluice.judge.folder.layout import WORKER_LOGS
from sluice.recorder.journal import SUFFIX, read_parts
from spark_load.plan.plan import SCHEMA, Plan, group_number
from spark_load.publish import relays
from spark_load.publish.bodies import RELAYED_ATTRIBUTES, message_keys
from spark_load.publish.pacing import RESENT_WITHIN_SECONDS
from spark_load.publish.publisher import LoadPublisher
from spark_load.publish.transport import OUTBOX, Transport
from spark_load.publish.transport.ledger import Ledger
from spark_load.publish.transport.opening import open_transport
from spark_load.publish.transport.outbox import OutboxTransport
from spark_load.runtime.coordinator import EARLIER, RunCoordinator, RunStep, TaskProgress
from spark_load.runtime.task_context import PUBLISHER, SUMMARY_SCHEMA, LoadRun, TaskContext, summary, task_context

_PLAN_SCHEMA = "idx bigint, publish_attempt int, group_number int, offset_us bigint, task int"
_BLOCK_SCHEMA = "task int, moment bigint, rows binary"
_PLAN_ROWS_PER_TASK = 100_000
_MOMENT_US = 100_000
_SENT = ["message_group_id", "idx", "outcome", "invoked_at_us", "task_attempt", "call_id"]
_ORDER = [("offset_us", "ascending"), ("publish_attempt", "ascending"), ("idx", "ascending")]


def plan_rows(spark: SparkSession, run: LoadRun) -> DataFrame:
    """Return the plan as a DataFrame: one row per publish, columns as in `plan.SCHEMA`, no order."""
    plan = run.plan
    return _parts(spark, plan).mapInArrow(lambda parts: _plan_rows(plan, parts), _PLAN_SCHEMA)


def _parts(spark: SparkSession, plan: Plan) -> DataFrame:
    """Return a DataFrame of the numbers of a plan's parts, each number in a partition of its own."""
    count = 1 + plan.row_count // _PLAN_ROWS_PER_TASK
    return spark.range(0, count, 1, count)


def _plan_rows(plan: Plan, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part in (number for batch in parts for number in batch.column("id").to_pylist()):
        first = part * _PLAN_ROWS_PER_TASK
        yield plan.batch(np.arange(first, min(first + _PLAN_ROWS_PER_TASK, plan.row_count)))


def publish(spark: SparkSession, run: LoadRun, left: DataFrame | None) -> DataFrame:
    """Return the job that publishes the plan; it runs when its rows are requested.

    Runs one task per `publish_tasks`, each for the whole duration. Not safe to repeat: Spark runs a task again only if
    a fault ended it.

    Args:
        spark: the session.
        run: whose plan is published.
        left: the rows of the plan that are still to be published, as `plan_rows` has them; None for all, in a first
            attempt.
    """
    assert (left is None) == (run.attempt == 0), (
        "a resumed run passes the rows that are left, or every message would be published again"
    )
    plan = run.plan

    def publish_in_task(blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield summary(publish_share(run, _split_blocks(blocks)))

    if left is None:
        blocks = _parts(spark, plan).mapInArrow(lambda parts: _make_blocks(_plan_rows(plan, parts)), _BLOCK_SCHEMA)
    else:
        blocks = left.mapInArrow(_make_blocks, _BLOCK_SCHEMA)
    return (
        blocks.repartitionById(plan.profile.publish_tasks, "task")
        .sortWithinPartitions("moment")
        .mapInArrow(publish_in_task, SUMMARY_SCHEMA)
    )


def _make_blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of the plan in blocks; a block has the rows of one task and one moment."""
    for batch in filter(len, batches):
        task, moment = batch.column("task").to_numpy(), batch.column("offset_us").to_numpy() // _MOMENT_US
        order = np.lexsort((moment, task))
        rows, task, moment = batch.take(pa.array(order.tolist())), task[order], moment[order]
        is_first = np.concatenate(([True], (task[1:] != task[:-1]) | (moment[1:] != moment[:-1])))
        starts = np.flatnonzero(is_first)
        counts = np.diff(np.append(starts, len(rows)))
        blocks = [
            rows.slice(index, count).serialize().to_pybytes() for index, count in zip(starts, counts, strict=True)
        ]
        yield pa.RecordBatch.from_pydict(
            {"task": pa.array(task[starts].tolist(), pa.int32()), "moment": moment[starts].tolist(), "rows": blocks}
        )


def _split_blocks(blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of blocks, which arrive in the order of their moments, as one batch for each moment."""
    pairs = chain.from_iterable(
        zip(batch.column("moment").to_pylist(), batch.column("rows"), strict=True) for batch in blocks
    )
    for _, of_moment in groupby(pairs, itemgetter(0)):
        rows = [pa.ipc.read_record_batch(block.as_buffer(), SCHEMA) for _, block in of_moment]
        yield pa.concat_batches(rows).sort_by(_ORDER)


def publish_share(run: LoadRun, rows: Iterator[pa.RecordBatch]) -> TaskProgress:
    """Publish one task's share of the plan, inside the task; rows are as `Publisher.publish` takes them."""
    with task_context(run, PUBLISHER) as context:
        transport = _open_transport(run, context)
        try:
            publisher = LoadPublisher(
                run.plan,
                run=run.id,
                addresses=_publish_addresses(run),
                transport=transport,
                coordinator=context.coordinator,
                clock=context.clock,
                name=context.name,
                event_bytes_max=run.deployment.event_bytes_max,
                sent_before=bundles_sent_before(run, context),
            )
            rows = rows_to_publish(run, context.coordinator, rows) if run.begin_by_us else rows
            if context.again:
                not_again = messages_sent_before(run, context)
                rows = (publisher.unsent(batch, not_again) for batch in rows)
            return publisher.publish(rows)
        finally:
            transport.close()


def rows_to_publish(
    run: LoadRun, coordinator: RunCoordinator, rows: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that may be published, after the driver has named the instant at which the plan begins.

    The first batch is read before that instant is awaited: when it arrives, Spark has sorted all batches.
    """
    first = list(islice(rows, 1))
    not_again = pa.array(run.expired_messages(coordinator.wait_for(RunStep.START)), pa.int64())
    for batch in chain(first, rows):
        yield batch.filter(pc.invert(pc.is_in(batch.column("idx"), not_again)))


def messages_sent_before(run: LoadRun, context: TaskContext) -> pa.Array:
    """Return the keys of messages that a task must not publish again, if it is run again because a fault ended it.

    As in a resumed run, they are those that the task's journals record as acknowledged. A message whose publish was
    never answered is published again with its deduplication id, while SNS remembers that id.
    """
    sent = _earlier_publishes(run, context)
    has_envelopes = run.plan.profile.has_services
    keys = message_keys(sent.column("idx"), sent.column("message_group_id"), has_envelopes=has_envelopes)
    is_acked = pc.equal(sent.column("outcome"), CallOutcome.OK.value)
    forgotten_us = context.clock.now_us() - RESENT_WITHIN_SECONDS * 1_000_000
    is_forgotten = pc.and_(
        pc.equal(sent.column("outcome"), CallOutcome.INFO.value), pc.less(sent.column("invoked_at_us"), forgotten_us)
    )
    acked_now = pc.sum(pc.and_(is_acked, pc.equal(sent.column("task_attempt"), run.attempt)))
    earlier = TaskProgress(worker=f"{EARLIER}-{context.name}", role=EARLIER, done=acked_now.as_py() or 0)
    context.coordinator.report(earlier, now=True)
    return keys.filter(pc.or_(is_acked, is_forgotten)).combine_chunks()


def bundles_sent_before(run: LoadRun, context: TaskContext) -> dict[tuple[int, int], int]:
    """Return how many events the bundles have that earlier processes of a task sent, by group and idx of the first.

    Of those without an answer, a repeat has to be the same message. The service would take another one for new. An
    outbox takes an event once, whatever it comes with.
    """
    is_first = not (context.again or run.attempt)
    if is_first or run.plan.profile.bundle_events_max == 1 or run.transport == OUTBOX:
        return {}
    bundles = _earlier_publishes(run, context).group_by(["call_id", "message_group_id"], use_threads=False)
    found = bundles.aggregate([("idx", "first"), ("idx", "count_distinct")])
    groups = map(group_number, found.column("message_group_id").to_pylist())
    firsts, counts = (found.column(name).to_pylist() for name in ("idx_first", "idx_count_distinct"))
    return dict(zip(zip(groups, firsts, strict=True), counts, strict=True))


def _earlier_publishes(run: LoadRun, context: TaskContext) -> pa.Table:
    """Return the rows of publishes in the journals of a task, also of its earlier processes."""
    return pa.concat_tables(
        part.filter(pc.equal(part.column("kind"), Kind.PUBLISHED.value)).select(_SENT)
        for path in sorted(run.journals.glob(f"{context.name}-*{SUFFIX}"))
        for part in read_parts(path)
    )


def _publish_addresses(run: LoadRun) -> list[str]:
    return [run.deployment.topic_arn] if run.plan.profile.has_topic else list(run.deployment.queue_urls.values())


def _open_transport(run: LoadRun, context: TaskContext) -> Transport:
    service, client = ("sns", context.sns) if run.plan.profile.has_topic else ("sqs", context.sqs)
    has_bundles = run.plan.profile.bundle_events_max > 1
    ledger = Ledger(
        context.journal,
        names=run.deployment.names(),
        run=run.id,
        service=service,
        attributes=RELAYED_ATTRIBUTES if run.transport == OUTBOX else ({}, {}),
        knows_ids=run.transport != OUTBOX or not has_bundles,
    )
    if run.transport == OUTBOX:
        return OutboxTransport(
            relays.outbox_file(run),
            ledger,
            topic=run.deployment.topic,
            event_bytes_max=run.deployment.event_bytes_max,
            log=run.folder / WORKER_LOGS / f"{context.name}.log",
            clock=context.clock,
        )
    return open_transport(
        run.transport,
        client,
        recorder=context.recorder,
        ledger=ledger,
        clock=context.clock,
        has_bundles=has_bundles,
    )
