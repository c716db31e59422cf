"""The estimate of a profile equals the one calculated by hand, and says so if the profile cannot work."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner

from spark_load.cli.planning import plan as plan_command
from spark_load.cli.planning import profiles as profiles_command
from spark_load.profiles import profile as profiles
from spark_load.profiles.estimate import Estimate
from spark_load.profiles.fields import Phase
from spark_load.profiles.profile import Profile

estimate = Estimate
# 10 messages come due in the second that a publish call waits, and as many between two receives.
BY_HAND = Profile(
    messages_per_second=10,
    duration_seconds=100,
    group_count=10,
    duplicate_share=0.1,
    payload_bytes=864,  # 1,024 with what is around it
    publish_linger_seconds=0.98,
    poll_pause_seconds=0.96,
)


def test_estimated_counts_equal_those_worked_out_by_hand() -> None:
    """1,000 messages, 100 repeats and 10 end markers in full calls of ten.

    Three queues get everything but the repeats.
    """
    made = estimate(BY_HAND, queue_count=3)

    assert made.repeat_count == 100
    assert made.published_count == 1_110
    assert made.messages_per_publish_call == 10
    assert made.messages_per_receive_call == 10
    assert made.published_bytes == 1_110 * 1_024
    assert made.delivered_count == 3_030
    assert made.calls == {"publish": 111, "receive": 303, "delete": 303, "change visibility": 0}


def test_the_cost_through_a_topic_is_the_one_worked_out_by_hand() -> None:
    """By message and gigabyte for SNS, each delivery a request of SQS, then 303 receives and 303 deletes."""
    assert estimate(BY_HAND, queue_count=3).cost == pytest.approx(
        {
            "SNS publish": 1_110 * 0.30e-6 + 1_110 * 1_024e-9 * 0.017,
            "SNS delivery": 3_030 * 0.01e-6 + 3_030 * 1_024e-9 * 0.001,
            "SQS send": 3_030 * 0.5e-6,
            "SQS receive, delete": 606 * 0.5e-6,
        }
    )
    assert estimate(BY_HAND, queue_count=3).cost_usd == pytest.approx(0.0022037, abs=1e-7)


@pytest.mark.parametrize("target", ["aws", "localstack"])
def test_a_payload_above_the_environments_event_size_is_refused(target: Literal["aws", "localstack"]) -> None:
    refusal = (
        "payload_bytes is 1537, allowed is at most 1536: the environment's event_bytes_max is 2048, 512 of them for"
        " what is around it; lower it, or raise event_bytes_max"
    )

    made = [
        estimate(replace(BY_HAND, payload_bytes=size), queue_count=1, target=target, event_bytes_max=2_048)
        for size in (1_536, 1_537)
    ]

    assert [plan.refusals for plan in made] == [(), (refusal,)]


def test_a_call_holds_no_more_bytes_than_an_event_may_have() -> None:
    """262,144 bytes hold two messages of 100,000 bytes, 1,048,576 hold ten; ten is the most of a call."""
    profile = replace(BY_HAND, payload_bytes=99_488, duplicate_share=0)

    rooms = [
        estimate(profile, queue_count=1, event_bytes_max=bytes_max).messages_per_publish_call
        for bytes_max in (262_144, 524_288, 1_048_576)
    ]

    assert rooms == [2, 5, 10]


def test_straight_to_the_queues_large_batches_are_several_requests() -> None:
    """Two messages of 100,000 bytes fit into a call, which is 200,000 bytes: four times 64 KiB, four requests."""
    profile = replace(BY_HAND, destination="queue", payload_bytes=99_840, duplicate_share=0)

    made = estimate(profile, queue_count=1)

    assert made.messages_per_publish_call == 2
    assert made.calls["publish"] == 505
    assert made.cost["SQS send"] == pytest.approx(505 * 4 * 0.5e-6)
    assert set(made.cost) == {"SQS send", "SQS receive, delete"}
    assert estimate(replace(BY_HAND, destination="queue"), queue_count=3).delivered_count == 1_010  # to one queue each


def test_a_late_repeat_is_delivered_as_a_message() -> None:
    """SNS drops repeats for five minutes, and these 100 come after 400 s."""
    profile = replace(BY_HAND, duplicate_share=0, late_duplicate_share=0.1, late_duplicate_after_seconds=400)

    made = estimate(profile, queue_count=3)

    assert made.repeat_count == 100
    assert made.calls["publish"] == 111
    assert made.delivered_count == 3_330


def test_failing_messages_are_received_again_one_at_a_time() -> None:
    """100 fail once, 10 crash a consumer, 10 are poison: 4 more receives, one from the DLQ, one after the redrive."""
    profile = replace(BY_HAND, duplicate_share=0, failure_share=0.1, crash_share=0.01, poison_share=0.01)

    made = estimate(profile, queue_count=1, max_receive_count=5)
    redriven = estimate(replace(profile, redrive=True), queue_count=1, max_receive_count=5)

    assert made.delivered_count == 1_010 + 100 + 10 + 10 * 5
    assert made.calls == {"publish": 101, "receive": 1_170, "delete": 1_000, "change visibility": 150}
    assert redriven.delivered_count == made.delivered_count + 10
    assert redriven.calls["delete"] == 1_010


def test_idle_consumers_poll_too() -> None:
    """One message in 100 s; three consumers that wait a second each make about 300 receives."""
    profile = Profile(messages_per_second=0.01, duration_seconds=100, group_count=1)

    assert 300 <= estimate(profile, queue_count=3).calls["receive"] <= 312


def test_the_hottest_group_has_its_share_of_the_peak() -> None:
    """Skew 1 over 3 groups: 1 / (1 + 1/2 + 1/3), of 20/s at the top of the ramp."""
    ramp = Phase(duration_seconds=10, messages_per_second=0, to_per_second=20)

    made = estimate(Profile(phases=(ramp,), group_count=3, group_skew=1), queue_count=1)

    assert made.hottest_share == pytest.approx(6 / 11)
    assert made.profile.peak_per_second == 20
    assert made.hottest_per_second == pytest.approx(120 / 11)


def test_a_backlog_is_drained_at_the_consumers_rate() -> None:
    """50/s for 20 s are consumed only afterwards, by two consumers with 10 in 0.5 s each: 1,010 at 40/s.

    The end markers take 0.6 s.
    """
    profile = Profile(
        messages_per_second=50,
        duration_seconds=20,
        group_count=10,
        consume_after_seconds=20.6,
        poll_pause_seconds=0.46,
        consumers_per_queue=2,
    )

    made = estimate(profile, queue_count=1)

    assert made.publish_seconds == pytest.approx(20.59)
    assert made.drain_seconds == pytest.approx(1_010 / 40, abs=0.1)
    assert made.seconds == pytest.approx(20 + 20.59 + 25.25, abs=0.2)


@pytest.mark.parametrize("target", ["aws", "localstack"])
@pytest.mark.parametrize("name", profiles.names())
def test_each_built_in_profile_works_on_its_targets(name: str, target: Literal["aws", "localstack"]) -> None:
    """Only a profile that is meant for AWS may be warned of on LocalStack."""
    made = estimate(profiles.load(name).profile, queue_count=3, target=target)

    assert made.refusals == ()
    assert bool(made.warnings) == (target == "localstack" and profiles.about(name)[1] == "AWS")
    assert 0 < made.cost_usd < 5


FAST_PROFILE = Profile(
    messages_per_second=20_000, duration_seconds=60, group_count=2_000, publish_tasks=8, consumers_per_queue=99
)


def _refusal_of_sns(region: str, used: str, allowed: str) -> str:
    return (
        f"publish, SNS FIFO in {region}: {used} messages/s at the peak, allowed is {allowed}; lower the rate, or choose"
        " destination 'queue'"
    )


_FAST_TO_QUEUES = replace(FAST_PROFILE, destination="queue")


@pytest.mark.parametrize(
    ("profile", "region", "refusal"),
    [
        (FAST_PROFILE, "us-east-1", None),
        (replace(FAST_PROFILE, duplicate_share=0.5), "us-east-1", None),  # 30,000, and no more
        (replace(FAST_PROFILE, duplicate_share=0.6), "us-east-1", _refusal_of_sns("us-east-1", "32,000", "30,000")),
        (
            replace(FAST_PROFILE, late_duplicate_share=0.6, late_duplicate_after_seconds=400),
            "us-east-1",
            _refusal_of_sns("us-east-1", "32,000", "30,000"),
        ),
        (FAST_PROFILE, "eu-west-1", _refusal_of_sns("eu-west-1", "20,000", "9,000")),
        (FAST_PROFILE, "eu-north-1", _refusal_of_sns("eu-north-1", "20,000", "3,000")),
        (
            replace(FAST_PROFILE, group_skew=1),  # 1 / 8.178 of the messages
            "us-east-1",
            "publish, hottest group: 2,445 messages/s at the peak, allowed is 300; lower group_skew or the rate, or"
            " add groups",
        ),
        (
            replace(FAST_PROFILE, group_count=1_000_000, catch_up_ratio=5),
            "us-east-1",
            _refusal_of_sns("us-east-1", "100,000", "30,000"),
        ),
        (_FAST_TO_QUEUES, "eu-north-1", None),
        (
            replace(_FAST_TO_QUEUES, failure_share=0.1),
            "eu-north-1",
            "receive, a queue in eu-north-1: 6,670 calls/s at the peak, allowed is 2,400; lower the rate, or choose a"
            " region with more",
        ),
        (
            replace(_FAST_TO_QUEUES, group_skew=1),
            "us-east-1",
            "send, hottest group: 2,445 calls/s at the peak, allowed is 300; lower group_skew or the rate, or add"
            " groups",
        ),
    ],
)
def test_a_load_above_a_quota_is_refused(profile: Profile, region: str, refusal: str | None) -> None:
    """Quotas differ between regions: of the topic, of a queue, and of one message group. LocalStack has none."""
    refusals = () if refusal is None else (refusal,)

    assert estimate(profile, queue_count=3, region=region).refusals == refusals
    assert estimate(profile, queue_count=3, region=region, target="localstack").refusals == ()


PROFILE_OF_100_A_SECOND = Profile(messages_per_second=100, duration_seconds=100, group_count=30)


@pytest.mark.parametrize(
    ("profile", "warning"),
    [
        (
            replace(PROFILE_OF_100_A_SECOND, group_skew=3),
            "the hottest group has 83.2% of the messages, 83/s at the peak, and one after the other about 50/s can be"
            " published: they will be late; lower group_skew or the rate",
        ),
        (
            replace(PROFILE_OF_100_A_SECOND, handler_seconds=0.1),  # ten in 1.04 s, for 100.65 s, of 10,030
            "the consumers of a queue (1) can work off about 10 messages/s, and 100/s come: 9,062 are left to drain;"
            " add consumers_per_queue",
        ),
        (
            replace(
                PROFILE_OF_100_A_SECOND, consume_after_seconds=300, drain_seconds_max=30
            ),  # 199.4 s, and 10,030 at 250/s
            "draining takes about 239 s, and drain_seconds_max is 30: the threshold will be crossed",
        ),
        (
            replace(PROFILE_OF_100_A_SECOND, duration_seconds=2_000, consume_after_seconds=1_500),
            "the backlog of a queue grows to about 150,000 messages, and SQS looks for groups to serve in the first"
            " 120,000",
        ),
    ],
)
def test_a_profile_that_will_miss_its_own_limits_is_warned_of(profile: Profile, warning: str) -> None:
    """It can run, but messages would be late, or left, or draining would take too long."""
    assert estimate(profile, queue_count=1).warnings == (warning,)


def test_consumers_that_begin_late_on_purpose_cause_no_warning() -> None:
    waiting = replace(PROFILE_OF_100_A_SECOND, handler_seconds=0.1, consume_after_seconds=10)

    assert estimate(waiting, queue_count=1).warnings == ()


def test_a_rate_that_is_too_high_for_localstack_is_warned_of() -> None:
    profile = Profile(messages_per_second=120, duration_seconds=10, group_count=100)

    (warning,) = estimate(profile, queue_count=3, target="localstack").warnings

    assert warning == (
        "LocalStack, topic to 3 queues: 120 messages/s are offered, it can do about 90: a backlog builds; lower the"
        " rate, or run it on AWS"
    )
    assert estimate(profile, queue_count=1, target="localstack").warnings == ()


def test_estimate_prints_its_result_as_json() -> None:
    """The profile `tiny` on LocalStack with three queues; costs add up to their sum."""
    ran = CliRunner().invoke(plan_command, ["tiny", "--json"])

    printed = json.loads(ran.stdout)
    assert ran.exit_code == 0
    assert {name: printed[name] for name in ("profile", "environment", "target", "queue_count", "message_count")} == {
        "profile": "tiny",
        "environment": "local",
        "target": "localstack",
        "queue_count": 3,
        "message_count": 320,
    }
    assert printed["price_date"] == "2026-11-23"
    assert printed["cost_usd"] == pytest.approx(sum(printed["cost"].values()))
    assert len(printed["assumptions"]) == 4


@pytest.mark.parametrize(("environment", "when"), [("local", "on average"), ("prod", "at the peak")])
def test_limits_are_compared_at_the_peak_on_aws_and_averaged_on_localstack(environment: str, when: str) -> None:
    """The heading of the table says which: AWS refuses what exceeds a second's quota, LocalStack handles it later."""
    ran = CliRunner().invoke(plan_command, ["ramp", "--env", environment])

    assert re.findall(r"^(.*?) +used +allowed +share *$", ran.stdout, re.MULTILINE) == [when]


