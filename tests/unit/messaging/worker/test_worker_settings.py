"""A worker follows its declared settings, and impossible ones are refused."""

from dataclasses import replace

import pytest

from sluice.declaration import Consumer, Lambda
from sluice.errors import ConfigError
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings

SETTINGS = WorkerSettings(lanes=4, wait_seconds=10, drain_seconds=20, keep_inbox_seconds=60)
IN_TIME = "what a poll brings after SIGTERM has to be worked on in time"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lanes": 0}, "lanes is 0, allowed is 1 or more; change --lanes"),
        ({"wait_seconds": -1}, f"wait_seconds is -1, allowed is 0 to 20: {IN_TIME}"),
        ({"wait_seconds": 21, "drain_seconds": 90}, f"wait_seconds is 21, allowed is 0 to 20: {IN_TIME}"),
        ({"wait_seconds": 10, "drain_seconds": 9.5}, f"wait_seconds is 10, allowed is 0 to 9.5: {IN_TIME}"),
        ({"idle_seconds": -0.5}, "idle_seconds is -0.5, allowed is 0 or more seconds, or None; change --until-idle"),
        (
            {"idle_seconds": float("nan")},
            "idle_seconds is nan, allowed is 0 or more seconds, or None; change --until-idle",
        ),
        ({"keep_inbox_seconds": float("inf")}, "keep_inbox_seconds is inf, allowed is 0 or more seconds, and finite"),
    ],
)
def test_impossible_settings_are_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(SETTINGS, **changed)  # type: ignore[arg-type]

    assert str(refused.value) == f"WorkerSettings.{message}"


@pytest.mark.parametrize(
    ("stop_timeout_seconds", "drain_seconds", "wait_seconds"), [(30, 28, 14), (50, 48, 20), (4, 2, 1), (1, 0, 1)]
)
def test_s2_a_declared_worker_ends_before_the_stop_timeout(
    stop_timeout_seconds: int, drain_seconds: float, wait_seconds: int
) -> None:
    """Two seconds are left to give back what was not finished, and a poll's message has time to be worked on."""
    consumer = Consumer(name="billing", stop_timeout_seconds=stop_timeout_seconds)

    settings = WorkerSettings.of_consumer(consumer, lanes=None, idle_seconds=None)

    assert settings.drain_seconds == drain_seconds
    assert settings.wait_seconds == wait_seconds
    assert settings.lanes == 4
    assert settings.keep_inbox_seconds == 5_184_000


def test_a_worker_that_is_to_end_when_idle_polls_for_a_second() -> None:
    """It would notice too late otherwise; other lanes than the declared ones may be asked for."""
    settings = WorkerSettings.of_consumer(Consumer(name="billing"), lanes=9, idle_seconds=3)

    assert settings.lanes == 9
    assert settings.wait_seconds == 1
    assert settings.idle_seconds == 3


@pytest.mark.parametrize(
    ("visibility_seconds", "stop_seconds", "wait_seconds"), [(300, 120, 20), (60, 30, 14), (24, 20, 8), (4, 3, 1)]
)
def test_a_poll_takes_a_third_of_the_visibility_timeout_at_most(
    visibility_seconds: int, stop_seconds: int, wait_seconds: int
) -> None:
    """A hold counts from the poll's beginning, and something has to be left of it; half of the drain time bounds it."""
    declared = Consumer(
        name="billing",
        visibility_timeout_seconds=visibility_seconds,
        stop_timeout_seconds=stop_seconds,
        processing_seconds=0.5,
    )

    settings = WorkerSettings.of_consumer(declared, lanes=None, idle_seconds=None)

    assert settings.wait_seconds == wait_seconds


@pytest.mark.parametrize(("bundle_events_max", "max_attempts"), [(1, 125), (25, 5), (62, 2), (125, 1)])
def test_a_function_takes_bundles_while_three_attempts_may_come_to_no_end(
    bundle_events_max: int, max_attempts: int
) -> None:
    """One event more is refused, also where no environment declares it."""
    function = Lambda(timeout_seconds=100)
    consumer = Consumer(
        name="billing",
        handlers="orders.billing",
        max_attempts=max_attempts,
        processing_seconds=0.1,
        visibility_timeout_seconds=600,
        runtime=function,
    )

    settings = ProcessorSettings.of_function(consumer, function, bundle_events_max=bundle_events_max)

    assert settings.unfinished_max == 3
    with pytest.raises(ConfigError, match=r"bundle_events_max is \d+, allowed is at most"):
        ProcessorSettings.of_function(consumer, function, bundle_events_max=bundle_events_max + 1)
