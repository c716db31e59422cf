"""`sluice drill restore` plays a restore on copies: its verdict is right, and what it is given is not changed."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError
from sqlalchemy import Connection

from sluice.cli.drill import copies
from sluice.messaging.database import engines
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.sqs import queue
from sluice.messaging.worker.lane import Lane
from tests.support.command_line import Run
from tests.support.messaging.operated_shop import AUDIT, SHIPPING, OperatedShop, operated_shop

STEPS = ["copy", "queues", "look", "epoch", "run", "resend", "give up", "verdict", "go on"]


def _copy(shop: OperatedShop, path: Path) -> str:
    """Copy the shop's database as it is, and return the copy's URL."""
    with closing(sqlite3.connect(str(shop.engine.url.database))) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)
    return f"sqlite:///{path}"


@pytest.fixture
def backup_and_now(shop: OperatedShop, tmp_path: Path) -> tuple[str, str]:
    """Return the URLs of a backup and of a later copy: two messages were sent after the backup, of two groups.

    Billing has handled none of the two.
    """
    shop.commit("before", 1, 2)
    shop.commit("later", 1)
    shop.relay()
    shop.work()
    backup = _copy(shop, tmp_path / "backup.db")
    shop.commit("later", 2)
    shop.commit("new", 1)
    shop.relay()
    shop.work(SHIPPING, AUDIT)
    return backup, _copy(shop, tmp_path / "now.db")


def _drill(run: Run, *arguments: str) -> tuple[dict[str, Any], int]:
    """Return what a drill printed as JSON, and its exit code."""
    code, printed, failed = run("drill", "restore", *arguments, "--json")
    assert printed, failed
    return json.loads(printed), code


def test_a_restored_shop_is_valid_after_the_drill(run: Run, backup_and_now: tuple[str, str]) -> None:
    """The two messages that were sent after the backup are discarded, and the three groups go on in a new epoch."""
    backup, now = backup_and_now

    drilled, code = _drill(run, "--backup", backup, "--now", now)

    assert drilled["verdict"] == "VALID", drilled
    assert code == 0
    assert drilled["discarded"] == {"messages": 2, "groups": 2}
    assert [step["name"] for step in drilled["steps"]] == STEPS
    assert drilled["steps"][1]["result"] == "2 messages under way, 0 dead"
    assert drilled["steps"][-1]["result"] == "3 groups got a new event, 0 were not taken by a consumer"


def test_a_receive_that_fails_leaves_no_message_in_a_drills_queue(
    run: Run, backup_and_now: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second receive has no answer, as on a machine with much to do; it finds no queue empty."""
    backup, now = backup_and_now
    make, receives = queue.client, count()

    def fail(**_: object) -> None:
        if next(receives) % 2 == 0:
            raise ConnectTimeoutError(endpoint_url="the simulator")

    def flaky_client(*arguments: Any, **named: Any) -> Any:
        made = make(*arguments, **named)
        made.meta.events.register("before-send.sqs.ReceiveMessage", fail)
        return made

    monkeypatch.setattr(queue, "client", flaky_client)
    drilled, _ = _drill(run, "--backup", backup, "--now", now)

    assert drilled["verdict"] == "VALID", drilled


@pytest.mark.slow  # the first drill takes the same steps by day
def test_an_inbox_that_was_not_restored_is_played_too(run: Run, backup_and_now: tuple[str, str]) -> None:
    """It knows later numbers than the outbox, until the new epoch."""
    backup, now = backup_and_now
    inboxes = [part for name in ("billing", "shipping", "audit") for part in ("--inbox", f"{name}={now}")]

    drilled, code = _drill(run, "--backup", backup, "--now", now, *inboxes)

    assert drilled["steps"][2]["result"].endswith("1 groups of which a consumer knows later numbers than the outbox")
    assert drilled["verdict"] == "VALID"
    assert code == 0


