"""Real relay processes die, stop, are sent away, and lose their database and their endpoint: nothing else is lost.

The producer is the example shop, the endpoint a LocalStack, and the judge the checker, over what relays and a consumer
recorded. How LocalStack deduplicates: see `shop_harness`. The lease of whoever died or stopped is ended by SQL, instead
of waiting thirty seconds for it.
"""

import json
import secrets
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, insert, select, text, update

from emulator import localstack
from sluice.cli.main import cli
from sluice.clock import eventually
from sluice.history.events import Kind
from sluice.messaging import failpoints
from sluice.messaging.database import engines
from sluice.messaging.errors import LeaseLostError
from sluice.messaging.outbox import tables
from sluice.messaging.relay.lease import Lease
from tests.support.cases import one_case_in
from tests.support.endpoints.tcp_proxy import TcpProxy
from tests.support.processes import shop_harness
from tests.support.processes.messaging_process import PATIENCE_SECONDS
from tests.support.processes.shop_harness import TOPIC, ShopHarness

SQLITE, POSTGRES = "sqlite", "postgresql"
BOTH_DATABASES = [SQLITE, pytest.param(POSTGRES, marks=pytest.mark.slow)]


@pytest.fixture
def line(localstack_shared: localstack.Emulator) -> Iterator[TcpProxy]:
    """Yield a TCP proxy to the shared LocalStack, which a test may hold or cut."""
    with TcpProxy(localstack_shared.endpoint_url) as made:
        yield made


@pytest.fixture
def shop(engine: Engine, localstack_shared: localstack.Emulator, tmp_path: Path) -> Iterator[ShopHarness]:
    """Yield the example shop with a topic of its own: producer, relay processes and a consumer."""
    with shop_harness.open_shop(engine, localstack_shared, tmp_path) as made:
        yield made


def _assert_every_commit_was_delivered_once(shop: ShopHarness) -> None:
    """Assert that every commit was sent and received once, in the order of its group, and no rolled back event was."""
    assert shop.consume() == shop.committed_bodies()
    assert shop.findings() == {}
    assert {row["status"] for row in shop.rows()} == {tables.SENT}
    assert shop.differences() == []


def _ids_by_message(shop: ShopHarness) -> dict[tuple[str | None, int | None], list[str | None]]:
    """Return the deduplication ids with which each message was published, by group and index."""
    ids = defaultdict(list)
    for event in shop.events():
        if event.kind == Kind.PUBLISHED:
            ids[event.message_group_id, event.idx].append(event.deduplication_id)
    return dict(ids)


_MAY_REPEAT = ("after_publish:2", "before_mark:2")


@pytest.mark.parametrize(
    ("engine", "failpoint"), one_case_in(4, [SQLITE, POSTGRES], failpoints.RELAY), indirect=["engine"]
)
def test_a_relay_killed_at_any_failpoint_loses_and_repeats_nothing(shop: ShopHarness, failpoint: str) -> None:
    """P10, P15, P17: it is killed with -9 at its second batch. The shop trades on, and another relay takes over."""
    shop.trade(20, seed=1)
    with shop.relay(failpoint=f"{failpoint}:2") as killed:
        assert killed.wait_for_exit() == -signal.SIGKILL

    shop.trade(5, seed=2)
    shop.let_another_finish()

    _assert_every_commit_was_delivered_once(shop)


@pytest.mark.parametrize("engine", BOTH_DATABASES, indirect=True)
@pytest.mark.parametrize(
    "failpoint",
    [
        "after_bundle",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("before_bundle", *(f"{name}:2" for name in failpoints.RELAY))
        ),
    ],
)
def test_a_relay_killed_with_bundles_repeats_each_as_the_same_message(shop: ShopHarness, failpoint: str) -> None:
    """It is killed with -9 at its first bundles: its second call, as the heads of its first walk go alone."""
    shop.switch_bundles(5)
    shop.trade(40, seed=1)
    with shop.relay(failpoint=failpoint) as killed:
        assert killed.wait_for_exit() == -signal.SIGKILL

    shop.trade(20, seed=2)
    shop.let_another_finish()

    _assert_every_commit_was_delivered_once(shop)
    ids = _ids_by_message(shop)
    assert {len(set(tries)) for tries in ids.values()} == {1}
    assert max(len(tries) for tries in ids.values()) == (2 if failpoint in _MAY_REPEAT else 1)
    assert sum(tries[0] is not None and tries[0].endswith(".1") for tries in ids.values()) > 3


