"""The rows of history the signed transports write: as `wire.recorder` writes them, but whole columns at a time."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from sluice.history import Kind, Outcome, pad_sequence_number, short_hash
from spark_load.transport import Call
from spark_load.transport.formats import Said
from wire.journal import Journal
from wire.rows import short_name


class Asked:
    """A call that was written down, and the columns its answer repeats."""

    __slots__ = ("call", "columns", "invoked_at_us")

    def __init__(self, call: Call, *, call_id: str, run: str, queue: str, invoked_at_us: int) -> None:
        self.call, self.invoked_at_us = call, invoked_at_us
        messages, count = call.messages, len(call.messages)
        self.columns: dict[str, list[Any]] = {
            "call_id": [call_id] * count,
            "queue": [queue] * count,
            "invoked_at_us": [invoked_at_us] * count,
            "batch_position": list(range(count)),
            "message_group_id": [one.message_group_id for one in messages],
            "deduplication_id": [one.deduplication_id for one in messages],
            "idx": [one.idx for one in messages],
            "message_run": [run] * count,
            "intended_at_us": [one.intended_at_us for one in messages],
            "publish_attempt": [one.publish_attempt for one in messages],
            "phase": [one.phase for one in messages],
            "body_hash": [short_hash(one.body) for one in messages],
        }


class Ledger:
    """Writes what calls ask and what they are answered. Answers wait for the next question, or for `flush`.

    Args:
        journal: where to.
        names: address to the name used in the history.
        run: that the messages are of.
        service: that is spoken to.
    """

    def __init__(self, journal: Journal, *, names: Mapping[str, str], run: str, service: str) -> None:
        self._journal, self._names, self._run = journal, names, run
        self._prefix = service
        self._calls = itertools.count()
        self._unwritten: list[tuple[Asked, int | None, Sequence[Said]]] = []

    def asked(self, calls: Sequence[Call], *, invoked_at_us: int) -> list[Asked]:
        """Write down what is about to be asked, and what was answered since; nothing is left unwritten."""
        asked = [
            Asked(
                call,
                call_id=f"{self._journal.path.stem}/{next(self._calls)}",
                run=self._run,
                queue=self._names.get(call.address) or short_name(call.address),
                invoked_at_us=invoked_at_us,
            )
            for call in calls
        ]
        self._write(asked)
        return asked

    def answered(self, asked: Asked, said: Sequence[Said], *, responded_at_us: int | None) -> None:
        """Remember what a call was answered, message by message; None as the instant when there was no answer."""
        self._unwritten.append((asked, responded_at_us, said))

    def flush(self) -> None:
        """Write down what was answered."""
        self._write([])

    def _write(self, asked: Sequence[Asked]) -> None:
        answered, self._unwritten = self._unwritten, []
        calls = [*(one for one, _, _ in answered), *asked]
        if not calls:
            return
        columns: dict[str, Any] = {
            name: list(itertools.chain.from_iterable([one.columns[name] for one in calls])) for name in calls[0].columns
        }
        intents = sum(len(one.call.messages) for one in asked)
        said = [one for _, _, of_call in answered for one in of_call]
        responded = [at for _, at, of_call in answered for _ in of_call]
        nothing = [None] * intents
        number = "sns" if self._prefix == "sns" else "sqs"
        columns |= {
            "kind": Kind.PUBLISHED.value,
            "outcome": [*(one.outcome for one in said), *[Outcome.INFO.value] * intents],
            "responded_at_us": [*responded, *nothing],
            "error": [*(one.error for one in said), *nothing],
            f"{number}_message_id": [*(one.message_id for one in said), *nothing],
            f"{number}_sequence_number": [*(pad_sequence_number(one.sequence_number) for one in said), *nothing],
        }
        self._journal.add_columns(len(columns["call_id"]), columns)
