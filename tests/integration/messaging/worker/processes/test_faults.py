"""Real workers whose database or endpoint is gone for a while, who were frozen, or who should never have started."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from emulator import localstack
from sluice.clock import SystemClock, eventually
from sluice.declaration import naming
from sluice.messaging.database import engines
from tests.support.endpoints.tcp_proxy import TcpProxy
from tests.support.messaging.outbox.postgres_interleaving import await_lock_wait
from tests.support.processes import worker_processes
from tests.support.processes.messaging_process import PATIENCE_SECONDS
from tests.support.processes.worker_processes import DatabaseLine, WorkerFleet, consumer


@pytest.fixture
def worker_fleet(on_file: Engine, localstack_shared: localstack.Emulator, tmp_path: Path) -> Iterator[WorkerFleet]:
    """Yield workers of one consumer with an SQLite file."""
    with worker_processes.open_fleet(on_file, localstack_shared, tmp_path, consumer()) as made:
        yield made


@pytest.fixture
def postgres_fleet(
    on_postgres: Engine, localstack_shared: localstack.Emulator, tmp_path: Path
) -> Iterator[WorkerFleet]:
    """Yield workers of one consumer with a Postgres."""
    with worker_processes.open_fleet(on_postgres, localstack_shared, tmp_path, consumer()) as made:
        yield made


def test_l7_a_worker_frozen_in_a_transaction_commits_nothing_afterwards(postgres_fleet: WorkerFleet) -> None:
    """L7: SIGSTOP keeps a handler past its visibility timeout, and another worker waits for the group's row.

    The first worker goes on, sees that its time is over and rolls back; then the other has the effect.
    """
    gate = postgres_fleet.gate("gate")
    postgres_fleet.publish({"shared": [{"gate": str(gate.path), "is_stubborn": True}, {}]})
    with postgres_fleet.worker("--lanes", "1") as frozen:
        gate.await_reached()
        frozen.send(signal.SIGSTOP)
        gate.open()
        with postgres_fleet.worker("--lanes", "1") as other:
            await_lock_wait(postgres_fleet.engine)
            frozen.send(signal.SIGCONT)
            frozen.await_logged("lost: somebody else may have it")
            postgres_fleet.finish(other)

    postgres_fleet.assert_all_done()


@pytest.mark.slow
def test_l7_a_late_delete_removes_no_message_of_another_worker(postgres_fleet: WorkerFleet, line: TcpProxy) -> None:
    """L7, W6: a worker is frozen between commit and delete, and another one deletes the message.

    When the first goes on, its delete carries an old receipt handle; the next message of the group stays.
    """
    gate = postgres_fleet.gate("gate")
    postgres_fleet.publish({"shared": [{"gate": str(gate.path)}]})
    with postgres_fleet.worker("--lanes", "1", "--endpoint-url", line.url) as frozen:
        gate.await_reached()
        line.hold()
        gate.open()
        postgres_fleet.await_effects()
        eventually(lambda: line.is_requested, timeout_seconds=PATIENCE_SECONDS, describe="the delete to be asked for")
        frozen.send(signal.SIGSTOP)
        with postgres_fleet.worker("--lanes", "1") as other:
            other.await_logged("handled before; deleted")
            second = postgres_fleet.gate("second")
            postgres_fleet.publish({"shared": [{"gate": str(second.path)}]})
            second.await_reached()
            frozen.send(signal.SIGCONT)
            line.let_go()
            frozen.stop()
            second.open()
            postgres_fleet.finish(other)

    postgres_fleet.assert_all_done()


@pytest.mark.slow
def test_l7_a_worker_that_stays_frozen_blocks_others_for_a_limited_time(
    on_postgres: Engine, localstack_shared: localstack.Emulator, tmp_path: Path
) -> None:
    """L7: Postgres ends its transaction after ten visibility timeouts, as long as a handler may take."""
    quick = consumer(visibility_timeout_seconds=2, stop_timeout_seconds=1)
    with worker_processes.open_fleet(on_postgres, localstack_shared, tmp_path, quick) as worker_fleet:
        gate = worker_fleet.gate("gate")
        worker_fleet.publish({"shared": [{"gate": str(gate.path), "is_stubborn": True}, {}]})
        with worker_fleet.worker() as frozen:
            gate.await_reached()
            frozen.send(signal.SIGSTOP)
            with worker_fleet.worker() as other:
                worker_fleet.finish(other)

        worker_fleet.assert_all_done()


def test_a_restart_of_the_database_uses_up_no_attempt(
    private_postgres: Any, localstack_shared: localstack.Emulator, tmp_path: Path
) -> None:
    """Each message was received once, although the database was down while handlers ran."""
    engine = engines.engine(private_postgres.get_uri())
    patient = consumer(visibility_timeout_seconds=300)  # longer than the restart takes
    with worker_processes.open_fleet(engine, localstack_shared, tmp_path, patient) as worker_fleet:
        gate = worker_fleet.gate("gate")
        groups = [f"group-{number}" for number in range(4)]
        worker_fleet.publish({group: [{}, {}] for group in groups} | {"busy": [{"gate": str(gate.path)}, {}]})
        with worker_fleet.worker() as worker:
            gate.await_reached()
            engine.dispose()  # of the test's own connections
            private_postgres.stop()
            gate.open()
            worker.await_logged("the database refused")
            private_postgres.ensure_postgres_running()
            worker_fleet.publish({group: [{}] for group in groups})
            worker_fleet.finish(worker)

        worker_fleet.assert_all_done()
        assert set(worker_fleet.receive_counts()) == {1}
    engine.dispose()


def test_s1_a_worker_ends_in_time_although_its_database_stops_answering(postgres_fleet: WorkerFleet) -> None:
    """At SIGTERM a commit is without an answer. The worker ends within its stop timeout, and another one finishes."""
    gate, clock = postgres_fleet.gate("gate"), SystemClock()
    postgres_fleet.publish({"busy": [{"gate": str(gate.path)}, {}], "free": [{}]})
    with DatabaseLine(postgres_fleet.engine) as line:
        through = line.engine().url.render_as_string(hide_password=False)
        with postgres_fleet.worker("--dsn", through) as worker:
            gate.await_reached()
            line.hold()
            gate.open()
            eventually(lambda: line.is_requested, timeout_seconds=PATIENCE_SECONDS, describe="a statement to be asked")
            worker.send(signal.SIGTERM)
            signalled_at = clock.monotonic()
            assert worker.wait_for_exit() == 0
            took_seconds = clock.monotonic() - signalled_at
    with postgres_fleet.worker() as other:
        postgres_fleet.finish(other)

    postgres_fleet.assert_all_done()
    assert took_seconds < postgres_fleet.environment.consumers[0].stop_timeout_seconds + 2
    assert max(postgres_fleet.receive_counts()) == 2


@pytest.mark.parametrize("seconds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_w6_a_worker_outlives_an_endpoint_that_is_gone_for_a_while(
    worker_fleet: WorkerFleet, line: TcpProxy, seconds: int
) -> None:
    """W6, W13: messages that were handled and could not be deleted come again, and are only deleted."""
    gate, clock = worker_fleet.gate("gate"), SystemClock()
    worker_fleet.publish({"busy": [{"gate": str(gate.path)}, {}], "free": [{}]})
    with worker_fleet.worker("--endpoint-url", line.url) as worker:
        gate.await_reached()
        line.cut()
        gone_at = clock.monotonic()
        gate.open()
        worker.await_logged("not deleted: it comes again")
        worker.await_logged("nothing received")
        eventually(
            lambda: clock.monotonic() - gone_at >= seconds,
            timeout_seconds=PATIENCE_SECONDS,
            describe="the endpoint to be gone for long enough",
        )
        worker_fleet.publish({"busy": [{}], "free": [{}]})
        line.mend()
        worker_fleet.finish(worker)

    worker_fleet.assert_all_done()


def test_w16_two_consumers_in_one_database_each_handle_every_message_once(
    on_postgres: Engine, localstack_shared: localstack.Emulator, tmp_path: Path
) -> None:
    """They share the inbox's tables, whose rows name their consumer."""
    with worker_processes.open_fleet(
        on_postgres, localstack_shared, tmp_path, consumer("billing"), consumer("shipping")
    ) as worker_fleet:
        worker_fleet.publish({f"group-{number}": [{}, {"retries": 1}, {}] for number in range(4)})
        worker_fleet.end_groups()
        with worker_fleet.worker(consumer="billing") as billing, worker_fleet.worker(consumer="shipping") as shipping:
            worker_fleet.finish(billing, shipping)

        worker_fleet.assert_all_done()
        assert worker_fleet.findings() == {}


