"""The process of a Lambda function. Lambda imports this module when it starts the process, then calls `handle`.

As for a worker, SLUICE_ENV, SLUICE_CONSUMER and the variables of the database say what the process works on. All
settings are read and handlers loaded during the import: Lambda gives it up to ten seconds and a whole processor, and an
error there is a failed start, which counts as no attempt at any message.
https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html (read 2026-11-27)
"""

import os
from functools import cache
from typing import Any

from sluice.cli.services.function_handler import make_handler
from sluice.messaging.aws_lambda.handler import LambdaHandler

_IN_LAMBDA = "AWS_LAMBDA_RUNTIME_API"
"""Set in every process that Lambda starts."""


def handle(event: object, context: Any) -> dict[str, Any]:
    """Handle a batch of messages of the consumer's queue, or the event of its schedule, which maintains the inbox.

    Raises:
        ConfigError: an environment variable, the declaration or the event is not valid.
    """
    return _handler()(event, context)


@cache
def _handler() -> LambdaHandler:
    """Return the process's handler, made at the first call: declaration, handlers, database, metrics."""
    return make_handler()


if _IN_LAMBDA in os.environ:
    _handler()
