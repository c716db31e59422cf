"""What the report's charts show: aggregated in Spark it is what counting message by message gives, and as small."""

import json
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its own documentation calls it so)

from sluice.history.events import Event
from sluice.judge.folder.series_schema import BINS_MAX
from sluice.judge.series import EVENTS_MAX, RANKS_MAX
from sluice.recorder.journal import SCHEMA
from spark_load.judge.series import series
from tests.support.anomalies import CASES
from tests.support.histories import finished_runs
from tests.support.histories.by_hand import EXPECTATION
from tests.support.histories.recording_cases import table_of

pytestmark = pytest.mark.spark


def test_the_series_are_what_counting_message_by_message_gives(spark: SparkSession) -> None:
    events = finished_runs.history()

    fields = series(spark.createDataFrame(table_of(events)), expectation=EXPECTATION)

    assert fields == finished_runs.plain_series(events, bin_us=1_000_000)
    assert fields["warm_up"][0] == 0
    assert sum(fields["failed"]["ThrottlingException"]) == sum(fields["queues"]["billing"]["again"]) == 1
    assert json.loads(json.dumps(fields)) == fields


def test_a_timeline_has_the_events_nearest_to_what_was_found(spark: SparkSession) -> None:
    violation = CASES["C1"].violation
    far = [_moved(finished_runs.history(1)[0], number) for number in range(EVENTS_MAX)]
    others = [replace(event, message_group_id="g2") for event in finished_runs.history(100)]

    fields = series(
        spark.createDataFrame(table_of([*CASES["C1"].events, *far, *others])),
        expectation=EXPECTATION,
        violations=[violation],
    )

    timeline = fields["groups"]["g1"]
    near = [(event["kind"], event["idx"], event["invoked_at_us"]) for event in timeline if event["idx"] < 1_000]
    assert list(fields["groups"]) == ["g1"]
    assert len(timeline) == EVENTS_MAX
    assert sorted(near) == sorted(
        (event.kind, event.idx, event.invoked_at_us) for event in CASES["C1"].events if event.invoked_at_us is not None
    )


def _moved(event: Event, number: int) -> Event:
    at_us = 10_000_000_000 + number * 1_000
    return replace(
        event,
        message_group_id="g1",
        idx=1_000 + number,
        call_id=f"far/{number}",
        invoked_at_us=at_us,
        responded_at_us=at_us,
        intended_at_us=at_us,
    )


@pytest.mark.slow
def test_thousand_times_the_messages_make_no_larger_series(spark: SparkSession) -> None:
    messages = spark.range(400_000).select(
        F.lit("r").alias("run"),
        F.concat(F.lit("g"), F.pmod(F.xxhash64("id"), F.lit(40_000))).alias("message_group_id"),
        F.col("id").alias("idx"),
        (F.col("id") * 215_000).alias("intended_at_us"),
        (F.col("id") * 215_000 + F.pmod(F.xxhash64("id"), F.lit(1_000_000))).alias("responded_at_us"),
    )
    columns = set(SCHEMA.names)
    base = messages.withColumns(
        {
            "invoked_at_us": F.col("intended_at_us"),
            "outcome": F.lit("ok"),
            "message_run": F.lit("r"),
            **{
                name: F.lit(None).cast("string")
                for name in columns - {*messages.columns, "invoked_at_us", "outcome", "message_run", "kind", "queue"}
            },
        }
    )
    history = base.withColumns({"kind": F.lit("published"), "queue": F.lit("events")}).unionByName(
        base.withColumns({"kind": F.lit("received"), "queue": F.lit("billing")})
    )

    fields = series(history, expectation=EXPECTATION)

    assert (fields["bin_count"], len(fields["ranks"])) == (96, RANKS_MAX)
    assert fields["bin_count"] <= BINS_MAX
    assert sum(fields["published"]) == sum(fields["queues"]["billing"]["received"]) == 400_000
    assert sum(rank["groups"] for rank in fields["ranks"]) == pytest.approx(40_000, abs=20)
    assert [rank["groups"] for rank in fields["ranks"]] == pytest.approx([2_000] * RANKS_MAX, rel=0.1)
    assert fields["ranks"][0]["messages"] > 2 * fields["ranks"][-1]["messages"]
    assert len(json.dumps(fields)) < 30_000
