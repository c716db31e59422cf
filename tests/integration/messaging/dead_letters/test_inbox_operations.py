"""What operators do to an inbox: each act by what the inbox does next, and by its audit; on both databases."""

import json
from typing import Any

import pytest
from sqlalchemy import Engine, select

from sluice.messaging.database.audit import acts
from sluice.messaging.envelope import TOMBSTONE, decode
from sluice.messaging.errors import DeadLetterError, EnvelopeError
from sluice.messaging.inbox import operations
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import Arrived, Policy
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.parking import ParkedMessage
from sluice.messaging.inbox.sequence import Action
from sluice.messaging.inbox.tables import audit, exceptions, groups
from tests.support.dlq_harness import envelope
from tests.support.inbox_harness import handled, taken

OPERATOR = InboxOperator(consumer="billing", actor="ada", reason="the cause is mended")
PARKING = Inbox(Policy(consumer="billing", parks_poison=True, parks_gaps=True))
RECORDING = Inbox(Policy(consumer="billing"))


def _arrived(group: str, seq: int, **more: Any) -> Arrived:
    sent = envelope(group, seq, **more)
    return Arrived(envelope=sent, body=sent.body, attributes={}, sqs_message_id=f"sqs-{group}-{seq}", receive_count=1)


def _admit(engine: Engine, inbox: Inbox, *numbers: int) -> list[Action]:
    """Let messages of group a come, and return what was done with each."""
    done = []
    for seq in numbers:
        with engine.begin() as connection:
            done.append(handled(inbox, connection, _arrived("a", seq)).action)
    return done


def _record_dead(engine: Engine, inbox: Inbox, seq: int) -> None:
    with engine.begin() as connection:
        assert inbox.record_dead(connection, _arrived("a", seq), "no such customer")


def _hold(engine: Engine, message: ParkedMessage) -> None:
    """Use up the attempts of a parked message that was taken up."""
    with engine.begin() as connection:
        assert PARKING.begin_attempt(connection, "a", attempts_max=5)
        PARKING.retry_parked(connection, message, reason="boom", delay_us=0, is_held=True)


def _taken_up(engine: Engine) -> ParkedMessage | None:
    """Return what the drainer would handle next, and let it not be handled."""
    with engine.connect() as connection:
        found = PARKING.next_parked(connection, "a")
        connection.rollback()
        return found


def _drained(engine: Engine) -> list[int]:
    """Let the drainer handle what it can, and return the numbers."""
    done: list[int] = []
    while True:
        with engine.begin() as connection:
            message = taken(PARKING, connection)
        if message is None:
            return done
        done.append(message.envelope.seq)


def _last_seq(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(groups.c.last_seq)).scalar_one())


def _is_parked(engine: Engine) -> bool:
    with engine.connect() as connection:
        return connection.execute(select(groups.c.parked_at_us)).scalar_one() is not None


def _exceptions(engine: Engine) -> list[tuple[int, int, str, bool]]:
    """Return (first, last, state, whether it is open) of what is written down, by number."""
    with engine.connect() as connection:
        rows = connection.execute(select(exceptions).order_by(exceptions.c.seq)).all()
    return [(row.seq, row.through, row.state, row.closed_at_us is None) for row in rows]


def _audited(engine: Engine) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        return acts(connection, audit.c.consumer, "billing", most=10)


@pytest.fixture
def held(inbox: Engine) -> Engine:
    """Return an inbox in which 1 was handled, 2 came after 3 and 4, and 3 is held: its attempts are used up."""
    assert _admit(inbox, PARKING, 1, 3, 4, 2) == [Action.HANDLE, Action.PARK, Action.PARK, Action.HANDLE]
    message = _taken_up(inbox)
    assert message is not None
    _hold(inbox, message)
    assert _taken_up(inbox) is None
    return inbox


def test_retry_has_a_held_message_tried_again_as_it_is(held: Engine) -> None:
    """With all its attempts; what is behind it follows, and the group is no longer parked."""
    with held.begin() as connection:
        OPERATOR.retry(connection, "a", 3)

    message = _taken_up(held)
    assert message is not None
    assert (message.envelope.body, message.attempts) == (envelope("a", 3).body, 0)
    assert _drained(held) == [3, 4]
    assert not _is_parked(held)


