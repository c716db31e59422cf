"""Effects that only the database knows are added to the history, and contradictions between the two are named."""

from collections import Counter
from pathlib import Path

from sqlalchemy import create_engine, insert, update

from sluice.history.events import END_TYPE
from sluice.judge.databases import DatabaseAnomaly, judge
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables as outbox_tables
from spark_load.consume.effects import Effect, is_all_sent, missing_effects, passed_count, rows_of, unrecorded_effects


def _effect(idx: int, *, is_late: bool = False) -> Effect:
    return Effect(message_group_id="g", message_run="epoch-1", idx=idx, is_late=is_late, written_at_us=1_000 + idx)


def _key(idx: int) -> tuple[str, str, int]:
    return "epoch-1", "g", idx


def test_unrecorded_effects_are_each_added_once() -> None:
    """The worker was killed after the commit. Two effects become two events, from which the checker finds R2."""
    events = list(unrecorded_effects([_effect(1), _effect(2), _effect(2)], Counter([_key(1)]), "billing"))

    assert [(event["kind"], event["queue"], event["idx"]) for event in events] == [("handled", "billing", 2)] * 2
    assert list(unrecorded_effects([_effect(1)], Counter([_key(1)]), "billing")) == []


def test_a_recorded_effect_that_the_database_lacks_is_named() -> None:
    """Messages 1 and 2 were recorded as handled, and the database has 1. The end marker (-3) has no effect."""
    assert missing_effects([_effect(1)], Counter([_key(1), _key(2), _key(-3)])) == [_key(2)]


def _violations(
    folder: Path, effects: list[Effect], *, outbox: Path | None, late: int | None = None
) -> list[DatabaseAnomaly]:
    """Return the violations found with an inbox that lists one number as late, and with an outbox, if one is given."""
    url = f"sqlite:///{folder / 'inbox.db'}"
    engine = create_engine(url)
    inbox_tables.metadata.create_all(engine)
    listed = {"consumer": "billing", "group_id": "g", "epoch": 1, "seq": late, "through": late, "state": "filled"}
    with engine.begin() as connection:
        if late is not None:
            connection.execute(insert(inbox_tables.exceptions).values(**listed, seen_at_us=0, closed_at_us=0))
    engine.dispose()
    rows = rows_of(url, consumer="billing", epoch=1, effects=effects, outbox=outbox)
    return [violation.anomaly for violation in judge(rows, {"billing": False}).violations]


def _outbox(folder: Path, count: int) -> Path:
    """Return an outbox with `count` messages of one group, and its end marker."""
    engine = create_engine(f"sqlite:///{folder / 'outbox.db'}")
    outbox_tables.metadata.create_all(engine)
    common = {"topic": "t", "group_id": "g", "body": "", "attributes": "", "deduplication_id": "", "created_at_us": 0}
    types = ["t"] * count + [END_TYPE]
    with engine.begin() as connection:
        for seq, type_ in enumerate(types, start=1):
            row = {**common, "group_seq": seq, "event_id": f"e{seq}", "type": type_, "deduplication_id": f"d{seq}"}
            connection.execute(insert(outbox_tables.messages).values(**row))
    engine.dispose()
    return folder / "outbox.db"


def test_an_effect_after_a_later_one_is_out_of_order_unless_late(tmp_path: Path) -> None:
    """Without an outbox, the numbers are taken for the order of the commits."""
    reordered = [_effect(1), _effect(3), _effect(2), _effect(4)]

    assert _violations(tmp_path, [_effect(1), _effect(3)], outbox=None) == []
    assert _violations(tmp_path, reordered, outbox=None) == [DatabaseAnomaly.REORDERED]
    assert _violations(tmp_path, reordered, outbox=None, late=2) == []


def test_each_message_of_an_outbox_has_one_effect(tmp_path: Path) -> None:
    """Three messages were committed: a second effect, a missing one and one of no message are each found."""
    outbox = _outbox(tmp_path, 3)

    assert _violations(tmp_path, [_effect(1), _effect(2), _effect(3)], outbox=outbox) == []
    assert _violations(tmp_path, [_effect(1), _effect(2), _effect(2)], outbox=outbox) == [
        DatabaseAnomaly.DOUBLE,
        DatabaseAnomaly.LOST,
    ]
    found = _violations(tmp_path, [_effect(1), _effect(2), _effect(3), _effect(5)], outbox=outbox)
    assert found == [DatabaseAnomaly.INVENTED]


def test_an_inbox_counts_a_runs_messages_unless_one_is_missing(tmp_path: Path) -> None:
    """Billing has 3 and 2 of the run's epoch 7. With an open gap it counts as 0, so that the run waits."""
    url = f"sqlite:///{tmp_path / 'inbox.db'}"
    engine = create_engine(url)
    inbox_tables.metadata.create_all(engine)
    with engine.begin() as connection:
        for consumer, group, epoch, last_seq in (("billing", "a", 7, 3), ("billing", "b", 7, 2), ("audit", "a", 7, 9)):
            row = {"consumer": consumer, "group_id": group, "epoch": epoch, "first_seq": 1, "last_seq": last_seq}
            connection.execute(insert(inbox_tables.groups).values(**row, updated_at_us=0))
    assert [passed_count(url, consumer="billing", epoch=epoch) for epoch in (7, 6)] == [5, 0]
    gap = {"consumer": "billing", "group_id": "a", "epoch": 7, "seq": 2, "through": 2, "state": "gap", "seen_at_us": 0}
    with engine.begin() as connection:
        connection.execute(insert(inbox_tables.exceptions).values(**gap))
    engine.dispose()

    assert passed_count(url, consumer="billing", epoch=7) == 0


def test_an_outbox_with_a_pending_message_is_not_all_sent(tmp_path: Path) -> None:
    outbox = _outbox(tmp_path, 2)
    assert not is_all_sent(outbox)
    engine = create_engine(f"sqlite:///{outbox}")
    with engine.begin() as connection:
        connection.execute(update(outbox_tables.messages).values(status="sent", sent_at_us=1, sns_message_id="m"))
    engine.dispose()

    assert is_all_sent(outbox)
