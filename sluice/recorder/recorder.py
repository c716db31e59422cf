"""Observes the calls of boto3 clients and records them as events. It changes no call.

A `Recorder` is for a load test: an error of recording fails the call, because a load test must not go on unrecorded.
`sluice.recorder.record` is for any other program, also in production.

Hooks: `provide-client-params` gets the parameters as the caller gave them, `before-call` gives the time of the call,
`after-call` and `after-call-error` the answer. The recorder's hooks are the first before a call and the last after it,
so other hooks, such as those of `sluice.saboteurs`, are to the recorder a part of the service.

botocore: https://botocore.amazonaws.com/v1/documentation/api/latest/topics/events.html (read 2026-11-20).
"""

import functools
import inspect
import itertools
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from botocore.client import BaseClient
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

from sluice.clock import Clock, SystemClock
from sluice.history.events import CallOutcome, Kind, identity_of, is_sampled, short_hash, unseen_detail
from sluice.recorder.rows import OPERATIONS, Identify, JournalRow, RowFactory, to_recordable

NO_EFFECT = (EndpointConnectionError, ConnectTimeoutError)
"""Errors after which the request was certainly not sent."""
CUT = "IncompleteRead"
"""The recorded error of an answer that is shorter than its Content-Length."""
_CONTEXT_KEY = "sluice_recorder"

type BotocoreHook = Callable[..., None]


def host_name() -> str:
    """Return this machine's name."""
    return socket.gethostname()


class Writes(Protocol):
    """The target of a recorder's events: a `sluice.recorder.journal.Journal`, or an object with the same methods."""

    @property
    def path(self) -> Path:
        """Return the path of the file; no other file of the history has its name."""

    def add(self, **values: Any) -> None:
        """Write one event, now or at the next flush."""

    def flush(self) -> None:
        """Return when everything that was added survives the death of this process."""


