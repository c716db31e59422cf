"""F: dead letters, and their way back."""

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence

from sluice.history.events import HistoryEvent
from sluice.judge.checker.clocks import NEVER_US
from sluice.judge.checker.expectation import Move
from sluice.judge.checker.group import Group, by_time, effective, invoked_us, responded_us
from sluice.judge.checker.rules import FoundViolation, rule
from sluice.judge.checker.rules.duplication import windows_max
from sluice.judge.checker.rules.ordering import came_before, overtaken
from sluice.judge.checker.standing import earliest_removal_after_us, earliest_removal_us, queue_lines


def _queues_with_dlq(group: Group) -> Iterator[tuple[str, str]]:
    """Yield each queue of which all receives are on record, with its DLQ."""
    for queue in group.expectation.queues:
        dead_letter_queue = group.expectation.dead_letter_queues.get(queue)
        if dead_letter_queue is not None and group.is_proven(queue):
            yield queue, dead_letter_queue


def _dead_letters_of(group: Group, queue: str) -> Iterator[tuple[int, HistoryEvent]]:
    """Yield (idx, first receive from the queue's DLQ) of each message that is certainly a dead letter of this queue."""
    dead_letter_queue = group.expectation.dead_letter_queues.get(queue, "")
    if _is_shared(group, dead_letter_queue):
        yield from sorted(_dead_letters_in_shared_dlq(group, queue, dead_letter_queue).items())
        return
    for idx, event in sorted(group.first_received.get(dead_letter_queue, {}).items()):
        if _stray_from(group, dead_letter_queue, event) is None:
            yield idx, event


def _is_shared(group: Group, dead_letter_queue: str) -> bool:
    return list(group.expectation.dead_letter_queues.values()).count(dead_letter_queue) > 1


def _dead_letters_in_shared_dlq(group: Group, queue: str, dead_letter_queue: str) -> dict[int, HistoryEvent]:
    """Return the first receives from a shared DLQ of the messages whose ids show that they died in this queue."""
    first: dict[int, HistoryEvent] = {}
    for event in group.received.get(dead_letter_queue, []):
        if event.idx is not None and _is_known_from(group, queue, event):
            first.setdefault(event.idx, event)
    return first


def _is_known_from(group: Group, queue: str, dead: HistoryEvent) -> bool:
    """Return whether the ids of a dead letter are those that its message had in the queue."""
    return not {dead.sqs_message_id, dead.deduplication_id}.isdisjoint(group.ids.get((queue, dead.idx or 0), ()))


def _stray_from(group: Group, dead_letter_queue: str, event: HistoryEvent) -> HistoryEvent | None:
    """Return the receive that shows a dead letter to be of a queue with another DLQ."""
    owners = {queue for queue, its in group.expectation.dead_letter_queues.items() if its == dead_letter_queue}
    found = {
        queue: group.instances[queue, id_][0]
        for queue in group.expectation.queues
        for id_ in (event.sqs_message_id, event.deduplication_id)
        if id_ is not None and (queue, id_) in group.instances
    }
    return None if owners & set(found) else next(iter(found.values()), None)


def _moved_letters_of(group: Group, queue: str) -> Iterator[tuple[int, HistoryEvent]]:
    """Yield what `_dead_letters_of` yields without what the queue's consumer sent: SQS promises nothing of that."""
    for idx, dead in _dead_letters_of(group, queue):
        if not group.is_sent_by_consumer(queue, dead):
            yield idx, dead


@rule("F1")
def _find_premature_dead_letters(group: Group) -> Iterator[FoundViolation]:
    for queue in group.expectation.dead_letter_queues:
        most = group.expectation.max_receive_count.get(queue)
        for idx, dead in _moved_letters_of(group, queue):
            receives = group.receives(queue, idx)
            possible = len(receives) + group.expectation.lost_receives.get(queue, 0)
            # A recording may lack receives of other consumers; the count in the DLQ includes them (DLQ-07).
            if not group.expectation.is_planned:
                possible = max(possible, (dead.receive_count or 0) - 1)
            is_whole = group.is_proven(queue)
            seen = sorted([*receives, dead], key=by_time)
            is_whole = is_whole and not group.may_have_been_received_before(queue, idx, seen)
            if most is not None and possible < most and is_whole:
                sentence = f"dead-lettered after {possible} receive(s), {most} were allowed"
                yield queue, [idx], sentence, [*receives[-5:], dead]
            elif held := [event for event in receives if _is_held(group, event, dead)]:
                yield queue, [idx], "dead-lettered while it was held", [held[-1], dead]


