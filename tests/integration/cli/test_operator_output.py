"""The operators' commands print groups, reasons and payloads as text that a reader knows again, and no more."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sluice.declaration import naming
from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from sluice.messaging.sqs import queue
from sluice.terminal.printable import printable
from tests.integration.messaging.conftest import database_folder
from tests.integration.messaging.dead_letters.conftest import harness, simulated_aws, simulator
from tests.support.command_line import Run, command_line
from tests.support.declaration import environment
from tests.support.messaging.dlq_harness import DEAD, DlqHarness, envelope

__all__ = ["database_folder", "harness", "simulated_aws", "simulator"]

TEXTS = [
    "order[/x]",
    "tenant[a]",
    ":smile:",
    "[link=file:///x]y[/link]",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m\x7f",
    "evil\u202etxt",
    "a\nforged line\r\tb",
]
REASON = ("--reason", "x")


@pytest.fixture(params=["".join(TEXTS), *(pytest.param(text, marks=pytest.mark.slow) for text in TEXTS)], ids=ascii)
def hostile(request: pytest.FixtureRequest) -> str:
    """Return a text that would be markup, or be acted on by a terminal."""
    return str(request.param)


@pytest.fixture
def database(database_folder: Path, hostile: str) -> Iterator[Engine]:
    """Yield a database of outbox and inbox in which every free text is the hostile one."""
    made = engines.engine(f"sqlite:///{database_folder / 'both.db'}")
    topic = naming.topic_name(environment("local"))
    sent = envelope("g", 1)
    place = {"consumer": "billing", "group_id": hostile, "epoch": 1}
    body = {"event_id": hostile, "body": sent.body, "attributes": "{}"}
    audited = {"at_us": 1, "actor": hostile, "action": "skip", "group_id": hostile, "reason": hostile}
    with made.begin() as connection:
        tables.metadata.create_all(connection)
        inbox_tables.metadata.create_all(connection)
        message = {"topic": topic, "group_id": hostile, "type": hostile, "deduplication_id": "x", "created_at_us": 1}
        quarantined = {"group_seq": 1, "status": tables.QUARANTINED, "last_error": hostile}
        connection.execute(tables.messages.insert().values(**message, **body, **quarantined))
        connection.execute(tables.audit.insert().values(topic=topic, **audited))
        group = {"first_seq": 1, "last_seq": 1, "awaits_seq": 2, "parked_at_us": 1, "updated_at_us": 1}
        connection.execute(inbox_tables.groups.insert().values(**place, **group))
        held = {"seq": 3, "sqs_message_id": "x", "held_at_us": 1, "last_error": hostile, "parked_at_us": 1}
        connection.execute(inbox_tables.parked.insert().values(**place, **body, **held))
        dead = {"seq": 2, "through": 2, "state": "dead", "event_id": hostile, "reason": hostile, "seen_at_us": 1}
        connection.execute(inbox_tables.exceptions.insert().values(**place, **dead))
        connection.execute(inbox_tables.audit.insert().values(consumer="billing", **audited))
    yield made
    made.dispose()


@pytest.fixture
def run(
    harness: DlqHarness, database: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Yield a function that runs a command line; every line that it prints is printable."""
    monkeypatch.setattr(queue, "client", lambda *_, **__: harness.tools_sqs)
    with command_line(monkeypatch, capsys) as plain:
        monkeypatch.setenv("SLUICE_CONSUMER", "billing")
        monkeypatch.setenv("SLUICE_DSN", str(database.url))

        def run(*arguments: str) -> tuple[int, str, str]:
            code, out, err = plain(*arguments)
            assert "Traceback" not in err
            assert [line for line in f"{out}\n{err}".split("\n") if not line.isprintable()] == []
            return code, out, err

        yield run