class Recorder:
    """Writes the calls of the clients that are attached to it into one journal.

    Runs in one process, whose threads may share it; each attempt of a process has a recorder of its own. An error of
    the recorder is raised in the call that it observes.

    Args:
        journal: receives the events.
        names: queue URL or topic ARN to the name used in the history.
        clock: gives the times of calls and answers.
        identify: returns the identity of a message.
        one_group_in: one of so many message groups is recorded, with all its messages; see
            `sluice.history.events.is_sampled`.
        guard: wraps each hook.
        keeps_sizes: whether the event of a publish records the size of the body.
    """

    def __init__(
        self,
        journal: Writes,
        *,
        names: Mapping[str, str],
        clock: Clock | None = None,
        identify: Identify = identity_of,
        one_group_in: int = 1,
        guard: Callable[[BotocoreHook], BotocoreHook] = lambda hook: hook,
        keeps_sizes: bool = False,
    ) -> None:
        self._journal = journal
        self._rows = RowFactory(names=names, identify=identify, keeps_sizes=keeps_sizes)
        self._clock = SystemClock() if clock is None else clock
        self._calls = itertools.count()
        self._unseen: set[tuple[Path, str]] = set()
        self._keeps = functools.lru_cache(maxsize=10_000)(functools.partial(is_sampled, one_group_in=one_group_in))
        self.plan = self._rows.plan
        self._hooks_before = {
            "provide-client-params": guard(self._see_parameters),
            "before-call": guard(self._see_call),
            "before-sign": guard(self._see_signing),
        }
        self._hooks_after = {"after-call": guard(self._see_answer), "after-call-error": guard(self._see_error)}
        self._async_hooks_after = self._hooks_after | {"after-call": guard(self._see_whole_answer)}

    def flush(self) -> None:
        """Return when every recorded event survives the death of this process."""
        self._journal.flush()

    def record_outbox_wait(
        self, *, body: str, deduplication_id: str, created_at_us: int, taken_at_us: int, attempt: int
    ) -> None:
        """Record that a relay read a message from an outbox: the message waited there from its commit until then.

        Args:
            body: the message as it will be published.
            deduplication_id: its deduplication id when it is published.
            created_at_us: when it was committed, microseconds UTC by the database's clock.
            taken_at_us: when it was read, by the same clock.
            attempt: the number of the attempt to publish it, from 1.
        """
        self.plan(deduplication_id=deduplication_id, intended_at_us=created_at_us, publish_attempt=attempt)
        self._journal.add(
            kind=Kind.OUTBOXED.value,
            **_identity_fields(body, deduplication_id),
            deduplication_id=deduplication_id,
            publish_attempt=attempt,
            invoked_at_us=created_at_us,
            responded_at_us=taken_at_us,
            body_hash=short_hash(body),
        )

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
        """Record that the effect of a message was committed, or that the message was parked.

        Args:
            queue_url: the queue from which it was received.
            body: its body.
            sqs_message_id: its SQS message id.
            receive_count: how often it was received.
            begun_at_us: when the transaction began, microseconds UTC.
            is_parked: whether it was parked, and has had no effect yet.
            state: its state by its number, of `sluice.messaging.inbox.sequence.State`.
        """
        self._journal.add(
            kind=(Kind.PARKED if is_parked else Kind.HANDLED).value,
            queue=self._rows.name_of(queue_url),
            **_identity_fields(body, None),
            sqs_message_id=sqs_message_id,
            receive_count=receive_count,
            invoked_at_us=begun_at_us,
            responded_at_us=self._clock.now_us(),
            body_hash=short_hash(body),
            detail=json.dumps({"state": state}),
        )

    def remember_message(
        self, *, queue_url: str, receipt_handle: str, body: str, sqs_message_id: str, message_group_id: str | None
    ) -> None:
        """Remember a message that another process received, so that calls with its receipt handle name it.

        A Lambda function changes the visibility of messages that its poller received.
        """
        message = {"ReceiptHandle": receipt_handle, "Body": body, "MessageId": sqs_message_id}
        attributes = {"MessageGroupId": message_group_id}
        self._rows.receive_rows({"QueueUrl": queue_url}, {**message, "Attributes": attributes}, 0, 1)

    def attach(self, client: BaseClient) -> None:
        """Record every call of this client that concerns messages."""
        for event, hook in self._event_hooks(client, self._hooks_before):
            client.meta.events.register_first(event, hook)
        for event, hook in self._event_hooks(client, self._hooks_after_for(client)):
            client.meta.events.register_last(event, hook)

    def detach(self, client: BaseClient) -> None:
        """Record no further call of this client."""
        for event, hook in self._event_hooks(client, self._hooks_before | self._hooks_after_for(client)):
            client.meta.events.unregister(event, hook)

    def _hooks_after_for(self, client: BaseClient) -> dict[str, BotocoreHook]:
        return self._async_hooks_after if inspect.iscoroutinefunction(client.close) else self._hooks_after

    def _event_hooks(self, client: BaseClient, hooks: Mapping[str, BotocoreHook]) -> Iterable[tuple[str, BotocoreHook]]:
        service = client.meta.service_model.service_name
        for operation in OPERATIONS.get(service, {}):
            for event, hook in hooks.items():
                yield f"{event}.{service}.{operation}", hook

    def _see_parameters(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        # A copy, because later hooks may change what is sent, and the caller's parameters are recorded.
        context[_CONTEXT_KEY] = {"params": to_recordable(params)}

    def _see_call(self, model: Any, context: dict[str, Any], **_: Any) -> None:
        call = context[_CONTEXT_KEY]
        self.begin(call, service=model.service_model.service_name, operation=model.name, params=call["params"])

    def _see_signing(self, request: Any, operation_name: str, **_: Any) -> None:
        """Notice a call that a client signs and other code sends: kombu, or code with a presigned URL."""
        if "call_id" not in request.context.get(_CONTEXT_KEY, {}):
            self.note_unseen(f"{operation_name} was signed by a client of boto3, and sent by something else")

    def _see_answer(self, http_response: Any, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        if http_response.status_code < 300 and _is_cut(http_response):
            self.lose(context[_CONTEXT_KEY], CUT)
        else:
            self._see_whole_answer(http_response, parsed, context)

    def _see_whole_answer(self, http_response: Any, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        """Record an answer that is not cut; for a cut one aiobotocore, unlike botocore, raises an error."""
        self.end(context[_CONTEXT_KEY], http_response.status_code, parsed, is_repeated=_was_repeated(context))

    def _see_error(self, exception: Exception, context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT_KEY, {})
        if "invoked_at_us" not in call:
            return  # it failed before it was sent
        never_left = isinstance(exception, NO_EFFECT) and not _was_repeated(context)
        self.lose(call, type(exception).__name__, never_left=never_left)

    def begin(self, call: dict[str, Any], *, service: str, operation: str, params: Mapping[str, Any]) -> None:
        """Record a call before it is made. The caller may send the request when this returns.

        Args:
            call: an empty dict, which is filled; the caller gives it to `end` or `lose`.
            service: `sqs` or `sns`.
            operation: one of OPERATIONS.
            params: the caller's parameters, in the form of botocore's model.
        """
        call["params"] = params
        call["call_id"] = f"{self._journal.path.stem}/{next(self._calls)}"
        call["operation"] = OPERATIONS[service][operation]
        rows = call["operation"].begin(self._rows, call)
        call["invoked_at_us"] = self._clock.now_us()
        added = [self._add(call, row, CallOutcome.INFO) for row in rows]
        if any(added) and call["operation"].is_flushed:
            self._journal.flush()

    def end(
        self, call: Mapping[str, Any], status_code: int, parsed: Mapping[str, Any], *, is_repeated: bool = False
    ) -> None:
        """Record the answer to a call.

        Args:
            call: the dict that `begin` filled.
            status_code: the status code of HTTP.
            parsed: the answer, as botocore returns it.
            is_repeated: whether the request was sent more than once.
        """
        responded_at_us = self._clock.now_us()
        if status_code >= 300:
            # A refusal had no effect. A server error may have had one, and so may a try before the last.
            outcome = CallOutcome.FAIL if status_code < 500 and not is_repeated else CallOutcome.INFO
            error = parsed.get("Error", {}).get("Code", str(status_code))
            for row in call["operation"].failure_rows(self._rows, call):
                self._add(call, row, outcome, responded_at_us=responded_at_us, error=error)
            return
        for row, outcome in call["operation"].answer_rows(self._rows, call, parsed):
            self._add(call, row, outcome, responded_at_us=responded_at_us)
        if is_repeated:
            self._add_lost_polls(call)

    def lose(self, call: Mapping[str, Any], error: str, *, never_left: bool = False) -> None:
        """Record that a call has no answer; `never_left` says that the request was not sent."""
        for row in call["operation"].failure_rows(self._rows, call):
            self._add(call, row, CallOutcome.FAIL if never_left else CallOutcome.INFO, error=error)

    def note_unseen(self, calls: str) -> None:
        """Record, once in each process, that some calls could not be recorded, so a missing event may have happened."""
        path = self._journal.path
        if (path, calls) not in self._unseen:
            self._unseen.add((path, calls))
            self._journal.add(kind=Kind.TOPOLOGY.value, invoked_at_us=self._clock.now_us(), detail=unseen_detail(calls))

    def _add_lost_polls(self, call: Mapping[str, Any]) -> None:
        """Record that botocore repeated a receive by itself: an earlier try may have leased messages."""
        if not call["operation"].is_flushed:
            lost = {**call, "call_id": f"{call['call_id']}/lost"}
            for row in call["operation"].failure_rows(self._rows, call):
                self._add(lost, row, CallOutcome.INFO, error="Repeated")

    def _add(self, call: Mapping[str, Any], row: JournalRow, outcome: CallOutcome, **more: Any) -> bool:
        """Write a row of a call, unless its group is not sampled; return whether it was written."""
        group = row.get("message_group_id")
        if group is not None and not self._keeps(group):
            return False
        fields = {"call_id": call["call_id"], "invoked_at_us": call["invoked_at_us"], "outcome": outcome.value}
        self._journal.add(**fields | row | more)
        return True


def _identity_fields(body: str, deduplication_id: str | None) -> JournalRow:
    """Return the fields that say which of our messages a body is; empty if the body does not say."""
    identity = identity_of(body=body, deduplication_id=deduplication_id, message_group_id=None)
    if identity is None:
        return {}
    return {"message_group_id": identity.message_group_id, "idx": identity.idx, "message_run": identity.run}


def _is_cut(http_response: Any) -> bool:
    """Return whether the connection ended before the response did: botocore reads a cut response of SQS as empty.

    Seen with botocore 1.44.5 and urllib3 2.8.0: a receive whose answer was cut said that the queue was empty.
    """
    content_length = http_response.headers.get("content-length", "")
    return content_length.isdecimal() and len(http_response.content) < int(content_length)


def _was_repeated(context: Mapping[str, Any]) -> bool:
    """Return whether botocore sent the request more than once."""
    return int(context.get("retries", {}).get("attempt", 1)) > 1
