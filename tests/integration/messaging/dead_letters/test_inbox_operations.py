"""Each act of operators on an inbox changes what the inbox does next, and is audited; on both databases."""

import json
from typing import Any

import pytest
from sqlalchemy import Engine, select

from sluice.messaging.database.audit import acts
from sluice.messaging.database.choice import RowChoice
from sluice.messaging.envelope import TOMBSTONE, decode
from sluice.messaging.errors import DeadLetterError, EnvelopeError
from sluice.messaging.inbox import operations
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.tables import audit, groups
from tests.support.messaging.inbox_harness import DROP, HANDLE, PARK, GroupNumbers, InboxHarness, decoded_message


@pytest.fixture
def parking(inbox: Engine) -> InboxHarness:
    """Return an inbox that parks messages behind a dead or a missing one."""
    return InboxHarness(inbox, parks_poison=True, parks_gaps=True)


@pytest.fixture
def recording(inbox: Engine) -> InboxHarness:
    """Return an inbox that goes on without missing messages."""
    return InboxHarness(inbox)


@pytest.fixture
def inbox_with_held(parking: InboxHarness) -> InboxHarness:
    """Return an inbox in which 1 was handled, 2 arrived after 3 and 4, and 3 is held: its attempts are used up."""
    assert parking.bring(1, 3, 4, 2) == [HANDLE, PARK, PARK, HANDLE]
    parking.hold()
    assert parking.peek() is None
    return parking


@pytest.fixture
def late(inbox: Engine) -> InboxHarness:
    """Return the inbox of a consumer that joined late, in which group a begins with 5."""
    made = InboxHarness(inbox, joined_at_us=2**62)
    assert made.bring(5, 6) == [HANDLE] * 2
    return made


def _audit_rows(harness: InboxHarness) -> list[dict[str, Any]]:
    """Return the audit of the inbox, the latest act first."""
    with harness.engine.connect() as connection:
        return acts(connection, audit.c.consumer, "billing", most=10)


def _retry(harness: InboxHarness) -> None:
    """Have message 3 of group a tried again."""
    with harness.engine.begin() as connection:
        harness.operator.retry(connection, "a", 3)


def _replace(harness: InboxHarness, data: object) -> None:
    """Have message 3 of group a tried again with this data."""
    with harness.engine.begin() as connection:
        harness.operator.replace(connection, "a", 3, data)


def _lower_baseline(harness: InboxHarness, seq: int, group: str = "a") -> None:
    """Let the group begin with an earlier number."""
    with harness.engine.begin() as connection:
        harness.operator.lower_baseline(connection, group, seq)


def _open(harness: InboxHarness) -> list[tuple[int, int, str, str | None]]:
    """Return the open ranges of an inbox: first and last number, state and reason."""
    with harness.engine.connect() as connection:
        listed = operations.open_exceptions(connection, "billing", most=10)
    return [(row["seq"], row["through"], row["state"], row["reason"]) for row in listed]


def test_retry_gives_a_held_message_all_its_attempts_again(inbox_with_held: InboxHarness) -> None:
    """With the same body. The message behind it is handled afterwards."""
    _retry(inbox_with_held)

    message = inbox_with_held.peek()
    assert message is not None
    assert message.envelope.body == decoded_message(3).body
    assert message.attempts == 0
    assert inbox_with_held.drain() == [3, 4]
    assert not inbox_with_held.is_parked()


def test_replace_gives_a_held_message_new_data_and_audits_the_old(inbox_with_held: InboxHarness) -> None:
    """Event id, number and epoch stay."""
    _replace(inbox_with_held, {"n": "right"})

    message = inbox_with_held.peek()
    assert message is not None
    assert message.envelope.event.data == {"n": "right"}
    assert message.envelope.event.id == "a-1-3"
    assert message.envelope.seq == 3
    assert message.envelope.epoch == 1
    assert decode(message.envelope.body) == message.envelope
    (row,) = _audit_rows(inbox_with_held)
    assert row["action"] == "replace"
    assert row["group_id"] == "a"
    assert row["seq"] == 3
    assert row["reason"] == "is lost"
    assert json.loads(row["detail"]) == {
        "event_id": "a-1-3",
        "sqs_message_id": "sqs-a-1-3",
        "attempts": 1,
        "last_error": "boom",
        "body": decoded_message(3).body,
    }


def test_data_that_cannot_be_sent_replaces_nothing(inbox_with_held: InboxHarness) -> None:
    """NaN is no JSON."""
    with pytest.raises(EnvelopeError):
        _replace(inbox_with_held, {"n": float("nan")})

    assert inbox_with_held.peek() is None
    assert _audit_rows(inbox_with_held) == []


