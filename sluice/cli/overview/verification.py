"""`sluice outbox verify`: compare the sent messages of a topic with what each consumer has received."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sluice.cli.acts import instant_text
from sluice.cli.overview.sources import QueueCounts, Sources, Unknown, explaining, opening
from sluice.cli.overview.sources import topic_arn as find_topic_arn
from sluice.cli.overview.subscriptions import Subscription, read_subscriptions
from sluice.clock import SystemClock
from sluice.declaration import Consumer, Environment, metrics, naming
from sluice.errors import ConfigError
from sluice.messaging.database import engines
from sluice.messaging.reconciliation.comparison import Reconciliation
from sluice.messaging.reconciliation.epochs import GroupEpochs, compare_epochs
from sluice.messaging.reconciliation.properties import (
    INVALID,
    NOT_EXERCISED,
    UNKNOWN,
    VALID,
    PropertyVerdict,
    RouteFacts,
    judge_properties,
)
from sluice.messaging.reconciliation.routes import SETTLED_SECONDS, Cause, Finding, Judgement, QueuePlace, Route
from sluice.messaging.reconciliation.states import NumberState
from sluice.messaging.telemetry.metrics import EmbeddedMetrics
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT, PARTLY

_LINE_BYTES_MAX = 200_000
"""The most bytes of a verdict in one line of the log."""
_HALVINGS_MAX = 17  # --limit allows 100,000
_EPOCHS_MAX = 10
"""The most epochs that are listed: a group begins an epoch when its first event is committed, so they are many."""
_LISTED = (NumberState.GAP, NumberState.AWAITED)  # they follow as findings or doubts
_NOTHING = "nothing was sent that is still in the outbox, and old enough"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerVerdict:
    """The verdict on what a consumer has received.

    Args:
        consumer: its name.
        judgement: the comparison of sent numbers with its inbox and queues.
        wrong: faults of its subscription, in words.
        doubts: reasons why something is not known, in words.
        facts: what the verdicts on the properties need.
    """

    consumer: str
    judgement: Judgement
    wrong: list[str]
    doubts: list[str]
    facts: RouteFacts

    @property
    def verdict(self) -> str:
        """Return INVALID for any fault or missing number, else UNKNOWN for any doubt, else VALID."""
        if self.wrong or self.judgement.missing:
            return INVALID
        return UNKNOWN if self.doubts else VALID


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The verdicts on a topic's consumers.

    Args:
        fields: all of it as the command prints it in JSON.
        verdicts: one for each consumer.
        epochs: the epoch of each group, if they were read.
    """

    fields: dict[str, Any]
    verdicts: list[ConsumerVerdict]
    epochs: list[GroupEpochs] | None


def reconcile(
    sources: Sources,
    *,
    topic: str | None,
    topic_arn: str | None,
    in_flight: int | None = None,
    old_only: bool = False,
    shows_epochs: bool = False,
    most: int,
) -> Verification:
    """Compare what was sent to a topic with what each consumer received.

    Args:
        sources: the databases and services of an environment.
        topic: declared name of the topic; None is the first.
        topic_arn: of the topic; None is by name.
        in_flight: the longest time in seconds that a message may be on its way; None is the longest retention.
        old_only: leave younger messages out.
        shows_epochs: read the epoch of each group, too.
        most: at most this many findings of each consumer.

    Raises:
        ConfigError: no database of the outbox is named, or there is no such topic.
    """
    environment = sources.environment
    declared = environment.topic(topic)
    name = naming.topic_name(environment, declared.name)
    consumers = environment.consumers_of(declared)
    longest_retention_seconds = max(
        (consumer.message_retention_seconds for consumer in consumers), default=SETTLED_SECONDS
    )
    in_flight_seconds = longest_retention_seconds if in_flight is None else in_flight
    engine = sources.outbox
    if isinstance(engine, Unknown):
        raise ConfigError(engine.reason)
    with engines.reading(engine) as connection:
        now_us = engines.now_us(connection, None)
    subscriptions = read_subscriptions(sources, topic_arn or find_topic_arn(sources, declared.name), consumers)
    routes = [_route(sources, consumer, subscriptions[consumer.name]) for consumer in consumers]
    compared = Reconciliation(
        engine,
        name,
        routes,
        now_us=now_us,
        in_flight_us=in_flight_seconds * 1_000_000,
        counts_young=not old_only,
    )
    unreadable = explaining(compared.compare)
    epochs = list(compare_epochs(engine, name, routes)) if shows_epochs and unreadable is None else None
    verdicts = [
        _verdict(consumer, route, subscriptions[consumer.name], compared, unreadable)
        for consumer, route in zip(consumers, routes, strict=True)
    ]
    fields = _fields(name, in_flight_seconds, compared, verdicts, unreadable, most)
    return Verification(fields=fields, verdicts=verdicts, epochs=epochs)