def _is_held(group: Group, event: HistoryEvent, dead: HistoryEvent) -> bool:
    """Return whether a message was certainly still in flight when it was received from the DLQ."""
    return (
        dead.sqs_message_id is not None
        and event.sqs_message_id == dead.sqs_message_id
        and group.is_before(event, dead)
        and responded_us(dead) + group.bound_us(dead, event) < group.lease_end_us(event)
    )


@rule("F2")
def _find_excess_receives(group: Group) -> Iterator[FoundViolation]:
    for (queue, _), receives in sorted(group.instances.items()):
        most = group.expectation.max_receive_count.get(queue)
        if most is None or queue not in group.expectation.dead_letter_queues:
            continue
        for event in receives:
            is_over = event.receive_count is not None and event.receive_count > most
            if is_over and group.has_stayed(queue, event.idx, by=event):
                sentence = f"delivered the {event.receive_count}th time, and {most} were allowed"
                witness = [receive for receive in receives if responded_us(receive) <= responded_us(event)][-3:]
                yield queue, [event.idx], sentence, witness
                break


@rule("F3")
def _find_missing_dead_letters(group: Group) -> Iterator[FoundViolation]:
    for (queue, id_), receives in sorted(group.instances.items()):
        most, last = group.expectation.max_receive_count.get(queue), receives[-1]
        dead_letter_queue = group.expectation.dead_letter_queues.get(queue)
        empty_us = group.around.empty_since_us.get(dead_letter_queue or "")
        if (
            most is None
            or empty_us is None
            or (last.receive_count or 0) < most
            or _may_have_left_dlq_unseen(group, queue, last)
        ):
            continue
        free_us = group.possible_lease_end_us(last) + group.around_bound_us
        _, empty_polls = group.around.polls(queue, from_us=free_us, until_us=empty_us)
        is_seen = group.is_dead_lettered(queue, last.idx) or any(
            event.sqs_message_id == id_
            for dead in group.expectation.dead_letter_queues.values()
            for event in group.received.get(dead, [])
        )
        is_left = not is_seen and not group.may_be_deleted(last) and group.is_bound(queue, last.idx)
        kept_us = min(
            earliest_removal_us(group, queue, last.idx),
            earliest_removal_after_us(group, dead_letter_queue or "", invoked_us(last)),
        )
        is_left = is_left and kept_us > empty_us
        if empty_polls and is_left:
            sentence = f"used up its {most} receives, was not deleted, and never was in {dead_letter_queue}"
            yield queue, [last.idx], sentence, receives[-6:]


def _may_have_left_dlq_unseen(group: Group, queue: str, last: HistoryEvent) -> bool:
    """Return whether a message may have arrived in the DLQ after its last receive, and left it without a record."""
    dead_letter_queue = group.expectation.dead_letter_queues.get(queue, "")
    is_proven = group.is_proven(queue) and group.is_proven(dead_letter_queue)
    moves = [move for move in group.around.moves if move.source == dead_letter_queue]
    return not is_proven or any(not _is_over(group, move, last) for move in moves)


def _is_over(group: Group, move: Move, event: HistoryEvent) -> bool:
    """Return whether a move task had certainly ended when something was received."""
    return move.is_finished and group.is_after(event, move.ended_at_us)


@rule("F4")
def _find_letters_in_wrong_dlq(group: Group) -> Iterator[FoundViolation]:
    for dead_letter_queue in sorted(set(group.expectation.dead_letter_queues.values())):
        for idx, event in sorted(group.first_received.get(dead_letter_queue, {}).items()):
            source = _stray_from(group, dead_letter_queue, event)
            if source is not None:
                sentence = f"a message of {source.queue} was found in {dead_letter_queue}"
                yield source.queue, [idx], sentence, [source, event]


@rule("F5")
def _find_dead_letters_after_delete(group: Group) -> Iterator[FoundViolation]:
    for queue in group.expectation.queues:
        for idx, dead in _moved_letters_of(group, queue):
            copies = max(len(group.ids.get((queue, idx), ())), windows_max(group, idx))
            if copies != 1 and dead.sqs_message_id is None:
                continue  # another copy may be the dead one
            for event in group.receives(queue, idx):
                if dead.sqs_message_id not in (None, event.sqs_message_id):
                    continue
                delete = group.settled_delete(event)
                if delete is not None and group.is_before(delete, dead):
                    yield queue, [idx], "dead-lettered after it was deleted", [event, delete, dead]
                    break


