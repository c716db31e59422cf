"""Observes the calls of boto3 clients and writes them down as events. Changes nothing.

`record` is for anyone's clients, in production too; a `Recorder` on a journal for a load test, which would rather fail
than go on unrecorded.

Hooks: `provide-client-params` sees the parameters as the caller gave them, `before-call` gives the time of asking,
`after-call` and `after-call-error` the answer. The recorder is the first to see a question and the last to see an
answer, so whatever else is hooked in (see `sluice.saboteurs`) is, to it, part of the service.

botocore: https://botocore.amazonaws.com/v1/documentation/api/latest/topics/events.html (read 2026-11-20).
"""

import atexit
import copy
import functools
import hashlib
import inspect
import itertools
import json
import logging
import re
import socket
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from botocore.client import BaseClient
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigError
from sluice.history.events import (
    Identity,
    Kind,
    Outcome,
    identity_of,
    is_sampled,
    recording_detail,
    short_hash,
    stable_idx,
)
from sluice.recorder.process_journal import ProcessJournal
from sluice.recorder.rows import OPERATIONS, Identify, Row, Rows

_NO_EFFECT = (EndpointConnectionError, ConnectTimeoutError)  # the request never left
_CUT = "IncompleteRead"
_MINE = "sluice_recorder"
_log = logging.getLogger(__name__)

type Hook = Callable[..., None]


def _bare(hook: Hook) -> Hook:
    return hook


def host_name() -> str:
    """Return this machine's name."""
    return socket.gethostname()


class Writes(Protocol):
    """What a recorder writes to: a `sluice.recorder.journal.Journal`, or what stands for one."""

    @property
    def path(self) -> Path:
        """Return the file, whose name no other of the history has."""

    def add(self, **values: Any) -> None:
        """Write one event, sooner or later."""

    def flush(self) -> None:
        """Return when everything written is safe from the death of this process."""


