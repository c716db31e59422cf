"""`sluice outbox bundles …`: let relays send several events of a group in one message, or stop that.

Nothing tells which code a consumer runs, so an operator says it, and the audit keeps who. What can be seen is compared:
the queues of the declared consumers, the settings of their Lambda functions, and the topic's subscriptions.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.acts import act, actor, instant_text
from sluice.cli.options import audit_options, database_options, endpoint_option, json_option
from sluice.terminal import output
from sluice.terminal.groups import CommandGroup

if TYPE_CHECKING:
    from sluice.cli.targets import DatabaseTarget
    from sluice.declaration import Consumer, Environment


@click.group(cls=CommandGroup)
def bundles() -> None:
    """Let relays send several events of a group in one message, which a hot group needs; or stop that.

    \b
    First deploy code that reads bundles, everywhere; then declare Topic(bundle_events_max=...) and deploy; then:
      sluice outbox bundles on --reason "orders are hot" --yes
    """


@bundles.command()
@endpoint_option("AWS")
@audit_options
@database_options
def on(target: "DatabaseTarget", endpoint_url: str | None, reason: str, confirmed: bool) -> None:
    """Let relays send up to the declared number of events in one message, from their next look on.

    It holds for this number: after another one is declared and deployed, relays send single events until the next `on`.
    Refused if a declared consumer's queue, or the settings of its Lambda function, are not as bundles need it; or if
    somebody subscribes the topic whom the environment does not declare, unless foreign_subscribers_read_bundles=True
    says that all of these read bundles; or if a subscription filters on the body.
    """
    from sluice import sdk
    from sluice.endpoint import checked_url
    from sluice.errors import ConfigError

    topic = target.environment.topics[0]
    if topic.bundle_events_max == 1:
        raise ConfigError(
            f"topic {topic.name!r} has bundle_events_max 1, allowed is more: declare Topic(bundle_events_max=…), deploy"
            " it, and try again"
        )
    import boto3

    session = boto3.session.Session()
    sqs, sns, aws_lambda = (
        session.client(
            service,
            region_name=target.environment.region,
            endpoint_url=None if endpoint_url is None else checked_url(endpoint_url),
            config=sdk.config(),
        )
        for service in ("sqs", "sns", "lambda")
    )
    if obstacles := list(find_obstacles(target.environment, sqs, sns, aws_lambda)):
        raise ConfigError(f"bundles stay off: {'; '.join(obstacles)}")
    _switch(target, reason, topic.bundle_events_max, "let relays bundle", confirmed=confirmed)


@bundles.command()
@audit_options
@database_options
def off(target: "DatabaseTarget", reason: str, confirmed: bool) -> None:
    """Let relays send each event in a message of its own, from their next look on.

    Messages whose events are stored are still sent as they are: `bundles show` counts them. Before older code is
    deployed, wait until none is stored, and queues and DLQs hold no bundle.
    """
    _switch(target, reason, 1, "let relays bundle no more", confirmed=confirmed)


@bundles.command()
@json_option
@database_options
def show(target: "DatabaseTarget", as_json: bool) -> None:
    """Show how many events a message may have, who switched that when, and how many bundles are on their way."""
    from sluice.messaging.database import engines
    from sluice.messaging.database.audit import acts
    from sluice.messaging.outbox import operations, tables
    from sluice.messaging.outbox.store import events_of_message

    with engines.reading(target.engine) as connection, engines.explaining_missing_tables():
        switched, stored_count = operations.bundle_switch(connection, target.topic)
        found = acts(connection, tables.audit.c.topic, target.topic, most=operations.RESENT_MAX)
    last = next((row for row in found if row["action"] == operations.BUNDLES), None)
    declared = target.environment.topics[0].bundle_events_max
    if as_json:
        output.as_json(
            {
                "topic": target.topic,
                "declared": declared,
                "switched": switched,
                "stored": stored_count,
                "actor": None if last is None else last["actor"],
                "reason": None if last is None else last["reason"],
                "at_us": None if last is None else last["at_us"],
            }
        )
        return
    count = events_of_message(declared=declared, switched=switched)
    output.line(f"{count} events a message: {declared} declared, {switched} switched on")
    if last is not None:
        output.line(f"switched at {instant_text(last['at_us'])} by {last['actor']}: {last['reason']}")
    output.line(f"{stored_count} bundles are stored and not marked as sent")


def find_obstacles(environment: "Environment", sqs: Any, sns: Any, aws_lambda: Any) -> Iterator[str]:
    """Yield a sentence for each reason for which a topic's consumers may not be able to read bundles.

    Args:
        environment: its first topic is the one that is meant.
        sqs: a client.
        sns: a client.
        aws_lambda: a client.

    Raises:
        EndpointError: a queue is not there.
        TransientError: a queue or a subscription could not be looked at.
    """
    from sluice.declaration import naming
    from sluice.messaging.sqs.queue import Queue, explaining_errors, url_of
    from sluice.messaging.worker.preflight import faults

    topic, arns = environment.topics[0], list[str]()
    for consumer in environment.consumers_of(topic):
        name = naming.queue_name(environment, consumer)
        live = Queue(sqs, url_of(sqs, name)).attributes()
        arns.append(live["QueueArn"])
        for fault in faults(consumer, live, None, bundle_events_max=topic.bundle_events_max):
            yield f"{name}: {fault}"
        if consumer.runtime is not None:
            yield from _function_obstacles(environment, consumer, topic.bundle_events_max, aws_lambda)
    if not arns:
        return
    arn = naming.topic_arn(environment, arns[0].split(":")[4])
    with explaining_errors():
        pages = sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=arn)
        subscriptions = [each for page in pages for each in page["Subscriptions"]]
    for each in subscriptions:
        if _filters_on_body(sns, each["SubscriptionArn"]):
            yield (
                f"{each['Endpoint']} filters on the body, and SNS would drop bundles, whose body is another one than"
                " that of their events; let it filter on attributes (FilterPolicyScope MessageAttributes)"
            )
    foreign = [each["Endpoint"] for each in subscriptions if each["Endpoint"] not in arns]
    if foreign and not topic.foreign_subscribers_read_bundles:
        yield (
            f"{', '.join(foreign)} subscribes {arn} and is not declared; declare it as a consumer, or"
            " foreign_subscribers_read_bundles=True if all such subscribers read bundles"
        )


def _function_obstacles(
    environment: "Environment", consumer: "Consumer", bundle_events_max: int, aws_lambda: Any
) -> Iterator[str]:
    """Yield a sentence if a consumer's function has not, or may not have, the settings of the declared number.

    Its queue does not show that, as its maxReceiveCount is the same either way.
    https://docs.aws.amazon.com/lambda/latest/dg/API_GetFunctionConfiguration.html (read 2026-11-27)
    """
    from botocore.exceptions import ClientError

    from sluice import sdk
    from sluice.declaration import naming, task_settings
    from sluice.errors import ConfigError
    from sluice.terminal.printable import printable

    name = naming.function_name(environment, consumer)
    try:
        found = aws_lambda.get_function_configuration(FunctionName=name)
        written = found.get("Environment", {}).get("Variables", {}).get(task_settings.VARIABLE, "")
        count = task_settings.parse(written).topics[0].bundle_events_max
        seen = f"it has bundle_events_max {count}"
    except (ClientError, ConfigError, *sdk.UNANSWERED) as error:
        count, seen = None, printable(str(error))
    if count != bundle_events_max:
        yield f"{name}: {seen}, allowed is bundle_events_max {bundle_events_max}; deploy the environment's stacks"


def _filters_on_body(sns: Any, subscription_arn: str) -> bool:
    """Return whether a subscription filters on the body; one that is not confirmed has no ARN, and gets nothing."""
    from sluice.messaging.sqs.queue import explaining_errors

    if not subscription_arn.startswith("arn:"):
        return False
    with explaining_errors():
        live = sns.get_subscription_attributes(SubscriptionArn=subscription_arn)["Attributes"]
    return live.get("FilterPolicyScope") == "MessageBody" and bool(json.loads(live.get("FilterPolicy") or "{}"))


def _switch(
    target: "DatabaseTarget", reason: str, bundle_events_max: int, description: str, *, confirmed: bool
) -> None:
    from sluice.messaging.outbox.operations import OutboxOperator

    operator: OutboxOperator = OutboxOperator(topic=target.topic, actor=actor(), reason=reason)
    act(
        target.engine,
        f"{description}: {bundle_events_max} events a message at most",
        lambda connection: operator.switch_bundles(connection, bundle_events_max),
        confirmed=confirmed,
    )
