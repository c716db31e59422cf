"""Lambda functions with the classic mistakes, each made of the product's handler; a judge has to notice each.

Where users of another library reported a mistake, the docstring names the issue.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from sluice.messaging.aws_lambda.batch import read_batch
from sluice.messaging.aws_lambda.handler import LambdaHandler
from sluice.messaging.inbox import tables
from sluice.messaging.sqs import queue as queues
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.worker.hooks import WorkerHooks
from sluice.testing.lambda_harness import Function, FunctionContext

_RECEIVES_MAX = 3
_remembered: defaultdict[LambdaHandler, set[str]] = defaultdict(set)
"""The groups that failed in a process."""


def report_only_the_failed(handler: LambdaHandler) -> Function:
    """Handle each message of a batch as if it were alone, also those behind a failure of their group.

    https://github.com/aws-powertools/powertools-lambda-python/issues/1927,
    https://github.com/aws-powertools/powertools-lambda-java/issues/1140
    """

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        answers = [handler({"Records": [record]}, context) for record in event["Records"]]
        return {"batchItemFailures": [failure for answer in answers for failure in answer["batchItemFailures"]]}

    return function


def stop_the_whole_batch(handler: LambdaHandler) -> Function:
    """Report everything behind the first failure, of whatever group.

    https://github.com/aws-powertools/powertools-lambda-python/issues/2981,
    https://github.com/aws-powertools/powertools-lambda-typescript/issues/2561
    """

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        for position, record in enumerate(event["Records"]):
            if handler({"Records": [record]}, context)["batchItemFailures"]:
                left = event["Records"][position:]
                return {"batchItemFailures": [{"itemIdentifier": each["messageId"]} for each in left]}
        return {"batchItemFailures": []}

    return function


def delete_before_commit(handler: LambdaHandler) -> Function:
    """Delete the messages of a batch before they are handled: what fails, or dies with its commit open, is lost."""

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        batch, parts = read_batch(event), handler.worker.parts
        parts.hooks.call(WorkerHooks.before_invocation, batch.messages)  # a recorder knows them from here on
        sqs = parts.queue.sqs
        queue = Queue(sqs, queues.url_of(sqs, batch.queue_name))
        queue.delete_batch([message.receipt_handle for message in batch.messages])
        return handler(event, context)

    return function


def count_receives_as_attempts(handler: LambdaHandler) -> Function:
    """Take what was received more than three times for dead, and send it to the DLQ."""

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        batch, left = read_batch(event), []
        for record, message in zip(event["Records"], batch.messages, strict=True):
            if message.receive_count > _RECEIVES_MAX:
                handler.queues_of(batch.queue_name).move_to_dlq(message)
            else:
                left.append(record)
        return handler({"Records": left}, context) if left else {"batchItemFailures": []}

    return function


def lose_the_mark(handler: LambdaHandler) -> Function:
    """Commit the effect, and lose that it was handled: effect and mark are not in one transaction.

    https://github.com/aws-powertools/powertools-lambda-python/issues/2023
    """

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        answer = handler(event, context)
        with handler.worker.parts.engine.begin() as connection:
            for table in tables.metadata.tables.values():
                connection.execute(table.delete())
        return answer

    return function


def remember_failed_groups(handler: LambdaHandler) -> Function:
    """Report every message of a group that failed in an earlier invocation of the same process, without a handler.

    https://github.com/aws-powertools/powertools-lambda-typescript/issues/3673
    """

    def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
        groups = {record["messageId"]: record["attributes"]["MessageGroupId"] for record in event["Records"]}
        left = [record for record in event["Records"] if groups[record["messageId"]] not in _remembered[handler]]
        answer = handler({"Records": left}, context) if left else {"batchItemFailures": []}
        _remembered[handler] |= {groups[failure["itemIdentifier"]] for failure in answer["batchItemFailures"]}
        skipped = [{"itemIdentifier": record["messageId"]} for record in event["Records"] if record not in left]
        return {"batchItemFailures": [*answer["batchItemFailures"], *skipped]}

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
