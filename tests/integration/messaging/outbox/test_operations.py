"""Each act of operators on an outbox keeps its invariant and is audited; the command line refuses wrong calls."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, insert, make_url, select, update
from sqlalchemy.orm import Session

from sluice.cli.main import cli
from sluice.declaration import naming
from sluice.errors import ConfigError
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.database.audit import acts
from sluice.messaging.database.credentials import database_url
from sluice.messaging.envelope import TOMBSTONE, decode
from sluice.messaging.errors import OutboxError
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.operations import OutboxOperator
from tests.support.command_line import Run, command_line
from tests.support.declaration import environment
from tests.support.messaging.faulty_calls import Fault
from tests.support.messaging.outbox.simulated_relays import work
from tests.support.messaging.world import TOPIC, World

LOCAL_TOPIC = naming.topic_name(environment("local"))
OPERATOR = OutboxOperator(topic=TOPIC, actor="ada", reason="the cause is mended")


@pytest.fixture
def blocked_world(world: World) -> World:
    """Return a world in which message 1 of group a is quarantined, message 2 waits behind, and b is sent."""
    world.commit("a", "a", "b")
    world.sns_calls.faults = [Fault(failed={"a": ("InvalidParameter", True)})]
    work(world.relay())
    assert world.statuses() == {("a", 1): "quarantined", ("a", 2): "pending", ("b", 1): "sent"}
    world.receive_all()
    world.clock.sleep(3_600)  # the lease of the relay is over
    return world


def _stored_message(world: World, group: str, seq: int) -> dict[str, Any]:
    """Return the outbox's row of a message."""
    place = (tables.messages.c.group_id == group, tables.messages.c.group_seq == seq)
    with world.engine.connect() as connection:
        return dict(connection.execute(tables.messages.select().where(*place)).mappings().one())


def _audit_rows(world: World) -> list[dict[str, Any]]:
    """Return the topic's audit, the latest act first."""
    with world.engine.connect() as connection:
        return acts(connection, tables.audit.c.topic, TOPIC, most=10)


def test_unquarantine_publishes_the_unchanged_message_again(blocked_world: World) -> None:
    """Only status, attempts and error are reset; the message behind it is published after it."""
    before = _stored_message(blocked_world, "a", 1)
    assert before["last_error"] == "InvalidParameter: as told"

    with blocked_world.engine.begin() as connection:
        OPERATOR.unquarantine(connection, "a", 1)

    after = _stored_message(blocked_world, "a", 1)
    assert after == {**before, "status": "pending", "attempts": 0, "last_error": None}
    work(blocked_world.relay())
    assert blocked_world.receive_places() == [("a", 1), ("a", 2)]


def test_skip_publishes_a_tombstone_with_the_number(blocked_world: World) -> None:
    """A tombstone is an event without data, so that consumers do not miss the number.

    The audit keeps the skipped event.
    """
    before = _stored_message(blocked_world, "a", 1)

    with blocked_world.engine.begin() as connection:
        OPERATOR.skip(connection, "a", 1)
    work(blocked_world.relay())

    first, second = blocked_world.receive_all()
    tombstone = decode(first["Body"])
    assert tombstone.event.type == TOMBSTONE
    assert tombstone.event.group == "a"
    assert tombstone.seq == 1
    assert tombstone.event.data is None
    assert tombstone.event.id != before["event_id"]
    assert first["Attributes"]["MessageDeduplicationId"] == tombstone.event.id
    assert decode(second["Body"]).seq == 2
    assert _stored_message(blocked_world, "a", 1)["event_id"] == before["event_id"]
    assert json.loads(_audit_rows(blocked_world)[0]["detail"]) == {
        "event_id": before["event_id"],
        "type": "order.placed",
        "last_error": "InvalidParameter: as told",
        "body": before["body"],
    }


def test_resend_publishes_first_and_under_a_fresh_deduplication_id(world: World) -> None:
    """Under its own id the topic may drop it as a repeat. It is older than number 3, which waits, so it goes first."""
    world.commit("a", "a")
    work(world.relay())
    originals = world.receive_all()
    world.commit("a")

    with world.engine.begin() as connection:
        OPERATOR.resend(connection, "a", 1)
    world.clock.sleep(3_600)  # the first relay's lease is over
    work(world.relay())

    again, third = world.receive_all()
    assert again["Body"] == originals[0]["Body"]
    assert again["Attributes"]["MessageDeduplicationId"] != originals[0]["Attributes"]["MessageDeduplicationId"]
    assert decode(third["Body"]).seq == 3
    assert set(world.statuses().values()) == {"sent"}