def test_replace_has_a_held_message_tried_again_with_other_data(held: Engine) -> None:
    """Same event, group, number and epoch; the hash is that of the new data, and the audit has the old body."""
    with held.begin() as connection:
        OPERATOR.replace(connection, "a", 3, {"n": "right"})

    message = _taken_up(held)
    assert message is not None
    assert message.envelope.event.data == {"n": "right"}
    assert (message.envelope.event.id, message.envelope.seq, message.envelope.epoch) == ("a-3", 3, 1)
    assert decode(message.envelope.body) == message.envelope
    (row,) = _audited(held)
    assert (row["action"], row["group_id"], row["seq"], row["reason"]) == ("replace", "a", 3, "the cause is mended")
    assert json.loads(row["detail"]) == {
        "event_id": "a-3",
        "sqs_message_id": "sqs-a-3",
        "attempts": 1,
        "last_error": "boom",
        "body": envelope("a", 3).body,
    }


def test_data_that_cannot_be_sent_replaces_nothing(held: Engine) -> None:
    """The envelope refuses it, and nothing is written, the audit included."""
    with pytest.raises(EnvelopeError), held.begin() as connection:
        OPERATOR.replace(connection, "a", 3, {"n": float("nan")})

    assert _taken_up(held) is None
    assert _audited(held) == []


def test_skip_gives_up_what_is_held(held: Engine) -> None:
    """The number counts as accounted for, the rest follows, the body is in the audit; should it come, it is dropped."""
    with held.begin() as connection:
        OPERATOR.skip(connection, "a", 3)

    with held.connect() as connection:
        assert operations.parked_message(connection, "billing", "a", 3) is None
        assert connection.execute(select(groups.c.last_seq, groups.c.last_event_id)).one() == (3, None)
    assert _drained(held) == [4]
    assert not _is_parked(held)
    assert _admit(held, PARKING, 3, 5) == [Action.DROP, Action.HANDLE]
    assert _exceptions(held) == [(3, 3, "skipped", False)]
    assert json.loads(_audited(held)[0]["detail"])["body"] == envelope("a", 3).body


def test_skip_gives_up_what_a_parked_group_waits_for(inbox: Engine) -> None:
    """Its message died; the redriven copy, should somebody bring it back, is dropped."""
    _admit(inbox, PARKING, 1)
    _record_dead(inbox, PARKING, 2)
    _admit(inbox, PARKING, 3)
    assert _drained(inbox) == []

    with inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 2)

    assert PARKING.due(inbox) == ["a"]
    assert _drained(inbox) == [3]
    assert _admit(inbox, PARKING, 2, 4) == [Action.DROP, Action.HANDLE]


def test_skip_gives_up_what_came_from_nowhere(inbox: Engine) -> None:
    """A number that is missing has no row while its group waits for it: one is made."""
    _admit(inbox, PARKING, 1, 4)

    with inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 2)
    assert _drained(inbox) == []
    with inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 3)

    assert _exceptions(inbox) == [(2, 2, "skipped", False), (3, 3, "skipped", False)]
    assert _drained(inbox) == [4]


def test_a_number_given_up_further_on_is_still_given_up_when_it_is_reached(inbox: Engine) -> None:
    """4 was set aside, and given up; the group waits for 3, or a copy of 4 would be handled after it."""
    _admit(inbox, PARKING, 1, 4)
    with inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 4)

    assert _admit(inbox, PARKING, 2) == [Action.HANDLE]
    assert _drained(inbox) == []
    assert _is_parked(inbox)
    assert _admit(inbox, PARKING, 3) == [Action.HANDLE]
    assert _drained(inbox) == []
    assert not _is_parked(inbox)
    assert _admit(inbox, PARKING, 4, 5) == [Action.DROP, Action.HANDLE]


def test_a_number_that_may_never_have_been_sent_is_not_given_up(inbox: Engine) -> None:
    """3 is set aside: what is behind it is nobody's to give up, and would be handled once the group has caught up."""
    _admit(inbox, PARKING, 1, 3)

    with (
        inbox.begin() as connection,
        pytest.raises(DeadLetterError, match="number 4 of group 'a' of billing is not due yet"),
    ):
        OPERATOR.skip(connection, "a", 4)