@rule("F6")
def _find_changed_dead_letters(group: Group) -> Iterator[FoundViolation]:
    for queue in group.expectation.queues:
        for idx, dead in _dead_letters_of(group, queue):
            source = group.first_received.get(queue, {}).get(idx)
            if source is not None and group.is_surely_before(dead, source):
                source = None  # a copy that somebody sent back, or a task moved
            changed = _change_in_dlq(group, queue, dead, source)
            if changed is not None:
                witness = source if source is not None else group.publishes[idx][0]
                yield queue, [idx], f"in the DLQ {changed}", [witness, dead]


def _change_in_dlq(group: Group, queue: str, dead: HistoryEvent, source: HistoryEvent | None) -> str | None:
    """Return how a dead letter differs from its published message; None if no difference is known."""
    ids = group.ids.get((queue, dead.idx or 0), [])
    published = [] if group.may_be_older(dead) else group.publishes_by(dead)
    if published and dead.body_hash is not None and not {dead.body_hash, None} & {e.body_hash for e in published}:
        return "its body is another"
    attributes = [{event.attributes_hash for event in published}] if published else []
    attributes += [{source.attributes_hash}] if source is not None else []
    if dead.attributes_hash is not None and not all({dead.attributes_hash, None} & known for known in attributes):
        return "its attributes are others"
    if source is None or dead.idx is None or group.is_sent_by_consumer(queue, dead):
        return None
    copies = windows_max(group, dead.idx, by=dead)
    by_then = [id_ for id_ in ids if not group.is_surely_before(dead, group.instances[queue, id_][0])]
    is_known = 0 < copies <= len(by_then) and not group.moves_before(dead, queue)
    if dead.sqs_message_id is not None and dead.sqs_message_id not in ids and is_known:
        return f"its message id is {dead.sqs_message_id}, and not the one it had"
    own = {dead.sqs_message_id} if dead.sqs_message_id is not None else {*ids} if is_known else set()
    if dead.deduplication_id is not None and own and dead.deduplication_id not in own:
        return f"its deduplication id is {dead.deduplication_id}, and not its message id"
    return None


@rule("F7")
def _find_reordered_dead_letters(group: Group) -> Iterator[FoundViolation]:
    """Find dead letters that stand in the DLQ in another order than in their queue.

    A message dies at a receive, and every receive begins at the front of the group: so a message never dies before one
    in front of it (DLQ-06, GRP-10).
    """
    for queue in group.expectation.queues:
        dead = {
            event.sqs_message_id: event
            for _, event in _moved_letters_of(group, queue)
            if event.sqs_message_id is not None
        }
        for line in queue_lines(group, queue) if len(dead) > 1 else ():
            first = {place: receives[0] for place, receives in enumerate(line)}
            last = {
                place: event
                for place, receive in first.items()
                if (event := dead.get(receive.sqs_message_id or "")) is not None
                and all(_is_over(group, move, receive) for move in group.moves_before(event, queue))
            }
            for front, behind in overtaken(group, list(last), last):
                sentence = "the first stood before the second in the queue, and stands behind it in the DLQ"
                witness = [first[front], first[behind], last[behind], last[front]]
                yield queue, [first[front].idx, first[behind].idx], sentence, witness


def _moves_by_queue(group: Group) -> Iterator[tuple[str, str, list[Move]]]:
    """Yield (queue, DLQ, move tasks in the order of their begin) for each queue to which tasks moved dead letters back.

    A task that failed, was cancelled, or ended in an unknown way may have moved some messages and left others. A task
    without a destination counts as one task to each queue that has the DLQ.
    """
    for queue, dead_letter_queue in _queues_with_dlq(group):
        moves = [move for move in group.around.moves if (move.source, move.destination) == (dead_letter_queue, queue)]
        if moves:
            yield queue, dead_letter_queue, sorted(moves, key=lambda move: move.began_at_us)


def _is_from_elsewhere(group: Group, queue: str, dead_letter_queue: str, back: HistoryEvent) -> bool:
    """Return whether a move task from another queue than this DLQ may have sent the received message."""
    return any(move.source != dead_letter_queue for move in group.moves_before(back, queue))


