"""Hooks that record the history of worker and relay for the checker."""

from collections.abc import Sequence
from typing import Protocol

from sluice.messaging.inbox.sequence import Action
from sluice.messaging.outbox.store import Head
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.sqs.queue import ReceivedMessage
from sluice.messaging.worker.hooks import Gauges, SettledMessage, WorkerHooks


class RecorderHook(Protocol):
    """A writer of the history; `sluice.recorder.recorder.Recorder` implements it."""

    def record_outbox_wait(
        self, *, body: str, deduplication_id: str, created_at_us: int, taken_at_us: int, attempt: int
    ) -> None:
        """Record that a message was read from the outbox to be published."""

    def record_handled(
        self,
        *,
        queue_url: str,
        body: str,
        sqs_message_id: str,
        receive_count: int,
        begun_at_us: int,
        is_parked: bool,
        state: str,
    ) -> None:
        """Record that a message's effect was committed, or that the message was parked."""

    def remember_message(
        self, *, queue_url: str, receipt_handle: str, body: str, sqs_message_id: str, message_group_id: str | None
    ) -> None:
        """Remember a message that another process received, for calls with its receipt handle."""

    def flush(self) -> None:
        """Return when everything recorded is safe from the death of this process."""


class RelayRecording(RelayHooks):
    """Records each message that a relay is about to publish."""

    def __init__(self, recorder: RecorderHook) -> None:
        self._recorder = recorder

    def before_publish(self, head: Head, taken_at_us: int) -> None:
        """Record an attempt to publish a message, with the instants of its commit and of its read."""
        self._recorder.record_outbox_wait(
            body=head.body,
            deduplication_id=head.deduplication_id,
            created_at_us=head.created_at_us,
            taken_at_us=taken_at_us,
            attempt=head.attempts + 1,
        )


class WorkerRecording(WorkerHooks):
    """Records handled messages."""

    def __init__(self, recorder: RecorderHook, *, queue_url: str) -> None:
        self._recorder, self._queue_url = recorder, queue_url

    def before_acknowledge(self, settled: SettledMessage) -> None:
        """Record that a message was handled or parked; a duplicate is not recorded."""
        message, decision = settled.message, settled.decision
        if decision.action is not Action.DROP:
            self._recorder.record_handled(
                queue_url=self._queue_url,
                body=message.body,
                sqs_message_id=message.dead_letter_id,
                receive_count=message.receive_count,
                begun_at_us=settled.begun_at_us,
                is_parked=decision.action is Action.PARK,
                state=decision.state.value,
            )

    def before_invocation(self, messages: Sequence[ReceivedMessage]) -> None:
        """Remember the batch, whose visibility timeouts the function may change."""
        for message in messages:
            self._recorder.remember_message(
                queue_url=self._queue_url,
                receipt_handle=message.receipt_handle,
                body=message.body,
                sqs_message_id=message.sqs_message_id,
                message_group_id=message.message_group_id,
            )

    def after_invocation(self, _gauges: Gauges | None, _seconds_max: float) -> None:
        """Write what is recorded before the function answers: its process may be frozen then, or ended."""
        self._recorder.flush()
