"""The inbox on an engine of ours and on a program's own, and on connections that are lost or see the tables change."""

import dataclasses
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from sluice.messaging.database import failures
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from tests.support.messaging.inbox_harness import GroupNumbers, InboxHarness, decoded_message, handle_message

_END = text("SELECT pg_terminate_backend(:pid, 5000)")
_PID = text("SELECT pg_backend_pid()")
_GROUPS = ["a", "';--", "\\'", "$1", "%s%(a)s", "a" * 120]


def _admit_messages(engine: Engine) -> list[Any]:
    """Return what the inbox decides about some messages, without times and locks."""
    inbox, found = Inbox(InboxPolicy(consumer="billing")), []
    for came in (decoded_message(seq, group=group) for group in _GROUPS for seq in (1, 2, 2, 4)):
        with engine.begin() as connection:
            admission = inbox.admit(connection, came)
            is_marked = inbox.mark(connection, came.envelope, admission)
        found.append((dataclasses.replace(admission, decided_at_us=0, lock=None), is_marked))
    return found


def test_an_inbox_decides_alike_on_a_programs_own_engine(on_postgres: Engine) -> None:
    """With group names that would break a statement written by hand."""
    theirs = create_engine(on_postgres.url)
    try:
        expected = _admit_messages(theirs)
    finally:
        theirs.dispose()
    with on_postgres.begin() as connection:
        connection.execute(text("DELETE FROM sluice_inbox_group"))
        connection.execute(text("DELETE FROM sluice_inbox_exception"))

    found = _admit_messages(on_postgres)

    assert found == expected
    assert {decided.position.last_seq for decided, _ in found} == {0, 1, 2}


def test_after_a_lost_connection_the_next_transaction_gets_a_new_one(on_postgres: Engine) -> None:
    """SQLAlchemy's error invalidates the connection and replaces the pooled ones, of which one is broken here too."""
    inbox = Inbox(InboxPolicy(consumer="billing"))
    with on_postgres.connect() as idle, on_postgres.connect() as broken, on_postgres.connect() as other:
        pids = [connection.execute(_PID).scalar_one() for connection in (idle, broken)]
        broken.rollback()
        idle.close()
        for pid in pids:
            other.execute(_END, {"pid": pid})
        with pytest.raises(DBAPIError) as caught:
            inbox.admit(broken, decoded_message(1))
        is_invalidated = broken.invalidated

    assert caught.value.connection_invalidated is True
    assert is_invalidated is True
    assert failures.may_pass(caught.value)
    with on_postgres.begin() as connection:
        handle_message(inbox, connection, decoded_message(1))
    assert InboxHarness(on_postgres).numbers() == GroupNumbers(epoch=1, first=1, last=1)


def test_only_committed_messages_change_the_position(on_postgres: Engine) -> None:
    """Message 1 is rolled back, then committed; message 2 is not committed."""
    inbox = Inbox(InboxPolicy(consumer="billing"))
    with on_postgres.connect() as connection:
        handle_message(inbox, connection, decoded_message(1))
        connection.rollback()
        handle_message(inbox, connection, decoded_message(1))
        connection.commit()
        handle_message(inbox, connection, decoded_message(2))

    assert InboxHarness(on_postgres).numbers() == GroupNumbers(epoch=1, first=1, last=1)


def test_a_column_of_another_type_costs_no_message(on_postgres: Engine) -> None:
    """Postgres refuses a prepared plan after such a change, so a connection that kept it could handle nothing more."""
    inbox = Inbox(InboxPolicy(consumer="billing"))
    with on_postgres.connect() as connection:
        for seq in (1, 2, 3):
            handle_message(inbox, connection, decoded_message(seq))
            connection.commit()
            if seq == 1:
                with on_postgres.begin() as other:
                    other.execute(text("ALTER TABLE sluice_inbox_group ALTER last_event_id TYPE varchar(200)"))

    assert InboxHarness(on_postgres).numbers() == GroupNumbers(epoch=1, first=1, last=3)
