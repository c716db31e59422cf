"""The entry point of a Lambda function whose answers are judged: the product's, or one with a classic mistake.

SLUICE_BROKEN_FUNCTION names the mistake. SLUICE_INVOCATIONS names a folder, where each process writes down how its
invocations ended: one that is killed writes nothing of the invocation that it was killed in.
"""

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import structlog

from sluice.cli.services.function import make_handler
from sluice.messaging.aws_lambda.handler import LambdaHandler
from sluice.testing.lambda_harness import Function
from sluice.testing.load.function import report
from tests.support.messaging.broken_functions import MISTAKES

MISTAKE, INVOCATIONS = "SLUICE_BROKEN_FUNCTION", "SLUICE_INVOCATIONS"
ENTRY_POINT = f"{__name__}.handle"
_MARGIN_MS = 500
"""An invocation with less time left may report messages that it has not touched."""
_begun_ids = set[str]()


def handle(event: dict[str, Any], context: Any) -> object:
    """Work on an event; a load test may make the answer wrong besides."""
    if "Records" not in event:
        return _handler()(event, context)
    _begun_ids.clear()
    answer = _function()(event, context)
    if (folder := os.environ.get(INVOCATIONS)) is not None:
        _write(Path(folder), event, answer, context.get_remaining_time_in_millis())
    return report(event, answer)


@cache
def _handler() -> LambdaHandler:
    return make_handler(failpoint=_note_begin)


@cache
def _function() -> Function:
    mistake = os.environ.get(MISTAKE)
    return _handler() if mistake is None else MISTAKES[mistake](_handler())


def _note_begin(failpoint: str) -> None:
    """Note the message that the product begins to work on, which its log names."""
    if failpoint == "after_receive":
        _begun_ids.add(structlog.contextvars.get_contextvars()["sqs_message_id"])


def _write(folder: Path, event: dict[str, Any], answer: Any, left_ms: int) -> None:
    reported_ids = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    ended = [
        {
            "group": record["attributes"]["MessageGroupId"],
            "id": record["messageId"],
            "is_begun": record["messageId"] in _begun_ids,
            "is_reported": record["messageId"] in reported_ids,
        }
        for record in event["Records"]
    ]
    with (folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"messages": ended, "left_ms": left_ms}) + "\n")


def wrong_answers(folder: Path) -> list[str]:
    """Return what is wrong with the answers that were written down, as sentences.

    From the first message of a group that is reported, all later ones of that group are; and that first one was begun.
    """
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    return [sentence for line in lines for sentence in _faults(json.loads(line))]


def _faults(invocation: dict[str, Any]) -> Iterator[str]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for message in invocation["messages"]:
        groups.setdefault(message["group"], []).append(message)
    for group, messages in groups.items():
        reported = [message["is_reported"] for message in messages]
        if reported != sorted(reported):
            yield f"of group {group}, a message behind one that failed was taken for handled"
        first = next((message for message in messages if message["is_reported"]), None)
        if first is not None and not first["is_begun"] and invocation["left_ms"] > _MARGIN_MS:
            yield f"of group {group}, message {first['id']} was reported untouched, and nothing of its group had failed"
