"""Lambda functions with the classic mistakes, each made of the product's handler; a judge has to notice each."""

from collections.abc import Callable, Mapping
from typing import Any

from sluice.messaging.aws_lambda.batch import read_batch
from sluice.messaging.aws_lambda.handler import LambdaHandler
from sluice.testing.lambda_harness import Function, FunctionContext

_RECEIVES_MAX = 3


def report_only_the_failed(handler: LambdaHandler) -> Function:
    """Handle each message of a batch as if it were alone."""

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        answers = [handler({"Records": [record]}, context) for record in event["Records"]]
        return {"batchItemFailures": [failure for answer in answers for failure in answer["batchItemFailures"]]}

    return function


def stop_the_whole_batch(handler: LambdaHandler) -> Function:
    """Report everything behind the first failure, of whatever group."""

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        for position, record in enumerate(event["Records"]):
            if handler({"Records": [record]}, context)["batchItemFailures"]:
                left = event["Records"][position:]
                return {"batchItemFailures": [{"itemIdentifier": each["messageId"]} for each in left]}
        return {"batchItemFailures": []}

    return function


def delete_before_commit(handler: LambdaHandler) -> Function:
    """Answer that everything was handled, whatever fails."""

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        handler(event, context)
        return {"batchItemFailures": []}

    return function


def count_receives_as_attempts(handler: LambdaHandler) -> Function:
    """Take what was received more than three times for dead, and send it to the DLQ."""

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        batch, left = read_batch(event), []
        for record, message in zip(event["Records"], batch.messages, strict=True):
            if message.received.receive_count > _RECEIVES_MAX:
                handler.queues_of(batch.queue_name).move_to_dlq(message)
            else:
                left.append(record)
        return handler({"Records": left}, context) if left else {"batchItemFailures": []}

    return function


def succeed_after_errors(handler: LambdaHandler) -> Function:
    """Answer that everything was handled where the invocation as a whole fails."""

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        try:
            return handler(event, context)
        except Exception:
            return {"batchItemFailures": []}

    return function


class EndlessContext:
    """A context of an invocation that never ends."""

    def get_remaining_time_in_millis(self) -> int:
        """Return a quarter of an hour."""
        return 900_000


def ignore_the_deadline(handler: LambdaHandler) -> Function:
    """Go on, and commit, whatever time is left."""
    return lambda event, _: handler(event, EndlessContext())


MISTAKES: Mapping[str, Callable[[LambdaHandler], Function]] = {
    "report-only-the-failed": report_only_the_failed,
    "stop-the-whole-batch": stop_the_whole_batch,
    "delete-before-commit": delete_before_commit,
    "count-receives-as-attempts": count_receives_as_attempts,
}
"""By name."""
