"""A transport over boto3: its client, its signatures, its hooks, in a few threads."""

import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sluice.errors import MessagingError
from spark_load.transport import Answer, Call
from wire.recorder import Recorder

_THREADS = 8


class SdkTransport:
    """A `Transport` over a recorded boto3 client.

    Args:
        client: of SNS or SQS; a recorder is attached to it, and saboteurs may be.
        recorder: which.
    """

    def __init__(self, client: Any, recorder: Recorder) -> None:
        self._client, self._recorder = client, recorder
        self._call = self._publish if client.meta.service_model.service_name == "sns" else self._send_messages
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="publish")
        self._answers: queue.SimpleQueue[Answer | MessagingError] = queue.SimpleQueue()
        self._on_their_way = 0

    @property
    def room(self) -> int:
        """Return how many calls may be sent now."""
        return _THREADS - self._on_their_way

    def send(self, calls: Sequence[Call]) -> None:
        """Hand each call to a thread; the recorder writes it down there."""
        for call in calls:
            for message in call.messages:
                self._recorder.plan(
                    deduplication_id=message.deduplication_id,
                    intended_at_us=message.intended_at_us,
                    publish_attempt=message.publish_attempt,
                    phase=message.phase,
                )
            self._on_their_way += 1
            self._threads.submit(self._carry, call)

    def _carry(self, call: Call) -> None:
        try:
            self._answers.put(Answer(call, self._errors(call)))
        except MessagingError as error:  # what cannot be written down may not be sent
            self._answers.put(error)

    def _errors(self, call: Call) -> dict[int, str]:
        positions = range(len(call.messages))
        try:
            answer = self._call(call)
        except ClientError as error:
            return dict.fromkeys(positions, error.response["Error"].get("Code", ""))
        except BotoCoreError as error:
            return dict.fromkeys(positions, type(error).__name__)
        acknowledged = {entry["Id"] for entry in answer.get("Successful", [])}
        codes = {entry["Id"]: entry.get("Code", "") for entry in answer.get("Failed", [])}
        return {at: codes.get(str(at), "NotInAnswer") for at in positions if str(at) not in acknowledged}

    def _publish(self, call: Call) -> dict[str, Any]:
        entries = [
            {
                "Id": str(position),
                "Message": message.body,
                "MessageGroupId": message.message_group_id,
                "MessageDeduplicationId": message.deduplication_id,
            }
            for position, message in enumerate(call.messages)
        ]
        return self._client.publish_batch(TopicArn=call.address, PublishBatchRequestEntries=entries)  # type: ignore[no-any-return]

    def _send_messages(self, call: Call) -> dict[str, Any]:
        entries = [
            {
                "Id": str(position),
                "MessageBody": message.body,
                "MessageGroupId": message.message_group_id,
                "MessageDeduplicationId": message.deduplication_id,
            }
            for position, message in enumerate(call.messages)
        ]
        return self._client.send_message_batch(QueueUrl=call.address, Entries=entries)  # type: ignore[no-any-return]

    def answers(self, wait_seconds: float) -> Sequence[Answer]:
        """Return what was answered or given up since.

        Raises:
            MessagingError: a call could not be written down, and was not made.
        """
        came: list[Answer] = []
        if self._on_their_way:
            try:
                came.append(self._next(wait_seconds))
                while True:
                    came.append(self._next(0))
            except queue.Empty:
                pass
        self._on_their_way -= len(came)
        return came

    def _next(self, wait_seconds: float) -> Answer:
        came = self._answers.get(timeout=wait_seconds) if wait_seconds > 0 else self._answers.get_nowait()
        if isinstance(came, MessagingError):
            raise came
        return came

    def close(self) -> None:
        """Wait for what is on its way, and end the threads."""
        self._threads.shutdown()
