"""A replay of the events that the outbox still keeps."""

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine

from sluice.cli.acts import actor, print_intent
from sluice.cli.overview.sources import Unknown, opening
from sluice.cli.overview.sources import topic_arn as find_topic_arn
from sluice.cli.overview.subscriptions import Subscription, read_subscriptions
from sluice.cli.targets import consumer_of
from sluice.clock import SystemClock
from sluice.declaration import Consumer, Environment, naming
from sluice.errors import ConfigError, EndpointError
from sluice.messaging.database import engines
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.pause import find_pause
from sluice.messaging.inbox.replaying import ReplayOutcome
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.reconciliation.replay import GroupReplay, KeptNumbers, Past, Replay
from sluice.pages.units import plural
from sluice.terminal import output
from sluice.terminal.exits import PARTLY, REFUSED

_SHOWN = 5
_LISTED = 50
_PROGRESS_SECONDS = 5
_LEAVES_OUT = "--unhandled leaves them out"
_OUTCOMES = {
    ReplayOutcome.TO_HANDLE: "to be handled",
    ReplayOutcome.SET_ASIDE: "set aside already",
    ReplayOutcome.HANDLED: "handled or given up already",
    ReplayOutcome.REJECTED: "of an earlier epoch, or with another event's number",
    ReplayOutcome.FORGOTTEN: "so old that they may be handled and forgotten",
    ReplayOutcome.LATE: "behind later numbers of their group",
}


@dataclass(slots=True, kw_only=True)
class ReplayTotals:
    """The groups of a replay, added up.

    Args:
        groups: the number of groups.
        filtered: the number of events that the consumer's filter policy leaves out.
        counts: the number of events of each outcome.
        late: (group, first, last) of each range of numbers that can only be handled late.
        begins_at: (group, number) of each group that is handled from a later number on than its first.
    """

    groups: int = 0
    filtered: int = 0
    counts: Counter[ReplayOutcome] = field(default_factory=Counter)
    late: list[tuple[str, int, int]] = field(default_factory=list)
    begins_at: list[tuple[str, int]] = field(default_factory=list)

    def add(self, group: GroupReplay) -> None:
        """Add the counts of one group's replay."""
        self.groups += 1
        self.filtered += group.filtered
        self.counts += group.counts
        self.late += [(group.group_id, first, last) for first, last in group.late]
        if group.begins_at is not None:
            self.begins_at.append((group.group_id, group.begins_at))


def replay_kept(
    *,
    environment: Environment,
    consumer_name: str | None,
    topic_arn: str | None,
    dsn: str | None,
    inboxes: tuple[str, ...],
    endpoint_url: str | None,
    from_us: int,
    to_us: int | None,
    groups: tuple[str, ...],
    leaves_out: bool,
    late: str | None,
    reason: str,
    confirmed: bool,
    as_json: bool,
) -> None:
    """Plan a replay, refuse it or carry it out, print it, and exit with the command's code.

    Each argument is the option of that name.
    """
    consumer = consumer_of(environment, consumer_name)
    declared = environment.topic(consumer.topic)
    if not consumer.fifo:
        raise ConfigError(
            f"{consumer.name} has a standard queue, allowed is a FIFO one: it has no order to keep; `sluice outbox"
            " resend` publishes events again"
        )
    past = Past(
        topic=naming.topic_name(environment, declared.name), from_us=from_us, to_us=to_us, groups=frozenset(groups)
    )
    with opening(environment, dsn, inboxes, endpoint_url) as sources:
        outbox, inbox = require_database(sources.outbox), require_database(sources.inboxes[consumer.name])
        arn = topic_arn or find_topic_arn(sources, declared.name)
        subscription = require_subscribed(consumer, read_subscriptions(sources, arn, (consumer,))[consumer.name])
        replay = Replay(
            outbox,
            inbox,
            past=past,
            policy=InboxPolicy.of_consumer(consumer),
            operator=InboxOperator(consumer=consumer.name, actor=actor(), reason=reason),
            accepts=subscription.accepts,
        )
        kept = replay.kept_numbers()
        planned = ReplayTotals()
        for group in _reporting(kept, "looked at"):
            planned.add(replay.plan(group))
        allowed = _allowed_outcomes(leaves_out=leaves_out, late=late)
        refused = _refusals(consumer, planned, allowed)
        if refused:
            _refuse(consumer, planned, refused, as_json=as_json)
        done, changed = planned, list[str]()
        if confirmed:
            done, changed = _carry_out(replay, kept, allowed)
            if late == "handle" and done.late:
                operator = OutboxOperator(topic=past.topic, actor=actor(), reason=reason)
                with outbox.begin() as connection:
                    operator.resend_ranges(connection, done.late)
        warn_of_pause(inbox, consumer)
    if as_json:
        output.as_json(_fields(consumer, done, confirmed=confirmed, changed=changed))
    else:
        _print(consumer, done, late=late, confirmed=confirmed, changed=changed)
    if changed:
        sys.exit(PARTLY)