class Recorder:
    """Writes what the clients attached to it do into one journal.

    Runs in one process, whose threads may share it; every process attempt has its own. What goes wrong in it goes wrong
    in the call it observes.

    Args:
        journal: where events go.
        names: queue URL or topic ARN to the name used in the history.
        clock: for the times of asking and answering.
        identify: which message a body is.
        one_group_in: of so many message groups one is written down, as a whole; see `sluice.history.events.is_sampled`.
        guard: put around every hook.
    """

    def __init__(
        self,
        journal: Writes,
        *,
        names: Mapping[str, str],
        clock: Clock | None = None,
        identify: Identify = identity_of,
        one_group_in: int = 1,
        guard: Callable[[Hook], Hook] = _bare,
    ) -> None:
        self._journal = journal
        self._rows = Rows(names=names, identify=identify)
        self._clock = SystemClock() if clock is None else clock
        self._calls = itertools.count()
        self._keeps = functools.lru_cache(maxsize=10_000)(functools.partial(is_sampled, one_group_in=one_group_in))
        self._hooks: tuple[tuple[str, bool, Hook], ...] = (
            ("provide-client-params", True, guard(self._see_parameters)),
            ("before-call", True, guard(self._see_question)),
            ("after-call", False, guard(self._see_answer)),
            ("after-call-error", False, guard(self._see_error)),
        )

    def plan(
        self, *, deduplication_id: str, intended_at_us: int, publish_attempt: int, phase: str | None = None
    ) -> None:
        """Say of the next publish with that id: when it was meant to be, its how-manieth it is, in which phase."""
        self._rows.plan(
            deduplication_id=deduplication_id,
            intended_at_us=intended_at_us,
            publish_attempt=publish_attempt,
            phase=phase,
        )

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
            queue=self._rows.name_of(queue_url),
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
        hooks = client.meta.events
        for event, is_first, hook in self._listened(client):
            (hooks.register_first if is_first else hooks.register_last)(event, hook)

    def detach(self, client: BaseClient) -> None:
        """Record no further call of this client."""
        for event, _, hook in self._listened(client):
            client.meta.events.unregister(event, hook)

    def _listened(self, client: BaseClient) -> Iterable[tuple[str, bool, Hook]]:
        service = client.meta.service_model.service_name
        for operation in OPERATIONS.get(service, {}):
            for event, is_first, hook in self._hooks:
                yield f"{event}.{service}.{operation}", is_first, hook

    def _see_parameters(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        # A copy: hooks further down may change what is sent, and the recorder's side is the caller's.
        context[_MINE] = {"params": copy.deepcopy(params), "call_id": f"{self._journal.path.stem}/{next(self._calls)}"}

    def _see_question(self, model: Any, context: dict[str, Any], **_: Any) -> None:
        call = context[_MINE]
        call["operation"] = OPERATIONS[model.service_model.service_name][model.name]
        call["rows"] = call["operation"].before(self._rows, call["params"])
        call["invoked_at_us"] = self._clock.now_us()
        added = [self._add(call, row, Outcome.INFO) for row in call["rows"]]
        if any(added):
            self._journal.flush()

    def _see_answer(self, http_response: Any, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        call = context[_MINE]
        responded_at_us = self._clock.now_us()
        if http_response.status_code >= 300:
            # A refusal had no effect. A server error may have had one, and so may a try before the last.
            is_refused = http_response.status_code < 500 and not _was_repeated(context)
            error = parsed.get("Error", {}).get("Code", str(http_response.status_code))
            for row in call["operation"].failed(self._rows, call):
                outcome = Outcome.FAIL if is_refused else Outcome.INFO
                self._add(call, row, outcome, responded_at_us=responded_at_us, error=error)
            return
        if _is_cut(http_response):
            self._add_unanswered(call, Outcome.INFO, _CUT)
            return
        for row, outcome in call["operation"].answered(self._rows, call, parsed):
            self._add(call, row, outcome, responded_at_us=responded_at_us)
        if _was_repeated(context):
            self._add_lost_polls(call)

    def _add_lost_polls(self, call: Mapping[str, Any]) -> None:
        """Write down that botocore asked again on its own: a receive before the last try may have leased messages."""
        if not call["rows"]:
            lost = {**call, "call_id": f"{call['call_id']}/lost"}
            for row in call["operation"].failed(self._rows, call):
                self._add(lost, row, Outcome.INFO, error="Repeated")

    def _see_error(self, exception: Exception, context: dict[str, Any], **_: Any) -> None:
        call = context.get(_MINE, {})
        if "invoked_at_us" not in call:
            return  # it failed before it was sent
        never_left = isinstance(exception, _NO_EFFECT) and not _was_repeated(context)
        self._add_unanswered(call, Outcome.FAIL if never_left else Outcome.INFO, type(exception).__name__)

    def _add_unanswered(self, call: Mapping[str, Any], outcome: Outcome, error: str) -> None:
        for row in call["operation"].failed(self._rows, call):
            self._add(call, row, outcome, error=error)

    def _add(self, call: Mapping[str, Any], row: Row, outcome: Outcome, **more: Any) -> bool:
        """Write a row of a call, unless it is of a group that is left out; return whether it was written."""
        group = row.get("message_group_id")
        if group is not None and not self._keeps(group):
            return False
        said = {"call_id": call["call_id"], "invoked_at_us": call["invoked_at_us"], "outcome": outcome.value}
        self._journal.add(**said | row | more)
        return True


def _is_cut(http_response: Any) -> bool:
    """Return whether the connection ended before the answer did: botocore then reads of SQS an answer without entries.

    Seen with botocore 1.44.5 and urllib3 2.8.0: a receive whose answer was cut said that the queue was empty.
    """
    said = http_response.headers.get("content-length", "")
    return said.isdecimal() and len(http_response.content) < int(said)


def _was_repeated(context: Mapping[str, Any]) -> bool:
    """Return whether botocore sent the request more than once."""
    return int(context.get("retries", {}).get("attempt", 1)) > 1


# --- anyone's clients ------------------------------------------------------------------------------------------------


class Recording:
    """What `record` returns: a context manager, or something to close.

    Closing says that everything was written down. A recording that was not closed is a history a check calls unknown:
    its process was killed, or forgot.
    """

    def __init__(
        self,
        folder: Path,
        *,
        run: str,
        worker: str,
        one_group_in: int,
        key: Callable[[str], str] | None,
        names: Mapping[str, str],
        clock: Clock | None,
    ) -> None:
        self._journal = ProcessJournal(
            folder,
            worker=worker,
            common={"run": run, "host": host_name()},
            clock=clock,
            opening={"kind": Kind.TOPOLOGY.value, "detail": recording_detail(one_group_in)},
        )
        self._recorder = Recorder(
            self._journal,
            names=names,
            clock=self._journal.clock,
            identify=functools.partial(_identify, run, key),
            one_group_in=one_group_in,
            guard=self._guarded,
        )
        self._clients: list[BaseClient] = []
        self._is_on = True
        _open.add(self)

    @property
    def is_on(self) -> bool:
        """Return whether calls are written down: not any more once it is closed, or could not write."""
        return self._is_on

    def attach(self, client: BaseClient) -> None:
        """Record this client too, from its next call on.

        Raises:
            ConfigError: it is no client of SNS or SQS, or is being recorded.
        """
        _check_client(client)
        _recorded.add(client)
        self._clients.append(client)
        self._recorder.attach(client)

    def flush(self) -> None:
        """Hand everything recorded to the operating system."""
        self._careful(self._journal.flush)()

    def close(self) -> None:
        """Stop recording, and say in the journal that it is whole. A second time does nothing."""
        for client in self._clients:
            self._recorder.detach(client)
            _recorded.discard(client)
        self._clients.clear()
        self._careful(self._journal.close)()
        self._is_on = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, whatever happened: what the clients did is on record up to here."""
        self.close()

    def _guarded(self, hook: Hook) -> Hook:
        return self._careful(hook)

    def _careful(self, do: Hook) -> Hook:
        """Return what does the same while recording is on, and turns it off where that fails."""

        @functools.wraps(do)
        def careful(**seen: Any) -> None:
            if self._is_on:
                try:
                    do(**seen)
                except Exception as error:  # whatever it is, the host's call is not to fail of it
                    self._is_on = False
                    _log.error(
                        "recording to %s stopped (%s: %s); calls go on unrecorded, and a check will call them unknown",
                        self._journal.folder,
                        type(error).__name__,
                        error,
                    )

        return careful


_open: "weakref.WeakSet[Recording]" = weakref.WeakSet()
_recorded: "weakref.WeakSet[BaseClient]" = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    for recording in list(_open):
        recording.flush()


def record(
    clients: BaseClient | Iterable[BaseClient],
    folder: Path | str,
    *,
    one_group_in: int = 1,
    run: str | None = None,
    worker: str = "recorded",
    key: Callable[[str], str] | None = None,
    names: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Recording:
    """Write the history of what anyone's SNS and SQS clients do, for `sluice check`.

    The calls are as before, and stay so where the history cannot be written any more: recording then stops, says so
    once in the log, and leaves its journal without an end. Bodies and attributes are written as hashes only; message
    group ids and deduplication ids as they are.

    Args:
        clients: SNS and SQS clients of boto3, of this process; of a resource its `meta.client`.
        folder: of the journals, for every process of a machine the same one; created when missing.
        one_group_in: of so many message groups one is kept, as a whole: the same in every process.
        run: what the history is called, in every process the same; None takes the folder's name.
        worker: who records, in file names; host, process and time make it unique.
        key: body to what tells a message from the others of its group. None takes the deduplication id, by which a
            message published again under another one is another message.
        names: queue URL or topic ARN to its name in the history; what is not there has the name at its own end.
        clock: None means this machine's.

    Returns:
        A context manager. After a fork the child records into a journal of its own, and has to close it too.

    Raises:
        ConfigError: an argument cannot be right.
        HistoryError: the folder cannot be written.
    """
    if one_group_in < 1:
        raise ConfigError(f"one_group_in is {one_group_in}, allowed is a whole number from 1, which keeps every group")
    if re.fullmatch(r"[\w.-]+", worker) is None:
        raise ConfigError(f"worker is {worker!r}, allowed are letters, digits, '.', '_' and '-': it names a file")
    listed = [clients] if isinstance(clients, BaseClient) else list(clients)
    for client in listed:
        _check_client(client)
    folder = Path(folder)
    recording = Recording(
        folder,
        run=folder.resolve().name if run is None else run,
        worker=worker,
        one_group_in=one_group_in,
        key=key,
        names={} if names is None else names,
        clock=clock,
    )
    for client in listed:
        recording.attach(client)
    return recording


def _check_client(client: Any) -> None:
    if not isinstance(client, BaseClient):
        raise ConfigError(f"{type(client).__name__} is no client of boto3; of a resource pass its meta.client")
    if inspect.iscoroutinefunction(client._make_api_call):  # noqa: SLF001 (what tells aiobotocore's clients apart)
        raise ConfigError(
            f"{type(client).__name__} answers asynchronously, as the clients of aiobotocore do, and its calls would not"
            " be recorded; allowed are clients of boto3"
        )
    service = client.meta.service_model.service_name
    if service not in OPERATIONS:
        raise ConfigError(f"a client of {service!r} sends no messages, allowed are {' and '.join(OPERATIONS)}")
    if client in _recorded:
        raise ConfigError(f"this client of {service!r} is being recorded; close that recording first")


def _identify(
    run: str, key: Callable[[str], str] | None, *, body: str, deduplication_id: str | None, message_group_id: str | None
) -> Identity:
    """Return which message a stranger's body is: by its key, else by its deduplication id.

    AWS: content-based deduplication takes the SHA-256 of the body,
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html (read 2026-11-21).
    """
    text = None if key is None else _said(key, body)
    if text is None:
        text = hashlib.sha256(body.encode()).hexdigest() if deduplication_id is None else deduplication_id
    return Identity(run=run, message_group_id=message_group_id or "", idx=stable_idx(text))


def _said(key: Callable[[str], str], body: str) -> str | None:
    """Return the key of a body; None for one that has none, such as a corrupted one."""
    try:
        return str(key(body))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
