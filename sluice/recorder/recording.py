"""Records the boto3 clients of any program, also in production: if recording fails, it stops, and the calls go on."""

import atexit
import functools
import hashlib
import logging
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import parent_process, util
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from botocore.client import BaseClient

from sluice.clock import Clock
from sluice.errors import ConfigError
from sluice.history.events import Identity, Kind, recording_detail, stable_idx
from sluice.recorder.process_journal import ProcessJournal
from sluice.recorder.recorder import BotocoreHook, Recorder, host_name
from sluice.recorder.rows import OPERATIONS

_log = logging.getLogger(__name__)


class Recording:
    """The result of `record`: a context manager, or something to close.

    Closing writes that the journal is whole. If the process is killed, or does not close it, `sluice check` calls the
    history unknown.
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
        closes_itself: bool = False,
    ) -> None:
        self.closes_itself = closes_itself
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
            guard=self._guard,
            keeps_sizes=True,
        )
        self._clients: list[BaseClient] = []
        self._is_on = True
        _open.add(self)
        if parent_process() is not None:
            _end_before_exit(self)
        _end_with_celery()

    @property
    def is_on(self) -> bool:
        """Return whether calls are recorded: until it is closed, or a write fails."""
        return self._is_on

    def attach(self, client: BaseClient) -> None:
        """Record this client too, from its next call on.

        Raises:
            ConfigError: it is not a client of SNS or SQS, or is being recorded.
        """
        _check_client(client)
        _recorded.add(client)
        self._clients.append(client)
        self._recorder.attach(client)

    def begin(self, *, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Record a call that no attached client makes, as the proxy does; give the result to `end` or `lose`.

        Arguments as `Recorder.begin`.
        """
        call: dict[str, Any] = {}
        self._guard(self._recorder.begin)(call=call, service=service, operation=operation, params=params)
        return call

    def end(self, call: Mapping[str, Any], status_code: int, parsed: Mapping[str, Any]) -> None:
        """Record the answer to the call, as `Recorder.end`."""
        self._guard(self._recorder.end)(call=call, status_code=status_code, parsed=parsed)

    def lose(self, call: Mapping[str, Any], error: str, *, never_left: bool = False) -> None:
        """Record that the call has no answer, as `Recorder.lose`."""
        self._guard(self._recorder.lose)(call=call, error=error, never_left=never_left)

    def note_unseen(self, calls: str) -> None:
        """Record that there were calls that cannot be recorded, as `Recorder.note_unseen`."""
        self._guard(self._recorder.note_unseen)(calls=calls)

    def end_with_process(self) -> None:
        """Close if no other code will; otherwise write the recorded events, and leave the journal without an end."""
        if self.closes_itself:
            self.close()
        else:
            self.flush()

    def flush(self) -> None:
        """Write all recorded events to the file."""
        self._guard(self._journal.flush)()

    def close(self) -> None:
        """Stop recording, and write that the journal is whole. A second call does nothing."""
        for client in self._clients:
            self._recorder.detach(client)
            _recorded.discard(client)
        self._clients.clear()
        self._guard(self._journal.close)()
        self._is_on = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, also after an exception: every call so far is recorded."""
        self.close()

    def _guard(self, do: BotocoreHook) -> BotocoreHook:
        """Return a function that does the same while recording is on, and turns recording off if it raises."""

        @functools.wraps(do)
        def do_while_on(**seen: Any) -> None:
            if self._is_on:
                try:
                    do(**seen)
                except Exception as error:  # any error: the observed call must not fail
                    self._is_on = False
                    _log.error(
                        "recording to %s stopped (%s: %s); calls go on unrecorded, and a check will call them unknown",
                        self._journal.folder,
                        type(error).__name__,
                        error,
                    )

        return do_while_on


_open: "weakref.WeakSet[Recording]" = weakref.WeakSet()
_recorded: "weakref.WeakSet[BaseClient]" = weakref.WeakSet()


@atexit.register
def _end_all(**_: Any) -> None:
    for recording in list(_open):
        recording.end_with_process()


def _end_before_exit(_: object) -> None:
    """Let recordings end with a process of multiprocessing, which does not use `atexit`, after its own children."""
    util.Finalize(None, _end_all, exitpriority=-100)


def _end_in_child() -> None:
    """Let recordings end in a forked child: its parent opened them, and no code closes them in the child."""
    for recording in list(_open):
        recording.closes_itself = True
        util.register_after_fork(recording, _end_before_exit)  # multiprocessing has yet to drop its parent's finalizers
    _end_with_celery()


def _end_with_celery() -> None:
    """Have recordings end with a child of celery's pool, which uses neither `atexit` nor multiprocessing.

    https://docs.celeryq.dev/en/stable/userguide/signals.html#worker-process-shutdown (read 2026-11-26)
    """
    if "celery.signals" in sys.modules:
        sys.modules["celery.signals"].worker_process_shutdown.connect(_end_all, weak=False)


os.register_at_fork(after_in_child=_end_in_child)


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
    closes_itself: bool = False,
) -> Recording:
    """Record the calls of a program's SNS and SQS clients as a history for `sluice check`.

    The calls do not change. If the history cannot be written any more, recording stops, logs that once, and leaves its
    journal without an end. Bodies and attributes are written as hashes only; message group ids and deduplication ids
    as they are.

    Args:
        clients: SNS and SQS clients of boto3 or aiobotocore in this process; for a resource, its `meta.client`.
        folder: the journals' folder, the same for every process of a machine; it is created if it is missing.
        one_group_in: one of so many message groups is recorded, with all its messages: in every process the same ones.
        run: the name of the history, the same in every process; None means the folder's name.
        worker: the beginning of the journals' names; host and process follow it.
        key: takes a body and returns a text that identifies the message in its group. None means the deduplication id;
            then a message that is published again under another id is another message.
        names: queue URL or topic ARN to the name used in the history; by default the name at the end of URL or ARN.
        clock: None means this machine's.
        closes_itself: whether it is closed when the process ends; a process that is killed or calls `os._exit` closes
            nothing.

    Returns:
        A context manager. After a fork the child records into a journal of its own, which closes itself.

    Raises:
        ConfigError: an argument is not allowed, or the folder cannot be written.
        HistoryError: the disk is full, or fails.
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
        closes_itself=closes_itself,
    )
    for client in listed:
        recording.attach(client)
    return recording


def _check_client(client: Any) -> None:
    if not isinstance(client, BaseClient):
        raise ConfigError(f"{type(client).__name__} is not a client of boto3; of a resource pass its meta.client")
    service = client.meta.service_model.service_name
    if service not in OPERATIONS:
        raise ConfigError(f"a client of {service!r} sends no messages, allowed are {' and '.join(OPERATIONS)}")
    if client in _recorded:
        raise ConfigError(f"this client of {service!r} is being recorded; close that recording first")


def _identify(
    run: str, key: Callable[[str], str] | None, *, body: str, deduplication_id: str | None, message_group_id: str | None
) -> Identity:
    """Return the identity of another program's message: by its key, or else by its deduplication id.

    AWS: content-based deduplication takes the SHA-256 of the body,
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html (read 2026-11-21).
    """
    text = None if key is None else _key_of(key, body)
    if text is None:
        text = hashlib.sha256(body.encode()).hexdigest() if deduplication_id is None else deduplication_id
    return Identity(run=run, message_group_id=message_group_id or "", idx=stable_idx(text))


def _key_of(key: Callable[[str], str], body: str) -> str | None:
    """Return the key of a body; None if it has none, as a corrupted one may."""
    try:
        return str(key(body))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
