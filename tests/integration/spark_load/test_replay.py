"""Recorded traffic, sent again: each message once, in its group, and how near it came is reported."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from sluice.judge import report
from sluice.judge.checker.verdict import PropertyStatus
from spark_load.judge.arrivals import read_publishes
from spark_load.profiles import profile, trace
from spark_load.runtime import deployment
from tests.integration.spark_load.loads import LOCAL, run_load
from tests.support.endpoints import fake_aws

pytestmark = [pytest.mark.spark]
MESSAGES = 120


def _profile_of_bursts(folder: Path) -> profile.NamedProfile:
    """Return a profile of messages in bursts, most of them of one group."""
    random = np.random.default_rng(7)
    instants = np.sort(np.repeat(np.arange(6) * 1_000_000, MESSAGES // 6) + random.integers(0, 300_000, MESSAGES))
    groups = np.minimum(random.geometric(0.4, MESSAGES), 6)
    trace.write(trace.rank_arrivals(instants, groups, random.integers(200, 900, MESSAGES)), folder / "bursts.parquet")
    (folder / "bursts.yaml").write_text(
        "replay:\n  file: bursts.parquet\n  speed: 2\npublish_tasks: 2\nlateness_budget_seconds: 30\n"
        "drain_timeout_seconds: 15\n"
    )
    return profile.load(str(folder / "bursts.yaml"))


@pytest.mark.slow  # half a minute
def test_a_replay_sends_every_message_once_and_says_how_near_it_came(
    spark: SparkSession, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """Groups have the recorded counts; the times differ, and the verdict's measures say by how much."""
    named = _profile_of_bursts(tmp_path)
    where = deployment.find(LOCAL, endpoint_url=endpoint.url)

    verdict, folder = run_load(spark, where, tmp_path, named, target="endpoint")

    assert verdict.status is PropertyStatus.VALID, verdict.unknowns
    assert named.trace_file is not None
    recorded, _ = trace.read(named.trace_file)
    again = read_publishes(folder).arrivals
    assert sorted(Counter(again.group_rank.tolist()).values()) == sorted(recorded.group_counts.tolist())
    found = verdict.measures["replay"]
    assert found["planned"] == MESSAGES
    assert found["published"] == MESSAGES
    assert found["skew_error"] == 0
    assert 0 <= found["shift_us"]["p50"] <= found["shift_us"]["max"]
    assert 0 <= found["interarrival_ks"] <= 1
    assert report.read_verdict(folder).measures["replay"] == found
    assert "Replay: 120 of 120 recorded messages, later by" in (folder / report.SUMMARY_FILE).read_text()