def _exit_code_and_log(worker_fleet: WorkerFleet, *options: str) -> tuple[int, str]:
    """Return exit code and log of a worker that ends by itself."""
    with worker_fleet.worker(*options) as worker:
        code = worker.wait_for_exit()
    return code, worker.log


def test_a_worker_that_cannot_work_says_why_in_one_line(worker_fleet: WorkerFleet, tmp_path: Path) -> None:
    """Exit code 3 is for options or declarations that have to be changed, 2 for services that are not there."""
    absent = f"sqlite:///{tmp_path / 'absent.db'}"
    empty = engines.engine(f"sqlite:///{tmp_path / 'empty.db'}")
    empty.connect().close()
    empty.dispose()
    name = naming.queue_name(worker_fleet.environment, worker_fleet.environment.consumers[0])
    url = worker_fleet.urls["billing"]

    assert _exit_code_and_log(worker_fleet, "--handlers", "no.such.module") == (
        3,
        "sluice: handlers are 'no.such.module', and there is no such module; put it on the Python path, or correct"
        " Consumer.handlers in the declaration\n",
    )
    assert _exit_code_and_log(worker_fleet, "--consumer", "nobody") == (
        3,
        f"sluice: consumer is 'nobody', and environment '{worker_fleet.environment.name}' has billing; correct"
        " --consumer, or declare it\n",
    )
    assert _exit_code_and_log(worker_fleet, "--dsn", absent) == (
        3,
        f"sluice: database {tmp_path / 'absent.db'} does not exist; correct --dsn, or create it with `sluice"
        " schema apply inbox`\n",
    )
    assert _exit_code_and_log(worker_fleet, "--dsn", str(empty.url)) == (
        2,
        "sluice: the inbox's tables are not in this database; create them with `sluice schema apply inbox`\n",
    )
    worker_fleet.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "7"})
    assert _exit_code_and_log(worker_fleet) == (
        3,
        f"sluice: queue {url} is not what its worker needs: the queue's VisibilityTimeout is 7, allowed is"
        " visibility_timeout_seconds (5), by which its workers hold a message; deploy the environment's stacks,"
        " or declare it so\n",
    )
    worker_fleet.sqs.delete_queue(QueueUrl=worker_fleet.urls.pop("billing"))
    assert _exit_code_and_log(worker_fleet) == (
        2,
        f"sluice: queue {name} is not at {worker_fleet.emulated.endpoint_url}; deploy the environment's stacks there,"
        f" or"
        " correct --env or --endpoint-url\n",
    )
    assert _exit_code_and_log(worker_fleet, "--endpoint-url", "http://127.0.0.1:1") == (
        2,
        "sluice: the queue does not answer (EndpointConnectionError: Could not connect to the endpoint URL:"
        ' "http://127.0.0.1:1/"); look at --endpoint-url\n',
    )
