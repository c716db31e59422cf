"""The live subscriptions of consumers to a topic."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sluice.cli.overview.sources import Sources, Unknown
from sluice.declaration import Consumer, naming
from sluice.simulator.model.filter_policy import accepts_attributes, accepts_body


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A consumer's live subscription.

    Args:
        is_there: whether there is a confirmed subscription; None where that could not be read.
        arn: its ARN; None where there is none, or that could not be read.
        fault: why the subscription or its attributes could not be read.
        filter_policy: None where the subscription has none.
        is_of_body: whether SNS compares the filter policy with the body, instead of with the attributes.
    """

    is_there: bool | None
    arn: str | None = None
    fault: str | None = None
    filter_policy: Mapping[str, Any] | None = None
    is_of_body: bool = False

    def accepts(self, attributes: Mapping[str, str], body: str) -> bool:
        """Return whether SNS delivers a message with these attributes and this body."""
        policy = self.filter_policy or {}
        if self.is_of_body:
            return accepts_body(policy, body)
        typed = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
        return accepts_attributes(policy, typed)


def read_subscriptions(
    sources: Sources, arn: str | Unknown, consumers: tuple[Consumer, ...]
) -> dict[str, Subscription]:
    """Return the live subscription of each consumer to a topic, by the consumer's name."""
    if isinstance(arn, Unknown):
        return dict.fromkeys([consumer.name for consumer in consumers], Subscription(is_there=None, fault=arn.reason))
    listed = sources.call("sns", partial(_list_subscriptions, arn))
    return {consumer.name: _subscription(sources, consumer, listed, arn) for consumer in consumers}


def _list_subscriptions(arn: str, sns: Any) -> list[Mapping[str, Any]]:
    """Return all subscriptions of a topic, as SNS lists them."""
    pages = sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=arn)
    return [each for page in pages for each in page["Subscriptions"]]


def _subscription(
    sources: Sources, consumer: Consumer, listed: "list[Mapping[str, Any]] | Unknown", topic: str
) -> Subscription:
    """Return a consumer's subscription among those that SNS lists for a topic (its ARN), with its filter policy."""
    if isinstance(listed, Unknown):
        return Subscription(is_there=None, fault=listed.reason)
    name = naming.queue_name(sources.environment, consumer)
    arn = (
        consumer.queue.arn
        if consumer.queue is not None
        else naming.queue_arn(sources.environment, name, topic.split(":")[4])
    )
    subscribed = next((each["SubscriptionArn"] for each in listed if each["Endpoint"] == arn), None)
    if subscribed is None or not subscribed.startswith("arn:"):  # an unconfirmed one has a text in place of its ARN
        return Subscription(is_there=False)
    live = sources.call("sns", lambda sns: sns.get_subscription_attributes(SubscriptionArn=subscribed)["Attributes"])
    if isinstance(live, Unknown):
        return Subscription(is_there=True, arn=subscribed, fault=live.reason)
    policy = json.loads(live["FilterPolicy"]) if live.get("FilterPolicy") else None
    return Subscription(
        is_there=True,
        arn=subscribed,
        filter_policy=policy or None,
        is_of_body=live.get("FilterPolicyScope") == "MessageBody",
    )
