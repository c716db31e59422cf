"""The entry point of a Lambda function whose answers are judged: the product's, or one with a classic mistake.

SLUICE_BROKEN_FUNCTION names the mistake. SLUICE_INVOCATIONS names a folder, where each process writes down how its
invocations ended: one that is killed writes nothing of the invocation that it was killed in.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from sluice.cli.services.function_handler import make_handler
from sluice.messaging.aws_lambda.handler import LambdaHandler
from sluice.testing.lambda_harness import Function
from sluice.testing.load.function import report
from tests.support.messaging import function_answers
from tests.support.messaging.broken_functions import MISTAKES
from tests.support.messaging.function_answers import AnswerLog

MISTAKE, INVOCATIONS = "SLUICE_BROKEN_FUNCTION", "SLUICE_INVOCATIONS"
ENTRY_POINT = f"{__name__}.handle"
_answers = AnswerLog()


def handle(event: dict[str, Any], context: Any) -> object:
    """Work on an event; a load test may make the answer wrong besides."""
    if "Records" not in event:
        return _handler()(event, context)
    _answers.begin()
    answer = _function()(event, context)
    if (folder := os.environ.get(INVOCATIONS)) is not None:
        described = _answers.describe_invocation(event, answer, context.get_remaining_time_in_millis())
        with (Path(folder) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(described) + "\n")
    return report(event, answer)


@cache
def _handler() -> LambdaHandler:
    return make_handler(failpoint=_answers.note_message)


@cache
def _function() -> Function:
    mistake = os.environ.get(MISTAKE)
    return _handler() if mistake is None else MISTAKES[mistake](_handler())


def wrong_answers(folder: Path) -> list[str]:
    """Return what is wrong with the answers that were written down, as sentences."""
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    return [sentence for line in lines for sentence in function_answers.wrong_answers(json.loads(line))]


if "AWS_LAMBDA_RUNTIME_API" in os.environ:  # as the product's: the start has more time than an invocation
    _function()