def warn_of_pause(inbox: Engine, consumer: Consumer) -> None:
    """Print on standard error that a consumer is paused, if it is: then it handles nothing of a replay."""
    with engines.reading(inbox) as connection:
        found = find_pause(connection, consumer.name)
    if found is not None:
        output.line(f"{consumer.name} is paused {found.describe()}; it goes on after `inbox resume`", is_error=True)


def require_database(found: Engine | Unknown) -> Engine:
    """Return the engine of a database.

    Raises:
        ConfigError: no such database is named or can be opened.
    """
    if isinstance(found, Unknown):
        raise ConfigError(found.reason)
    return found


def require_subscribed(consumer: Consumer, found: Subscription) -> Subscription:
    """Return the consumer's subscription, with its filter policy.

    Raises:
        ConfigError: there is none: what is published after the replay would never come.
        EndpointError: it cannot be read.
    """
    if found.is_there is False:
        raise ConfigError(
            f"the queue of {consumer.name} is not subscribed to the topic, allowed is a subscribed one: what is"
            " published after the replay would never come; deploy the environment first"
        )
    if found.fault is not None:
        raise EndpointError(
            f"the subscription of {consumer.name} cannot be read ({found.fault}), and without it what is published"
            " after the replay might never come; correct --endpoint-url or the credentials"
        )
    return found


def _allowed_outcomes(*, leaves_out: bool, late: str | None) -> frozenset[ReplayOutcome]:
    """Return the outcomes that refuse nothing, by the command's options."""
    allowed = {ReplayOutcome.TO_HANDLE, ReplayOutcome.SET_ASIDE}
    if leaves_out:
        allowed |= {ReplayOutcome.HANDLED, ReplayOutcome.REJECTED, ReplayOutcome.FORGOTTEN}
    return frozenset(allowed | ({ReplayOutcome.LATE} if late is not None else set()))


def _refusals(consumer: Consumer, planned: ReplayTotals, allowed: frozenset[ReplayOutcome]) -> list[str]:
    """Return a sentence for each reason to refuse the replay; none if every outcome is allowed."""
    sentences = {
        ReplayOutcome.HANDLED: f"{consumer.name} would drop them, {_LEAVES_OUT}",
        ReplayOutcome.REJECTED: f"{consumer.name} would reject them, {_LEAVES_OUT}",
        ReplayOutcome.FORGOTTEN: f"{consumer.name} might handle them twice, {_LEAVES_OUT}",
        ReplayOutcome.LATE: "they cannot be handled in order, --late handle has them handled late, --late leave-out"
        " leaves them out",
    }
    refused = []
    for outcome, sentence in sentences.items():
        if outcome in planned.counts and outcome not in allowed:
            example = f" (such as {_numbers_text(planned.late[0])})" if outcome is ReplayOutcome.LATE else ""
            refused.append(f"events {_OUTCOMES[outcome]}: {planned.counts[outcome]}{example}; {sentence}")
    return refused


