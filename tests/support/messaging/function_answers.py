"""Judge the answers of a Lambda function: what it reported, and what it did with each message of a batch.

Of each group the messages before its first failure are handled. That failure and all later ones of the group are
reported, and nothing of another group. No message is deleted that nobody touched.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import structlog

_MARGIN_MS = 500
"""An invocation with less time left may report messages that it has not touched."""


class AnswerLog:
    """Describes the invocations of one process: which messages the product began to work on, and which it reported."""

    def __init__(self) -> None:
        self._begun_ids = set[str]()

    def begin(self) -> None:
        """Begin an invocation."""
        self._begun_ids.clear()

    def note_message(self, failpoint: str) -> None:
        """Note the message that the product begins to work on, which its log names."""
        if failpoint == "after_receive":
            self._begun_ids.add(structlog.contextvars.get_contextvars()["sqs_message_id"])

    def describe_invocation(self, event: Mapping[str, Any], answer: Any, left_ms: int) -> dict[str, Any]:
        """Return the invocation that began with `begin`, as `wrong_answers` takes it.

        Args:
            event: of the mapping.
            answer: before anything is made wrong in it.
            left_ms: the milliseconds that were left at the end.
        """
        reported_ids = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        messages = [
            {
                "group": record["attributes"]["MessageGroupId"],
                "id": record["messageId"],
                "is_begun": record["messageId"] in self._begun_ids,
                "is_reported": record["messageId"] in reported_ids,
            }
            for record in event["Records"]
        ]
        return {"messages": messages, "left_ms": left_ms}


def wrong_answers(invocation: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the answer of an invocation, as sentences."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for message in invocation["messages"]:
        groups.setdefault(message["group"], []).append(message)
    for group, messages in groups.items():
        reported = [message["is_reported"] for message in messages]
        if reported != sorted(reported):
            yield f"of group {group}, a message behind one that failed was taken for handled"
        for message in messages:
            if not (message["is_begun"] or message["is_reported"]):
                yield f"of group {group}, message {message['id']} was taken for handled untouched"
        first = next((message for message in messages if message["is_reported"]), None)
        if first is not None and not first["is_begun"] and invocation["left_ms"] > _MARGIN_MS:
            yield f"of group {group}, message {first['id']} was reported untouched, and nothing of its group had failed"