@pytest.mark.parametrize("engine", [SQLITE], indirect=True)
def test_a_resend_under_a_new_deduplication_id_is_caught(shop: ShopHarness) -> None:
    """P10, negative control: a relay dies between publish and mark, and its successor uses new ids.

    The judge finds repeats.
    """
    shop.trade(20, seed=1)
    with shop.relay(failpoint="after_publish:2") as killed:
        assert killed.wait_for_exit() == -signal.SIGKILL

    with shop.engine.begin() as connection:
        pending = tables.messages.c.status == tables.PENDING
        for id_ in connection.scalars(select(tables.messages.c.id).where(pending)).all():
            changed = update(tables.messages).where(tables.messages.c.id == id_)
            connection.execute(changed.values(deduplication_id=secrets.token_hex(8)))
    shop.let_another_finish()

    assert shop.consume() != shop.committed_bodies()
    assert "B1" in {violation.anomaly for finding in shop.findings().values() for violation in finding.violations}


@pytest.mark.parametrize("engine", [pytest.param(SQLITE, marks=pytest.mark.slow), POSTGRES], indirect=True)
def test_a_relay_stopped_past_its_lease_notices_and_changes_nothing(shop: ShopHarness, line: TcpProxy) -> None:
    """P13: SIGSTOP hits the relay in the middle of a publish.

    After SIGCONT it may still publish; the same deduplication id makes that harmless.
    """
    with shop.relay(endpoint_url=line.url) as stopped:
        stopped.await_logged("leading")
        line.hold()
        shop.trade(20, seed=1)
        eventually(lambda: line.is_requested, timeout_seconds=PATIENCE_SECONDS, describe="the leader to publish")
        stopped.send(signal.SIGSTOP)
        shop.run_out_lease()
        with shop.relay():
            shop.await_sent()

            line.let_go()
            stopped.send(signal.SIGCONT)
            stopped.await_logged("lease lost")
            shop.trade(10, seed=2)
            shop.end_groups()
            shop.await_sent()

    assert max(len(ids) for ids in _ids_by_message(shop).values()) == 2
    assert max(len(set(ids)) for ids in _ids_by_message(shop).values()) == 1
    _assert_every_commit_was_delivered_once(shop)


@pytest.mark.parametrize("engine", BOTH_DATABASES, indirect=True)
def test_a_second_relay_leads_after_a_sigterm_to_the_first(shop: ShopHarness) -> None:
    """P5: the first one releases its lease and ends with 0, so nobody waits for the lease to run out."""
    with shop.relay() as first:
        led = first.await_logged("leading")
        with shop.relay() as second:
            shop.trade(20, seed=1)
            eventually(
                lambda: len(list(shop.history.glob("relay-*"))) == 2,
                timeout_seconds=PATIENCE_SECONDS,
                describe="the second to stand by",
            )
            shop.await_sent()
            assert second.log_entries("leading") == []

            first.stop()
            followed = second.await_logged("leading")

            shop.end_groups()
            shop.await_sent()
            second.stop()

    assert led["token"] == 1
    assert followed["token"] == 2
    assert len(first.log_entries("leading")) == len(second.log_entries("leading")) == 1
    with shop.engine.connect() as connection:
        assert connection.scalars(select(tables.leases.c.expires_at_us)).all() == [0]
    _assert_every_commit_was_delivered_once(shop)


def test_a_leader_stopped_in_a_write_blocks_others_only_for_its_lease(postgres: Engine) -> None:
    """P13: the stopped leader's transaction has locked the lease's row.

    Postgres ends the transaction when the lease is over, and rolls its changes back.
    """
    stopped, second = (Lease(postgres, TOPIC, lease_seconds=1, owner=owner) for owner in ("stopped", "second"))
    assert stopped.acquire()

    def write_and_stop() -> None:
        with stopped.writing() as connection:
            connection.execute(insert(tables.groups).values(topic=TOPIC, group_id="g", last_seq=7))
            eventually(second.acquire, timeout_seconds=PATIENCE_SECONDS, describe="another to lead")
            connection.execute(select(tables.groups))

    with pytest.raises(LeaseLostError, match="relay stopped stopped in the middle of a write"):
        write_and_stop()

    assert stopped.token is None
    assert second.token == 2
    with postgres.connect() as connection:
        assert connection.execute(select(tables.groups)).all() == []