def test_skip_gives_up_a_held_message(inbox_with_held: InboxHarness) -> None:
    """The group goes on with 4; a copy of 3 is dropped; the audit keeps its body."""
    inbox_with_held.skip(3)

    with inbox_with_held.engine.connect() as connection:
        assert operations.parked_message(connection, "billing", "a", 3) is None
        assert connection.execute(select(groups.c.last_seq, groups.c.last_event_id)).one() == (3, None)
    assert inbox_with_held.drain() == [4]
    assert not inbox_with_held.is_parked()
    assert inbox_with_held.bring(3, 5) == [DROP, HANDLE]
    assert inbox_with_held.number_records() == ["3 skipped, closed"]
    assert json.loads(_audit_rows(inbox_with_held)[0]["detail"])["body"] == decoded_message(3).body


def test_skip_gives_up_the_dead_message_a_parked_group_waits_for(parking: InboxHarness) -> None:
    """3 is then drained, and a redriven copy of 2 is dropped."""
    parking.bring(1)
    assert parking.record_dead(2)
    parking.bring(3)
    assert parking.drain() == []

    parking.skip(2)

    assert parking.drain() == [3]
    assert parking.bring(2, 4) == [DROP, HANDLE]


def test_skip_gives_up_numbers_that_never_came(parking: InboxHarness) -> None:
    """A missing number has no row while its group waits for it, so `skip` makes one."""
    parking.bring(1, 4)

    parking.skip(2)
    assert parking.drain() == []
    parking.skip(3)

    assert parking.number_records() == ["2 skipped, closed", "3 skipped, closed"]
    assert parking.drain() == [4]


def test_a_number_given_up_ahead_stays_given_up(parking: InboxHarness) -> None:
    """4 was parked and given up; otherwise a copy of 4 would be handled after the awaited 3."""
    parking.bring(1, 4)
    parking.skip(4)

    assert parking.bring(2) == [HANDLE]
    assert parking.drain() == []
    assert parking.is_parked() is True
    assert parking.bring(3) == [HANDLE]
    assert parking.drain() == []
    assert parking.is_parked() is False
    assert parking.bring(4, 5) == [DROP, HANDLE]


def test_a_number_that_may_never_have_been_sent_is_not_given_up(parking: InboxHarness) -> None:
    """Number 3 is parked.

    An operator cannot give up a later number, which may be an ordinary message that comes next.
    """
    parking.bring(1, 3)

    with pytest.raises(DeadLetterError, match="number 4 of group 'a' of billing is not due yet"):
        parking.skip(4)


def test_numbers_skipped_in_advance_are_passed_when_their_turn_comes(parking: InboxHarness) -> None:
    """3 and 4 were given up while the group waits for 2. When 2 is given up, it goes on with 5."""
    parking.bring(1, 5)
    parking.skip(3)
    parking.skip(4)
    before = parking.numbers()

    parking.skip(2)

    assert before == GroupNumbers(epoch=1, first=1, last=1)
    assert parking.numbers() == GroupNumbers(epoch=1, first=1, last=4)
    assert parking.drain() == [5]


def test_skip_before_gives_up_all_missing_numbers_after_a_restore(parking: InboxHarness) -> None:
    """The inbox was restored to number 1 of each group.

    It has forgotten the messages that it handled since, and later messages are in the queue.
    """
    for group in ("a", "b", "dead"):
        assert parking.bring(1, group=group) == [HANDLE]
    assert parking.bring(4, 6, group="a") == parking.bring(3, 4, group="b") == [PARK, PARK]
    parking.record_dead(2, group="dead")
    assert parking.bring(3, group="dead") == [PARK]
    assert parking.bring(7, group="a", epoch=9, first=7) == [PARK]

    with parking.engine.connect() as connection:
        of_earlier = parking.operator.skip_before(connection, 1)
        of_b = parking.operator.skip_before(connection, 9, "b")
    with parking.engine.begin() as connection:
        of_all = parking.operator.skip_before(connection, 9)

    assert of_earlier == (0, 0)
    assert of_b == (1, 0)
    assert of_all == (4, 1)
    assert parking.drain() == [4, 6, 7, 3, 4]
    assert [parking.is_parked(group) for group in ("a", "b", "dead")] == [False, False, True]
    assert {act["action"] for act in _audit_rows(parking)} == {"skip"}


def test_skip_closes_a_dead_number_the_group_has_passed(recording: InboxHarness) -> None:
    """With Poison.SKIP the later messages were handled.

    The redriven copy would be handled as late, and after the skip is dropped.
    """
    recording.bring(1)
    assert recording.record_dead(2)
    recording.bring(3)

    recording.skip(2)

    assert recording.number_records() == ["2 skipped, closed"]
    assert recording.bring(2) == [DROP]


def test_a_tombstone_after_a_skip_is_dropped(parking: InboxHarness) -> None:
    """Producer and consumer both gave the number up."""
    parking.bring(1, 3)
    parking.skip(2)

    assert parking.bring(2, type=TOMBSTONE, id="stone") == [DROP]
    assert parking.drain() == [3]
    assert parking.number_records() == ["2 skipped, closed"]