def verify(
    *,
    environment: Environment,
    topic: str | None,
    dsn: str | None,
    inboxes: tuple[str, ...],
    endpoint_url: str | None,
    in_flight: int | None,
    old_only: bool,
    topic_arn: str | None,
    is_measured: bool,
    page: Path | None,
    shows_epochs: bool,
    most: int,
    as_json: bool,
) -> None:
    """Compare what was sent with what each consumer received, print the verdicts, and exit with the command's code.

    Each argument is the option of that name; `in_flight` is in seconds.
    """
    with opening(environment, dsn, inboxes, endpoint_url) as sources:
        compared = reconcile(
            sources,
            topic=topic,
            topic_arn=topic_arn,
            in_flight=in_flight,
            old_only=old_only,
            shows_epochs=shows_epochs,
            most=most,
        )
    found, epochs = compared.fields, compared.epochs
    if is_measured:
        found = _fit_line(found)
        _measure(environment, environment.topic(topic).name, found)
    listed = {"epochs": _epoch_rows(epochs)} if shows_epochs else {}
    conclude(found, page=page, as_json=as_json, is_measured=is_measured, listed=listed, most=most)


def conclude(
    found: dict[str, Any] | Unknown,
    *,
    page: Path | None,
    as_json: bool,
    is_measured: bool = False,
    listed: Mapping[str, Any] | None = None,
    most: int = 0,
) -> None:
    """Print a verdict, given as its JSON fields, write its page, and exit with the code that it calls for."""
    if isinstance(found, Unknown):
        output.line(found.reason, is_error=True)
        sys.exit(COULD_NOT)
    if page is not None:
        from sluice.cli.overview import verdict_page

        verdict_page.write(page, found)
    if as_json or is_measured:
        output.as_json(found | dict(listed or {}), indent=None if is_measured else 2)
    else:
        print_verdict(found)
        if listed:
            _print_epochs(listed["epochs"], most)
    if found["verdict"] != VALID:
        sys.exit(PARTLY if found["verdict"] == INVALID else COULD_NOT)


