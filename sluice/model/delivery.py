"""How a topic's copy gets into a queue: the envelope, and whether the queue's policy lets it in."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sluice.model.publishing import message_of
from sluice.model.queue import Queue
from sluice.model.sqs import Params
from sluice.model.topic import Published, Subscription, Topic


def envelope(topic: Topic, subscription: Subscription, entry: Params, published: Published) -> str:
    """Return what a queue without raw delivery gets; FIFO topics do not sign it."""
    known = {
        "Type": "Notification",
        "MessageId": published.message_id,
        "SequenceNumber": published.sequence_number,
        "TopicArn": topic.arn,
        "Subject": entry.get("Subject"),
        "Message": message_of(entry),
        "Timestamp": datetime.fromtimestamp(published.at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
        "UnsubscribeURL": f"https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn={subscription.arn}",
        "MessageAttributes": {
            name: {"Type": value["DataType"], "Value": value.get("StringValue", value.get("BinaryValue"))}
            for name, value in entry.get("MessageAttributes", {}).items()
        }
        or None,
    }
    return json.dumps({name: value for name, value in known.items() if value is not None})


def may_send(queue: Queue, topic_arn: str) -> bool:
    """Return whether the queue's policy lets the topic send: without one, publishing succeeds in vain [SNS-44].

    Reads what such policies are made of: Effect, the service principal, the action, and a condition on the source.
    """
    given = queue.attributes.get("Policy")
    statements = [] if given is None else json.loads(given)["Statement"]
    applying = [
        statement
        for statement in (statements if isinstance(statements, list) else [statements])
        if _is_about(statement, topic_arn)
    ]
    effects = {statement["Effect"] for statement in applying}
    return effects == {"Allow"}


def _is_about(statement: Mapping[str, Any], topic_arn: str) -> bool:
    principal = statement.get("Principal", "*")
    services = _list(principal.get("Service", principal.get("AWS"))) if isinstance(principal, Mapping) else [principal]
    actions = {action.lower() for action in _list(statement.get("Action", "*"))}
    if not {"*", "sns.amazonaws.com"} & set(services) or not {"*", "sqs:*", "sqs:sendmessage"} & actions:
        return False
    for comparison, wanted in statement.get("Condition", {}).items():
        for name, value in wanted.items():
            if not _holds(comparison, name, _list(value), topic_arn):
                return False
    return True


def _holds(comparison: str, name: str, values: list[str], topic_arn: str) -> bool:
    if name.lower() == "aws:securetransport":
        return values[0].lower() == "true"
    if name.lower() not in ("aws:sourcearn", "aws:sourceaccount"):
        return False
    seen = topic_arn if name.lower() == "aws:sourcearn" else topic_arn.split(":")[4]
    return any(re.fullmatch(re.escape(value).replace(r"\*", ".*"), seen) for value in values) != ("Not" in comparison)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
