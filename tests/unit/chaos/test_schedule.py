"""The schedule of a chaos run and the commits of its producers follow from its seed."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.errors import ConfigError
from spark_load.faults.shapes import FUNCTION, NETWORK
from tests.chaos.settings import SERVICES, Settings, choose_kinds
from tests.chaos.system.producers import Task, read_journal_states

_SETTINGS = Settings(seed=11, seconds=14, producers=2)


@pytest.mark.parametrize("services", ["plain", "lambda"])
@pytest.mark.parametrize("seed", range(10))
def test_every_kind_of_fault_comes_and_the_schedule_follows_from_the_seed(seed: int, services: str) -> None:
    """Even a short schedule has each kind of fault at least once, if a target is free; workers are not throttled."""
    settings = replace(_SETTINGS, seed=seed, seconds=60, modules=SERVICES[services])
    impossible = () if services == "lambda" else FUNCTION

    assert {fault.kind for fault in settings.faults} == set(settings.kinds) - set(impossible)
    assert all(0 < fault.at_seconds <= fault.until_seconds <= 60 for fault in settings.faults)
    assert settings.faults == settings.faults != replace(settings, seed=seed + 1).faults
    assert {fault.kind for fault in replace(settings, seconds=120, every_seconds=0.5).faults} >= set(NETWORK)


def test_an_impossible_schedule_is_refused_in_one_line() -> None:
    """An unknown kind, and a schedule without time."""
    with pytest.raises(ConfigError, match="--faults is nonsense, allowed are kill, terminate"):
        choose_kinds(["kill", "nonsense"])
    with pytest.raises(ConfigError, match=r"--seconds is 1 with a fault every 1\.5 s, allowed is more than 1 s"):
        _ = replace(_SETTINGS, seconds=1).faults


def test_a_commits_events_follow_from_seed_producer_and_number(tmp_path: Path) -> None:
    """A commit has the same events whatever faults its producer had before."""
    task = Task(
        name="producer-0",
        seed=1,
        commits=500,
        begins_at_us=0,
        seconds=1,
        groups=("a", "b"),
        topic="t.fifo",
        dsn="sqlite://",
        journal=str(tmp_path),
    )
    commits = [task.commit(number) for number in range(500)]

    assert commits == [replace(task, dsn="sqlite:///elsewhere.db").commit(number) for number in range(500)]
    assert commits != [replace(task, seed=2).commit(number) for number in range(500)]
    assert {len(commit.groups) for commit in commits} == {1, 2}
    assert any(commit.is_tried_before for commit in commits)
    assert any(commit.has_savepoint for commit in commits)


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    """The last thing known of each event counts."""
    (tmp_path / "producer-0.jsonl").write_text(
        '{"ids": ["a", "b"], "tried": "begun"}\n{"ids": ["a"], "tried": "committed"}\n{"ids": ["b"], "tri'
    )

    assert read_journal_states(tmp_path) == {"a": "committed", "b": "begun"}