@pytest.mark.parametrize(
    ("act", "group", "seq", "message"),
    ids=[
        "retry of a waiting",
        "retry of an unknown number",
        "retry in another group",
        "skip of a handled",
        "unknown group",
    ],
    argvalues=[
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
def test_an_act_that_does_not_fit_its_number_is_refused(
    inbox_with_held: InboxHarness, act: Any, group: str, seq: int, message: str
) -> None:
    """The refused act changes no record, and is not audited."""
    before = inbox_with_held.number_records()

    with pytest.raises(DeadLetterError) as refused, inbox_with_held.engine.begin() as connection:
        act(inbox_with_held.operator, connection, group, seq)

    assert str(refused.value).startswith(message)
    assert str(refused.value).endswith("see `dlq ls`")
    assert inbox_with_held.number_records() == before
    assert _audit_rows(inbox_with_held) == []
    assert inbox_with_held.peek() is None


def test_a_second_skip_of_a_number_is_refused(inbox_with_held: InboxHarness) -> None:
    """The first skip of number 3 gave it up and stays as it is."""
    inbox_with_held.skip(3)

    with pytest.raises(DeadLetterError, match="number 3 of group 'a' of billing is given up already"):
        inbox_with_held.skip(3)


def test_a_number_far_ahead_of_an_idle_group_is_not_due(recording: InboxHarness) -> None:
    """The number may yet come by itself; only the next one can be given up in advance."""
    recording.bring(1)

    with pytest.raises(DeadLetterError, match=r"is not due yet, .* or the next, which is 2"):
        recording.skip(3)
    recording.skip(2)

    assert recording.bring(2, 3) == [DROP, HANDLE]


@pytest.mark.parametrize("act", [InboxOperator.skip, InboxOperator.retry])
def test_w16_another_consumers_inbox_is_left_alone(inbox_with_held: InboxHarness, act: Any) -> None:
    """Both consumers have their rows in the same tables."""
    other = InboxOperator(consumer="shipping", actor="ada", reason="mine")

    with pytest.raises(DeadLetterError), inbox_with_held.engine.begin() as connection:
        act(other, connection, "a", 3)


def test_parked_and_open_messages_are_listed(inbox_with_held: InboxHarness, recording: InboxHarness) -> None:
    """A parked group with its held message, and a dead message of another group."""
    assert recording.record_dead(9, group="b")

    with inbox_with_held.engine.connect() as connection:
        (group,) = operations.parked_groups(connection, "billing", most=10)
        nobodys = operations.parked_groups(connection, "shipping", most=10)

    assert group["group_id"] == "a"
    assert group["parked_count"] == 2
    assert group["held"] == [{"epoch": 1, "seq": 3, "attempts": 1, "last_error": "boom"}]
    assert (9, 9, "dead", "no such customer") in _open(inbox_with_held)
    assert nobodys == []


def test_lowering_the_baseline_records_the_numbers_before_as_missing(late: InboxHarness) -> None:
    """The consumer joined late, with number 5; 3 and 4 are now handled when they are redriven."""
    _lower_baseline(late, 3)

    with late.engine.connect() as connection:
        (group,), count = operations.listed_groups(
            connection, "billing", choice=RowChoice(groups=frozenset("a")), most=10
        )
    assert _open(late) == [(3, 4, "gap", None)]
    assert group["first_seq"] == 3
    assert group["last_seq"] == 6
    assert count == 1
    assert late.bring(3, 4, 3) == [HANDLE, HANDLE, DROP]
    assert _open(late) == []
    (row,) = _audit_rows(late)
    assert row["action"] == "lower-baseline"
    assert row["seq"] == 3
    assert json.loads(row["detail"]) == {"epoch": 1, "first_seq": 5}


def test_lowering_the_baseline_skips_numbers_that_were_handled(late: InboxHarness) -> None:
    """Number 2 came before the baseline and was handled then."""
    assert late.bring(2) == [HANDLE]

    _lower_baseline(late, 1)

    assert _open(late) == [(1, 1, "gap", None), (3, 4, "gap", None)]
    assert late.bring(2, 1) == [DROP, HANDLE]


@pytest.mark.parametrize(
    ("group", "seq", "message"),
    ids=["raised", "number 0", "unknown group"],
    argvalues=[
        ("a", 5, "number is 5, allowed is 1 to 4: the baseline of group 'a' of billing is 5"),
        ("a", 0, "number is 0, allowed is 1 to 4"),
        ("b", 1, "nothing of group 'b' has come to billing"),
    ],
)
def test_a_baseline_is_only_lowered(late: InboxHarness, group: str, seq: int, message: str) -> None:
    """Raising the baseline would give numbers up, and only `skip` may do that."""
    with pytest.raises(DeadLetterError, match=message):
        _lower_baseline(late, seq, group)
