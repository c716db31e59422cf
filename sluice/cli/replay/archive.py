"""A replay of a topic's archive: SNS delivers what it has archived to the consumer's queue again.

The archive cannot be read, so what the inbox would do with each message is not known before. What is refused follows
from the inbox, the outbox and the declaration alone.

AWS: https://docs.aws.amazon.com/sns/latest/dg/message-archiving-and-replay-subscriber.html (read 2026-11-27): a replay
policy is an attribute of the subscription; starting a replay replaces the one before; with an ending point the
subscription stops there, and gets no new messages, so none is set here; `ReplayStatus` is Pending, In progress,
Completed or Failed; Completed means that new messages are delivered.
"""

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Engine, func, select

from sluice.cli.acts import actor, instant_text, print_intent
from sluice.cli.overview.sources import Sources, Unknown, opening
from sluice.cli.overview.sources import topic_arn as find_topic_arn
from sluice.cli.overview.subscriptions import read_subscriptions
from sluice.cli.replay.outbox_events import require_database, require_subscribed, warn_of_pause
from sluice.cli.targets import consumer_of
from sluice.clock import Clock, SystemClock
from sluice.declaration import Consumer, Environment, Gaps, naming
from sluice.errors import ConfigError, EndpointError
from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.outbox import tables as outbox_tables
from sluice.pages.units import plural
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT

COMPLETED, FAILED = "Completed", "Failed"
_UNDER_WAY = ("Pending", "In progress")
_POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReplay:
    """A subscription whose replay is started, watched or ended.

    Args:
        sources: where SNS is.
        subscription_arn: of the consumer's subscription.
    """

    sources: Sources
    subscription_arn: str

    def status(self) -> tuple[str | None, str | None]:
        """Return the status of the replay, and its replay policy; None where there is none.

        Raises:
            EndpointError: the subscription cannot be read.
        """
        arn = self.subscription_arn
        found = _require_answer(
            self.sources.call("sns", lambda sns: sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"])
        )
        policy = found.get("ReplayPolicy")
        return found.get("ReplayStatus"), None if policy in (None, "", "{}") else policy

    def set_policy(self, policy: dict[str, str]) -> None:
        """Start a replay by this policy; an empty policy ends one.

        Raises:
            EndpointError: SNS refuses it.
        """
        values = {"AttributeName": "ReplayPolicy", "AttributeValue": json.dumps(policy)}
        arn = self.subscription_arn
        _require_answer(
            self.sources.call("sns", lambda sns: sns.set_subscription_attributes(SubscriptionArn=arn, **values) or {})
        )

    def watch(self, clock: Clock) -> str | None:
        """Print each new status until the replay has ended, and return the last one."""
        shown = None
        while True:
            status, _ = self.status()
            if status != shown:
                output.line(f"replay: {status}")
                shown = status
            if status not in _UNDER_WAY:
                return status
            clock.sleep(_POLL_SECONDS)


def replay_archive(
    *,
    environment: Environment,
    consumer_name: str | None,
    topic_arn: str | None,
    dsn: str | None,
    inboxes: tuple[str, ...],
    endpoint_url: str | None,
    from_us: int | None,
    archive: str,
    leaves_out: bool,
    late: str | None,
    reason: str,
    confirmed: bool,
    as_json: bool,
) -> None:
    """Start, watch or end the replay of a topic's archive to a consumer; `archive` says which.

    Each argument is the option of that name.
    """
    consumer = consumer_of(environment, consumer_name)
    declared = environment.topic(consumer.topic)
    with opening(environment, dsn, inboxes, endpoint_url) as sources:
        arn = topic_arn or find_topic_arn(sources, declared.name)
        subscription = require_subscribed(consumer, read_subscriptions(sources, arn, (consumer,))[consumer.name])
        assert subscription.arn is not None, "a subscription that is there has an ARN"
        replay = ArchiveReplay(sources=sources, subscription_arn=subscription.arn)
        inbox = require_database(sources.inboxes[consumer.name])
        operator = InboxOperator(consumer=consumer.name, actor=actor(), reason=reason)
        if archive == "start":
            if from_us is None:
                raise ConfigError("--archive start needs --from: from when on archived messages are delivered again")
            outbox = require_database(sources.outbox)
            beginning = _check_archive(sources, str(arn), from_us)
            _check_status(consumer, replay)
            _check_inbox(consumer, inbox, leaves_out=leaves_out)
            _check_order(environment, consumer, outbox, from_us, accepts_late=late is not None)
            policy = {"PointType": "Timestamp", "StartingPoint": _instant_of_sns(from_us)}
            intended = f"replay the archive of {declared.name} to {consumer.name} from {policy['StartingPoint']} on"
        else:
            policy, beginning = {}, None
            intended = f"end the replay to {consumer.name}: what it has not delivered is not delivered"
        if archive != "watch" and confirmed:
            with inbox.begin() as connection:
                operator.write_down_replay(connection, None, None, {"archive": archive, "policy": policy})
            replay.set_policy(policy)
        status, live_policy = replay.status()
        if as_json:
            fields = {"archive_begins": beginning, "policy": live_policy, "status": status}
            output.as_json({"consumer": consumer.name, "source": "archive", "is_done": confirmed, **fields})
        elif archive != "watch":
            print_intent(intended, confirmed=confirmed)
        warn_of_pause(inbox, consumer)
        if archive == "watch":
            status = replay.watch(SystemClock()) if not as_json else status
        if status == FAILED:
            output.line(
                "the replay has failed: SNS could not read its archive, see the topic's KMS key; start it again",
                is_error=True,
            )
            sys.exit(COULD_NOT)


def _require_answer[Answer](answer: Answer | Unknown) -> Answer:
    """Return SNS's answer; raise an EndpointError if it is unknown."""
    if isinstance(answer, Unknown):
        raise EndpointError(
            f"SNS did not do it ({answer.reason}); correct --endpoint-url, the credentials or the rights"
        )
    return answer


def _check_archive(sources: Sources, arn: str, from_us: int) -> str | None:
    """Return when the topic's archive begins, as SNS says it.

    Raises:
        ConfigError: the topic has no archive, or one that begins later than `from_us`.
    """
    attributes = _require_answer(sources.call("sns", partial(_topic_attributes, arn)))
    if attributes.get("ArchivePolicy") in (None, "", "{}"):
        raise ConfigError(f"topic {arn} archives nothing, allowed is one with an archive; declare archive_days")
    begins: str | None = attributes.get("BeginningArchiveTime")
    begins_us = None if begins is None else _instant_us(begins)
    if begins_us is not None and from_us < begins_us:
        raise ConfigError(
            f"--from is {instant_text(from_us)}, allowed is {instant_text(begins_us)} or later: the archive begins then"
        )
    return begins


def _topic_attributes(arn: str, sns: Any) -> dict[str, str]:
    attributes: dict[str, str] = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    return attributes


def _instant_us(text: str) -> int | None:
    """Return an instant of SNS, which is ISO 8601 or seconds since 1970, in microseconds; None if it is neither."""
    try:
        return round(float(text) * 1_000_000)
    except ValueError:
        pass
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000_000)
    except ValueError:
        return None


