"""Calls to a queue: receive one message, extend its hold, release it, delete it.

Every call is tried once; the caller decides about retries. Errors have one of two meanings: the receipt handle is no
longer valid (another consumer may have the message), or the queue did not answer.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html,
API_DeleteMessage.html, API_ChangeMessageVisibility.html (read 2026-11-21).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from sluice import limits, sdk
from sluice.aws.client import LIGHT, open_client
from sluice.errors import EndpointError
from sluice.messaging.errors import HoldLostError, TransientError

_ANSWER_SECONDS = 10
CALL_SECONDS_MAX = sdk.CONNECT_SECONDS + limits.WAIT_SECONDS_MAX + _ANSWER_SECONDS
"""A call that takes longer fails; a long poll is the longest call."""
# Error codes of a receipt handle whose visibility timeout is over, or whose message was received again.
_INVALID_HANDLE_CODES = ("ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight")


def client(
    endpoint_url: str | None,
    region: str,
    *,
    connections: int,
    answer_seconds: float = limits.WAIT_SECONDS_MAX + _ANSWER_SECONDS,
    kind: str = LIGHT,
) -> Any:
    """Return an SQS client for so many threads. It tries once, and waits for longer than a long poll takes."""
    config = sdk.config(answer_seconds=answer_seconds, connections=connections)
    return open_client("sqs", endpoint_url=endpoint_url, region=region, config=config, kind=kind)


def url_of(sqs: Any, name: str) -> str:
    """Return the URL of the queue of that name.

    Raises:
        EndpointError: there is none.
        TransientError: SQS did not answer.
    """
    try:
        with explaining_errors():
            return str(sqs.get_queue_url(QueueName=name)["QueueUrl"])
    except TransientError as error:
        cause = error.__cause__
        if isinstance(cause, ClientError) and "NonExistentQueue" in str(cause.response["Error"].get("Code")):
            raise EndpointError(
                f"queue {name} is not at {sqs.meta.endpoint_url}; deploy the environment's stacks there, or correct"
                " --env or --endpoint-url"
            ) from error
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message as it was received.

    Args:
        receive_count: how often it was received, this time included.
        attributes: text attributes, by name; attributes of other types are left out.
        typed_attributes: attributes of all types, by name, as SQS has them.
        trace_header: the header of X-Ray, if the message was sent with one.
    """

    sqs_message_id: str
    receipt_handle: str
    message_group_id: str | None
    body: str
    receive_count: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    typed_attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trace_header: str | None = None


class Queue:
    """One queue for a worker. Any number of threads may share one.

    Args:
        sqs: a client that does not retry: one of boto3, which is not changed, or the light one of `client`.
    """

    def __init__(self, sqs: Any, url: str) -> None:
        self._sqs, self.url = sqs, url.strip()

    @property
    def sqs(self) -> Any:
        """Return the client."""
        return self._sqs

    def receive(self, *, attempt_id: str | None, wait_seconds: int) -> ReceivedMessage | None:
        """Return the next message of a group that no consumer works on; None if none arrives within the wait.

        Args:
            attempt_id: if the response to a call is lost, a second call with the same id delivers the same message
                again; without the id the group would wait for its visibility timeout. None for a standard queue, which
                has no such id.
            wait_seconds: the length of the long poll.

        Raises:
            TransientError: the queue did not answer.
        """
        attempt = {} if attempt_id is None else {"ReceiveRequestAttemptId": attempt_id}
        with explaining_errors():
            answer = self._sqs.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=1,
                WaitTimeSeconds=wait_seconds,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
                **attempt,
            )
        messages = filter(None, answer.get("Messages", []))
        return next(map(_to_received_message, messages), None)

    def delete(self, receipt_handle: str) -> None:
        """Delete a message.

        Raises:
            HoldLostError: the receipt handle is no longer valid; the message will be delivered again.
            TransientError: the queue did not answer; the message may be deleted.
        """
        with explaining_errors():
            self._sqs.delete_message(QueueUrl=self.url, ReceiptHandle=receipt_handle)

    def delete_batch(self, receipt_handles: Sequence[str]) -> list[HoldLostError | TransientError | None]:
        """Delete up to ten messages in one call; return the error of each, or None, in order.

        A response with HTTP 200 can contain failures. If the call is refused as a whole because of one message, each is
        deleted in a call of its own.

        Raises:
            TransientError: the queue did not answer; the messages may be deleted.
        """
        each = [partial(self.delete, handle) for handle in receipt_handles]
        if len(each) == 1:
            return _one_by_one(each)
        entries = [{"Id": str(position), "ReceiptHandle": handle} for position, handle in enumerate(receipt_handles)]
        try:
            with explaining_errors():
                answer = self._sqs.delete_message_batch(QueueUrl=self.url, Entries=entries)
        except HoldLostError:
            return _one_by_one(each)
        return _outcomes(answer, len(entries))

    def release(self, receipt_handle: str, delay_seconds: int) -> None:
        """Release a message: it can be received again after `delay_seconds`.

        Raises:
            HoldLostError: the receipt handle is no longer valid.
            TransientError: the queue did not answer; the message is visible again when its visibility timeout ends.
        """
        with explaining_errors():
            self._sqs.change_message_visibility(
                QueueUrl=self.url, ReceiptHandle=receipt_handle, VisibilityTimeout=delay_seconds
            )

    def extend(self, extended: Sequence[tuple[str, int]]) -> list[HoldLostError | TransientError | None]:
        """Hide up to ten messages for longer: (receipt handle, seconds from now).

        Return the error of each, or None, in order.

        A response with HTTP 200 can contain failures. If the call is refused as a whole because of one message, each is
        hidden in a call of its own.

        Raises:
            TransientError: the queue did not answer.
        """
        entries = [
            {"Id": str(position), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for position, (handle, seconds) in enumerate(extended)
        ]
        try:
            with explaining_errors():
                answer = self._sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)
        except HoldLostError:
            return _one_by_one([partial(self.release, handle, seconds) for handle, seconds in extended])
        return _outcomes(answer, len(entries))

    def attributes(self) -> dict[str, str]:
        """Return the queue's current attributes.

        Raises:
            TransientError: the queue did not answer, or does not exist.
        """
        with explaining_errors():
            answer = self._sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])
        return dict(answer["Attributes"])


