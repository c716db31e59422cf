"""`sluice outbox verify`: compare the sent messages of a topic with what each consumer has received."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
    if page is not None:
        from sluice.cli.overview import verdict_page

        verdict_page.write(page, found)
    if is_measured:
        _measure(environment, environment.topic(topic).name, found)
    if as_json or is_measured:
        listed = {"epochs": _epoch_rows(epochs)} if shows_epochs else {}
        output.as_json(found | listed, indent=None if is_measured else 2)
    else:
        _print(found, compared.verdicts, most)
        if epochs is not None:
            _print_epochs(epochs, most)
    if found["verdict"] != VALID:
        sys.exit(PARTLY if found["verdict"] == INVALID else COULD_NOT)


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
    """Return what the reconciliation needs of a consumer: its inbox, its queues, its subscription.

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
    """Count a consumer's queue, its DLQs, and its queue once more.

    A message that moves between queue and DLQ meanwhile is so in one of the counts: the queue counts as empty only if
    it was empty both times.
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
    counted: Any = {str(epoch): count for epoch, count in sorted(compared.epochs.items())}
    properties = judge_properties(compared, [found.facts for found in verdicts])
    return {
        "topic": topic,
        "verdict": INVALID if is_invalid else UNKNOWN if unreadable or UNKNOWN in each or not each else VALID,
        "in_flight_seconds": in_flight_seconds,
        "sent": compared.rows,
        "properties": [_property_fields(found, unreadable) for found in properties],
        "consumers": [_verdict_fields(found, most) for found in verdicts],
        "groups_by_epoch": counted if unreadable is None else unreadable.as_json(),
        "restored": [
            {"group": group.group_id, "cause": Cause.RESTORED.value, **_epoch_fields(group), "ahead": group.ahead}
            for group in compared.restored
        ],
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
    judgement = found.judgement
    return {
        "consumer": found.consumer,
        "verdict": found.verdict,
        "states": {state.value: count for state, count in judgement.states.items()},
        "wrong": found.wrong,
        "missing": judgement.missing,
        "shortage": None if judgement.shortage is None else asdict(judgement.shortage),
        "findings": [_finding_fields(finding) for finding in judgement.findings[:most]],
        "is_cut": judgement.is_cut or len(judgement.findings) > most,
        "unknown": found.doubts,
    }


def _finding_fields(finding: Finding) -> dict[str, Any]:
    return {
        "group": finding.group_id,
        "epoch": finding.epoch,
        "first": finding.first,
        "last": finding.last,
        "cause": finding.cause.name.lower().replace("_", "-"),
        "why": finding.cause.value,
    }


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


def _print(found: dict[str, Any], verdicts: list[ConsumerVerdict], most: int) -> None:
    """Print the verification: each consumer's verdict with its findings and doubts, restored groups, and epochs."""
    output.line(f"{found['verdict']}: {found['sent']} messages of {found['topic']} are marked as sent")
    for each in found["properties"]:
        output.line(f"  {each['verdict']:<13} {each['means']}: {each['violations']} of {each['opportunities']} broken")
    for verdict in verdicts:
        judgement = verdict.judgement
        # Missing numbers are left out: they follow as findings.
        shown = (item for item in judgement.states.items() if item[0] is not NumberState.GAP)
        counts = ", ".join(f"{count} {state.value}" for state, count in shown)
        output.line(f"{verdict.consumer}: {verdict.verdict}; {counts or 'nothing has come that is known'}")
        for wrong in verdict.wrong:
            output.line(f"  wrong    {wrong}")
        for finding in judgement.findings[:most]:
            numbers = str(finding.first) if finding.first == finding.last else f"{finding.first} to {finding.last}"
            output.line(
                f"  missing  group {finding.group_id} number {numbers} of epoch {finding.epoch}: {finding.cause.value}"
            )
            span = str(finding.first) if finding.first == finding.last else f"{finding.first}-{finding.last}"
            output.line(f"           sluice outbox resend {finding.group_id} {span} --reason '…'")
        if judgement.shortage is not None:
            output.line(f"  missing  {judgement.shortage.sentence}; which of them is not known")
        if judgement.is_cut or len(judgement.findings) > most:
            output.line(f"  missing  more: {judgement.missing} numbers in all; raise --limit")
        for doubt in verdict.doubts:
            output.line(f"  unknown  {doubt}")
    for group in found["restored"]:
        output.line(f"restored: group {group['group']}: {group['cause']} ({', '.join(group['ahead'])})")
    epochs = found["groups_by_epoch"]
    if "unknown" not in epochs:
        output.line(
            f"epochs: {', '.join(f'{count} groups in {epoch}' for epoch, count in epochs.items()) or 'no group'}"
        )


def _print_epochs(epochs: list[GroupEpochs], most: int) -> None:
    """Print the epoch of each group, at most `most` of them, with each consumer's position."""
    for group in epochs[:most]:
        positions = ", ".join(
            f"{consumer} {'nothing' if position is None else f'at {position[1]} of {position[0]}'}"
            for consumer, position in group.positions.items()
        )
        output.line(
            f"  group {group.group_id}: epoch {group.epoch} from {group.first_seq} to {group.last_seq}; {positions}"
        )
    if len(epochs) > most:
        output.line(f"{most} of {len(epochs)} groups; raise --limit", is_error=True)
