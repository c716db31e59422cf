"""Settings of a relay outside their bounds are refused before the relay begins."""

import math
from typing import Any

import pytest

from sluice.errors import ConfigError
from sluice.messaging.backoff import Backoff
from sluice.messaging.relay.relay import RelaySettings

_LEASE = (
    "allowed is more than 24, up to 86400 seconds: a call may take 12, and nobody may take over meanwhile; change"
    " --lease"
)
_ABSURD = [math.nan, math.inf, -math.inf, 1e300, -1e300, -1]


@pytest.mark.parametrize("value", _ABSURD)
@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("poll_seconds", "allowed is 0.001 to 60 seconds; change --poll"),
        ("lease_seconds", _LEASE),
        (
            "keep_sent_seconds",
            "allowed is 0 or more, less than 5.184e+06 seconds: the consumers' inboxes (inbox_retention_seconds) forget"
            " what is sent again later; change --keep",
        ),
        (
            "keep_groups_seconds",
            "allowed is more than 0, up to 315360000 seconds; correct inbox_retention_seconds in the declaration",
        ),
    ],
)
def test_an_absurd_number_is_refused(name: str, value: float, allowed: str) -> None:
    """One line names the option. NaN is neither below nor above a bound for Python, and is refused as well."""
    given: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError) as refused:
        RelaySettings(**given)

    assert str(refused.value) == f"RelaySettings.{name} is {value!r}, {allowed}"


@pytest.mark.parametrize("value", [1e300, 86_401])
def test_a_backoff_of_more_than_a_day_is_refused(value: float) -> None:
    with pytest.raises(ConfigError) as refused:
        RelaySettings(backoff=Backoff(base_seconds=1, cap_seconds=value, floor_seconds=1))

    assert str(refused.value) == f"RelaySettings.backoff.cap_seconds is {value!r}, allowed is up to 86400 seconds"


@pytest.mark.parametrize("keep_sent_seconds", [100, 101])
def test_the_outbox_keeps_messages_shorter_than_inboxes_remember(keep_sent_seconds: float) -> None:
    """A message that the outbox sends again after inboxes forgot its group would be handled again."""
    RelaySettings(keep_sent_seconds=99, keep_groups_seconds=100)
    with pytest.raises(
        ConfigError, match=r"^RelaySettings.keep_sent_seconds is 10\d, allowed is 0 or more, less than 100 seconds: "
    ):
        RelaySettings(keep_sent_seconds=keep_sent_seconds, keep_groups_seconds=100)


def test_the_smallest_and_largest_relay_settings_are_allowed() -> None:
    RelaySettings(poll_seconds=0.001, lease_seconds=86_400, keep_sent_seconds=0, keep_groups_seconds=315_360_000)
    RelaySettings(poll_seconds=60, lease_seconds=180)