@contextmanager
def explaining_errors() -> Iterator[None]:
    """Turn the errors of botocore into HoldLostError or TransientError."""
    try:
        yield
    except sdk.UNANSWERED as error:
        sentence = f"the queue does not answer ({type(error).__name__}: {error}); {sdk.next_step(error)}"
        raise TransientError(sentence) from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code.isdigit():  # a proxy's page has its status as the code, and botocore's message would contain the page
            sentence = f"the queue answers with HTTP {code}, and not as SQS does; look at --endpoint-url"
            raise TransientError(sentence) from error
        raise _to_error(code, str(error)) from error


def _one_by_one(calls: Sequence[Callable[[], None]]) -> list[HoldLostError | TransientError | None]:
    """Make each call and return its error, or None.

    After a TransientError the remaining calls are not made and get it too.
    """
    met: list[HoldLostError | TransientError | None] = []
    for call in calls:
        try:
            call()
        except HoldLostError as error:
            met.append(error)
        except TransientError as error:
            return met + [error] * (len(calls) - len(met))
        else:
            met.append(None)
    return met


def _outcomes(answer: Mapping[str, Any], count: int) -> list[HoldLostError | TransientError | None]:
    """Return the error of each entry of a batch, or None, in order.

    The ids of the entries are their positions. A null in the response names no entry.
    """
    done_ids = {success.get("Id") for success in filter(None, answer.get("Successful", []))}
    failed = {failure.get("Id"): failure for failure in filter(None, answer.get("Failed", []))}
    ids = [str(position) for position in range(count)]
    return [None if id_ in done_ids else _entry_error(failed.get(id_)) for id_ in ids]


def _entry_error(entry: Mapping[str, Any] | None) -> HoldLostError | TransientError:
    if entry is None:
        return TransientError("the answer does not name it")
    return _to_error(str(entry.get("Code", "")), f"{entry.get('Code')}: {entry.get('Message', '')}")


def _to_error(code: str, message: str) -> HoldLostError | TransientError:
    return HoldLostError(message) if code.rpartition(".")[2] in _INVALID_HANDLE_CODES else TransientError(message)


def _to_received_message(message: Mapping[str, Any]) -> ReceivedMessage:
    system = message.get("Attributes", {})
    attributes = message.get("MessageAttributes", {})
    return ReceivedMessage(
        sqs_message_id=message["MessageId"],
        receipt_handle=message["ReceiptHandle"],
        message_group_id=system.get("MessageGroupId"),
        body=message["Body"],
        receive_count=int(system["ApproximateReceiveCount"]),
        attributes={
            name: attribute["StringValue"] for name, attribute in attributes.items() if "StringValue" in attribute
        },
        typed_attributes=attributes,
        trace_header=system.get("AWSTraceHeader"),
    )
