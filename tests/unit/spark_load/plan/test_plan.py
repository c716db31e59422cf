"""The plan is a pure function of profile, seed and number."""

import json
import pickle
import string
from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.history.events import Identity, identity_of
from spark_load.plan.plan import SCHEMA, Plan, message_group_id, mix_bits, uniform
from spark_load.profiles.fields import Phase
from spark_load.profiles.profile import Profile

QUICK = settings(max_examples=40, deadline=None)
RATES = st.floats(1, 20)
STEPS = st.lists(
    st.builds(
        Phase,
        duration_seconds=st.floats(2, 4),
        messages_per_second=RATES,
        to_per_second=st.none() | st.just(0.0) | RATES,
    ),
    min_size=1,
    max_size=3,
)
PROFILES = st.builds(
    Profile,
    phases=STEPS.map(tuple),
    warm_up_seconds=st.just(0) | st.floats(1, 3),
    group_count=st.integers(4, 30),
    group_skew=st.floats(0, 2),
    payload_bytes=st.integers(0, 64),
    duplicate_share=st.floats(0, 0.5),
    late_duplicate_share=st.floats(0.01, 0.5),
    late_duplicate_after_seconds=st.just(400),
    publish_tasks=st.integers(1, 4),
)


class _Row(NamedTuple):
    """A row of the plan."""

    idx: int
    publish_attempt: int
    group_number: int
    offset_us: int
    task: int


def _rows(plan: Plan, numbers: list[int] | None = None) -> list[_Row]:
    """Return the plan's rows with these numbers, or all."""
    requested = np.arange(plan.row_count) if numbers is None else np.array(numbers)
    return [_Row(**row) for row in plan.batch(requested).to_pylist()]


def _body(plan: Plan, row: _Row, run: str = "r") -> str:
    """Return the body of a planned message."""
    values = plan.body_values(np.array([row.idx]), [message_group_id(row.group_number)], [str(row.idx)])
    return next(plan.body_template(run).texts(values))


@QUICK
@given(profile=PROFILES, seed=st.integers(0, 2**32), parts=st.integers(1, 9))
def test_a_plan_is_the_same_in_any_number_of_parts(profile: Profile, seed: int, parts: int) -> None:
    """Each task of Spark computes its own rows, without the others."""
    whole = Plan(profile, seed)

    plans = [Plan(profile, seed) for _ in range(parts)]
    dealt = [plan.batch(np.arange(part, plan.row_count, parts)) for part, plan in enumerate(plans)]

    rows = [(plan, _Row(**row)) for plan, batch in zip(plans, dealt, strict=True) for row in batch.to_pylist()]
    assert sorted(_rows(whole)) == sorted(row for _, row in rows)
    assert [_body(plan, row) for plan, row in rows[:20]] == [_body(whole, row) for _, row in rows[:20]]


@QUICK
@given(profile=PROFILES, seed=st.integers(0, 2**32), data=st.data())
def test_one_row_is_planned_as_in_a_batch(profile: Profile, seed: int, data: st.DataObject) -> None:
    """A retry or a judge can compute a single message again."""
    plan = Plan(profile, seed)
    number = data.draw(st.integers(0, plan.row_count - 1))
    idx = number if number < profile.message_count else profile.message_count - 1 - number

    assert _rows(plan, [number]) == [row for row in _rows(plan) if row.idx == idx]


@QUICK
@given(profile=PROFILES, seed=st.integers(0, 2**32))
def test_a_group_belongs_to_one_task_and_ends_last(profile: Profile, seed: int) -> None:
    """One task publishes a group, or its order would depend on two.

    The end marker (a negative number) is its last message.
    """
    rows = _rows(Plan(profile, seed))

    for group in range(profile.group_count):
        of_group = [row for row in rows if row.group_number == group]
        assert len({row.task for row in of_group}) == 1
        assert [row.idx for row in of_group if row.idx < 0] == [-1 - group]
        assert max(of_group, key=lambda row: row.offset_us).idx == -1 - group


@QUICK
@given(profile=PROFILES, seed=st.integers(0, 2**32))
def test_a_repeat_is_the_same_message_later(profile: Profile, seed: int) -> None:
    """It has the same body and task, and comes after 2 s, or after 400 s, outside SQS's deduplication window."""
    plan = Plan(profile, seed)
    by_idx: dict[int, list[_Row]] = {}
    for row in _rows(plan):
        by_idx.setdefault(row.idx, []).append(row)

    assert sorted(idx for idx in by_idx if idx >= 0) == list(range(profile.message_count))
    for first, *repeats in by_idx.values():
        for repeat in repeats:
            assert _body(plan, first) == _body(plan, repeat)
            assert repeat.task == first.task
            assert repeat.publish_attempt == 2
            assert first.offset_us >= 0
            assert repeat.offset_us - first.offset_us in (2_000_000, 400_000_000)