def _texts(value: Any) -> Iterator[str]:
    """Yield every text that is a value in a JSON document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


@pytest.mark.parametrize("command", [("outbox", "ls"), ("dlq", "ls")], ids=" ".join)
def test_listings_for_people_show_every_row(run: Run, hostile: str, command: tuple[str, ...]) -> None:
    """The hostile text is in the group, the id and the reason of a row: control characters are shown as escapes."""
    code, out, _ = run(*command)

    assert code == 0
    assert out.count(printable(hostile)) >= 3


@pytest.mark.parametrize(
    "command",
    [("outbox", "ls", "--json"), ("dlq", "ls", "--json"), ("outbox", "audit"), ("dlq", "audit")],
    ids=" ".join,
)
def test_listings_as_json_have_the_exact_values(run: Run, hostile: str, command: tuple[str, ...]) -> None:
    """JSON has escapes of its own, so programs read the text as it was stored."""
    code, out, _ = run(*command)

    assert code == 0
    assert list(_texts(json.loads(out))).count(hostile) >= 2


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("outbox", "skip", "HOSTILE", "1", *REASON), 0),
        (("outbox", "unquarantine", "HOSTILE", "1", *REASON, "--yes"), 0),
        (("outbox", "resend", "HOSTILE", "1", *REASON), 2),
        (("outbox", "skip", "HOSTILE", "7", *REASON), 2),
        (("outbox", "ls", "--status", "HOSTILE"), 3),
        (("dlq", "retry", "HOSTILE", "3", *REASON), 0),
        (("dlq", "skip", "HOSTILE", "2", *REASON, "--yes"), 0),
        (("dlq", "retry", "HOSTILE", "7", *REASON), 2),
        (("dlq", "purge-one", "--message-id", "HOSTILE", *REASON), 2),
        (("dlq", "inspect", "--consumer", "HOSTILE"), 3),
        (("inbox", "status", "--env", "HOSTILE"), 3),
        (("relay", "--endpoint-url", "http://HOSTILE"), 3),
        (("worker", "--handlers", "HOSTILE"), 3),
        (("HOSTILE",), 3),
    ],
    ids=str,
)
def test_actions_and_refusals_print_one_line(run: Run, hostile: str, command: tuple[str, ...], code: int) -> None:
    """The text stands for HOSTILE in the arguments, and a line break in it must not forge a second line."""
    given = [name.replace("HOSTILE", hostile) for name in command]

    ended, out, err = run(*given)

    assert ended == code
    assert (out + err).count("\n") == 1


def test_messages_in_a_dlq_are_shown(run: Run, harness: DlqHarness, database: Engine, hostile: str) -> None:
    """One message's data and recorded reason are hostile, and another's body is no JSON."""
    data = envelope("g", 1, data={"n": hostile})
    sent = harness.send(DEAD, data)
    known = inbox_tables.exceptions.update().values(group_id="g", seq=1, through=1, sqs_message_id=sent)
    with database.begin() as connection:
        connection.execute(known)
    harness.send(DEAD, envelope("h", 1), MessageBody=f"no JSON {hostile}".replace("\x1b", "").replace("\x07", ""))

    code, out, _ = run("dlq", "inspect")
    assert code == 0
    assert f": {printable(hostile)}" in out
    assert f"no JSON {printable(hostile)}".replace("\\x1b", "").replace("\\x07", "") in out

    printed = json.loads(run("dlq", "inspect", "--json")[1])
    first, second = (group["messages"][0] for group in printed["groups"])
    assert first["data"] == {"n": hostile}
    assert first["known"]["reason"] == hostile
    assert second["body"].startswith("no JSON ")


def test_returning_messages_are_named(run: Run, harness: DlqHarness) -> None:
    """The name of an SQS group may look like markup."""
    harness.send(DEAD, envelope("order[/x]", 1))
    harness.send(DEAD, envelope("tenant[a]:smile:", 1))

    code, out, _ = run("dlq", "redrive", "--yes", "--canary", "2")

    assert code == 0
    assert "number 1 of group order[/x], number 1 of group tenant[a]:smile:" in out
