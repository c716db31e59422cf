"""Sane groups of many messages: several workers, answers of one to four, long polls that overlap, pauses."""

import random
from collections.abc import Iterator
from dataclasses import replace

from sluice.history.events import Event, answer_detail, pad_sequence_number
from tests.support.histories.by_hand import END, QUEUES, deleted, handled, published, received


def sane_group(rng: random.Random, message_count: int) -> list[Event]:
    """Return so many messages and their end marker, published one after the other and worked off in order."""
    at_ms, events = 0, list[Event]()
    idxs = [*range(message_count), END]
    for idx in idxs:
        took_ms = rng.randint(1, 8)
        events.append(published(idx, at_ms, took_ms=took_ms, attributes_hash="attributes", sns_message_id=f"sns {idx}"))
        at_ms += took_ms + rng.choice([1, 5, 20, 400])
    sent_us = {event.idx or 0: event.invoked_at_us or 0 for event in events}
    answered_max, overlapping = rng.choice([1, 1, 2, 4]), rng.choice([0, 0.1, 0.5])
    for queue in QUEUES:
        events += _worked_off(rng, queue, sent_us, answered_max, overlapping)
    return events


def _worked_off(
    rng: random.Random, queue: str, sent_us: dict[int, int], answered_max: int, overlapping: float
) -> Iterator[Event]:
    """Yield receives of up to so many messages; that share of them is asked for before the last was deleted."""
    has_numbers, idxs = rng.random() < 0.7, [*sent_us]
    free_ms = rng.choice([0, 0, 4_000])
    while idxs:
        answer, idxs = idxs[: (count := rng.randint(1, answered_max))], idxs[count:]
        answered_ms = max(free_ms, max(sent_us[idx] for idx in answer) // 1_000 + 10) + rng.choice([1, 2, 30])
        invoked_ms = (
            max(0, free_ms - 5) if rng.random() < overlapping else max(free_ms, answered_ms - rng.choice([1, 40]))
        )
        worker = f"consume-{queue}-{rng.randrange(3)}"
        begin_ms = answered_ms
        for position, idx in enumerate(answer):
            receive = replace(
                received(queue, idx, invoked_ms, took_ms=answered_ms - invoked_ms),
                worker=worker,
                call_id=f"receive/{queue}/{answered_ms}",
                batch_position=position,
                receipt_handle_hash=f"{queue} {idx} {answered_ms}",
                attributes_hash="attributes",
                md5_ok=True,
                sqs_sequence_number=pad_sequence_number(str(answered_ms * 10 + position)) if has_numbers else None,
                sent_at_us=sent_us[idx] + 2_000,
                max_number_of_messages=10,
                detail=answer_detail(len(answer)),
            )
            yield receive
            if queue == QUEUES[0] and idx != END:
                effect_us = (begin_ms + 1) * 1_000
                yield replace(handled(receive), invoked_at_us=effect_us, responded_at_us=effect_us + 500)
            begin_ms += 2
        for position, idx in enumerate(answer):
            receive = replace(
                received(queue, idx, answered_ms), receipt_handle_hash=f"{queue} {idx} {answered_ms}", worker=worker
            )
            yield deleted(receive, begin_ms, took_ms=rng.choice([1, 6]), batch_position=position)
        free_ms = begin_ms + rng.choice([1, 7])
