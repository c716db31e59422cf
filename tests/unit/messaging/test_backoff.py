"""A relay's delay before it tries again doubles up to its cap, and chance chooses below it."""

import math
import random
import statistics

import pytest

from sluice.errors import ConfigError
from sluice.messaging.backoff import Backoff

BACKOFF = Backoff(base_seconds=1, cap_seconds=10, floor_seconds=0.5)


@pytest.mark.parametrize(
    ("attempt", "least", "middle", "most"),
    [
        (1, 0.5, 0.75, 1),
        (2, 0.5, 1.25, 2),
        (3, 0.5, 2.25, 4),
        (4, 0.5, 4.25, 8),
        (5, 0.5, 5.25, 10),
        (6, 0.5, 5.25, 10),
        (1_000_000, 0.5, 5.25, 10),
    ],
)
def test_a_delay_is_drawn_between_a_floor_and_a_doubling_maximum(
    attempt: int, least: float, middle: float, most: float
) -> None:
    """The maximum is 1 s, then 2, 4, 8 and at most 10; chance 0, 0.5 and 1 give least, middle and most."""
    delays = [BACKOFF.seconds(attempt, rng) for rng in (0, 0.5, 1)]

    assert delays == [least, middle, most]


def test_x7_delays_of_attempts_that_failed_together_differ() -> None:
    """Otherwise all would come back together; the quartiles of 0.5 to 10 s are near 3, 5 and 8."""
    rng = random.Random(1)  # noqa: S311 (a seed, no secret)

    delays = [BACKOFF.seconds(5, rng.random()) for _ in range(1_000)]

    assert len(set(delays)) == 1_000
    assert [round(quantile, 0) for quantile in statistics.quantiles(delays, n=4)] == [3, 5, 8]


@pytest.mark.parametrize(
    ("base", "cap", "floor", "message"),
    [
        (1, 10, 0, "floor_seconds is 0, allowed is more than 0 seconds"),
        (1, math.inf, 1, "cap_seconds is inf, allowed is a finite number of seconds"),
        (1, 10, 2, "base_seconds is 1, allowed is 2 to 10 seconds, floor_seconds to cap_seconds"),
        (11, 10, 1, "base_seconds is 11, allowed is 1 to 10 seconds, floor_seconds to cap_seconds"),
        (math.nan, 10, 1, "base_seconds is nan, allowed is 1 to 10 seconds, floor_seconds to cap_seconds"),
    ],
)
def test_delays_that_cannot_double_are_refused(base: float, cap: float, floor: float, message: str) -> None:
    """A floor of nothing would be a busy loop."""
    with pytest.raises(ConfigError) as refused:
        Backoff(base_seconds=base, cap_seconds=cap, floor_seconds=floor)

    assert str(refused.value) == f"Backoff.{message}"