def test_without_a_new_epoch_the_verdict_is_not_valid(
    run: Run, backup_and_now: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New events get numbers that the consumers have handled, and are dropped."""

    def forget(_: OutboxOperator, __: Connection) -> int:
        return 1

    monkeypatch.setattr(OutboxOperator, "begin_epoch", forget)
    backup, now = backup_and_now
    inboxes = [part for name in ("billing", "shipping", "audit") for part in ("--inbox", f"{name}={now}")]

    drilled, code = _drill(run, "--backup", backup, "--now", now, *inboxes)

    assert drilled["verdict"] == "INVALID"
    assert code == 1
    assert {"consumer": "shipping", "group": "later"} in drilled["not_taken"]


def test_a_drill_plays_a_function_whose_events_come_in_bundles(
    run: Run, backup_and_now: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a new epoch, a number that another event had is refused: at its first receive, not after a thousand."""
    declaration = tmp_path / "environments.py"
    declaration.write_text(
        "from dataclasses import replace\n"
        "from sluice.declaration import Lambda, Topic\n"
        "from tests.support.declaration import environment\n"
        "local, function = environment('local'), Lambda(maximum_concurrency=2)\n"
        "billing = replace(local.consumers[0], handlers='examples.services.billing', runtime=function)\n"
        "consumers = (billing, *local.consumers[1:])\n"
        "ENVIRONMENTS = (replace(local, topics=(Topic(bundle_events_max=2),), consumers=consumers),)\n"
    )
    steps, step = list[bool](), Lane.step

    def count_step(lane: Lane) -> bool:
        steps.append(step(lane))
        return steps[-1]

    monkeypatch.setattr(Lane, "step", count_step)
    monkeypatch.setattr(OutboxOperator, "begin_epoch", lambda _, __: 1)
    backup, now = backup_and_now
    inboxes = [part for name in ("billing", "shipping", "audit") for part in ("--inbox", f"{name}={now}")]

    drilled, _ = _drill(run, "--declaration", str(declaration), "--backup", backup, "--now", now, *inboxes)

    assert [step["name"] for step in drilled["steps"]] == STEPS
    assert len(drilled["not_taken"]) == 3
    assert len(steps) < 50


@pytest.mark.slow  # the first drill takes the same steps by day
def test_a_message_that_the_restored_inbox_lost_is_resent(run: Run, shop: OperatedShop, tmp_path: Path) -> None:
    """It was in a queue when the backup was made; it is handled now, and the restored inbox does not know."""
    shop.commit("handled", 1)
    shop.relay()
    shop.work()
    shop.commit("a", 1)
    shop.relay()
    backup = _copy(shop, tmp_path / "backup.db")
    shop.work()

    drilled, _ = _drill(run, "--backup", backup, "--now", _copy(shop, tmp_path / "now.db"))

    assert drilled["resent"] == 1
    assert drilled["verdict"] == "VALID"


def test_a_drill_changes_nothing_that_it_is_given(run: Run, backup_and_now: tuple[str, str], tmp_path: Path) -> None:
    """Every database file has the same bytes afterwards; the drill works on copies."""
    before = [path.read_bytes() for path in sorted(tmp_path.glob("*.db"))]

    code, printed, _ = run("drill", "restore", "--backup", backup_and_now[0], "--page", str(tmp_path / "drill.html"))

    assert code == 0
    assert [path.read_bytes() for path in sorted(tmp_path.glob("*.db"))] == before
    assert "no --now" in printed
    assert "Restore drill of local" in (tmp_path / "drill.html").read_text()


@pytest.mark.parametrize("option", ["--backup", "--now", "--inbox"])
def test_the_own_database_of_the_environment_is_refused(
    run: Run, backup_and_now: tuple[str, str], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """One of the given databases is the one in SLUICE_DSN, which the environment's processes use."""
    backup, now = backup_and_now
    given = {"--backup": [backup], "--now": [now], "--inbox": [f"billing={now}"]}
    own = backup if option == "--backup" else now
    monkeypatch.setenv("SLUICE_DSN", own)
    arguments = [part for name in ("--backup", option) for value in given[name] for part in (name, value)]

    code, _, failed = run("drill", "restore", *arguments)

    assert code == 3
    assert "is the environment's own database" in failed


@pytest.mark.parametrize(
    ("url", "other", "is_same"),
    ids=["user and port", "driver and case", "other database", "other port", "relative path", "other file"],
    argvalues=[
        ("postgresql://ann@localhost/shop", "postgresql://bob:x@127.0.0.1:5432/shop", True),
        ("postgresql://db/shop", "postgresql+psycopg://DB:5432/shop", True),
        ("postgresql://db/shop", "postgresql://db/restored", False),
        ("postgresql://db/shop", "postgresql://db:5433/shop", False),
        ("sqlite:///shop.db", "sqlite:///./shop.db", True),
        ("sqlite:///shop.db", "sqlite:///other.db", False),
    ],
)
def test_a_database_is_known_by_any_of_its_urls(url: str, other: str, *, is_same: bool) -> None:
    """User, password, driver, default port and spelling of the host make no other database."""
    places = [copies.place_of(engines.engine(each).url) for each in (url, other)]

    assert (places[0] == places[1]) is is_same


@pytest.fixture
def postgres_shop(postgres_url: str, run: Run) -> Iterator[OperatedShop]:
    """Yield a shop with a database of Postgres to itself."""
    server = engines.engine(postgres_url)
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("CREATE DATABASE drilled")
        engine = engines.engine(server.url.set(database="drilled").render_as_string(hide_password=False))
        with engine.begin() as made:
            outbox.metadata.create_all(made)
        with operated_shop(engine, run) as shop:
            yield shop
        engine.dispose()
        connection.exec_driver_sql("DROP DATABASE drilled WITH (FORCE)")
    server.dispose()


@pytest.mark.slow  # the first drill takes the same steps by day
def test_a_drill_on_postgres_copies_and_drops_its_copy(postgres_shop: OperatedShop, run: Run) -> None:
    """Without --now the drill judges the backup alone; no database of the drill is left on the server."""
    shop = postgres_shop
    shop.commit("a", 1, 2)
    shop.relay()
    shop.work()
    before = shop.dump()
    shop.engine.dispose()

    drilled, code = _drill(run, "--backup", shop.dsn)

    assert drilled["verdict"] == "VALID"
    assert code == 0
    assert shop.dump() == before
    with shop.engine.connect() as connection:
        left = "SELECT count(*) FROM pg_database WHERE datname ~ '^sluice_drill_'"
        assert connection.exec_driver_sql(left).scalar_one() == 0


@pytest.mark.slow  # the first drill takes the same steps by day
def test_a_database_in_use_is_refused_in_one_line(postgres_shop: OperatedShop, run: Run) -> None:
    """Postgres copies a database only while nobody else is connected to it."""
    with postgres_shop.engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
        code, _, failed = run("drill", "restore", "--backup", postgres_shop.dsn)

    assert code == 2
    assert "end all sessions on it" in failed
