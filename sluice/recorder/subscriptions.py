"""The subscriptions that one process saw: their filter policies say which queues get a message of a topic.

A journal has only hashes of bodies and attributes, so a message is compared with the filter policies when it is
published.

AWS: `Additions or changes to a subscription filter policy require up to 15 minutes to fully take effect`
(https://docs.aws.amazon.com/sns/latest/dg/sns-subscription-filter-policies.html, read 2026-11-27). Subscribe returns a
subscription that is there already, whatever its policy, if it is given none (SNS-36).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.simulator.model.filter_policy import accepts_attributes, accepts_body

_POLICY, _SCOPE = "FilterPolicy", "FilterPolicyScope"
_TAKES_EFFECT_WITHIN_US = 900_000_000

type SubscriptionFilter = Mapping[str, str]
"""Policy and scope, as attributes of a subscription; one without a policy accepts everything."""


@dataclass(slots=True)
class _Subscription:
    """A queue's subscription to a topic; both have ARNs.

    Args:
        filter: the filter at present; None after Unsubscribe.
        earlier: each filter before it, and when that was replaced, microseconds UTC.
        is_changing: whether a call that changes it was made, and not confirmed.
    """

    topic_arn: str
    queue_arn: str
    filter: SubscriptionFilter | None
    earlier: list[tuple[SubscriptionFilter | None, int]] = field(default_factory=list)
    is_changing: bool = False

    def replace_filter(self, new: SubscriptionFilter | None, at_us: int) -> None:
        """Take another filter from a time on; the one before may act a little longer."""
        if new != self.filter:
            self.earlier.append((self.filter, at_us))
        self.filter, self.is_changing = new, False

    def accepts(self, message: Mapping[str, Any], at_us: int) -> bool | None:
        """Return whether the queue gets a message that is published at a time; None if that is not certain."""
        if self.is_changing:
            return None
        filters = [of for of, until_us in self.earlier if at_us < until_us + _TAKES_EFFECT_WITHIN_US]
        answers = {_accepts(of, message) for of in (*filters, self.filter)}
        return answers.pop() if len(answers) == 1 else None


class RecordedSubscriptions:
    """The subscriptions of which calls of this process told the filter, by ARN."""

    def __init__(self) -> None:
        self._known: dict[str, _Subscription] = {}

    def subscribe(self, params: Mapping[str, Any], answer: Mapping[str, Any], at_us: int) -> None:
        """Remember the filter policy that a queue was subscribed with."""
        attributes, arn = params.get("Attributes", {}), answer.get("SubscriptionArn", "")
        if params.get("Protocol") == "sqs" and _POLICY in attributes and arn.startswith("arn:"):  # else it is pending
            self._see(arn, params["TopicArn"], params.get("Endpoint"), attributes, at_us)

    def get_attributes(self, params: Mapping[str, Any], answer: Mapping[str, Any], at_us: int) -> None:
        """Remember the filter that GetSubscriptionAttributes answered."""
        attributes = answer.get("Attributes", {})
        if attributes.get("Protocol") == "sqs" and "TopicArn" in attributes:
            self._see(params["SubscriptionArn"], attributes["TopicArn"], attributes.get("Endpoint"), attributes, at_us)

    def _see(self, arn: str, topic_arn: str, queue_arn: str | None, attributes: Mapping[str, str], at_us: int) -> None:
        seen = _filter_of(attributes)
        self._known.setdefault(arn, _Subscription(topic_arn, queue_arn or "", seen)).replace_filter(seen, at_us)

    def begin_change(self, arn: str) -> str | None:
        """Treat the filter as unknown until the change is confirmed; return the queue's ARN, or None if unknown."""
        subscription = self._known.get(arn)
        if subscription is None:
            return None
        subscription.is_changing = True
        return subscription.queue_arn

    def set_attribute(self, params: Mapping[str, Any], _: Mapping[str, Any], at_us: int) -> None:
        """Remember what SetSubscriptionAttributes changed."""
        subscription, name = self._known.get(params["SubscriptionArn"]), params["AttributeName"]
        if subscription is not None:
            changed = {**(subscription.filter or {}), name: params.get("AttributeValue", "")}
            subscription.replace_filter(_filter_of(changed), at_us)

    def unsubscribe(self, params: Mapping[str, Any], _: Mapping[str, Any], at_us: int) -> None:
        """Remember that the queue gets nothing any more."""
        subscription = self._known.get(params["SubscriptionArn"])
        if subscription is not None:
            subscription.replace_filter(None, at_us)

    def acceptances(self, topic_arn: str, message: Mapping[str, Any], at_us: int) -> dict[str, bool]:
        """Return the ARN of each queue of which it is certain, to whether it gets a message published at a time."""
        found = {
            subscription.queue_arn: subscription.accepts(message, at_us)
            for subscription in self._known.values()
            if subscription.topic_arn == topic_arn
        }
        return {queue: is_accepted for queue, is_accepted in found.items() if is_accepted is not None}


def _filter_of(attributes: Mapping[str, str]) -> SubscriptionFilter:
    return {name: attributes[name] for name in (_POLICY, _SCOPE) if attributes.get(name)}


def _accepts(of: SubscriptionFilter | None, message: Mapping[str, Any]) -> bool | None:
    """Return whether a filter accepts a message; None for a policy that is not understood."""
    if of is None or _POLICY not in of:
        return of is not None
    try:
        policy = json.loads(of[_POLICY])
        if of.get(_SCOPE) != "MessageBody":
            return accepts_attributes(policy, message.get("MessageAttributes", {}))
        return None if message.get("MessageStructure") == "json" else accepts_body(policy, message.get("Message", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