def _dead_letters_before(group: Group, dead_letter_queue: str, move: Move) -> Iterator[tuple[int, HistoryEvent]]:
    """Yield (idx, last receive from the DLQ) of each message that was received from the DLQ before the task began."""
    for idx in sorted(group.first_received.get(dead_letter_queue, {})):
        began_us = move.began_at_us - group.around_bound_us
        before = [event for event in group.receives(dead_letter_queue, idx) if responded_us(event) < began_us]
        if before:
            yield idx, before[-1]


def _receives_maybe_after(group: Group, queue: str, idx: int, move: Move) -> list[HistoryEvent]:
    """Return the receives that may have come after the task began."""
    began_us = move.began_at_us - group.around_bound_us
    return [event for event in group.receives(queue, idx) if responded_us(event) >= began_us]


def _receives_surely_after(group: Group, queue: str, idx: int, move: Move) -> list[HistoryEvent]:
    """Return the receives that certainly came after the task began, whatever the clocks show."""
    return [event for event in group.receives(queue, idx) if group.is_after(event, move.began_at_us)]


def _may_have_died(group: Group, queue: str, receives: Sequence[HistoryEvent], moves: Sequence[Move]) -> bool:
    """Return whether the message of these receives may have been dead-lettered, and a task may still have to return it.

    Without moves: whether the message may have been dead-lettered.
    """
    most = group.expectation.max_receive_count.get(queue, 1)
    is_over = all(move.is_finished and group.is_after(receives[0], move.ended_at_us) for move in moves)
    return len(receives) + group.expectation.lost_receives.get(queue, 0) >= most and not (moves and is_over)


@rule("F8")
def _find_redrive_losses(group: Group) -> Iterator[FoundViolation]:
    for queue, dead_letter_queue, moves in _moves_by_queue(group):
        ended_us = max(move.ended_at_us if move.ended_at_us else NEVER_US for move in moves)
        empty = [group.around.empty_since_us.get(name) for name in (queue, dead_letter_queue)]
        is_over = all(since is not None and since > ended_us for since in empty)
        places = {move.destination for move in group.around.moves if move.source == dead_letter_queue}
        is_over = is_over and group.is_proven(dead_letter_queue) and places == {queue}
        for idx, dead in _dead_letters_before(group, dead_letter_queue, moves[-1]) if is_over else ():
            arrived_us = min(map(invoked_us, group.receives(queue, idx)), default=moves[0].began_at_us)
            is_gone = earliest_removal_after_us(group, dead_letter_queue, arrived_us) <= ended_us
            is_gone = is_gone or earliest_removal_after_us(group, queue, responded_us(dead)) <= max(
                filter(None, empty), default=0
            )
            receives = [*group.receives(queue, idx), *group.receives(dead_letter_queue, idx)]
            is_seen = any(event is not dead and not group.is_surely_before(event, dead) for event in receives)
            if not is_gone and not is_seen and not group.may_be_deleted(dead):
                sentence = f"brought back from {dead_letter_queue}, and in neither queue since"
                yield queue, [idx], sentence, [*group.receives(queue, idx)[:1], dead]


@rule("F9")
def _find_redrive_duplicates(group: Group) -> Iterator[FoundViolation]:
    for queue, dead_letter_queue, moves in _moves_by_queue(group):
        owners = [name for name, its in group.expectation.dead_letter_queues.items() if its == dead_letter_queue]
        for idx, dead, own in _dead_letters_with_moves(group, dead_letter_queue, moves):
            back = _receives_surely_after(group, queue, idx, own[0])
            if back and _is_from_elsewhere(group, queue, dead_letter_queue, back[-1]):
                continue
            new: dict[str, list[HistoryEvent]] = defaultdict(list)
            for event in back:
                if event.sqs_message_id is not None:
                    new[event.sqs_message_id].append(event)
            again = sum(_may_have_died(group, queue, receives, own) for receives in new.values())
            most = (len(own) + again) * len(owners) + max(0, windows_max(group, idx) - 1)
            if len(new) > most:
                times = "once" if most == 1 else f"{most} times at most"
                witness = [dead, *(receives[0] for receives in reversed(new.values()))][:6]
                yield queue, [idx], f"brought back {times}, and {len(new)} messages since", witness
            elif (still := _receive_still_in_dlq(group, queue, idx, dead, own)) is not None and len(owners) == 1:
                yield queue, [idx], f"brought back, and still in {dead_letter_queue}", [dead, back[0], still]