def _instant_of_sns(at_us: int) -> str:
    """Return microseconds UTC as a replay policy of SNS has them: ISO 8601 with milliseconds and `Z`."""
    found = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return f"{found:%Y-%m-%dT%H:%M:%S}.{found.microsecond // 1_000:03}Z"


def _check_status(consumer: Consumer, replay: ArchiveReplay) -> None:
    """Refuse a replay while another one is under way, whose messages would not be delivered any more."""
    status, policy = replay.status()
    if status in _UNDER_WAY:
        raise ConfigError(
            f"a replay to {consumer.name} is {status} ({policy}), allowed is none: wait for its end (--archive"
            " watch), or end it (--archive end)"
        )


def _check_inbox(consumer: Consumer, inbox: Engine, *, leaves_out: bool) -> None:
    """Refuse a replay to an inbox that would drop messages."""
    groups = inbox_tables.groups.c
    passed = select(func.count()).where(groups.consumer == consumer.name, groups.last_seq >= groups.first_seq)
    with engines.reading(inbox) as connection, engines.explaining_missing_tables():
        count = connection.execute(passed).scalar_one()
    if count and not leaves_out:
        raise ConfigError(
            f"{consumer.name} has handled messages of {plural(count, 'group')}, and would drop those that come again,"
            " which are paid for; --unhandled accepts that, and `sluice replay` without --archive leaves them out"
        )


def _check_order(
    environment: Environment, consumer: Consumer, outbox: Engine, from_us: int, *, accepts_late: bool
) -> None:
    """Refuse a replay whose messages would be dead-lettered, or handled after live messages of their group."""
    topic = environment.topic(consumer.topic)
    name = naming.topic_name(environment, topic.name)
    counters, acts = outbox_tables.groups.c, outbox_tables.audit.c
    with engines.reading(outbox) as connection, engines.explaining_missing_tables():
        now_us = engines.now_us(connection, None)
        earlier = (counters.topic == name, counters.epoch < -(-from_us // 1_000_000))
        older = connection.execute(select(func.count()).where(*earlier)).scalar_one()
        begun = select(func.max(acts.at_us)).where(acts.topic == name, acts.action == "epoch")
        epoch_at_us = connection.execute(begun).scalar_one()
    longest_seconds = max(each.inbox_retention_seconds for each in environment.consumers_of(topic))
    allowed_us = max(now_us - longest_seconds * 1_000_000, epoch_at_us or 0)
    if from_us < allowed_us:
        raise ConfigError(
            f"--from is {instant_text(from_us)}, allowed is {instant_text(allowed_us)} or later: a group may have begun"
            f" to count anew since, and {consumer.name} would reject its messages of before, which end in the DLQ"
        )
    if accepts_late:
        return
    if consumer.gaps is not Gaps.HALT or consumer.joined_at is not None:
        raise ConfigError(
            f"{consumer.name} does not wait for a group's first number, allowed is Gaps.HALT without joined_at: a live"
            " message that comes first would be handled first; --late handle has the past handled late"
        )
    if older:
        raise ConfigError(
            f"{plural(older, 'group')} began before --from: {consumer.name} would wait for their earlier numbers, which"
            " are not replayed; give an earlier --from, or --late handle and then declare joined_at"
        )