def test_shares_follow_the_profile() -> None:
    """Skew 1 over 4 groups gives shares like 1, 1/2, 1/3, 1/4. A tenth is repeated. 100 a second last 100 seconds."""
    profile = Profile(messages_per_second=100, duration_seconds=100, group_count=4, group_skew=1, duplicate_share=0.1)
    rows = [row for row in _rows(Plan(profile, seed=1)) if row.idx >= 0]

    firsts = [row for row in rows if row.publish_attempt == 1]
    counts = Counter(row.group_number for row in firsts)
    assert [counts[group] / counts[0] for group in range(4)] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], abs=0.03)
    assert 0.09 < (len(rows) - len(firsts)) / len(firsts) < 0.11
    assert firsts[-1].offset_us == 99_990_000


def test_repeats_come_when_the_profile_says() -> None:
    """A fifth of the messages is repeated after the default 2 s, and a tenth after 400 s."""
    profile = Profile(
        messages_per_second=1_000,
        duration_seconds=10,
        group_count=4,
        duplicate_share=0.2,
        late_duplicate_share=0.1,
        late_duplicate_after_seconds=400,
    )
    rows = _rows(Plan(profile, seed=1))

    first_us = {row.idx: row.offset_us for row in rows if row.publish_attempt == 1}
    after = Counter(row.offset_us - first_us[row.idx] for row in rows if row.publish_attempt == 2)
    assert {us: count / 10_000 for us, count in after.items()} == {
        2_000_000: pytest.approx(0.2, abs=0.02),
        400_000_000: pytest.approx(0.1, abs=0.02),
    }


def test_offsets_invert_a_ramp_a_plateau_and_a_pause() -> None:
    """From 0 to 10/s in 10 s are 50 messages, the 8th after 4 s. Then come 2 s at 10/s, 5 s of nothing, and 2/s."""
    ramp = Phase(duration_seconds=10, messages_per_second=0, to_per_second=10)
    plateau = Phase(duration_seconds=2, messages_per_second=10)
    pause = Phase(duration_seconds=5, messages_per_second=0)
    tail = Phase(duration_seconds=1, messages_per_second=2)
    profile = Profile(phases=(ramp, plateau, pause, tail), group_count=1)

    offsets = {row.idx: row.offset_us for row in _rows(Plan(profile, seed=1))}

    assert profile.message_count == 72
    assert [offsets[idx] for idx in (0, 2, 8, 18, 32, 50)] == [
        0,
        2_000_000,
        4_000_000,
        6_000_000,
        8_000_000,
        10_000_000,
    ]
    assert [offsets[idx] for idx in (51, 69, 70, 71)] == [10_100_000, 11_900_000, 17_000_000, 17_500_000]


