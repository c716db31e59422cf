"""Constraints between a profile's fields: each names the value seen, the value allowed, and why.

A rule is a function of the values it names, and returns why they cannot be, in one sentence; None when they can.
"""

from collections.abc import Callable
from inspect import signature

from sluice import limits

LATE_DUPLICATE_SECONDS_MIN = limits.DEDUPLICATION_WINDOW_SECONDS + 60  # the queue's window begins after the publish
_MESSAGES_MAX = 50_000_000


def refusal(profile: object) -> str | None:
    """Return why a profile is refused, in one sentence; None when it is valid."""
    for rule in _RULES:
        reason = rule(**{name: getattr(profile, name) for name in signature(rule).parameters})
        if reason is not None:
            return reason
    return None


def _rate(*, messages_per_second: float, duration_seconds: float, phases: tuple[object, ...]) -> str | None:
    given = {"messages_per_second": messages_per_second, "duration_seconds": duration_seconds}
    missing = [name for name, value in given.items() if not value]
    if not missing or phases:
        return None
    are = "is" if len(missing) == 1 else "are"
    return f"{' and '.join(missing)} {are} missing: give messages_per_second and duration_seconds, or phases"


def _size(*, phases: tuple[object, ...], measured_count: int, message_count: int) -> str | None:
    if 1 <= measured_count <= message_count <= _MESSAGES_MAX:
        return None
    what = "the phases make" if phases else "messages_per_second x duration_seconds is"
    return f"{what} {message_count} messages, allowed is 1 to {_MESSAGES_MAX}"


def _warm_up(*, warm_up_seconds: float, warm_up_count: int, first_per_second: float) -> str | None:
    if not warm_up_seconds or warm_up_count:
        return None
    return (
        f"warm_up_seconds is {warm_up_seconds:g}, which at the first phase's rate"
        f" ({first_per_second:g} a second) is no message: leave it out, or warm up for longer"
    )


def _producers(*, producers_per_group: int, publish_tasks: int) -> str | None:
    if producers_per_group <= publish_tasks:
        return None
    return (
        f"producers_per_group is {producers_per_group}, allowed is at most publish_tasks"
        f" ({publish_tasks}): each is a task of its own"
    )


def _tasks(*, publish_tasks: int, group_count: int, producers_per_group: int) -> str | None:
    if publish_tasks <= group_count * producers_per_group:
        return None
    several = producers_per_group > 1
    times = f" x producers_per_group ({producers_per_group})" if several else ""
    return (
        f"publish_tasks is {publish_tasks}, allowed is at most group_count ({group_count}){times}:"
        f" a group belongs to {'so many tasks' if several else 'one task'}"
    )


def _repeats(
    *, duplicate_share: float, late_duplicate_share: float, late_duplicate_after_seconds: float | None
) -> str | None:
    if late_duplicate_share and late_duplicate_after_seconds is None:
        return (
            f"late_duplicate_after_seconds is missing, and late_duplicate_share is {late_duplicate_share:g}:"
            f" give {LATE_DUPLICATE_SECONDS_MIN} or more"
        )
    if late_duplicate_after_seconds is not None and not late_duplicate_share:
        return (
            f"late_duplicate_after_seconds is {late_duplicate_after_seconds:g}, and late_duplicate_share is 0:"
            " leave it out, or give a share"
        )
    return _shares_above_one(duplicate_share=duplicate_share, late_duplicate_share=late_duplicate_share)


def _fan_out(*, destination: str, fan_out_skew_seconds_max: float | None) -> str | None:
    if destination == "topic" or fan_out_skew_seconds_max is None:
        return None
    return (
        f"fan_out_skew_seconds_max is {fan_out_skew_seconds_max:g}, allowed with destination 'queue' is none:"
        " only a topic fans out; leave it out"
    )


def _failures(*, redrive: bool, failure_share: float, crash_share: float, poison_share: float) -> str | None:
    if redrive and not poison_share:
        return "redrive is true, and poison_share is 0: nothing would be dead-lettered; give a poison_share"
    return _shares_above_one(failure_share=failure_share, crash_share=crash_share, poison_share=poison_share)


def _numbering(*, consumer: str, producers_per_group: int) -> str | None:
    if consumer == "raw" or producers_per_group == 1:
        return None
    return (
        f"producers_per_group is {producers_per_group}, allowed with consumer 'worker' is 1: its inbox goes"
        " by numbers, and one producer counts them"
    )


def _injected(
    *,
    consumer: str,
    handler_seconds: float,
    failure_share: float,
    crash_share: float,
    poison_share: float,
    redrive: bool,
    visibility_timeout_seconds: int | None,
) -> str | None:
    by_raw_only = {  # what our own loop injects; the worker has a handler and settings of its own
        "handler_seconds": handler_seconds,
        "failure_share": failure_share,
        "crash_share": crash_share,
        "poison_share": poison_share,
        "redrive": redrive,
        "visibility_timeout_seconds": visibility_timeout_seconds,
    }
    name = next((name for name, value in by_raw_only.items() if value), None)
    if consumer == "raw" or name is None:
        return None
    return (
        f"{name} is {by_raw_only[name]}, allowed with consumer 'worker' is none: only the raw consumer injects"
        " it; leave it out, or choose consumer 'raw'"
    )


def _lease(
    *,
    visibility_timeout_seconds: int | None,
    handler_seconds: float,
    crash_share: float,
    drain_timeout_seconds: float,
) -> str | None:
    lease = visibility_timeout_seconds
    if lease is None:
        return None
    if handler_seconds >= lease:
        return (
            f"handler_seconds is {handler_seconds:g}, allowed is less than visibility_timeout_seconds"
            f" ({lease}): every message would come again before it is done"
        )
    if crash_share and drain_timeout_seconds <= lease:
        return (
            f"drain_timeout_seconds is {drain_timeout_seconds:g}, allowed with crash_share is more than"
            f" visibility_timeout_seconds ({lease}): the leases of crashed consumers have to run out"
        )
    return None


def _shares_above_one(**shares: float) -> str | None:
    shares = {name: share for name, share in shares.items() if share}
    if sum(shares.values()) <= 1:
        return None
    given = " + ".join(f"{name} ({share:g})" for name, share in shares.items())
    return f"{given} is {sum(shares.values()):g}, allowed is at most 1: no message is two of these"


_RULES: tuple[Callable[..., str | None], ...] = (
    _rate,
    _size,
    _warm_up,
    _producers,
    _tasks,
    _repeats,
    _fan_out,
    _failures,
    _numbering,
    _injected,
    _lease,
)
