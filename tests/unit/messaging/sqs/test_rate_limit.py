"""The rate limit: calls are never faster than the rate, and wait no longer than needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.clock import VirtualClock
from sluice.errors import ConfigError
from sluice.messaging.sqs.rate_limit import Pace
from sluice.messaging.sqs.redrive import batch_of

_ROUNDING = 1e-4  # the virtual clock counts microseconds


def _pass_times(rate: float, rests: list[float]) -> list[float]:
    """Return the instants at which a caller passes the limit, who rests for these seconds before each call."""
    clock = VirtualClock()
    pace = Pace(rate, clock=clock)
    times = []
    for rest in rests:
        clock.sleep(rest)
        pace.take()
        times.append(clock.monotonic())
    return times


@given(st.floats(0.1, 500), st.lists(st.floats(0, 20), min_size=1, max_size=40))
def test_d15_no_interval_has_more_calls_than_its_rate_allows(rate: float, rests: list[float]) -> None:
    """Between any two calls: at most rate times seconds, and the first call."""
    times = _pass_times(rate, rests)

    for first in range(len(times)):
        for last in range(first, len(times)):
            assert last - first + 1 <= rate * (times[last] - times[first]) + 1 + rate * _ROUNDING


@given(st.floats(0.1, 500), st.integers(1, 100))
def test_d15_a_caller_without_rests_is_as_fast_as_the_rate(rate: float, count: int) -> None:
    """The limit does not make anybody wait longer than needed."""
    times = _pass_times(rate, [0.0] * count)

    assert abs(times[-1] - (count - 1) / rate) <= count * 1e-6


def test_without_a_rate_nobody_waits() -> None:
    clock = VirtualClock()
    pace = Pace(None, clock=clock)

    for _ in range(1_000):
        pace.take()

    assert clock.monotonic() == 0


def test_a_receive_brings_no_more_than_the_rate_allows_while_held() -> None:
    """At 0.1 a second six messages can be passed on in half of a hold of 120 s.

    If not even one can be, the options are refused.
    """
    assert [batch_of(rate, 120) for rate in (None, 500, 1, 0.1, 0.05)] == [10, 10, 10, 6, 3]
    assert batch_of(1, 2) == 1
    with pytest.raises(ConfigError) as refused:
        batch_of(0.1, 19)
    assert str(refused.value) == (
        "--rate is 0.1 a second with a --hold of 19 s, allowed is a hold of at least 20 s; raise one of them"
    )
