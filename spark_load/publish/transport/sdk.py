"""The transport over boto3: AWS's SDK with its signatures and hooks, in a few threads."""

import queue
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from sluice.history.bundles import bundle_body, bundle_id
from sluice.recorder.recorder import Recorder
from sluice.recorder.rows import entries_by_id
from spark_load.publish.transport import TransportAnswer, TransportCall
from spark_load.publish.transport.formats import CALLS, NOT_IN_ANSWER

_THREADS = 8
_UNREADABLE = (ResponseParserError, AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""The errors of botocore for a response that does not fit its model of the service."""


class SdkTransport:
    """A `Transport` over a boto3 client of SNS or SQS with a recorder attached, and perhaps saboteurs.

    Args:
        client: of SNS or SQS.
        recorder: attached to the client.
        has_bundles: whether messages of one group that stand together in a call are the events of a bundle.
    """

    def __init__(self, client: Any, recorder: Recorder, *, has_bundles: bool = False) -> None:
        self._client, self._recorder, self._has_bundles = client, recorder, has_bundles
        self._call = CALLS[client.meta.service_model.service_name]
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="publish")
        self._ended: queue.SimpleQueue[Future[TransportAnswer]] = queue.SimpleQueue()
        self._on_their_way = 0

    @property
    def room(self) -> int:
        """Return how many calls may be sent now."""
        return _THREADS - self._on_their_way

    def send(self, calls: Sequence[TransportCall]) -> None:
        """Hand each call to a thread; the client's recorder records it there."""
        for call in calls:
            for message in call.messages:
                self._recorder.plan(
                    deduplication_id=message.deduplication_id,
                    intended_at_us=message.intended_at_us,
                    publish_attempt=message.publish_attempt,
                    phase=message.phase,
                )
            self._on_their_way += 1
            self._threads.submit(self._carry, call).add_done_callback(self._ended.put)

    def _carry(self, call: TransportCall) -> TransportAnswer:
        return TransportAnswer(call, self._errors(call, range(call.size)))

    def _errors(self, call: TransportCall, positions: range) -> dict[int, str]:
        """Return the error of each message, which is that of its bundle."""
        group = attrgetter("message_group_id") if self._has_bundles else id
        bundles = [list(messages) for _, messages in groupby(call.messages, key=group)]
        entries = [
            (
                bundle_body([message.body for message in messages]),
                messages[0].message_group_id,
                bundle_id([message.deduplication_id for message in messages]),
            )
            for messages in bundles
        ]
        of_entry = [number for number, messages in enumerate(bundles) for _ in messages]
        params = self._call.params(call.address, entries)
        try:
            answer = getattr(self._client, self._call.method)(**params)
        except ClientError as error:
            return dict.fromkeys(positions, error.response["Error"].get("Code", ""))
        except BotoCoreError as error:
            return dict.fromkeys(positions, type(error).__name__)
        except _UNREADABLE:
            return dict.fromkeys(positions, ResponseParserError.__name__)
        acknowledged, refused = (entries_by_id(answer.get(name, [])) for name in ("Successful", "Failed"))
        return {
            index: refused[id_].get("Code", "") if id_ in refused else NOT_IN_ANSWER
            for index in positions
            if (id_ := str(of_entry[index])) not in acknowledged
        }

    def answers(self, wait_seconds: float) -> Sequence[TransportAnswer]:
        """Return the calls that were answered or given up since; raise an error of this side, such as a full disk."""
        came: list[Future[TransportAnswer]] = []
        if self._on_their_way:
            with suppress(queue.Empty):
                came.append(self._ended.get(timeout=wait_seconds) if wait_seconds > 0 else self._ended.get_nowait())
                while True:
                    came.append(self._ended.get_nowait())
        self._on_their_way -= len(came)
        return [future.result() for future in came]

    def close(self) -> None:
        """Wait for the calls in flight, and end the threads."""
        self._threads.shutdown()
