"""The tasks of a service as ECS keeps them: which task is stopped, and when, and the agent that protects tasks."""

import http.client
import json
from collections.abc import Iterator

import pytest

from sluice.clock import SystemClock, VirtualClock
from sluice.messaging.worker.scale_in_protection import Protection
from spark_load.consume.scaling.ecs_agent import EcsAgent
from spark_load.consume.scaling.task_pool import TaskPool


class ScriptedProcess:
    """A process whose state a test sets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.signals: list[str] = []
        self.code: int | None = None
        self.receives = False

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.signals.append("SIGTERM")

    def kill(self) -> None:
        self.signals.append("SIGKILL")

    def is_polling(self) -> bool:
        return self.receives


class PoolUnderTest:
    """A pool of scripted processes, with a clock that the test moves."""

    def __init__(self, agent: EcsAgent, clock: VirtualClock) -> None:
        self.agent, self.clock = agent, clock
        self.processes: list[ScriptedProcess] = []
        self.pool = TaskPool("billing", self._begin, agent=agent, stop_timeout_seconds=30, clock=clock)

    def _begin(self, name: str) -> ScriptedProcess:
        self.processes.append(ScriptedProcess(name))
        return self.processes[-1]

    def receive(self) -> None:
        for process in self.processes:
            process.receives = True
        self.pool.tend()

    @property
    def signals(self) -> list[list[str]]:
        return [process.signals for process in self.processes]

    def protect(self, name: str, *, is_enabled: bool = True) -> None:
        self.agent.answer(name, json.dumps({"ProtectionEnabled": is_enabled}).encode())


@pytest.fixture
def clock() -> VirtualClock:
    """Return the clock that the test moves."""
    return VirtualClock()


@pytest.fixture
def agent(clock: VirtualClock) -> Iterator[EcsAgent]:
    """Yield the ECS agent's endpoint, at which workers ask for protection from scale-in."""
    with EcsAgent(clock) as agent:
        yield agent


@pytest.fixture
def pool_under_test(agent: EcsAgent, clock: VirtualClock) -> PoolUnderTest:
    """Return a pool of tasks whose processes do what the test says."""
    return PoolUnderTest(agent, clock)


def test_scaling_out_starts_the_missing_tasks(pool_under_test: PoolUnderTest) -> None:
    """A task counts as running when it receives from the queue; until then the pool is not settled."""
    pool_under_test.pool.scale(2)
    started = [process.name for process in pool_under_test.processes]
    is_settled_before = pool_under_test.pool.is_settled
    pool_under_test.receive()

    assert started == ["billing-0", "billing-1"]
    assert is_settled_before is False
    assert pool_under_test.pool.is_settled is True
    assert pool_under_test.pool.running_count == 2


def test_the_newest_unprotected_task_is_stopped_first(pool_under_test: PoolUnderTest) -> None:
    """The newest task is protected from scale-in, so the one before it gets SIGTERM."""
    pool_under_test.pool.scale(3)
    pool_under_test.receive()
    pool_under_test.protect("billing-2")
    pool_under_test.pool.scale(2)

    assert pool_under_test.signals == [[], ["SIGTERM"], []]
    assert [task.was_protected for task in pool_under_test.pool.tasks] == [False, False, False]


def test_scaling_in_waits_for_the_first_task_without_protection(pool_under_test: PoolUnderTest) -> None:
    """Both tasks are protected; the one whose protection ends first is stopped."""
    pool_under_test.pool.scale(2)
    pool_under_test.receive()
    for name in ("billing-0", "billing-1"):
        pool_under_test.protect(name)
    pool_under_test.pool.scale(1)
    before = [list(signals) for signals in pool_under_test.signals]
    pool_under_test.protect("billing-0", is_enabled=False)
    pool_under_test.pool.tend()

    assert before == [[], []]
    assert pool_under_test.signals == [["SIGTERM"], []]