@QUICK
@given(profile=PROFILES)
def test_the_integral_of_the_rate_reaches_a_messages_number_at_its_time(profile: Profile) -> None:
    """Message n is due when the profile's rate has offered n messages; checked by numerical integration."""
    rows = [row for row in _rows(Plan(profile, 1)) if row.publish_attempt == 1 and row.offset_us >= 0 and row.idx >= 0]

    for row in rows[:: max(1, len(rows) // 7)]:
        left_seconds, reached = row.offset_us / 1e6, 0.0
        for step in profile.phases:
            within = min(left_seconds, step.duration_seconds)
            midpoints = (np.arange(2_000) + 0.5) / 2_000 * within
            slope = (step.end_per_second - step.messages_per_second) / step.duration_seconds
            reached += float(np.sum(step.messages_per_second + slope * midpoints)) * within / 2_000
            left_seconds -= within
        assert left_seconds == pytest.approx(0, abs=1e-6)
        assert reached == pytest.approx(row.idx - profile.warm_up_count, abs=1e-3)


def test_the_warm_up_comes_before_the_load() -> None:
    """Its instants are negative: ten messages at 5/s in the 2 s before the load."""
    rows = _rows(Plan(Profile(messages_per_second=5, duration_seconds=3, group_count=2, warm_up_seconds=2), seed=1))

    warm_up = [row for row in rows if row.offset_us < 0]
    assert [(row.idx, row.offset_us) for row in warm_up] == [(idx, -2_000_000 + idx * 200_000) for idx in range(10)]
    assert [row.offset_us for row in rows if row.idx == 10] == [0]


def test_end_markers_are_spread_at_the_rate_of_catching_up() -> None:
    """Three groups end half a second after the load, at twice its rate of 10/s."""
    profile = Profile(messages_per_second=10, duration_seconds=2, group_count=3, catch_up_ratio=2)

    ends = [row.offset_us for row in _rows(Plan(profile, seed=1)) if row.idx < 0]

    assert ends == [2_500_000, 2_550_000, 2_600_000]
    assert profile.publish_seconds == pytest.approx(2.6)


def test_a_message_fails_in_one_way_only() -> None:
    """Shares of poison, failures and crashes do not overlap. Warm-up and end markers (negative) never fail."""
    profile = Profile(
        messages_per_second=1_000,
        duration_seconds=10,
        group_count=1,
        warm_up_seconds=1,
        poison_share=0.1,
        failure_share=0.2,
        crash_share=0.3,
    )
    plan = Plan(profile, seed=3)

    outcomes = [(plan.is_poison(idx), plan.fails_first(idx), plan.crashes_first(idx)) for idx in range(1_000, 11_000)]

    assert max(map(sum, outcomes)) == 1
    assert [sum(outcome) / 10_000 for outcome in zip(*outcomes, strict=True)] == pytest.approx(
        [0.1, 0.2, 0.3], abs=0.02
    )
    never = [*range(-5, 0), *range(1_000)]
    assert not any(plan.is_poison(idx) or plan.fails_first(idx) or plan.crashes_first(idx) for idx in never)


def test_a_body_is_the_json_of_its_identity_and_payload() -> None:
    plan = Plan(Profile(messages_per_second=1, duration_seconds=3, group_count=2, payload_bytes=100), seed=1)

    for row in _rows(plan):
        group, end, payload = f"g00000{row.group_number}", row.idx < 0, plan.payloads(np.array([row.idx]))[0]
        found = {"run": 'a "run"', "group": group, "idx": row.idx, "end": end, "payload": payload}
        body = _body(plan, row, 'a "run"')
        assert body == json.dumps(found, separators=(",", ":"))
        assert identity_of(body=body, deduplication_id=None, message_group_id=None) == Identity(
            run='a "run"', message_group_id=group, idx=row.idx
        )
        assert len(payload) == (0 if end else 100)
    assert set("".join(plan.payloads(np.arange(3)))) <= set(string.ascii_letters + string.digits + "-_")


def test_payloads_differ_between_messages_and_between_seeds() -> None:
    """Equal payloads would hide messages that were exchanged."""
    profile = Profile(messages_per_second=1, duration_seconds=3, group_count=2, payload_bytes=32)
    plan, other = Plan(profile, seed=1), Plan(profile, seed=2)

    payloads = set(plan.payloads(np.arange(65_536)))

    assert len(payloads) == 65_536
    assert payloads.isdisjoint(other.payloads(np.arange(100)))


def test_a_batch_takes_arrow_and_gives_arrow() -> None:
    """Spark hands over columns of Arrow. Numbers behind the messages are end markers."""
    plan = Plan(Profile(messages_per_second=2, duration_seconds=3, group_count=2), seed=1)

    batch = plan.batch(pa.array([7, 0, 6, 5], pa.int64()))

    assert batch.schema == SCHEMA
    assert batch.column("idx").to_pylist() == [0, 5, -2, -1]
    assert plan.batch(pa.array([], pa.int64())).num_rows == 0


def test_a_pickled_plan_is_small() -> None:
    """A plan caches a pool of payloads and the shares of 100,000 groups.

    Both are left out when it is pickled for a task.
    """
    plan = Plan(Profile(messages_per_second=10, duration_seconds=1, group_count=100_000), seed=1)
    plan.batch(np.arange(10))
    plan.payloads(np.arange(1))

    sent = pickle.dumps(plan)

    assert len(sent) < 2_000
    assert pickle.loads(sent).batch(np.arange(10)) == plan.batch(np.arange(10))  # noqa: S301 (our own)


def test_the_mixing_function_is_splitmix64() -> None:
    """Its first three values from state 0, as published with the reference implementation."""
    step = 0x9E3779B97F4A7C15

    assert [mix_bits(step * number % 2**64) for number in (1, 2, 3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


@QUICK
@given(seed=st.integers(), numbers=st.lists(st.integers(0, 2**62), min_size=1), purpose=st.integers(0, 3))
def test_drawing_one_value_equals_drawing_many(seed: int, numbers: list[int], purpose: int) -> None:
    """A message's random values do not depend on the batch in which they are drawn."""
    together = uniform(seed, np.array(numbers, np.uint64), purpose)

    assert [uniform(seed, number, purpose) for number in numbers] == together.tolist()
    assert all(0 <= drawn < 1 for drawn in together.tolist())


def test_draws_for_different_purposes_are_independent() -> None:
    """Otherwise, for instance, all repeats would be poison. Neither do two seeds correlate."""
    numbers = np.arange(10_000, dtype=np.uint64)
    draws = [uniform(seed, numbers, purpose) for seed in (1, 2) for purpose in range(4)]

    correlations = np.corrcoef(draws) - np.eye(8)

    assert np.abs(correlations).max() < 0.05