def _dead_letters_with_moves(
    group: Group, dead_letter_queue: str, moves: Sequence[Move]
) -> Iterator[tuple[int, HistoryEvent, Sequence[Move]]]:
    """Yield (idx, last receive from the DLQ, later tasks) of each message received there before its first task began.

    A task that had ended before this receive cannot have moved the message.
    """
    for move in moves:
        for idx, dead in _dead_letters_before(group, dead_letter_queue, move):
            own = [other for other in moves if not _is_over(group, other, dead)]
            if own[0] is move:
                yield idx, dead, own


def _receive_still_in_dlq(
    group: Group, queue: str, idx: int, dead: HistoryEvent, moves: Sequence[Move]
) -> HistoryEvent | None:
    """Return a receive that shows a dead letter to be in its DLQ although a task moved it out; None if there is none.

    A message that died again has a new message id, unless the target kept the id (F11).
    """
    back = _receives_surely_after(group, queue, idx, moves[0])
    if not back or windows_max(group, idx) != 1:
        return None
    is_same = dead.sqs_message_id in (None, *(event.sqs_message_id for event in back))
    if is_same and _may_have_died(group, queue, _receives_maybe_after(group, queue, idx, moves[0]), ()):
        return None
    for event in _receives_maybe_after(group, dead.queue or "", idx, moves[0]):
        begun = [move for move in moves if move.began_at_us - group.around_bound_us <= responded_us(back[0])]
        is_over = all(move.is_finished and group.is_after(event, move.ended_at_us) for move in begun)
        if event.sqs_message_id == dead.sqs_message_id and (is_over or group.is_before(back[0], event)):
            return event
    return None


@rule("F10")
def _find_redrive_reorders(group: Group) -> Iterator[FoundViolation]:
    for queue, dead_letter_queue, moves in _moves_by_queue(group):
        if group.may_be_dead_lettered_unseen(queue):
            continue
        for move in moves:
            first, back = _before_and_after(group, queue, dead_letter_queue, move)
            in_dlq = sorted(back, key=lambda idx: by_time(first[idx]))
            for later, earlier in overtaken(group, in_dlq, back):
                if came_before(group, first[later], first[earlier]):
                    sentence = "the first stood before the second in the DLQ, and came back behind it"
                    yield queue, [later, earlier], sentence, [first[later], first[earlier], back[earlier], back[later]]


def _before_and_after(
    group: Group, queue: str, dead_letter_queue: str, move: Move
) -> tuple[dict[int, HistoryEvent], dict[int, HistoryEvent]]:
    """Return, for the messages in the DLQ at a task's begin, their first receives there and from the queue since."""
    first: dict[int, HistoryEvent] = {}
    back: dict[int, HistoryEvent] = {}
    for idx, dead in _dead_letters_before(group, dead_letter_queue, move):
        receives = group.receives(dead_letter_queue, idx)
        if _is_shared(group, dead_letter_queue) and not _is_known_from(group, queue, dead):
            continue
        own = next(event for event in receives if event.sqs_message_id == dead.sqs_message_id)
        since = [event for event in group.receives(queue, idx) if not group.is_surely_before(event, own)]
        is_brought = bool(since) and group.is_after(since[0], move.began_at_us)
        is_brought = is_brought and not _is_from_elsewhere(group, queue, dead_letter_queue, since[0])
        if is_brought and windows_max(group, idx) == 1:
            first[idx], back[idx] = own, since[0]
    return first, back


def _returned_dead_letters(group: Group) -> Iterator[tuple[str, int, HistoryEvent, HistoryEvent, bool]]:
    """Yield (queue, idx, dead letter, its first later receive from the queue, whether a move task may have moved it).

    Other later receives are other copies: of a publish a window later, under another id, or to another place.
    """
    for queue in group.expectation.queues:
        for idx, dead in _moved_letters_of(group, queue):
            for event in group.receives(queue, idx):
                is_same = dead.sqs_message_id is not None and event.sqs_message_id == dead.sqs_message_id
                if (is_same or _is_one_message(group, queue, idx, dead, event)) and group.is_before(dead, event):
                    may_be_moved = _is_copy_by_tool(dead, event) or _may_be_moved(group, queue, dead, event)
                    yield queue, idx, dead, event, may_be_moved
                    break


