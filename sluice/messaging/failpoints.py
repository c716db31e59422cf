"""Named places at which a test can kill a process or delay it. In production none is armed.

`SLUICE_FAILPOINT=after_publish` kills the process, as kill -9 does, the first time that the place is reached;
`after_publish:3` the third time; `after_receive=0.5` pauses its thread for half a second, each time. A test inside the
process passes its own `Failpoint` instead.
"""

import os
import re
import signal
from collections.abc import Callable, Mapping

from sluice.clock import SystemClock
from sluice.errors import ConfigError

VARIABLE = "SLUICE_FAILPOINT"
type Failpoint = Callable[[str], None]
"""Called with the name of the place that was reached."""

RELAY = ("after_claim", "before_publish", "after_publish", "before_mark", "after_mark")
"""The places at which a relay may die, in the order in which it reaches them."""
RELAY_BUNDLES = ("before_bundle", "after_bundle")
"""The places around the commit of which events a message has, which is before a relay claims it."""
WORKER = (
    *("after_receive", "in_transaction", "before_commit", "after_commit", "after_park", "after_death"),
    *("before_release", "before_delete", "after_delete", "in_drain", "before_drain_commit", "after_drain_commit"),
    *("before_dead_letter", "after_dead_letter", "between_events"),
)
"""The places at which a worker may die or pause.

They are with a message, after its work on it, with a parked message, and with a bundle of events."""
DEAD_LETTERS = ("before_send", "after_send", "before_delete", "after_delete")
"""The places at which a process may die that brings a dead letter back or replaces it."""
SCHEMA = ("before_step", "in_step", "after_step")
"""The places at which an upgrade of the tables may die: with the lock, before the commit, and after it."""

AUTOMATIC_REDRIVE = ("after_begin", "before_send", "after_claim", "after_send", "before_delete", "after_delete")
"""The places at which a run of automatic redrive may die."""


def do_nothing(_: str) -> None:
    """Do nothing."""


def from_environment(variables: Mapping[str, str], names: tuple[str, ...]) -> Failpoint:
    """Return the failpoint the environment arms.

    Raises:
        ConfigError: there is no place of that name.
    """
    if VARIABLE not in variables:
        return do_nothing
    armed = re.fullmatch(r"(\w+)(?::([1-9][0-9]*)|=([0-9]+(?:\.[0-9]+)?))?", variables[VARIABLE])
    if armed is None or armed[1] not in names:
        raise ConfigError(
            f"{VARIABLE} is {variables[VARIABLE]!r}, allowed is one of {', '.join(names)}, NAME:COUNT or NAME=SECONDS"
        )
    name, left = armed[1], int(armed[2] or 1)
    if armed[3] is not None:
        seconds, clock = float(armed[3]), SystemClock()
        return lambda here: clock.sleep(seconds) if here == name else None

    def die_at(here: str) -> None:
        nonlocal left
        left -= here == name
        if here == name and left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return die_at