def test_numbers_given_up_in_advance_are_passed_with_the_one_before_them(inbox: Engine) -> None:
    """3 and 4 first: the group still waits for 2, and goes on at 5 when that is given up too."""
    _admit(inbox, PARKING, 1, 5)
    for seq in (3, 4):
        with inbox.begin() as connection:
            OPERATOR.skip(connection, "a", seq)
    assert _last_seq(inbox) == 1

    with inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 2)

    assert _last_seq(inbox) == 4
    assert _drained(inbox) == [5]


def test_skip_closes_one_number_of_a_range(inbox: Engine) -> None:
    """Where gaps are written down as ranges, the rest of the range stays open."""
    _admit(inbox, RECORDING, 1, 6)
    assert _exceptions(inbox) == [(2, 5, "gap", True)]

    with inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 4)

    assert _exceptions(inbox) == [(2, 3, "gap", True), (4, 4, "skipped", False), (5, 5, "gap", True)]
    assert _last_seq(inbox) == 6
    assert _admit(inbox, RECORDING, 4, 3, 7) == [Action.DROP, Action.HANDLE, Action.HANDLE]


def test_skip_closes_a_dead_number_the_group_has_passed(inbox: Engine) -> None:
    """With policy skip its successors went on; the redriven copy would be handled late, and now is dropped."""
    _admit(inbox, RECORDING, 1)
    _record_dead(inbox, RECORDING, 2)
    _admit(inbox, RECORDING, 3)

    with inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 2)

    assert _exceptions(inbox) == [(2, 2, "skipped", False)]
    assert _admit(inbox, RECORDING, 2) == [Action.DROP]


def test_a_tombstone_after_a_skip_is_one_number_still(inbox: Engine) -> None:
    """The producer gave it up as well: dropped, and what follows is no gap."""
    _admit(inbox, PARKING, 1, 3)
    with inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 2)

    with inbox.begin() as connection:
        assert PARKING.admit(connection, _arrived("a", 2, type=TOMBSTONE, data=None)).decision.action is Action.DROP
    assert _drained(inbox) == [3]
    assert _exceptions(inbox) == [(2, 2, "skipped", False)]


@pytest.mark.parametrize(
    ("act", "group", "seq", "message"),
    [
        (InboxOperator.retry, "a", 4, "message 4 of group 'a' of billing is set aside and waits for its turn"),
        (InboxOperator.retry, "a", 9, "message 9 of group 'a' of billing is not set aside in the inbox"),
        (InboxOperator.retry, "z", 3, "message 3 of group 'z' of billing is not set aside in the inbox"),
        (
            InboxOperator.skip,
            "a",
            1,
            "number 1 of group 'a' of billing is handled, allowed is one that is missing, dead or",
        ),
        (InboxOperator.skip, "z", 1, "nothing of group 'z' has come to billing"),
    ],
)
def test_an_act_on_a_number_that_is_not_so_is_refused(
    held: Engine, act: Any, group: str, seq: int, message: str
) -> None:
    """And changes nothing, the audit included."""
    before = _exceptions(held)

    with pytest.raises(DeadLetterError) as refused, held.begin() as connection:
        act(OPERATOR, connection, group, seq)

    assert str(refused.value).startswith(message)
    assert str(refused.value).endswith("see `dlq ls`")
    assert (_exceptions(held), _audited(held), _taken_up(held)) == (before, [], None)


def test_a_number_is_given_up_once(held: Engine) -> None:
    """The second time it is said that it was."""
    with held.begin() as connection:
        OPERATOR.skip(connection, "a", 3)

    found = "number 3 of group 'a' of billing is given up already"
    with pytest.raises(DeadLetterError, match=found), held.begin() as connection:
        OPERATOR.skip(connection, "a", 3)


def test_a_number_far_ahead_of_a_group_that_waits_for_nothing_is_not_due(inbox: Engine) -> None:
    """It may yet come by itself; only the next can be given up in advance."""
    _admit(inbox, RECORDING, 1)

    found = r"is not due yet, .* or the next, which is 2"
    with pytest.raises(DeadLetterError, match=found), inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 3)
    with inbox.begin() as connection:
        OPERATOR.skip(connection, "a", 2)

    assert _admit(inbox, RECORDING, 2, 3) == [Action.DROP, Action.HANDLE]