def _refuse(consumer: Consumer, planned: ReplayTotals, refused: list[str], *, as_json: bool) -> None:
    """End the command because the replay is refused: with an error, or with JSON and the exit code."""
    if not as_json:
        raise ConfigError("nothing is replayed: " + ". ".join(refused))
    output.as_json(_fields(consumer, planned, confirmed=False, changed=[]) | {"refused": refused})
    sys.exit(REFUSED)


def _carry_out(
    replay: Replay, kept: Iterable[KeptNumbers], allowed: frozenset[ReplayOutcome]
) -> tuple[ReplayTotals, list[str]]:
    """Park the events of each group in the inbox; return the totals, and the groups that changed since the plan."""
    done, changed = ReplayTotals(), []
    for group in _reporting(list(kept), "done"):
        result = replay.carry_out(group, allowed)
        if result is None:
            changed.append(group.group_id)
        else:
            done.add(result)
    return done, changed


def _reporting(kept: list[KeptNumbers], done: str) -> Iterable[KeptNumbers]:
    """Yield the groups, and say on standard error every few seconds how many were yielded."""
    clock = SystemClock()
    reported_at = clock.monotonic()
    for count, group in enumerate(kept):
        if clock.monotonic() - reported_at >= _PROGRESS_SECONDS:
            reported_at = clock.monotonic()
            output.line(f"{count} of {len(kept)} groups {done}", is_error=True)
        yield group


def _fields(consumer: Consumer, done: ReplayTotals, *, confirmed: bool, changed: list[str]) -> dict[str, Any]:
    """Return the JSON fields of a replay."""
    return {
        "consumer": consumer.name,
        "source": "outbox",
        "is_done": confirmed,
        "groups": done.groups,
        "events": {outcome.value: done.counts[outcome] for outcome in ReplayOutcome},
        "filtered": done.filtered,
        "begins_at": [{"group": group, "seq": seq} for group, seq in done.begins_at[:_LISTED]],
        "begins_at_count": len(done.begins_at),
        "late": [{"group": group, "first": first, "last": last} for group, first, last in done.late[:_LISTED]],
        "changed": changed[:_LISTED],
        "changed_count": len(changed),
        "refused": [],
    }


def _print(consumer: Consumer, done: ReplayTotals, *, late: str | None, confirmed: bool, changed: list[str]) -> None:
    events, groups = plural(done.counts[ReplayOutcome.TO_HANDLE], "event"), plural(done.groups, "group")
    print_intent(f"set aside {events} of {groups} for {consumer.name}, in order", confirmed=confirmed)
    for outcome, words in _OUTCOMES.items():
        if outcome is not ReplayOutcome.TO_HANDLE and done.counts[outcome]:
            output.line(f"{done.counts[outcome]} are {words}{_consequence(outcome, late)}")
    if done.filtered:
        output.line(f"{done.filtered} do not pass the consumer's filter policy")
    if done.begins_at:
        named = ", ".join(f"{group} at {seq}" for group, seq in done.begins_at[:_SHOWN])
        more = "" if len(done.begins_at) <= _SHOWN else ", …"
        output.line(f"{plural(len(done.begins_at), 'group')} handed out from a later number on: {named}{more}")
    if changed:
        groups = plural(len(changed), "group")
        output.line(
            f"{groups} changed meanwhile, such as {changed[0]}, and nothing was done there; do it again", is_error=True
        )


def _consequence(outcome: ReplayOutcome, late: str | None) -> str:
    """Return the end of the printed line about an outcome: what becomes of its events."""
    if outcome is ReplayOutcome.SET_ASIDE:
        return ""
    return ", and are published again" if outcome is ReplayOutcome.LATE and late == "handle" else ", and are left out"


def _numbers_text(numbers: tuple[str, int, int]) -> str:
    """Return a range of numbers (group, first, last) in words."""
    group_id, first, last = numbers
    return f"{first} of {group_id}" if first == last else f"{first} to {last} of {group_id}"
