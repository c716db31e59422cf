"""The Lambda function of a load test: the product's function, whose answers are wrong while a file names a way.

Lambda takes each of the wrong answers for a failure of the whole batch, which is received again.
"""

import os
from pathlib import Path
from typing import Any

from sluice.cli.services import function

VARIABLE = "SLUICE_LOAD_MISREPORT"
"""The environment variable that names the file; the file has one of the ways of `wrong_answer`."""


def handle(event: Any, context: Any) -> object:
    """Handle an event of Lambda as the product does, and return its answer, or a wrong one."""
    return report(event, function.handle(event, context))


def report(event: Any, answer: object) -> object:
    """Return the answer to an event; while the file exists, a wrong one in the way that the file names."""
    file = os.environ.get(VARIABLE)
    try:
        way = None if file is None else Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        way = None
    return answer if way is None else wrong_answer(event, way)


def wrong_answer(event: Any, way: str) -> object:
    """Return a wrong answer to an event; any other way than the four below returns a list."""
    match way:
        case "stranger":
            return {"batchItemFailures": [{"itemIdentifier": "no message of this batch"}]}
        case "nobody":
            return {"batchItemFailures": [{"itemIdentifier": ""}]}
        case "wrong-key":
            return {"batchItemFailures": [{"messageId": record["messageId"]} for record in event.get("Records", [])]}
        case "everything":
            return {
                "batchItemFailures": [{"itemIdentifier": record["messageId"]} for record in event.get("Records", [])]
            }
    return ["no answer"]