def test_w16_another_consumers_inbox_is_left_alone(held: Engine) -> None:
    """One database, two consumers: what is done to one is nothing to the other."""
    other = InboxOperator(consumer="shipping", actor="ada", reason="mine")

    with pytest.raises(DeadLetterError), held.begin() as connection:
        other.skip(connection, "a", 3)
    with pytest.raises(DeadLetterError), held.begin() as connection:
        other.retry(connection, "a", 3)


def test_what_is_parked_and_open_is_listed(held: Engine) -> None:
    """Which number each group waits for, how many are set aside, what holds them, and what died."""
    with held.begin() as connection:
        assert RECORDING.record_dead(connection, _arrived("b", 9), "no such customer")

    with held.connect() as connection:
        (group,) = operations.parked_groups(connection, "billing", most=10)
        opened = operations.open_exceptions(connection, "billing", most=10)
        nobodys = operations.parked_groups(connection, "shipping", most=10)

    assert (group["group_id"], group["parked_count"]) == ("a", 2)
    assert group["held"] == [{"seq": 3, "attempts": 1, "last_error": "boom"}]
    assert ("dead", 9, 9, "no such customer") in [
        (entry["state"], entry["seq"], entry["through"], entry["reason"]) for entry in opened
    ]
    assert nobodys == []


# --- the baseline -----------------------------------------------------------------------------------------------------


def _late(engine: Engine) -> Inbox:
    """Return the inbox of a consumer that joined late, in which group a begins with 5."""
    late = Inbox(Policy(consumer="billing", joined_at_us=2**62))
    assert _admit(engine, late, 5, 6) == [Action.HANDLE] * 2
    return late


def test_a_lowered_baseline_makes_what_is_before_it_missing(inbox: Engine) -> None:
    """It is listed until it comes; what is further before is still not expected."""
    late = _late(inbox)

    with inbox.begin() as connection:
        OPERATOR.lower_baseline(connection, "a", 3)

    with inbox.connect() as connection:
        (gap,) = operations.open_exceptions(connection, "billing", most=10)
        (group,), count = operations.listed_groups(connection, "billing", group_id="a", most=10)
    assert (gap["seq"], gap["through"], gap["state"]) == (3, 4, "gap")
    assert (group["first_seq"], group["last_seq"], count) == (3, 6, 1)
    assert _admit(inbox, late, 3, 4, 3) == [Action.HANDLE, Action.HANDLE, Action.DROP]
    with inbox.connect() as connection:
        assert operations.open_exceptions(connection, "billing", most=10) == []
        (row,) = acts(connection, audit.c.consumer, "billing", most=10)
    assert (row["action"], row["seq"], json.loads(row["detail"])) == (
        "lower-baseline",
        3,
        {"epoch": 1, "first_seq": 5},
    )


def test_what_came_already_is_not_missing_when_the_baseline_is_lowered(inbox: Engine) -> None:
    """A replay may have brought some of it."""
    late = _late(inbox)
    assert _admit(inbox, late, 2) == [Action.HANDLE]

    with inbox.begin() as connection:
        OPERATOR.lower_baseline(connection, "a", 1)

    with inbox.connect() as connection:
        found = operations.open_exceptions(connection, "billing", most=10)
    assert [(row["seq"], row["through"]) for row in found] == [(1, 1), (3, 4)]
    assert _admit(inbox, late, 2, 1) == [Action.DROP, Action.HANDLE]


@pytest.mark.parametrize(
    ("group", "seq", "message"),
    [
        ("a", 5, "number is 5, allowed is 1 to 4: the baseline of group 'a' of billing is 5"),
        ("a", 0, "number is 0, allowed is 1 to 4"),
        ("b", 1, "nothing of group 'b' has come to billing"),
    ],
)
def test_a_baseline_is_only_lowered(inbox: Engine, group: str, seq: int, message: str) -> None:
    """To raise it would be to give numbers up, which is `skip`'s."""
    _late(inbox)

    with inbox.begin() as connection, pytest.raises(DeadLetterError, match=message):
        OPERATOR.lower_baseline(connection, group, seq)