def test_a_task_needed_again_before_its_stop_stays(pool_under_test: PoolUnderTest) -> None:
    """The number of tasks goes down and up again before any protection ends."""
    pool_under_test.pool.scale(2)
    pool_under_test.receive()
    for name in ("billing-0", "billing-1"):
        pool_under_test.protect(name)
    pool_under_test.pool.scale(1)
    pool_under_test.pool.scale(2)
    pool_under_test.protect("billing-0", is_enabled=False)
    pool_under_test.pool.tend()

    assert pool_under_test.signals == [[], []]


def test_a_task_that_ignores_sigterm_is_killed_after_its_stop_timeout(
    pool_under_test: PoolUnderTest, clock: VirtualClock
) -> None:
    """The stop timeout is 30 s, and SIGKILL is sent once. Such a task did not end by itself."""
    pool_under_test.pool.scale(1)
    pool_under_test.receive()
    pool_under_test.pool.scale(0)
    clock.sleep(29)
    pool_under_test.pool.tend()
    before = list(pool_under_test.signals[0])
    clock.sleep(1)
    pool_under_test.pool.tend()
    pool_under_test.pool.tend()
    pool_under_test.processes[0].code = -9
    pool_under_test.pool.tend()

    assert before == ["SIGTERM"]
    assert pool_under_test.signals == [["SIGTERM", "SIGKILL"]]
    assert pool_under_test.pool.alive == []
    assert pool_under_test.pool.tasks_ended_by_themselves == []
    assert pool_under_test.pool.is_settled is True


def test_a_task_that_ends_unasked_is_listed(pool_under_test: PoolUnderTest) -> None:
    """The load test reports it, because no worker should end during a run."""
    pool_under_test.pool.scale(1)
    pool_under_test.processes[0].code = 2
    pool_under_test.pool.tend()

    assert [task.name for task in pool_under_test.pool.tasks_ended_by_themselves] == ["billing-0"]


def test_protection_ends_by_itself_when_it_expires(agent: EcsAgent, clock: VirtualClock) -> None:
    """A worker that was killed cannot end its protection: it expires after the minutes asked for."""
    status, answer = agent.answer("billing-0", b'{"ProtectionEnabled": true, "ExpiresInMinutes": 10}')
    clock.sleep(599)
    before = agent.is_protected("billing-0")
    clock.sleep(1)

    assert status == 200
    assert answer["protection"]["ExpirationDate"] == "1970-01-01T00:10:00Z"
    assert before is True
    assert agent.is_protected("billing-0") is False
    assert agent.is_protected("billing-1") is False


def test_the_agent_grants_a_worker_the_protection_that_it_requests(agent: EcsAgent) -> None:
    """The product's own client asks the agent, and gives the protection back at its end."""
    protection = Protection(agent.uri("billing-0"), SystemClock())
    protection.want(is_busy=True)
    protected_while_busy = [name for name in ("billing-0", "billing-1") if agent.is_protected(name)]
    protection.stop()

    assert protected_while_busy == ["billing-0"]
    assert agent.is_protected("billing-0") is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"ProtectionEnabled": 1}',
        b'{"ProtectionEnabled": true, "Minutes": 1}',
        b'{"ProtectionEnabled": true, "ExpiresInMinutes": 0}',
        b'{"ProtectionEnabled": true, "ExpiresInMinutes": 2881}',
        b'{"ProtectionEnabled": true, "ExpiresInMinutes": "10"}',
    ],
)
def test_the_agent_refuses_invalid_requests_as_ecs_does(agent: EcsAgent, body: bytes) -> None:
    """The minutes are an integer from 1 to 2880, and no other field is allowed."""
    status, answer = agent.answer("billing-0", body)

    assert status == 400
    assert answer["error"]["Code"] == "InvalidParameterException"
    assert not agent.is_protected("billing-0")


def test_an_unknown_address_of_the_agent_is_answered_with_404(agent: EcsAgent) -> None:
    host, _, _ = agent.uri("t").removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request("PUT", "/t/task-protection/v2/state", body=b"{}")

    assert connection.getresponse().status == 404
