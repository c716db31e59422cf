"""What a raw consumer does with a message: a pure function of the plan, the message and earlier receives."""

from enum import Enum, auto

from sluice import limits
from sluice.history.events import Identity, is_end_marker
from spark_load.plan.plan import Plan
from spark_load.profiles.profile import Profile

_LEASE_SHARE_MAX = 0.5  # of the visibility timeout an answer may take: what comes on top must not end a lease


class SimulatedOutcome(Enum):
    """The outcome of a received message.

    HANDLED has its effect and is deleted. FAILED was worked on and is given back at once. CRASHED is
    neither deleted nor released, as when a consumer dies: its visibility timeout has to end.
    """

    HANDLED = auto()
    FAILED = auto()
    CRASHED = auto()


def simulated_outcome(plan: Plan, identity: Identity, *, receive_count: int, is_redriven: bool) -> SimulatedOutcome:
    """Return what becomes of a message of this run; poisoned ones succeed once the dead letters were brought back."""
    if is_end_marker(identity.idx):
        return SimulatedOutcome.HANDLED
    if plan.is_poison(identity.idx) and not is_redriven:
        return SimulatedOutcome.FAILED
    if receive_count == 1 and plan.crashes_first(identity.idx):
        return SimulatedOutcome.CRASHED
    if receive_count == 1 and plan.fails_first(identity.idx):
        return SimulatedOutcome.FAILED
    return SimulatedOutcome.HANDLED


def messages_per_receive(profile: Profile, *, visibility_timeout_seconds: int) -> int:
    """Return how many messages a consumer may ask for at once.

    One, where some are to fail. A message given back is at once somebody else's, while those behind it in the same
    answer are still held: giving them back too takes other calls, and between two calls the group is handed out again
    out of order. It would be the load test's own reorder. They would also use up their receives with a poisoned message
    in front of them, and end in the DLQ beside it. Otherwise ten, or what half a lease is enough for.
    """
    if profile.failure_share or profile.crash_share or profile.poison_share:
        return 1
    lease_seconds = profile.visibility_timeout_seconds or visibility_timeout_seconds
    if not profile.handler_seconds:
        return limits.RECEIVE_MESSAGES_MAX
    in_time = int(lease_seconds * _LEASE_SHARE_MAX / profile.handler_seconds)
    return max(1, min(limits.RECEIVE_MESSAGES_MAX, in_time))
