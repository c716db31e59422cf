"""Real workers are told to stop: they finish or give back what they have, in time, and nobody notices.

A message that was given back is another's at once; one that was not would stand still for a visibility timeout.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine

from emulator import localstack
from examples.services.models import Base
from sluice.clock import SystemClock, eventually
from sluice.history.events import Kind
from tests.support.declaration import environment
from tests.support.endpoints.capturing_server import CapturedRequest, Reply, capturing
from tests.support.endpoints.tcp_proxy import TcpProxy
from tests.support.processes import worker_processes
from tests.support.processes.messaging_process import PATIENCE_SECONDS
from tests.support.processes.worker_processes import WorkerFleet, consumer

LONG_SECONDS = 300
"""A visibility timeout nobody here waits for: whatever comes again was given back."""


@pytest.fixture
def worker_fleet(on_file: Engine, localstack_shared: localstack.Emulator, tmp_path: Path) -> Iterator[WorkerFleet]:
    """Yield a worker_fleet with one consumer whose messages come again when they are given back, and not before."""
    patient = consumer(visibility_timeout_seconds=LONG_SECONDS, stop_timeout_seconds=6)
    with worker_processes.open_fleet(on_file, localstack_shared, tmp_path, patient) as made:
        yield made


def _assert_nothing_in_flight(worker_fleet: WorkerFleet) -> None:
    """Check that within a second of the exit no message is in flight: S1."""
    url = worker_fleet.urls["billing"]
    eventually(lambda: worker_fleet.counts(url)[1] == 0, timeout_seconds=1, describe="nothing to be in flight")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_s1_a_message_in_work_is_finished_before_the_worker_ends(
    worker_fleet: WorkerFleet, number: signal.Signals
) -> None:
    """The worker is told to stop twice while its handler works; the second signal changes nothing."""
    gate = worker_fleet.gate("gate")
    worker_fleet.publish({"busy": [{"gate": str(gate.path)}, {}]})
    with worker_fleet.worker() as worker:
        gate.await_reached()
        worker.send(number)
        worker.await_logged("stopping")
        worker.send(number)
        gate.open()
        assert worker.wait_for_exit() == 0

    _assert_nothing_in_flight(worker_fleet)
    done = worker_fleet.committed_effects()["busy"]
    assert done in ([1], [1, 2])  # the second is for a poll that is still open, if one is
    assert worker_fleet.counts(worker_fleet.urls["billing"]) == (2 - len(done), 0, 0)
    assert worker.log_entries("stopped")[0]["unfinished"] == 0


def test_s1_a_message_received_after_sigterm_is_handled(worker_fleet: WorkerFleet) -> None:
    """The polls were open when the signal came, and a message came after it; one poll brings it, once: S1, S5."""
    worker_fleet.publish({"early": [{}]})
    with worker_fleet.worker() as worker:
        worker_fleet.await_effects()
        worker_fleet.await_counts(worker_fleet.urls["billing"], (0, 0, 0))
        worker.send(signal.SIGTERM)
        worker.await_logged("stopping")
        worker_fleet.publish({"late": [{}]})
        assert worker.wait_for_exit() == 0

    _assert_nothing_in_flight(worker_fleet)
    assert worker_fleet.committed_effects() == {"early": [1], "late": [1]}
    came = [event.message_group_id for event in worker_fleet.events() if event.kind == Kind.RECEIVED]
    assert came == ["early", "late"]


def test_s3_the_message_of_an_endless_handler_is_released_before_the_end(worker_fleet: WorkerFleet) -> None:
    """The worker ends within its stop timeout of 6 s; its successor receives the message at once."""
    gate = worker_fleet.gate("gate")
    worker_fleet.publish({"held": [{"gate": str(gate.path), "is_stubborn": True}, {}]})
    clock = SystemClock()
    with worker_fleet.worker() as worker:
        gate.await_reached()
        worker.send(signal.SIGTERM)
        signalled_at = clock.monotonic()
        assert worker.wait_for_exit() == 0
        took_seconds = clock.monotonic() - signalled_at

    assert took_seconds < 6
    assert worker.log_entries("stopped")[0]["unfinished"] == 1
    _assert_nothing_in_flight(worker_fleet)
    with worker_fleet.worker() as successor:
        worker_fleet.finish(successor)
    worker_fleet.assert_all_done()


@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_s5_rolling_restarts_under_load_leave_the_dlq_empty(worker_fleet: WorkerFleet, count: int) -> None:
    """Each restart uses up at most one receive of a message, and a message has three."""
    groups = [f"group-{number}" for number in range(4)]
    with ExitStack() as running:
        worker = running.enter_context(worker_fleet.worker())
        for _ in range(count):
            worker_fleet.publish({group: [{}, {}, {}] for group in groups})
            replaced, worker = worker, running.enter_context(worker_fleet.worker())
            worker.await_logged("working")
            worker_fleet.publish({group: [{}, {}, {}] for group in groups})
            replaced.stop()
        worker_fleet.end_groups()
        worker_fleet.finish(worker)

    worker_fleet.assert_all_done()
    assert worker_fleet.findings() == {}
    assert max(worker_fleet.receive_counts()) <= 3


@pytest.mark.xdist_group("local")
def test_s6_the_images_command_ends_with_0_after_sigterm(
    on_file: Engine, localstack_shared: localstack.Emulator, tmp_path: Path
) -> None:
    """`sluice worker` is started as process 1 of a container is: without a shell, configured by variables.

    A message that comes after the signal, while a poll is open, is still handled.
    """
    Base.metadata.create_all(on_file)
    with worker_processes.open_fleet(
        on_file, localstack_shared, tmp_path, environment=environment("local")
    ) as worker_fleet:
        variables = {"SLUICE_ENV": "local", "SLUICE_CONSUMER": "audit", "SLUICE_DSN": str(on_file.url)}
        log = tmp_path / "worker.log"
        with (
            log.open("w") as written,
            subprocess.Popen(
                [sys.executable, "-m", "sluice", "worker"],
                env=localstack.with_endpoint(localstack_shared) | variables,
                stderr=written,
            ) as worker,
        ):
            _await_in(log, "working")
            worker.send_signal(signal.SIGTERM)
            _await_in(log, "stopping")
            worker_fleet.publish({"late": [{"version": 1}]})
            ended = worker.wait(timeout=30)
        assert worker_fleet.counts(worker_fleet.urls["audit"]) == (0, 0, 0)

    assert ended == 0, log.read_text("utf-8")
    assert [json.loads(line)["event"] for line in log.read_text("utf-8").splitlines()] == [
        "working",
        "stopping",
        "worked on",
        "stopped",
    ]
    assert json.loads(log.read_text("utf-8").splitlines()[2])["handled"] == 1


def _await_in(log: Path, event: str) -> None:
    """Wait until a log has a line about this event."""
    eventually(
        lambda: f'"{event}"' in log.read_text("utf-8"), timeout_seconds=PATIENCE_SECONDS, describe=f"{event} in {log}"
    )


def test_s6_a_signal_during_the_start_ends_the_worker_with_0(worker_fleet: WorkerFleet, line: TcpProxy) -> None:
    """S6: the signal comes while the worker reads its queue's attributes, as when a deployment is cancelled."""
    line.hold()
    with worker_fleet.worker("--endpoint-url", line.url) as worker:
        eventually(lambda: line.is_requested, timeout_seconds=PATIENCE_SECONDS, describe="the queue to be looked at")
        worker.send(signal.SIGTERM)
        line.let_go()
        assert worker.wait_for_exit() == 0

    assert worker.log_entries("stopped")[0]["unfinished"] == 0


def _grant_protection(request: CapturedRequest) -> Reply:
    """Grant what an ECS agent is asked for."""
    return Reply(body=b'{"protection": %b}' % request.body)


def test_s7_a_task_is_protected_from_scale_in_only_while_it_works(worker_fleet: WorkerFleet) -> None:
    """The worker asks the ECS agent for protection before a handler runs, and ends it when it is idle."""
    gate = worker_fleet.gate("gate")
    worker_fleet.publish({"busy": [{"gate": str(gate.path)}]})
    with capturing(_grant_protection) as agent, worker_fleet.worker(ECS_AGENT_URI=agent.url) as worker:
        gate.await_reached()
        eventually(
            lambda: len(agent.captured) == 1, timeout_seconds=PATIENCE_SECONDS, describe="protection to be asked for"
        )
        worker.send(signal.SIGTERM)
        gate.open()
        assert worker.wait_for_exit() == 0

    assert {request.path for request in agent.captured} == {"/task-protection/v1/state"}
    assert [json.loads(request.body) for request in agent.captured] == [
        {"ProtectionEnabled": True, "ExpiresInMinutes": 10},
        {"ProtectionEnabled": False},
    ]
    assert worker_fleet.committed_effects() == {"busy": [1]}