def _fit_line(found: dict[str, Any]) -> dict[str, Any]:
    """Return a verdict that fits an event of a log, with fewer of the numbers that it lists if it has to.

    AWS: an event has at most 1 MB, and had 256 KB before, at which a container's log driver may still split it:
    https://docs.aws.amazon.com/sdk-for-kotlin/api/latest/cloudwatchlogs/aws.sdk.kotlin.services.cloudwatchlogs.model/-input-log-event/message.html
    (read 2026-11-27)
    """
    for _ in range(_HALVINGS_MAX):
        if len(json.dumps(found)) <= _LINE_BYTES_MAX:
            break
        for each in found["consumers"]:
            is_cut = each["is_cut"] or bool(each["findings"])
            findings, undecided = (each[name][: len(each[name]) // 2] for name in ("findings", "undecided"))
            each |= {"findings": findings, "undecided": undecided, "is_cut": is_cut}
        found["restored"] = found["restored"][: len(found["restored"]) // 2]
    return found


def _measure(environment: Environment, topic: str, found: dict[str, Any]) -> None:
    """Write the verdict as metrics, a line of CloudWatch's embedded metric format.

    If the databases could not be read there is no verdict, and only that is written: a zero would say that all is well.
    """
    values = {metrics.OUTBOX_UNKNOWN: sum(each["verdict"] == UNKNOWN for each in found["properties"])}
    if "unknown" not in found["groups_by_epoch"]:
        values[metrics.OUTBOX_VERIFIED] = found["sent"]
        values[metrics.OUTBOX_BROKEN] = sum(each["violations"] for each in found["properties"])
    EmbeddedMetrics(sys.stdout, metrics.dimensions(environment, topic), clock=SystemClock()).put(values)


def _route(sources: Sources, consumer: Consumer, subscription: Subscription) -> Route:
    """Return a consumer's route for the comparison: its inbox, its queues, and its subscription.

    `unjudged` is the reason why missing numbers of this consumer would mean nothing. A live filter policy that is not
    declared is handed over as `accepts`, as a possible cause of missing numbers.
    """
    engine = sources.inboxes[consumer.name]
    unjudged = None
    if isinstance(engine, Unknown):
        unjudged = engine.reason
    elif not consumer.fifo:
        unjudged = "it has a standard queue, in which numbers come in any order"
    elif consumer.filter_policy is not None:
        unjudged = "its filter policy leaves numbers out: a missing one is lawful"
    is_undeclared = subscription.filter_policy is not None and consumer.filter_policy is None
    return Route(
        consumer=consumer.name,
        engine=None if isinstance(engine, Unknown) else engine,
        unjudged=unjudged,
        places=_places(sources, consumer),
        is_subscribed=subscription.is_there,
        accepts=subscription.accepts if is_undeclared else None,
        joined_at_us=None if consumer.joined_at is None else round(consumer.joined_at.timestamp() * 1_000_000),
    )


def _places(sources: Sources, consumer: Consumer) -> tuple[QueuePlace, ...]:
    """Return a consumer's queue and its DLQs with their counts.

    The queue is counted before and after the DLQs, and is empty only if both counts are 0. So a message that moves
    between queue and DLQ meanwhile is in one of the counts.
    """
    environment = sources.environment
    queue = naming.queue_name(environment, consumer)
    first = sources.queue(queue)
    names = (naming.dead_letter_queue_name(environment, consumer), naming.undelivered_queue_name(environment, consumer))
    dlqs = [sources.queue(name) for name in names]
    second = sources.queue(queue)
    looked, most = second, None
    if isinstance(first, Unknown):
        looked = first
    elif isinstance(second, QueueCounts):
        looked = max(first, second, key=lambda each: each.total)
        most = first.total if first.total == second.total else first.total + second.total
    return (
        _place(queue, looked, consumer.message_retention_seconds, is_dlq=False, most=most),
        *(
            _place(name, found, consumer.dead_letter_retention_seconds, is_dlq=True)
            for name, found in zip(names, dlqs, strict=True)
        ),
    )


def _place(
    name: str, found: QueueCounts | Unknown, declared_seconds: int, *, is_dlq: bool, most: int | None = None
) -> QueuePlace:
    """Return a queue for the reconciliation, with the longer of its declared and its live retention."""
    if isinstance(found, Unknown):
        retention_us = declared_seconds * 1_000_000
        return QueuePlace(name=name, about=None, fault=found.reason, retention_us=retention_us, is_dlq=is_dlq)
    retention_us = max(declared_seconds, found.retention_seconds) * 1_000_000
    return QueuePlace(name=name, about=found.total, most=most, retention_us=retention_us, is_dlq=is_dlq)


def _verdict(
    consumer: Consumer,
    route: Route,
    subscription: Subscription,
    compared: Reconciliation,
    unreadable: Unknown | None,
) -> ConsumerVerdict:
    """Return the verdict on a consumer: its judgement, the faults of its subscription, and every doubt.

    `unreadable` is the reason why the comparison as a whole failed; None where it did not.
    """
    judgement = compared.judgements[consumer.name]
    wrong = []
    if subscription.is_there is False:
        wrong.append(Cause.NO_SUBSCRIPTION.value)
    declared = None if consumer.filter_policy is None else json.loads(json.dumps(consumer.filter_policy))
    if subscription.is_there and subscription.fault is None and subscription.filter_policy != (declared or None):
        live = json.dumps(subscription.filter_policy)
        wrong.append(f"the live subscription's filter policy is {live}, declared is {json.dumps(declared)}")
    counted = judgement.doubts + judgement.dead_doubts
    doubts = [f"{count} number{'' if count == 1 else 's'}: {reason}" for reason, count in counted.items()]
    if isinstance(unreadable, Unknown):
        doubts.append(unreadable.reason)
    elif route.unjudged is not None:
        doubts.append(route.unjudged)
    elif not judgement.states and not judgement.missing and not doubts:
        doubts.append(_NOTHING)
    if subscription.fault is not None:
        doubts.append(f"its subscription cannot be read ({subscription.fault})")
    facts = RouteFacts(judgement=judgement, wrong=wrong, subscription_fault=subscription.fault, unjudged=route.unjudged)
    return ConsumerVerdict(consumer=consumer.name, judgement=judgement, wrong=wrong, doubts=doubts, facts=facts)


def _fields(
    topic: str,
    in_flight_seconds: int,
    compared: Reconciliation,
    verdicts: list[ConsumerVerdict],
    unreadable: Unknown | None,
    most: int,
) -> dict[str, Any]:
    """Return the JSON fields of the whole verification.

    Args:
        topic: its name.
        in_flight_seconds: younger messages were not judged.
        compared: the comparison, with the number of sent messages.
        verdicts: one for each consumer.
        unreadable: why the databases could not be read to the end; None if they could.
        most: at most this many findings are listed of each consumer.
    """
    each = [found.verdict for found in verdicts]
    is_invalid = INVALID in each or compared.restored_count
    latest = sorted(compared.epochs.items())[-_EPOCHS_MAX:]
    counted: Any = {str(epoch): count for epoch, count in latest}
    properties = judge_properties(compared, [found.facts for found in verdicts])
    return {
        "topic": topic,
        "at": instant_text(SystemClock().now_us()),
        "verdict": INVALID if is_invalid else UNKNOWN if unreadable or UNKNOWN in each or not each else VALID,
        "in_flight_seconds": in_flight_seconds,
        "sent": compared.rows,
        "properties": [_property_fields(found, unreadable) for found in properties],
        "consumers": [_verdict_fields(found, most) for found in verdicts],
        "group_count": compared.epochs.total(),
        "epoch_count": len(compared.epochs),
        "groups_by_epoch": counted if unreadable is None else unreadable.as_json(),
        "restored": [
            {"group": group.group_id, "cause": Cause.RESTORED.value, **_epoch_fields(group), "ahead": group.ahead}
            for group in compared.restored[:most]
        ],
        "restored_count": compared.restored_count,
    }


def _property_fields(found: PropertyVerdict, unreadable: Unknown | None) -> dict[str, Any]:
    """Return the JSON fields of the verdict on a property; without a whole comparison nothing is VALID."""
    is_unread = unreadable is not None and found.verdict in (VALID, NOT_EXERCISED)
    return {
        "property": found.subject.name.lower().replace("_", "-"),
        "means": found.subject.value,
        "verdict": UNKNOWN if is_unread else found.verdict,
        "opportunities": found.opportunities,
        "violations": found.violations,
        "unknown": [unreadable.reason] if is_unread and unreadable is not None else list(found.doubts),
    }


def _verdict_fields(found: ConsumerVerdict, most: int) -> dict[str, Any]:
    """Return the JSON fields of the verdict on a consumer, with at most `most` findings."""
    judgement, shortage = found.judgement, found.judgement.shortage
    return {
        "consumer": found.consumer,
        "verdict": found.verdict,
        "states": {state.value: count for state, count in judgement.states.items()},
        "wrong": found.wrong,
        "missing": judgement.missing,
        "shortage": shortage and asdict(shortage) | {"means": shortage.sentence},
        "findings": [_finding_fields(finding) for finding in judgement.findings[:most]],
        "is_cut": judgement.is_cut or len(judgement.findings) > most,
        "undecided": [_numbers_fields(finding) for finding in judgement.undecided[:most]],
        "unknown": found.doubts,
    }


def _numbers_fields(finding: Finding) -> dict[str, Any]:
    return {
        "group": finding.group_id,
        "epoch": finding.epoch,
        "first": finding.first,
        "last": finding.last,
        "why": str(finding.cause),
    }


def _finding_fields(finding: Finding) -> dict[str, Any]:
    assert isinstance(finding.cause, Cause), "a number without a known cause is undecided"
    return _numbers_fields(finding) | {"cause": finding.cause.name.lower().replace("_", "-")}


def _epoch_fields(group: GroupEpochs) -> dict[str, Any]:
    """Return the JSON fields of a group's epoch in the outbox, and of each consumer's position."""
    positions = {
        consumer: None if position is None else {"epoch": position[0], "last_seq": position[1]}
        for consumer, position in group.positions.items()
    }
    return {
        "epoch": group.epoch,
        "first_seq": group.first_seq,
        "last_seq": group.last_seq,
        "consumers": positions,
    }


def _epoch_rows(epochs: list[GroupEpochs] | None) -> list[dict[str, Any]]:
    return [{"group": group.group_id, **_epoch_fields(group)} for group in epochs or ()]


def print_verdict(found: Mapping[str, Any]) -> None:
    """Print a verification, of its JSON fields: each consumer's verdict with its findings and doubts, and epochs."""
    output.wrapped_line(f"{found['verdict']}: {found['sent']} messages of {found['topic']} are marked as sent")
    for each in found["properties"]:
        output.wrapped_line(
            f"  {each['verdict']:<13} {each['means']}: {each['violations']} of {each['opportunities']} broken"
        )
    for each in found["consumers"]:
        _print_consumer(each)
    for group in found["restored"]:
        output.wrapped_line(f"restored: group {group['group']}: {group['cause']} ({', '.join(group['ahead'])})")
    if found["restored_count"] > len(found["restored"]):
        output.wrapped_line(f"restored: {found['restored_count']} groups in all; raise --limit")
    if any(each["undecided"] for each in found["consumers"]) and found["in_flight_seconds"] > SETTLED_SECONDS:
        output.wrapped_line(
            "younger messages are judged, too, with --in-flight, such as: sluice outbox verify --in-flight 15m"
        )
    if found["epoch_count"] > _EPOCHS_MAX:
        output.wrapped_line(
            f"epochs: {found['group_count']} groups in {found['epoch_count']} epochs; --epochs lists them"
        )
    elif "unknown" not in found["groups_by_epoch"]:
        counts = [f"{count} groups in {epoch}" for epoch, count in found["groups_by_epoch"].items()]
        output.wrapped_line(f"epochs: {', '.join(counts) or 'no group'}")


def _print_consumer(found: Mapping[str, Any]) -> None:
    """Print the verdict on a consumer: wrong settings, lost numbers with the next command, and doubts by number."""
    shown = (item for item in found["states"].items() if item[0] not in _LISTED)
    counts = ", ".join(f"{count} {state}" for state, count in shown)
    output.wrapped_line(f"{found['consumer']}: {found['verdict']}; {counts or 'nothing has come that is known'}")
    for wrong in found["wrong"]:
        output.wrapped_line(f"  wrong    {wrong}")
    for lost in found["findings"]:
        output.wrapped_line(f"  missing  {_numbers_text(lost)}: {lost['why']}")
        span = str(lost["first"]) if lost["first"] == lost["last"] else f"{lost['first']}-{lost['last']}"
        output.line(f"           sluice outbox resend {lost['group']} {span} --reason '…'")
    if found["shortage"] is not None:
        output.wrapped_line(f"  missing  {found['shortage']['means']}")
    if found["is_cut"]:
        output.wrapped_line(f"  missing  more: {found['missing']} numbers in all; raise --limit")
    for doubt in found["unknown"]:
        output.wrapped_line(f"  unknown  {doubt}")
    for open_ in found["undecided"]:
        output.wrapped_line(f"           {_numbers_text(open_)}")


def _numbers_text(found: Mapping[str, Any]) -> str:
    numbers = str(found["first"]) if found["first"] == found["last"] else f"{found['first']} to {found['last']}"
    return f"group {found['group']} number {numbers} of epoch {found['epoch']}"


def _print_epochs(rows: list[dict[str, Any]], most: int) -> None:
    """Print the epoch of each group, at most `most` of them, with each consumer's position."""
    for row in rows[:most]:
        positions = ", ".join(
            f"{consumer} {'nothing' if position is None else f'at {position["last_seq"]} of {position["epoch"]}'}"
            for consumer, position in row["consumers"].items()
        )
        span = f"epoch {row['epoch']} from {row['first_seq']} to {row['last_seq']}"
        output.wrapped_line(f"  group {row['group']}: {span}; {positions}")
    if len(rows) > most:
        output.line(f"{most} of {len(rows)} groups; raise --limit", is_error=True)
