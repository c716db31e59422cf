"""Observes the calls of boto3 clients and writes them down as events. Changes nothing.

Hooks: `provide-client-params` sees the parameters as the caller gave them, `before-call` gives the time of asking,
`after-call` and `after-call-error` the answer. The recorder is the first to see a question and the last to see an
answer, so whatever else is hooked in (see `wire.saboteurs`) is, to it, part of the service.

botocore: https://botocore.amazonaws.com/v1/documentation/api/latest/topics/events.html (read 2026-11-20).
"""

import copy
import hashlib
import itertools
import json
import socket
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.client import BaseClient
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

from sluice.clock import Clock, SystemClock
from sluice.history import Kind, Outcome, answer_detail, identity_of, pad_sequence_number, short_hash, unwrapped
from wire.journal import Journal

_HANDLES_MAX = 20_000
_NO_EFFECT = (EndpointConnectionError, ConnectTimeoutError)  # the request never left
_MINE = "sluice_recorder"


def host_name() -> str:
    """Return this machine's name."""
    return socket.gethostname()


class Recorder:
    """Writes what the clients attached to it do into one journal.

    Runs in one process, whose threads may share it; every process attempt has its own.

    Args:
        journal: where events go.
        names: queue URL or topic ARN to the name used in the history.
        clock: for the times of asking and answering.
    """

    def __init__(self, journal: Journal, *, names: Mapping[str, str], clock: Clock | None = None) -> None:
        self._journal = journal
        self._names = names
        self._clock = SystemClock() if clock is None else clock
        self._calls = itertools.count()
        self._planned: dict[str, tuple[int, int]] = {}
        self._handles: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def plan(self, *, deduplication_id: str, intended_at_us: int, publish_attempt: int) -> None:
        """Say when the next publish with that id was meant to happen, and the how-manieth of its message it is."""
        self._planned[deduplication_id] = (intended_at_us, publish_attempt)

    def outboxed(self, *, body: str, deduplication_id: str, created_at_us: int, taken_at_us: int, attempt: int) -> None:
        """Write down that a message was taken from an outbox: from its commit to now is what it waited there.

        Args:
            body: the message as it will be published.
            deduplication_id: it will have.
            created_at_us: its commit, microseconds UTC by the database's clock.
            taken_at_us: when it was taken, by the same clock.
            attempt: the how-manieth publish of it this is, from 1.
        """
        identity = identity_of(body=body, deduplication_id=deduplication_id, message_group_id=None)
        self.plan(deduplication_id=deduplication_id, intended_at_us=created_at_us, publish_attempt=attempt)
        self._journal.add(
            kind=Kind.OUTBOXED.value,
            message_group_id=None if identity is None else identity.message_group_id,
            idx=None if identity is None else identity.idx,
            message_run=None if identity is None else identity.run,
            deduplication_id=deduplication_id,
            publish_attempt=attempt,
            invoked_at_us=created_at_us,
            responded_at_us=taken_at_us,
            body_hash=short_hash(body),
        )

    def handled(
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
        """Write down that a message's effect was committed, or that it was set aside.

        Args:
            queue_url: where it came from.
            body: of the message.
            sqs_message_id: of the message.
            receive_count: how often it was received.
            begun_at_us: when the transaction began, microseconds UTC.
            is_parked: it was set aside, and has had no effect yet.
            state: what it was, by its number.
        """
        identity = identity_of(body=body, deduplication_id=None, message_group_id=None)
        self._journal.add(
            kind=(Kind.PARKED if is_parked else Kind.HANDLED).value,
            queue=self.name_of(queue_url),
            message_group_id=None if identity is None else identity.message_group_id,
            idx=None if identity is None else identity.idx,
            message_run=None if identity is None else identity.run,
            sqs_message_id=sqs_message_id,
            receive_count=receive_count,
            invoked_at_us=begun_at_us,
            responded_at_us=self._clock.now_us(),
            body_hash=short_hash(body),
            detail=json.dumps({"state": state}),
        )

    def attach(self, client: BaseClient) -> None:
        """Record every call of this client that has to do with messages."""
        service = client.meta.service_model.service_name
        for operation in _OPERATIONS.get(service, {}):
            event = f"{service}.{operation}"
            hooks = client.meta.events
            hooks.register_first(f"provide-client-params.{event}", self._see_parameters)
            hooks.register_first(f"before-call.{event}", self._see_question)
            hooks.register_last(f"after-call.{event}", self._see_answer)
            hooks.register_last(f"after-call-error.{event}", self._see_error)

    def _see_parameters(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        # A copy: hooks further down may change what is sent, and the recorder's side is the caller's.
        context[_MINE] = {"params": copy.deepcopy(params), "call_id": f"{self._journal.path.stem}/{next(self._calls)}"}

    def _see_question(self, model: Any, context: dict[str, Any], **_: Any) -> None:
        call = context[_MINE]
        call["service"], call["operation"] = model.service_model.service_name, model.name
        rows = _OPERATIONS[call["service"]][call["operation"]].rows(self, call["params"])
        call["rows"] = rows
        call["invoked_at_us"] = self._clock.now_us()
        if rows:
            for row in rows:
                self._add(call, row, Outcome.INFO)
            self._journal.flush()

    def _see_answer(
        self, http_response: Any, parsed: dict[str, Any], model: Any, context: dict[str, Any], **_: Any
    ) -> None:
        call = context[_MINE]
        responded_at_us = self._clock.now_us()
        operation = _OPERATIONS[model.service_model.service_name][model.name]
        if http_response.status_code >= 300:
            # A refusal had no effect. A server error may have had one.
            outcome = Outcome.FAIL if http_response.status_code < 500 else Outcome.INFO
            error = parsed.get("Error", {}).get("Code", str(http_response.status_code))
            for row in call["rows"] or [operation.failed_row(self, call["params"])]:
                self._add(call, row, outcome, responded_at_us=responded_at_us, error=error)
            return
        for row, outcome in operation.answered(self, call, parsed):
            self._add(call, row, outcome, responded_at_us=responded_at_us)

    def _see_error(self, exception: Exception, context: dict[str, Any], **_: Any) -> None:
        call = context.get(_MINE, {})
        outcome = Outcome.FAIL if isinstance(exception, _NO_EFFECT) else Outcome.INFO
        if "invoked_at_us" not in call:
            return  # it failed before it was sent
        operation = _OPERATIONS[call["service"]][call["operation"]]
        for row in call["rows"] or [operation.failed_row(self, call["params"])]:
            self._add(call, row, outcome, error=type(exception).__name__)

    def _add(self, call: Mapping[str, Any], row: Mapping[str, Any], outcome: Outcome, **more: Any) -> None:
        self._journal.add(
            **{
                "call_id": call["call_id"],
                "invoked_at_us": call["invoked_at_us"],
                "outcome": outcome.value,
                **row,
                **more,
            }
        )

    def name_of(self, address: str | None) -> str | None:
        """Return the history's name for a queue URL or topic ARN; the address itself when it has none."""
        return None if address is None else self._names.get(address, address)

    # --- what each operation says ------------------------------------------------------------------------------------

    def publish_row(self, address: str | None, entry: Mapping[str, Any], position: int | None) -> dict[str, Any]:
        """Return the event of one message being published or sent."""
        body = entry.get("Message", entry.get("MessageBody", ""))
        deduplication_id = entry.get("MessageDeduplicationId")
        group = entry.get("MessageGroupId")
        identity = identity_of(body=body, deduplication_id=deduplication_id, message_group_id=group)
        intended_at_us, attempt = self._planned.pop(deduplication_id or "", (None, None))
        return {
            "kind": Kind.PUBLISHED.value,
            "queue": self.name_of(address),
            "batch_position": position,
            "message_group_id": group,
            "deduplication_id": deduplication_id,
            "idx": None if identity is None else identity.idx,
            "message_run": None if identity is None else identity.run,
            "intended_at_us": intended_at_us,
            "publish_attempt": attempt,
            "body_hash": short_hash(body),
            "attributes_hash": _attributes_hash(entry.get("MessageAttributes")),
        }

    def handle_row(self, kind: Kind, url: str | None, entry: Mapping[str, Any], position: int | None) -> dict[str, Any]:
        """Return the event of a delete or a visibility change, with what is known of the message behind the handle."""
        handle = entry.get("ReceiptHandle", "")
        return {
            "kind": kind.value,
            "queue": self.name_of(url),
            "batch_position": position,
            "receipt_handle_hash": short_hash(handle),
            "visibility_timeout_seconds": entry.get("VisibilityTimeout"),
            **self._handles.get(handle, {}),
        }

    def poll_row(self, params: Mapping[str, Any], received_count: int) -> dict[str, Any]:
        """Return the event of one receive call."""
        return {
            "kind": Kind.POLL.value,
            "queue": self.name_of(params.get("QueueUrl")),
            "visibility_timeout_seconds": params.get("VisibilityTimeout"),
            "receive_request_attempt_id": params.get("ReceiveRequestAttemptId"),
            "max_number_of_messages": params.get("MaxNumberOfMessages", 1),
            "wait_time_seconds": params.get("WaitTimeSeconds"),
            "detail": answer_detail(received_count),
        }

    def received_row(
        self, params: Mapping[str, Any], message: Mapping[str, Any], position: int, received_count: int
    ) -> dict[str, Any]:
        """Return the event of one of the received messages, and remember its receipt handle."""
        attributes = message.get("Attributes", {})
        group = attributes.get("MessageGroupId")
        deduplication_id = attributes.get("MessageDeduplicationId")
        whole = message.get("Body", "")
        body, envelope = unwrapped(whole)
        identity = identity_of(body=body, deduplication_id=deduplication_id, message_group_id=group)
        of_message = {
            "message_group_id": group,
            "idx": None if identity is None else identity.idx,
            "message_run": None if identity is None else identity.run,
            "sqs_message_id": message.get("MessageId"),
        }
        self._remember(message.get("ReceiptHandle", ""), of_message)
        return {
            "kind": Kind.RECEIVED.value,
            "queue": self.name_of(params.get("QueueUrl")),
            "batch_position": position,
            "deduplication_id": deduplication_id,
            "sns_message_id": envelope.get("MessageId"),
            "sns_sequence_number": pad_sequence_number(envelope.get("SequenceNumber")),
            "sqs_sequence_number": pad_sequence_number(attributes.get("SequenceNumber")),
            "receive_count": _whole(attributes.get("ApproximateReceiveCount")),
            "receipt_handle_hash": short_hash(message.get("ReceiptHandle", "")),
            "sent_at_us": _ms_to_us(attributes.get("SentTimestamp")),
            "first_received_at_us": _ms_to_us(attributes.get("ApproximateFirstReceiveTimestamp")),
            "visibility_timeout_seconds": params.get("VisibilityTimeout"),
            "receive_request_attempt_id": params.get("ReceiveRequestAttemptId"),
            "max_number_of_messages": params.get("MaxNumberOfMessages", 1),
            "body_hash": short_hash(body),
            "attributes_hash": _attributes_hash(message.get("MessageAttributes")),
            "md5_ok": message.get("MD5OfBody") == hashlib.md5(whole.encode(), usedforsecurity=False).hexdigest(),
            "detail": answer_detail(received_count),
            **of_message,
        }

    def _remember(self, handle: str, of_message: dict[str, Any]) -> None:
        self._handles[handle] = of_message
        if len(self._handles) > _HANDLES_MAX:
            self._handles.popitem(last=False)


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _ms_to_us(text: str | None) -> int | None:
    return None if text is None else int(text) * 1_000


def _attributes_hash(attributes: Mapping[str, Any] | None) -> str | None:
    if not attributes:
        return None
    return short_hash(json.dumps(attributes, sort_keys=True, default=lambda raw: b64encode(raw).decode()))


type _Rows = list[dict[str, Any]]
type _Answered = list[tuple[dict[str, Any], Outcome]]


class _Intended:
    """An operation that is written down before it happens: its rows are known from its parameters.

    Args:
        address: the parameter that says where.
        make: recorder, address, entry, position -> row.
        ok_fields: entry of the answer -> fields to add.
        entries: the parameter that lists the entries; None for an operation on one message.
    """

    def __init__(
        self,
        address: str,
        make: Callable[[Recorder, str | None, Mapping[str, Any], int | None], dict[str, Any]],
        ok_fields: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda _: {},
        *,
        entries: str | None = None,
    ) -> None:
        self._address, self._make, self._ok_fields, self._entries = address, make, ok_fields, entries

    def rows(self, recorder: Recorder, params: Mapping[str, Any]) -> _Rows:
        address = params.get(self._address)
        if self._entries is None:
            return [self._make(recorder, address, params, None)]
        return [self._make(recorder, address, entry, at) for at, entry in enumerate(params.get(self._entries, []))]

    def answered(self, recorder: Recorder, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> _Answered:
        if self._entries is None:
            return [(call["rows"][0] | self._ok_fields(parsed), Outcome.OK)]
        good = {entry["Id"]: entry for entry in parsed.get("Successful", [])}
        bad = {entry["Id"]: entry for entry in parsed.get("Failed", [])}
        return [
            self._answered_entry(row, entry["Id"], good, bad)
            for row, entry in zip(call["rows"], call["params"][self._entries], strict=True)
        ]

    def _answered_entry(
        self, row: dict[str, Any], id_: str, good: Mapping[str, Any], bad: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Outcome]:
        if id_ in good:
            return row | self._ok_fields(good[id_]), Outcome.OK
        if id_ in bad:
            outcome = Outcome.FAIL if bad[id_].get("SenderFault") else Outcome.INFO
            return row | {"error": bad[id_].get("Code")}, outcome
        return row | {"error": "NotInAnswer"}, Outcome.INFO

    def failed_row(self, recorder: Recorder, params: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError("an intended operation has its rows before it fails")


class _Receive:
    """ReceiveMessage: nothing is known before the answer."""

    def rows(self, recorder: Recorder, params: Mapping[str, Any]) -> _Rows:
        return []

    def answered(self, recorder: Recorder, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> _Answered:
        params = call["params"]
        messages: Sequence[Mapping[str, Any]] = parsed.get("Messages", [])
        return [
            (recorder.poll_row(params, len(messages)), Outcome.OK),
            *(
                (recorder.received_row(params, message, at, len(messages)), Outcome.OK)
                for at, message in enumerate(messages)
            ),
        ]

    def failed_row(self, recorder: Recorder, params: Mapping[str, Any]) -> dict[str, Any]:
        return recorder.poll_row(params, 0)


def _sns_ok(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "sns_message_id": entry.get("MessageId"),
        "sns_sequence_number": pad_sequence_number(entry.get("SequenceNumber")),
    }


def _sqs_ok(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "sqs_message_id": entry.get("MessageId"),
        "sqs_sequence_number": pad_sequence_number(entry.get("SequenceNumber")),
    }


def _deleted(recorder: Recorder, url: str | None, entry: Mapping[str, Any], at: int | None) -> dict[str, Any]:
    return recorder.handle_row(Kind.DELETED, url, entry, at)


def _changed(recorder: Recorder, url: str | None, entry: Mapping[str, Any], at: int | None) -> dict[str, Any]:
    return recorder.handle_row(Kind.VISIBILITY_CHANGED, url, entry, at)


_OPERATIONS: Mapping[str, Mapping[str, _Intended | _Receive]] = {
    "sns": {
        "Publish": _Intended("TopicArn", Recorder.publish_row, _sns_ok),
        "PublishBatch": _Intended("TopicArn", Recorder.publish_row, _sns_ok, entries="PublishBatchRequestEntries"),
    },
    "sqs": {
        "SendMessage": _Intended("QueueUrl", Recorder.publish_row, _sqs_ok),
        "SendMessageBatch": _Intended("QueueUrl", Recorder.publish_row, _sqs_ok, entries="Entries"),
        "ReceiveMessage": _Receive(),
        "DeleteMessage": _Intended("QueueUrl", _deleted),
        "DeleteMessageBatch": _Intended("QueueUrl", _deleted, entries="Entries"),
        "ChangeMessageVisibility": _Intended("QueueUrl", _changed),
        "ChangeMessageVisibilityBatch": _Intended("QueueUrl", _changed, entries="Entries"),
    },
}
