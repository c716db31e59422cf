"""The plan is a pure function; the profile refuses what cannot be offered."""

from collections import Counter
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import ConfigError
from sluice.history import identity_of
from spark_load import profile as profiles
from spark_load.plan import Plan, Planned
from spark_load.profile import Profile, parse

PROFILES = st.builds(
    Profile,
    messages_per_second=st.floats(1, 500),
    duration_seconds=st.floats(1, 3),
    group_count=st.integers(4, 30),
    group_skew=st.floats(0, 2),
    payload_bytes=st.integers(0, 64),
    duplicate_share=st.floats(0, 1),
    publish_tasks=st.integers(1, 4),
)


def _rows(plan: Plan) -> list[Planned]:
    return [Planned(**row) for row in plan.batch(np.arange(plan.row_count)).to_pylist()]


def _body(plan: Plan, row: Planned) -> str:
    return plan.body(row.idx, row.group_number, "r")


@given(profile=PROFILES, seed=st.integers(0, 2**32), parts=st.integers(1, 9))
def test_the_plan_is_the_same_however_it_is_cut_up(profile: Profile, seed: int, parts: int) -> None:
    """Dealt to several tasks, each with a plan of its own, it is what one task makes of it; so are the bodies."""
    whole = Plan(profile, seed)

    plans = [Plan(profile, seed) for _ in range(parts)]
    dealt = [plan.batch(np.arange(part, plan.row_count, parts)) for part, plan in enumerate(plans)]

    rows = [(plan, Planned(**row)) for plan, batch in zip(plans, dealt, strict=True) for row in batch.to_pylist()]
    assert sorted(map(astuple, _rows(whole))) == sorted(astuple(row) for _, row in rows)
    assert [_body(plan, row) for plan, row in rows[:20]] == [_body(whole, row) for _, row in rows[:20]]


@given(profile=PROFILES, seed=st.integers(0, 2**32), data=st.data())
def test_one_row_is_planned_as_in_a_batch(profile: Profile, seed: int, data: st.DataObject) -> None:
    """The publishes of a number are the same, whether it is asked for alone or with all others."""
    plan = Plan(profile, seed)
    number = data.draw(st.integers(0, plan.row_count - 1))
    idx = number if number < profile.message_count else profile.message_count - 1 - number

    assert list(plan.rows(number)) == [row for row in _rows(plan) if row.idx == idx]


@given(profile=PROFILES, seed=st.integers(0, 2**32))
def test_a_group_belongs_to_one_task_and_ends_last(profile: Profile, seed: int) -> None:
    """Every group has one task, one end marker, and nothing planned after it."""
    rows = _rows(Plan(profile, seed))

    for group in range(profile.group_count):
        of_group = [row for row in rows if row.group_number == group]
        assert len({row.task for row in of_group}) == 1
        assert [row.idx for row in of_group if row.idx < 0] == [-1 - group]
        assert max(of_group, key=lambda row: row.offset_us).idx == -1 - group


@given(profile=PROFILES, seed=st.integers(0, 2**32))
def test_a_repeat_is_the_same_message_later(profile: Profile, seed: int) -> None:
    """Same body, same deduplication id, later by the profile's time; every message is planned once or twice."""
    plan = Plan(profile, seed)
    by_idx: dict[int, list[Planned]] = {}
    for row in _rows(plan):
        by_idx.setdefault(row.idx, []).append(row)

    assert sorted(idx for idx in by_idx if idx >= 0) == list(range(profile.message_count))
    for first, *repeats in by_idx.values():
        for repeat in repeats:
            assert _body(plan, first) == _body(plan, repeat)
            assert plan.deduplication_id(first, "r") == plan.deduplication_id(repeat, "r")
            assert repeat.offset_us - first.offset_us == round(profile.duplicate_after_seconds * 1e6)


def test_shares_follow_the_profile() -> None:
    """Skew 1 over 4 groups gives shares as 1, 1/2, 1/3, 1/4; a tenth is repeated; 100 a second for 100 seconds."""
    profile = Profile(messages_per_second=100, duration_seconds=100, group_count=4, group_skew=1, duplicate_share=0.1)
    rows = [row for row in _rows(Plan(profile, seed=1)) if row.idx >= 0]

    firsts = [row for row in rows if row.publish_attempt == 1]
    counts = Counter(row.group_number for row in firsts)
    assert [counts[group] / counts[0] for group in range(4)] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], abs=0.03)
    assert 0.09 < (len(rows) - len(firsts)) / len(firsts) < 0.11
    assert firsts[-1].offset_us == 99_990_000