def test_a_relay_outlives_a_restart_of_its_database(
    private_postgres: Any, localstack_shared: localstack.Emulator, tmp_path: Path
) -> None:
    """The same process publishes what is committed after the restart."""
    engine = engines.engine(private_postgres.get_uri())
    with engine.begin() as connection:
        tables.metadata.create_all(connection)

    with shop_harness.open_shop(engine, localstack_shared, tmp_path) as shop:
        shop.trade(20, seed=1)
        with shop.relay() as relay:
            shop.await_sent()
            engine.dispose()  # of the test's own connections
            private_postgres.stop()
            relay.await_logged("the database does not answer")
            private_postgres.ensure_postgres_running()
            shop.trade(10, seed=2)
            shop.end_groups()
            shop.await_sent()
            relay.stop()

        _assert_every_commit_was_delivered_once(shop)
    engine.dispose()


def _cut(line: TcpProxy) -> Callable[[], None]:
    """Cut the line to LocalStack, and return a function that mends it."""
    line.cut()
    return line.mend


def _lose_answers(line: TcpProxy) -> Callable[[], None]:
    """Lose the answers of LocalStack, and return a function that stops this once two are lost."""
    line.is_losing = True

    def stop_losing() -> None:
        assert line.lost_count >= 2
        line.is_losing = False

    return stop_losing


@pytest.mark.parametrize("engine", BOTH_DATABASES, indirect=True)
@pytest.mark.parametrize("harm", [_cut, _lose_answers], ids=["unreachable", "answers lost"])
def test_an_unanswered_message_is_sent_again_under_its_id(
    shop: ShopHarness, line: TcpProxy, harm: Callable[[TcpProxy], Callable[[], None]]
) -> None:
    """The relay sends the message again, whether or not the first call arrived: P10."""
    shop.trade(20, seed=1)
    mend = harm(line)
    with shop.relay(endpoint_url=line.url) as relay:
        eventually(
            lambda: any(row["attempts"] >= 2 for row in shop.rows()),
            timeout_seconds=PATIENCE_SECONDS,
            describe="something to have been tried twice",
        )
        shop.trade(10, seed=2)
        shop.end_groups()
        mend()
        shop.await_sent()
        relay.stop()

    ids = _ids_by_message(shop)
    assert max(len(tries) for tries in ids.values()) >= 3
    assert max(len(set(tries)) for tries in ids.values()) == 1
    assert relay.log_entries("not published, will be tried again")
    _assert_every_commit_was_delivered_once(shop)


@pytest.mark.parametrize("engine", [POSTGRES], indirect=True)
def test_a_commit_wakes_a_relay_that_listens(shop: ShopHarness) -> None:
    """With --listen the relay's next poll would be 45 to 75 seconds away."""
    listening = text("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND application_name = :name")
    name = shop.engine.url.query["application_name"]
    with shop.relay("--listen", "--poll", "60", "--lease", "300"):

        def is_listening() -> bool:
            with shop.engine.connect() as connection:
                return bool(connection.execute(listening, {"name": name}).scalar_one() == 1)

        eventually(is_listening, timeout_seconds=PATIENCE_SECONDS, describe="the relay to listen")
        shop.trade(1, seed=3, notify=True)

        eventually(
            lambda: [row["status"] for row in shop.rows()] == [tables.SENT],
            timeout_seconds=20,
            describe="the commit to be published",
        )


@pytest.mark.parametrize("engine", [SQLITE], indirect=True)
def test_sluice_delays_measures_every_message_at_each_stage(
    engine: Engine, localstack_shared: localstack.Emulator, tmp_path: Path
) -> None:
    """It reads the recorded history: how long a message waited in the outbox, in a call, and for its receive."""
    with shop_harness.open_shop(engine, localstack_shared, tmp_path, TOPIC) as shop:
        done = shop.trade(20, seed=1)
        shop.end_groups()
        with shop.relay("--until-empty") as relay:
            assert relay.wait_for_exit() == 0
        shop.consume()

        result = CliRunner().invoke(cli, ["delays", str(shop.history), "--json"], catch_exceptions=False)

    count = done.committed.total() + len(shop.committed_bodies())
    delays = json.loads(result.stdout)["delays"]
    assert {name: row["count"] for name, row in delays.items()} == dict.fromkeys(
        ("outbox wait", "API time", "receive wait"), count
    )
    assert all(0 < row["p50"] <= row["p95"] <= row["p99"] < 600 for row in delays.values())
