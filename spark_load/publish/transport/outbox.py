"""The transport through an outbox: a producer's process commits the messages, and relays publish them.

The load test does not import the code that it tests. The producer is the program `sluice.testing.load.producer`; the
outcome of a message is read from the outbox's table, where the relay writes SNS's answer.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sluice.clock import Clock
from sluice.history.bundles import part_id, part_number
from sluice.history.events import CallOutcome, pad_sequence_number
from spark_load.publish.transport import TransportAnswer, TransportCall
from spark_load.publish.transport.formats import Entry, EntryResults
from spark_load.publish.transport.ledger import Ledger, RecordedCall

_PRODUCER = "sluice.testing.load.producer"
_CALLS_MAX = 64
_LOOK_SECONDS = 0.01
_BUSY_SECONDS = 30.0
ANSWER_SECONDS_MAX = 150
"""A message that no relay has published after this time is given up."""
_END_SECONDS = 10
_OF_ITS_BUNDLE = """
    (SELECT count(*) FROM sluice_outbox AS other WHERE other.topic = own.topic AND other.group_id = own.group_id
     AND other.sns_message_id = own.sns_message_id AND other.group_seq BETWEEN own.group_seq {of})
"""
_SETTLED = f"""
    SELECT event_id, status, sns_message_id, sns_sequence_number,
    {_OF_ITS_BUNDLE.format(of="- 250 AND own.group_seq - 1")}, {_OF_ITS_BUNDLE.format(of="+ 1 AND own.group_seq + 250")}
    FROM sluice_outbox AS own
    WHERE topic = ? AND status <> 'pending' AND event_id IN (SELECT value FROM json_each(?))
"""  # noqa: S608 (made of constants)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call that was handed to the producer, and the known outcomes of its messages, by their deduplication ids."""

    recorded: RecordedCall
    ids: Sequence[str]
    until: float
    found: dict[str, Entry] = field(default_factory=dict)


class OutboxTransport:
    """A `Transport` through an outbox in an SQLite file.

    Args:
        file: the SQLite file, with the outbox's tables.
        ledger: records each message when it is handed to the outbox, and when it was published.
        topic: the name of the topic.
        event_bytes_max: size of the largest message.
        log: file of the producer's errors.
    """

    def __init__(
        self, file: Path, ledger: Ledger, *, topic: str, event_bytes_max: int, log: Path, clock: Clock
    ) -> None:
        self._ledger, self._topic, self._clock = ledger, topic, clock
        self._waiting: list[_Waiting] = []
        self._table = sqlite3.connect(file, timeout=_BUSY_SECONDS, autocommit=True)
        options = ("--dsn", f"sqlite:///{file}", "--topic", topic, "--event-bytes-max", str(event_bytes_max))
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as errors:
            self._producer = subprocess.Popen(
                [sys.executable, "-m", _PRODUCER, *options],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                text=True,
            )
        assert self._producer.stdin is not None, "stdin is a pipe"
        self._pipe = self._producer.stdin

    @property
    def room(self) -> int:
        """Return how many calls may be sent now."""
        return _CALLS_MAX - len(self._waiting)

    def send(self, calls: Sequence[TransportCall]) -> None:
        """Record the calls, then hand them to the producer."""
        until = self._clock.monotonic() + ANSWER_SECONDS_MAX
        recorded_calls = self._ledger.record_intents(calls, invoked_at_us=self._clock.now_us())
        for recorded in recorded_calls:
            messages = recorded.call.messages
            self._waiting.append(_Waiting(recorded, [message.deduplication_id for message in messages], until))
            with suppress(BrokenPipeError):  # the producer has ended; `answers` reports it
                self._pipe.write(json.dumps([message.body for message in messages]) + "\n")
        with suppress(BrokenPipeError):
            self._pipe.flush()

    def answers(self, wait_seconds: float) -> Sequence[TransportAnswer]:
        """Return the calls whose messages were all published or given up.

        They are recorded as by the other transports.
        """
        until = self._clock.monotonic() + wait_seconds
        while self._waiting:
            self._read_outcomes()
            if (answers := self._take_answers()) or self._clock.monotonic() >= until:
                if not self._waiting:
                    self._ledger.flush()
                return answers
            self._clock.sleep(_LOOK_SECONDS)
        return ()

    def _read_outcomes(self) -> None:
        """Read the outcomes of the messages without a known outcome."""
        owners = {id_: waiting for waiting in self._waiting for id_ in waiting.ids if id_ not in waiting.found}
        rows = self._table.execute(_SETTLED, (self._topic, json.dumps(list(owners))))
        for id_, status, message_id, number, before_count, behind_count in rows:
            is_sent = status == "sent"  # otherwise quarantined: SNS refused it for good
            entry = (CallOutcome.OK.value, None, message_id, number)
            if is_sent and before_count + behind_count:
                padded = pad_sequence_number(number) or ""
                entry = (*entry[:2], part_id(message_id, before_count), part_number(padded, before_count))
            owners[id_].found[id_] = entry if is_sent else (CallOutcome.FAIL.value, status, None, None)

    def _take_answers(self) -> list[TransportAnswer]:
        now = self._clock.monotonic()
        has_ended = self._producer.poll() is not None
        over = [
            waiting
            for waiting in self._waiting
            if has_ended or waiting.until <= now or len(waiting.found) == len(waiting.ids)
        ]
        self._waiting = [waiting for waiting in self._waiting if waiting not in over]
        missing = "ProducerEnded" if has_ended else "NotPublished"
        return [self._answer(waiting, (CallOutcome.INFO.value, missing, None, None)) for waiting in over]

    def _answer(self, waiting: _Waiting, missing: Entry) -> TransportAnswer:
        entries = [waiting.found.get(id_, missing) for id_ in waiting.ids]
        is_whole = len(waiting.found) == len(waiting.ids)
        self._ledger.add_answer(
            waiting.recorded,
            EntryResults(*map(list, zip(*entries, strict=True))),
            responded_at_us=self._clock.now_us() if is_whole else None,
        )
        errors = {position: error or outcome for position, (outcome, error, _, _) in enumerate(entries) if error}
        return TransportAnswer(waiting.recorded.call, errors)

    def close(self) -> None:
        """Record the published messages, and let the producer's process end."""
        self._ledger.flush()
        with suppress(BrokenPipeError):
            self._pipe.close()
        try:
            self._producer.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._producer.kill()
            self._producer.wait()
        self._table.close()
