"""Events of a load test that are poison, as long as a file says how."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from sluice.messaging import Ack, Event, Reject
from sluice.testing.load import poison


def _events() -> list[Event]:
    return [Event(type="t", group="g", data=None, id=f"e{number}") for number in range(200)]


def test_one_event_in_four_is_poison_while_the_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same events are poison each time, so another attempt fails as well."""
    file = tmp_path / "billing"
    assert [poison.way_of(event) for event in _events()] == [None] * 200
    monkeypatch.setenv(poison.VARIABLE, str(file))
    assert [poison.way_of(event) for event in _events()] == [None] * 200

    file.write_text("raise", encoding="utf-8")
    found = [poison.way_of(event) for event in _events()]

    assert set(found) == {None, "raise"}
    assert 30 < found.count("raise") < 70  # a quarter of 200, chosen by hash
    assert found == [poison.way_of(event) for event in _events()]


def test_poison_rejects_raises_or_rolls_back_as_requested() -> None:
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        assert poison.suffer(session, "reject") == Reject("the event is poison")
        with pytest.raises(RuntimeError, match="the event is poison"):
            poison.suffer(session, "raise")
        session.execute(text("CREATE TABLE effect (id INTEGER)"))
        session.commit()
        session.execute(text("INSERT INTO effect VALUES (1)"))
        assert poison.suffer(session, "rollback") == Ack()  # the session does not know that it was rolled back
        assert session.execute(text("SELECT count(*) FROM effect")).scalar_one() == 0
    engine.dispose()
