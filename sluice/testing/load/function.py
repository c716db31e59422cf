"""The Lambda function of a load test: the product's, whose answers are wrong as long as a file says how.

Lambda takes each of these answers for a failure of the whole batch, so that all of it comes again.
"""

import os
from pathlib import Path
from typing import Any

from sluice.cli.services import function

VARIABLE = "SLUICE_LOAD_MISREPORT"
"""Names the file."""


def handle(event: Any, context: Any) -> object:
    """Work on an event, and answer as the product does or wrongly."""
    return report(event, function.handle(event, context))


def report(event: Any, answer: object) -> object:
    """Return the answer to an event, or a wrong one as long as a file says so."""
    file = os.environ.get(VARIABLE)
    try:
        way = None if file is None else Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        way = None
    return answer if way is None else wrong_answer(event, way)


def wrong_answer(event: Any, way: str) -> object:
    """Return an answer that is wrong in that way."""
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
