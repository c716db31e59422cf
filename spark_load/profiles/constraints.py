"""Constraints between a profile's fields: each names the value seen, the value allowed, and why.

A rule returns one sentence that says why a profile is refused, or None if the profile keeps the rule.
"""

from spark_load.profiles.fields import LATE_DUPLICATE_SECONDS_MIN, ProfileFields

_MESSAGES_MAX = 50_000_000
_BY_RAW_ONLY = (  # fields that only the raw consumer carries out
    "failure_share",
    "crash_share",
    "poison_share",
    "redrive",
    "visibility_timeout_seconds",
)


def refusal(profile: ProfileFields) -> str | None:
    """Return why a profile is refused, in one sentence; None when it is valid."""
    reasons = (rule(profile) for rule in _RULES)
    return next((reason for reason in reasons if reason is not None), None)


def _rate_refusal(profile: ProfileFields) -> str | None:
    missing = [name for name in ("messages_per_second", "duration_seconds") if not getattr(profile, name)]
    if not missing or profile.phases:
        return None
    are = "is" if len(missing) == 1 else "are"
    return f"{' and '.join(missing)} {are} missing: give messages_per_second and duration_seconds, or phases"


def _size_refusal(profile: ProfileFields) -> str | None:
    if 1 <= profile.measured_count <= profile.message_count <= _MESSAGES_MAX:
        return None
    made_by = "the phases make" if profile.phases else "messages_per_second x duration_seconds is"
    return f"{made_by} {profile.message_count} messages, allowed is 1 to {_MESSAGES_MAX}"


def _warm_up_refusal(profile: ProfileFields) -> str | None:
    if not profile.warm_up_seconds or profile.warm_up_count:
        return None
    return (
        f"warm_up_seconds is {profile.warm_up_seconds:g}, which at the first phase's rate"
        f" ({profile.first_per_second:g} a second) is no message: leave it out, or warm up for longer"
    )


def _task_refusal(profile: ProfileFields) -> str | None:
    if profile.publish_tasks <= profile.group_count:
        return None
    return (
        f"publish_tasks is {profile.publish_tasks}, allowed is at most group_count ({profile.group_count}): a group"
        " belongs to one task"
    )


def _repeat_refusal(profile: ProfileFields) -> str | None:
    share, after_seconds = profile.late_duplicate_share, profile.late_duplicate_after_seconds
    if share and after_seconds is None:
        return (
            f"late_duplicate_after_seconds is missing, and late_duplicate_share is {share:g}:"
            f" give {LATE_DUPLICATE_SECONDS_MIN} or more"
        )
    if after_seconds is not None and not share:
        return (
            f"late_duplicate_after_seconds is {after_seconds:g}, and late_duplicate_share is 0:"
            " leave it out, or give a share"
        )
    return _share_sum_refusal(profile, "duplicate_share", "late_duplicate_share")


def _fan_out_refusal(profile: ProfileFields) -> str | None:
    if profile.has_topic or profile.fan_out_skew_seconds_max is None:
        return None
    return (
        f"fan_out_skew_seconds_max is {profile.fan_out_skew_seconds_max:g}, allowed with destination 'queue' is none:"
        " only a topic fans out; leave it out"
    )


def _outbox_refusal(profile: ProfileFields) -> str | None:
    if profile.destination != "outbox":
        return None
    if profile.consumer == "raw":
        return (
            "consumer is 'raw', allowed with destination 'outbox' is 'worker' or 'lambda': the raw consumer cannot"
            " read the outbox's envelopes; choose one of the two"
        )
    name = next((name for name in ("duplicate_share", "late_duplicate_share") if getattr(profile, name)), None)
    if name is None:
        return None
    return (
        f"{name} is {getattr(profile, name):g}, allowed with destination 'outbox' is none: an outbox takes an event"
        " once; leave it out"
    )


def _bundle_refusal(profile: ProfileFields) -> str | None:
    seen = f"bundle_events_max is {profile.bundle_events_max}"
    if profile.bundle_events_max == 1:
        return None
    if profile.duplicate_share or profile.late_duplicate_share:
        return f"{seen}, allowed with repeats is 1: a repeat would be in another bundle than its message; leave it out"
    return None


def _failure_refusal(profile: ProfileFields) -> str | None:
    if profile.redrive and not profile.poison_share:
        return "redrive is true, and poison_share is 0: nothing would be dead-lettered; give a poison_share"
    return _share_sum_refusal(profile, "failure_share", "crash_share", "poison_share")


def _injection_refusal(profile: ProfileFields) -> str | None:
    name = next((name for name in _BY_RAW_ONLY if getattr(profile, name)), None)
    if profile.consumer == "raw" or name is None:
        return None
    return (
        f"{name} is {getattr(profile, name)}, allowed with consumer {profile.consumer!r} is none: only the raw consumer"
        " injects it; leave it out, or choose consumer 'raw'"
    )


def _scaling_refusal(profile: ProfileFields) -> str | None:
    if profile.minute_seconds is None:
        return None
    seconds = f"minute_seconds is {profile.minute_seconds:g}"
    if profile.consumer != "worker":
        return (
            f"{seconds}, allowed with consumer {profile.consumer!r} is none: a scaling policy only starts"
            " workers; choose consumer 'worker'"
        )
    if profile.consumers_per_queue > 1:
        return (
            f"consumers_per_queue is {profile.consumers_per_queue}, allowed with minute_seconds is none: the policy"
            " says how many there are; leave it out"
        )
    name = next((name for name in ("warm_up_seconds", "consume_after_seconds") if getattr(profile, name)), None)
    if name is None:
        return None
    return (
        f"{name} is {getattr(profile, name):g}, allowed with minute_seconds is none: scaled workers begin with the"
        " load; leave it out"
    )


def _lease_refusal(profile: ProfileFields) -> str | None:
    lease = profile.visibility_timeout_seconds
    if lease is None:
        return None
    if profile.handler_seconds >= lease:
        return (
            f"handler_seconds is {profile.handler_seconds:g}, allowed is less than visibility_timeout_seconds"
            f" ({lease}): every message would come again before it is done"
        )
    if profile.crash_share and profile.drain_timeout_seconds <= lease:
        return (
            f"drain_timeout_seconds is {profile.drain_timeout_seconds:g}, allowed with crash_share is more than"
            f" visibility_timeout_seconds ({lease}): the leases of crashed consumers have to run out"
        )
    return None


def _share_sum_refusal(profile: ProfileFields, *names: str) -> str | None:
    shares = {name: share for name in names if (share := getattr(profile, name))}
    if sum(shares.values()) <= 1:
        return None
    added = " + ".join(f"{name} ({share:g})" for name, share in shares.items())
    return f"{added} is {sum(shares.values()):g}, allowed is at most 1: no message is two of these"


def _fault_refusal(profile: ProfileFields) -> str | None:
    if profile.minute_seconds is None or profile.faults.is_calm:
        return None
    return (
        f"faults.shape is {profile.faults.shape!r}, allowed with minute_seconds is 'calm': faults need workers of fixed"
        " names, and a scaling policy starts and stops them; leave one of the two out"
    )


_RULES = (
    _rate_refusal,
    _size_refusal,
    _warm_up_refusal,
    _task_refusal,
    _repeat_refusal,
    _fan_out_refusal,
    _outbox_refusal,
    _bundle_refusal,
    _failure_refusal,
    _injection_refusal,
    _scaling_refusal,
    _lease_refusal,
    _fault_refusal,
)