def test_a_body_carries_its_identity_and_the_payload_size() -> None:
    """What is published can be told apart, and is as large as asked for."""
    plan = Plan(Profile(messages_per_second=1, duration_seconds=1, group_count=1, payload_bytes=33), seed=1)
    (row, *_) = plan.rows(0)

    body = _body(plan, row)

    assert identity_of(body=body, deduplication_id=None, message_group_id=None) == plan.identity(row, "r")
    assert len(body.split('"payload":"')[1].removesuffix('"}')) == 33


def test_straight_to_the_queues_each_has_its_own_groups() -> None:
    """Seven groups and three queues: groups 0, 3 and 6 end in the first; a warm-up is counted by the same rule."""
    shape = {"messages_per_second": 50, "duration_seconds": 2, "warm_up_seconds": 4, "group_count": 7}
    straight, fanned_out = (Plan(Profile(**shape, destination=where), 5) for where in ("queue", "topic"))

    assert [straight.queue_of(group, 3) for group in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [straight.group_count_of(queue, 3) for queue in range(3)] == [3, 2, 2]
    warming_up = Counter(row.group_number % 3 for row in _rows(straight) if row.phase == "warm_up")
    assert [straight.warm_up_count_of(queue, 3) for queue in range(3)] == [warming_up[queue] for queue in range(3)]
    assert [fanned_out.queue_of(group, 3) for group in range(7)] == [None] * 7
    assert [fanned_out.group_count_of(queue, 3) for queue in range(3)] == [7, 7, 7]
    assert [fanned_out.warm_up_count_of(queue, 3) for queue in range(3)] == [200, 200, 200]


def test_the_profiles_that_come_along_are_legal() -> None:
    """Smoke is what the README says: at least 5,000 messages at 40 a second."""
    loaded = {name: profiles.load(name).profile for name in profiles.names()}

    assert sorted(loaded) == ["smoke", "tiny"]
    assert loaded["smoke"].message_count >= 5_000
    assert loaded["smoke"].messages_per_second == 40


GOOD = "messages_per_second: 10\nduration_seconds: 1\ngroup_count: 2\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "messages_per_second: -5\n", "profile 'p': messages_per_second is -5: Input should be greater than 0"),
        (
            GOOD + "duration_seconds: soon\n",
            "profile 'p': duration_seconds is 'soon': Input should be a valid number,"
            " unable to parse string as a number",
        ),
        (
            GOOD + "lateness_budget_seconds: .inf\n",
            "profile 'p': lateness_budget_seconds is inf: Input should be less than or equal to 3600",
        ),
        (
            GOOD + "duration_seconds: .nan\n",
            "profile 'p': duration_seconds is nan: Input should be less than or equal to 86400",
        ),
        (
            GOOD + "duplicate_share: 1.5\n",
            "profile 'p': duplicate_share is 1.5: Input should be less than or equal to 1",
        ),
        (
            GOOD + "duplicate_after_seconds: 299\n",
            "profile 'p': duplicate_after_seconds is 299: Input should be less than 240",
        ),
        (GOOD + "rate: 5\n", "profile 'p': rate is no field of a profile"),
        (
            "group_count: 1\n",
            "profile 'p': messages_per_second and duration_seconds missing:"
            " give messages_per_second and duration_seconds, or phases",
        ),
        (
            GOOD + "publish_tasks: 3\n",
            "profile 'p': publish_tasks is 3, allowed is at most group_count (2): a group belongs to one task",
        ),
        (
            GOOD + "messages_per_second: 0.1\n",
            "profile 'p': messages_per_second x duration_seconds is 0 messages, allowed is 1 to 50000000",
        ),
        ("", "profile 'p' is 'None', allowed are lines of 'field: value'; see spark_load/profiles/smoke.yaml"),
        (
            "- a\n- b\n",
            "profile 'p' is \"['a', 'b']\", allowed are lines of 'field: value'; see spark_load/profiles/smoke.yaml",
        ),
        ("a: [1\nb: 2", "profile 'p' is no YAML (line 2); see spark_load/profiles/smoke.yaml"),
        ("a: \x07", "profile 'p' is no YAML; see spark_load/profiles/smoke.yaml"),
    ],
)
def test_a_malformed_profile_is_refused_in_one_line(text: str, message: str) -> None:
    """The field, the value seen and the value allowed; never a traceback."""
    with pytest.raises(ConfigError) as refused:
        parse(text, source="p")

    assert str(refused.value) == message


def test_a_profile_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """By name, by path, and when it is a folder."""
    with pytest.raises(
        ConfigError,
        match=r"profile 'huge' cannot be read \(No such file or directory\), allowed is",
    ):
        profiles.load("huge")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        profiles.load(str(tmp_path / "folder.yaml"))