def test_estimate_ends_with_3_for_a_load_that_cannot_work(tmp_path: Path) -> None:
    path = tmp_path / "far-too-fast.yaml"
    path.write_text("messages_per_second: 45000\nduration_seconds: 60\ngroup_count: 5000\n", encoding="utf-8")

    ran = CliRunner().invoke(plan_command, [str(path), "--env", "prod"])

    assert ran.exit_code == 3
    assert "far-too-fast on prod (aws), 3 queues" in ran.stdout
    assert ran.stderr.startswith("publish, SNS FIFO in us-east-1: 45,000 messages/s at the peak, allowed is 30,000")


def test_a_rate_below_one_is_not_shown_as_zero(tmp_path: Path) -> None:
    path = tmp_path / "trickle.yaml"
    path.write_text("messages_per_second: 0.01\nduration_seconds: 500\ngroup_count: 1\n", encoding="utf-8")

    ran = CliRunner().invoke(plan_command, [str(path)])

    assert "5, at most 0.01/s" in ran.stdout


def test_the_list_names_every_profile_and_what_it_shows() -> None:
    ran = CliRunner().invoke(profiles_command)

    lines = {line.split()[0]: line for line in ran.stdout.splitlines()[1:]}
    assert sorted(lines) == profiles.names()
    assert all(found in line for name, line in lines.items() for found in profiles.about(name))