def _numbers(messages: list[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    """Return each message's group, its epoch, the first number of the group in that epoch, and its number."""
    envelopes = [decode(message["Body"]) for message in messages]
    return [(envelope.event.group, envelope.epoch, envelope.first, envelope.seq) for envelope in envelopes]


def test_begin_epoch_continues_the_numbers_of_every_group(world: World) -> None:
    """An operator begins an epoch after a restore from a backup.

    Each message then has its group, its epoch, the first number of the group in that epoch, and its own number. Other
    topics keep their epochs.
    """
    operator = replace(OPERATOR, clock=world.clock)
    began = world.clock.now_us() // 1_000_000
    world.commit("a", "a", "b")
    with world.engine.begin() as connection:
        others = insert(tables.groups).values(topic="others.fifo", group_id="a", last_seq=7)
        connection.execute(others)
    world.clock.sleep(100)

    with world.engine.begin() as connection:
        assert operator.begin_epoch(connection) == began + 100
    world.clock.sleep(100)
    world.commit("a", "b", "c")
    world.commit("a")
    work(world.relay())

    assert sorted(_numbers(world.receive_all())) == [
        ("a", began, 1, 1),
        ("a", began, 1, 2),
        ("a", began + 100, 3, 3),
        ("a", began + 100, 3, 4),
        ("b", began, 1, 1),
        ("b", began + 100, 2, 2),
        ("c", began + 200, 1, 1),
    ]
    with world.engine.connect() as connection:
        theirs = tables.groups.c.topic == "others.fifo"
        columns = (tables.groups.c.epoch, tables.groups.c.first_seq, tables.groups.c.last_seq)
        assert connection.execute(select(*columns).where(theirs)).one() == (1, 1, 7)
    assert json.loads(_audit_rows(world)[0]["detail"]) == {"epoch": began + 100}


def test_each_epoch_is_later_than_all_before(world: World) -> None:
    """An epoch is the second in which it began, or one more than the highest if the clock is behind."""
    operator = replace(OPERATOR, clock=world.clock)
    now = world.clock.now_us() // 1_000_000
    with world.engine.begin() as connection:
        begun_without_groups = operator.begin_epoch(connection)
    world.commit("a")

    with world.engine.begin() as connection:
        begun = [operator.begin_epoch(connection) for _ in range(2)]
        connection.execute(update(tables.groups).values(epoch=now + 1_000))
        begun.append(operator.begin_epoch(connection))

    assert begun_without_groups == now
    assert begun == [now + 1, now + 2, now + 1_001]


def test_every_act_is_audited_with_its_reason(blocked_world: World) -> None:
    """The refused skip of a message that is not quarantined is not in the audit."""
    with blocked_world.engine.begin() as connection:
        OPERATOR.unquarantine(connection, "a", 1)
        OPERATOR.resend(connection, "b", 1)
        OPERATOR.begin_epoch(connection)
    with pytest.raises(OutboxError), blocked_world.engine.begin() as connection:
        OPERATOR.skip(connection, "a", 2)

    found = _audit_rows(blocked_world)

    assert [(entry["action"], entry["group_id"], entry["group_seq"]) for entry in found] == [
        ("epoch", None, None),
        ("resend", "b", 1),
        ("unquarantine", "a", 1),
    ]
    assert {(entry["actor"], entry["reason"], entry["topic"]) for entry in found} == {
        ("ada", "the cause is mended", TOPIC)
    }
    assert all(entry["at_us"] > 0 for entry in found)


@pytest.mark.parametrize(
    ("act", "place", "refusal"),
    ids=[
        "resend of a pending",
        "resend of a quarantined",
        "skip of a pending",
        "skip of a sent",
        "unquarantine of a sent",
        "unquarantine of an unknown",
    ],
    argvalues=[
        (OutboxOperator.resend, ("a", 2), "message 2 of group 'a' of events.fifo is pending, allowed is sent"),
        (OutboxOperator.resend, ("a", 1), "message 1 of group 'a' of events.fifo is quarantined, allowed is sent"),
        (OutboxOperator.skip, ("a", 2), "message 2 of group 'a' of events.fifo is pending, allowed is quarantined"),
        (OutboxOperator.skip, ("b", 1), "message 1 of group 'b' of events.fifo is sent, allowed is quarantined"),
        (
            OutboxOperator.unquarantine,
            ("b", 1),
            "message 1 of group 'b' of events.fifo is sent, allowed is quarantined",
        ),
        (OutboxOperator.unquarantine, ("c", 1), "message 1 of group 'c' of events.fifo is not in the outbox"),
    ],
)
def test_an_action_on_a_message_in_another_state_is_refused(
    blocked_world: World, act: Any, place: tuple[str, int], refusal: str
) -> None:
    """Neither the message nor the audit is changed."""
    before = blocked_world.statuses()

    with pytest.raises(OutboxError) as refused, blocked_world.engine.begin() as connection:
        act(OPERATOR, connection, *place)

    assert str(refused.value) == f"{refusal}; see `outbox ls --group {place[0]}`"
    assert blocked_world.statuses() == before
    assert _audit_rows(blocked_world) == []


class OneSecret:
    """A client of Secrets Manager that has one secret."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self, **params: str) -> dict[str, str]:
        assert params == {"SecretId": "arn:secret"}
        return {"SecretString": self._text}


RDS = {"username": "sluice", "password": "p@ss/w:rd", "host": "db.internal", "dbname": "shop", "engine": "postgres"}


@pytest.mark.parametrize(
    ("more", "port"),
    [({}, 5432), ({"port": 6432}, 6432), ({"port": "6432"}, 6432)],
    ids=["Postgres's own port", "number", "text"],
)
def test_a_database_secret_becomes_a_url(more: dict[str, Any], port: int) -> None:
    """The password's special characters are escaped, and the server's certificate is verified."""
    url = database_url(OneSecret(json.dumps(RDS | more)), "arn:secret", {})

    assert url == (
        f"postgresql://sluice:p%40ss%2Fw%3Ard@db.internal:{port}/shop?sslmode=verify-full&sslrootcert=system"
    )
    assert engines.engine(url).url.password == RDS["password"]


def test_fields_missing_in_the_secret_come_from_variables() -> None:
    """RDS's own secrets have only username and password. A field that a secret has is preferred to a variable."""
    managed = {name: RDS[name] for name in ("username", "password")}
    variables = {"SLUICE_DATABASE_HOST": "cluster.internal", "SLUICE_DATABASE_PORT": "6432"}
    variables["SLUICE_DATABASE_NAME"] = "orders"

    def place(secret: dict[str, Any]) -> str:
        return database_url(OneSecret(json.dumps(secret)), "arn:secret", variables).partition("@")[2].partition("?")[0]

    assert place(managed) == "cluster.internal:6432/orders"
    assert place(RDS | {"port": 5433}) == "db.internal:5433/shop"


@pytest.mark.parametrize(
    ("text", "absent"),
    ids=["no JSON", "a list", "empty host", "neither host nor dbname"],
    argvalues=[
        ("hunter2", "username, password, host, dbname"),
        ('["hunter2"]', "username, password, host, dbname"),
        (json.dumps({**RDS, "host": "", "password": "hunter2"}), "host"),
        (json.dumps({"username": "sluice", "password": "hunter2"}), "host, dbname"),
    ],
)
def test_a_secret_that_lacks_something_is_refused_and_not_shown(text: str, absent: str) -> None:
    """The password hunter2 must not be in the message."""
    with pytest.raises(ConfigError) as refused:
        database_url(OneSecret(text), "arn:secret", {})

    assert str(refused.value) == (
        f"secret arn:secret lacks {absent}, allowed is JSON with username, password, host, dbname and perhaps port"
        " and sslmode; correct the secret, or set SLUICE_DATABASE_HOST and SLUICE_DATABASE_PORT and"
        " SLUICE_DATABASE_NAME beside it"
    )


@pytest.mark.parametrize("port", ["postgres", None, 0, 70_000, True, 1.5])
def test_a_secret_with_an_invalid_port_is_refused(port: Any) -> None:
    """JSON may hold a word, null, a number out of range, a boolean or a fraction; the message shows no secret."""
    with pytest.raises(ConfigError) as refused:
        database_url(OneSecret(json.dumps(RDS | {"port": port})), "arn:secret", {})

    assert str(refused.value) == (
        "secret arn:secret, or SLUICE_DATABASE_PORT beside it, has a port that is none, allowed is 1 to 65535; correct"
        " it"
    )


def test_a_secret_may_name_its_sslmode_and_the_default_verifies_fully(tmp_path: Path) -> None:
    """The certificates of SLUICE_DATABASE_CA are used in the modes that verify."""
    ca = tmp_path / "ca.pem"
    ca.touch()

    def query(ca: str | None, **more: str) -> dict[str, Any]:
        return dict(
            make_url(
                database_url(
                    OneSecret(json.dumps(RDS | more)), "arn:secret", {} if ca is None else {"SLUICE_DATABASE_CA": ca}
                )
            ).query
        )

    assert query(None) == {"sslmode": "verify-full", "sslrootcert": "system"}
    assert query(str(ca)) == {"sslmode": "verify-full", "sslrootcert": str(ca)}
    assert query(str(ca), sslmode="verify-ca") == {"sslmode": "verify-ca", "sslrootcert": str(ca)}
    for weaker in ("disable", "allow", "prefer", "require"):
        assert query(str(ca), sslmode=weaker) == {"sslmode": weaker}


@pytest.mark.parametrize("mode", ["", "verify_full", "VERIFY-FULL", True, None, 1])
def test_a_secret_with_an_invalid_sslmode_is_refused(mode: Any) -> None:
    """Only libpq's own names are taken, in lower case and with hyphens; a missing sslmode would be verify-full."""
    with pytest.raises(ConfigError) as refused:
        database_url(OneSecret(json.dumps(RDS | {"sslmode": mode})), "arn:secret", {})

    assert str(refused.value) == (
        "secret arn:secret has an sslmode that is none, allowed is one of disable, allow, prefer, require, verify-ca,"
        " verify-full; correct the secret"
    )


def test_missing_certificates_of_the_database_are_refused(tmp_path: Path) -> None:
    """Either the variable names a file that is not there, or the mode verify-ca has no variable."""
    with pytest.raises(ConfigError) as absent:
        database_url(OneSecret(json.dumps(RDS)), "arn:secret", {"SLUICE_DATABASE_CA": f"{tmp_path}/none\n.pem"})
    with pytest.raises(ConfigError) as unset:
        database_url(OneSecret(json.dumps(RDS | {"sslmode": "verify-ca"})), "arn:secret", {})

    assert str(absent.value) == (
        f"SLUICE_DATABASE_CA is '{tmp_path}/none\\n.pem', allowed is a file with the certificates the database's server"
        " is verified by; correct it, or leave it out"
    )
    assert str(unset.value) == (
        "secret arn:secret has the sslmode verify-ca and SLUICE_DATABASE_CA is not set, allowed is verify-ca with"
        " certificates of your own; set it, or use verify-full"
    )


@pytest.fixture
def dsn(engine: Engine) -> str:
    """Return the URL of a database in which the local environment's topic has two messages of one group."""
    with Session(engine) as session:
        for number in (1, 2):
            Outbox(LOCAL_TOPIC).add(session, Event(type="order.placed", group="a", data={"n": number}))
        session.commit()
    with engine.begin() as connection:
        first = tables.messages.update().where(tables.messages.c.group_seq == 1)
        connection.execute(first.values(status="quarantined", last_error="InvalidParameter: as told"))
    return engine.url.render_as_string(hide_password=False)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Yield a function that runs `sluice` in this process, and returns exit code, output and error output."""
    with command_line(monkeypatch, capsys) as made:
        yield made


def _run_outbox(dsn: str, *arguments: str) -> Result:
    """Run a subcommand of `sluice outbox` on this database, in this process."""
    return CliRunner().invoke(cli, ["outbox", *arguments, "--dsn", dsn], catch_exceptions=False)


def test_ls_shows_the_messages_that_are_not_sent(dsn: str) -> None:
    """Sent messages and other groups are shown only if asked for; a limit says how many there are."""
    printed = json.loads(_run_outbox(dsn, "ls", "--json").stdout)
    assert printed["topic"] == LOCAL_TOPIC
    assert printed["count"] == 2
    assert [(message["group_seq"], message["status"], message["last_error"]) for message in printed["messages"]] == [
        (1, "quarantined", "InvalidParameter: as told"),
        (2, "pending", None),
    ]

    assert json.loads(_run_outbox(dsn, "ls", "--json", "--status", "sent").stdout)["messages"] == []
    assert json.loads(_run_outbox(dsn, "ls", "--json", "--group", "b").stdout)["count"] == 0
    few = _run_outbox(dsn, "ls", "--limit", "1")
    assert few.stderr == "1 of 2\n"
    assert "quarantined" in few.stdout


def test_lag_counts_the_messages_that_wait_for_another_topic(engine: Engine, dsn: str) -> None:
    """A producer that names another topic than the relay has publishes nothing, and nothing fails."""
    with Session(engine) as session:
        Outbox("others.fifo").add(session, Event(type="order.placed", group="a", data={}))
        session.commit()

    printed, listed = _run_outbox(dsn, "lag"), json.loads(_run_outbox(dsn, "lag", "--json").stdout)

    assert printed.stderr == f"1 pending for another topic, others.fifo, and not for {LOCAL_TOPIC}\n"
    assert listed["pending"] == 1
    assert listed["quarantined"] == 1
    assert listed["pending_elsewhere"] == {"others.fifo": 1}


def test_without_yes_a_command_only_prints_its_plan(dsn: str) -> None:
    """Message 1 of group a is quarantined; the plan changes no row and is not audited."""
    act = ("skip", "a", "1", "--reason", "a poison pill")
    before = _run_outbox(dsn, "ls", "--json").stdout

    assert _run_outbox(dsn, *act).stdout == "would skip message 1 of group a; add --yes to do it\n"
    assert _run_outbox(dsn, "ls", "--json").stdout == before
    assert _run_outbox(dsn, "audit").stdout == ""


def test_with_yes_a_skip_is_done_and_audited(dsn: str) -> None:
    """A tombstone takes the number of the skipped message, so that consumers find no gap."""
    act = ("skip", "a", "1", "--reason", "a poison pill")

    assert _run_outbox(dsn, *act, "--yes").stdout == "done: skip message 1 of group a\n"
    (shown,) = json.loads(_run_outbox(dsn, "ls", "--json", "--limit", "1").stdout)["messages"]
    assert shown["status"] == "pending"
    assert shown["type"] == TOMBSTONE
    assert shown["group_seq"] == 1
    (line,) = map(json.loads, _run_outbox(dsn, "audit").stdout.splitlines())
    assert line["action"] == "skip"
    assert line["reason"] == "a poison pill"
    assert line["group_id"] == "a"
    assert line["group_seq"] == 1


def test_a_dry_run_is_refused_as_the_act_would_be(dsn: str) -> None:
    """Without --yes a command checks its message, too."""
    with pytest.raises(OutboxError, match=r"message 2 of group 'a' of .* is pending, allowed is sent"):
        _run_outbox(dsn, "resend", "a", "2", "--reason", "lost")


def test_every_error_is_one_line_and_an_exit_code(run: Run, tmp_path: Path) -> None:
    """Exit code 3 if the operator can correct the command, 2 if a service fails; no traceback."""
    empty = tmp_path / "empty.db"
    empty.touch()
    without_tables = f"sqlite:///{empty}"
    no_tables = "sluice: the outbox's tables are not in this database; create them with `sluice schema apply outbox`\n"
    missing = f"sqlite:///{tmp_path}/missing.db"
    not_there = (
        f"sluice: database {tmp_path}/missing.db does not exist; correct --dsn, or create it with `sluice"
        " schema apply outbox`\n"
    )
    expected: dict[tuple[str, ...], tuple[int, str]] = {
        ("outbox", "ls", "--dsn", missing): (3, not_there),
        ("relay", "--dsn", missing): (3, not_there),
        ("outbox", "lag", "--dsn", "mysql://user@host/name"): (
            3,
            "sluice: database is 'mysql', allowed is one of sqlite, postgresql; give --dsn such as"
            " postgresql://user@host/name\n",
        ),
        ("outbox", "ls"): (
            3,
            "sluice: no database is named: give --dsn, or set SLUICE_DSN, SLUICE_DATABASE_SECRET_ARN or"
            " SLUICE_DATABASE_USER\n",
        ),
        ("outbox", "ls", "--dsn", without_tables): (2, no_tables),
        ("outbox", "lag", "--dsn", without_tables): (2, no_tables),
        ("outbox", "audit", "--dsn", without_tables): (2, no_tables),
        ("outbox", "begin-epoch", "--reason", "restored", "--dsn", without_tables): (2, no_tables),
        ("relay", "--until-empty", "--endpoint-url", "http://127.0.0.1:1", "--dsn", without_tables): (2, no_tables),
        ("relay", "--listen", "--dsn", without_tables): (
            3,
            "sluice: --listen is given with sqlite, allowed is postgresql; leave it out\n",
        ),
        ("relay", "--poll", "11", "--dsn", without_tables): (
            3,
            "sluice: RelaySettings.poll_seconds is 11.0, allowed is up to 10 seconds, a third of the lease, which is"
            " renewed between two looks; change --poll or --lease\n",
        ),
        ("relay", "--lease", "24", "--dsn", without_tables): (
            3,
            "sluice: RelaySettings.lease_seconds is 24.0, allowed is more than 24, up to 86400 seconds: a call may take"
            " 12, and nobody may take over meanwhile; change --lease\n",
        ),
        ("relay", "--keep", "60", "--dsn", without_tables): (
            3,
            "sluice: RelaySettings.keep_sent_seconds is 5184000.0, allowed is 0 or more, less than 5.184e+06 seconds:"
            " the consumers' inboxes (inbox_retention_seconds) forget what is sent again later; change --keep\n",
        ),
        ("relay", "--endpoint-url", "localhost", "--dsn", without_tables): (
            3,
            "sluice: endpoint is 'localhost', allowed is a URL such as http://127.0.0.1:4566\n",
        ),
        ("outbox", "ls", "--env", "moon", "--dsn", without_tables): (
            3,
            "sluice: environment 'moon' is not declared, allowed is one of local, dev, staging, prod;"
            " declare it in tests/support/declarations/environments.py\n",
        ),
    }

    assert {command: run(*command)[::2] for command in expected} == expected


def test_an_unreachable_postgres_is_reported_in_one_line(run: Run) -> None:
    """The message names the option to look at, and no traceback follows."""
    code, _, text = run("outbox", "ls", "--dsn", "postgresql://user@127.0.0.1:1/name")

    assert code == 2
    assert text.startswith("sluice: the database does not do it (connection failed: ")
    assert text.endswith("; look at --dsn\n")
    assert text.count("\n") == 1


def test_an_invalid_failpoint_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt failpoint would let every test pass."""
    monkeypatch.setenv("SLUICE_FAILPOINT", "after_lunch")
    empty = tmp_path / "empty.db"
    empty.touch()

    code, _, text = run("relay", "--endpoint-url", "http://127.0.0.1:1", "--dsn", f"sqlite:///{empty}")

    assert code == 3
    assert (
        text == "sluice: SLUICE_FAILPOINT is 'after_lunch', allowed is one of after_claim, before_publish,"
        " after_publish, before_mark, after_mark, before_bundle, after_bundle, NAME:COUNT or NAME=SECONDS\n"
    )


def test_the_relay_ends_with_1_if_messages_are_quarantined(run: Run, dsn: str) -> None:
    """`--until-empty` cannot empty an outbox in which a message waits for an operator."""
    code, _, text = run("relay", "--until-empty", "--endpoint-url", "http://127.0.0.1:1", "--dsn", dsn)

    assert code == 1
    assert text.splitlines()[-1] == "1 quarantined, 1 waiting behind; see `outbox ls`"
    assert _run_outbox(dsn, "lag").stdout.endswith(" s, 1 pending, 1 quarantined\n")


def test_outbox_check_names_a_missing_table(dsn: str, engine: Engine) -> None:
    """It ends with 1 and one line for each difference, or with 0."""
    assert _run_outbox(dsn, "check").exit_code == 0
    assert _run_outbox(dsn, "check").stdout == ""
    with engine.begin() as connection:
        tables.audit.drop(connection)

    lacking = _run_outbox(dsn, "check")
    assert lacking.exit_code == 1
    assert lacking.stdout == "table sluice_outbox_audit is missing\n"

    with engine.begin() as connection:
        tables.audit.create(connection)
    assert _run_outbox(dsn, "check").exit_code == 0