def _is_one_message(group: Group, queue: str, idx: int, dead: HistoryEvent, back: HistoryEvent) -> bool:
    """Return whether the publishes of an idx cannot have made both the dead letter and the later received message."""
    tries = effective(group.publishes.get(idx, ()))
    places = {(event.queue, event.deduplication_id) for event in tries}
    ids = {id_ for id_ in group.ids.get((queue, idx), ()) if not group.is_before(back, group.instances[queue, id_][0])}
    # The DLQ may also belong to a queue that is not declared: the dead letter has to be known from this one.
    is_known = bool(ids & {dead.sqs_message_id, dead.deduplication_id})
    return is_known and len(places) == 1 and dead.queue != tries[0].queue and windows_max(group, idx) < max(2, len(ids))


def _is_copy_by_tool(dead: HistoryEvent, back: HistoryEvent) -> bool:
    """Return whether a tool sent it for the dead letter, of which its deduplication id has the message id."""
    return dead.sqs_message_id is not None and (back.deduplication_id or "").endswith(f":{dead.sqs_message_id}")


def _may_be_moved(group: Group, queue: str, dead: HistoryEvent, back: HistoryEvent) -> bool:
    """Return whether a move task to the queue may have begun by then, and was not over when the message died.

    A task moves nothing that was deleted from the DLQ before it began.
    """
    deleted_us = [
        responded_us(delete) + group.around_bound_us
        for event in group.siblings(dead)
        if (delete := group.settled_delete(event)) is not None
    ]
    return any(
        not _is_over(group, move, dead) and not any(us < move.began_at_us for us in deleted_us)
        for move in group.moves_before(back, queue)
    )


@rule("F11")
def _find_kept_message_ids(group: Group) -> Iterator[FoundViolation]:
    for queue, idx, dead, back, may_be_moved in _returned_dead_letters(group):
        is_same = dead.sqs_message_id is not None and back.sqs_message_id == dead.sqs_message_id
        if is_same and (may_be_moved or not group.expectation.is_publishing_recorded):
            sentence = "came back from the DLQ with the message id it had there"
            yield queue, [idx], sentence, [dead, back]


def returns_without_move(group: Group) -> Iterator[tuple[str, int, HistoryEvent, HistoryEvent]]:
    """Yield (queue, idx, dead letter, later receive) of each message that returned without a move task on record."""
    for queue, idx, dead, back, may_be_moved in _returned_dead_letters(group):
        if not may_be_moved:
            yield queue, idx, dead, back


@rule("F13")
def _find_returns_without_move(group: Group) -> Iterator[FoundViolation]:
    for queue, idx, dead, back in returns_without_move(group) if group.expectation.is_publishing_recorded else ():
        sentence = f"was in {dead.queue}, came back to {queue}, and no move task is on record"
        yield queue, [idx], sentence, [dead, back]


@rule("F12")
def _find_poison_escapes(group: Group) -> Iterator[FoundViolation]:
    for queue in group.expectation.queues:
        dead = dict(_dead_letters_of(group, queue))
        answers: dict[str | None, list[HistoryEvent]] = defaultdict(list)
        for received in group.received.get(queue, []) if dead else ():
            answers[received.call_id].append(received)
        for idx, event in dead.items():
            receives = [
                receive for receive in group.receives(queue, idx) if responded_us(receive) < responded_us(event)
            ]
            ahead = [_dead_in_front(answers[receive.call_id], receive, dead) for receive in receives]
            if receives and all(leader is not None for leader in ahead):
                sentence = "the second was dead-lettered, and in every answer it stood behind the first, which was too"
                idxs = [ahead[0].idx if ahead[0] is not None else None, idx]
                witness = [*(leader for leader in ahead[:1] if leader is not None), receives[0], event]
                yield queue, idxs, sentence, witness


def _dead_in_front(
    answer: Sequence[HistoryEvent], event: HistoryEvent, dead: Container[int | None]
) -> HistoryEvent | None:
    """Return the dead-lettered message in front of this message in the same answer."""
    return next(
        (
            other
            for other in answer
            if (other.batch_position or 0) < (event.batch_position or 0)
            and other.idx != event.idx
            and other.idx in dead
        ),
        None,
    )
