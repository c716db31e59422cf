"""A process dies at the failpoint that a test arms, and nowhere else."""

import subprocess
import sys

import pytest

from sluice.clock import SystemClock
from sluice.errors import ConfigError
from sluice.messaging import failpoints

WALK = """
import os
from sluice.messaging import failpoints
reached = failpoints.from_environment(os.environ, failpoints.RELAY)
for _ in range(3):
    for name in failpoints.RELAY:
        print(name, flush=True)
        reached(name)
"""
ROUND = ["after_claim", "before_publish", "after_publish", "before_mark", "after_mark"]


@pytest.mark.parametrize(
    ("armed", "walked"),
    [
        ({"SLUICE_FAILPOINT": "after_publish"}, ROUND[:3]),
        ({"SLUICE_FAILPOINT": "after_publish:2"}, ROUND + ROUND[:3]),
    ],
)
def test_a_process_dies_at_its_armed_failpoint(armed: dict[str, str], walked: list[str]) -> None:
    """At the first time, or at the second with `:2`; it is ended as by kill -9."""
    ended = subprocess.run([sys.executable, "-c", WALK], env=armed, capture_output=True, text=True, check=False)

    assert ended.stdout.split() == walked
    assert ended.returncode == -9, ended.stderr


def test_a_process_that_is_not_armed_does_not_die() -> None:
    reached = failpoints.from_environment({}, failpoints.RELAY)

    for name in ROUND:
        reached(name)

    assert reached is failpoints.do_nothing


def test_a_process_pauses_at_its_armed_failpoint_each_time() -> None:
    """`=0.05` is a pause of 50 ms, here twice."""
    clock = SystemClock()
    reached = failpoints.from_environment({"SLUICE_FAILPOINT": "after_mark=0.05"}, failpoints.RELAY)

    begun_at = clock.monotonic()
    for name in ROUND:
        reached(name)
    reached("after_mark")

    assert clock.monotonic() - begun_at >= 0.1


@pytest.mark.parametrize(
    "armed",
    [
        "",
        "nowhere",
        "after_mark:often",
        "after_mark:-1",
        "after_mark:0",
        "after_mark:²",
        "after_mark=",
        "after_mark=-1",
    ],
)
def test_an_unknown_failpoint_is_refused(armed: str) -> None:
    """Otherwise a test with a misspelt name would kill nothing, and pass."""
    with pytest.raises(ConfigError) as refused:
        failpoints.from_environment({"SLUICE_FAILPOINT": armed}, failpoints.RELAY)

    assert str(refused.value) == (
        f"SLUICE_FAILPOINT is {armed!r}, allowed is one of after_claim, before_publish, after_publish, before_mark,"
        " after_mark, NAME:COUNT or NAME=SECONDS"
    )
